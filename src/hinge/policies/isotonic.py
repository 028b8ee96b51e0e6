"""Isotonic evidence, our own: all bins up to this one testify together. Grade A: derived here.

Agreement never falls with confidence, so the best fit to what bins 0 … i have shown is their isotonic regression, which
pools neighbours until block means rise (pool adjacent violators). Against "bin i should be offloaded", which means that
no bin up to i agrees more often than q = 1 - offload cost, speak the blocks B whose mean exceeds q:

    E_i = Σ_B n_B kl(mean_B, q)          N_i = Σ_B n_B
    accept bin i at time t   ⇔   E_i > 2α log(1 + t / N_i)   ⇔   t < N_i (exp(E_i / 2α) - 1)

E is the log-likelihood ratio under monotonicity. The t/N in the logarithm, in place of t, is what KL-UCB+ does for
bandits: evidence from many samples need not be doubted as often. A learned cost enters through an empirical-Bernstein
lower bound, c - √(2vL/m) - L/m with the variance v of m costs and L = 2α log t.

The fit of bins 0 … i is a block that ends with i on top of the fit of the bins before that block. So each bin keeps
its own top block, and after an offload the fit is redone from its bin upwards, as far as anything changes.
"""

import math
from typing import ClassVar, NamedTuple

from hinge.arguments import positive
from hinge.policies.columns import Reals, Wholes, real_column, whole_column
from hinge.policies.expiry import FOREVER, ExpiryPolicy, count, fill, has_expired, learn_and_drop
from hinge.policies.kl import surplus_evidence

_TIE = 1e-12  # a block whose mean is q but for rounding says nothing, and must not lend its weight


class IsotonicTable(NamedTuple):
    """What Isotonic knows: evidence, the isotonic fit up to each bin, and the parameters."""

    offloads: Wholes
    agreements: Reals
    costs: Reals
    expiry: Wholes
    filled: Wholes
    first: Wholes  # where the top block of the fit of bins 0..i begins
    weight: Reals  # offloads in that block
    total: Reals  # agreements in that block
    evidence: Reals  # E_i
    support: Reals  # N_i
    alpha: float
    offload_cost: float


def fit_bin(table: IsotonicTable, i: int, q: float) -> bool:
    """Redo the fit of bins 0..i from that of the bins before; tells whether anything changed."""
    first, weight, total = i, float(table.offloads[i]), table.agreements[i]
    while first > 0 and table.total[first - 1] * weight >= total * table.weight[first - 1]:
        # An unseen bin weighs nothing: it joins the block below, and what joins it is that block itself.
        below = first - 1
        first, weight, total = table.first[below], weight + table.weight[below], total + table.total[below]
    evidence, support = 0.0, 0.0
    if first > 0:
        evidence, support = table.evidence[first - 1], table.support[first - 1]
    own = surplus_evidence(weight, total, q)
    if own > _TIE:
        evidence, support = evidence + own, support + weight
    same = first == table.first[i] and weight == table.weight[i] and total == table.total[i]
    if same and evidence == table.evidence[i] and support == table.support[i]:
        return False
    table.first[i], table.weight[i], table.total[i] = first, weight, total
    table.evidence[i], table.support[i] = evidence, support
    return True


def expiry_of(evidence: float, support: float, alpha: float) -> int:
    """The first time t with t ≥ N (exp(E / 2α) - 1).

    >>> expiry_of(0.0, 0.0, 0.5), expiry_of(math.log(3), 10.0, 0.5), expiry_of(1e9, 1.0, 0.5) == FOREVER
    (0, 20, True)
    """
    exponent = evidence / (2.0 * alpha)
    if exponent > 20.0 and exponent + math.log(support) > 42.0:
        return FOREVER
    return math.ceil(support * math.expm1(exponent))


def learn_isotonic(table: IsotonicTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Known cost: redo the fit from the offloaded bin upwards, as far as it changes."""
    count(table, bin, agreed)
    q = 1.0 - table.offload_cost
    for i in range(bin, len(table.expiry)):
        if not fit_bin(table, i, q):
            return
        table.expiry[i] = expiry_of(table.evidence[i], table.support[i], table.alpha)


def holds(table: IsotonicTable, bin: int, time: int) -> bool:
    """Learned cost: whether the evidence, with the cost's lower bound at that time, licenses a bin."""
    offloads = table.costs[0]
    mean = table.costs[1] / offloads
    variance = max(0.0, table.costs[2] / offloads - mean * mean)
    doubt = 2.0 * table.alpha * math.log(time)
    cost = mean - math.sqrt(2.0 * variance * doubt / offloads) - doubt / offloads
    if cost <= 0.0:
        return False
    for i in range(bin + 1):
        fit_bin(table, i, 1.0 - cost)
    support = table.support[bin]
    return support > 0.0 and table.evidence[bin] > 2.0 * table.alpha * math.log1p(time / support)


def offloads_isotonic(table: IsotonicTable, bin: int, time: int) -> bool:
    """Learned cost: search for the time at which the licence gives way, by doubling and halving."""
    if time < table.expiry[bin]:
        return False
    if table.expiry[bin] > 0 or table.costs[0] == 0.0 or not holds(table, bin, time):
        return True
    good, bad = time, 2 * time
    while bad < FOREVER and holds(table, bin, bad):
        good, bad = bad, 2 * bad
    while bad < FOREVER and bad - good > 1:
        middle = (good + bad) // 2
        if holds(table, bin, middle):
            good = middle
        else:
            bad = middle
    fill(table, bin, min(bad, FOREVER))
    return False


class Isotonic(ExpiryPolicy):
    """Isotonic evidence: bins are judged together, by likelihood, and only as sceptically as their evidence needs.

    >>> policy = Isotonic(bins=16, offload_cost=0.5)
    >>> for time in range(20):
    ...     decision = policy.decide(10 + time % 3)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=True)
    >>> print(policy.explain(14))
    Bin 14 is accepted: no offload of it seen yet; checked again in 33 samples.
    """

    name = "isotonic"
    evidence: ClassVar[tuple[str, ...]] = ("offloads", "agreements", "costs")

    def __init__(self, bins: int = 16, alpha: float = 0.52, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        self.alpha = positive(type(self).__name__, "alpha", alpha)
        learned = self.offload_cost is None
        table = IsotonicTable(
            offloads=whole_column(self.bins),
            agreements=real_column(self.bins),
            costs=real_column(3 if learned else 0),
            expiry=whole_column(self.bins),
            filled=whole_column(self.bins + 1 if learned else 0),
            first=whole_column(self.bins),
            weight=real_column(self.bins),
            total=real_column(self.bins),
            evidence=real_column(self.bins),
            support=real_column(self.bins),
            alpha=self.alpha,
            offload_cost=math.nan if self.offload_cost is None else self.offload_cost,
        )
        if learned:
            self._start(table, offloads_isotonic, learn_and_drop)
        else:
            self._start(table, has_expired, learn_isotonic)

    def _rebuild(self) -> None:
        super()._rebuild()
        table = self.table
        if self.offload_cost is None:
            table.filled[self.bins] = 0
            return
        for i in range(self.bins):
            fit_bin(table, i, 1.0 - self.offload_cost)
            table.expiry[i] = expiry_of(table.evidence[i], table.support[i], self.alpha)
