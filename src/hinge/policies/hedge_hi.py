"""Hedge-HI (MobiHoc 2024) and a version with restarts: exponential weights with an exploration coin.

Grade B, reconstructed from the published abstract and its regret bound O(T^(2/3) N^(1/3)); structure sure, constants
less so. In every slot one expert is drawn by weight and one coin E with chance ε; offload iff the expert does or E.
Every expert then suffers the pseudo-loss

    Γ if it offloads, else 1{E} · e / ε          (e = 1 where local disagrees with remote)

which is unbiased: accepting costs e, and the coin reveals e with chance ε. From the regret bound
ε T + A/η + η T / (2ε):   η = (2A² / T²)^(1/3),   ε = min(1, √(η/2)). The horizon T must be known in advance. The
value of A is not known to us; of three that suggest themselves, N ln 2 comes nearest to Tables I and II of the paper.
The offload cost Γ is needed in every slot: either it is known, or the driver tells it (`needs`).
"""

import math
from collections.abc import Callable

from hinge.arguments import whole
from hinge.errors import UnknownName
from hinge.policies.base import Need
from hinge.policies.chance import uniform
from hinge.policies.thresholds import (
    ThresholdPolicy,
    ThresholdTable,
    charge_accepting,
    charge_offloading,
    reweigh,
    share_offloading,
    threshold_table,
)

COMPLEXITIES: dict[str, Callable[[int], float]] = {  # A in the regret bound: how much there is to learn
    "N": lambda bins: float(bins),
    "N ln 2": lambda bins: bins * math.log(2.0),
    "ln(N+1)": lambda bins: math.log(bins + 1.0),
}


def explores(table: ThresholdTable, time: int) -> bool:
    """The exploration coin of a slot; it can be looked at again when the feedback comes."""
    return uniform(table.seed, time, 1) < table.rates[1]


def offloads_hedge(table: ThresholdTable, bin: int, time: int) -> bool:
    """Draw an expert and the coin. A known cost is charged at once; told costs come with the feedback."""
    offload = uniform(table.seed, time, 0) < share_offloading(table, bin) or explores(table, time)
    if not math.isnan(table.offload_cost):
        charge_offloading(table, bin, table.offload_cost)
    return offload


def learn_hedge(table: ThresholdTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Only slots whose coin came up may charge an error: the others saw it because some expert offloads."""
    if math.isnan(table.offload_cost):
        charge_offloading(table, bin, cost)
    if explores(table, time):
        charge_accepting(table, bin, (1.0 - agreed) / table.rates[1])


def optimal_rates(complexity: float, horizon: float) -> tuple[float, float]:
    """η and ε that minimise ε T + A/η + η T / (2ε).

    >>> learning_rate, exploration = optimal_rates(16.0, 100_000)
    >>> round(learning_rate, 6), round(exploration, 6)
    (0.003713, 0.043089)
    """
    learning_rate = (2.0 * complexity**2 / horizon**2) ** (1.0 / 3.0)
    return learning_rate, min(1.0, math.sqrt(learning_rate / 2.0))


class HedgeHI(ThresholdPolicy):
    """Hedge-HI for a known horizon.

    `complexity` names the preset for A; `learning_rate` and `exploration` override what follows from it.

    >>> policy = HedgeHI(horizon=1000, bins=16, offload_cost=0.5, seed=1)
    >>> sum(policy.decide(3).offload for _ in range(100))
    49
    """

    name = "hedge-hi"

    def __init__(
        self,
        horizon: int,
        bins: int = 16,
        offload_cost: float | None = None,
        complexity: str = "N ln 2",
        learning_rate: float | None = None,
        exploration: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        self.complexity = complexity
        amount = complexity_of(type(self).__name__, complexity, self.bins)
        horizon = whole(type(self).__name__, "horizon", horizon, 1)
        self._rates(horizon, optimal_rates(amount, horizon), learning_rate, exploration)
        self.needs = cost_needs(self.offload_cost)
        self._offloads, self._learns = offloads_hedge, learn_hedge


def complexity_of(owner: str, name: str, bins: int) -> float:
    """The value of a preset for A."""
    if name not in COMPLEXITIES:
        raise UnknownName(f"{owner}: complexity must be one of {', '.join(COMPLEXITIES)}, got {name!r}")
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
        table.rates[0], table.rates[1] = optimal_rates(table.complexity, length)
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
        self.first_epoch = whole(owner, "first_epoch", first_epoch, 1)
        self.needs = cost_needs(self.offload_cost)
        amount = complexity_of(owner, complexity, self.bins)
        rates = optimal_rates(amount, self.first_epoch)
        self.table = threshold_table(self.bins, self.offload_cost, self.seed, *rates, amount, self.first_epoch)
        self._offloads, self._learns = offloads_restart, learn_restart

    def _rebuild(self) -> None:
        length = epoch_of(self.first_epoch, max(1, self.time))[1]
        self.table.rates[0], self.table.rates[1] = optimal_rates(self.table.complexity, length)
        reweigh(self.table)

    def offload_probability(self, bin: int) -> float:
        start, length = epoch_of(self.first_epoch, self.time + 1)
        if start != self.time + 1:
            return super().offload_probability(bin)
        exploration = optimal_rates(self.table.complexity, length)[1]
        return exploration + (1.0 - exploration) * (self.bins - self._checked_bin(bin)) / (self.bins + 1)
