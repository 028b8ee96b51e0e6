"""Evidence that ages, and how long a licence lasts that rests on it.

While a policy accepts it learns nothing, so that after a change its licences would be wrong for as long as they last.
Evidence that ages while the clock runs makes licences end by themselves:

    discounted       an offload counts (1 - 1/memory)^age
    sliding window   an offload counts 1 until it is `memory` samples old; forgotten in sixteenths (panes) of that

and what the policy doubts is `memory` samples long, not `t`. Within a pane evidence only fades and doubt only grows, so
that they cross at most once, which is found by halving; a licence is looked at again at the next pane.
"""

import math
from typing import NamedTuple

from hinge.policies.columns import Reals, Wholes
from hinge.policies.expiry import FOREVER
from hinge.policies.isotonic import break_even, doubt, first_of_class, fit_bin, lowest_cost

PANES = 16  # parts in which a window is forgotten
LASTS = 64  # memories after which no evidence is left: a licence that still holds needs none


class AgeingTable(NamedTuple):
    """Evidence, what is derived from it, and the parameters."""

    offloads: Reals  # n_i as of `clock` (discounted), or as of the pane `viewed` (window)
    agreements: Reals
    costs: Reals
    pane_offloads: Reals  # the same by age in panes, the newest first (window)
    pane_agreements: Reals
    pane_costs: Reals
    clock: Wholes  # the time (discounted) or the pane (window) that the evidence is as of
    viewed: Wholes  # the pane for which the sums were last taken (window)
    due: Wholes  # from when on the next sample that would be accepted is audited
    forgotten: Wholes  # when an alarm last dropped the evidence of agreement, and of costs
    alarms: Wholes  # how often
    alarm: Reals  # Page's sums: agreement fell, agreement rose, the cost fell, the cost rose
    expiry: Wholes
    filled: Wholes
    first: Wholes  # the isotonic fit, as in IsotonicTable
    weight: Reals
    total: Reals
    evidence: Reals
    support: Reals
    fitted: Reals  # for which q, and from which bin on, the fit was last made
    found: Wholes  # up to which bin it was made
    price: Reals
    stakes: Reals
    alpha: float
    memory: int
    pane: int  # samples in a pane; 0: discounted
    interval: int  # samples from one audit to the next; 0: never
    isotonic: bool


# -- ageing -----------------------------------------------------------------------------------------------------------


def left_after(table: AgeingTable, samples: int) -> float:
    """The share of discounted evidence that is left after a number of samples."""
    return math.exp(samples * math.log1p(-1.0 / table.memory))


def fade(table: AgeingTable, now: int) -> None:
    """Discounted: bring the evidence to the present."""
    left = left_after(table, now - table.clock[0])
    for i in range(len(table.offloads)):
        table.offloads[i] *= left
        table.agreements[i] *= left
    for i in range(len(table.costs)):
        table.costs[i] *= left
    table.clock[0], table.fitted[0] = now, -1.0


def shift(column: Reals, panes: int) -> None:
    """Make the entries of a column older by a number of panes; what is too old falls out."""
    width = len(column) // PANES
    kept = max(0, PANES - panes) * width
    for i in range(kept - 1, -1, -1):
        column[i + panes * width] = column[i]
    for i in range(min(panes, PANES) * width):
        column[i] = 0.0


def roll(table: AgeingTable, now: int) -> None:
    """Window: bring the panes to the present."""
    passed = now // table.pane - table.clock[0]
    if passed > 0:
        shift(table.pane_offloads, passed)
        shift(table.pane_agreements, passed)
        shift(table.pane_costs, passed)
        table.clock[0] = now // table.pane


def view(table: AgeingTable, time: int) -> float:
    """Bring the sums in line with a time, now or later; returns the share of them that counts then."""
    if table.pane == 0:
        return left_after(table, time - table.clock[0])
    pane = time // table.pane
    if table.viewed[0] != pane:
        panes = max(0, PANES - (pane - table.clock[0]))
        add_panes(table.pane_offloads, panes, table.offloads)
        add_panes(table.pane_agreements, panes, table.agreements)
        add_panes(table.pane_costs, panes, table.costs)
        table.viewed[0] = pane
        table.fitted[0] = -1.0
    return 1.0


def add_panes(column: Reals, panes: int, sums: Reals) -> None:
    """The sums over the newest panes."""
    width = len(sums)
    for i in range(width):
        sums[i] = 0.0
        for pane in range(panes):
            sums[i] += column[pane * width + i]


# -- evidence ---------------------------------------------------------------------------------------------------------


def weigh(table: AgeingTable, bin: int, q: float) -> None:
    """Find evidence and support of the bins up to this one, unless they were found since the last offload."""
    start = first_of_class(table, bin)
    if table.fitted[0] != q or table.fitted[1] != start:
        table.fitted[0], table.fitted[1], table.found[0] = q, start, start
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
    offloads = table.costs[0] * left
    if offloads <= 0.0:
        return -1.0
    mean = table.costs[1] / table.costs[0]
    if table.isotonic:
        variance = max(0.0, table.costs[2] / table.costs[0] - mean * mean)
        return table.price[0] + lowest_cost(mean, variance, offloads, reach, table.alpha)
    return table.price[0] + mean - math.sqrt(table.alpha * math.log(reach) / offloads)


def worth_nothing(table: AgeingTable, bin: int, time: int) -> bool:
    """Whether a wrong answer in this bin costs no more than an offload, so that there is nothing to check."""
    return break_even(table, bin, cost_at(table, view(table, time), min(time, table.memory))) <= 0.0


def holds(table: AgeingTable, bin: int, time: int) -> bool:
    """Whether the evidence that is left at a time, now or later, licenses a bin."""
    left = view(table, time)
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
    """When the licence of a bin, good at `time`, gives way or has to be looked at again: at the next pane at latest."""
    pane = table.pane if table.pane > 0 else table.memory // PANES
    last = time - time % pane + pane - 1
    return last + 1 if holds(table, bin, last) else halve(table, bin, time, last)


def licence_end(table: AgeingTable, bin: int, time: int) -> int:
    """The first time at which the licence of a bin, good at `time`, gives way if nothing is learned."""
    end = time + LASTS * table.memory
    while time < end:
        time = good_until(table, bin, time)
        if not holds(table, bin, time):
            return time
    return FOREVER


def halve(table: AgeingTable, bin: int, good: int, bad: int) -> int:
    """The time between at which a licence gives way."""
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(table, bin, middle):
            good = middle
        else:
            bad = middle
    return bad
