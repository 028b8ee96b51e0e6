"""HI-LCB and HI-LCB-lite (Chattopadhyay, Sutar, Champati, Moharir: "Low-Regret and Low-Complexity Learning for
Hierarchical Inference", Algorithm 1). Grade A: checked decision for decision against the paper's formulas.

With n_i offloads of bin i, of which a share f_i agreed, and m offloads in all with mean cost c, the paper accepts iff

    1 - LCB_i < LCB_γ,   LCB_γ = c - √(α log t / m), or γ itself where it is known
    HI-LCB-lite:  LCB_i = f_i - √(α log t / n_i)
    HI-LCB:       LCB_i = max over j ≤ i of the same

and always offloads a bin that has never been offloaded. Solved for t, HI-LCB-lite accepts iff log t < evidence_i with

    evidence_i = n_i ((f_i + γ - 1)⁺)² / α                                  (known cost)
    evidence_i = ((f_i + c - 1)⁺ / (1/√n_i + 1/√m))² / α                    (learned cost)

and HI-LCB iff log t < max over j ≤ i of evidence_j. A known cost ties each bound to its own bin, so an offload
refreshes that bin and those above. A learned cost moves every bound at every offload, so all are found anew when the
next sample comes.
"""

import math
from array import array
from typing import Any, NamedTuple

from hinge._checks import positive, truth
from hinge._columns import Reals, Wholes, real_column, whole_column
from hinge.policies.expiry import ExpiryPolicy, expiry_from, has_expired
from hinge.policies.policy import (
    KEPT,
    Functions,
    from_cells,
)

COUNT, SUM, SQUARES = 0, 1, 2  # the entries of `costs`


class LicenceTable(NamedTuple):
    """What HI-LCB and HI-LCB-lite know, what is derived from it, and the parameters."""

    offloads: Reals  # n_i
    agreements: Reals  # n_i · f_i
    costs: Reals  # their number m, sum and sum of squares, where the cost is learned
    expiry: Wholes
    own: Wholes  # the expiry by bin i's evidence alone
    best: Wholes  # the latest of own[0..i] (HI-LCB)
    stale: Wholes  # whether all expiries have to be found anew
    price: Reals  # what an offload costs, where that is known
    alpha: float
    offload_unseen: bool
    monotone: bool  # HI-LCB
    learned: bool  # whether the cost is


def evidence(table: LicenceTable, bin: int, price: float) -> float:
    """Return the evidence of a bin at a known price, or at the learned one where `price` is negative."""
    n = table.offloads[bin]
    if n == 0.0:
        return 0.0
    if price >= 0.0:
        surplus = table.agreements[bin] / n + price - 1.0
        return n * surplus * surplus / table.alpha if surplus > 0.0 else 0.0
    m = table.costs[COUNT]
    if m == 0.0:
        return 0.0
    surplus = table.agreements[bin] / n + table.costs[SUM] / m - 1.0
    strength = surplus / (1.0 / math.sqrt(n) + 1.0 / math.sqrt(m))
    return strength * strength / table.alpha if surplus > 0.0 else 0.0


def refresh(table: LicenceTable, first: int, last: int) -> None:
    """Find the own expiries of these bins anew, and what they change above them."""
    price = -1.0 if table.learned else table.price[0]
    for bin in range(first, last + 1):
        table.own[bin] = expiry_from(evidence(table, bin, price)) if table.offloads[bin] > 0.0 else 0
        if not table.monotone:
            table.expiry[bin] = table.own[bin]
    if not table.monotone:
        return
    best = table.best[first - 1] if first > 0 else 0
    for bin in range(first, len(table.own)):
        best = max(best, table.own[bin])
        if bin > last and table.best[bin] == best:
            return  # nor does anything change above
        table.best[bin] = best
        table.expiry[bin] = best if table.offloads[bin] > 0.0 or not table.offload_unseen else 0


def refresh_all(table: LicenceTable) -> None:
    """Find all expiries anew."""
    refresh(table, 0, len(table.own) - 1)
    table.stale[0] = 0


def offload_expired(table: LicenceTable, bin: int, time: int) -> bool:
    """Offload from the bin's expiry on, found anew if the cost was learned since."""
    if table.stale[0]:
        refresh_all(table)
    return bool(time >= table.expiry[bin])


def offload_at(table: LicenceTable, bin: int, time: int, price: float) -> bool:
    """Offload unless the bound holds at this price."""
    if table.offload_unseen and table.offloads[bin] == 0.0:
        return True
    strongest = evidence(table, bin, price)
    if table.monotone:
        for below in range(bin):
            strongest = max(strongest, evidence(table, below, price))
    return time >= expiry_from(strongest)


def learn_count(table: LicenceTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Count an offload, and refresh what it changes."""
    table.offloads[bin] += 1.0
    table.agreements[bin] += agreed
    if table.learned:
        table.costs[COUNT] += 1.0
        table.costs[SUM] += cost
        table.costs[SQUARES] += cost * cost
        table.stale[0] = 1
        for other in range(len(table.expiry)):
            table.expiry[other] = 0  # until all are found anew
    else:
        refresh(table, bin, bin)
    return KEPT


def reprice_bounds(table: LicenceTable, price: float, extra: float, time: int) -> None:
    """Set the price, and find all expiries anew if it has moved."""
    if table.price[0] != min(price + extra, 1.0):
        table.price[0] = min(price + extra, 1.0)
        refresh_all(table)


def regroup_counts(table: LicenceTable, cells: Any, time: int) -> None:
    """Take over the records of bins formed anew."""
    from_cells(cells, table.offloads, table.agreements)
    refresh_all(table)


KNOWN = Functions(
    offloads=has_expired,
    learns=learn_count,
    offloads_at=offload_at,
    reprices=reprice_bounds,
    regroups=regroup_counts,
    rebuilds=refresh_all,
)
LEARNED = Functions(  # bins are formed by a price, and there is none
    offloads=offload_expired, learns=learn_count, offloads_at=offload_at, rebuilds=refresh_all
)


class HILCBBase(ExpiryPolicy):
    """What HI-LCB and HI-LCB-lite share."""

    evidence: tuple[str, ...] = ("offloads", "agreements", "costs")
    saved = ("price",)

    def __init__(
        self, bins: int = 16, alpha: float = 0.52, offload_cost: float | None = None, offload_unseen: bool = True
    ) -> None:
        super().__init__(bins, offload_cost)
        self.alpha = positive(type(self).__name__, "alpha", alpha)
        self.offload_unseen = truth(type(self).__name__, "offload_unseen", offload_unseen)
        learned = self.offload_cost is None
        self.table = LicenceTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            costs=real_column(3 if learned else 0),
            expiry=whole_column(self.bins),
            own=whole_column(self.bins),
            best=whole_column(self.bins if self.assumes_monotone else 0),
            stale=whole_column(1),
            price=array("d", [self.offload_cost or 0.0]),
            alpha=self.alpha,
            offload_unseen=self.offload_unseen,
            monotone=self.assumes_monotone,
            learned=learned,
        )
        self.functions = LEARNED if learned else KNOWN
        self._expiry = self.table.expiry

    def expiry(self, bin: int) -> int:
        if self.table.stale[0]:
            refresh_all(self.table)
        return super().expiry(bin)


class HILCBLite(HILCBBase):
    """HI-LCB-lite: each bin is judged by its own offloads.

    `alpha` is the exploration parameter; the paper's regret bounds hold for alpha > 0.5. With `offload_cost=None` the
    mean cost is learned from the offloads.

    >>> policy = HILCBLite(bins=16, alpha=0.52, offload_cost=0.5)
    >>> for _ in range(12):
    ...     decision = policy.decide(11)
    ...     if decision.offload:
    ...         _ = policy.learn(decision, agreed=True)
    >>> print(policy.explain(11))
    Bin 11 is accepted: 6 of 6 agreed; checked again in 5 samples.
    """

    name = "hi-lcb-lite"

    def __init__(self, bins: int = 16, alpha: float = 0.52, offload_cost: float | None = None) -> None:
        super().__init__(bins, alpha, offload_cost)


class HILCB(HILCBBase):
    """HI-LCB: agreement never falls with confidence, so what licenses a bin licenses every bin above it.

    The paper's Algorithm 1 offloads a bin once before it accepts it, even where a lower bin is licensed;
    `offload_unseen=False` leaves that out and is a pure threshold policy.

    >>> policy = HILCB(bins=16, alpha=0.52, offload_cost=0.5, offload_unseen=False)
    >>> for _ in range(12):
    ...     decision = policy.decide(11)
    ...     if decision.offload:
    ...         _ = policy.learn(decision, agreed=True)
    >>> policy.decide(12).offload, policy.decide(10).offload
    (False, True)
    """

    name = "hi-lcb"
    assumes_monotone = True
