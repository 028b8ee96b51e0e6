"""Probation: the default policy. Three constants, no horizon, no assumption that it cannot drop.

A local answer costs 1 if the remote model would have disagreed; an offload costs γ, and only an offload shows who
agrees. A bin is worth accepting if local and remote agree in more than a share q = 1 - γ of its samples (break-even).

**In a paragraph.** A bin is accepted while it holds a *licence*: a number of its own samples, counted down. The sample
after a licence is offloaded, which audits the bin; every offload is written to the bin's own *record*, and decides how
long the next licence is. A bin whose own record is below break-even gets none. The bins below may *testify* for it,
since agreement usually rises with confidence, but testimony only buys probation: trials in proportion to the bin's own
offloads and to what these vouch for, and the fewer, the more often testimony has misled. No licence is longer than
audits are worth, and audits grow rare like 1/√t. A record is on trial itself: once break-even predicts its bin's
offloads better, it is dropped; and once agreement seems to have fallen everywhere, all records are.

**Formulas.** n, a: offloads and agreements in a bin's record; m: the bin's samples since the record began; τ: samples
of all bins since all records were dropped. Half an agreement and half a disagreement are added to a record (Krichevsky
and Trofimov), so that it predicts p = (a + ½) / (n + 1), and speaks for accepting by

    e(n, a) = (n + 1) kl(p, q) nats where a > q n and p > q, else 0;     kl(p, q) = p ln(p/q) + (1-p) ln((1-p)/(1-q))

Testimony for bin i is the strongest evidence of the bins j … i together, over all j: E = e(N, A) with their sums N, A.
After every offload of a bin with a ≥ q n, it is granted

    min( N (e^E - 1) - m,              the evidence holds: E > ln(1 + m/N) while the licence lasts, as in KL-UCB
         SCALE √((1-q) τ) / q,         audits stay worth their price: all of them cost at most 2 q √((1-q) τ) / SCALE
         SCALE (1 + n) e^(e(n,a) - M)  probation
       ) · e^-W                        the less, the likelier it is that the bin has changed

samples. W, V and M are Page's sums (Biometrika 1954): the log-likelihood ratio of two predictions of each offload,
started again from 0 whenever it is negative.

- W, of a bin: break-even against its record. Above DOUBT + ln(n + 1) the record is dropped. It notices falls of
  accepted bins and rises of offloaded ones alike.
- V, of all bins: FALL times what the record predicts against the record. Above DOUBT + ln(offloads since the last time)
  all records are dropped. Offloads of bins that are never accepted cost nothing here, and most are of those.
- M, of all bins to which testimony was in favour: break-even against the testified mean A/N. So lies about many bins
  are paid for once.

**In flight.** Feedback may come late. An audit grants the last licence again, never a longer one, and its feedback
replaces it: a bin that is licensed goes on as licensed while audits are under way.

**Prices told for one sample** decide that sample only: it is accepted iff the bin's samples since its last offload are
fewer than the licence that its record bears at that price. They neither cut nor spend licences.

**A price that moves** moves q. Records and sums are about agreement and stay. Licences were granted for a break-even:
where the price has moved by MOVED, they are cut to what the records bear now, and never lengthened, as the next audit
grants anew. What a budget adds to the price cuts nothing.

**Proved** (docs/probation.md): an overconfident bin costs O(log T) between drops, whatever others testify; audits of
all bins together cost 2 q √(γT) / SCALE at most; an accepted bin that falls costs about SCALE √(γt) until an audit
disagrees, and no policy can trade these two better than by a factor 2.
"""

from math import exp, expm1, log, sqrt
from typing import NamedTuple

from hinge._columns import Reals, Wholes, quick_column, real_column, whole_column
from hinge.cells import CellTable, count_samples
from hinge.errors import InvalidState
from hinge.policies.evidence import page, predicted, support
from hinge.policies.policy import (
    ACCEPTED,
    DROPPED,
    DROPPED_ALL,
    KEPT,
    Decision,
    Explanation,
    Functions,
    Policy,
    from_cells,
)

SCALE = 20.0  # samples on probation before the first own offload counts; and the price of audits against that of lies
DOUBT = 3.0  # nats: a record that is right is dropped with a chance of about e^-3 ln n in n offloads
FALL = 0.75  # the fall of agreement, everywhere, that is watched for
MOVED = 0.02  # of the price
LEAST = 1e-6  # a price is taken for at least this, and for at most 1 less this
LONGEST = 2**52  # samples: the licence where offloads never pay; counts beyond it would not be exact in a float
CERTAIN = 40.0  # nats; e^40 samples are for ever
FALLEN, MISLED, LEARNED, BEGUN, EARLIER, CUT_AT = 0, 1, 2, 3, 4, 5  # the entries of `sums`


class ProbationTable(NamedTuple):
    """What Probation knows. All but `price` and `sums` are by bin."""

    offloads: Reals  # n
    agreements: Reals  # a
    samples: Reals  # m, and those that the licence still holds
    left: Wholes  # samples that the licence still holds
    granted: Wholes  # samples that it held at first
    passed: Wholes  # samples accepted since the last offload without using the licence
    changed: Reals  # W
    predicted: Reals  # the mean by which others testified; 0: they did not
    sums: (
        Reals  # V, M, offloads since all records were dropped, that time, samples of others; the price of the last cut
    )
    price: Reals  # what an offload costs, with what a budget adds to that
    dropped: Wholes  # how often records were dropped: of one bin, of all


def break_even(price: float) -> float:
    """Return q for a price, kept away from 0 and 1."""
    return 1.0 - min(max(price, LEAST), 1.0 - LEAST)


def testify(table: ProbationTable, bin: int, q: float) -> tuple[float, float, float]:
    """Return the strongest evidence of neighbours up to a bin, the offloads it rests on, and their mean."""
    strongest, number, mean, n, a = 0.0, 0.0, 0.0, 0.0, 0.0
    for below in range(bin, -1, -1):
        n += table.offloads[below]
        a += table.agreements[below]
        evidence = support(n, a, q)
        if evidence > strongest:
            strongest, number, mean = evidence, n, predicted(n, a)
    return strongest, number, mean


def grant(table: ProbationTable, bin: int, seen: float, price: float, now: int) -> int:
    """Return how many samples of a bin may be accepted, of which `seen` came in its record, at a price.

    Sets the mean by which the bins below testified.
    """
    n, a, q = table.offloads[bin], table.agreements[bin], break_even(price)
    table.predicted[bin] = 0.0
    if price >= 1.0:
        return LONGEST
    if a < q * n:
        return 0
    evidence, number, mean = testify(table, bin, q)
    if evidence <= 0.0:
        return 0
    held = number * expm1(min(evidence, CERTAIN)) - seen
    audits = SCALE * sqrt((1.0 - q) * (now - table.sums[BEGUN] + table.sums[EARLIER])) / q
    probation = SCALE * (1.0 + n) * exp(min(support(n, a, q) - table.sums[MISLED], CERTAIN))
    samples = min(held, audits, probation) * exp(-table.changed[bin])
    if samples <= 0.0:
        return 0
    table.predicted[bin] = mean
    return max(int(samples), 1)


def decide_probation(table: ProbationTable, bin: int, time: int) -> bool:
    """Offload what has no licence."""
    return table.left[bin] <= 0


def accept_licensed(table: ProbationTable, bin: int, time: int) -> None:
    """Use one sample of the licence."""
    table.left[bin] -= 1


def pass_by(table: ProbationTable, bin: int, time: int) -> None:
    """Count a sample that was accepted, but not by its licence."""
    table.passed[bin] += 1
    table.samples[bin] += 1.0


def ask_audit(table: ProbationTable, bin: int, time: int) -> None:
    """Grant the last licence again, until the feedback of this audit comes."""
    table.samples[bin] += table.granted[bin] - table.left[bin]
    table.left[bin] = table.granted[bin]
    table.passed[bin] = 0


def decide_told(table: ProbationTable, bin: int, time: int, price: float) -> bool:
    """Offload unless the licence that the record bears at this price is longer than the time since the last offload."""
    since = table.granted[bin] - table.left[bin] + table.passed[bin]
    mean = table.predicted[bin]
    samples = grant(table, bin, table.samples[bin] - table.granted[bin] - table.passed[bin], price, time)
    table.predicted[bin] = mean
    return since >= samples


def drop(table: ProbationTable, bin: int) -> None:
    """Forget the record of a bin, but not the licence that is running."""
    table.offloads[bin] = table.agreements[bin] = table.changed[bin] = table.predicted[bin] = 0.0
    table.samples[bin] = table.left[bin]
    table.dropped[0] += 1


def drop_all(table: ProbationTable, time: int) -> None:
    """Forget everything but how often that was done."""
    for bin in range(len(table.left)):
        table.offloads[bin] = table.agreements[bin] = table.changed[bin] = table.predicted[bin] = 0.0
        table.samples[bin] = 0.0
        table.left[bin] = table.granted[bin] = table.passed[bin] = 0
    table.sums[FALLEN] = table.sums[MISLED] = table.sums[LEARNED] = table.sums[EARLIER] = 0.0
    table.sums[BEGUN] = time
    table.dropped[1] += 1


def learn_probation(table: ProbationTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Write an offload to the record of its bin, and replace the bin's licence."""
    price, sums = table.price[0], table.sums
    q, p = break_even(price), predicted(table.offloads[bin], table.agreements[bin])
    sums[LEARNED] += 1.0
    table.changed[bin] = page(table.changed[bin], agreed, q, p)
    sums[FALLEN] = page(sums[FALLEN], agreed, FALL * p, p)
    if table.predicted[bin] > 0.0:
        sums[MISLED] = page(sums[MISLED], agreed, q, table.predicted[bin])
    outcome = KEPT
    if sums[FALLEN] > DOUBT + log(sums[LEARNED]):
        outcome = DROPPED_ALL
        drop_all(table, now - 1)
        sums[LEARNED] = 1.0
    elif table.changed[bin] > DOUBT + log(table.offloads[bin] + 1.0):
        outcome = DROPPED
        drop(table, bin)
    table.offloads[bin] += 1.0
    table.agreements[bin] += agreed
    seen = table.samples[bin] - table.left[bin] + 1.0
    license_bin(table, bin, seen, grant(table, bin, seen, price, now))
    return outcome


def license_bin(table: ProbationTable, bin: int, seen: float, samples: int) -> None:
    """Give a bin a licence in place of that which it has."""
    table.samples[bin] = seen + samples
    table.left[bin] = table.granted[bin] = samples
    table.passed[bin] = 0


def reprice_probation(table: ProbationTable, price: float, extra: float, time: int) -> None:
    """Set what an offload costs and what a budget adds; cut licences where the cost has moved."""
    table.price[0] = price + extra
    if abs(price - table.sums[CUT_AT]) <= MOVED * price:
        return
    table.sums[CUT_AT] = price
    for bin in range(len(table.left)):
        if table.left[bin] > 0:
            seen = table.samples[bin] - table.left[bin]
            samples = min(table.left[bin], grant(table, bin, seen, price + extra, time))
            table.samples[bin] = seen + samples
            table.granted[bin] -= table.left[bin] - samples
            table.left[bin] = samples


def regroup_probation(table: ProbationTable, cells: CellTable, time: int) -> None:
    """Take over the records of bins formed anew; licences follow the samples, cut to what the new records bear."""
    bins = len(table.left)
    for bin in range(bins):  # what is left of a licence for each sample of the old bin, and what was granted
        held = cells.held[bin]
        cells.rest[bin] = table.left[bin] / held if held > 0.0 else 0.0
        cells.whole[bin] = table.granted[bin] / held if held > 0.0 else 0.0
        table.samples[bin] = table.changed[bin] = table.predicted[bin] = 0.0
        table.left[bin] = table.granted[bin] = table.passed[bin] = 0
    from_cells(cells, table.offloads, table.agreements)
    left, granted = cells.held, table.samples  # room for sums
    for bin in range(bins):
        left[bin] = 0.0
    for cell in range(len(cells.group)):
        bin, before, samples = cells.group[cell], cells.before[cell], cells.samples[cell]
        left[bin] += cells.rest[before] * samples
        granted[bin] += cells.whole[before] * samples
    count_samples(cells, cells.rest)
    for bin in range(bins):
        seen, once = cells.rest[bin], int(granted[bin])
        table.samples[bin] = seen
        if table.offloads[bin] > 0.0:
            most = grant(table, bin, seen, table.price[0], time)
            license_bin(table, bin, seen, min(most, int(left[bin])))
            more = max(0, min(most, once) - table.granted[bin])
            table.granted[bin] += more
            table.passed[bin] = 0


class Probation(Policy):
    """Accept a bin while its licence lasts; see the module.

    >>> policy = Probation(bins=16, offload_cost=0.5)
    >>> for sample in range(12):
    ...     decision = policy.decide(10 + sample % 3)
    ...     if decision.offload:
    ...         _ = policy.learn(decision, agreed=True)
    >>> print(policy.explain(11))
    Bin 11 is accepted for 17 more samples: 2 of 2 agreed, and 3 of 3 in the bins below.
    """

    name = "probation"
    evidence = ("offloads", "agreements")
    saved: tuple[str, ...] = (
        "samples",
        "left",
        "granted",
        "passed",
        "changed",
        "predicted",
        "sums",
        "price",
        "dropped",
    )

    def __init__(self, bins: int = 16, offload_cost: float = 0.5) -> None:
        super().__init__(bins, offload_cost)
        bins, cost = self.bins, self.offload_cost or 0.0
        self.table = ProbationTable(
            offloads=real_column(bins),
            agreements=real_column(bins),
            samples=real_column(bins),
            left=quick_column(bins),
            granted=whole_column(bins),
            passed=whole_column(bins),
            changed=real_column(bins),
            predicted=real_column(bins),
            sums=real_column(6),
            price=real_column(1, cost),
            dropped=whole_column(2),
        )
        self.table.sums[CUT_AT] = cost
        self.functions = FUNCTIONS
        self._left = self.table.left  # one attribute lookup fewer for each sample

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        left = self._left
        try:
            samples = left[bin]
            if samples and bin >= 0 and cost is None:
                left[bin] = samples - 1
                self.time += 1
                return ACCEPTED
        except (TypeError, IndexError):
            pass  # not a bin, which is said below
        return super().decide(bin, cost)

    def explain(self, bin: int) -> Explanation:
        left, q = self.table.left[self._checked_bin(bin)], break_even(self.table.price[0])
        seen = self._seen(bin)
        if left >= LONGEST // 2:
            return self._explained(bin, 0.0, f"Bin {bin} is accepted: a wrong answer costs no more than an offload.")
        if left:
            reason = f"Bin {bin} is accepted for {left} more sample{'s' * (left != 1)}: {seen}{self._testified(bin)}."
            return self._explained(bin, 0.0, reason, left)
        if self.table.granted[bin]:
            reason = f"Bin {bin} is due for an audit: {seen}."
        elif self.table.offloads[bin] and self.table.agreements[bin] < q * self.table.offloads[bin]:
            reason = f"Bin {bin} is offloaded: {seen}; accepting pays above {100 * q:.3g} %."
        else:
            reason = f"Bin {bin} is offloaded: {seen}; too few to tell whether accepting pays."
        return self._explained(bin, 1.0, reason, 0)

    def _testified(self, bin: int) -> str:
        n, a = sum(self.table.offloads[:bin]), sum(self.table.agreements[:bin])
        return f", and {a:g} of {n:g} in the bins below" if n else ""

    def recount(self, samples: float) -> None:
        table = self.table
        table.sums[EARLIER] += max(0.0, samples)
        for bin in range(self.bins):
            table.samples[bin] = max(table.samples[bin], table.offloads[bin])
            if table.granted[bin] == 0 and table.offloads[bin] > 0.0:  # what is licensed goes on until its audit
                seen = table.samples[bin]
                license_bin(table, bin, seen, grant(table, bin, seen, table.price[0], self.time))

    @property
    def alarms(self) -> dict[str, int]:
        return {"agreement fell": int(self.table.dropped[1])}

    def _check_table(self) -> None:
        table, owner = self.table, type(self).__name__
        for bin in range(self.bins):
            if table.left[bin] > table.granted[bin] or table.predicted[bin] >= 1.0:
                raise InvalidState(f"{owner}: state has an impossible licence for bin {bin}")
        if table.sums[BEGUN] > self.time or not 0.0 <= table.sums[CUT_AT] <= 1.0:
            raise InvalidState(f"{owner}: state has an impossible clock or price")


FUNCTIONS = Functions(
    offloads=decide_probation,
    learns=learn_probation,
    accepts=accept_licensed,
    asks=ask_audit,
    passes=pass_by,
    offloads_at=decide_told,
    reprices=reprice_probation,
    regroups=regroup_probation,
)
