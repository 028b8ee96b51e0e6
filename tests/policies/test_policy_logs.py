"""Starting from a log of one's own: every row is an offload, once."""

import numpy as np
import pytest

from hinge import HILCB, HILCBLite, Policy, Probation, Target, Thompson
from hinge.policies import Discounted, HedgeHI

BINS, AGREED, COSTS = [0, 1, 3, 3, 2], [False, True, True, True, False], [0.5, 0.4, 0.5, 0.6, 0.5]
COUNTS = [(1.0, 0.0), (1.0, 1.0), (1.0, 0.0), (2.0, 2.0)]
POLICIES = [Probation(4, 0.5), HILCB(4, offload_cost=0.5), HILCBLite(4), Thompson(4, 0.5), Target(0.9, 4)]


def counts(policy: Policy) -> list[tuple[float, float] | None]:
    return [policy.counts(bin) for bin in range(policy.bins)]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_log_counts_once_by_any_route(policy: Policy) -> None:
    one, other = policy.fresh(1), policy.fresh(1)
    for device in (one, other, other):
        device.learn_log(np.array(BINS), np.array(AGREED), COSTS)
    assert counts(one) == counts(other) == COUNTS
    one.merge(other.state())
    assert counts(one) == COUNTS
    assert (one.time, one.learned) == (0, 0)
    again = type(one).restore(one.state())
    again.learn_log(BINS, AGREED, COSTS)
    assert counts(again) == COUNTS
    again.learn_log(BINS[:-1], AGREED[:-1], COSTS[:-1])  # another log
    assert again.counts(1) == (2.0, 2.0)


def test_the_costs_of_a_log_are_learned_where_costs_are() -> None:
    policy = HILCB(4)
    policy.learn_log(BINS, AGREED, COSTS)
    assert policy.state()["table"]["costs"] == pytest.approx([5, 2.5, 3 * 0.25 + 0.16 + 0.36])
    with pytest.raises(TypeError, match=r"HILCB: cost must be a number, as .* \(in row 0 of the log\)"):
        HILCB(4).learn_log(BINS, AGREED)


def test_what_cannot_start_from_a_log_is_refused() -> None:
    for other in (HedgeHI(horizon=100, bins=4, offload_cost=0.5), Discounted(4)):
        with pytest.raises(TypeError, match="learn_log needs a policy that counts offloads"):
            other.learn_log(BINS, AGREED)
    policy = Probation(4, 0.5)
    with pytest.raises(ValueError, match="Probation: bins, agreed and costs must be equally long, got 3, 1 and 3"):
        policy.learn_log([0, 1, 2], [True])
    with pytest.raises(ValueError, match=r"bin must be an integer from 0 to 3, got 4 \(in row 1 of the log\)"):
        policy.learn_log([0, 4], [True, True])
    assert counts(policy) == [(0.0, 0.0)] * 4
