"""The policies that never learn, against brute force over all they could have chosen."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge import Gate, Policy, build
from hinge.policies import AlwaysLocal, AlwaysRemote, Offline, Oracle, Threshold

histories = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40)


def offloaded(policy: Policy) -> list[bool]:
    return [policy.decide(bin).offload for bin in range(policy.bins)]


# -- extremes and a fixed threshold -----------------------------------------------------------------------------------


def test_always_local_and_always_remote_never_change_their_minds() -> None:
    local, remote = AlwaysLocal(7), AlwaysRemote(7)
    for time in range(300):
        assert not local.decide(time % 7).offload
        decision = remote.decide(time % 7)
        assert decision.offload
        remote.learn(decision, agreed=True, cost=1.0)


@pytest.mark.parametrize("bins", [1, 4, 7, 16])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.25, 3 / 7, 0.5, 0.99, 1.0])
def test_a_threshold_accepts_the_bins_that_lie_above_it(bins: int, threshold: float) -> None:
    policy = Threshold(threshold, bins)
    assert offloaded(policy) == [bin < Fraction(threshold).limit_denominator(100) * bins for bin in range(bins)]
    assert [policy.explain(bin).offload_probability for bin in range(bins)] == offloaded(policy)
    assert str(policy.explain(0)).endswith(f"the threshold is {threshold:g}.")


@pytest.mark.parametrize(("threshold", "expected"), [(0.0, [False, False]), (1.0, [True, False]), (0.6, [True, False])])
def test_a_threshold_without_bins_has_two_around_it(threshold: float, expected: list[bool]) -> None:
    assert offloaded(Threshold(threshold)) == expected
    gate = Gate(Threshold(threshold))
    for confidence in (0.0, 0.3, 0.59, 0.6, 0.99, 1.0):
        assert gate.decide(confidence=confidence).offload == (confidence < threshold)
    assert Threshold(**Threshold(threshold).parameters).parameters == Threshold(threshold).parameters


# -- the oracle -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [0.0, 0.25, 0.5, 0.625, 1.0])
def test_the_oracle_accepts_where_that_is_strictly_cheaper(cost: float) -> None:
    agreement = [step / 16 for step in range(17)]
    oracle = Oracle(agreement, cost)
    assert offloaded(oracle) == [not 1 - Fraction(f) < Fraction(cost) for f in agreement]
    assert oracle.decide(round(16 * (1 - cost))).offload  # a tie


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0, 1))
def test_no_set_of_bins_beats_the_oracle(agreement: list[float], cost: float) -> None:
    decisions = offloaded(Oracle(agreement, cost))
    paid = [cost if offload else 1 - f for offload, f in zip(decisions, agreement, strict=True)]
    assert paid == [min(cost, 1 - f) for f in agreement]


def test_the_oracle_need_not_be_a_threshold() -> None:
    assert offloaded(Oracle([0.9, 0.2, 0.9], 0.5)) == [False, True, False]


@pytest.mark.parametrize("costs", [[], [0.5], [0.5] * 4])
def test_the_oracle_refuses_costs_for_another_number_of_bins(costs: list[float]) -> None:
    assert offloaded(Oracle([0.9, 0.2, 0.9], 0.5, bin_costs=[0.05, 0.9, 0.5])) == [True, False, False]
    with pytest.raises(TypeError, match="Oracle: bin_costs must be a list with a number for each bin, got "):
        Oracle([0.9, 0.2, 0.9], 0.5, bin_costs=costs)


# -- the offline threshold --------------------------------------------------------------------------------------------


def history_cost(threshold: int, history: list[tuple[int, bool]], cost: Fraction) -> Fraction:
    return sum((cost if bin < threshold else Fraction(not agreed) for bin, agreed in history), Fraction(0))


@given(histories, st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_offline_finds_the_cheapest_threshold_and_of_equal_ones_the_highest(
    history: list[tuple[int, bool]], cost: float
) -> None:
    bins, agreed = [bin for bin, _ in history], [agreed for _, agreed in history]
    policy = Offline.fit(bins, agreed, bins=6, offload_cost=cost)
    paid = [history_cost(threshold, history, Fraction(cost)) for threshold in range(7)]
    assert policy.first == max(threshold for threshold in range(7) if paid[threshold] == min(paid))
    assert offloaded(policy) == [bin < policy.first for bin in range(6)]


def test_offline_is_built_from_history() -> None:
    policy = build(
        "offline", history=[0, 1, 2, 3] * 20, agreed=[False, False, True, True] * 20, bins=4, offload_cost=0.5
    )
    assert offloaded(policy) == [True, True, False, False]
