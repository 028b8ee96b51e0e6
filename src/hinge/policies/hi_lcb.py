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
refreshes what that one bound changes. A learned cost moves every bound at every offload, so expiries are dropped then,
and found again when a bin comes up.
"""

import math
from typing import Annotated, NamedTuple

from hinge._checks import positive, truth
from hinge.policies.expiry import ExpiryPolicy, count, drop_all, expiry_from, fill, has_expired, learn_and_drop
from hinge.policies.policy import COUNT, SUM, Reals, Wholes


class LicenceTable(NamedTuple):
    """What HI-LCB and HI-LCB-lite know. Evidence first, then what is derived from it, then the parameters."""

    offloads: Reals  # n_i
    agreements: Reals  # n_i · f_i
    costs: Reals  # COUNT (m), SUM and SQUARES of the costs (learned cost)
    expiry: Wholes
    own: Wholes  # the expiry that bin i's own evidence gives (HI-LCB, known cost)
    best: Wholes  # the latest of own[0..i] (HI-LCB, known cost)
    filled: Wholes  # bins whose expiry was found since the last offload; their number is filled[bins] (learned cost)
    strength: Reals  # √(α · the strongest evidence of bins 0..i) (HI-LCB, learned cost)
    found: Annotated[Wholes, 1]  # up to which bin strength was found since the last offload (HI-LCB, learned cost)
    price: Reals  # what an offload costs where that is known; else what it costs beyond what is learned
    alpha: float
    offload_unseen: bool
    monotone: bool  # HI-LCB


# -- known cost: one bound, and for HI-LCB the bins above that rest on it ---------------------------------------------


def own_expiry(table: LicenceTable, bin: int) -> int:
    """The first time t with log t ≥ n ((f + γ - 1)⁺)² / α of a bin; 0 if it was never offloaded."""
    offloads = table.offloads[bin]
    if offloads == 0:
        return 0
    surplus = table.price[0] - (1.0 - table.agreements[bin] / offloads)
    return expiry_from(offloads * surplus * surplus / table.alpha if surplus > 0.0 else 0.0)


def learn_known(table: LicenceTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Renew or withdraw the licence of the offloaded bin, and of the bins above that hold theirs from it."""
    count(table, bin, agreed)
    own = own_expiry(table, bin)
    if table.monotone:
        table.own[bin] = own
        spread(table, bin, now)
    else:
        table.expiry[bin] = own


def spread(table: LicenceTable, bin: int, now: int) -> None:
    """Carry the running maximum upwards from `bin`, as far as it changes anything."""
    own, best = table.own, table.best
    running = best[bin - 1] if bin > 0 else 0
    for i in range(bin, len(own)):
        if own[i] > running:
            running = own[i]
        before = best[i]
        best[i] = running
        if table.offloads[i] > 0 or not table.offload_unseen:
            table.expiry[i] = running
        # Expiries up to now have all run out, so that one of them may stand for another.
        if running == before or (running <= now and before <= now):
            return


def rebuild_known(table: LicenceTable) -> None:
    """Recompute every expiry."""
    for i in range(len(table.expiry)):
        table.expiry[i] = own_expiry(table, i)
    if table.monotone:
        for i in range(len(table.own)):
            table.own[i], table.best[i], table.expiry[i] = table.expiry[i], 0, 0
        for i in range(len(table.own)):
            spread(table, i, 0)


# -- learned cost: every bound, found when it is asked for ------------------------------------------------------------


def offloads_learned(table: LicenceTable, bin: int, time: int) -> bool:
    """Compute the expiry from the evidence of the bin, or the strongest up to it, if it is not in the table."""
    if time < table.expiry[bin]:
        return False
    if table.expiry[bin] > 0 or table.costs[COUNT] == 0.0 or (table.offload_unseen and table.offloads[bin] == 0):
        return True
    strength = best_strength(table, bin) if table.monotone else own_strength(table, bin)
    fill(table, bin, expiry_from(strength * strength / table.alpha))
    return time >= table.expiry[bin]


def own_strength(table: LicenceTable, bin: int) -> float:
    """(f + c - 1)⁺ / (1/√n + 1/√m) of a bin that has been offloaded: √(α · evidence)."""
    offloads, total = table.offloads[bin], table.costs[COUNT]
    surplus = table.costs[SUM] / total + table.price[0] - (1.0 - table.agreements[bin] / offloads)
    return surplus / (1.0 / math.sqrt(offloads) + 1.0 / math.sqrt(total)) if surplus > 0.0 else 0.0


def best_strength(table: LicenceTable, bin: int) -> float:
    """The running maximum of the same up to this bin, continued from where it ends; an offload drops what was found."""
    offloads, agreements, strength = table.offloads, table.agreements, table.strength
    total = table.costs[COUNT]
    cost, width = table.costs[SUM] / total + table.price[0], 1.0 / math.sqrt(total)
    start = table.found[0] if table.filled[len(offloads)] > 0 else 0
    running = strength[start - 1] if start > 0 else 0.0
    for i in range(start, bin + 1):
        n = offloads[i]
        if n > 0.0:
            surplus = cost - (1.0 - agreements[i] / n)
            if surplus > 0.0:
                own = surplus / (1.0 / math.sqrt(n) + width)
                if own > running:
                    running = own
        strength[i] = running
    table.found[0] = max(start, bin + 1)
    return strength[bin]


class HILCBBase(ExpiryPolicy):
    """What HI-LCB and HI-LCB-lite share."""

    evidence: tuple[str, ...] = ("offloads", "agreements", "costs")

    def __init__(
        self, bins: int = 16, alpha: float = 0.52, offload_cost: float | None = None, offload_unseen: bool = True
    ) -> None:
        super().__init__(bins, offload_cost)
        self.alpha = positive(type(self).__name__, "alpha", alpha)
        self.offload_unseen = truth(type(self).__name__, "offload_unseen", offload_unseen)
        learned, monotone = self.offload_cost is None, self.assumes_monotone
        unused = ("own", "best", "strength") if not monotone else ("own", "best") if learned else ("strength",)
        table = self.blank(LicenceTable, unused, monotone=monotone)
        if learned:
            self.start(table, offloads=offloads_learned, learns=learn_and_drop, rebuilds=drop_all, price=table.price)
        else:
            self.start(table, offloads=has_expired, learns=learn_known, rebuilds=rebuild_known, price=table.price)


class HILCBLite(HILCBBase):
    """HI-LCB-lite: each bin is judged by its own offloads; O(1) to decide and, amortised, to learn.

    `alpha` is the exploration parameter; the paper's regret bounds hold for alpha > 0.5. With `offload_cost=None` the
    mean cost is learned from the offloads.

    >>> policy = HILCBLite(bins=16, alpha=0.52, offload_cost=0.5)
    >>> for _ in range(12):
    ...     decision = policy.decide(11)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=True)
    >>> print(policy.explain(11))
    Bin 11 is accepted: local agreed in 6 of 6 offloads; checked again in 5 samples.
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
    ...         policy.learn(decision, agreed=True)
    >>> policy.decide(12).offload, policy.decide(10).offload
    (False, True)
    """

    name = "hi-lcb"
    assumes_monotone = True
