"""The twin against exact arithmetic, against the floating-point policies, and at its limits."""

import decimal
import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hinge import HILCB, HILCBLite, Policy, UniformBins, load_trace, simulate
from hinge.embedded.twin import (
    CLOCK_END,
    LATEST,
    LiteTwin,
    MonotoneTwin,
    SentinelTwin,
    constants,
    high,
    known_licence,
    log,
    power_above,
    root_of,
    sqrt,
    twin_of,
)
from hinge.policies import FOREVER, Sentinel
from hinge.simulation import Record
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Resampled
from tools.fixed_point import YES_OR_NO, differing_sentinels

PAIRS: list[tuple[Callable[..., Policy], Callable[..., Policy]]] = [(HILCBLite, LiteTwin), (HILCB, MonotoneTwin)]
counts = st.integers(1, 65535).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def exact(offloads: int, agreements: int, alpha: float, offload_cost: float) -> Decimal:
    """exp(n ((f - q)⁺)² / α), to 60 digits."""
    with decimal.localcontext() as context:
        context.prec = 60
        surplus = max(Decimal(0), Decimal(agreements) / offloads - (1 - Decimal(offload_cost)))
        return (offloads * surplus * surplus / Decimal(alpha)).exp()


@given(counts, st.floats(0.05, 20), st.floats(0, 1))
def test_a_licence_is_that_of_the_exact_formula(counted: tuple[int, int], alpha: float, offload_cost: float) -> None:
    twin = LiteTwin(1, alpha, offload_cost)
    twin.table.offloads[0], twin.table.agreements[0] = counted
    found, wanted = known_licence(twin.table, 0), exact(*counted, alpha, offload_cost)
    surplus = counted[1] / counted[0] - (1 - offload_cost)
    if surplus > 1e-9:
        # Relative to the exponent: 2^-32 for each offload and for the surplus; and the polynomial's 1.2e-7.
        slack = 1.2e-7 + 5 * counted[0] * max(1.0, 1.5 / alpha) * 2.0**-32 * (1 + surplus)
        assert found == LATEST or found >= wanted * Decimal(math.exp(-slack))
        assert found <= wanted * Decimal(math.exp(slack)) + 1
    elif surplus < 0:
        assert found == 1


@given(counts, st.floats(0.05, 20), st.floats(0, 1))
def test_a_further_agreement_never_shortens_a_licence(counted: tuple[int, int], alpha: float, cost: float) -> None:
    twin = LiteTwin(2, alpha, cost)
    offloads, agreements = counted
    twin.table.offloads[0] = twin.table.offloads[1] = offloads
    twin.table.agreements[0], twin.table.agreements[1] = agreements, min(agreements + 1, offloads)
    assert known_licence(twin.table, 0) <= known_licence(twin.table, 1)


def test_powers_of_two_are_within_their_error_and_rise() -> None:
    fractions = range(0, 2**32, 2**32 // 4099)
    found = [power_above(31, fraction) for fraction in fractions]
    wanted = [2.0 ** (31 + fraction / 2**32) for fraction in fractions]
    assert np.abs(np.array(found) / wanted - 1).max() < 1.2e-7
    assert found == sorted(found)
    assert power_above(31, 2**32 - 1) <= LATEST


@given(st.integers(0, LATEST), st.integers(0, LATEST))
def test_the_upper_half_of_a_product_is_at_most_two_too_low(x: int, y: int) -> None:
    assert (x * y >> 32) - 2 <= high(x, y) <= x * y >> 32


@given(st.integers(0, LATEST))
def test_a_root_is_exact(square: int) -> None:
    assert root_of(square) == math.isqrt(square)


@given(st.floats(1e-300, 1e300))
def test_the_own_logarithm_and_root_are_right_to_the_last_digits(x: float) -> None:
    assert abs(log(x) - math.log(x)) <= 4e-16 * max(1.0, abs(math.log(x)))
    assert abs(sqrt(x) - math.sqrt(x)) <= 3e-16 * math.sqrt(x)


@pytest.mark.parametrize("name", ["cifar10-vgg16", "fashion", "imagenet-mobilenet"])
def test_sentinels_twin_decides_as_sentinel(name: str) -> None:
    assert differing_sentinels(name, 0.3, 6000) <= 6


def test_sentinels_twin_starts_from_what_sentinel_knows() -> None:
    policy = Sentinel(4, offload_cost=0.5)
    for sample in range(400):
        decision = policy.decide(sample % 4)
        if decision.offload:
            policy.learn(decision, agreed=sample % 4 >= 2)
    twin = twin_of(policy)
    assert isinstance(twin, SentinelTwin)
    assert twin.time == policy.time
    assert [twin.countdown(bin) for bin in range(4)] == [policy.countdown(bin) for bin in range(4)]
    while policy.table.audited_at[3] == 0.0:  # until the audit of a sample whose cost was told; devices are not told
        decision = policy.decide(3, cost=0.6)
        if decision.offload and policy.table.audited_at[3] == 0.0:
            policy.learn(decision, agreed=True)
    assert policy.table.audited[3] == policy.time
    assert twin_of(policy).table.audited[3] == 0
    policy.learn_log([0, 1, 2, 3] * 9, [False, False, True, True] * 9, weight=0.3)
    assert any(count % 1 for count in policy.table.offloads)
    table = twin_of(policy).table
    assert list(table.offloads) == [math.ceil(count) for count in policy.table.offloads]
    assert list(table.agreements) == [math.floor(count) for count in policy.table.agreements]
    assert table.weight[3] == sum(table.offloads[table.first[3] :])


def test_full_counts_are_halved_and_never_claim_more() -> None:
    twin = LiteTwin(1, 0.52, 0.5)
    twin.table.offloads[0], twin.table.agreements[0], twin.time = 65535, 40001, 10
    twin.table.expiry[0] = 0
    twin.learn(twin.decide(0), agreed=False)
    assert (twin.table.offloads[0], twin.table.agreements[0]) == (32768, 20000)


def test_the_clock_stops_and_what_lies_beyond_it_is_for_good() -> None:
    twin = LiteTwin(2, 0.52, 0.5)
    twin.table.expiry[0], twin.table.expiry[1], twin.time = CLOCK_END, CLOCK_END + 1, CLOCK_END - 2
    assert [twin.decide(bin).offload for bin in (0, 0, 1, 0, 1)] == [False, True, False, True, False]
    assert (twin.expiry(0), twin.expiry(1)) == (CLOCK_END, FOREVER)
    twin.time = 2**40
    assert twin.decide_many([0, 1]).offload.tolist() == [True, False]


@pytest.mark.parametrize(("offload_cost", "threshold"), [(0.0, LATEST), (1.0, 0), (0.5, 2**31)])
def test_costs_at_the_ends(offload_cost: float, threshold: int) -> None:
    assert constants(4, 0.52, offload_cost).threshold == threshold
    twin = LiteTwin(1, 0.52, offload_cost)
    policy = HILCBLite(1, 0.52, offload_cost)
    for _ in range(300):
        one, other = twin.decide(0), policy.decide(0)
        assert one.offload == other.offload
        if one.offload:
            twin.learn(one, agreed=True)
            policy.learn(other, agreed=True)


@pytest.mark.parametrize("name", YES_OR_NO)
@pytest.mark.parametrize("offload_cost", [0.3, 0.5, None])
def test_regret_is_within_two_percent_of_floating_point(name: str, offload_cost: float | None) -> None:
    costs = BimodalPrice() if offload_cost is None else ConstantPrice(offload_cost)
    source = Resampled(load_trace(name), UniformBins(16), costs)
    for kind, twin_kind in PAIRS:
        policies = {"float": kind(16, 0.52, offload_cost), "fixed": twin_kind(16, 0.52, offload_cost)}
        results = simulate(policies, source, 100_000, runs=5, record_decisions=True)
        regret = {key: record.regret[:, -1].mean() for key, record in results.items()}
        assert abs(regret["fixed"] / regret["float"] - 1) < 0.02
        assert (decisions(results["float"]) != decisions(results["fixed"])).mean() < 0.001


def decisions(record: Record) -> NDArray[np.bool_]:
    return np.stack([run.decisions for run in record.runs if run.decisions is not None])


def test_a_twin_starts_from_what_a_policy_knows() -> None:
    policy = HILCB(4, 0.52, 0.5)
    for bin in [0, 1, 2, 3] * 40:
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agreed=bin >= 2)
    policy.table.offloads[3], policy.table.agreements[3] = 200_001.0, 150_000.0
    policy._rebuild()
    twin = twin_of(policy)
    assert twin.time == policy.time
    assert (twin.table.offloads[3], twin.table.agreements[3]) == (50001, 37500)
    assert isinstance(twin, MonotoneTwin)
    assert [twin.expiry(bin) for bin in range(3)] == [policy.expiry(bin) for bin in range(3)]


def test_what_a_microcontroller_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="offload_unseen"):
        twin_of(HILCB(4, offload_cost=0.5, offload_unseen=False))
    with pytest.raises(ValueError, match="bins must be an integer from 1 to 255"):
        LiteTwin(256)
    for offload_cost in (None, 0.0, 1.0):
        with pytest.raises(ValueError, match="offload_cost must be known, above 0 and below 1"):
            twin_of(Sentinel(4, offload_cost=offload_cost))
    with pytest.raises(ValueError, match="alpha must be from"):
        LiteTwin(4, alpha=1e-5)
