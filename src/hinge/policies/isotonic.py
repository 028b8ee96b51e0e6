"""Isotonic evidence, our own: all bins up to this one testify together. Grade A: derived here.

Agreement never falls with confidence, so the best fit to what bins 0 … i have shown is their isotonic regression, which
pools neighbours until block means rise (pool adjacent violators). Against "bin i should be offloaded", which means that
no bin up to i agrees more often than q = 1 - offload cost, speak the blocks B of n_B offloads and a_B agreements whose
mean exceeds q:

    E_i = Σ_B (n_B + 2) kl⁺((a_B + 1) / (n_B + 2), q)         N_i = Σ_B n_B where that is not 0
    accept bin i at time t   ⇔   E_i > ½ + 2α (L - log(1 + L)),   L = log(1 + t / N_i)

kl⁺(p, q) is the divergence of two coins where p > q, and else 0. `docs/isotonic.md` says where each part comes from,
why wrong licences stay cheap, and what was tried and lost. A learned cost enters through an empirical-Bernstein lower
bound, c - √(2vL/m) - L/m with the variance v of m costs and L = 2α log t.

Costs per class: what a wrong answer costs may depend on the class that the local model answers (`stakes`). Then every
class has bins of its own, agreement rises within each class, and what is judged is 1 - price / stake of an answer
against q = 1 - offload cost / stake: the same question, on the scale on which the evidence speaks loudest.

The fit of bins 0 … i is a block that ends with i on top of the fit of the bins before that block. So each bin keeps
its own top block, and after an offload the fit is redone from its bin upwards, as far as evidence can change.
"""

import math
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from hinge._checks import positive, reals
from hinge.policies.expiry import FOREVER, ExpiryPolicy, drop_all, has_expired, learn_and_drop, offloads_unless
from hinge.policies.policy import COUNT, SQUARES, SUM, Reals, Wholes

LEAST = 0.5  # evidence that even the first licence needs
_TIE = 1e-12  # a block whose mean is q but for rounding says nothing


class IsotonicTable(NamedTuple):
    """What Isotonic knows: evidence, the isotonic fit up to each bin, and the parameters."""

    offloads: Reals
    agreements: Reals
    costs: Reals
    expiry: Wholes
    filled: Wholes
    first: Wholes  # where the top block of the fit of bins 0..i begins
    weight: Reals  # offloads in that block
    total: Reals  # agreements in that block
    evidence: Reals  # E_i
    support: Reals  # N_i
    price: Reals  # what an offload costs where that is known; else what it costs beyond what is learned
    stakes: Reals  # what a wrong answer costs, class by class
    alpha: float


def first_of_class(table: Any, bin: int) -> int:
    """The lowest bin of the class that a bin belongs to."""
    return bin - bin % (len(table.offloads) // len(table.stakes))


def break_even(table: Any, bin: int, cost: float) -> float:
    """q of the class that a bin belongs to: the agreement at which accepting costs as much as offloading."""
    stakes = table.stakes
    stake: float = stakes[bin * len(stakes) // len(table.offloads)]
    return 0.0 if stake <= cost or stake <= 0.0 else 1.0 - cost / stake


def on_scale(table: Any, bin: int, agreed: float) -> float:
    """One minus the price of an answer, as a share of the stake of its class."""
    stakes = table.stakes
    stake: float = stakes[bin * len(stakes) // len(table.offloads)]
    return agreed if stake == 1.0 else max(0.0, 1.0 - (1.0 - agreed) / stake) if stake > 0.0 else 1.0


def fit_bin(table: Any, i: int, offloads: float, agreements: float, q: float, quick: bool = False) -> bool:
    """Fit the bins up to i, from the fit of the bins before; returns whether their evidence or support changed.

    Whatever pools with a silent block is silent, so that a quick fit ends there: of silent blocks it is only known that
    they are.
    """
    firsts, weights, totals, evidences, supports = table.first, table.weight, table.total, table.evidence, table.support
    bottom, first, weight, total, ended = first_of_class(table, i), i, offloads, agreements, False
    while first > bottom and not ended and totals[first - 1] * weight >= total * weights[first - 1]:
        # An unseen bin weighs nothing: it joins the block below, and what joins it is that block itself.
        below = first - 1
        ended = quick and silent(table, below, q)
        first, weight, total = firsts[below], weight + weights[below], total + totals[below]
    evidence, support, was, had = 0.0, 0.0, evidences[i], supports[i]
    firsts[i], weights[i], totals[i] = first, weight, total
    if first > bottom and not silent(table, i, q):
        evidence, support = evidences[first - 1], supports[first - 1]
    own = block_evidence(weight, total, q)
    if own > 0.0:
        evidence, support = evidence + own, support + weight
    evidences[i], supports[i] = evidence, support
    return bool(evidence != was or support != had)


def evidence_at(table: Any, bin: int, q: float) -> tuple[float, float]:
    """E and N of a bin for any break-even q: the fit does not depend on q, only which of its blocks are evidence."""
    bottom, i, evidence, support = first_of_class(table, bin), bin, 0.0, 0.0
    while i >= bottom and not silent(table, i, q):  # the means of blocks only fall from here on
        own = block_evidence(table.weight[i], table.total[i], q)
        if own > 0.0:
            evidence, support = evidence + own, support + table.weight[i]
        i = table.first[i] - 1
    return evidence, support


def silent(table: Any, i: int, q: float) -> bool:
    """Whether the top block of the fit up to i has a mean of q at most, so that no block of that fit is evidence."""
    return bool(table.total[i] <= (q + _TIE) * table.weight[i])


def is_settled(table: Any, i: int, q: float) -> bool:
    """Whether the fit up to i holds something, and its top block is silent."""
    return bool(table.weight[i] > 0.0 and silent(table, i, q))


def block_evidence(offloads: float, agreements: float, q: float) -> float:
    """(n + 2) kl((a + 1) / (n + 2), q) of a block whose mean exceeds q, else 0.

    >>> round(block_evidence(10, 9, 0.5), 3), block_evidence(10, 5, 0.5), block_evidence(0, 0, 0.2)
    (2.911, 0.0, 0.0)
    """
    if offloads <= 0.0 or agreements <= (q + _TIE) * offloads:
        return 0.0
    return surplus_evidence(offloads + 2.0, agreements + 1.0, q)


def divergence(p: float, q: float) -> float:
    """kl(p, q) = p log(p/q) + (1-p) log((1-p)/(1-q)), the divergence between two coins; accurate also for p near q.

    Infinite where q rules out what p allows: q = 0 < p or q = 1 > p.

    >>> round(divergence(0.75, 0.5), 6), divergence(0.5, 0.5), divergence(0.5, 0.0)
    (0.130812, 0.0, inf)
    """
    if (p > 0.0 and q <= 0.0) or (p < 1.0 and q >= 1.0):
        return math.inf
    if p <= 0.0 or p >= 1.0:
        return -math.log1p(-q) if p <= 0.0 else -math.log(q)
    if abs(p - q) > 0.03 * max(p, 1.0 - p):
        return p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    # Here the formula as written loses its digits. The two linear parts cancel, and keep both sides ≥ 0.
    return one_side(p, q) + one_side(1.0 - p, 1.0 - q)


def one_side(p: float, q: float) -> float:
    """p log(p/q) + q - p: by a series for p near q."""
    x = (q - p) / p
    if abs(x) > 0.03:
        return p * math.log(p / q) + q - p
    tail = 1 / 8 - x * (1 / 9 - x * (1 / 10 - x * (1 / 11 - x / 12)))
    return p * x * x * (1 / 2 - x * (1 / 3 - x * (1 / 4 - x * (1 / 5 - x * (1 / 6 - x * (1 / 7 - x * tail))))))


def surplus_evidence(offloads: float, agreements: float, q: float) -> float:
    """n kl(f, q) where f > q, else 0."""
    if offloads == 0.0 or agreements <= q * offloads:
        return 0.0
    return offloads * divergence(min(1.0, agreements / offloads), q)


def with_others(own: str, table: Any, bin: int, left: float = 1.0, form: str = "g") -> str:
    """What a bin has seen itself, and what all bins that are its evidence by the present fit have, if others are."""
    high, offloads, agreements, i = bin, 0.0, 0.0, bin
    bottom = first_of_class(table, bin)
    while i >= bottom and table.support[i] > 0.0:
        first = table.first[i]
        if first == bottom or table.support[i] > table.support[first - 1]:  # this block counts
            high = high if offloads else i
            offloads, agreements = offloads + table.weight[i], agreements + table.total[i]
        i = first - 1
    while high > bottom and table.offloads[high] == 0.0:
        high -= 1
    # A block may begin above `first`, at which it began while the bins between had seen nothing.
    low, seen = high, table.offloads[high]
    while low > bottom and seen < offloads * (1.0 - 1e-9):
        low -= 1
        seen += table.offloads[low]
    if offloads == 0.0 or low == high == bin:
        return own
    bins = f"bins {low}–{high} together" if low < high else f"bin {low}"
    return f"{own} ({bins}: {agreements * left:{form}} of {offloads * left:{form}})"


def doubt(time: int, support: float, alpha: float) -> float:
    """½ + 2α (L - log(1 + L)) with L = log(1 + t / N): how much evidence a licence needs."""
    span = math.log1p(time / support)
    return LEAST + 2.0 * alpha * (span - math.log1p(span))


def lowest_cost(mean: float, variance: float, offloads: float, time: int, alpha: float) -> float:
    """The empirical-Bernstein lower bound on a mean cost that was learned from so many offloads."""
    scale = 2.0 * alpha * math.log(time)
    return mean - math.sqrt(2.0 * variance * scale / offloads) - scale / offloads


def expiry_of(evidence: float, support: float, alpha: float) -> int:
    """The first time at which doubt has come up to the evidence.

    >>> expiry_of(0.5, 3.0, 0.5), expiry_of(0.5 + math.log(3) - math.log1p(math.log(3)) + 1e-9, 10.0, 0.5)
    (0, 21)
    >>> expiry_of(1e9, 1.0, 0.5) == FOREVER
    True
    """
    rest = (evidence - LEAST) / (2.0 * alpha)
    if rest <= 0.0 or support <= 0.0:
        return 0
    if rest > 42.0:
        return FOREVER
    # L - log(1 + L) = rest by Newton's method, from above: e^√(2 rest) > 1 + √(2 rest) + rest.
    span = rest + math.sqrt(2.0 * rest)
    for _ in range(20):
        excess = span - math.log1p(span) - rest
        span -= excess * (1.0 + span) / span
        if excess <= 1e-15 * rest:
            break
    if span + math.log(support) > 42.0:
        return FOREVER
    return math.ceil(support * math.expm1(span))


def learn_isotonic(table: IsotonicTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Known cost: redo the fit from the offloaded bin upwards.

    A block pools only with blocks below whose mean is no lower. Hence one that is evidence never pools with a silent
    one, and a fit whose top block was silent and stays so leaves the evidence of all fits above it as it is. But for
    bins below which nothing was seen: they weigh nothing, and any block takes them in, until they are seen.
    """
    table.offloads[bin] += 1
    table.agreements[bin] += on_scale(table, bin, agreed)
    q = break_even(table, bin, table.price[0])
    for i in range(bin, first_of_class(table, bin) + len(table.expiry) // len(table.stakes)):
        settled = is_settled(table, i, q)
        if fit_bin(table, i, table.offloads[i], table.agreements[i], q, quick=True):
            table.expiry[i] = licence(table, i, q)
        if settled and silent(table, i, q):
            return


def licence(table: IsotonicTable, i: int, q: float) -> int:
    """The expiry that the fit gives a bin; no evidence is needed where an offload costs a whole wrong answer."""
    return FOREVER if q <= 0.0 else expiry_of(table.evidence[i], table.support[i], table.alpha)


def rebuild_isotonic(table: IsotonicTable) -> None:
    """Known cost: redo every fit."""
    for i in range(len(table.expiry)):
        q = break_even(table, i, table.price[0])
        fit_bin(table, i, table.offloads[i], table.agreements[i], q)
        table.expiry[i] = licence(table, i, q)


def learn_with_cost(table: IsotonicTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Learned cost: every bound moves."""
    learn_and_drop(table, bin, on_scale(table, bin, agreed), cost, time, now)


def fit_up_to(table: Any, bin: int, time: int) -> float:
    """Learned cost: fit the bins up to this one for q at the cost's lower bound at that time; returns q.

    There is nothing to fit, and nothing is, where q is not between 0 and 1.
    """
    offloads = table.costs[COUNT]
    mean = table.costs[SUM] / offloads
    variance = max(0.0, table.costs[SQUARES] / offloads - mean * mean)
    q = break_even(table, bin, table.price[0] + lowest_cost(mean, variance, offloads, time, table.alpha))
    if 0.0 < q < 1.0:
        for i in range(first_of_class(table, bin), bin + 1):
            fit_bin(table, i, table.offloads[i], table.agreements[i], q)
    return q


def holds(table: IsotonicTable, bin: int, time: int) -> bool:
    """Learned cost: whether the evidence, with the cost's lower bound at that time, licenses a bin."""
    if table.costs[COUNT] == 0.0:
        return False
    q = fit_up_to(table, bin, time)
    if q <= 0.0 or q >= 1.0:
        return q <= 0.0
    support = table.support[bin]
    return support > 0.0 and table.evidence[bin] > doubt(time, support, table.alpha)


offloads_ahead = offloads_unless(holds)


def checked_stakes(owner: str, stakes: Sequence[float] | None, bins: int) -> list[float] | None:
    """What a wrong answer costs in each class, where there are classes."""
    if stakes is None:
        return None
    checked = reals(owner, "stakes", stakes, 0, 1)
    if not checked or bins % len(checked):
        raise ValueError(f"{owner}: stakes must be for as many classes as divide {bins} bins, got {len(checked)}")
    return checked


class Isotonic(ExpiryPolicy):
    """Isotonic evidence: bins are judged together, by likelihood, and only as sceptically as their evidence needs.

    >>> policy = Isotonic(bins=16, offload_cost=0.5)
    >>> for time in range(20):
    ...     decision = policy.decide(10 + time % 3)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=True)
    >>> print(policy.explain(14))
    Bin 14 is accepted: no offload of it seen yet (bins 10–12 together: 6 of 6); checked again in 161 samples.

    `stakes` says what a wrong answer of each class costs at most, for bins by class (`hinge.ClassBins`); `agreed` stays
    one minus the price of an answer (`hinge.CostMatrix`). A class worth less than an offload is never offloaded.

    >>> from hinge import ClassBins, CostMatrix, UniformBins
    >>> prices = CostMatrix([[0, 40], [2, 0]], labels=["quiet", "fire"])  # a missed fire is worse than a false alarm
    >>> bins = ClassBins(UniformBins(16), classes=["quiet", "fire"])
    >>> policy = Isotonic(bins.bins, offload_cost=0.1, stakes=prices.stakes)
    >>> policy.decide(bins.bin(0.99, "quiet")).offload, policy.decide(bins.bin(0.99, "fire")).offload
    (True, False)
    """

    name = "isotonic"
    assumes_monotone = True
    evidence: tuple[str, ...] = ("offloads", "agreements", "costs")
    merges_on = ("bins", "stakes")

    def __init__(
        self,
        bins: int = 16,
        alpha: float = 0.52,
        offload_cost: float | None = None,
        stakes: Sequence[float] | None = None,
    ) -> None:
        super().__init__(bins, offload_cost)
        self.alpha = positive(type(self).__name__, "alpha", alpha)
        self.stakes = checked_stakes(type(self).__name__, stakes, self.bins)
        table = self.blank(IsotonicTable, stakes=array("d", self.stakes or [1.0]))
        if self.offload_cost is None:
            self._holds = holds
            self.start(table, offloads=offloads_ahead, learns=learn_with_cost, rebuilds=drop_all, price=table.price)
        else:
            self.start(table, offloads=has_expired, learns=learn_isotonic, rebuilds=rebuild_isotonic, price=table.price)
            rebuild_isotonic(table)

    def _seen(self, bin: int) -> str:
        own = super()._seen(bin)
        if self.offload_cost is None:
            costs = self.table.costs[COUNT]
            if costs == 0.0 or not 0.0 < fit_up_to(self.table, bin, self.time + 1) < 1.0:
                return own
        return with_others(own, self.table, bin)
