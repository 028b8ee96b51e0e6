"""KL bounds: likelihood in place of Hoeffding's inequality. Grade A: derived here.

By the Chernoff bound, after n offloads of which a share f > q agreed, the chance that the true agreement is at most q
is no more than exp(-n kl(f, q)), where kl is the divergence between two coins. Accepting is cheaper iff the agreement
exceeds q = 1 - offload cost, so

    KL:         accept bin i at time t   ⇔   f_i > q  and  n_i kl(f_i, q) > 2α log t
    pooled KL:  the same with the best pooled group of neighbouring bins a..b, b ≤ i, in place of bin i

(agreement never falls with confidence, so the pooled mean of lower bins is a valid lower estimate). By Pinsker's
inequality kl(f, q) ≥ 2 (f - q)², hence KL never asks for more evidence than HI-LCB-lite. A learned cost enters through
its lower bound: q = 1 - (c - √(α log t / m)).
"""

import math
from typing import NamedTuple

from hinge._checks import positive
from hinge.policies.expiry import (
    ExpiryPolicy,
    count,
    drop_all,
    expiry_from,
    fill,
    has_expired,
    learn_and_drop,
    offloads_unless,
)
from hinge.policies.isotonic import divergence as divergence
from hinge.policies.isotonic import surplus_evidence
from hinge.policies.policy import COUNT, SUM, Reals, Wholes, whole_column


class KLTable(NamedTuple):
    """What the KL policies know: evidence, what is derived from it, the parameters."""

    offloads: Reals
    agreements: Reals
    costs: Reals
    expiry: Wholes
    filled: Wholes
    block_offloads: Reals  # room for the blocks of the isotonic fit (pooled KL)
    block_agreements: Reals
    price: Reals  # what an offload costs where that is known; else what it costs beyond what is learned
    alpha: float
    pooled: bool


def push_block(table: KLTable, blocks: int, bin: int) -> int:
    """Extend the isotonic fit of the bins below by this one (pool adjacent violators); returns the number of blocks."""
    weights, sums = table.block_offloads, table.block_agreements
    weights[blocks], sums[blocks] = table.offloads[bin], table.agreements[bin]
    while blocks > 0 and sums[blocks - 1] * weights[blocks] >= sums[blocks] * weights[blocks - 1]:
        weights[blocks - 1] += weights[blocks]
        sums[blocks - 1] += sums[blocks]
        blocks -= 1
    return blocks + 1


def best_group(table: KLTable, blocks: int, q: float) -> float:
    """The strongest evidence of a group of neighbouring bins that ends with the last one pushed.

    Evidence grows with the agreements of a group and falls with its offloads, so that the best start lies on the lower
    hull of the running sums: it is the start of a block of the isotonic fit.
    """
    offloads, agreements, best = 0.0, 0.0, 0.0
    for block in range(blocks - 1, -1, -1):
        offloads += table.block_offloads[block]
        agreements += table.block_agreements[block]
        if agreements <= q * offloads:
            break  # lower blocks have lower means still
        best = max(best, surplus_evidence(offloads, agreements, q))
    return best


def evidence_at(table: KLTable, bin: int, q: float) -> float:
    """The evidence that the agreement of this bin exceeds q: its own, or that of the best pooled group up to it."""
    if not table.pooled:
        return surplus_evidence(table.offloads[bin], table.agreements[bin], q)
    blocks, best = 0, 0.0
    for i in range(bin + 1):
        if table.offloads[i] > 0:
            blocks = push_block(table, blocks, i)
            best = max(best, best_group(table, blocks, q))
    return best


def learn_own(table: KLTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """KL, known cost: renew or withdraw the licence of the offloaded bin."""
    count(table, bin, agreed)
    license_own(table, bin)


def license_own(table: KLTable, bin: int) -> None:
    """KL, known cost: find the expiry that a bin's own evidence gives."""
    evidence = evidence_at(table, bin, 1.0 - table.price[0])
    table.expiry[bin] = expiry_from(evidence / (2.0 * table.alpha))


def rebuild_own(table: KLTable) -> None:
    """KL, known cost: find every licence anew."""
    for i in range(len(table.expiry)):
        license_own(table, i)


def offloads_pooled(table: KLTable, bin: int, time: int) -> bool:
    """Pooled KL, known cost: one pass finds the licences of this bin and of all below it."""
    if time < table.expiry[bin]:
        return False
    last = len(table.expiry)
    if table.filled[last] <= bin:
        table.filled[last] = 0
        blocks, best, q = 0, 0.0, 1.0 - table.price[0]
        for i in range(bin + 1):
            if table.offloads[i] > 0:
                blocks = push_block(table, blocks, i)
                best = max(best, best_group(table, blocks, q))
            fill(table, i, expiry_from(best / (2.0 * table.alpha)))
    return bool(time >= table.expiry[bin])


def holds(table: KLTable, bin: int, time: int) -> bool:
    """Learned cost: whether the bound of a bin, with the cost's lower bound, licenses it at a time."""
    total, log_time = table.costs[COUNT], math.log(time)
    if total == 0.0:
        return False
    lower_cost = table.price[0] + table.costs[SUM] / total - math.sqrt(table.alpha * log_time / total)
    return lower_cost > 0.0 and evidence_at(table, bin, 1.0 - lower_cost) > 2.0 * table.alpha * log_time


offloads_ahead = offloads_unless(holds)


class _KLPolicy(ExpiryPolicy):
    evidence = ("offloads", "agreements", "costs")
    _pooled: bool

    def __init__(self, bins: int = 16, alpha: float = 0.52, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        self.alpha = positive(type(self).__name__, "alpha", alpha)
        learned, pooled = self.offload_cost is None, self._pooled
        unused = () if pooled else ("block_offloads", "block_agreements")
        filled = whole_column(self.bins + 1 if learned or pooled else 0)
        table = self.blank(KLTable, unused, filled=filled, pooled=pooled)
        if learned:
            self._holds = holds
            self.start(table, offloads=offloads_ahead, learns=learn_and_drop, rebuilds=drop_all, price=table.price)
        elif pooled:
            self.start(table, offloads=offloads_pooled, learns=learn_and_drop, rebuilds=drop_all, price=table.price)
        else:
            self.start(table, offloads=has_expired, learns=learn_own, rebuilds=rebuild_own, price=table.price)


class KL(_KLPolicy):
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
    _pooled = False


class PooledKL(_KLPolicy):
    """The KL bound with the evidence of neighbouring bins pooled: a bin is licensed by the best group up to it.

    >>> policy = PooledKL(bins=4, offload_cost=0.5)
    >>> for time in range(20):
    ...     decision = policy.decide(2 + time % 2)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=True)
    >>> policy.decide(2).offload, policy.decide(1).offload
    (False, True)
    """

    name = "pooled-kl"
    assumes_monotone = True
    _pooled = True
