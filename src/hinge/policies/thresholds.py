"""Exponential weights over thresholds: what Hedge-HI, HIL-F, HIL-N, Hedge-G and AdaHedge-G share.

Expert k = 0 … bins offloads iff bin < k. An expert's weight is prior · exp(-learning rate · its loss so far), so that
losses, which add up, are all there is to keep; weights are taken relative to the best expert and cannot overflow.
"""

import math
from typing import ClassVar, NamedTuple

from hinge.policies.columns import Reals, real_column
from hinge.policies.randomised import RandomisedPolicy


class ThresholdTable(NamedTuple):
    """What a policy over thresholds knows: evidence, what is derived from it, the parameters."""

    losses: Reals  # of each expert
    baseline: Reals  # the part of the losses from before the last restart (Hedge-HI-Restart)
    seen: Reals  # samples of each bin (Hedge-G, AdaHedge-G)
    gap: Reals  # the mixability gap, summed (AdaHedge-G)
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
        prior=real_column(bins + 1, 1.0),
        rates=rates,
        complexity=complexity,
        first_epoch=first_epoch,
        offload_cost=math.nan if offload_cost is None else offload_cost,
        seed=seed,
    )


def share_offloading(table: ThresholdTable, bin: int) -> float:
    """The share of the weight that is held by experts who offload this bin."""
    best = math.inf
    for k in range(len(table.losses)):
        if table.prior[k] > 0.0:
            best = min(best, table.losses[k] - table.baseline[k])
    total, offloading, rate = 0.0, 0.0, table.rates[0]
    for k in range(len(table.losses)):
        if table.prior[k] > 0.0:
            lag = table.losses[k] - table.baseline[k] - best
            weight = table.prior[k] * math.exp(-rate * lag) if lag > 0.0 else table.prior[k]
            total += weight
            if k > bin:
                offloading += weight
    return offloading / total


def charge_offloading(table: ThresholdTable, bin: int, loss: float) -> None:
    """Charge every expert who would have offloaded this bin."""
    for k in range(bin + 1, len(table.losses)):
        table.losses[k] += loss


def charge_accepting(table: ThresholdTable, bin: int, loss: float) -> None:
    """Charge every expert who would have accepted this bin."""
    for k in range(bin + 1):
        table.losses[k] += loss


class ThresholdPolicy(RandomisedPolicy):
    """A randomised policy whose experts are thresholds."""

    evidence: ClassVar[tuple[str, ...]] = ("losses",)
    merges_on = ("bins", "offload_cost")
    table: ThresholdTable

    def _rebuild(self) -> None:
        """Losses are all there is."""

    def offload_probability(self, bin: int) -> float:
        bin = self._checked_bin(bin)
        exploration = self.table.rates[1]
        return exploration + (1.0 - exploration) * float(share_offloading(self.table, bin))

    def _ground(self, bin: int) -> str:
        share, exploration = share_offloading(self.table, bin), self.table.rates[1]
        return f"thresholds above it hold {share:.3g} of the weight, and exploration takes {exploration:.3g}"
