"""Dips in agreement: hardly ever found where there are none, found where they are planted, and named."""

from itertools import product
from math import comb

import numpy as np
import pytest

from hinge import UniformBins, load_trace
from hinge.policies import policy_class, policy_names
from hinge.theory import Dip, agreement, significant_dips
from hinge.traces import trace_names

FLAT, RISING = np.full(16, 0.7), np.linspace(0.1, 0.95, 16)


def dips(curve: np.ndarray, rows: int, seed: int, cost: float = 0.4) -> list[Dip]:
    """What is found in a log with that agreement and even arrivals."""
    chance = np.random.default_rng(seed)
    bins = chance.integers(0, len(curve), rows)
    return significant_dips(bins, chance.random(rows) < curve[bins], len(curve), cost)


def with_dip(depth: float, bin: int = 12) -> np.ndarray:
    return np.where(np.arange(16) == bin, RISING - depth, RISING)


def log(*counts: tuple[int, int]) -> tuple[list[int], list[bool]]:
    """A log with these (agreements, rows) in each bin."""
    bins = [bin for bin, (_, rows) in enumerate(counts) for _ in range(rows)]
    return bins, [row < agreements for agreements, rows in counts for row in range(rows)]


# -- how often it is wrong --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curve", "rows"), [(FLAT[:2], 50), (FLAT, 300), (FLAT, 10_000), (RISING, 10_000), (np.repeat(FLAT, 16), 5_000)]
)
def test_a_monotone_log_warns_in_at_most_one_of_a_hundred(curve: np.ndarray, rows: int) -> None:
    logs = 1000 if len(curve) <= 16 else 200
    assert sum(bool(dips(curve, rows, seed)) for seed in range(logs)) <= logs / 100


def test_less_confidence_finds_more_and_all_of_it_by_chance() -> None:
    chance = np.random.default_rng(3)
    found = {0.5: 0, 0.99: 0}
    for confidence in found:
        for _ in range(200):
            bins = chance.integers(0, 16, 2000)
            found[confidence] += bool(significant_dips(bins, chance.random(2000) < 0.7, 16, 0.5, confidence))
    assert 2 <= found[0.5] <= 100
    assert found[0.99] <= 2


@pytest.mark.parametrize("bins", [16, 256])
@pytest.mark.parametrize("name", trace_names())
def test_no_trace_that_comes_with_the_package_dips_by_more_than_chance(name: str, bins: int) -> None:
    trace = load_trace(name)
    assert significant_dips(trace.bins_by(UniformBins(bins)), trace.agreed, bins, 0.5) == []


def test_the_chance_is_fisher_s_exact_one_or_a_little_more() -> None:
    for n, m in ((3, 4), (7, 7), (12, 5), (20, 30)):
        for a, b in product(range(n + 1), range(m + 1)):
            if b * n >= a * m:
                continue
            bound = np.exp(agreement.log_chance(*(np.array([each]) for each in (n, a, m, b))))[0]
            tail = sum(comb(n, k) * comb(m, a + b - k) for k in range(a, min(n, a + b) + 1)) / comb(n + m, a + b)
            assert tail <= bound * (1 + 1e-9)
            assert bound <= min(1.0, 4 * tail)
            assert tail > 0.01 or bound <= 1.4 * tail


# -- what it finds ----------------------------------------------------------------------------------------------------


def test_a_planted_dip_is_found_and_named() -> None:
    found = [dips(with_dip(0.35), 6000, seed) for seed in range(100)]
    named = [[(dip.bin, dip.last_bin, dip.crosses) for dip in each] for each in found]
    assert named.count([(12, 12, True)]) >= 97
    first = found[0][0]
    assert first.below_last_bin < 12
    assert first.below_agreement > 0.6 > first.agreement
    assert first.price == pytest.approx(1 - first.agreement - 0.4)
    assert 300 < first.rows < 450


def test_power_grows_with_depth_and_rows() -> None:
    shares = [
        sum(bool(dips(with_dip(depth), rows, seed)) for seed in range(50)) / 50
        for depth, rows in ((0.1, 2000), (0.2, 2000), (0.2, 10_000), (0.3, 10_000))
    ]
    assert shares == sorted(shares)
    assert shares[0] <= 0.1
    assert shares[-1] == 1.0


def test_bins_with_few_rows_each_are_found_together() -> None:
    curve = np.repeat(RISING, 16)
    curve[192:208] = 0.35
    found = dips(curve, 8000, seed=1)
    assert found
    assert all(192 <= dip.bin <= dip.last_bin < 208 for dip in found)
    assert sum(dip.last_bin - dip.bin + 1 for dip in found) >= 8


def test_more_bins_than_can_be_compared_one_by_one_are_taken_together() -> None:
    curve = np.repeat(RISING, 256)
    curve[12 * 256 : 13 * 256] = 0.35
    found = dips(curve, 20_000, seed=1)
    assert found
    assert all(3071 - 16 <= dip.bin <= dip.last_bin <= 3328 + 16 for dip in found)


def test_a_dip_on_one_side_of_the_break_even_crosses_nothing() -> None:
    bins, agreed = log((10, 100), (95, 100), (70, 100))
    for cost, crosses in ((0.5, False), (0.2, True), (0.02, False)):
        (dip,) = significant_dips(bins, agreed, 3, cost)
        assert (dip.bin, dip.below_bin, dip.crosses) == (2, 1, crosses)
        assert dip.price == pytest.approx(0.3 - cost)


def test_a_tie_with_the_break_even_crosses_nothing() -> None:
    for cost in (0.1, 0.6):  # 1 − 0.9 and 1 − 0.4, which are no such numbers in floating point
        (dip,) = significant_dips(*log((90, 100), (40, 100)), 2, cost)
        assert not dip.crosses


def test_bins_without_rows_are_passed_over() -> None:
    (dip,) = significant_dips([3] * 60 + [9] * 60, [True] * 55 + [False] * 45 + [True] * 20, 16, 0.5)
    assert (dip.bin, dip.last_bin, dip.below_bin, dip.below_last_bin) == (9, 9, 3, 3)
    assert (dip.rows, dip.below_rows) == (60, 60)
    assert significant_dips([3] * 60, [True] * 60, 16, 0.5) == []


def test_every_dip_is_told_once_and_in_order() -> None:
    found = significant_dips(*log((5, 100), (95, 100), (30, 100), (98, 100), (20, 100), (97, 100)), 6, 0.5)
    assert [(dip.bin, dip.last_bin) for dip in found] == [(2, 2), (4, 4)]


def test_order_of_the_rows_says_nothing() -> None:
    bins, agreed = map(np.array, log((40, 50), (10, 50), (45, 50)))
    shuffled = np.random.default_rng(1).permutation(len(bins))
    assert significant_dips(bins, agreed, 3, 0.5) == significant_dips(bins[shuffled], agreed[shuffled], 3, 0.5)


# -- refusals, and who relies on it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bins", "agreed", "n_bins", "cost", "confidence", "message"),
    [
        ([0], [True], 0, 0.5, 0.99, "significant_dips: n_bins must be an integer >= 1, got 0"),
        ([0], [True], 1, 1.5, 0.99, "significant_dips: mean_offload_cost must be from 0 to 1, got 1.5"),
        ([0], [True], 1, 0.5, 99, "significant_dips: confidence must be from 0 to 1, got 99"),
        ([2], [True], 2, 0.5, 0.99, "significant_dips: bins must be from 0 to 1, got 2 to 2"),
        ([0], [1.5], 2, 0.5, 0.99, "significant_dips: agreed must be from 0 to 1, got 1.5"),
        ([0], [float("nan")], 2, 0.5, 0.99, "significant_dips: agreed must be from 0 to 1, got nan"),
        ([0, 1], [True], 2, 0.5, 0.99, "equally long and not empty"),
        ([], [], 2, 0.5, 0.99, "equally long and not empty"),
        ([0.5], [True], 2, 0.5, 0.99, "significant_dips: bins must be integers, got float64"),
    ],
)
def test_what_cannot_be_is_refused(
    bins: list[int], agreed: list[bool], n_bins: int, cost: float, confidence: float, message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        significant_dips(bins, agreed, n_bins, cost, confidence)


def test_the_policies_that_judge_each_bin_by_itself_rely_on_nothing() -> None:
    free = {name for name in policy_names() if not policy_class(name).assumes_monotone}
    assert free >= {"hi-lcb-lite", "kl", "thompson", "oracle", "always-local", "always-remote"}
    assert not free & {"hi-lcb", "pooled-kl", "isotonic", "static", "offline", "logistic", "hedge-hi", "adahedge-g"}
