"""What an offload costs now, where that is measured: what a gate decides by. `hinge.costs` says what each one cost.

The price is the mean of the costs of offloads, each in [0, 1], with half an offload of each kind added; it looks back
MEMORY offloads at most. Two of Page's sums watch it (as in `hinge.policies.probation`): one for a price STEP times as
high, one for one STEP times as low. When either is above DOUBT + ln n, the mean starts anew with the cost that rang.
The sums take a cost for a share of a failure: E[e^ratio] <= 1 for whatever lies in [0, 1], also where costs have two
values, a heavy tail, or are 1 for failures.

A price that is believed too high would never be seen to fall. So no more than RECHECK √samples / (1 + the sum for a
lower price) samples go by without an offload: the first surprise hurries the next look, and a price that is too high
costs about √T offloads in T samples.
"""

from array import array
from math import log, sqrt
from typing import NamedTuple

from hinge._columns import Reals
from hinge.errors import InvalidState
from hinge.policies.evidence import page

MEMORY = 1024.0  # offloads; a price that never drifts wants more, one that swings wants less
STEP = 4.0 / 3.0
RECHECK = 2.0
DOUBT = 3.0  # nats, as in Probation
MEAN, SUM, COUNT, HIGHER, LOWER, LOOK, ALARMS = 0, 1, 2, 3, 4, 5, 6  # the entries of `sums`


class PriceTable(NamedTuple):
    """The present price, the sums it rests on, the time of the next look, and how often it was found changed."""

    sums: Reals


def pay(table: PriceTable, cost: float, time: int) -> None:
    """Take account of what an offload cost."""
    sums = table.sums
    p = sums[MEAN]
    sums[HIGHER] = page(sums[HIGHER], cost, min(p * STEP, (1.0 + p) / 2.0), p)
    sums[LOWER] = page(sums[LOWER], cost, p / STEP, p)
    if sums[COUNT] >= MEMORY:  # forget as much as is learned
        sums[SUM] -= sums[SUM] / sums[COUNT]
        sums[COUNT] -= 1.0
    sums[COUNT] += 1.0
    sums[SUM] += cost
    if max(sums[HIGHER], sums[LOWER]) > DOUBT + log(sums[COUNT]):
        sums[COUNT], sums[SUM], sums[HIGHER], sums[LOWER] = 1.0, cost, 0.0, 0.0
        sums[ALARMS] += 1.0
    sums[MEAN] = (sums[SUM] + 0.5) / (sums[COUNT] + 1.0)
    sums[LOOK] = time + RECHECK * sqrt(time) / (1.0 + sums[LOWER])


def look_later(table: PriceTable, time: int) -> None:
    """Put off a look at the price that could not be taken."""
    table.sums[LOOK] = max(table.sums[LOOK], time + RECHECK * sqrt(time))


def make_price(guess: float = 0.5) -> PriceTable:
    """Return a price that nothing is known of.

    >>> price = make_price()
    >>> for time in range(600):
    ...     pay(price, 0.5 if time < 300 else 0.2, time)
    >>> round(price.sums[MEAN], 2), price.sums[ALARMS]
    (0.2, 1.0)
    """
    return PriceTable(array("d", [guess, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))


def restore_price(table: PriceTable, values: object) -> None:
    """Set what a state says was measured."""
    numbers = isinstance(values, list) and all(type(value) in (int, float) and 0 <= value < 2.0**62 for value in values)
    if not isinstance(values, list) or not numbers or len(values) != len(table.sums) or not 0.0 < values[MEAN] <= 1.0:
        raise InvalidState(f"Gate: state has an impossible price: {values!r:.200}")
    if values[SUM] > values[COUNT] or values[COUNT] > MEMORY:
        raise InvalidState(f"Gate: state has an impossible price: {values!r:.200}")
    table.sums[:] = array("d", values)
