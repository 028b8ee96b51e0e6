"""Hedge-G and AdaHedge-G (UAI 2025, stochastically partitioning experts, one dimension): experts that split.

Grade B, reconstructed from the published abstract. At first all thresholds are one expert. A confidence seen for the
first time splits the interval of thresholds it falls into, and both children inherit the parent's loss (its weight, not
a share of it). All thresholds of an interval have suffered the same, so it is enough to keep the losses of all bins + 1
thresholds, and to bring the threshold at a bin into play when the bin is first seen. Full feedback, as HIL-F.

AdaHedge-G needs no horizon and no rate: its learning rate is ln N / (the mixability gap summed so far), for N experts
in play; the gap of a slot is the mean loss minus the mix loss -ln(Σ share · exp(-rate · loss)) / rate.
"""

import math

from hinge.arguments import whole
from hinge.policies.base import Need
from hinge.policies.hil import learn_all, offloads_by_share
from hinge.policies.thresholds import (
    ThresholdPolicy,
    ThresholdTable,
    reweigh,
    share_offloading,
    share_offloading_from_losses,
    threshold_table,
)


def see(table: ThresholdTable, bin: int) -> None:
    """Split the interval of thresholds at a bin when it is first seen."""
    table.seen[bin] += 1.0
    if table.prior[bin] == 0.0:
        table.prior[bin] = 1.0
        reweigh(table)


def offloads_splitting(table: ThresholdTable, bin: int, time: int) -> bool:
    """Hedge-G: split, then follow an expert drawn by weight."""
    see(table, bin)
    return offloads_by_share(table, bin, time)


def offloads_adaptive(table: ThresholdTable, bin: int, time: int) -> bool:
    """AdaHedge-G: the same at the rate that the gap so far asks for."""
    see(table, bin)
    adapt(table)
    return offloads_by_share(table, bin, time)


def adapt(table: ThresholdTable) -> None:
    """Learning rate ln N / gap; infinite (follow the leader) while there is no gap."""
    experts = 0
    for k in range(len(table.prior)):
        if table.prior[k] > 0.0:
            experts += 1
    table.rates[0] = math.log(experts) / table.gap[0] if table.gap[0] > 0.0 else math.inf
    reweigh(table)


def learn_adaptive(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Add the mixability gap of the slot, then charge every expert."""
    adapt(table)
    table.gap[0] += mixability_gap(share_offloading(table, bin), cost, 1.0 - agreed, table.rates[0])
    learn_all(table, bin, agreed, cost, time, now)


def mixability_gap(share: float, cost: float, error: float, rate: float) -> float:
    """Mean loss minus mix loss, when a share of the weight pays `cost` and the rest `error`.

    >>> mixability_gap(0.5, 1.0, 0.0, math.inf), round(mixability_gap(0.5, 1.0, 0.0, 1.0), 6)
    (0.5, 0.120115)
    """
    if share <= 0.0 or share >= 1.0:
        return 0.0
    mean = share * cost + (1.0 - share) * error
    least = min(cost, error)
    if math.isinf(rate):
        return mean - least
    weight = share * math.exp(-rate * (cost - least)) + (1.0 - share) * math.exp(-rate * (error - least))
    return max(0.0, mean - least + math.log(weight) / rate) if rate > 0.0 else 0.0


class HedgeG(ThresholdPolicy):
    """Hedge-G at the rate √(8 ln N / T) of a known horizon.

    >>> policy = HedgeG(horizon=1000, bins=16, offload_cost=0.5)
    >>> policy.learn(policy.decide(7), agreed=False, cost=0.5)
    >>> round(policy.offload_probability(7), 4)
    0.5188
    """

    name = "hedge-g"
    evidence = ("losses", "seen")
    needs = frozenset({Need.AGREEMENT, Need.COST})

    def __init__(
        self,
        horizon: int,
        bins: int = 16,
        offload_cost: float | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        horizon = whole(type(self).__name__, "horizon", horizon, 1)
        rate = math.sqrt(8.0 * math.log(self.bins + 1) / horizon)
        self._rates(horizon, (rate, 0.0), learning_rate, None)
        self._offloads, self._learns = offloads_splitting, learn_all
        self._rebuild()

    def _rebuild(self) -> None:
        play_seen(self.table)
        reweigh(self.table)

    def offload_probability(self, bin: int) -> float:
        return split_share(self.table, self._checked_bin(bin))


class AdaHedgeG(ThresholdPolicy):
    """AdaHedge-G: neither a horizon nor a rate to tune.

    >>> policy = AdaHedgeG(bins=16, offload_cost=0.5)
    >>> policy.learn(policy.decide(7), agreed=False, cost=0.5)
    >>> round(policy.offload_probability(7), 4)
    0.8
    """

    name = "adahedge-g"
    evidence = ("losses", "seen", "gap")
    order_matters = ("gap",)
    needs = frozenset({Need.AGREEMENT, Need.COST})

    def __init__(self, bins: int = 16, offload_cost: float | None = None, seed: int = 0) -> None:
        super().__init__(bins, offload_cost, seed)
        self.table = threshold_table(self.bins, self.offload_cost, self.seed, math.inf)
        self._offloads, self._learns = offloads_adaptive, learn_adaptive
        self._rebuild()

    def _rebuild(self) -> None:
        play_seen(self.table)
        adapt(self.table)

    def offload_probability(self, bin: int) -> float:
        return split_share(self.table, self._checked_bin(bin), adapt_rate=True)


def play_seen(table: ThresholdTable) -> None:
    """Bring into play the threshold above every bin, and that at each bin seen."""
    bins = len(table.seen)
    table.prior[bins] = 1.0
    for bin in range(bins):
        table.prior[bin] = 1.0 if table.seen[bin] > 0.0 else 0.0


def split_share(table: ThresholdTable, bin: int, adapt_rate: bool = False) -> float:
    """The share of the experts who offload a bin, as it would be if this bin were seen next."""
    after = table._replace(prior=table.prior[:], rates=table.rates[:], weights=table.weights[:])
    after.prior[bin] = 1.0
    if adapt_rate:
        adapt(after)
    return share_offloading_from_losses(after, bin)
