"""Policies that decide by expiry: every bin holds a licence to answer locally, and the licence expires.

While a policy accepts it learns nothing, so nothing that it knows changes but the clock, and its confidence bounds only
fall as the clock goes on. Hence there is one number per bin, its *expiry*, with

    accept bin i at time t   ⇔   t < expiry[i]

and only an offload moves it. Deciding is one load and one compare; a policy is how it refreshes its expiries.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hinge.policies.policy import (
    ACCEPTED,
    COUNT,
    SQUARES,
    SUM,
    Decision,
    Decisions,
    Explanation,
    Policy,
    Wholes,
    note_nothing,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


FOREVER = 2**62  # a time that no clock reaches
_BLOCK = 32_768  # samples of a batch decided at a time: what they need stays in the cache
_LONGEST = 42.0  # e^42 < 2^62


def expiry_from(evidence: float) -> int:
    """The first time t with log t ≥ evidence: bounds of the form `log t < evidence` hold exactly before it.

    The faintest evidence holds at time 1, where log t = 0; none at all never does.

    >>> expiry_from(math.log(10) + 1e-9), expiry_from(1e-30), expiry_from(0.0), expiry_from(1e9) == FOREVER
    (11, 2, 1, True)
    """
    if evidence <= 0.0:
        return 1
    if evidence > _LONGEST:
        return FOREVER
    return max(2, math.ceil(math.exp(evidence)))


def count(table: Any, bin: int, agreed: float) -> None:
    """Add one offload to the evidence: n and n · f of its bin."""
    table.offloads[bin] += 1
    table.agreements[bin] += agreed


def count_cost(table: Any, cost: float) -> None:
    """Add what an offload cost to the evidence. A known cost needs no evidence."""
    costs = table.costs
    costs[COUNT] += 1.0
    costs[SUM] += cost
    costs[SQUARES] += cost * cost


def has_expired(table: Any, bin: int, time: int) -> bool:
    """Offload iff the bin holds no licence at that time."""
    return bool(time >= table.expiry[bin])


def learn_and_drop(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Count an offload that moves every bound: drop the expiries found since the last one."""
    count(table, bin, agreed)
    if len(table.costs) > 0:
        count_cost(table, cost)
    drop_filled(table)


def drop_filled(table: Any) -> None:
    """Drop the expiries that `fill` wrote down."""
    last = len(table.expiry)
    for position in range(table.filled[last]):
        table.expiry[table.filled[position]] = 0
    table.filled[last] = 0


def drop_all(table: Any) -> None:
    """Forget every expiry that was found."""
    for i in range(len(table.expiry)):
        table.expiry[i] = 0
    table.filled[len(table.expiry)] = 0


def fill(table: Any, bin: int, expiry: int) -> None:
    """Write down an expiry that holds until the next offload; `filled` ends with the number of its entries."""
    last = len(table.expiry)
    table.expiry[bin] = expiry
    table.filled[table.filled[last]] = bin
    table.filled[last] += 1


def offloads_unless(holds: Callable[[Any, int, int], bool]) -> Callable[[Any, int, int], bool]:
    """What decides by a bound that every offload moves, and that is slow to find: by `holds(table, bin, time)`.

    It is to be called `offloads_ahead` in the module of `holds`, where pickle looks for it.
    """

    def offloads_ahead(table: Any, bin: int, time: int) -> bool:
        """Look at a licence for a while ahead only, as the next offload ends it."""
        if time < table.expiry[bin]:
            return False
        if not holds(table, bin, time):
            return True
        if table.expiry[bin] == 0:
            fill(table, bin, 0)
        ahead = time + time // 8
        if not holds(table, bin, ahead):
            ahead = time + time // 64
            if not holds(table, bin, ahead):
                ahead = time
        table.expiry[bin] = ahead + 1
        return False

    offloads_ahead.__module__, offloads_ahead.__qualname__ = holds.__module__, "offloads_ahead"
    return offloads_ahead


class ExpiryPolicy(Policy):
    """A deterministic policy: its table has an `expiry` for each bin.

    Where an offload moves the bounds of a few bins only, `learns` writes their new expiries, and `offloads` is
    `has_expired`. Where it moves all of them, `learns` drops the expiries that were found since the last offload
    (`learn_and_drop`), and `offloads` finds one again when its bin comes up (`fill`). Either way an expiry in the table
    is never too late; where the exact one is slow to find (`offloads_unless`) it may be too early, and is found again
    when it is reached. The method `expiry` returns the exact one, by the bound `_holds`.
    """

    charges_failures = True  # its bound on the cost gives way in time, so that a cost that was too high is learned anew
    _expiry: Wholes
    _holds: Callable[[Any, int, int], bool] | None = None

    def start(self, table: Any, **functions: Any) -> None:
        super().start(table, **functions)
        self._expiry = table.expiry  # one attribute lookup fewer for each sample
        self._batch: tuple[int, NDArray[np.int64] | None] = (0, None)  # the expiries after so much was learned

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        time = self.time + 1
        try:
            if bin >= 0 and time < self._expiry[bin] and cost is None:
                self.time = time
                return ACCEPTED
        except (TypeError, IndexError):
            pass  # not a bin, which is said below
        return super().decide(bin, cost)

    def decide_many(
        self, bins: "Iterable[int] | NDArray[np.integer[Any]]", costs: Iterable[float | None] | None = None
    ) -> Decisions:
        import numpy as np  # batches are arrays; deciding one sample needs no more than the standard library

        if costs is not None or self._notes is not note_nothing:
            return super().decide_many(bins, costs)
        checked = self._checked_bins(bins)
        first = self.time + 1
        learned, expiry = self._batch
        if expiry is None or learned != self.learned:
            expiry = np.fromiter((self.expiry(bin) for bin in range(self.bins)), np.int64, self.bins)
            self._batch = (self.learned, expiry)
        offload = np.empty(len(checked), np.bool_)
        times = np.arange(first, first + min(len(checked), _BLOCK))
        for start in range(0, len(checked), _BLOCK):
            block = checked[start : start + _BLOCK]
            np.greater_equal(times[: len(block)], expiry.take(block), out=offload[start : start + _BLOCK])
            times += _BLOCK
        self.time += len(checked)
        for position in np.flatnonzero(offload).tolist():
            self._await(True, int(checked[position]), first + position)
        return Decisions(offload, checked, first, self.id, False)

    def expiry(self, bin: int) -> int:
        """The time from which samples of this bin are offloaded again, if nothing is learned until then."""
        bin, time, holds = self._checked_bin(bin), self.time + 1, self._holds
        self._offloads(self.table, bin, time)
        if holds is None or self._expiry[bin] <= time:
            return int(self._expiry[bin])
        bad = 2 * time
        while bad < FOREVER and holds(self.table, bin, bad):
            bad *= 2
        if bad >= FOREVER:
            return FOREVER
        good = bad // 2
        return good + bisect_left(range(good, bad), True, key=lambda later: not holds(self.table, bin, later))

    def _rebuild(self) -> None:
        self._batch = (0, None)
        super()._rebuild()

    def explain(self, bin: int) -> Explanation:
        expiry = self.expiry(bin)
        left = max(0, expiry - 1 - self.time)
        end, samples_left = (expiry, left) if expiry < FOREVER else (None, None)
        return self._explained(bin, float(left == 0), self._sentence(bin, samples_left), end, samples_left)

    def _sentence(self, bin: int, left: int | None) -> str:
        seen, counts = self._seen(bin), self._counts(bin)
        if left is None:
            free = "" if counts and counts[0] else ", and a wrong answer costs no more than an offload"
            return f"Bin {bin} is accepted for good: {seen}{free}."
        if left:
            return f"Bin {bin} is accepted: {seen}; checked again in {left} sample{'s' * (left != 1)}."
        return f"Bin {bin} is offloaded: {seen}; {self._lacking(bin)}."

    def _lacking(self, bin: int) -> str:
        """Why a bin has no licence."""
        offloads, agreements = self._counts(bin) or (0.0, 0.0)
        cost = self.offload_cost
        if cost is not None and offloads and agreements <= (1.0 - cost) * offloads:
            return f"accepting would be cheaper above {1.0 - cost:.3g} of them"
        return "too little evidence that accepting is cheaper"
