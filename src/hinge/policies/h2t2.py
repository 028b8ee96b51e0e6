"""H2T2 (Moothedath, Agarwal, Umeshraja N, Gross, Champati, Moharir: "Inference Offloading for Cost-Sensitive Binary
Classification at the Edge", arXiv 2509.15674): two thresholds, where false alarms and missed ones cost differently.
Grade C: reconstructed from the abstract, which has the setting, the pair of thresholds and a sublinear regret.

The local model says how likely the one class of two is. Below a lower threshold the sample counts as the other class,
above an upper one for this class, and between them it is offloaded. An expert is a pair of thresholds (j, k): it
offloads class 0 in the bins below j, class 1 in those below k. Pairs are weighed as our Hedge-HI weighs thresholds
(`hinge.policies.hedge`): with the price of the error in place of e, by every offload, over the chance of it, and at the
rates that were fitted for Hedge-HI, as those of H2T2 are not known to us.

The loss of a pair is that of its threshold for the class of the sample. So its weight is a product, one factor for each
class, and the pairs need not be kept: two sets of thresholds do, O(N) instead of O(N²).

What is left out: the original may also answer a class other than the likelier one, where the other mistake is dear
enough. A policy decides only who answers.
"""

from typing import Any, NamedTuple

from hinge._checks import positive, real, whole
from hinge.policies.expiry import FOREVER
from hinge.policies.hedge import (
    ThresholdTable,
    cost_needs,
    fitted_rates,
    learn_every_offload,
    offloads_hedge,
    reweigh,
    share_offloading_from_losses,
    threshold_table,
)
from hinge.policies.random import RandomisedPolicy


class PairTable(NamedTuple):
    """Thresholds for each class of local answer."""

    class0: ThresholdTable
    class1: ThresholdTable


def offloads_pair(table: PairTable, bin: int, time: int) -> bool:
    """Follow the threshold of the bin's class; both draw the same coin."""
    split = len(table.class0.seen)
    if bin < split:
        return offloads_hedge(table.class0, bin, time)
    return offloads_hedge(table.class1, bin - split, time)


def learn_pair(table: PairTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Charge the thresholds of the bin's class."""
    split = len(table.class0.seen)
    if bin < split:
        learn_every_offload(table.class0, bin, agreed, cost, time, now)
    else:
        learn_every_offload(table.class1, bin - split, agreed, cost, time, now)


def reweigh_pair(table: PairTable) -> None:
    """Recompute all weights from the losses."""
    reweigh(table.class0)
    reweigh(table.class1)


class H2T2(RandomisedPolicy):
    """H2T2 for a known horizon and two classes: `bins` are those of `ClassBins(…, classes=2)`, class 0 first.

    The price of a mistake is told as `agreed`, one minus the price (`CostMatrix.agreed`).

    >>> from hinge import ClassBins, CostMatrix, UniformBins
    >>> alarm, by_class = CostMatrix([[0, 10], [1, 0]]), ClassBins(UniformBins(16), classes=2)
    >>> policy = H2T2(horizon=20_000, bins=by_class.bins, offload_cost=0.2, seed=1)
    >>> for time in range(20_000):                     # local answers 0 and 1 by turns, and is wrong by turns, too
    ...     decision = policy.decide(by_class.bin(0.75, time % 2))
    ...     if decision.offload:
    ...         policy.learn(decision, alarm.agreed(time % 2, time // 2 % 2))
    >>> [policy.offload_probability(by_class.bin(0.75, label)) > 0.5 for label in (0, 1)]
    [True, False]
    """

    name = "h2t2"
    assumes_monotone = True
    evidence = ("class0_losses", "class1_losses")
    carried = ("class0_weights", "class1_weights", "class0_chances", "class1_chances")
    merges_on = ("bins", "offload_cost")
    table: PairTable

    def __init__(
        self,
        horizon: int,
        bins: int = 32,
        offload_cost: float | None = None,
        learning_rate: float | None = None,
        exploration: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        owner, sizes = type(self).__name__, (self.bins // 2, self.bins - self.bins // 2)
        self.horizon = whole(owner, "horizon", horizon, 1, FOREVER)
        rates = fitted_rates(self.horizon)
        self.learning_rate = rates[0] if learning_rate is None else positive(owner, "learning_rate", learning_rate)
        self.exploration = rates[1] if exploration is None else real(owner, "exploration", exploration, 0, 1)
        self.needs = cost_needs(self.offload_cost)
        settings = (self.offload_cost, self.seed, self.learning_rate, self.exploration)
        table = PairTable(*(threshold_table(size, *settings) for size in sizes))
        self.start(table, offloads_pair, learn_pair, reweigh_pair)

    @property
    def limitable(self) -> bool:
        return False  # what an offload reveals is weighed by its probability

    def offload_probability(self, bin: int) -> float:
        return self.exploration + (1.0 - self.exploration) * self._share(self._checked_bin(bin))

    def _share(self, bin: int) -> float:
        split = self.bins // 2
        if bin < split:
            return share_offloading_from_losses(self.table.class0, bin)
        return share_offloading_from_losses(self.table.class1, bin - split)

    def _ground(self, bin: int) -> str:
        held = f"thresholds of its class above it hold {self._share(bin):.3g} of the weight"
        return f"{held}, and exploration takes {self.exploration:.3g}"

    def _column(self, field: str) -> Any:
        side, _, column = field.partition("_")
        return getattr(getattr(self.table, side), column)
