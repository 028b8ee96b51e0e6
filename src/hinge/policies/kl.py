"""KL bounds: likelihood in place of Hoeffding's inequality. Grade A: derived here.

By the Chernoff bound, after n offloads of which a share f > q agreed, the chance that the true agreement is at most q
is no more than exp(-n kl(f, q)), where kl is the divergence between two coins. Accepting is cheaper iff the agreement
exceeds q = 1 - offload cost, so

    accept bin i at time t   ⇔   f_i > q  and  n_i kl(f_i, q) > 2α log t

By Pinsker's inequality kl(f, q) ≥ 2 (f - q)², hence KL never asks for more evidence than HI-LCB-lite. A learned cost
enters through its lower bound: q = 1 - (c - √(α log t / m)).
"""

import math
from typing import NamedTuple

from hinge._checks import positive
from hinge.policies.expiry import (
    ExpiryPolicy,
    count,
    drop_all,
    expiry_from,
    has_expired,
    learn_and_drop,
    offloads_unless,
)
from hinge.policies.isotonic import surplus_evidence
from hinge.policies.policy import COUNT, SUM, Reals, Wholes


class KLTable(NamedTuple):
    """What KL knows: evidence, what is derived from it, the parameters."""

    offloads: Reals
    agreements: Reals
    costs: Reals
    expiry: Wholes
    filled: Wholes
    price: Reals  # what an offload costs where that is known; else what it costs beyond what is learned
    alpha: float


def learn_own(table: KLTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Known cost: renew or withdraw the licence of the offloaded bin."""
    count(table, bin, agreed)
    license_own(table, bin)


def license_own(table: KLTable, bin: int) -> None:
    """Known cost: find the expiry that a bin's own evidence gives."""
    evidence = surplus_evidence(table.offloads[bin], table.agreements[bin], 1.0 - table.price[0])
    table.expiry[bin] = expiry_from(evidence / (2.0 * table.alpha))


def rebuild_own(table: KLTable) -> None:
    """Known cost: find every licence anew."""
    for i in range(len(table.expiry)):
        license_own(table, i)


def holds(table: KLTable, bin: int, time: int) -> bool:
    """Learned cost: whether the bound of a bin, with the cost's lower bound, licenses it at a time."""
    total, log_time = table.costs[COUNT], math.log(time)
    if total == 0.0:
        return False
    lower_cost = table.price[0] + table.costs[SUM] / total - math.sqrt(table.alpha * log_time / total)
    if lower_cost <= 0.0:
        return False
    evidence = surplus_evidence(table.offloads[bin], table.agreements[bin], 1.0 - lower_cost)
    return evidence > 2.0 * table.alpha * log_time


offloads_ahead = offloads_unless(holds)


class KL(ExpiryPolicy):
    """The KL bound, bin by bin.

    >>> policy = KL(bins=4, offload_cost=0.2)
    >>> for _ in range(40):
    ...     decision = policy.decide(3)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=True)
    >>> print(policy.explain(3))
    Bin 3 is accepted: local agreed in 18 of 18 offloads; checked again in 7 samples.
    """

    name = "kl"
    evidence = ("offloads", "agreements", "costs")

    def __init__(self, bins: int = 16, alpha: float = 0.52, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        self.alpha = positive(type(self).__name__, "alpha", alpha)
        table = self.blank(KLTable)
        if self.offload_cost is None:
            self._holds = holds
            self.start(table, offloads=offloads_ahead, learns=learn_and_drop, rebuilds=drop_all, price=table.price)
        else:
            self.start(table, offloads=has_expired, learns=learn_own, rebuilds=rebuild_own, price=table.price)
