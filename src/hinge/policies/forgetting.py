"""HI-LCB and Isotonic for a world that changes: with discounted evidence, or with a sliding window. Grade A: derived
here. `ageing` says how evidence ages, and `alarm` how a change is noticed.

*Audit*: where it is due, the next sample that would be accepted is offloaded all the same, whichever bin it lies in;
from one audit to the next are 1/audit samples at least, whatever becomes of them.
"""

import math
from array import array
from collections.abc import Sequence
from typing import ClassVar

from hinge.arguments import positive, real, whole
from hinge.errors import InvalidState
from hinge.policies.ageing import (
    PANES,
    AgeingTable,
    fade,
    good_until,
    holds,
    left_after,
    licence_end,
    roll,
    shift,
    view,
    worth_nothing,
)
from hinge.policies.alarm import watch
from hinge.policies.columns import Reals, real_column, whole_column
from hinge.policies.expiry import FOREVER, ExpiryPolicy, drop_all, drop_filled, fill
from hinge.policies.isotonic import checked_stakes, on_scale
from hinge.policies.saving import Evidence, State

MEMORY = 50_000
AUDIT = 0.001


def offloads_ageing(table: AgeingTable, bin: int, time: int) -> bool:
    """Offload without a licence, or where an audit is due."""
    if time < table.expiry[bin]:
        return False
    if not holds(table, bin, time):
        return True
    free = worth_nothing(table, bin, time)
    if time >= table.due[0] and not free:
        return True
    if table.expiry[bin] == 0:
        fill(table, bin, 0)
    until = good_until(table, bin, time)
    table.expiry[bin] = until if free else min(until, table.due[0])
    return False


def note_audit(table: AgeingTable, bin: int, time: int) -> None:
    """An offload of a licensed bin is an audit; licences found before end at it, and are found again."""
    if time >= table.due[0] and holds(table, bin, time) and not worth_nothing(table, bin, time):
        table.due[0] = time + table.interval
        drop_found(table)


def drop_found(table: AgeingTable) -> None:
    """Forget the expiries, and the fit, found since the last offload."""
    drop_filled(table)
    table.fitted[0] = -1.0


def learn_ageing(table: AgeingTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Bring the evidence to the present, look for a change, and count the offload at its age.

    What comes too late says nothing about the present, and what was decided before an alarm nothing about the time
    since.
    """
    agreed = on_scale(table, bin, agreed)
    if table.pane == 0:
        fade(table, now)
    else:
        roll(table, now)
    if now - time <= table.memory // PANES:
        watch(table, bin, agreed, cost, now)
    if time > max(table.forgotten[0], table.forgotten[1]):
        count_aged(table, bin, agreed, cost, time, now)
    drop_found(table)


def count_aged(table: AgeingTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Count an offload as what it is worth at its age."""
    if table.pane == 0:
        left = left_after(table, now - time)
        add(table.offloads, table.agreements, table.costs, bin, 0, agreed, cost, left)
        return
    age = table.clock[0] - time // table.pane
    if age < PANES:
        at, costs_at = age * len(table.expiry) + bin, age * len(table.costs)
        add(table.pane_offloads, table.pane_agreements, table.pane_costs, at, costs_at, agreed, cost, 1.0)
    table.viewed[0] = -1


def add(
    offloads: Reals, agreements: Reals, costs: Reals, at: int, costs_at: int, agreed: float, cost: float, weight: float
) -> None:
    """Count an offload with a weight."""
    offloads[at] += weight
    agreements[at] += weight * agreed
    if len(costs) > 0:
        costs[costs_at] += weight
        costs[costs_at + 1] += weight * cost
        costs[costs_at + 2] += weight * cost * cost


def rebuild_ageing(table: AgeingTable) -> None:
    """Forget all that is derived from the evidence."""
    drop_all(table)
    table.fitted[0], table.viewed[0] = -1.0, -1


class Forgetting(ExpiryPolicy):
    """What the four policies share: a memory, audits, an alarm."""

    carried: tuple[str, ...] = ("clock", "due", "forgotten", "alarms", "alarm")
    merges_on: tuple[str, ...] = ("bins", "memory", "stakes")
    assumes_monotone = True
    _windowed: ClassVar[bool]
    _isotonic: ClassVar[bool]

    def __init__(
        self,
        bins: int = 16,
        alpha: float = 0.52,
        offload_cost: float | None = None,
        memory: int = MEMORY,
        audit: float = AUDIT,
        stakes: Sequence[float] | None = None,
    ) -> None:
        super().__init__(bins, offload_cost)
        owner = type(self).__name__
        self.alpha = positive(owner, "alpha", alpha)
        self.memory = whole(owner, "memory", memory, PANES, FOREVER)
        self.audit = real(owner, "audit", audit, 0, 1)
        self.stakes = checked_stakes(owner, stakes, self.bins)
        self._start(self._table(), offloads_ageing, learn_ageing, rebuild_ageing, note_audit)

    def _table(self) -> AgeingTable:
        costs, panes = 0 if self.offload_cost is not None else 3, PANES if self._windowed else 0
        interval = math.ceil(min(1.0 / self.audit, FOREVER)) if self.audit else 0
        return AgeingTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            costs=real_column(costs),
            pane_offloads=real_column(panes * self.bins),
            pane_agreements=real_column(panes * self.bins),
            pane_costs=real_column(panes * costs),
            clock=whole_column(1),
            viewed=whole_column(1, -1),
            due=whole_column(1, interval or FOREVER),
            forgotten=whole_column(2),
            alarms=whole_column(2),
            alarm=real_column(4),
            expiry=whole_column(self.bins),
            filled=whole_column(self.bins + 1),
            first=whole_column(self.bins),
            weight=real_column(self.bins),
            total=real_column(self.bins),
            evidence=real_column(self.bins),
            support=real_column(self.bins),
            fitted=real_column(2, -1.0),
            found=whole_column(1),
            price=real_column(1, self.offload_cost or 0.0),
            stakes=array("d", self.stakes or [1.0]),
            alpha=self.alpha,
            memory=self.memory,
            pane=-(-self.memory // PANES) if self._windowed else 0,
            interval=interval,
            isotonic=self._isotonic,
        )

    def expiry(self, bin: int) -> int:
        time = self.time + 1
        if self._offloads(self.table, self._checked_bin(bin), time):
            return 0
        end = licence_end(self.table, bin, time)
        return int(end if worth_nothing(self.table, bin, time) else min(end, self.table.due[0]))

    @property
    def alarms(self) -> dict[str, int]:
        """How often all evidence of agreement was dropped, and how often all evidence of costs."""
        agreement, costs = self.table.alarms
        return {"agreement": int(agreement), "cost": int(costs)}

    def _alarms(self) -> list[int]:
        return list(self.table.alarms)

    def _left(self, snapshot: State) -> Evidence:
        """What alarms since have not dropped."""
        dropped = [before != now for before, now in zip(snapshot["alarms"], self.table.alarms, strict=True)]
        return {
            field: [0.0] * len(values) if dropped[field.endswith("costs")] else values
            for field, values in super()._left(snapshot).items()
        }

    def _refresh(self) -> None:
        super()._refresh()
        if self._as_of() > self.time:
            raise InvalidState(f"{type(self).__name__}: state has evidence from the future")
        if any(len(snapshot["alarms"]) != 2 for snapshot in self._merged.values()):
            raise InvalidState(f"{type(self).__name__}: state has merged evidence without its two counts of alarms")

    def _counts(self, bin: int) -> tuple[float, float]:
        left = view(self.table, self.time)
        return self.table.offloads[bin] * left, self.table.agreements[bin] * left

    def _sentence(self, bin: int, offloads: float, agreements: float, left: int | None) -> str:
        seen = f"{agreements:.1f} of {offloads:.1f} recent offloads agreed" if offloads >= 0.05 else "nothing recent"
        if left == 0:
            return f"Bin {bin} is offloaded: {seen}; {self._lacking(bin)}."
        price = f"evidence fades over {self.memory} samples"
        if self.audit:
            price += f", and 1 sample in {self.table.interval} may be audited"
            if self.offload_cost:
                price += f", at {self.audit * self.offload_cost:.2g} a sample at most"
        when = "never checked again" if left is None else f"checked again in {left} sample{'s' * (left != 1)}"
        return f"Bin {bin} is accepted: {seen}; {when}, as {price}."

    def _lacking(self, bin: int) -> str:
        licensed = holds(self.table, bin, self.time + 1)
        return "an audit is due" if licensed else super()._lacking(bin)


class Discounted(Forgetting):
    """Evidence that counts (1 - 1/memory)^age."""

    evidence: tuple[str, ...] = ("offloads", "agreements", "costs")
    _windowed = False

    def _as_of(self) -> int:
        return int(self.table.clock[0])

    def _catch_up(self) -> int:
        fade(self.table, self.time)
        return self.time

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        left = left_after(self.table, self.time - since)
        return {field: [value * left for value in values] for field, values in evidence.items()}


class SlidingWindow(Forgetting):
    """Evidence that counts until it is as old as the memory is long."""

    evidence: tuple[str, ...] = ("pane_offloads", "pane_agreements", "pane_costs")
    _windowed = True

    def _as_of(self) -> int:
        return int(self.table.clock[0] * self.table.pane)

    def _catch_up(self) -> int:
        roll(self.table, self.time)
        return self.time

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        panes = self.time // self.table.pane - since // self.table.pane
        aged = {field: array("d", values) for field, values in evidence.items()}
        for column in aged.values():
            shift(column, panes)
        return {field: list(column) for field, column in aged.items()}


class DiscountedIsotonic(Discounted):
    """Isotonic with discounted evidence: the policy for a world that changes.

    Evidence fades over `memory` samples, and licences end with it; at most a share `audit` of all samples is offloaded
    to check on a licence; an alarm drops all that offloads contradict. That is the price.

    >>> policy = DiscountedIsotonic(bins=16, offload_cost=0.5, memory=1000, audit=0.01)
    >>> for _ in range(40):
    ...     decision = policy.decide(12)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=True)
    >>> print(policy.explain(12))
    Bin 12 is accepted: 4.8 of 4.8 recent offloads agreed; checked again in 19 samples, as evidence fades over 1000
    samples, and 1 sample in 100 may be audited, at 0.005 a sample at most.
    """

    name = "discounted-isotonic"
    _isotonic = True


class DiscountedHILCB(Discounted):
    """HI-LCB with discounted evidence, and without the paper's forced offload of bins that were never seen.

    >>> DiscountedHILCB(bins=16, offload_cost=0.5, memory=5000).decide(3).offload
    True
    """

    name = "discounted-hi-lcb"
    _isotonic = False


class SlidingWindowIsotonic(SlidingWindow):
    """Isotonic on the offloads of the last `memory` samples.

    >>> SlidingWindowIsotonic(bins=16, offload_cost=0.5, memory=5000).decide(3).offload
    True
    """

    name = "sliding-window-isotonic"
    _isotonic = True


class SlidingWindowHILCB(SlidingWindow):
    """HI-LCB on the offloads of the last `memory` samples, without its forced offload of bins that were never seen.

    >>> SlidingWindowHILCB(bins=16, offload_cost=0.5, memory=5000).decide(3).offload
    True
    """

    name = "sliding-window-hi-lcb"
    _isotonic = False
