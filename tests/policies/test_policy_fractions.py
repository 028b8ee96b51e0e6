"""Agreement as a number from 0 to 1: what policies make of it, against formulas written out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge import HILCBLite, Isotonic, Thompson
from hinge.policies.sentinel import step

BINS, COST = 6, 0.4
shares = st.floats(0.0, 1.0)


def stream(seed: int, count: int) -> list[tuple[int, float]]:
    """Bins, and agreements that rise with them in the mean."""
    chance = np.random.default_rng(seed)
    bins = chance.integers(0, BINS, count)
    agreed = np.clip((bins + 0.5) / BINS + chance.uniform(-0.5, 0.5, count), 0.0, 1.0)
    return list(zip(bins.tolist(), agreed.tolist(), strict=True))


def test_hi_lcb_goes_by_the_mean_and_hoeffdings_radius() -> None:
    policy, alpha = HILCBLite(BINS, alpha=0.7, offload_cost=COST), 0.7
    seen: list[list[float]] = [[] for _ in range(BINS)]
    for time, (bin, agreed) in enumerate(stream(1, 3000), 1):
        decision, values = policy.decide(bin), seen[bin]
        bound = sum(values) / len(values) - math.sqrt(alpha * math.log(time) / len(values)) if values else -math.inf
        if abs(1.0 - COST - bound) > 1e-9:
            assert decision.offload == (bound < 1.0 - COST), time
        if decision.offload:
            policy.learn(decision, agreed)
            values.append(agreed)
    assert 0 < policy.learned < 3000


def isotonic_evidence(offloads: list[float], sums: list[float], q: float) -> float:
    """E of the last bin: (n + 2) kl⁺ of the blocks of the isotonic regression, by its min-max formula."""
    seen = [k for k in range(len(offloads)) if offloads[k] > 0]

    def mean(a: int, b: int) -> float:
        return sum(sums[i] for i in seen[a : b + 1]) / sum(offloads[i] for i in seen[a : b + 1])

    places = range(len(seen))
    fits = [max(min(mean(a, b) for b in places[k:]) for a in places[: k + 1]) for k in places]
    total, k = 0.0, 0
    while k < len(seen):
        block = [j for j in range(len(seen)) if math.isclose(fits[j], fits[k], abs_tol=1e-12)]
        n, a = (sum(column[seen[j]] for j in block) for column in (offloads, sums))
        p = (a + 1.0) / (n + 2.0)
        if p > q and a / n > q:
            total += (n + 2.0) * (p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q)))
        k = block[-1] + 1
    return total


def test_isotonic_evidence_is_that_of_the_sums() -> None:
    policy = Isotonic(BINS, offload_cost=COST)
    offloads, sums, compared = [0.0] * BINS, [0.0] * BINS, 0
    for bin, agreed in stream(2, 400):
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agreed)
            offloads[bin] += 1.0
            sums[bin] += agreed
            for i in range(BINS):
                expected = isotonic_evidence(offloads[: i + 1], sums[: i + 1], 1.0 - COST)
                if i <= bin or policy.table.evidence[i] > 0.0:
                    compared += 1
                    assert policy.table.evidence[i] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert compared > 100


def test_thompson_throws_a_coin_of_that_chance() -> None:
    total, learned, chance = 0.0, 0, 0.3
    for seed in range(200):
        policy = Thompson(1, offload_cost=0.5, seed=seed)
        for decision in [each for each in (policy.decide(0) for _ in range(40)) if each.offload]:
            before = policy.state()["evidence"]["agreements"][0]
            policy.learn(decision, chance)
            assert policy.state()["evidence"]["agreements"][0] - before in (0.0, 1.0)
        total, learned = total + policy.state()["evidence"]["agreements"][0], learned + policy.learned
    assert abs(total - chance * learned) < 4.0 * math.sqrt(learned * chance * (1.0 - chance))


def test_thompsons_coins_do_not_depend_on_the_order_of_feedback() -> None:
    one, other = (Thompson(BINS, offload_cost=0.5, seed=3) for _ in range(2))
    for policy, turn in ((one, 1), (other, -1)):
        waiting = [(policy.decide(bin), agreed) for bin, agreed in stream(4, 300)]
        for decision, agreed in waiting[::turn]:
            if decision.offload:
                policy.learn(decision, agreed)
    assert one.state()["evidence"] == other.state()["evidence"]


@given(st.lists(shares, min_size=2, max_size=20), st.floats(0.02, 0.98), st.floats(0.02, 0.98))
def test_a_step_of_pages_sum_is_no_larger_in_the_mean_than_that_of_a_coin(
    values: list[float], suspected: float, weight: float
) -> None:
    """E e^step ≤ 1 for any X in [0, 1] with the usual mean, which is what bounds false alarms."""
    chances = np.array([weight] + [(1.0 - weight) / (len(values) - 1)] * (len(values) - 1))
    usual = float(chances @ values)
    if not 0.01 < usual < 0.99:
        return
    steps = [step(1e6, value, suspected, usual) - 1e6 for value in values]
    assert float(chances @ np.exp(steps)) <= 1.0 + 1e-6
