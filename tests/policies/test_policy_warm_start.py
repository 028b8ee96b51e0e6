"""Starting from what others know: with the weight that was stated, and once."""

import numpy as np
import pytest

from hinge import HILCB, DiscountedIsotonic, InvalidState, Isotonic, Policy, Thompson, UniformBins, at_most, load_trace
from hinge.policies import HedgeHI, SlidingWindowIsotonic
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
    play(policy, 200)


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


def test_a_state_counts_with_its_weight_beside_what_was_learned() -> None:
    veteran, novice = Isotonic(4, offload_cost=0.5), Isotonic(4, offload_cost=0.5)
    play(veteran, 500)
    play(novice, 100, seed=3)
    before = [novice.explain(bin).offloads or 0 for bin in range(4)]
    novice.warm_start(veteran.state(), weight=0.25)
    after = [novice.explain(bin).offloads or 0 for bin in range(4)]
    gained = [veteran.explain(bin).offloads or 0 for bin in range(4)]
    assert np.subtract(after, before).tolist() == pytest.approx([0.25 * count for count in gained])
    again = Isotonic.restore(novice.state())
    assert play(again, 300) == play(novice, 300)


def test_merging_later_takes_the_place_of_a_warm_start() -> None:
    veteran, novice = Isotonic(4, offload_cost=0.5), Isotonic(4, offload_cost=0.5)
    play(veteran, 200)
    novice.warm_start(veteran.state(), weight=0.5)
    novice.merge(veteran.state())
    assert counts(novice) == counts(veteran)
    novice.warm_start(veteran.state(), weight=0.5)  # known in full already
    veteran.warm_start(veteran.state(), weight=1)  # its own
    assert counts(novice) == counts(veteran)


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
    for policy in (DiscountedIsotonic(4, offload_cost=0.5, memory=1600), SlidingWindowIsotonic(4, memory=1600)):
        history = [0] * 1600 + [3] * 800
        policy.learn_log(history, [True] * len(history), [0.5] * len(history), weight=1)
        old, recent = policy.explain(0).offloads or 0.0, policy.explain(3).offloads or 0.0
        if isinstance(policy, DiscountedIsotonic):
            left = (1 - 1 / 1600) ** 800
            assert old == pytest.approx(1600 * left * (1 - (1 - 1 / 1600) ** 1600), rel=1e-6)
            assert recent == pytest.approx(1600 * (1 - left), rel=1e-6)
        else:
            assert recent == 800
            assert 600 <= old <= 800


def test_a_budget_can_be_warm_too() -> None:
    policy = at_most(Isotonic(16, offload_cost=0.5), 0.1, 100)
    trace = load_trace("fashion")
    policy.learn_log(trace.bins_by(UniformBins(16)), trace.agreed, weight=0.1)
    assert not policy.decide(15).offload
    assert policy.decide(0).offload


def test_what_cannot_start_warm_is_refused() -> None:
    with pytest.raises(TypeError, match="HedgeHI: learn_log needs a policy that counts offloads"):
        HedgeHI(horizon=100, bins=4, offload_cost=0.5).learn_log(BINS, AGREED, weight=1)
    with pytest.raises(ValueError, match="Isotonic: weight must be > 0, got 0"):
        Isotonic(4, offload_cost=0.5).learn_log(BINS, AGREED, weight=0)
    with pytest.raises(InvalidState, match="Isotonic: other_state must have bins=4, got 8"):
        Isotonic(4).warm_start(Isotonic(8).state(), weight=0.5)
    with pytest.raises(ValueError, match="Isotonic: bins, agreed and costs must be equally long, got 3, 1 and 3"):
        Isotonic(4, offload_cost=0.5).learn_log([0, 1, 2], [True], weight=1)
    with pytest.raises(ValueError, match=r"bin must be an integer from 0 to 3, got 4 \(in row 1 of the log\)"):
        Isotonic(4, offload_cost=0.5).learn_log([0, 4], [True, True], weight=1)
