"""Policies that decide by expiry: every bin holds a licence to answer locally, and the licence expires.

While a policy accepts, it learns nothing, so nothing that it knows changes but the clock, and its confidence bounds
only fall as the clock goes on. Hence there is one number for each bin, its *expiry*, with

    accept bin i at time t   ⇔   t < expiry[i]

and only an offload moves it. Deciding is one load and one compare.
"""

import math
from typing import Any

from hinge._columns import Wholes, whole_column
from hinge.policies.policy import (
    ACCEPTED,
    FOREVER,
    Decision,
    Explanation,
    Policy,
)

_MAX_EVIDENCE = 42.0  # e^42 < 2^62


def expiry_from(evidence: float) -> int:
    """Return the first time t with log t ≥ evidence: bounds of the form `log t < evidence` hold exactly before it.

    The faintest evidence holds at time 1, where log t = 0; none at all never does.

    >>> expiry_from(math.log(10) + 1e-9), expiry_from(1e-30), expiry_from(0.0), expiry_from(1e9) == FOREVER
    (11, 2, 1, True)
    """
    if evidence <= 0.0:
        return 1
    if evidence > _MAX_EVIDENCE:
        return FOREVER
    return max(2, math.ceil(math.exp(evidence)))


def has_expired(table: Any, bin: int, time: int) -> bool:
    """Offload from the bin's expiry on."""
    return bool(time >= table.expiry[bin])


class ExpiryPolicy(Policy):
    """A deterministic policy whose table has an `expiry` for each bin, never too late."""

    _expiry: Wholes = whole_column(0)  # the table's, where it is set: one attribute lookup fewer for each sample

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        time = self.time + 1
        try:
            if bin >= 0 and time < self._expiry[bin] and cost is None:
                self.time = time
                return ACCEPTED
        except (TypeError, IndexError):
            pass  # not set, or not a bin, which is said below
        return super().decide(bin, cost)

    def expiry(self, bin: int) -> int:
        """Return the time from which samples of this bin are offloaded, if nothing is learned until then."""
        return int(self.table.expiry[self._checked_bin(bin)])

    def explain(self, bin: int) -> Explanation:
        expiry = self.expiry(bin)
        left = max(0, expiry - 1 - self.time)
        if left == 0:
            return self._explained(bin, 1.0, f"Bin {bin} is offloaded: {self._lacking(bin)}.", 0)
        if expiry >= FOREVER:
            return self._explained(bin, 0.0, f"Bin {bin} is accepted for good: {self._seen(bin)}.")
        until = f"checked again in {left} sample{'s' * (left != 1)}"
        return self._explained(bin, 0.0, f"Bin {bin} is accepted: {self._seen(bin)}; {until}.", left)

    def _lacking(self, bin: int) -> str:
        """Say why a bin has no licence."""
        offloads, agreements = self.counts(bin) or (0.0, 0.0)
        cost = self.offload_cost
        if cost is not None and offloads and agreements <= (1.0 - cost) * offloads:
            return f"{self._seen(bin)}; accepting pays above {100 * (1.0 - cost):.3g} %"
        return f"{self._seen(bin)}; too few to tell whether accepting pays"
