"""Noticing a change: Page's test (Biometrika 1954) on what offloads reveal.

The test sums the log-likelihood ratio of "bins on this side of break-even have come to it" against "they agree as they
did", and starts again from 0 whenever that is negative. By Lorden's inequality a sum that exceeds log(10 memory) does
so by chance once in 10 memories of offloads at most if what was believed was right; it is an estimate, so that this is
a guide and no guarantee (the tests count). Then all evidence of agreement, and every licence with it, is dropped at
once. Learned costs are watched in the same way, for a quarter less or more.
"""

import math

from hinge.policies.ageing import AgeingTable, view, weigh
from hinge.policies.columns import Reals
from hinge.policies.isotonic import break_even

EDGE = 0.01  # means nearer to 0 or 1 than this count as this
SURE = 10.0  # no false alarm in so many memories, at least


def watch(table: AgeingTable, bin: int, agreed: float, cost: float, now: int) -> None:
    """Page's test: has the agreement of a bin come to break-even, from above or from below; has the mean cost moved?"""
    view(table, now)
    price = table.price[0]
    if len(table.costs) > 0:
        if table.costs[0] <= 0.0:
            return
        mean = table.costs[1] / table.costs[0]
        fell = mean > EDGE and doubts(table, 2, cost, mean, 0.75 * mean)
        rose = mean < 1.0 - EDGE and doubts(table, 3, cost, mean, 0.75 * mean + 0.25)
        if fell or rose:
            forget_costs(table, now)
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
    if doubts(table, 0 if believed > q else 1, agreed, believed, q):
        forget_agreement(table, now)


def doubts(table: AgeingTable, alarm: int, seen: float, believed: float, other: float) -> bool:
    """Add what was seen to one of Page's sums: does it speak for another mean than the one believed in?"""
    # Who believed in never or always would be shaken by a single sample; nearer to the other mean, it takes a few.
    believed = min(max(believed, min(EDGE, other / 2.0)), max(1.0 - EDGE, (1.0 + other) / 2.0))
    ratio = seen * math.log(other / believed) + (1.0 - seen) * math.log((1.0 - other) / (1.0 - believed))
    table.alarm[alarm] = max(0.0, table.alarm[alarm] + ratio)
    return bool(table.alarm[alarm] > math.log(SURE * table.memory))


def forget_agreement(table: AgeingTable, now: int) -> None:
    """Drop all evidence of agreement."""
    clear(table.offloads)
    clear(table.agreements)
    clear(table.pane_offloads)
    clear(table.pane_agreements)
    table.alarm[0] = table.alarm[1] = 0.0
    table.forgotten[0] = now
    table.alarms[0] += 1


def forget_costs(table: AgeingTable, now: int) -> None:
    """Drop what offloads have cost."""
    clear(table.costs)
    clear(table.pane_costs)
    table.alarm[2] = table.alarm[3] = 0.0
    table.forgotten[1] = now
    table.alarms[1] += 1


def clear(column: Reals) -> None:
    """Nothing is known."""
    for i in range(len(column)):
        column[i] = 0.0
