"""The twins against exact arithmetic, against the policies that they stand for, and at their limits."""

import decimal
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge import HILCB, EdgeBins, Gate, HILCBLite, Policy, Probation, Thompson, UniformBins
from hinge.bins import FittedBins
from hinge.embedded.twin import (
    CLOCK_END,
    LATEST,
    LG_ONE,
    HILCBTwin,
    ProbationTwin,
    device_bins,
    high,
    lg,
    log_odds,
    power,
    power_above,
    twin_of,
)
from tools.fixed_point import regrets

counts = st.integers(1, 65535).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def exact(offloads: int, agreements: int, alpha: float, offload_cost: float) -> Decimal:
    """exp(n ((f - q)⁺)² / α), to 60 digits."""
    with decimal.localcontext() as context:
        context.prec = 60
        surplus = max(Decimal(0), Decimal(agreements) / offloads - (1 - Decimal(offload_cost)))
        return (offloads * surplus * surplus / Decimal(alpha)).exp()


@given(counts, st.floats(0.05, 20), st.floats(0, 1))
def test_an_expiry_is_that_of_the_exact_formula(counted: tuple[int, int], alpha: float, offload_cost: float) -> None:
    twin = HILCBTwin(1, alpha, offload_cost)
    twin.offloads[0], twin.agreements[0] = counted
    twin.refresh(0)
    found, wanted = twin.expiry[0], exact(*counted, alpha, offload_cost)
    surplus = counted[1] / counted[0] - (1 - offload_cost)
    if surplus > 1e-9:
        # Relative to the exponent: 2^-32 for each offload and for the surplus; and the polynomial's 1.2e-7.
        slack = 1.2e-7 + 5 * counted[0] * max(1.0, 1.5 / alpha) * 2.0**-32 * (1 + surplus)
        assert found == LATEST or found >= wanted * Decimal(math.exp(-slack))
        assert found <= wanted * Decimal(math.exp(slack)) + 1
    elif surplus < 0:
        assert found == 1


def test_powers_of_two_are_within_their_error_and_rise() -> None:
    fractions = range(0, 2**32, 2**32 // 4099)
    found = [power_above(31, fraction) for fraction in fractions]
    assert np.abs(np.array(found) / [2.0 ** (31 + fraction / 2**32) for fraction in fractions] - 1).max() < 1.2e-7
    assert found == sorted(found)
    assert power_above(31, 2**32 - 1) <= LATEST
    coarse = [power(y) for y in range(20 * LG_ONE, 21 * LG_ONE)]
    assert np.abs(np.array(coarse) / 2.0 ** (20 + np.arange(LG_ONE) / LG_ONE) - 1).max() < 4e-3
    assert coarse == sorted(coarse)


@given(st.integers(0, LATEST), st.integers(0, LATEST))
def test_the_upper_half_of_a_product_is_at_most_two_too_low(x: int, y: int) -> None:
    assert (x * y >> 32) - 2 <= high(x, y) <= x * y >> 32


@given(st.integers(1, LATEST), st.integers(0, 15))
def test_a_logarithm_is_right_to_its_last_digits_and_rises(x: int, shift: int) -> None:
    assert -3 < lg(x) - math.log2(x) * LG_ONE <= 0
    assert lg(x) <= lg(x + 1)
    assert lg((x & 0xFFFF | 1) << shift) == lg(x & 0xFFFF | 1) + shift * LG_ONE


@pytest.mark.parametrize("kind", [HILCBLite, HILCB])
@pytest.mark.parametrize("name", ["cifar10-vgg16", "imagenet-mobilenet"])
def test_regret_of_hi_lcb_is_within_two_percent_of_floating_point(kind: type[Policy], name: str) -> None:
    original, twin = regrets(kind, name, 0.3, 100_000, 2)
    assert abs(twin / original - 1) < 0.02


def test_regret_of_probation_is_within_a_few_percent_of_floating_point() -> None:
    """Its licences are found to 0.4 %, and a licence one sample shorter changes all that is learned after it."""
    names = ("cifar10-vgg16", "fashion", "intents-smollm2")
    found = np.array([regrets(Probation, name, cost, 20_000, 4) for name in names for cost in (0.1, 0.3)])
    original, twin = found.sum(axis=0)
    assert twin / original < 1.05


def test_full_records_are_halved_and_never_claim_more() -> None:
    lite, twin = HILCBTwin(1), ProbationTwin(1)
    lite.offloads[0], lite.agreements[0] = 65535, 40001
    lite.learn(0, False)
    assert (lite.offloads[0], lite.agreements[0]) == (32768, 20000)
    twin.bins[0] = twin.bins[0]._replace(offloads=8192, agreements=4001, samples=10001)
    twin.learn(0, False)
    record = twin.bins[0]
    assert (record.offloads, record.agreements, record.samples - record.left) == (4097, 2000, 5001)


def test_the_clock_stops_and_what_lies_beyond_it_is_for_good() -> None:
    twin = HILCBTwin(2)
    twin.expiry[:], twin.time = [CLOCK_END, CLOCK_END + 1], CLOCK_END - 2
    assert [twin.decide(bin) for bin in (0, 0, 1, 0, 1)] == [False, True, False, True, False]
    clocked = ProbationTwin(1)
    clocked.time = CLOCK_END - 1
    assert [clocked.decide(0), clocked.decide(0), clocked.time] == [True, True, CLOCK_END]


def test_an_audit_grants_the_last_licence_again_until_its_feedback() -> None:
    twin = ProbationTwin(1)
    while not twin.bins[0].left:
        if twin.decide(0):
            twin.learn(0, True)
    granted = twin.bins[0].granted
    late = [twin.decide(0) for _ in range(3 * (granted + 1))]
    assert [at for at, offload in enumerate(late) if offload] == [granted * (k + 1) + k for k in range(3)]
    for agreed, longer in ((True, True), (False, False)):
        for _ in range(4):
            twin.learn(0, agreed)
        assert (twin.bins[0].granted > granted) == longer


@pytest.mark.parametrize(("offload_cost", "threshold"), [(0.0, LATEST), (1.0, 0), (0.5, 2**31)])
def test_costs_at_the_ends(offload_cost: float, threshold: int) -> None:
    twin, policy = HILCBTwin(1, 0.52, offload_cost), HILCBLite(1, 0.52, offload_cost)
    assert twin.threshold == threshold
    for _ in range(300):
        offload, decision = twin.decide(0), policy.decide(0)
        assert offload == decision.offload
        if offload:
            twin.learn(0, True)
            policy.learn(decision, agreed=True)


def taught(source: Gate, samples: int = 4000) -> Gate:
    chance = np.random.default_rng(6)
    for confidence in chance.beta(3, 1, samples).tolist():
        decision = source.decide(confidence=confidence)
        if decision.offload:
            source.learn(decision, agreed=bool(chance.random() < confidence))
    return source


def test_a_twin_starts_from_the_records_and_licences_of_a_gate_with_fitted_bins() -> None:
    gate = taught(Gate(offload_cost=0.3))
    twin, table, policy = twin_of(gate), gate.policy.table, gate.policy
    assert isinstance(twin, ProbationTwin)
    groups = device_bins(gate.bins).parts
    assert len(twin.bins) == len(groups) == len(gate.bins.spans())
    for record, (bin,) in zip(twin.bins, groups, strict=True):
        assert (record.offloads, record.agreements) == (table.offloads[bin], table.agreements[bin])
        assert (record.left, record.granted) == (table.left[bin], table.granted[bin])
    assert (twin.time, twin.learned) == (policy.time - table.sums[3], table.sums[2])
    decided = [twin.decide(place) for place in range(len(groups)) for _ in range(20)]
    assert decided == [policy.decide(bin).offload for (bin,) in groups for _ in range(20)]


@pytest.mark.parametrize("monotone", [False, True])
def test_a_twin_starts_from_the_expiries_of_hi_lcb(monotone: bool) -> None:
    gate = taught(Gate("hi-lcb" if monotone else "hi-lcb-lite", offload_cost=0.3, bins=16))
    twin, policy = twin_of(gate), gate.policy
    assert isinstance(twin, HILCBTwin)
    assert isinstance(policy, HILCB | HILCBLite)
    assert (twin.time, twin.expiry) == (policy.time, [policy.expiry(bin) for bin in range(16)])


def test_records_of_bins_whose_edges_fall_together_are_joined() -> None:
    gate = taught(Gate(offload_cost=0.3, bins=[0.5, 0.8, 0.80001, 0.9]))
    twin, table = twin_of(gate), gate.policy.table
    assert isinstance(twin, ProbationTwin)
    assert [record.offloads for record in twin.bins] == [
        *table.offloads[:2], table.offloads[2] + table.offloads[3], table.offloads[4]
    ]  # fmt: skip
    assert twin.bins[2].left == min(table.left[2:4])


def test_counts_beyond_the_devices_own_are_scaled_down_and_keep_their_mean() -> None:
    policy = Probation(2, 0.6)
    policy.learn_log([1] * 20_000, [True, False] * 10_000)
    twin = twin_of(policy)
    assert isinstance(twin, ProbationTwin)
    assert 4096 <= twin.bins[1].offloads <= 8192
    assert twin.bins[1].agreements / twin.bins[1].offloads == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("bins", [FittedBins(), EdgeBins([1e-6, 0.2, 0.5, 0.97, 1.0])])
def test_edges_are_those_of_the_bins_to_the_last_of_16_bits(bins: FittedBins | EdgeBins) -> None:
    edges = device_bins(bins).edges
    assert edges is not None
    assert len(edges) == len(bins.edges)
    for edge, place in zip(bins.edges, edges, strict=True):
        exactly = 32.0 if edge == 1.0 else math.log2(edge / (1 - edge))
        assert abs(place - max(-32767, min(1024 * exactly, 32767))) <= 1
        assert log_odds(min(math.ceil(edge * 2**32), 2**32 - 1)) == place


def test_what_a_microcontroller_cannot_do_is_refused() -> None:
    refused: dict[str, Policy | Gate] = {
        "offload_unseen must be True": HILCB(4, offload_cost=0.5, offload_unseen=False),
        "bins must be an integer from 1 to 255": Gate(offload_cost=0.5, bins=256),
        "offload_cost must be above 0 and below 1": Gate(offload_cost=1.0, bins=4),
        "offload_cost must be known, or have been measured": HILCB(4),
        "alpha must be": HILCB(4, alpha=1e-5, offload_cost=0.5),
        "budget must be None": Gate(offload_cost=0.5, budget=0.2),
        "only probation, hi-lcb and hi-lcb-lite learn": Thompson(4, offload_cost=0.5),
    }
    for message, source in refused.items():
        with pytest.raises((ValueError, TypeError), match=message):
            twin_of(source)
    with pytest.raises(ValueError, match="bins must be an integer from 1 to 255"):
        device_bins(UniformBins(256))
