"""HI-LCB over discounted counts, for comparison with policies that notice changes. Grade A: derived here.

Each offload counts η^age samples later, so that what was learned fades and licences of accepted bins expire by
themselves: the price of drift is paid in advance. HI-LCB's bound is taken over the discounted counts n_i and n_i f_i
with log min(t, 1/(1-η)) in place of log t (as in D-UCB, Garivier and Moulines, ALT 2011):

    accept ⇔ log min(t, 1/(1-η)) < max over j ≤ i of n_j ((f_j + γ - 1)⁺)² / α

Counts are kept in units of η^-t, in which nothing fades, and are brought back to 1 before they grow too large.
"""

import math
from array import array
from typing import NamedTuple

from hinge._checks import positive, real
from hinge._columns import Reals, real_column
from hinge.errors import InvalidValue
from hinge.policies.policy import (
    KEPT,
    Explanation,
    Functions,
    Policy,
    set_price,
)

_MAX_UNIT = 1e12


class DiscountedTable(NamedTuple):
    """Counts in units of η^-t, the unit and the time it is of, and the parameters."""

    offloads: Reals
    agreements: Reals
    unit: Reals  # η^-(time - since), since
    price: Reals
    alpha: float
    discount: float


def offload_discounted(table: DiscountedTable, bin: int, time: int) -> bool:
    """Offload unless the bound holds at the present price."""
    return offload_discounted_at(table, bin, time, table.price[0])


def offload_discounted_at(table: DiscountedTable, bin: int, time: int, price: float) -> bool:
    """Offload unless the bound holds at this price."""
    unit = table.discount ** (time - table.unit[0])
    bound = math.log(min(float(time), 1.0 / (1.0 - table.discount))) * table.alpha
    for j in range(bin + 1):
        n = table.offloads[j] * unit
        if n > 0.0:
            surplus = table.agreements[j] / table.offloads[j] + price - 1.0
            if surplus > 0.0 and n * surplus * surplus > bound:
                return False
    return True


def learn_discounted(table: DiscountedTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Count an offload with the weight that it has now."""
    weight = table.discount ** (table.unit[0] - now)
    if weight > _MAX_UNIT:
        for j in range(len(table.offloads)):
            table.offloads[j] /= weight
            table.agreements[j] /= weight
        table.unit[0] = now
        weight = 1.0
    table.offloads[bin] += weight
    table.agreements[bin] += weight * agreed
    return KEPT


class Discounted(Policy):
    """HI-LCB over discounted counts; an offload of `memory` samples ago counts 1/e.

    >>> policy = Discounted(bins=4, offload_cost=0.5, memory=1000)
    >>> for _ in range(40):
    ...     decision = policy.decide(3)
    ...     if decision.offload:
    ...         _ = policy.learn(decision, agreed=True)
    >>> policy.decide(3).offload, policy.time, policy.learned < 30
    (False, 41, True)
    """

    name = "discounted"
    saved = ("offloads", "agreements", "unit", "price")
    assumes_monotone = True

    def __init__(
        self, bins: int = 16, alpha: float = 0.52, offload_cost: float = 0.5, memory: float = 10_000.0
    ) -> None:
        super().__init__(bins, offload_cost)
        owner = type(self).__name__
        self.alpha, self.memory = positive(owner, "alpha", alpha), real(owner, "memory", memory, 2.0)
        if self.offload_cost is None:
            raise InvalidValue(owner, "offload_cost", "must be a number, got None")
        self.table = DiscountedTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            unit=real_column(1),
            price=array("d", [self.offload_cost]),
            alpha=self.alpha,
            discount=math.exp(-1.0 / self.memory),
        )
        self.functions = Functions(
            offloads=offload_discounted,
            learns=learn_discounted,
            offloads_at=offload_discounted_at,
            reprices=set_price,
        )

    def counts(self, bin: int) -> tuple[float, float]:
        unit = self.table.discount ** (self.time - self.table.unit[0])
        return self.table.offloads[bin] * unit, self.table.agreements[bin] * unit

    def explain(self, bin: int) -> Explanation:
        offload = offload_discounted(self.table, self._checked_bin(bin), self.time + 1)
        offloads, agreements = self.counts(bin)
        verb = "offloaded" if offload else "accepted"
        seen = f"{agreements:.3g} of {offloads:.3g} agreed, older offloads counting less"
        return self._explained(bin, float(offload), f"Bin {bin} is {verb}: {seen}.", 0 if offload else None)
