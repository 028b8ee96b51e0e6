"""At most a share of samples offloaded: a bucket that no stretch of samples exceeds, and a price that meets it.

**The bucket** holds BURST offloads at most and is filled by RATE for each sample, so that of any n consecutive samples
at most BURST + RATE n are offloaded, with RATE = share - BURST / 1000: of any 1 000 or more, at most share · n. An
offload is charged when it is decided, whatever comes of it.

**The price.** What an offload costs is raised by λ, which each offload that is wanted raises by a step and each sample
lowers by AIM · RATE steps: so the offloads that are worth most are chosen, and the bucket is seldom empty.
"""

from math import sqrt
from typing import NamedTuple

from hinge.policies.policy import Reals

WINDOW = 1000.0  # samples; in any as many or more, the share holds
AIM = 0.98
STEP, EARLY_STEP = 0.002, 0.2  # of λ; EARLY_STEP / √time is longer at first
LEVEL, EXTRA, AS_OF = 0, 1, 2  # the entries of `sums`


class BudgetTable(NamedTuple):
    """The bucket's level, λ and the time that both are of; the bucket's depth and how fast it fills."""

    sums: Reals
    burst: float
    rate: float


def catch_up(table: BudgetTable, time: int) -> None:
    """Bring the bucket and λ to the present."""
    sums, passed = table.sums, time - table.sums[AS_OF]
    sums[LEVEL] = min(table.burst, sums[LEVEL] + table.rate * passed)
    sums[EXTRA] = max(0.0, sums[EXTRA] - step_of(time) * AIM * table.rate * passed)
    sums[AS_OF] = time


def step_of(time: int) -> float:
    """Return by how much an offload raises λ."""
    return max(STEP, EARLY_STEP / sqrt(time))


def want(table: BudgetTable, time: int) -> bool:
    """Take account of an offload that is wanted, and return whether the bucket holds it."""
    catch_up(table, time)
    sums = table.sums
    sums[EXTRA] = min(1.0, sums[EXTRA] + step_of(time))
    if sums[LEVEL] < 1.0:
        return False
    sums[LEVEL] -= 1.0
    return True
