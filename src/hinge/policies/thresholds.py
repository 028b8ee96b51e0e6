"""Exponential weights over thresholds: what Hedge-HI, HIL-F, HIL-N, Hedge-G and AdaHedge-G share.

Expert k = 0 … bins offloads iff bin < k. An expert's weight is prior · exp(-learning rate · its loss so far). Losses
are the evidence. Weights are carried along by multiplication, which is cheaper than an exponential for each expert at
each sample; before they get too small they are taken anew from the losses, relative to the best expert, so that they
neither overflow nor vanish.
"""

import math
from typing import NamedTuple

from hinge.arguments import positive, real, whole
from hinge.policies.columns import Reals, real_column
from hinge.policies.randomised import RandomisedPolicy

_TINY = 1e-100  # below it weights are taken anew: there is room for 200 more orders of magnitude


class ThresholdTable(NamedTuple):
    """What a policy over thresholds knows: evidence, what is derived from it, the parameters."""

    losses: Reals  # of each expert
    baseline: Reals  # the part of the losses from before the last restart (Hedge-HI-Restart)
    seen: Reals  # samples of each bin (Hedge-G, AdaHedge-G)
    gap: Reals  # the mixability gap, summed (AdaHedge-G)
    weights: Reals  # of each expert, up to a common factor
    prior: Reals  # of each expert; 0: not in play
    rates: Reals  # learning rate, exploration
    offload_cost: float  # NaN: told in every slot
    seed: int
    complexity: float  # A of the regret bound (Hedge-HI-Restart)
    first_epoch: int  # slots before the first restart (Hedge-HI-Restart)


def threshold_table(
    bins: int,
    offload_cost: float | None,
    seed: int,
    learning_rate: float,
    exploration: float = 0.0,
    complexity: float = 0.0,
    first_epoch: int = 0,
) -> ThresholdTable:
    """A table without evidence, whose bins + 1 experts are equally likely."""
    rates = real_column(2)
    rates[0], rates[1] = learning_rate, exploration
    return ThresholdTable(
        losses=real_column(bins + 1),
        baseline=real_column(bins + 1),
        seen=real_column(bins),
        gap=real_column(1),
        weights=real_column(bins + 1, 1.0),
        prior=real_column(bins + 1, 1.0),
        rates=rates,
        complexity=complexity,
        first_epoch=first_epoch,
        offload_cost=math.nan if offload_cost is None else offload_cost,
        seed=seed,
    )


def best_loss(table: ThresholdTable) -> float:
    """The least loss of an expert in play."""
    best = math.inf
    for k in range(len(table.losses)):
        if table.prior[k] > 0.0:
            best = min(best, table.losses[k] - table.baseline[k])
    return best


def weight_of(table: ThresholdTable, k: int, best: float) -> float:
    """prior · exp(-learning rate · loss), relative to the best expert. A rate may be infinite: follow the leader."""
    lag = table.losses[k] - table.baseline[k] - best
    return table.prior[k] * math.exp(-table.rates[0] * lag) if lag > 0.0 else table.prior[k]


def reweigh(table: ThresholdTable) -> None:
    """Take all weights anew from the losses."""
    best = best_loss(table)
    for k in range(len(table.losses)):
        table.weights[k] = weight_of(table, k, best) if table.prior[k] > 0.0 else 0.0


def share_offloading(table: ThresholdTable, bin: int) -> float:
    """The share of the weight that is held by experts who offload this bin."""
    weights = table.weights
    accepting, offloading = 0.0, 0.0
    for k in range(bin + 1):
        accepting += weights[k]
    for k in range(bin + 1, len(weights)):
        offloading += weights[k]
    if accepting + offloading < _TINY:
        reweigh(table)
        return share_offloading_from_losses(table, bin)
    return offloading / (accepting + offloading)


def share_offloading_from_losses(table: ThresholdTable, bin: int) -> float:
    """The same without a look at the carried weights."""
    best = best_loss(table)
    total, offloading = 0.0, 0.0
    for k in range(len(table.losses)):
        if table.prior[k] > 0.0:
            weight = weight_of(table, k, best)
            total += weight
            if k > bin:
                offloading += weight
    return offloading / total


def charge_offloading(table: ThresholdTable, bin: int, loss: float) -> None:
    """Charge every expert who would have offloaded this bin."""
    losses, weights = table.losses, table.weights
    factor = math.exp(-table.rates[0] * loss) if loss > 0.0 else 1.0
    for k in range(bin + 1, len(losses)):
        losses[k] += loss
        weights[k] *= factor


def charge_accepting(table: ThresholdTable, bin: int, loss: float) -> None:
    """Charge every expert who would have accepted this bin."""
    losses, weights = table.losses, table.weights
    factor = math.exp(-table.rates[0] * loss) if loss > 0.0 else 1.0
    for k in range(bin + 1):
        losses[k] += loss
        weights[k] *= factor


class ThresholdPolicy(RandomisedPolicy):
    """A randomised policy whose experts are thresholds."""

    assumes_monotone = True
    can_be_overruled = False  # what an offload reveals is weighed by its chance
    evidence: tuple[str, ...] = ("losses",)
    carried: tuple[str, ...] = ("weights",)
    merges_on = ("bins", "offload_cost")
    table: ThresholdTable

    def _rebuild(self) -> None:
        reweigh(self.table)

    def _rates(
        self, horizon: int, defaults: tuple[float, float], learning_rate: float | None, exploration: float | None
    ) -> None:
        """Take in a known horizon, and the rates that follow from it unless they are given."""
        owner = type(self).__name__
        self.horizon = whole(owner, "horizon", horizon, 1)
        self.learning_rate = defaults[0] if learning_rate is None else positive(owner, "learning_rate", learning_rate)
        self.exploration = defaults[1] if exploration is None else real(owner, "exploration", exploration, 0, 1)
        self.table = threshold_table(self.bins, self.offload_cost, self.seed, self.learning_rate, self.exploration)

    def offload_probability(self, bin: int) -> float:
        bin = self._checked_bin(bin)
        exploration = self.table.rates[1]
        return exploration + (1.0 - exploration) * share_offloading_from_losses(self.table, bin)

    def _ground(self, bin: int) -> str:
        share, exploration = share_offloading_from_losses(self.table, bin), self.table.rates[1]
        return f"thresholds above it hold {share:.3g} of the weight, and exploration takes {exploration:.3g}"
