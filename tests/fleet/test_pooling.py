import math
import random
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge.fleet import Verdict, pool
from hinge.fleet.pooling import (
    ALIKE,
    OUTLIER,
    SHIFTED,
    UNLIKE,
    UNLIKE_BIN,
    are_kin,
    log_factorial,
    unlike,
    unlikeness,
)

BINS = 5
Seen = tuple[list[int], list[int]]
pairs = st.integers(0, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
evidence = st.lists(pairs, min_size=BINS, max_size=BINS).map(lambda rows: tuple(map(list, zip(*rows, strict=True))))


def exact_factor(n: int, a: int, m: int, b: int) -> Fraction:
    """The Bayes factor in whole numbers: ∫ p^a (1-p)^(n-a) dp = a! (n-a)! / (n+1)!."""

    def marginal(n: int, a: int) -> Fraction:
        return Fraction(math.factorial(a) * math.factorial(n - a), math.factorial(n + 1))

    return marginal(n, a) * marginal(m, b) / marginal(n + m, a + b)


def reference_unlikeness(one: Seen, other: Seen) -> float:
    both = [pair for pair in zip(*one, *other, strict=True) if pair[0] and pair[2]]
    factors = [math.log(exact_factor(*pair)) for pair in both]
    total = math.inf if any(f > UNLIKE_BIN for f in factors) else sum(max(f, -ALIKE) for f in factors)
    score, spread = Fraction(0), Fraction(0)
    for n, a, m, b in both:
        share = Fraction(a + b, n + m)
        score += a - n * share
        spread += n * m * share * (1 - share) / (n + m - 1)
    shift = float(score**2 / (2 * (spread + 1))) - 0.5 * math.log(spread + 1)
    return max(total - UNLIKE, shift - SHIFTED)


def test_many_bins_that_differ_a_little_are_one_difference() -> None:
    one, other = ([20] * BINS, [4, 8, 10, 12, 14]), ([20] * BINS, [8, 12, 14, 16, 17])
    assert sum(unlike(*pair) for pair in zip(*one, *other, strict=True)) < 0.0
    assert reference_unlikeness(one, other) > 0.0


def unlikeness_of(one: Any, other: Any) -> float:
    """That of one device, of the many that it is made for."""
    (n, a), (m, b) = np.array(one, float), np.array(other, float)
    return float(unlikeness(n, a, m[None], b[None])[0])


@given(pairs, pairs)
def test_the_bayes_factor_is_that_of_whole_numbers(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert unlike(*one, *other) == pytest.approx(math.log(exact_factor(*one, *other)), abs=1e-8)


@pytest.mark.parametrize("x", [0.0, 0.5, 3.0, 7.2, 100.0, 1e6])
def test_log_factorial_is_the_standard_librarys(x: float) -> None:
    assert log_factorial(x) == pytest.approx(math.lgamma(x + 1.0), rel=1e-11, abs=1e-9)


@given(evidence, evidence)
def test_unlikeness_by_hand_and_either_way_round(one: Seen, other: Seen) -> None:
    expected = reference_unlikeness(one, other)
    assert unlikeness_of(one, other) == pytest.approx(expected, abs=1e-6)
    assert unlikeness_of(other, one) == pytest.approx(expected, abs=1e-6)


def by_hand(own: Seen, others: dict[str, Seen]) -> list[list[float]]:
    """The pooling of the module's docstring for counts that nobody is told apart by, in plain lists."""
    kin = [name for name, theirs in others.items() if sum(theirs[0]) and reference_unlikeness(own, theirs) <= 0.0]
    trim, waiting = (len(kin) + 1) // 4, dict.fromkeys(kin, (0, 0))
    blocks: dict[int, dict[str, tuple[int, int]]] = {}
    for i in range(BINS):
        waiting = {k: (n + others[k][0][i], a + others[k][1][i]) for k, (n, a) in waiting.items()}
        seen = {name: counts for name, counts in waiting.items() if counts[0]}
        if len(seen) > 2 * trim:
            blocks[i], waiting = seen, dict.fromkeys(kin, (0, 0))
    reference = [[0.0] * BINS, [0.0] * BINS]
    most = {i: 2 * statistics.median(n for n, _ in seen.values()) for i, seen in blocks.items()}
    for i, seen in blocks.items():
        ranked = sorted(seen.values(), key=lambda counts: (counts[1] / counts[0], counts[0]))
        for n, a in ranked[trim : len(ranked) - trim]:
            reference[0][i] += min(n, most[i])
            reference[1][i] += min(n, most[i]) * a / n
    lent = [[0.0] * BINS, [0.0] * BINS]
    for name in kin:
        theirs = [[blocks.get(i, {}).get(name, (0, 0))[k] for i in range(BINS)] for k in (0, 1)]
        if are_kin((reference[0], reference[1]), (theirs[0], theirs[1])):
            for i, (n, a) in enumerate(zip(*theirs, strict=True)):
                if n and unlike(reference[0][i], reference[1][i], n, a) <= OUTLIER:
                    lent[0][i] += min(n, most[i])
                    lent[1][i] += min(n, most[i]) * a / n
    return lent


def drawn(seed: int, devices: int, offloads: list[float]) -> list[Seen]:
    """Honest devices, each with its own counts, of one agreement in each bin."""
    chance, agreement = np.random.default_rng(seed), np.linspace(0.1, 0.95, BINS)
    counts = chance.poisson(offloads, (devices, BINS))
    return [(row.tolist(), chance.binomial(row, agreement).tolist()) for row in counts]


@pytest.mark.parametrize("seed", range(12))
def test_pooling_by_hand(seed: int) -> None:
    own, *rest = drawn(seed, 12, [0.3, 2, 8, 1, 20])
    others = {f"d{k}": each for k, each in enumerate(rest)}
    pooled, expected = pool(own, others), by_hand(own, others)
    if are_kin(own, (expected[0], expected[1])):  # else the halves come next
        assert pooled.offloads == pytest.approx(expected[0])
        assert pooled.agreements == pytest.approx(expected[1])
    assert sum(pooled.offloads) > 0


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(evidence, st.lists(evidence, max_size=9), st.randoms())
def test_whatever_is_said_the_pool_is_possible_and_has_no_order(
    own: Seen, said: list[Seen], chance: random.Random
) -> None:
    others = {f"d{k}": each for k, each in enumerate(said)}
    pooled = pool(own, others)
    assert all(0.0 <= a <= n * (1 + 1e-12) for n, a in zip(pooled.offloads, pooled.agreements, strict=True))
    shuffled = list(others.items())
    chance.shuffle(shuffled)
    again = pool(own, dict(shuffled))
    assert again.verdicts == pooled.verdicts
    assert again.offloads == pytest.approx(pooled.offloads)
    assert again.agreements == pytest.approx(pooled.agreements)


def test_a_fifth_of_liars_is_told_apart_and_changes_little() -> None:
    own, *rest = drawn(3, 12, [10, 10, 10, 10, 10])
    honest = {f"d{k}": each for k, each in enumerate(rest)}
    for share in (lambda _: 1.0, lambda _: 0.0, lambda p: 1.0 - p):
        lies = {k: [n * share(a / n) if n else 0 for n, a in zip(*rest[k], strict=True)] for k in (0, 1)}
        others = honest | {f"d{k}": (rest[k][0], lies[k]) for k in (0, 1)}
        pooled, truth = pool(own, others), pool(own, honest)
        assert {pooled.verdicts[f"d{k}"] for k in (0, 1)} <= {Verdict.UNLIKE_US, Verdict.UNLIKE_FLEET}
        assert sum(pooled.offloads) <= sum(truth.offloads)
        for n, a, m, b in zip(pooled.offloads, pooled.agreements, truth.offloads, truth.agreements, strict=True):
            assert abs(a / n - b / m) < 0.1


def test_a_lie_about_one_rare_bin_is_not_believed() -> None:
    own, *rest = drawn(4, 12, [0.2, 10, 10, 10, 10])
    honest = {f"d{k}": each for k, each in enumerate(rest)}
    colluding = honest | {f"d{k}": ([200, *rest[k][0][1:]], [200, *rest[k][1][1:]]) for k in (0, 1)}
    assert pool(own, colluding).agreements[0] == 0.0


def test_nobody_counts_for_more_than_twice_the_median() -> None:
    own, *rest = drawn(5, 9, [10] * BINS)
    others = {f"d{k}": each for k, each in enumerate(rest)}
    many = [[1_000 * x for x in column] for column in rest[0]]
    agreement = [a / n for n, a in zip(*np.sum(rest, axis=0).tolist(), strict=True)]
    others["d0"] = (many[0], [round(n * p) for n, p in zip(many[0], agreement, strict=True)])
    for n, counts in zip(
        pool(own, others).offloads, zip(*(each[0] for each in others.values()), strict=True), strict=True
    ):
        assert n <= sum(min(count, 2 * statistics.median(counts)) for count in counts) + 1e-9


def test_two_populations_are_told_apart() -> None:
    chance, up, down = np.random.default_rng(6), np.linspace(0.2, 0.95, BINS), np.linspace(0.0, 0.5, BINS)
    counts, fleets, believed = np.full(BINS, 30), 200, list[str]()
    for _ in range(fleets):
        kin = {f"kin {k}": (counts.tolist(), chance.binomial(counts, up).tolist()) for k in range(5)}
        strangers = {f"stranger {k}": (counts.tolist(), chance.binomial(counts, down).tolist()) for k in range(6)}
        pooled = pool((counts.tolist(), chance.binomial(counts, up).tolist()), kin | strangers)
        believed += [name.split()[0] for name, verdict in pooled.verdicts.items() if verdict == Verdict.KIN]
    assert {*believed} == {"kin"}
    # Two that are alike differ by chance: U²/V is χ² with one degree of freedom, and must not exceed this
    spread = sum(30 * 30 / 59 * p * (1 - p) for p in up)
    doubted = math.erfc(math.sqrt((SHIFTED + 0.5 * math.log(spread + 1.0)) * (spread + 1.0) / spread))
    assert len(believed) / (5 * fleets) == pytest.approx(1.0 - doubted, abs=0.02)


def test_who_has_said_nothing_is_silent_and_an_empty_fleet_lends_nothing() -> None:
    nothing = ([0.0] * BINS, [0.0] * BINS)
    assert pool(nothing, {}) == ([0.0] * BINS, [0.0] * BINS, {})
    assert pool(nothing, {"new": nothing}).verdicts == {"new": Verdict.SILENT}
