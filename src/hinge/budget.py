"""At most a share of samples offloaded: a bucket that no stretch of samples exceeds, and a price that spends it well.

**The bucket** holds `burst` = max(2, 20 share) offloads and is filled by `rate` = share - burst / 1000 for each sample.
So of any n consecutive samples at most share · n + burst are offloaded, and of any 1 000 or more at most share · n. An
offload is charged when it is decided, whatever comes of it.

**The price** of an offload is raised by

    λ + SPREAD (1 - 2 level / burst)

and each sample moves λ by STEP (½ - level / burst): an emptier bucket is kept for what is worth more, and on average it
is half full, so that nothing overflows. The price never cuts licences: under a budget, each sample is decided as one
whose price was told (`hinge.policies.probation`).
"""

from array import array
from typing import NamedTuple

from hinge._checks import real
from hinge._columns import Reals
from hinge.errors import InvalidState, InvalidValue

WINDOW = 1000.0  # samples; in any as many or more, the share holds
SPREAD = 0.2  # of the price, between a full bucket and an empty one
STEP = 0.001
LEVEL, EXTRA, AS_OF, REFUSED = 0, 1, 2, 3  # the entries of `sums`


class BudgetTable(NamedTuple):
    """The bucket's level, λ, the time that both are of and how many offloads were refused; depth and rate."""

    sums: Reals
    burst: float
    rate: float


def catch_up(table: BudgetTable, time: int) -> None:
    """Bring the bucket and λ to the present."""
    sums = table.sums
    passed = time - sums[AS_OF]
    if passed <= 0:
        return
    sums[LEVEL] = min(table.burst, sums[LEVEL] + table.rate * passed)
    sums[EXTRA] = min(1.0, max(0.0, sums[EXTRA] + STEP * passed * (0.5 - sums[LEVEL] / table.burst)))
    sums[AS_OF] = time


def extra_price(table: BudgetTable) -> float:
    """Return what is added to the price of an offload now."""
    return max(0.0, table.sums[EXTRA] + SPREAD * (1.0 - 2.0 * table.sums[LEVEL] / table.burst))


def charge(table: BudgetTable) -> bool:
    """Take an offload from the bucket, if it holds one."""
    if table.sums[LEVEL] < 1.0:
        table.sums[REFUSED] += 1.0
        return False
    table.sums[LEVEL] -= 1.0
    return True


def drain(table: BudgetTable, offloads: float) -> None:
    """Take offloads that nobody asked the bucket for."""
    table.sums[LEVEL] = max(0.0, table.sums[LEVEL] - offloads)


def make_budget(share: float) -> BudgetTable:
    """Return a full bucket for a share of offloads.

    >>> make_budget(0.2).burst, round(make_budget(0.2).rate, 3)
    (4.0, 0.196)
    """
    share = real("Gate", "budget", share, 0, 1)
    if share < 0.003:
        raise InvalidValue("Gate", "budget", f"must be 0.003 at least, or 0 offloads are left, got {share!r}")
    burst = max(2.0, 20.0 * share)
    return BudgetTable(array("d", [burst, 0.0, 0.0, 0.0]), burst, share if share == 1.0 else share - burst / WINDOW)


def restore_budget(table: BudgetTable, values: object, time: int) -> None:
    """Fill the bucket as a state says."""
    if not (isinstance(values, list) and len(values) == len(table.sums)):
        raise InvalidState(f"Gate: state has an impossible budget: {values!r:.200}")
    if not all(type(value) in (int, float) and 0.0 <= value < 2.0**62 for value in values):
        raise InvalidState(f"Gate: state has an impossible budget: {values!r:.200}")
    if values[LEVEL] > table.burst or values[EXTRA] > 1.0 or values[AS_OF] > time:
        raise InvalidState(f"Gate: state has an impossible budget: {values!r:.200}")
    table.sums[:] = array("d", values)
