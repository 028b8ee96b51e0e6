"""Exponential weights over thresholds: Hedge-HI, HIL-F, HIL-N, Hedge-G, AdaHedge-G and H2T2.

Expert k = 0 … bins offloads iff bin < k. An expert's weight is prior · exp(-learning rate · its loss so far). Losses
are the evidence. Weights are carried along by multiplication, which is cheaper than an exponential for each expert at
each sample; before they get too small they are computed again from the losses, relative to the best expert, so that
they neither overflow nor vanish. All but H2T2 are grade B, reconstructed from published abstracts and regret bounds:
structure sure, constants less so.

**Hedge-HI** (MobiHoc 2024; regret bound O(T^(2/3) N^(1/3))). In every slot one expert is drawn by weight and one coin E
with chance ε; offload iff the expert does or E. Every expert then suffers the pseudo-loss

    Γ if it offloads, else 1{E} · e / ε          (e = 1 where local disagrees with remote)

which is unbiased: accepting costs e, and the coin reveals e with chance ε. From the regret bound
ε T + A/η + η T / (2ε):   η = (2A² / T²)^(1/3),   ε = min(1, √(η/2)), for a value of A that is not known to us. That is
one reading (docs/results.md). In the other, which is the default, every offload teaches: 1{offloaded} · e / P(offload)
takes the place of 1{E} · e / ε, at fitted rates (`benchmarks/hedge_presets.py`). The horizon T must be known.
The offload cost Γ is needed in every slot: either it is known, or the policy must be told (`needs`).

**HIL-F and HIL-N** (arXiv 2304.00891; bounds √(T ln(1/λ)/2) and O(T^(2/3) ln(1/λ)^(1/3)); λ is the smallest gap between
two confidences, here 1/bins). Thresholds θ are uniform on [0, 1]; those between two neighbouring confidences behave
alike, so on bins they are bins + 1 experts whose priors are the widths of those intervals (a bin's confidence is its
centre, so the outermost two are half as wide). HIL-F sees the loss of every expert in every slot: Γ if it offloads,
else e. That is more than a device can know; it is a reference, not a competitor. HIL-N pays for what it knows, with
Hedge-HI's exploration coin and pseudo-losses.

**Hedge-G and AdaHedge-G** (UAI 2025, stochastically partitioning experts, one dimension). At first all thresholds are
one expert. A confidence seen for the first time splits the interval of thresholds it falls into, and both children
inherit the parent's loss (its weight, not a share of it). All thresholds of an interval have suffered the same, so it
is enough to keep the losses of all bins + 1 thresholds, and to bring the threshold at a bin into play when the bin is
first seen. Full feedback, as HIL-F. AdaHedge-G needs no horizon and no rate: its learning rate is ln N / (the
mixability gap summed so far), for N experts in play; the gap of a slot is the mean loss minus the mix loss
-ln(Σ share · exp(-rate · loss)) / rate.

**H2T2** (Moothedath, Agarwal, Umeshraja N, Gross, Champati, Moharir: "Inference Offloading for Cost-Sensitive Binary
Classification at the Edge", arXiv 2509.15674): two thresholds, where false alarms and missed ones cost differently.
Grade C: reconstructed from the abstract, which has the setting, the pair of thresholds and a sublinear regret. The
local model says how likely the one class of two is. Below a lower threshold the sample counts as the other class, above
an upper one for this class, and between them it is offloaded. An expert is a pair of thresholds (j, k): it offloads
class 0 in the bins below j, class 1 in those below k. Pairs are weighed as our Hedge-HI weighs thresholds: with the
price of the error in place of e, by every offload, over the chance of it, and at the rates that were fitted for
Hedge-HI, as those of H2T2 are not known to us. The loss of a pair is that of its threshold for the class of the sample.
So its weight is a product, one factor for each class, and the pairs need not be kept: two sets of thresholds do, O(N)
instead of O(N²). What is left out: the original may also answer a class other than the likelier one, where the other
mistake is dear enough. A policy decides only who answers.
"""

import math
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from hinge._checks import positive, real, whole
from hinge.errors import UnknownName
from hinge.policies.expiry import FOREVER
from hinge.policies.policy import Need, Reals, real_column
from hinge.policies.random import RandomisedPolicy, uniform

_UNLIKELY = 1e-9  # the least chance of an offload that an error is weighed by
_TINY = 1e-100  # below it weights are recomputed: there is room for 200 more orders of magnitude


RATE, EXPLORATION = 0, 1  # the entries of the column `rates`
Rates = tuple[float, float]


class ThresholdTable(NamedTuple):
    """What a policy over thresholds knows: evidence, what is derived from it, the parameters."""

    losses: Reals  # of each expert
    baseline: Reals  # the part of the losses from before the last restart (Hedge-HI-Restart)
    seen: Reals  # samples of each bin (Hedge-G, AdaHedge-G)
    gap: Reals  # the mixability gap, summed (AdaHedge-G)
    chances: Reals  # with which each bin was last offloaded (Hedge-HI that learns from every offload)
    weights: Reals  # of each expert, up to a common factor
    prior: Reals  # of each expert; 0: not in play
    rates: Reals  # RATE (the learning rate) and EXPLORATION
    offload_cost: float  # NaN: told in every slot
    seed: int
    complexity: float  # A of the regret bound (Hedge-HI-Restart)
    first_epoch: int  # slots before the first restart (Hedge-HI-Restart)
    adaptive: bool  # whether the learning rate follows the gap (AdaHedge-G)


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
    return table.prior[k] * math.exp(-table.rates[RATE] * lag) if lag > 0.0 else table.prior[k]


def reweigh(table: ThresholdTable) -> None:
    """Recompute all weights from the losses."""
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
    """The same, computed from the losses instead of the carried weights."""
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
    charge(table, bin + 1, len(table.losses), loss)


def charge_accepting(table: ThresholdTable, bin: int, loss: float) -> None:
    """Charge every expert who would have accepted this bin."""
    charge(table, 0, bin + 1, loss)


def charge(table: ThresholdTable, first: int, end: int, loss: float) -> None:
    """Add to the losses of some experts, and multiply their weights accordingly."""
    losses, weights = table.losses, table.weights
    factor = math.exp(-table.rates[RATE] * loss) if loss > 0.0 else 1.0
    for k in range(first, end):
        losses[k] += loss
        weights[k] *= factor


class ThresholdPolicy(RandomisedPolicy):
    """A randomised policy whose experts are thresholds."""

    assumes_monotone = True
    evidence: tuple[str, ...] = ("losses",)
    carried: tuple[str, ...] = ("weights",)
    merges_on: tuple[str, ...] = ("bins", "offload_cost")

    @property
    def limitable(self) -> bool:
        return False  # what an offload reveals is weighed by its probability

    def _set_rates(
        self, horizon: int, rates: Callable[[int], Rates], learning_rate: float | None, exploration: float | None = None
    ) -> None:
        """The rates that follow from a known horizon, unless they are given."""
        owner = type(self).__name__
        self.horizon = whole(owner, "horizon", horizon, 1, FOREVER)
        rate, share = rates(self.horizon)
        self.learning_rate = rate if learning_rate is None else positive(owner, "learning_rate", learning_rate)
        self.exploration = share if exploration is None else real(owner, "exploration", exploration, 0, 1)
        self._rates = self.learning_rate, self.exploration

    def _table(
        self, rates: Rates, complexity: float = 0.0, first_epoch: int = 0, bins: int | None = None
    ) -> ThresholdTable:
        """A table without evidence, whose bins + 1 experts are equally likely."""
        bins = self.bins if bins is None else bins
        return ThresholdTable(
            losses=real_column(bins + 1),
            baseline=real_column(bins + 1),
            seen=real_column(bins),
            gap=real_column(1),
            chances=real_column(bins),
            weights=real_column(bins + 1, 1.0),
            prior=real_column(bins + 1, 1.0),
            rates=array("d", rates),
            offload_cost=math.nan if self.offload_cost is None else self.offload_cost,
            seed=self.seed,
            complexity=complexity,
            first_epoch=first_epoch,
            adaptive=math.isinf(rates[RATE]),
        )

    def offload_probability(self, bin: int) -> float:
        experts, place = self._experts(self._checked_bin(bin))
        exploration = experts.rates[EXPLORATION]
        return exploration + (1.0 - exploration) * share_offloading_from_losses(experts, place)

    def _ground(self, bin: int) -> str:
        experts, place = self._experts(bin)
        share, exploration = share_offloading_from_losses(experts, place), experts.rates[EXPLORATION]
        return f"thresholds above it hold {share:.3g} of the weight, and exploration takes {exploration:.3g}"

    def _experts(self, bin: int) -> tuple[ThresholdTable, int]:
        """The thresholds that decide on a bin, and which of their bins it is."""
        return self.table, bin


COMPLEXITIES: dict[str, Callable[[int], float]] = {  # A in the regret bound: how much there is to learn
    "N": lambda bins: float(bins),
    "N ln 2": lambda bins: bins * math.log(2.0),
    "ln(N+1)": lambda bins: math.log(bins + 1.0),
}


def explores(table: ThresholdTable, time: int) -> bool:
    """The exploration coin of a slot; it can be drawn again when the feedback arrives."""
    return uniform(table.seed, time, 1) < table.rates[EXPLORATION]


def offloads_hedge(table: ThresholdTable, bin: int, time: int) -> bool:
    """Draw an expert and the coin. A known cost is charged at once; told costs come with the feedback."""
    share, exploration = share_offloading(table, bin), table.rates[EXPLORATION]
    table.chances[bin] = exploration + (1.0 - exploration) * share
    offload = uniform(table.seed, time, 0) < share or explores(table, time)
    if not math.isnan(table.offload_cost):
        charge_offloading(table, bin, table.offload_cost)
    return offload


def learn_hedge(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Only slots whose coin came up may charge an error: the others saw it because some expert offloads."""
    if math.isnan(table.offload_cost):
        charge_offloading(table, bin, cost)
    if explores(table, time):
        charge_accepting(table, bin, (1.0 - agreed) / table.rates[EXPLORATION])


def learn_every_offload(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Charge an error over the chance of seeing it; feedback that is late, over that of the bin's last decision."""
    if math.isnan(table.offload_cost):
        charge_offloading(table, bin, cost)
    charge_accepting(table, bin, (1.0 - agreed) / max(table.chances[bin], _UNLIKELY))


def optimal_rates(complexity: float, horizon: float) -> Rates:
    """η and ε that minimise ε T + A/η + η T / (2ε).

    >>> learning_rate, exploration = optimal_rates(16.0, 100_000)
    >>> round(learning_rate, 6), round(exploration, 6)
    (0.003713, 0.043089)
    """
    learning_rate = (2.0 * complexity**2 / horizon**2) ** (1.0 / 3.0)
    return learning_rate, min(1.0, math.sqrt(learning_rate / 2.0))


def full_rates(complexity: float, horizon: float) -> Rates:
    """η = √(8A / T) for full feedback, which needs no exploration."""
    return math.sqrt(8.0 * complexity / horizon), 0.0


FITTED = "fitted"


def fitted_rates(horizon: float) -> Rates:
    """η and ε that bring the cost of Hedge-HI at T = 100 000 nearest to what the paper's tables imply.

    >>> fitted_rates(100_000)
    (0.005, 0.005)
    """
    return 0.005 * (horizon / 1e5) ** (-2.0 / 3.0), min(1.0, 0.005 * (horizon / 1e5) ** (-1.0 / 3.0))


class HedgeHI(ThresholdPolicy):
    """Hedge-HI for a known horizon.

    `complexity` names the preset for A, and the coin alone teaches; by default every offload does, at fitted rates.
    `learning_rate` and `exploration` override what follows from it.

    >>> policy = HedgeHI(horizon=1000, bins=16, offload_cost=0.5, seed=1)
    >>> sum(policy.decide(3).offload for _ in range(100))
    26
    """

    name = "hedge-hi"

    def __init__(
        self,
        horizon: int,
        bins: int = 16,
        offload_cost: float | None = None,
        complexity: str = FITTED,
        learning_rate: float | None = None,
        exploration: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        self.complexity = complexity
        self.needs = cost_needs(self.offload_cost)
        if complexity == FITTED:
            self.carried, learns, rates = ("weights", "chances"), learn_every_offload, fitted_rates
        else:
            amount = complexity_of(type(self).__name__, complexity, self.bins, (FITTED,))
            learns, rates = learn_hedge, partial(optimal_rates, amount)
        self._set_rates(horizon, rates, learning_rate, exploration)
        self.start(self._table(self._rates), offloads=offloads_hedge, learns=learns, rebuilds=reweigh)


def complexity_of(owner: str, name: str, bins: int, others: tuple[str, ...] = ()) -> float:
    """The value of a preset for A."""
    if name not in COMPLEXITIES:
        known = ", ".join((*others, *COMPLEXITIES))
        raise UnknownName(f"{owner}: complexity must be one of {known}, got {name!r}")
    return COMPLEXITIES[name](bins)


def cost_needs(offload_cost: float | None) -> frozenset[Need]:
    """A cost that is not known in advance must be told in every slot."""
    return frozenset({Need.COST}) if offload_cost is None else frozenset()


# -- restarts ---------------------------------------------------------------------------------------------------------


def epoch_of(first_epoch: int, time: int) -> tuple[int, int]:
    """The first slot and the length of the epoch that a slot lies in; each is twice as long as the one before.

    >>> epoch_of(100, 1), epoch_of(100, 100), epoch_of(100, 101), epoch_of(100, 301)
    ((1, 100), (1, 100), (101, 200), (301, 400))
    """
    start, length = 1, first_epoch
    while time >= start + length:
        start += length
        length *= 2
    return start, length


def offloads_restart(table: ThresholdTable, bin: int, time: int) -> bool:
    """Hedge-HI for the length of the epoch, from even weights in its first slot."""
    start, length = epoch_of(table.first_epoch, time)
    if time == start:
        for k in range(len(table.losses)):
            table.baseline[k] = table.losses[k]
        table.rates[RATE], table.rates[EXPLORATION] = optimal_rates(table.complexity, length)
        reweigh(table)
    return offloads_hedge(table, bin, time)


def learn_restart(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Feedback that comes after the epoch of its decision is over has nothing left to say."""
    if epoch_of(table.first_epoch, time)[0] == epoch_of(table.first_epoch, now)[0]:
        learn_hedge(table, bin, agreed, cost, time, now)


class HedgeHIRestart(ThresholdPolicy):
    """Hedge-HI that starts afresh in epochs of doubling length, so that no horizon need be known.

    Grade C: a reconstruction by the usual doubling argument.

    >>> policy = HedgeHIRestart(bins=16, offload_cost=0.5, first_epoch=64)
    >>> policy.decide(15).offload in (True, False)
    True
    """

    name = "hedge-hi-restart"
    carried = ("baseline", "weights")

    def __init__(
        self,
        bins: int = 16,
        offload_cost: float | None = None,
        complexity: str = "N ln 2",
        first_epoch: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        owner = type(self).__name__
        self.complexity = complexity
        self.first_epoch = whole(owner, "first_epoch", first_epoch, 1, FOREVER)
        self.needs = cost_needs(self.offload_cost)
        amount = complexity_of(owner, complexity, self.bins)
        table = self._table(optimal_rates(amount, self.first_epoch), amount, self.first_epoch)
        self.start(table, offloads=offloads_restart, learns=learn_restart)

    def _rebuild(self) -> None:
        length = epoch_of(self.first_epoch, max(1, self.time))[1]
        self.table.rates[RATE], self.table.rates[EXPLORATION] = optimal_rates(self.table.complexity, length)
        reweigh(self.table)

    def offload_probability(self, bin: int) -> float:
        start, length = epoch_of(self.first_epoch, self.time + 1)
        if start != self.time + 1:
            return super().offload_probability(bin)
        exploration = optimal_rates(self.table.complexity, length)[1]
        return exploration + (1.0 - exploration) * (self.bins - self._checked_bin(bin)) / (self.bins + 1)


# -- intervals of thresholds that are split ---------------------------------------------------------------------------


def offloads_splitting(table: ThresholdTable, bin: int, time: int) -> bool:
    """Split the interval of thresholds at a bin when it is first seen; then follow an expert drawn by weight."""
    table.seen[bin] += 1.0
    if table.prior[bin] == 0.0:
        table.prior[bin] = 1.0
        reweigh(table)
    if table.adaptive:
        adapt(table)
    return offloads_by_share(table, bin, time)


def adapt(table: ThresholdTable) -> None:
    """Learning rate ln N / gap; infinite (follow the leader) while there is no gap."""
    experts = 0
    for k in range(len(table.prior)):
        if table.prior[k] > 0.0:
            experts += 1
    table.rates[RATE] = math.log(experts) / table.gap[0] if table.gap[0] > 0.0 else math.inf
    reweigh(table)


def learn_splitting(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Charge every expert; before that, AdaHedge-G adds the mixability gap of the slot."""
    if table.adaptive:
        adapt(table)
        table.gap[0] += mixability_gap(share_offloading(table, bin), cost, 1.0 - agreed, table.rates[RATE])
    learn_all(table, bin, agreed, cost, time, now)


def rebuild_splitting(table: ThresholdTable) -> None:
    """Bring into play the threshold above every bin, and that at each bin seen; find the weights again."""
    bins = len(table.seen)
    for bin in range(bins):
        table.prior[bin] = 1.0 if table.seen[bin] > 0.0 else 0.0
    table.prior[bins] = 1.0
    if table.adaptive:
        adapt(table)
    else:
        reweigh(table)


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


class _Splitting(ThresholdPolicy):
    evidence: tuple[str, ...] = ("losses", "seen")
    needs = frozenset({Need.AGREEMENT, Need.COST})

    def _start(self, learning_rate: float) -> None:
        table = self._table((learning_rate, 0.0))
        self.start(table, offloads=offloads_splitting, learns=learn_splitting, rebuilds=rebuild_splitting)
        rebuild_splitting(table)

    def offload_probability(self, bin: int) -> float:
        table = self.table
        after = table._replace(prior=table.prior[:], rates=table.rates[:], weights=table.weights[:])
        after.prior[self._checked_bin(bin)] = 1.0
        if table.adaptive:
            adapt(after)
        return share_offloading_from_losses(after, bin)


class HedgeG(_Splitting):
    """Hedge-G at the rate √(8 ln N / T) of a known horizon.

    >>> policy = HedgeG(horizon=1000, bins=16, offload_cost=0.5)
    >>> policy.learn(policy.decide(7), agreed=False, cost=0.5)
    >>> round(policy.offload_probability(7), 4)
    0.5188
    """

    name = "hedge-g"

    def __init__(
        self,
        horizon: int,
        bins: int = 16,
        offload_cost: float | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        self._set_rates(horizon, partial(full_rates, math.log(self.bins + 1)), learning_rate)
        self._start(self.learning_rate)


class AdaHedgeG(_Splitting):
    """AdaHedge-G: neither a horizon nor a rate to tune.

    >>> policy = AdaHedgeG(bins=16, offload_cost=0.5)
    >>> policy.learn(policy.decide(7), agreed=False, cost=0.5)
    >>> round(policy.offload_probability(7), 4)
    0.8
    """

    name = "adahedge-g"
    evidence = ("losses", "seen", "gap")
    order_matters = ("gap",)

    def __init__(self, bins: int = 16, offload_cost: float | None = None, seed: int = 0) -> None:
        super().__init__(bins, offload_cost, seed)
        self._start(math.inf)


# -- thresholds between confidences -----------------------------------------------------------------------------------


def offloads_by_share(table: ThresholdTable, bin: int, time: int) -> bool:
    """Follow an expert drawn by weight."""
    return uniform(table.seed, time, 0) < share_offloading(table, bin)


def learn_all(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Charge every expert what it would have paid."""
    charge_offloading(table, bin, cost)
    charge_accepting(table, bin, 1.0 - agreed)


class _HIL(ThresholdPolicy):
    _optimal: Callable[[float, float], Rates]  # what the rates are, by complexity and horizon

    def _interval_table(
        self, horizon: int, smallest_gap: float | None, learning_rate: float | None, exploration: float | None = None
    ) -> ThresholdTable:
        """A table for a complexity of ln(1/λ), in which the prior of an expert is the width of its interval."""
        self.smallest_gap = smallest_gap
        amount = math.log(max(2, self.bins))
        if smallest_gap is not None:
            amount = -math.log(real(type(self).__name__, "smallest_gap", smallest_gap, 1e-300, 0.5))
        self._set_rates(horizon, partial(type(self)._optimal, amount), learning_rate, exploration)
        table = self._table(self._rates)
        for k in range(self.bins + 1):
            table.prior[k] = (0.5 if k in (0, self.bins) else 1.0) / self.bins
        reweigh(table)
        return table


class HILF(_HIL):
    """HIL-F: full feedback, learning rate √(8 ln(1/λ) / T).

    >>> policy = HILF(horizon=1000, bins=16, offload_cost=0.5)
    >>> decision = policy.decide(15)
    >>> policy.learn(decision, agreed=True, cost=0.5)   # whether it was offloaded or not
    >>> sorted(need.name for need in policy.needs)
    ['AGREEMENT', 'COST']
    """

    name = "hil-f"
    _optimal = staticmethod(full_rates)
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
        table = self._interval_table(horizon, smallest_gap, learning_rate)
        self.start(table, offloads=offloads_by_share, learns=learn_all, rebuilds=reweigh)


class HILN(_HIL):
    """HIL-N: HIL-F's thresholds with Hedge-HI's exploration.

    >>> policy = HILN(horizon=100_000, bins=16, offload_cost=0.5)
    >>> round(policy.exploration, 4)
    0.024
    """

    name = "hil-n"
    _optimal = staticmethod(optimal_rates)

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
        self.needs = cost_needs(self.offload_cost)
        table = self._interval_table(horizon, smallest_gap, learning_rate, exploration)
        self.start(table, offloads=offloads_hedge, learns=learn_hedge, rebuilds=reweigh)


# -- a threshold for each of two classes ------------------------------------------------------------------------------


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


class H2T2(ThresholdPolicy):
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
    evidence = ("class0_losses", "class1_losses")
    carried = ("class0_weights", "class1_weights", "class0_chances", "class1_chances")

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
        self._set_rates(horizon, fitted_rates, learning_rate, exploration)
        self.needs = cost_needs(self.offload_cost)
        sides = (self._table(self._rates, bins=bins) for bins in (self.bins // 2, self.bins - self.bins // 2))
        table = PairTable(*sides)
        self.start(table, offloads=offloads_pair, learns=learn_pair, rebuilds=reweigh_pair)

    def _experts(self, bin: int) -> tuple[ThresholdTable, int]:
        split = self.bins // 2
        return (self.table.class0, bin) if bin < split else (self.table.class1, bin - split)

    def _column(self, field: str) -> Any:
        side, _, column = field.partition("_")
        return getattr(getattr(self.table, side), column)
