"""Policies for streams that change: HI-LCB and Isotonic with evidence that ages, audits and an alarm. Grade A: derived
here.

**Ageing.** While a policy accepts it learns nothing, so that after a change its licences would be wrong for as long as
they last. Evidence that ages while the clock runs makes licences end by themselves: an offload counts
(1 - 1/memory)^age, and the time in the doubt is `memory` at most, not `t`. Evidence only fades and doubt only grows, so
that they cross at most once, which is found by bisection, a sixteenth of the memory at a time.

**Audits.** When an audit is due, the next sample that would be accepted is offloaded all the same, whichever bin it
lies in; from one audit to the next are 1/audit samples at least, whether feedback arrives or not.

**The alarm** is Page's test (Biometrika 1954) on what offloads reveal. It sums the log-likelihood ratio of "bins on
this side of break-even have come to it" against "they agree as they did", and starts again from 0 whenever that is
negative. By Lorden's inequality a sum that exceeds log(10 memory) does so by chance once in 10 memories of offloads at
most if what was believed was right; it is an estimate, so that this is a guide and no guarantee (the tests count). Then
all evidence of agreement, and every licence with it, is dropped at once. Learned costs are watched in the same way, for
a quarter less or more.
"""

import math
from array import array
from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

from hinge._checks import positive, real, whole
from hinge.errors import InvalidState
from hinge.policies.expiry import FOREVER, ExpiryPolicy, drop_all, drop_filled, fill
from hinge.policies.isotonic import (
    break_even,
    checked_stakes,
    doubt,
    first_of_class,
    fit_bin,
    lowest_cost,
    on_scale,
    with_others,
)
from hinge.policies.policy import (
    COUNT,
    SQUARES,
    SUM,
    Decision,
    Evidence,
    Reals,
    State,
    Wholes,
    real_column,
    whole_column,
)

MEMORY = 50_000
AUDIT = 0.001
PANES = 16  # parts of the memory: in each the end of a licence is looked for, and feedback older than one is late
LASTS = 64  # memories after which no evidence is left: a licence that still holds needs none
EDGE = 0.01  # means nearer to 0 or 1 than this count as this
SURE = 10.0  # no false alarm in so many memories, at least

FELL, ROSE, CHEAPER, DEARER = 0, 1, 2, 3  # Page's sums: what is suspected of agreement, and of the cost
AGREEMENT, COST = 0, 1  # what an alarm drops
BREAK_EVEN, LOWEST = 0, 1  # for which q, and from which bin on, the isotonic fit was last made


class AgeingTable(NamedTuple):
    """Evidence, what is derived from it, and the parameters."""

    offloads: Reals  # n_i as of `clock`
    agreements: Reals
    costs: Reals
    clock: Annotated[Wholes, 1]  # the time that the evidence is as of
    due: Wholes  # the time from which the next sample that would be accepted is audited
    forgotten: Annotated[Wholes, 2]  # when an alarm last dropped the evidence, of AGREEMENT and of COST
    alarms: Annotated[Wholes, 2]  # how often
    alarm: Annotated[Reals, 4]  # Page's sums: FELL, ROSE, CHEAPER, DEARER
    expiry: Wholes
    filled: Wholes
    first: Wholes  # the isotonic fit, as in IsotonicTable
    weight: Reals
    total: Reals
    evidence: Reals
    support: Reals
    fitted: Reals  # BREAK_EVEN and LOWEST of the fit
    found: Annotated[Wholes, 1]  # up to which bin it was made
    price: Reals
    stakes: Reals
    alpha: float
    memory: int
    interval: int  # samples from one audit to the next; 0: never
    isotonic: bool


# -- ageing -----------------------------------------------------------------------------------------------------------


def left_after(table: AgeingTable, samples: int) -> float:
    """The share of discounted evidence that is left after a number of samples."""
    return math.exp(samples * math.log1p(-1.0 / table.memory))


def fade(table: AgeingTable, now: int) -> None:
    """Bring the evidence to the present."""
    left = left_after(table, now - table.clock[0])
    for i in range(len(table.offloads)):
        table.offloads[i] *= left
        table.agreements[i] *= left
    for i in range(len(table.costs)):
        table.costs[i] *= left
    table.clock[0], table.fitted[BREAK_EVEN] = now, -1.0


# -- evidence ---------------------------------------------------------------------------------------------------------


def weigh(table: AgeingTable, bin: int, q: float) -> None:
    """Find evidence and support of the bins up to this one, unless they were found since the last offload."""
    start = first_of_class(table, bin)
    if table.fitted[BREAK_EVEN] != q or table.fitted[LOWEST] != start:
        table.fitted[BREAK_EVEN], table.fitted[LOWEST], table.found[0] = q, start, start
    for i in range(table.found[0], bin + 1):
        if table.isotonic:
            fit_bin(table, i, table.offloads[i], table.agreements[i], q)
        else:
            keep_strongest(table, i, start, q)
    table.found[0] = max(table.found[0], bin + 1)


def keep_strongest(table: AgeingTable, i: int, start: int, q: float) -> None:
    """HI-LCB's evidence, the largest 2 n ((f - q)⁺)² of the bins up to this one."""
    best, offloads = 0.0 if i == start else table.evidence[i - 1], table.offloads[i]
    surplus = table.agreements[i] - q * offloads
    if surplus > 0.0 and offloads > 0.0:
        best = max(best, 2.0 * surplus * surplus / offloads)
    table.evidence[i] = best
    table.support[i] = 1.0 if best > 0.0 else 0.0


def cost_at(table: AgeingTable, left: float, reach: int) -> float:
    """The offload cost if it is known, else its lower bound from the costs that are left."""
    if len(table.costs) == 0:
        return table.price[0]
    offloads = table.costs[COUNT] * left
    if offloads <= 0.0:
        return -1.0
    mean = table.costs[SUM] / table.costs[COUNT]
    if table.isotonic:
        variance = max(0.0, table.costs[SQUARES] / table.costs[COUNT] - mean * mean)
        return table.price[0] + lowest_cost(mean, variance, offloads, reach, table.alpha)
    return table.price[0] + mean - math.sqrt(table.alpha * math.log(reach) / offloads)


def worth_nothing(table: AgeingTable, bin: int, time: int) -> bool:
    """Whether a wrong answer in this bin costs no more than an offload, so that there is nothing to check."""
    left = left_after(table, time - table.clock[0])
    return break_even(table, bin, cost_at(table, left, min(time, table.memory))) <= 0.0


def holds(table: AgeingTable, bin: int, time: int) -> bool:
    """Whether the evidence that is left at a time, now or later, licenses a bin."""
    left = left_after(table, time - table.clock[0])
    reach = min(time, table.memory)
    q = break_even(table, bin, cost_at(table, left, reach))
    if q <= 0.0 or q >= 1.0:
        return q <= 0.0
    weigh(table, bin, q)
    support = table.support[bin] * left
    if support <= 0.0:
        return False
    if table.isotonic:
        return table.evidence[bin] * left > doubt(reach, support, table.alpha)
    return table.evidence[bin] * left > 2.0 * table.alpha * math.log(reach)


def good_until(table: AgeingTable, bin: int, time: int) -> int:
    """When the licence of a bin, good at `time`, ends or must be checked again: in a sixteenth of the memory."""
    pane = table.memory // PANES
    last = time - time % pane + pane - 1
    if holds(table, bin, last):
        return last + 1
    good, bad = time, last
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(table, bin, middle):
            good = middle
        else:
            bad = middle
    return bad


def licence_end(table: AgeingTable, bin: int, time: int) -> int:
    """The first time at which the licence of a bin, good at `time`, gives way if nothing is learned."""
    end = time + LASTS * table.memory
    while time < end:
        time = good_until(table, bin, time)
        if not holds(table, bin, time):
            return time
    return FOREVER


# -- the alarm --------------------------------------------------------------------------------------------------------


def watch(table: AgeingTable, bin: int, agreed: float, cost: float, now: int) -> None:
    """Page's test: has the agreement of a bin come to break-even, from above or from below; has the mean cost moved?"""
    price = table.price[0]
    if len(table.costs) > 0:
        if table.costs[COUNT] <= 0.0:
            return
        mean = table.costs[SUM] / table.costs[COUNT]
        cheaper = mean > EDGE and doubts(table, CHEAPER, cost, mean, 0.75 * mean)
        dearer = mean < 1.0 - EDGE and doubts(table, DEARER, cost, mean, 0.75 * mean + 0.25)
        if cheaper or dearer:
            forget(table, COST, now)
            return
        price += mean
    q = break_even(table, bin, price)
    if q <= 0.0 or q >= 1.0:
        return
    weigh(table, bin, q)
    seen, agreements = table.offloads[bin], table.agreements[bin]
    if table.isotonic:
        seen, agreements = table.weight[bin], table.total[bin]
    believed = (agreements + 1.0) / (seen + 2.0)
    if doubts(table, FELL if believed > q else ROSE, agreed, believed, q):
        forget(table, AGREEMENT, now)


def doubts(table: AgeingTable, alarm: int, seen: float, believed: float, other: float) -> bool:
    """Add what was seen to one of Page's sums: is another mean now the likelier one?"""
    # A belief of 0 or 1 would be refuted by a single sample; nearer to the other mean, it takes a few.
    believed = min(max(believed, min(EDGE, other / 2.0)), max(1.0 - EDGE, (1.0 + other) / 2.0))
    ratio = seen * math.log(other / believed) + (1.0 - seen) * math.log((1.0 - other) / (1.0 - believed))
    table.alarm[alarm] = max(0.0, table.alarm[alarm] + ratio)
    return bool(table.alarm[alarm] > math.log(SURE * table.memory))


def forget(table: AgeingTable, what: int, now: int) -> None:
    """Drop all evidence of AGREEMENT, or of COST."""
    if what == AGREEMENT:
        clear(table.offloads)
        clear(table.agreements)
        table.alarm[FELL] = table.alarm[ROSE] = 0.0
    else:
        clear(table.costs)
        table.alarm[CHEAPER] = table.alarm[DEARER] = 0.0
    table.forgotten[what] = now
    table.alarms[what] += 1


def clear(column: Reals) -> None:
    """Set a column to 0."""
    for i in range(len(column)):
        column[i] = 0.0


# -- deciding and learning --------------------------------------------------------------------------------------------


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
    table.fitted[BREAK_EVEN] = -1.0


def learn_ageing(table: AgeingTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Bring the evidence to the present, look for a change, and count the offload at its age.

    What comes too late says nothing about the present, and what was decided before an alarm nothing about the time
    since.
    """
    agreed = on_scale(table, bin, agreed)
    fade(table, now)
    if now - time <= table.memory // PANES:
        watch(table, bin, agreed, cost, now)
    if time > max(table.forgotten[AGREEMENT], table.forgotten[COST]):
        count_aged(table, bin, agreed, cost, time, now)
    drop_found(table)


def count_aged(table: AgeingTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Count an offload as what it is worth at its age."""
    weight, costs = left_after(table, now - time), table.costs
    table.offloads[bin] += weight
    table.agreements[bin] += weight * agreed
    if len(costs) > 0:
        costs[COUNT] += weight
        costs[SUM] += weight * cost
        costs[SQUARES] += weight * cost * cost


def rebuild_ageing(table: AgeingTable) -> None:
    """Forget all that is derived from the evidence."""
    drop_all(table)
    table.fitted[BREAK_EVEN] = -1.0


class Forgetting(ExpiryPolicy):
    """A memory, audits and an alarm, with the bounds of HI-LCB or those of Isotonic."""

    evidence = ("offloads", "agreements", "costs")
    carried: tuple[str, ...] = ("clock", "due", "forgotten", "alarms", "alarm")
    merges_on: tuple[str, ...] = ("bins", "memory", "stakes")
    assumes_monotone = True
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
        interval = math.ceil(min(1.0 / self.audit, FOREVER)) if self.audit else 0
        table = self.blank(
            AgeingTable,
            due=whole_column(1, interval or FOREVER),
            filled=whole_column(self.bins + 1),
            fitted=real_column(2, -1.0),
            stakes=array("d", self.stakes or [1.0]),
            interval=interval,
            isotonic=self._isotonic,
        )
        self.start(
            table,
            offloads=offloads_ageing,
            learns=learn_ageing,
            rebuilds=rebuild_ageing,
            notes=note_audit,
            price=table.price,
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
        return {"agreement": int(self.table.alarms[AGREEMENT]), "cost": int(self.table.alarms[COST])}

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

    def _as_of(self) -> int:
        return int(self.table.clock[0])

    def _catch_up(self) -> int:
        fade(self.table, self.time)
        return self.time

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        left = left_after(self.table, self.time - since)
        return {field: [value * left for value in values] for field, values in evidence.items()}

    def _counts(self, bin: int) -> tuple[float, float]:
        left = left_after(self.table, self.time - self.table.clock[0])
        return self.table.offloads[bin] * left, self.table.agreements[bin] * left

    def _sentence(self, bin: int, left: int | None) -> str:
        seen = self._seen(bin)
        if left == 0:
            return f"Bin {bin} is offloaded: {seen}; {self._lacking(bin)}."
        price = f"evidence fades over {self.memory} samples"
        if self.audit:
            price += f", and 1 sample in {self.table.interval} may be audited"
            if self.offload_cost:
                price += f", at {self.audit * self.offload_cost:.2g} a sample at most"
        when = "never checked again" if left is None else f"checked again in {left} sample{'s' * (left != 1)}"
        return f"Bin {bin} is accepted: {seen}; {when}, as {price}."

    def _seen(self, bin: int) -> str:
        offloads, agreements = self._counts(bin)
        own = f"{agreements:.1f} of {offloads:.1f} recent offloads agreed" if offloads >= 0.05 else "nothing recent"
        time = self.time + 1
        left = left_after(self.table, time - self.table.clock[0])
        q = break_even(self.table, bin, cost_at(self.table, left, min(time, self.memory)))
        if not self._isotonic or not 0.0 < q < 1.0:
            return own
        weigh(self.table, bin, q)
        return with_others(own, self.table, bin, left, ".1f")

    def is_audit(self, decision: Decision) -> bool:
        interval = self.table.interval
        return bool(interval) and decision.time is not None and self.table.due[0] == decision.time + interval

    def _lacking(self, bin: int) -> str:
        licensed = holds(self.table, bin, self.time + 1)
        return "an audit is due" if licensed else super()._lacking(bin)


class DiscountedIsotonic(Forgetting):
    """Isotonic with discounted evidence: the policy for a stream that changes.

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


class DiscountedHILCB(Forgetting):
    """HI-LCB with discounted evidence, and without the paper's forced offload of bins that were never seen.

    >>> DiscountedHILCB(bins=16, offload_cost=0.5, memory=5000).decide(3).offload
    True
    """

    name = "discounted-hi-lcb"
    _isotonic = False
