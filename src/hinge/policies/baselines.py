"""The policies that the paper compares with: exponential weights over thresholds (Hedge-HI, HIL-F, Lyapunov-EXP4).

Expert k = 0 … bins offloads iff bin < k. An expert's weight is prior · exp(-learning rate · its loss so far). Losses
are the evidence. Weights are carried along by multiplication, which is cheaper than an exponential for each expert at
each sample; before they get too small they are computed again from the losses, relative to the best expert, so that
they neither overflow nor vanish. Grade B, reconstructed from published abstracts and regret bounds: structure sure,
constants less so.

**Hedge-HI** (MobiHoc 2024; regret bound O(T^(2/3) N^(1/3))). In every slot one expert is drawn by weight and one coin E
with chance ε; offload iff the expert does or E. Every expert then suffers the pseudo-loss

    Γ if it offloads, else 1{E} · e / ε          (e = 1 where local disagrees with remote)

which is unbiased: accepting costs e, and the coin reveals e with chance ε. From the regret bound
ε T + A/η + η T / (2ε):   η = (2A² / T²)^(1/3),   ε = min(1, √(η/2)), for a value of A that is not known to us. That is
one reading (docs/results.md). In the other, which is the default, every offload teaches: 1{offloaded} · e / P(offload)
takes the place of 1{E} · e / ε, at fitted rates (`benchmarks/hedge_presets.py`). The horizon T must be known.
The offload cost Γ is needed in every slot: either it is known, or the policy must be told (`needs`).

**HIL-F** (arXiv 2304.00891; bound √(T ln(1/λ)/2); λ is the smallest gap between two confidences, here 1/bins).
Thresholds θ are uniform on [0, 1]; those between two neighbouring confidences behave alike, so on bins they are
bins + 1 experts whose priors are the widths of those intervals (a bin's confidence is its centre, so the outermost two
are half as wide). It sees the loss of every expert in every slot: Γ if it offloads, else e. That is more than a device
can know; it is a reference, not a competitor.

**Lyapunov-EXP4** (Beytur et al., INFOCOM 2024): the thresholds are the experts of EXP4, and a virtual queue keeps a
budget. Grade C: only that idea is known to us, and every constant is ours. The queue holds what was offloaded beyond
the budget, Q ← max(0, Q + offloaded - budget) after every sample. An offload is charged Q, an accepted sample V e, both
divided by V + Q_max; what an offload reveals is divided by the chance p of that offload. Q / V is thus a price.
"""

import math
from array import array
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from hinge._checks import positive, real, whole
from hinge._columns import Reals, Wholes, real_column, whole_column
from hinge.errors import UnknownName
from hinge.policies.policy import (
    FOREVER,
    KEPT,
    MAX_SIZE,
    Functions,
    Need,
)
from hinge.policies.random import RandomisedPolicy, uniform

_UNLIKELY = 1e-9  # the least chance of an offload that an error is weighed by
_TINY = 1e-100  # below it weights are recomputed: there is room for 200 more orders of magnitude


RATE, EXPLORATION = 0, 1  # the entries of the column `rates`
Rates = tuple[float, float]


class Experts(Protocol):
    """The part of a table that weighs thresholds."""

    @property
    def losses(self) -> Reals: ...

    @property
    def weights(self) -> Reals: ...

    @property
    def prior(self) -> Reals: ...

    @property
    def rates(self) -> Reals: ...


class ThresholdTable(NamedTuple):
    """What a policy over thresholds knows: evidence, what is derived from it, the parameters."""

    losses: Reals  # of each expert
    chances: Reals  # with which each bin was last offloaded (Hedge-HI that learns from every offload)
    weights: Reals  # of each expert, up to a common factor
    prior: Reals  # of each expert
    rates: Reals  # RATE (the learning rate) and EXPLORATION
    offload_cost: float  # NaN: told in every slot
    seed: int


def best_loss(table: Experts) -> float:
    """The least loss of an expert."""
    best = math.inf
    for loss in table.losses:
        best = min(best, loss)
    return best


def weight_of(table: Experts, k: int, best: float) -> float:
    """prior · exp(-learning rate · loss), relative to the best expert."""
    return table.prior[k] * math.exp(-table.rates[RATE] * (table.losses[k] - best))


def reweigh(table: Experts) -> None:
    """Recompute all weights from the losses."""
    best = best_loss(table)
    for k in range(len(table.losses)):
        table.weights[k] = weight_of(table, k, best)


def share_offloading(table: Experts, bin: int) -> float:
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


def share_offloading_from_losses(table: Experts, bin: int) -> float:
    """The same, computed from the losses instead of the carried weights."""
    best = best_loss(table)
    total, offloading = 0.0, 0.0
    for k in range(len(table.losses)):
        weight = weight_of(table, k, best)
        total += weight
        if k > bin:
            offloading += weight
    return offloading / total


def charge_offloading(table: Experts, bin: int, loss: float) -> None:
    """Charge every expert who would have offloaded this bin."""
    charge(table, bin + 1, len(table.losses), loss)


def charge_accepting(table: Experts, bin: int, loss: float) -> None:
    """Charge every expert who would have accepted this bin."""
    charge(table, 0, bin + 1, loss)


def charge(table: Experts, first: int, end: int, loss: float) -> None:
    """Add to the losses of some experts, and multiply their weights accordingly."""
    losses, weights = table.losses, table.weights
    factor = math.exp(-table.rates[RATE] * loss) if loss > 0.0 else 1.0
    for k in range(first, end):
        losses[k] += loss
        weights[k] *= factor


class ThresholdPolicy(RandomisedPolicy):
    """A randomised policy whose experts are thresholds."""

    assumes_monotone = True
    saved: tuple[str, ...] = ("losses", "weights")

    def _set_rates(
        self, horizon: int, rates: Callable[[int], Rates], learning_rate: float | None, exploration: float | None = None
    ) -> None:
        """The rates that follow from a known horizon, unless they are given."""
        owner = type(self).__name__
        self.horizon = whole(owner, "horizon", horizon, 1, FOREVER)
        rate, share = rates(self.horizon)
        self.learning_rate = rate if learning_rate is None else positive(owner, "learning_rate", learning_rate)
        self.exploration = share if exploration is None else real(owner, "exploration", exploration, 0, 1)

    def _table(self) -> ThresholdTable:
        """A table without evidence, whose bins + 1 experts are equally likely."""
        return ThresholdTable(
            losses=real_column(self.bins + 1),
            chances=real_column(self.bins),
            weights=real_column(self.bins + 1, 1.0),
            prior=real_column(self.bins + 1, 1.0),
            rates=array("d", (self.learning_rate, self.exploration)),
            offload_cost=math.nan if self.offload_cost is None else self.offload_cost,
            seed=self.seed,
        )

    def offload_probability(self, bin: int) -> float:
        share = share_offloading_from_losses(self.table, self._checked_bin(bin))
        return self.exploration + (1.0 - self.exploration) * share

    def _ground(self, bin: int) -> str:
        share, exploration = share_offloading_from_losses(self.table, bin), self.exploration
        return f"thresholds above it hold {share:.3g} of the weight, and exploration takes {exploration:.3g}"


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


def learn_hedge(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Charge an error where the coin came up; other slots saw theirs because some expert offloads."""
    if math.isnan(table.offload_cost):
        charge_offloading(table, bin, cost)
    if explores(table, time):
        charge_accepting(table, bin, (1.0 - agreed) / table.rates[EXPLORATION])
    return KEPT


def learn_every_offload(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Charge an error over the chance of seeing it; feedback that is late, over that of the bin's last decision."""
    if math.isnan(table.offload_cost):
        charge_offloading(table, bin, cost)
    charge_accepting(table, bin, (1.0 - agreed) / max(table.chances[bin], _UNLIKELY))
    return KEPT


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
        self.needs = frozenset({Need.COST}) if self.offload_cost is None else frozenset()
        if complexity == FITTED:
            self.saved, learns, rates = ("losses", "weights", "chances"), learn_every_offload, fitted_rates
        else:
            if complexity not in COMPLEXITIES:
                known = ", ".join((FITTED, *COMPLEXITIES))
                raise UnknownName(f"{type(self).__name__}: complexity must be one of {known}, got {complexity!r}")
            learns, rates = learn_hedge, partial(optimal_rates, COMPLEXITIES[complexity](self.bins))
        self._set_rates(horizon, rates, learning_rate, exploration)
        self.table, self.functions = self._table(), Functions(offloads=offloads_hedge, learns=learns)


# -- thresholds between confidences -----------------------------------------------------------------------------------


def offloads_by_share(table: ThresholdTable, bin: int, time: int) -> bool:
    """Follow an expert drawn by weight."""
    return uniform(table.seed, time, 0) < share_offloading(table, bin)


def learn_all(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Charge every expert what it would have paid."""
    charge_offloading(table, bin, cost)
    charge_accepting(table, bin, 1.0 - agreed)
    return KEPT


class HILF(ThresholdPolicy):
    """HIL-F: full feedback, learning rate √(8 ln(1/λ) / T).

    >>> policy = HILF(horizon=1000, bins=16, offload_cost=0.5)
    >>> decision = policy.decide(15)
    >>> _ = policy.learn(decision, agreed=True, cost=0.5)   # whether it was offloaded or not
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
        complexity = math.log(max(2, self.bins))  # ln(1/λ)
        if smallest_gap is not None:
            complexity = -math.log(real(type(self).__name__, "smallest_gap", smallest_gap, 1e-300, 0.5))
        self._set_rates(horizon, partial(full_rates, complexity), learning_rate)
        table = self._table()
        for k in range(self.bins + 1):
            table.prior[k] = (0.5 if k in (0, self.bins) else 1.0) / self.bins
        reweigh(table)
        self.table, self.functions = table, Functions(offloads=offloads_by_share, learns=learn_all)


# -- a budget ---------------------------------------------------------------------------------------------------------


class LyapunovTable(NamedTuple):
    """The experts, as in `ThresholdTable`, the queue, and the chances of offloads whose feedback may still come."""

    losses: Reals
    weights: Reals
    prior: Reals
    rates: Reals
    queue: Reals  # Q
    settled: Wholes  # the sample before which Q was last brought up to date
    chances: Reals  # of the offload at each of the last samples
    budget: float
    tradeoff: float  # V
    scale: float  # V + Q_max
    seed: int


def offloads_within_queue(table: LyapunovTable, bin: int, time: int) -> bool:
    """Follow an expert drawn by weight, or explore; charge those that offload."""
    table.queue[0] = max(0.0, table.queue[0] - table.budget * (time - table.settled[0]))
    table.settled[0] = time
    exploration = table.rates[EXPLORATION]
    chance = exploration + (1.0 - exploration) * share_offloading(table, bin)
    table.chances[time % len(table.chances)] = chance
    charge_offloading(table, bin, table.queue[0] / table.scale)
    return uniform(table.seed, time, 0) < chance


def ask_queued(table: LyapunovTable, bin: int, time: int) -> None:
    """Let the queue grow by the offload."""
    table.queue[0] += 1.0


def learn_queued(table: LyapunovTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Charge the experts that would have accepted; feedback that is too late teaches nothing."""
    chance = table.chances[time % len(table.chances)]
    if now - time < len(table.chances) and chance > 0.0:
        charge_accepting(table, bin, table.tradeoff * (1.0 - agreed) / chance / table.scale)
    return KEPT


class LyapunovEXP4(ThresholdPolicy):
    """Lyapunov-EXP4: the share of offloads comes to a budget in the long run.

    `tradeoff` is V: the larger, the steadier the price, and the more is offloaded beyond the budget before it is found.
    `exploration` is a twentieth of the budget unless given.

    >>> policy = LyapunovEXP4(bins=16, offloads=0.2, tradeoff=50, seed=1)
    >>> for time in range(20_000):
    ...     decision = policy.decide(time % 16)
    ...     if decision.offload:
    ...         _ = policy.learn(decision, agreed=time % 16 > 7)
    >>> round(policy.learned / 20_000, 2)
    0.2
    """

    name = "lyapunov-exp4"
    saved = ("losses", "weights", "queue", "settled", "chances")
    weighs_price = False

    def __init__(
        self,
        bins: int = 16,
        offloads: float = 0.2,
        tradeoff: float = 500.0,
        learning_rate: float = 0.05,
        exploration: float | None = None,
        memory: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, None, seed)
        owner = type(self).__name__
        self.offloads = real(owner, "offloads", offloads, 0, 1)
        self.tradeoff = positive(owner, "tradeoff", tradeoff)
        self.learning_rate = positive(owner, "learning_rate", learning_rate)
        share = self.offloads / 20.0 if exploration is None else exploration
        self.exploration = real(owner, "exploration", share, 0, 1)
        if self.exploration > self.offloads:
            raise ValueError(f"{owner}: exploration must be within the budget of {offloads:g}, got {exploration!r}")
        self.memory = whole(owner, "memory", memory, 1, MAX_SIZE)
        experts = self._table()
        self.table = LyapunovTable(
            losses=experts.losses,
            weights=experts.weights,
            prior=experts.prior,
            rates=experts.rates,
            queue=real_column(1),
            settled=whole_column(1),
            chances=real_column(self.memory, 1.0),
            budget=self.offloads,
            tradeoff=self.tradeoff,
            scale=2.0 * self.tradeoff,
            seed=self.seed,
        )
        self.functions = Functions(offloads=offloads_within_queue, learns=learn_queued, asks=ask_queued)
