"""Starting from a log: with the weight that was stated, and once."""

import numpy as np
import pytest

from hinge import HILCB, DiscountedIsotonic, InvalidState, Isotonic, Policy, Thompson, UniformBins, at_most, load_trace
from hinge.policies import HedgeHI
from hinge.testing import play

BINS, AGREED, COSTS = [0, 1, 3, 3, 2], [False, True, True, True, False], [0.5, 0.4, 0.5, 0.6, 0.5]


def counts(policy: Policy) -> list[tuple[float | None, float | None]]:
    return [(policy.explain(bin).offloads, policy.explain(bin).agreement) for bin in range(policy.bins)]


@pytest.mark.parametrize("policy", [HILCB(4, offload_cost=0.5), Isotonic(4, offload_cost=0.5), Thompson(4)])
def test_a_log_counts_with_its_weight(policy: Policy) -> None:
    policy = policy.fresh()
    policy.learn_log(BINS, AGREED, COSTS, weight=0.5)
    assert counts(policy) == [(0.5, 0.0), (0.5, 1.0), (0.5, 0.0), (1.0, 1.0)]
    assert policy.time == 0
    again = type(policy).restore(policy.state())
    assert play(again, 200) == play(policy, 200)


def test_a_learned_cost_is_in_the_log_too() -> None:
    policy = Isotonic(4)
    policy.learn_log(BINS, AGREED, COSTS, weight=2)
    assert policy.table.costs.tolist() == pytest.approx([10, 5, 2 * 0.25 * 3 + 2 * 0.16 + 2 * 0.36])
    with pytest.raises(TypeError, match="Isotonic: cost must be a number, as the offload cost is learned"):
        Isotonic(4).learn_log(BINS, AGREED, weight=1)


def test_the_same_log_counts_once_by_any_route() -> None:
    one, other = Isotonic(4, offload_cost=0.5), Isotonic(4, offload_cost=0.5)
    for device in (one, other, other):
        device.learn_log(BINS, AGREED, weight=0.5)
    one.merge(other.state())
    assert counts(one) == counts(other)
    one.learn_log(np.array(BINS), np.array(AGREED), weight=0.25)  # the same log again, and less of it
    assert counts(one) == counts(other)
    other.learn_log(BINS[:-1], AGREED[:-1], weight=0.5)  # another log
    assert counts(other)[1] == (1.0, 1.0)


def test_a_known_cost_leaves_learned_costs_aside_and_not_the_other_way_round() -> None:
    learned, known = Isotonic(4), Isotonic(4, offload_cost=0.5)
    play(learned, 200)
    known.merge(learned.state())
    assert counts(known) == counts(learned)
    other = Isotonic(4, offload_cost=0.5)
    play(other, 100)
    before = learned.state()
    with pytest.raises(InvalidState, match="Isotonic: other_state must have 3 numbers as 'costs', got 0"):
        learned.merge(other.state())
    assert learned.state() == before


def test_old_evidence_is_as_old_here_as_there() -> None:
    policy, left = DiscountedIsotonic(4, offload_cost=0.5, memory=1600), (1 - 1 / 1600) ** 800
    history = [0] * 1600 + [3] * 800
    policy.learn_log(history, [True] * len(history), weight=1)
    assert policy.explain(0).offloads == pytest.approx(1600 * left * (1 - (1 - 1 / 1600) ** 1600), rel=1e-6)
    assert policy.explain(3).offloads == pytest.approx(1600 * (1 - left), rel=1e-6)


def test_a_budget_can_start_from_a_log_too() -> None:
    policy, trace = at_most(Isotonic(16, offload_cost=0.5), 0.1, 100), load_trace("fashion")
    policy.learn_log(trace.bins_by(UniformBins(16)), trace.agreed, weight=0.1)
    assert not policy.decide(15).offload
    assert policy.decide(0).offload


def test_evidence_next_to_nothing_licenses_nothing() -> None:
    policy = Isotonic(4, offload_cost=0.5)
    policy.learn_log([1] * 5, [True] * 5, weight=1e-310)
    assert policy.decide(1).offload


def test_what_cannot_start_from_a_log_is_refused() -> None:
    policy = Isotonic(4, offload_cost=0.5)
    with pytest.raises(TypeError, match="HedgeHI: learn_log needs a policy that counts offloads"):
        HedgeHI(horizon=100, bins=4, offload_cost=0.5).learn_log(BINS, AGREED, weight=1)
    with pytest.raises(ValueError, match="Isotonic: weight must be > 0, got 0"):
        policy.learn_log(BINS, AGREED, weight=0)
    with pytest.raises(ValueError, match="weight must be at most 1000000"):
        policy.learn_log(BINS, AGREED, weight=1.1e6)
    with pytest.raises(ValueError, match="Isotonic: bins, agreed and costs must be equally long, got 3, 1 and 3"):
        policy.learn_log([0, 1, 2], [True], weight=1)
    with pytest.raises(ValueError, match=r"bin must be an integer from 0 to 3, got 4 \(in row 1 of the log\)"):
        policy.learn_log([0, 4], [True, True], weight=1)
