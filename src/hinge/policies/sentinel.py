"""Sentinel, our own: isotonic evidence, licences that are counted down, audits and alarms. Grade A: derived here.

Isotonic (`hinge.policies.isotonic`) is the best of our policies where agreement rises with confidence and nothing
changes, and badly wrong elsewhere: what it accepts it may never check again. Sentinel keeps Isotonic's evidence E_i
over N_i offloads, and changes how a licence is given and watched.

**Licences are counted down.** A licence of bin i is a number of samples of that bin, counted down as they are accepted:

    if left[i] > 0:  left[i] -= 1, accept

A licence of g samples is granted where, with m samples of the bin so far and L(m) = log(1 + m / N_i),

    E_i > ENTRY log(1 + m / WARM) + 2α (L(m + g) - log(1 + L(m + g)))

So a bin doubts its evidence as its own samples go by, and not as others' do, and the first licences are easy to get. A
licence is not taken back when the evidence falls a little: it ends soon enough.

**Audits.** No licence is longer than HURRY samples or, if that is more,

    AUDIT √(t' (f_i - q)) / q    samples,

where t' is B m samples, of B bins of its class, or those since the last alarm, whichever are fewer: what an audit costs
is f_i - q, and what a change can cost is q a sample. So audits grow like √T. The sample after a licence is the audit.

A bin has proved itself when its offloads alone are evidence of more than PROVEN. Until then no licence of it is longer
than HURRY (1 + n) samples after n offloads of the bin: others may testify for a bin, also for one that appears late,
but no further than it has been tried. Once it has, a licence that has run out first goes on by what it would have been
longer, had all been known at its beginning that is known by now: other bins have taught since, and time has passed.

**Suspicion.** Page's sums (Biometrika 1954) of log-likelihood ratios, which start again from 0 whenever negative:

- over all audits, and over those of each bin: agreement has come down to break-even;
- over all offloads, and these are free: agreement is FALL of what it was.

While one of them exceeds its limit, licences are HURRY samples long: of its bin, or of all. So are those of a bin whose
own offloads agreed less often than q. When the sum over all audits exceeds ALARM, everything learned about agreement is
dropped.

**Misfit.** Bins below may testify for one that is worse than they are, where agreement does not rise with confidence.
So one more of Page's sums, over all offloads of bins whose own mean, with one agreement and one disagreement added, is
below break-even and for which the fit speaks all the same: that mean foretold them better than the fit. While it
exceeds REFUTED, evidence for a bin is what was seen of itself alone. Where the fit is right again the sum falls slowly,
or not at all; only an alarm sets it back to 0. A change alone may refute a fit, too, whose bins have seen more or less
of what was before; that costs little, as bins that were often offloaded are known by themselves. Where agreement falls
and stays above break-even, nothing is refuted: it would be dear, and of no use. Evidence that comes as counts, merged,
from a log or in an old state, raises the sum to what all counts give. The sum is of the break-even at which offloads
were made, and is kept where that moves.

**Rises.** A bin that is offloaded teaches with every sample. Where Page's sum of "agreement has come up to break-even"
exceeds RISE + RISE_GROWTH log n after n offloads, the bin keeps only what it has seen since that sum was last 0.

**Many bins.** All of this was chosen for 16 bins. B bins of a class, more than that, are F = B / 16 times as fine, and
give chance F times as many bins to favour:

- the fit is refuted above REFUTED + log F;
- until a bin has proved itself, its licences are F times as long, as it has the F-th part of the samples;
- after k alarms a licence needs log(1 + (F - 1) k) more evidence: where all bins are just below break-even, licences
  would come and go for ever;
- from F = 2 on, a licence that suspicion has cut short goes on by what was cut, if the suspicion has passed by then:
  otherwise one disagreement would have every bin audited.

**A cost known beforehand** (`decide(bin, cost=…)`). Agreement does not depend on cost, so one set of counts serves all
costs: E_i and N_i are taken at q = 1 - cost of the very sample, which is accepted where E_i exceeds the right side
above with g = 0. An audit is due once as many samples were accepted since the last as a licence may be long at the q of
the sample at hand: the cheaper its offload, the sooner. Nothing is granted ahead, so no cost is rounded to a level.

Nothing is proved here beyond what `docs/isotonic.md` says of the evidence. The constants were chosen by simulation, on
four of the shipped traces: `benchmarks/regrets/changes.py` names them, and measures the others too; so does
`benchmarks/regrets/fine.py` with many bins.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hinge.errors import InvalidState
from hinge.policies.expiry import FOREVER, count, count_cost
from hinge.policies.isotonic import (
    block_evidence,
    break_even,
    checked_stakes,
    evidence_at,
    first_of_class,
    fit_bin,
    fit_up_to,
    is_settled,
    on_scale,
    silent,
    with_others,
)
from hinge.policies.policy import (
    ACCEPTED,
    COUNT,
    MOST_SAMPLES,
    NOT_TOLD,
    Decision,
    Decisions,
    Evidence,
    Explanation,
    Policy,
    Reals,
    State,
    Wholes,
    quick_column,
    real_column,
    whole_column,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.6
ENTRY, WARM = 0.3, 96.0  # evidence that a licence needs grows as ENTRY log(1 + m / WARM) with the samples of its bin
PARTS = 16  # bins for which all these were chosen
AUDIT = 20.0
HURRY = 20  # the longest licence of a bin that is suspected
SUSPECTED = 1.75  # Page's sum over audits, in nats
REFUTED = 2.0  # Page's sum over all offloads: bins' own means foretell them better than the fit
ALARM = 8.0
FALL, FALLEN = 0.75, 5.5  # Page's sum over all offloads: agreement is FALL of what it was; suspected above FALLEN
RISE, RISE_GROWTH = 5.0, 1.5
PROVEN = 1.0  # evidence of a bin's own offloads above which it is audited by what is known of all
SUREST = 0.02  # a believed agreement is at least so far from 1, in parts of 1 - q: one disagreement is no alarm

AUDITS, OFFLOADS, MISFIT = 0, 1, 2  # Page's sums over all audits, all offloads, and those that the fit is tried by
ALARMS, RISES = 0, 1  # what was noticed, counted


class SentinelTable(NamedTuple):
    """Evidence since it was last dropped, the isotonic fit, licences, and what is suspected."""

    offloads: Reals
    agreements: Reals
    costs: Reals
    first: Wholes  # the isotonic fit, as in `IsotonicTable`
    weight: Reals
    total: Reals
    evidence: Reals
    support: Reals
    left: Wholes  # samples that the licence of a bin has left
    granted: Wholes  # how long it was; 0: there is none. Used up, it makes the next sample an audit
    cut: Wholes  # samples by which suspicion has cut it short; of twice as many bins as PARTS, and more
    arrivals: Wholes  # samples of a bin before its licence
    audited: Wholes  # the time of the last audit whose feedback is awaited; 0: none is
    sums: Reals  # Page's sums: AUDITS, OFFLOADS, MISFIT
    suspicion: Reals  # Page's sum over the audits of each bin
    rising: Reals  # Page's sum over the offloads of each bin that has no licence
    recent_offloads: Reals  # what was seen since that sum was last 0
    recent_agreements: Reals
    since: Wholes  # the time of the last alarm
    dropped: Wholes  # how often the evidence of each bin was dropped
    noticed: Wholes  # ALARMS, RISES
    told: Reals  # what offloading the sample at hand costs, where that is known beforehand; else NOT_TOLD
    unaudited: Wholes  # samples of a bin accepted at a cost told, since the last audit of such a one
    audited_at: Reals  # the break-even of the awaited audit of such a sample; 0: of one without
    outdated: Wholes  # the lowest bin whose fit `refit` may have left as it was
    price: Reals
    stakes: Reals
    alpha: float  # always ALPHA; the fit of a learned cost looks for it here


# -- licences ---------------------------------------------------------------------------------------------------------


def fitted(table: SentinelTable, bin: int, time: int) -> float:
    """Break-even for a bin; where the cost is learned, the fit up to the bin is made for it first."""
    if len(table.costs) == 0:
        return break_even(table, bin, table.price[0])
    if table.costs[COUNT] == 0.0:
        return 1.0
    return fit_up_to(table, bin, time)


def believed(table: Any, bin: int, q: float) -> float:
    """The agreement of a bin by the fit, with one agreement and one disagreement added; 0 where the fit is silent."""
    if silent(table, bin, q):
        return 0.0  # `refit` leaves silent blocks as they were
    return float((table.total[bin] + 1.0) / (table.weight[bin] + 2.0))


def fineness(table: SentinelTable) -> float:
    """How many times as fine as PARTS the bins of a class are."""
    return max(1.0, len(table.offloads) / (len(table.stakes) * PARTS))


def doubt(table: SentinelTable, support: float, arrivals: float) -> float:
    """2α (L - log(1 + L)) with L = log(1 + m / N)."""
    span = math.log1p(arrivals / support)
    return 2.0 * table.alpha * (span - math.log1p(span))


def entry(table: SentinelTable, arrivals: float) -> float:
    """Evidence that a licence needs after so many samples of its bin."""
    needed = ENTRY * math.log1p(arrivals / WARM)
    if table.noticed[ALARMS] > 0:
        needed += math.log1p((fineness(table) - 1.0) * table.noticed[ALARMS])
    return needed


def enough(table: SentinelTable, bin: int, evidence: float, support: float) -> bool:
    """Whether evidence of so many offloads is enough for a licence of no samples."""
    if support <= 0.0:
        return False
    arrivals = table.arrivals[bin] + table.granted[bin] - table.left[bin]
    return bool(evidence > entry(table, arrivals) + doubt(table, support, arrivals))


def is_suspected(table: SentinelTable) -> bool:
    """Whether all bins are."""
    return bool(table.sums[AUDITS] > SUSPECTED or table.sums[OFFLOADS] > FALLEN)


def longest(table: SentinelTable, bin: int, q: float, time: int) -> int:
    """Samples of a bin after which one is audited."""
    below = table.agreements[bin] < q * table.offloads[bin]
    if is_suspected(table) or table.suspicion[bin] > SUSPECTED or below:
        return HURRY
    seen = len(table.offloads) / len(table.stakes) * (table.arrivals[bin] + table.granted[bin] - table.left[bin])
    past, fit = min(float(time - table.since[0]), seen), believed(table, bin, q)
    samples = min(AUDIT * math.sqrt(past * max(fit - q, 0.0)) / q, float(MOST_SAMPLES))
    tried = HURRY * fineness(table) * (1.0 + table.offloads[bin])
    if samples > tried and not has_proved_itself(table, bin, q):
        samples = tried
    return max(HURRY, int(samples))


def has_proved_itself(table: SentinelTable, bin: int, q: float) -> bool:
    """Whether a bin needs no others to testify for it."""
    return bool(evidence_alone(table, bin, q)[0] > PROVEN)


def known_evidence(table: SentinelTable, bin: int, q: float) -> tuple[float, float]:
    """Evidence for a bin and the offloads that it rests on."""
    return evidence_alone(table, bin, q) if is_refuted(table) else (table.evidence[bin], table.support[bin])


def evidence_alone(table: SentinelTable, bin: int, q: float) -> tuple[float, float]:
    """Evidence for a bin by what was seen of itself, and how many offloads that is."""
    return block_evidence(table.offloads[bin], table.agreements[bin], q), table.offloads[bin]


def is_refuted(table: SentinelTable) -> bool:
    """Whether the fit has foretold offloads badly."""
    misfit = table.sums[MISFIT]
    return bool(misfit > REFUTED and misfit > REFUTED + math.log(fineness(table)))  # mostly, no logarithm is needed


def log_marginal(offloads: float, agreements: float) -> float:
    """log B(a + 1, n - a + 1)."""
    return math.lgamma(agreements + 1.0) + math.lgamma(offloads - agreements + 1.0) - math.lgamma(offloads + 2.0)


def recount_misfit(table: SentinelTable, time: int) -> None:
    """Evidence has come as counts: raise the sum to what they alone give; what offloads have shown before stands."""
    misfit = 0.0
    for i in range(len(table.offloads)):
        q, offloads, agreements = fitted(table, i, time), table.offloads[i], table.agreements[i]
        if agreements + 1.0 < q * (offloads + 2.0) and q < 1.0 and not silent(table, i, q):
            fit = believed(table, i, q)
            misfit += log_marginal(offloads, agreements)
            misfit -= agreements * math.log(fit) + (offloads - agreements) * math.log(1.0 - fit)
    table.sums[MISFIT] = max(table.sums[MISFIT], misfit)


def licence(table: SentinelTable, bin: int, time: int) -> int:
    """How many samples of a bin may be accepted from now on; 0: none."""
    q = fitted(table, bin, time)
    if q <= 0.0:
        return FOREVER  # an offload costs a whole wrong answer
    if table.support[bin] <= 0.0:
        return 0  # no evidence: most offloads end here
    evidence, support = known_evidence(table, bin, q)
    if q >= 1.0 or not enough(table, bin, evidence, support):
        return 0
    arrivals = table.arrivals[bin] + table.granted[bin] - table.left[bin]
    rest = evidence - entry(table, arrivals)
    samples = longest(table, bin, q, time)
    while samples > 0 and not rest > doubt(table, support, arrivals + samples):  # nor NaN
        samples //= 2
    return samples


def grant(table: SentinelTable, bin: int, samples: int) -> None:
    """Give a bin a licence for so many samples in place of what it has; `FOREVER` holds at the present price only."""
    samples = 0 if samples == FOREVER else samples
    table.arrivals[bin] += table.granted[bin] - table.left[bin]
    table.granted[bin] = table.left[bin] = samples
    table.cut[bin] = 0


def prolong(table: SentinelTable, bin: int, samples: int) -> None:
    """Let a licence last for so many more samples."""
    table.left[bin] += samples
    table.granted[bin] += samples
    table.cut[bin] -= min(samples, table.cut[bin])


def shorten(table: SentinelTable, bin: int, samples: int) -> None:
    """Let a licence end after so many more samples."""
    if table.left[bin] > samples:
        table.granted[bin] -= table.left[bin] - samples
        table.left[bin] = samples


def hurry(table: SentinelTable) -> None:
    """Let no licence last longer than HURRY samples from now on."""
    for bin in range(len(table.left)):
        if table.left[bin] > HURRY:
            if fineness(table) >= 2.0:
                table.cut[bin] += table.left[bin] - HURRY
            shorten(table, bin, HURRY)


def offloads_watched(table: SentinelTable, bin: int, time: int) -> bool:
    """Offload a sample that is due as an audit, or whose bin gets no licence."""
    if table.told[0] >= 0.0:
        return offloads_at(table, bin, time)
    if table.left[bin] > 0:
        return False
    samples = licence(table, bin, time)
    if samples == 0 or samples == FOREVER or table.granted[bin] == 0:
        return samples == 0
    return further(table, bin, samples, time) == 0


def accept_counted(table: SentinelTable, bin: int, time: int) -> None:
    """Count a sample down; one that a budget made accepted counts as one of before the licence."""
    if table.told[0] >= 0.0:
        table.unaudited[bin] += 1
        table.arrivals[bin] += 1
        return
    if table.left[bin] == 0:
        samples = licence(table, bin, time)
        if table.granted[bin] == 0:
            grant(table, bin, samples)
        else:
            prolong(table, bin, further(table, bin, samples, time))
    if table.left[bin] > 0:
        table.left[bin] -= 1
    else:
        table.arrivals[bin] += 1


def note_offload(table: SentinelTable, bin: int, time: int) -> None:
    """Count the sample. One that comes after a licence is an audit if the evidence still holds: the licence goes on."""
    if table.told[0] >= 0.0:
        note_offload_at(table, bin, time)
        return
    table.arrivals[bin] += 1
    if table.granted[bin] > 0:
        grant(table, bin, 0)
        samples = licence(table, bin, time)
        if 0 < samples < FOREVER:
            table.audited[bin], table.audited_at[bin] = time, 0.0
            grant(table, bin, samples)


def further(table: SentinelTable, bin: int, samples: int, time: int) -> int:
    """By how many samples a licence that has run out goes on, where one of now would be for so many.

    By what it would have been longer with what is known by now, if its bin has proved itself, and by what was cut from
    it, if not.
    """
    if table.granted[bin] == 0 or samples == 0 or samples == FOREVER:
        return 0
    q, more = fitted(table, bin, time), samples - table.granted[bin]
    if is_suspected(table) or table.suspicion[bin] > SUSPECTED:
        return 0
    if not has_proved_itself(table, bin, q):
        return max(min(more, table.cut[bin]), 0)
    left = table.left[bin]
    table.left[bin] = table.granted[bin]  # as at its beginning
    longer = licence(table, bin, time) - table.granted[bin]
    table.left[bin] = left
    return max(longer, 0)


# -- a cost known beforehand ------------------------------------------------------------------------------------------


def expect_cost(table: SentinelTable, cost: float) -> None:
    """Let the next decision be for this cost, or for `NOT_TOLD`."""
    table.told[0] = cost


def holds_at(table: SentinelTable, bin: int, q: float) -> bool:
    """Whether the evidence is enough for the break-even of one sample; none is needed where that is 0."""
    if q <= 0.0 or q >= 1.0:
        return q <= 0.0
    for i in range(table.outdated[0], len(table.offloads)):
        fit_bin(table, i, table.offloads[i], table.agreements[i], break_even(table, i, table.price[0]))
    table.outdated[0] = len(table.offloads)
    evidence, support = evidence_alone(table, bin, q) if is_refuted(table) else evidence_at(table, bin, q)
    return enough(table, bin, evidence, support)


def offloads_at(table: SentinelTable, bin: int, time: int) -> bool:
    """Offload a sample for whose cost the evidence is not enough, or that is due as an audit."""
    q = break_even(table, bin, table.told[0])
    if not holds_at(table, bin, q):
        return True
    return bool(q > 0.0 and table.unaudited[bin] >= longest(table, bin, q, time))


def note_offload_at(table: SentinelTable, bin: int, time: int) -> None:
    """Count the sample; it is an audit if the evidence was enough."""
    q = break_even(table, bin, table.told[0])
    if holds_at(table, bin, q):
        table.audited[bin], table.audited_at[bin], table.unaudited[bin] = time, q, 0
    table.arrivals[bin] += 1


# -- learning ---------------------------------------------------------------------------------------------------------


def step(total: float, agreed: float, suspected: float, usual: float) -> float:
    """Page's sum after one more offload: the log-likelihood ratio of two agreements is added."""
    if agreed > 0.0:
        total += agreed * math.log(suspected / usual)
    if agreed < 1.0:
        total += (1.0 - agreed) * math.log((1.0 - suspected) / (1.0 - usual))
    return total if total > 0.0 else 0.0


def learn_watched(table: SentinelTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Count an offload, and compare it with what was believed."""
    x = on_scale(table, bin, agreed)
    q = fitted(table, bin, now)
    offloads, sums, learns_cost, suspected = table.offloads, table.sums, len(table.costs) > 0, is_suspected(table)
    usual = (table.agreements[bin] + 1.0) / (offloads[bin] + 2.0)
    audit = table.audited[bin] == time
    told = audit and table.audited_at[bin] > 0.0
    if told:
        compare_audit(table, bin, x, table.audited_at[bin], usual)
    elif 0.0 < q < 1.0:
        if audit:
            compare_audit(table, bin, x, q, usual)
        else:
            compare_offload(table, bin, x, q, usual)
    if usual < q < 1.0 and not silent(table, bin, q):
        sums[MISFIT] = step(sums[MISFIT], x, usual, believed(table, bin, q))
    sums[OFFLOADS] = min(step(sums[OFFLOADS], x, FALL * usual, usual), 2.0 * FALLEN)
    count(table, bin, x)
    if bin < table.outdated[0]:
        table.outdated[0] = bin
    if learns_cost:
        count_cost(table, cost)
    if sums[AUDITS] > ALARM:
        sound_alarm(table, now)
        return
    if not learns_cost:
        refit(table, bin, q)
    if not suspected and is_suspected(table):  # from now on no licence is longer
        hurry(table)
    if audit:
        table.audited[bin] = 0
        if not told:
            grant(table, bin, licence(table, bin, now))


def compare_audit(table: SentinelTable, bin: int, x: float, q: float, usual: float) -> None:
    """Whether a bin that is accepted has come down to break-even."""
    usual = min(max(believed(table, bin, q), usual, q), 1.0 - SUREST * (1.0 - q))
    table.sums[AUDITS] = step(table.sums[AUDITS], x, q, usual)
    table.suspicion[bin] = step(table.suspicion[bin], x, q, usual)


def compare_offload(table: SentinelTable, bin: int, x: float, q: float, usual: float) -> None:
    """Whether a bin that is offloaded has come up to break-even; then only what was seen since counts."""
    rising = step(table.rising[bin], x, q, usual) if usual < q else 0.0
    table.rising[bin] = rising
    if rising == 0.0:
        table.recent_offloads[bin] = table.recent_agreements[bin] = 0.0
        return
    table.recent_offloads[bin] += 1.0
    table.recent_agreements[bin] += x
    if rising > RISE + RISE_GROWTH * math.log(table.offloads[bin] + 1.0):
        offloads, agreements = table.recent_offloads[bin] - 1.0, table.recent_agreements[bin] - x
        table.offloads[bin], table.agreements[bin] = offloads, agreements  # this one is counted with the others
        table.rising[bin] = table.recent_offloads[bin] = table.recent_agreements[bin] = table.suspicion[bin] = 0.0
        table.dropped[bin] += 1
        table.noticed[RISES] += 1


def refit(table: SentinelTable, bin: int, q: float) -> None:
    """Known cost: redo the fit from a bin upwards, as `learn_isotonic` does."""
    offloads, agreements = table.offloads, table.agreements
    for i in range(bin, first_of_class(table, bin) + len(offloads) // len(table.stakes)):
        settled = is_settled(table, i, q)
        fit_bin(table, i, offloads[i], agreements[i], q, quick=True)
        if settled and silent(table, i, q):
            return


def sound_alarm(table: SentinelTable, now: int) -> None:
    """Drop everything that was learned about agreement, and every licence."""
    for i in range(len(table.offloads)):
        table.offloads[i] = table.agreements[i] = table.weight[i] = table.total[i] = 0.0
        table.evidence[i] = table.support[i] = 0.0
        table.suspicion[i] = table.rising[i] = table.recent_offloads[i] = table.recent_agreements[i] = 0.0
        table.left[i] = table.granted[i] = table.cut[i] = table.arrivals[i] = table.audited[i] = table.unaudited[i] = 0
        table.first[i] = i
        table.dropped[i] += 1
    table.sums[AUDITS] = table.sums[OFFLOADS] = table.sums[MISFIT] = 0.0
    table.since[0] = now
    table.noticed[ALARMS] += 1


def rebuild_watched(table: SentinelTable) -> None:
    """Redo every fit; licences run on, as they end soon enough."""
    table.outdated[0] = 0
    if len(table.costs) == 0:
        for i in range(len(table.offloads)):
            fit_bin(table, i, table.offloads[i], table.agreements[i], break_even(table, i, table.price[0]))


class Sentinel(Policy):
    """Isotonic evidence with licences that are counted down, audits, and alarms.

    >>> policy = Sentinel(bins=16, offload_cost=0.5)
    >>> for time in range(20):
    ...     decision = policy.decide(10 + time % 3)
    ...     if decision.offload:
    ...         policy.learn(decision, agreed=True)
    >>> print(policy.explain(14))
    Bin 14 is accepted: no offload of it seen yet (bins 10–12 together: 5 of 5); audited after 20 more samples of it.

    One set of counts serves all costs: `decide` may be told what offloading the very sample costs.

    >>> policy.decide(14, cost=0.01).offload, policy.decide(14, cost=0.5).offload
    (True, False)

    `stakes` is as for `Isotonic`.
    """

    name = "sentinel"
    assumes_monotone = True
    charges_failures = True
    evidence = ("offloads", "agreements", "costs")
    carried = (
        *("left", "granted", "cut", "arrivals", "audited", "sums", "suspicion", "rising"),
        *("recent_offloads", "recent_agreements", "since", "dropped", "noticed", "unaudited", "audited_at"),
    )
    licences = ("left", "granted", "cut")
    merges_on = ("bins", "stakes")

    def __init__(
        self, bins: int = 16, offload_cost: float | None = None, stakes: Sequence[float] | None = None
    ) -> None:
        super().__init__(bins, offload_cost)
        self.stakes = checked_stakes(type(self).__name__, stakes, self.bins)
        table = self.blank(
            SentinelTable,
            first=array("q", range(self.bins)),
            left=quick_column(self.bins),
            sums=real_column(3),
            since=whole_column(1),
            noticed=whole_column(2),
            told=real_column(1, NOT_TOLD),
            outdated=whole_column(1),
            stakes=array("d", self.stakes or [1.0]),
            alpha=ALPHA,
        )
        self.start(
            table,
            offloads=offloads_watched,
            learns=learn_watched,
            rebuilds=rebuild_watched,
            notes=note_offload,
            price=table.price,
            accepts=accept_counted,
            expects=expect_cost,
        )
        self._licences = table.left  # one attribute lookup fewer for each sample

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        left = self._licences
        try:
            samples = left[bin]
            if samples and bin >= 0 and cost is None:
                left[bin] = samples - 1
                self.time += 1
                return ACCEPTED
        except (TypeError, IndexError):
            pass  # not a bin, which is said below
        return super().decide(bin, cost)

    def decide_many(
        self, bins: "Iterable[int] | NDArray[np.integer[Any]]", costs: Iterable[float | None] | None = None
    ) -> Decisions:
        import numpy as np  # batches are arrays; deciding one sample needs no more than the standard library

        checked = self._checked_bins(bins)
        if costs is not None or len(checked) < self.bins:  # to count so few takes longer than to decide
            return super().decide_many(checked, costs)
        counts = np.bincount(checked, minlength=self.bins)
        left = np.array(self._licences) - counts
        if left.min() < 0:
            return super().decide_many(checked)
        self._licences[:] = left.tolist()  # all are accepted
        first, self.time = self.time + 1, self.time + len(checked)
        return Decisions(np.zeros(len(checked), np.bool_), checked, first, self.id, False)

    def is_audit(self, decision: Decision) -> bool:
        return decision.bin is not None and self.table.audited[decision.bin] == decision.time

    def explain(self, bin: int) -> Explanation:
        left, _ = self.countdown(bin)
        offload = left == 0
        reason = f"Bin {bin} is {self._sentence(bin, offload, left)}."
        return self._explained(bin, float(offload), reason, None, left if left < FOREVER // 2 else None)

    def countdown(self, bin: int) -> tuple[int, int]:
        """Samples of a bin until the next is audited, and how long its next licence is by what is known now."""
        bin = self._checked_bin(bin)
        samples = licence(self.table, bin, self.time + 1)
        if samples == FOREVER:
            return samples, samples
        left = int(self.table.left[bin]) if self.table.granted[bin] > 0 else samples
        return left + self._further(bin, left), samples

    def _further(self, bin: int, left: int) -> int:
        """By how many samples the licence of a bin, which has so many left, will go on, by what is known now."""
        table, total = self.table, 0
        columns = table.left, table.granted, table.cut
        before = [column[bin] for column in columns]
        now, table.granted[bin], table.left[bin] = self.time + 1 + left, table.granted[bin] or left, 0
        while more := further(table, bin, licence(table, bin, now), now):
            prolong(table, bin, more)
            total, now, table.left[bin] = total + more, now + more, 0
        for column, value in zip(columns, before, strict=True):
            column[bin] = value
        return total

    @property
    def alarms(self) -> dict[str, int]:
        """How often all evidence was dropped, and how often that of a bin whose agreement had risen."""
        return {"agreement": int(self.table.noticed[ALARMS]), "rise": int(self.table.noticed[RISES])}

    def _sentence(self, bin: int, offload: bool, left: int) -> str:
        seen = self._seen(bin)
        if not offload and left >= FOREVER // 2:
            return f"accepted for good: {seen}, and a wrong answer costs no more than an offload"
        if not offload:
            hurried = left <= HURRY and (is_suspected(self.table) or self.table.suspicion[bin] > SUSPECTED)
            why = ", as agreement seems to have fallen" if hurried else ""
            return f"accepted: {seen}; audited after {left} more sample{'s' * (left != 1)} of it{why}"
        if self.table.granted[bin] > 0:
            return f"offloaded: {seen}; its licence has run out, and this sample checks it"
        offloads, agreements = self.table.offloads[bin], self.table.agreements[bin]
        q = fitted(self.table, bin, self.time + 1)
        if len(self.table.costs) > 0 and q >= 1.0:
            return f"offloaded: {seen}; what an offload costs is not known well enough yet"
        if offloads and agreements <= q * offloads:
            return f"offloaded: {seen}; accepting would be cheaper above {q:.3g} of them"
        return f"offloaded: {seen}; too little evidence that accepting is cheaper"

    def _seen(self, bin: int) -> str:
        own = super()._seen(bin)
        fitted(self.table, bin, self.time + 1)  # `countdown` has looked ahead
        if not is_refuted(self.table):
            return with_others(own, self.table, bin)
        if self.table.granted[bin] > 0 and not licence(self.table, bin, self.time + 1):
            return f"{own} (its licence is of when the bins below were relied on)"
        return f"{own} (by this bin alone, as bins below foretold bins above them badly)"

    def _alarms(self) -> list[int]:
        return list(self.table.dropped)

    def _left(self, snapshot: State) -> Evidence:
        """What alarms and rises since have not dropped."""
        left = super()._left(snapshot)
        for field in ("offloads", "agreements"):
            pairs = zip(left[field], snapshot["alarms"], self.table.dropped, strict=True)
            left[field] = [value if before == now else 0.0 for value, before, now in pairs]
        return left

    def _recounted(self) -> None:
        recount_misfit(self.table, self.time + 1)

    def _refresh(self) -> None:
        super()._refresh()
        table, owner = self.table, type(self).__name__
        for bin in range(self.bins):
            past = max(table.arrivals[bin], table.audited[bin], table.unaudited[bin])
            if table.left[bin] > table.granted[bin] or past > self.time or table.audited_at[bin] >= 1.0:
                raise InvalidState(f"{owner}: state has an impossible licence for bin {bin}")
        counts = [list(table.dropped), *(snapshot["alarms"] for snapshot in self._merged.values())]
        if any(len(dropped) != self.bins for dropped in counts):
            raise InvalidState(f"{owner}: state must count what was dropped for {self.bins} bins")
        if max(table.since[0], *(max(dropped) for dropped in counts)) > self.time:
            raise InvalidState(f"{owner}: state has an alarm from the future")
