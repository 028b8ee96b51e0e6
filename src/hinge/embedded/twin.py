"""Probation, HI-LCB and HI-LCB-lite in the whole numbers of `hinge.h`, step for step.

The C must decide as these do, bit for bit. Probation's logarithms are to base 2, in units of 2^-14; HI-LCB's fractions
are in units of 2^-32. The limits are those that `hinge.h` states. Agreement is yes or no, and the price is fixed.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from hinge._checks import real, whole
from hinge.bins import Bins, EdgeBins, FittedBins, UniformBins
from hinge.errors import InvalidType, InvalidValue
from hinge.gate import Gate
from hinge.policies import HILCB, ExpiryPolicy, HILCBLite, Policy, Probation
from hinge.policies.hi_lcb import COUNT, SUM
from hinge.policies.probation import BEGUN, EARLIER, FALLEN, LEARNED, MISLED

MOST_BINS = 255  # a bin is a byte, and one value is left for a bin too high
CLOCK_END = 2**31  # where the clock stops
LATEST = 2**32 - 1  # the latest expiry, and the longest licence in a table


# -- Probation --------------------------------------------------------------------------------------------------------

LG_ONE = 2**14  # the unit of logarithms
LG_SCALE, DOUBT, LG_FALL = 70810, 70909, -6800  # log2 of 20, 3 nats, log2 of 3/4
COUNTED = 8192  # offloads of a record at which it is halved
MOST_SEEN = 2**29  # samples of a record that are counted
LONGEST = 2**30  # samples of a licence
MOST_EVIDENCE, LOUDEST = 30 * LG_ONE, 6 * LG_ONE


def lg(x: int) -> int:
    """Return log2 x of 0 < x < 2^16, at most 2 units too low: it rises with x, and doubling x adds `LG_ONE`.

    >>> lg(1), lg(2**20) == 20 * LG_ONE, lg(3) - round(math.log2(3) * LG_ONE)
    (0, True, -1)
    """
    total = 15 * LG_ONE
    while x >= 2**16:
        x >>= 1
        total += LG_ONE
    while x < 2**15:
        x <<= 1
        total -= LG_ONE
    bit = LG_ONE >> 1
    while bit:
        x = x * x >> 15
        if x >= 2**16:
            x >>= 1
            total += bit
        bit >>= 1
    return total


def power(y: int) -> int:
    """Return 2^y, to 0.4 % and to a whole number; at most 2^30.

    >>> power(-1), power(0), power(10 * LG_ONE), power(10 * LG_ONE + LG_ONE // 2), power(2**30) == 2**30
    (0, 1, 1024, 1448, True)
    """
    if y < 0:
        return 0
    if y >= MOST_EVIDENCE:
        return LONGEST
    whole, f = y // LG_ONE, y >> 2 & 4095
    m = 4096 + (f * (2689 + (1407 * f >> 12)) >> 12)
    return m >> 12 - whole if whole < 12 else m << whole - 12


class Record(NamedTuple):
    """What the C keeps of a bin with Probation; a fresh one is all zeros."""

    left: int = 0
    granted: int = 0
    samples: int = 0
    changed: int = 0
    offloads: int = 0
    agreements: int = 0
    foretold: int = 0


class ProbationTwin:
    """Probation as a microcontroller runs it; see `hinge.policies.probation` for what the steps mean.

    >>> twin = ProbationTwin(bins=16, offload_cost=0.5)
    >>> for _ in range(100):
    ...     if twin.decide(11):
    ...         twin.learn(11, True)
    >>> twin.bins[11].offloads, twin.bins[11].left
    (6, 19)
    """

    name = Probation.name

    def __init__(self, bins: int = 16, offload_cost: float = 0.5) -> None:
        bins = whole("microcontroller", "bins", bins, 1, MOST_BINS)
        cost = real("microcontroller", "offload_cost", offload_cost, 0, 1)
        if not 0.0 < cost < 1.0:
            raise InvalidValue("microcontroller", "offload_cost", f"must be above 0 and below 1, got {offload_cost!r}")
        price = min(max(round(cost * 2**16), 1), 2**16 - 1)
        self.break_even = 2**16 - price
        self.lg_break_even = round(math.log2(self.break_even / 2**16) * LG_ONE)
        self.lg_cost = round(math.log2(price / 2**16) * LG_ONE)
        self.lg_audit = LG_SCALE + round(self.lg_cost / 2) - self.lg_break_even
        self.bins = [Record()] * bins
        self.time = self.learned = self.fallen = self.misled = 0

    @property
    def settings(self) -> dict[str, str]:
        """The settings of `hinge.h`, without their prefix."""
        return {
            "BINS": f"{len(self.bins)}",
            "PROBATION": "",
            "BREAK_EVEN": f"{self.break_even}u",
            "LG_BREAK_EVEN": f"({self.lg_break_even})",
            "LG_COST": f"({self.lg_cost})",
            "LG_AUDIT": f"({self.lg_audit})",
        }

    @property
    def state(self) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        """What the C keeps: of all bins, and of each."""
        return (self.time, self.learned, self.fallen, self.misled), self.bins

    def decide(self, bin: int) -> bool:
        """Return whether to offload the next sample of a bin."""
        self.time = min(self.time + 1, CLOCK_END)
        of = self.bins[bin]
        if of.left:
            self.bins[bin] = of._replace(left=of.left - 1)
            return False
        samples = of.samples + of.granted if of.samples < 2 * MOST_SEEN else of.samples
        self.bins[bin] = of._replace(samples=samples, left=of.granted)
        return True

    def learn(self, bin: int, agreed: bool) -> None:
        """Learn whether local agreed with remote in an offload of a bin."""
        of = self.bins[bin]
        all, hits = 2 * of.offloads + 2, 2 * of.agreements + 1
        predicted = lg(hits if agreed else all - hits)
        fell = LG_FALL if agreed else lg(4 * all - 3 * hits) - 2 * LG_ONE - predicted
        self.fallen = max(self.fallen + fell, 0)
        needed = self.lg_break_even if agreed else self.lg_cost
        of = of._replace(changed=max(of.changed + needed - (predicted - lg(all)), 0))
        if of.foretold:
            foretold = lg(of.foretold if agreed else 2**16 - of.foretold) - 16 * LG_ONE
            self.misled = max(self.misled + needed - foretold, 0)
        self.learned = min(self.learned + 1, CLOCK_END)
        if self.fallen > DOUBT + lg(self.learned):
            of = Record()
            self.bins[:] = [of] * len(self.bins)
            self.time, self.learned, self.fallen, self.misled = 1, 1, 0, 0
        elif of.changed > DOUBT + lg(of.offloads + 1):
            of = Record(of.left, of.granted, of.left)
        n, a, seen = of.offloads, of.agreements, of.samples - of.left + 1
        if n >= COUNTED:
            n, a, seen = n >> 1, a >> 1, seen >> 1
        seen = min(seen, MOST_SEEN)
        self.bins[bin] = of._replace(offloads=n + 1, agreements=a + agreed)
        samples, foretold = self._licence(bin, seen)
        self.bins[bin] = self.bins[bin]._replace(
            left=samples, granted=samples, samples=seen + samples, foretold=foretold
        )

    def _evidence(self, n: int, a: int) -> int:
        """Return (n + 1) kl((a + ½) / (n + 1), q) of a record whose mean exceeds q, else 0."""
        if a << 16 <= self.break_even * n:
            return 0
        hits, misses, all = 2 * a + 1, 2 * (n - a) + 1, lg(2 * n + 2)
        above, below = lg(hits) - all - self.lg_break_even, lg(misses) - all - self.lg_cost
        return min(max(hits * min(above, LOUDEST) + misses * below >> 1, 0), MOST_EVIDENCE) if above > 0 else 0

    def _licence(self, bin: int, seen: int) -> tuple[int, int]:
        """Return how many samples of a bin may be accepted, and the mean by which bins below testified."""
        of = self.bins[bin]
        if of.agreements << 16 < self.break_even * of.offloads:
            return 0, 0
        strongest, support, agreed, n, a = 0, 0, 0, 0, 0
        for below in reversed(self.bins[: bin + 1]):
            n, a = n + below.offloads, a + below.agreements
            while n > COUNTED:
                n, a = n >> 1, a >> 1
            evidence = self._evidence(n, a)
            if evidence > strongest:
                strongest, support, agreed = evidence, n, a
        held = power(strongest + lg(support)) - support - seen if strongest else 0
        if held <= 0:
            return 0, 0
        audits = self.lg_audit + (lg(self.time or 1) >> 1)
        probation = LG_SCALE + lg(of.offloads + 1) + self._evidence(of.offloads, of.agreements) - self.misled
        mean = power(lg(2 * agreed + 1) - lg(2 * support + 2) + 16 * LG_ONE)
        return max(power(min(lg(held), audits, probation) - of.changed), 1), min(mean, 2**16 - 1)


# -- HI-LCB and HI-LCB-lite -------------------------------------------------------------------------------------------

ONE = 2**32  # the unit of fractions
HALVED = 2**16  # offloads at which counts are halved

# 2^x - 1 = x (c1 + x (c2 + …)) for x in [0, 1), within 1.2e-7 of 2^x: the coefficients, last first.
TERMS = (0x007A5D40, 0x024EF0A6, 0x0E48E735, 0x3D7B6ADA, 0xB1725D47)


def high(x: int, y: int) -> int:
    """Return the upper half of a product of 32-bit numbers, or up to 2 less.

    >>> high(2**31, 6), high(2**16 + 1, 2**16 - 1)
    (3, 0)
    """
    x_high, y_high = x >> 16, y >> 16
    return x_high * y_high + ((x_high * (y & 0xFFFF)) >> 16) + (((x & 0xFFFF) * y_high) >> 16)


def power_above(whole: int, fraction: int) -> int:
    """Return the first whole number above 2^(whole + fraction), for whole < 32 and a fraction in units of 2^-32.

    >>> power_above(0, 0), power_above(3, 0), power_above(3, 2**31)
    (2, 9, 12)
    """
    power = 0
    for term in TERMS:
        power = high(power + term, fraction)
    return ((0x80000000 | (power >> 1)) >> (31 - whole)) + 1


class HILCBTwin:
    """HI-LCB-lite as a microcontroller runs it; with `monotone`, HI-LCB.

    >>> twin = HILCBTwin(bins=16, alpha=0.52, offload_cost=0.5)
    >>> sum(twin.decide(11) and not twin.learn(11, True) for _ in range(1000)), twin.own[11]
    (15, 1355)
    """

    def __init__(
        self, bins: int = 16, alpha: float = 0.52, offload_cost: float = 0.5, *, monotone: bool = False
    ) -> None:
        bins = whole("microcontroller", "bins", bins, 1, MOST_BINS)
        alpha = real("microcontroller", "alpha", alpha, 1e-4, 1e4)
        cost = real("microcontroller", "offload_cost", offload_cost, 0, 1)
        self.name = HILCB.name if monotone else HILCBLite.name
        self.monotone = monotone
        # The nearest constants that never license a bin that the parameters do not.
        self.threshold = min(math.ceil((1.0 - cost) * ONE), ONE - 1)
        rate = 1.0 / (alpha * math.log(2.0))
        self.shift = max(0, math.frexp(rate)[1])
        self.rate = min(int(math.ldexp(rate, 32 - self.shift)), ONE - 1)
        self.time = 0
        self.expiry, self.own, self.offloads, self.agreements = ([0] * bins for _ in range(4))

    @property
    def settings(self) -> dict[str, str]:
        """The settings of `hinge.h`, without their prefix."""
        numbers = {"THRESHOLD": f"{self.threshold}u", "RATE": f"{self.rate}u", "SHIFT": f"{self.shift}"}
        return {"BINS": f"{len(self.own)}", **numbers, **({"MONOTONE": ""} if self.monotone else {})}

    @property
    def state(self) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        """What the C keeps: of all bins, and of each."""
        columns = (self.expiry, self.offloads, self.agreements, *([self.own] if self.monotone else []))
        return (self.time,), list(zip(*columns, strict=True))

    def decide(self, bin: int) -> bool:
        """Return whether to offload the next sample of a bin."""
        self.time = min(self.time + 1, CLOCK_END)
        return self.time >= self.expiry[bin]

    def learn(self, bin: int, agreed: bool) -> None:
        """Learn whether local agreed with remote in an offload of a bin."""
        offloads, agreements = self.offloads[bin] + 1, self.agreements[bin] + agreed
        halved = offloads >= HALVED
        self.offloads[bin], self.agreements[bin] = offloads >> halved, agreements >> halved
        self.refresh(bin)

    def refresh(self, bin: int) -> None:
        """Find the expiry of a bin that was offloaded anew, and what it changes above."""
        self.own[bin] = self.expiry[bin] = self._licence(self.offloads[bin], self.agreements[bin])
        latest = 0
        for each, own in enumerate(self.own if self.monotone else ()):
            latest = max(latest, own)
            self.expiry[each] = latest if own else 0

    def _licence(self, offloads: int, agreements: int) -> int:
        """Return the first time after exp(n (f - q)² / α); 1 where f ≤ q."""
        surplus = min((agreements << 32) // offloads, ONE - 1) - self.threshold
        if surplus <= 0:
            return 1
        evidence = high(high(surplus, self.rate), surplus) * offloads
        whole = evidence >> (32 - self.shift)
        return LATEST if whole > 31 else power_above(whole, (evidence << self.shift) & 0xFFFFFFFF)


# -- bins, and what is known already ----------------------------------------------------------------------------------

Twin = ProbationTwin | HILCBTwin


def log_odds(confidence: int) -> int:
    """Return log2(c / (1 - c)) in units of 2^-10, for c in units of 2^-32.

    >>> [log_odds(int(c * 2**32)) for c in (0.0, 0.25, 0.5, 0.75)], log_odds(2**32 - 1)
    ([-32767, -1623, 0, 1622], 32767)
    """
    if confidence == 0:
        return -32767
    return max(-32767, min((lg(confidence) - lg(2**32 - confidence)) >> 4, 32767))


class DeviceBins(NamedTuple):
    """How a device sorts confidences: where its bins but the lowest begin, and which bins they are made of."""

    edges: list[int] | None  # in log-odds; None: bins are of equal width
    parts: list[list[int]]  # for each bin on the device, the bins here: several where their edges fall together


def device_bins(bins: Bins) -> DeviceBins:
    """Return how a device sorts confidences into bins, by edges in 16 bits of log-odds.

    >>> device_bins(EdgeBins([0.5, 0.50001, 0.9]))
    DeviceBins(edges=[0, 3246], parts=[[0], [1, 2], [3]])
    """
    if not isinstance(bins, UniformBins | EdgeBins | FittedBins):
        raise InvalidType("microcontroller", "bins", f"must be uniform, edges or fitted, got {bins!r:.200}")
    order = sorted(set(bins.cells.group)) if isinstance(bins, FittedBins) else list(range(bins.bins))
    edges, parts = list[int](), [order[:1]]
    for bin, edge in zip(order[1:], bins.edges, strict=True):
        begins = log_odds(min(math.ceil(edge * 2**32), 2**32 - 1))
        if isinstance(bins, UniformBins) or begins > (edges[-1] if edges else -32767):
            edges.append(begins)
            parts.append([])
        parts[-1].append(bin)
    whole("microcontroller", "bins", len(parts), 1, MOST_BINS)
    return DeviceBins(None if isinstance(bins, UniformBins) or not edges else edges, parts)


def twin_of(source: Policy | Gate) -> Twin:
    """Return the twin that starts from all that a policy, or a gate's, knows, at its present price.

    What its counters cannot hold is scaled down. Bins whose edges fall together have one record, and the shortest of
    their licences.

    >>> gate = Gate(offload_cost=0.5)
    >>> for sample in range(600):
    ...     decision = gate.decide(confidence=sample % 100 / 100)
    ...     if decision.offload:
    ...         gate.learn(decision, agreed=sample % 100 > 30)
    >>> twin = twin_of(gate)
    >>> len(twin.bins), sum(record.offloads for record in twin.bins) == gate.policy.learned
    (14, True)
    """
    policy = source.policy if isinstance(source, Gate) else source
    if isinstance(source, Gate) and source.budget is not None:
        raise InvalidValue("microcontroller", "budget", "must be None: a device keeps to a price")
    parts = device_bins(source.bins if isinstance(source, Gate) else UniformBins(policy.bins)).parts
    cost = source.offload_price if isinstance(source, Gate) else policy.offload_cost
    if isinstance(policy, Probation):
        return _probation_twin(policy, parts, 0.0 if cost is None else cost)
    if not isinstance(policy, HILCB | HILCBLite):
        known = "only probation, hi-lcb and hi-lcb-lite learn on a device"
        raise TypeError(f"{policy.name}: {known}; try 'hinge export table'")
    if isinstance(policy, HILCB) and not policy.offload_unseen:
        raise InvalidValue(policy.name, "offload_unseen", "must be True: a microcontroller offloads every bin once")
    table = policy.table
    if table.learned:
        if not table.costs[COUNT]:
            raise InvalidValue(policy.name, "offload_cost", "must be known, or have been measured, for a device")
        cost = table.costs[SUM] / table.costs[COUNT]
    twin = HILCBTwin(len(parts), policy.alpha, cost or 0.0, monotone=isinstance(policy, HILCB))
    twin.time = min(policy.time, CLOCK_END)
    for bin, part in enumerate(parts):
        counts = _summed(table.offloads, part), _summed(table.agreements, part)
        twin.offloads[bin], twin.agreements[bin] = _whole_counts(*counts, HALVED - 1)
        if twin.offloads[bin]:
            twin.refresh(bin)
    return twin


def _probation_twin(policy: Probation, parts: list[list[int]], cost: float) -> ProbationTwin:
    twin, table, sums = ProbationTwin(len(parts), cost), policy.table, policy.table.sums
    twin.time = min(int(policy.time - sums[BEGUN] + sums[EARLIER]), CLOCK_END)
    twin.learned, twin.fallen, twin.misled = int(sums[LEARNED]), _in_bits(sums[FALLEN]), _in_bits(sums[MISLED])
    for bin, part in enumerate(parts):
        left, granted = (min(LONGEST, *(column[each] for each in part)) for column in (table.left, table.granted))
        n, a = _whole_counts(_summed(table.offloads, part), _summed(table.agreements, part), COUNTED)
        seen = math.ceil(sum(table.samples[each] - table.left[each] for each in part))
        twin.bins[bin] = Record(
            left=left,
            granted=granted,
            samples=min(max(seen, n), MOST_SEEN) + left,
            changed=_in_bits(max(table.changed[each] for each in part)),
            offloads=n,
            agreements=a,
            foretold=min(int(2**16 * max(table.predicted[each] for each in part)), 2**16 - 1),
        )
    return twin


def table_of(source: Policy | Gate) -> tuple[list[int], list[list[int]]]:
    """Return what a device needs to decide as a policy, or a gate's, does now: the clock if it has one, and the bins.

    Where edges fall together, the shortest licence counts.
    """
    policy = source.policy if isinstance(source, Gate) else source
    parts = device_bins(source.bins if isinstance(source, Gate) else UniformBins(policy.bins)).parts
    if isinstance(policy, Probation):
        columns = policy.table.left, policy.table.granted
        return [], [[min(LATEST, *(column[bin] for bin in part)) for column in columns] for part in parts]
    if not isinstance(policy, ExpiryPolicy):
        raise TypeError(f"{policy.name}: has no table of licences or expiries")
    # What has expired must stay so, also on a clock that has stopped before it.
    ends = [min(policy.expiry(bin) for bin in part) for part in parts]
    return [min(policy.time, CLOCK_END)], [[0 if end <= policy.time + 1 else min(end, LATEST)] for end in ends]


def _summed(column: Sequence[float], part: list[int]) -> float:
    return sum(column[bin] for bin in part)


def _in_bits(nats: float) -> int:
    return round(nats / math.log(2.0) * LG_ONE)


def _whole_counts(offloads: float, agreements: float, most: int) -> tuple[int, int]:
    """Return at most so many offloads, and a sum over them whose mean is no higher than that given."""
    while math.ceil(offloads) > most:
        offloads, agreements = offloads / 2, agreements / 2
    return math.ceil(offloads - 1e-9), math.floor(agreements + 1e-9)
