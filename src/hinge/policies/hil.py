"""HIL-F and HIL-N (arXiv 2304.00891): exponential weights over a continuum of thresholds.

Grade B, reconstructed from the published abstract and regret bounds √(T ln(1/λ)/2) and O(T^(2/3) ln(1/λ)^(1/3)); λ is
the smallest gap between two confidences, here 1/bins. Thresholds θ are uniform on [0, 1]; those between two
neighbouring confidences behave alike, so on bins they are bins + 1 experts whose priors are the widths of those
intervals (a bin's confidence is its centre, so the outermost two are half as wide).

HIL-F sees the loss of every expert in every slot: Γ if it offloads, else e. That is more than a device can know; it is
a reference, not a competitor. HIL-N pays for what it knows, with Hedge-HI's exploration coin and pseudo-losses.
"""

import math

from hinge.arguments import real, whole
from hinge.policies.base import Need
from hinge.policies.chance import uniform
from hinge.policies.hedge_hi import cost_needs, learn_hedge, offloads_hedge, optimal_rates
from hinge.policies.thresholds import (
    ThresholdPolicy,
    ThresholdTable,
    charge_accepting,
    charge_offloading,
    reweigh,
    share_offloading,
)


def offloads_by_share(table: ThresholdTable, bin: int, time: int) -> bool:
    """Follow an expert drawn by weight."""
    return uniform(table.seed, time, 0) < share_offloading(table, bin)


def learn_all(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Charge every expert what it would have paid."""
    charge_offloading(table, bin, cost)
    charge_accepting(table, bin, 1.0 - agreed)


def interval_prior(table: ThresholdTable) -> None:
    """Give each expert the width of the interval of thresholds that it stands for."""
    bins = len(table.prior) - 1
    for k in range(bins + 1):
        table.prior[k] = (0.5 if k in (0, bins) else 1.0) / bins
    reweigh(table)


def gap_complexity(owner: str, smallest_gap: float | None, bins: int) -> float:
    """ln(1/λ), for λ the smallest gap between two confidences; 1/bins unless told otherwise."""
    if smallest_gap is None:
        return math.log(max(2, bins))
    return -math.log(real(owner, "smallest_gap", smallest_gap, 1e-300, 0.5))


class HILF(ThresholdPolicy):
    """HIL-F: full feedback, learning rate √(8 ln(1/λ) / T).

    >>> policy = HILF(horizon=1000, bins=16, offload_cost=0.5)
    >>> decision = policy.decide(15)
    >>> policy.learn(decision, agreed=True, cost=0.5)   # whether it was offloaded or not
    >>> sorted(need.name for need in policy.needs)
    ['AGREEMENT', 'COST']
    """

    name = "hil-f"
    needs = frozenset({Need.AGREEMENT, Need.COST})

    def __init__(
        self,
        horizon: int,
        bins: int = 16,
        offload_cost: float | None = None,
        smallest_gap: float | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        self.smallest_gap = smallest_gap
        amount = gap_complexity(type(self).__name__, smallest_gap, self.bins)
        horizon = whole(type(self).__name__, "horizon", horizon, 1)
        self._rates(horizon, (math.sqrt(8.0 * amount / horizon), 0.0), learning_rate, None)
        interval_prior(self.table)
        self._offloads, self._learns = offloads_by_share, learn_all


class HILN(ThresholdPolicy):
    """HIL-N: HIL-F's thresholds with Hedge-HI's exploration.

    >>> policy = HILN(horizon=100_000, bins=16, offload_cost=0.5)
    >>> round(policy.exploration, 4)
    0.024
    """

    name = "hil-n"

    def __init__(
        self,
        horizon: int,
        bins: int = 16,
        offload_cost: float | None = None,
        smallest_gap: float | None = None,
        learning_rate: float | None = None,
        exploration: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        self.smallest_gap = smallest_gap
        amount = gap_complexity(type(self).__name__, smallest_gap, self.bins)
        horizon = whole(type(self).__name__, "horizon", horizon, 1)
        self._rates(horizon, optimal_rates(amount, horizon), learning_rate, exploration)
        self.needs = cost_needs(self.offload_cost)
        interval_prior(self.table)
        self._offloads, self._learns = offloads_hedge, learn_hedge
