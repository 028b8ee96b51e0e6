"""Lyapunov-EXP4 (Beytur et al., INFOCOM 2024): exponential weights under a budget, which a virtual queue keeps.

Grade C, a reconstruction: only the idea is known to us, thresholds as the experts of EXP4 and a virtual queue for the
budget; every constant is ours, and a parameter. The defaults lie between the best of a coarse grid, tried on the traces
cifar10-vgg16 and fashion. The queue holds what was spent beyond the budget,

    Q ← max(0, Q + spent - budget)          after every sample

and an offload that spends c is charged Q c, an accepted sample V e (e = 1 where local disagrees with remote; the remote
is taken to be right, as everywhere in Hinge), both divided by V + Q_max c. Q / V is thus a price, as λ is in `budgets`;
what else an offload costs is not weighed. Where c is known, an expert who offloads is charged at once; what an offload
reveals is divided by the chance p ≥ exploration of that offload:

    Q c if it offloads, else 1{offloaded} · V e / p

which is unbiased. The chances of the last `memory` samples are kept; feedback that comes later than that teaches
nothing.
"""

import math
from typing import Annotated, Any, NamedTuple

from hinge._checks import positive, real, whole
from hinge.errors import InvalidState
from hinge.policies.hedge import (
    EXPLORATION,
    ThresholdPolicy,
    ThresholdTable,
    charge_accepting,
    charge_offloading,
    reweigh,
    share_offloading,
)
from hinge.policies.policy import MOST_SIZE, Reals, Wholes, real_column
from hinge.policies.random import uniform


class LyapunovTable(NamedTuple):
    """The experts, the queue, and the chances of offloads whose feedback may still come."""

    experts: ThresholdTable
    queue: Annotated[Reals, 1]  # Q
    settled: Annotated[Wholes, 1]  # the sample before which Q was last brought up to date
    chances: Reals  # of the offload at each of the last samples
    spends: float  # what an offload spends when it is decided; NaN: what it turns out to cost
    budget: float
    tradeoff: float  # V
    scale: float  # V + Q_max c


def offloads_within_queue(table: LyapunovTable, bin: int, time: int) -> bool:
    """Follow an expert drawn by weight, or explore. Where it is known what an offload spends, it is charged at once."""
    table.queue[0] = max(0.0, table.queue[0] - table.budget * (time - table.settled[0]))  # it falls by the budget
    table.settled[0] = time
    exploration = table.experts.rates[EXPLORATION]
    chance = exploration + (1.0 - exploration) * share_offloading(table.experts, bin)
    table.chances[time % len(table.chances)] = chance
    if not math.isnan(table.spends):
        charge_offloading(table.experts, bin, table.queue[0] * table.spends / table.scale)
    return uniform(table.experts.seed, time, 0) < chance


def note_spent(table: LyapunovTable, bin: int, time: int) -> None:
    """The queue grows by what the offload spends, if that is known."""
    if not math.isnan(table.spends):
        table.queue[0] += table.spends


def learn_queued(table: LyapunovTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Charge the experts who would have accepted; those who offload too, if what an offload spends was not known."""
    chance = table.chances[time % len(table.chances)]
    if now - time < len(table.chances) and chance > 0.0:
        charge_accepting(table.experts, bin, table.tradeoff * (1.0 - agreed) / chance / table.scale)
        if math.isnan(table.spends):
            charge_offloading(table.experts, bin, table.queue[0] * cost / chance / table.scale)
    if math.isnan(table.spends):
        table.queue[0] += cost


def rebuild_experts(table: LyapunovTable) -> None:
    """Find the weights of the experts again."""
    reweigh(table.experts)


class LyapunovEXP4(ThresholdPolicy):
    """Lyapunov-EXP4: the share of offloads, or what they cost a sample, comes to a budget in the long run.

    The budget is `offloads` a sample (0.2 unless told otherwise) or a mean `cost`. `tradeoff` is V: the larger, the
    steadier the price, and the more is spent beyond the budget before it is found: up to V / c, where an offload spends
    c; by default 500 c². `exploration` is a twentieth of the budget unless given, and must be below
    it. `queue_limit` is Q_max, by default V / c, at which an offload is charged as much as a wrong answer; it only sets
    the scale of losses.

    >>> policy = LyapunovEXP4(bins=16, offloads=0.2, tradeoff=50, seed=1)
    >>> for time in range(20_000):
    ...     decision = policy.decide(time % 16)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=time % 16 > 7)
    >>> round(policy.learned / 20_000, 2)
    0.2
    """

    name = "lyapunov-exp4"
    keeps_budget = True
    carried = ("weights", "queue", "settled", "chances")
    spent = ("queue", "settled")
    merges_on = ("bins", "offload_cost", "offloads", "cost", "tradeoff", "queue_limit")

    def __init__(
        self,
        bins: int = 16,
        offload_cost: float | None = None,
        offloads: float | None = None,
        cost: float | None = None,
        tradeoff: float | None = None,
        learning_rate: float = 0.05,
        exploration: float | None = None,
        queue_limit: float | None = None,
        memory: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(bins, offload_cost, seed)
        owner = type(self).__name__
        if offloads is not None and cost is not None:
            raise TypeError(f"{owner}: offloads or cost must be given, and not both, got {offloads!r} and {cost!r}")
        self.cost = None if cost is None else real(owner, "cost", cost, 0, 1)
        share = real(owner, "offloads", 0.2 if offloads is None else offloads, 0, 1)
        self.offloads = share if self.cost is None else None
        budget = share if self.cost is None else self.cost
        self.learning_rate = positive(owner, "learning_rate", learning_rate)
        self.exploration = budget / 20.0 if exploration is None else real(owner, "exploration", exploration, 0, 1)
        if self.exploration > budget:
            raise ValueError(f"{owner}: exploration must be within the budget of {budget:g}, got {exploration!r}")
        self.memory = whole(owner, "memory", memory, 1, MOST_SIZE)
        spends = 1.0 if self.cost is None else math.nan if self.offload_cost is None else self.offload_cost
        most = 1.0 if math.isnan(spends) else spends
        self.tradeoff = max(1.0, 500.0 * most * most) if tradeoff is None else positive(owner, "tradeoff", tradeoff)
        usual = self.tradeoff / most if most > 0.0 else self.tradeoff
        self.queue_limit = usual if queue_limit is None else real(owner, "queue_limit", queue_limit, 0)
        table = self.blank(
            LyapunovTable,
            experts=self._table(),
            chances=real_column(self.memory, 1.0),
            spends=spends,
            budget=budget,
            scale=self.tradeoff + self.queue_limit * most,
        )
        self.weighs_cost = self.cost is not None
        self.order_matters = ("losses",) if math.isnan(spends) else ()  # the queue is that of the time of the feedback
        self.start(
            table, offloads=offloads_within_queue, learns=learn_queued, rebuilds=rebuild_experts, notes=note_spent
        )

    @property
    def queue(self) -> float:
        """Q: what was spent beyond the budget, before the last sample."""
        return float(self.table.queue[0])

    def _ground(self, bin: int) -> str:
        return f"{super()._ground(bin)}, and {self.queue:.3g} is spent beyond the budget"

    def _column(self, field: str) -> Any:
        return getattr(self.table if hasattr(self.table, field) else self.table.experts, field)

    def _refresh(self) -> None:
        super()._refresh()
        if self.table.settled[0] > self.time:
            raise InvalidState(f"{type(self).__name__}: state has a queue from the future")
        if max(self.table.chances) > 1.0:
            raise InvalidState(f"{type(self).__name__}: state has {max(self.table.chances)} in 'chances'")
