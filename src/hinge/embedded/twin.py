"""HI-LCB, HI-LCB-lite and Sentinel in the arithmetic of `hinge.h`, step for step.

HI-LCB's is in whole numbers, with fractions in units of 2^-32; Sentinel's is in doubles, with a logarithm and a root of
its own. The C must decide as these policies do, bit for bit. They are policies like any other, on the same tables, so
that the simulator shows how far they are from the originals. The limits are those that `hinge.h` states.
"""

import math
import struct
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from hinge._checks import real, whole
from hinge.errors import InvalidValue
from hinge.gate import Gate
from hinge.policies import FOREVER, HILCB, HILCBLite, Policy, Sentinel, Wholes, isotonic, sentinel, whole_column
from hinge.policies.hi_lcb import HILCBBase

MOST_BINS = 255  # a bin is a byte, and one value is left for a bin too high
ONE = 2**32  # the unit of all fractions
LOWEST_ALPHA, HIGHEST_ALPHA = 1e-4, 1e4


class Constants(NamedTuple):
    """What the C and its twin compute with, as `hinge.h` explains it; the last is Sentinel's."""

    bins: int
    threshold: int  # 0 where the cost is learned
    rate: int
    shift: int
    break_even: float  # 0 where the cost is learned


def constants(bins: int, alpha: float, offload_cost: float | None) -> Constants:
    """The nearest constants that never license a bin that the parameters do not.

    >>> constants(bins=16, alpha=0.52, offload_cost=0.5)
    Constants(bins=16, threshold=2147483648, rate=2979003855, shift=2, break_even=0.5)
    >>> constants(bins=256, alpha=0.52, offload_cost=0.5)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: microcontroller: bins must be an integer from 1 to 255, got 256
    """
    bins = whole("microcontroller", "bins", bins, 1, MOST_BINS)
    alpha = real("microcontroller", "alpha", alpha, LOWEST_ALPHA, HIGHEST_ALPHA)
    threshold = 0 if offload_cost is None else min(math.ceil((1.0 - offload_cost) * ONE), ONE - 1)
    rate = 1.0 / (alpha * math.log(2.0))
    shift = max(0, math.frexp(rate)[1])
    rate_bits = min(int(math.ldexp(rate, 32 - shift)), ONE - 1)
    return Constants(bins, threshold, rate_bits, shift, 0.0 if offload_cost is None else 1.0 - offload_cost)


LATEST = 2**32 - 1  # the latest expiry

# 2^x - 1 = x (c1 + x (c2 + …)) for x in [0, 1), within 1.2e-7 of 2^x: the coefficients, last first.
TERMS = (0x007A5D40, 0x024EF0A6, 0x0E48E735, 0x3D7B6ADA, 0xB1725D47)


def high(x: int, y: int) -> int:
    """The upper half of a product of 32-bit numbers, or up to 2 less.

    >>> high(2**31, 6), high(2**16 + 1, 2**16 - 1)
    (3, 0)
    """
    x_high, y_high = x >> 16, y >> 16
    return x_high * y_high + ((x_high * (y & 0xFFFF)) >> 16) + (((x & 0xFFFF) * y_high) >> 16)


def power_above(whole: int, fraction: int) -> int:
    """The first whole number above 2^(whole + fraction), for whole < 32 and a fraction in units of 2^-32.

    >>> power_above(0, 0), power_above(3, 0), power_above(3, 2**31)
    (2, 9, 12)
    """
    power = 0
    for term in TERMS:
        power = high(power + term, fraction)
    return ((0x80000000 | (power >> 1)) >> (31 - whole)) + 1


def share_of(part: int, all: int) -> int:
    """part / all by long division, for part ≤ all < 2^31; 1 itself becomes the largest number below it.

    >>> share_of(1, 2) == 2**31, share_of(3, 3) == 2**32 - 1
    (True, True)
    """
    share = 0
    for _ in range(32):
        part <<= 1
        share <<= 1
        if part >= all:
            part -= all
            share += 1
    return share


def root_of(square: int) -> int:
    """The square root of a fraction, in units of 2^-16.

    >>> root_of(2**30) == 2**15, root_of(2**32 - 1)
    (True, 65535)
    """
    root, bit = 0, 1 << 30
    while bit > 0:
        above = root + bit
        root >>= 1
        if square >= above:
            square -= above
            root += bit
        bit >>= 2
    return root


def licence(surplus: int, offloads: int, rate: int, shift: int) -> int:
    """The first time after exp(n s² / α), for a surplus s > 0 of a bin with n offloads."""
    evidence = high(high(surplus, rate), surplus) * offloads
    whole = evidence >> (32 - shift)
    if whole > 31:
        return LATEST
    return power_above(whole, (evidence << shift) & 0xFFFFFFFF)


CLOCK_END = 2**31  # where the clock stops
COUNTED = 2**16  # offloads at which counts are halved
SUMMED = 2**24  # those of Sentinel, which adds up counts of 255 bins in 32 bits
COST_UNIT = 2**15  # what one costs, as the sum of the costs is kept


class FixedTable(NamedTuple):
    """The C's state, and the constants that it is compiled with."""

    offloads: Wholes
    agreements: Wholes
    costs: Wholes  # all offloads, and what they cost in units of 2^-15 (learned cost)
    expiry: Wholes
    own: Wholes  # the expiry that a bin's own offloads give it; 0: it has none
    monotone: bool
    threshold: int
    rate: int
    shift: int


def known_licence(table: FixedTable, bin: int) -> int:
    """The first time after exp(n (f - q)² / α) of a bin that has been offloaded; 1 where f ≤ q."""
    share = share_of(table.agreements[bin], table.offloads[bin])
    if share <= table.threshold:
        return 1
    return licence(share - table.threshold, table.offloads[bin], table.rate, table.shift)


def learned_licence(table: FixedTable, bin: int, threshold: int) -> int:
    """The first time after exp(((f + c - 1) / (1/√n + 1/√m))² / α), for a threshold of 1 - c; 1 where f ≤ 1 - c."""
    surplus = share_of(table.agreements[bin], table.offloads[bin])
    if surplus <= threshold:
        return 1
    smaller, larger = table.offloads[bin], table.costs[0]
    if smaller > larger:
        smaller, larger = larger, smaller
    damping = share_of(65536, 65536 + root_of(share_of(smaller, larger)))
    return licence(high(surplus - threshold, damping), smaller, table.rate, table.shift)


def count_whole(table: FixedTable, bin: int, agreed: float) -> None:
    """Add one offload; counts that are full are halved. An answer that was wrong at a price did not agree."""
    offloads = table.offloads[bin] + 1
    agreements = table.agreements[bin] + (1 if agreed >= 1.0 else 0)
    halved = 1 if offloads >= COUNTED else 0
    table.offloads[bin], table.agreements[bin] = offloads >> halved, agreements >> halved


def offloads_fixed(table: FixedTable, bin: int, time: int) -> bool:
    """Offload iff the bin holds no licence at that time; the clock stops at its end."""
    return bool(min(time, CLOCK_END) >= table.expiry[bin])


def learn_fixed(table: FixedTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Renew or withdraw the licences on which an offload bears: all of them, where its cost is learned."""
    count_whole(table, bin, agreed)
    if len(table.costs) > 0:
        offloads, costs = table.costs[0] + 1, table.costs[1] + int(cost * COST_UNIT + 0.5)
        halved = 1 if offloads >= COUNTED else 0
        table.costs[0], table.costs[1] = offloads >> halved, costs >> halved
        rebuild_fixed(table)
    else:
        table.own[bin] = known_licence(table, bin)
        spread_fixed(table)


def rebuild_fixed(table: FixedTable) -> None:
    """Find every licence anew."""
    learned, threshold = len(table.costs) > 0, table.threshold
    if learned and table.costs[0] > 0:
        threshold = 0xFFFFFFFF - share_of(table.costs[1], table.costs[0] * COST_UNIT)
    for bin in range(len(table.own)):
        if table.offloads[bin] == 0:
            table.own[bin] = 0
        elif learned:
            table.own[bin] = learned_licence(table, bin, threshold)
        else:
            table.own[bin] = known_licence(table, bin)
    spread_fixed(table)


def spread_fixed(table: FixedTable) -> None:
    """Give each bin that was seen its own expiry; for HI-LCB the latest of those up to its own."""
    latest = 0
    for bin in range(len(table.own)):
        latest = max(latest, table.own[bin]) if table.monotone else table.own[bin]
        table.expiry[bin] = latest if table.own[bin] > 0 else 0


class _InWholeNumbers(HILCBBase):
    def __init__(self, bins: int = 16, alpha: float = 0.52, offload_cost: float | None = None) -> None:
        super().__init__(bins, alpha, offload_cost)
        self.constants = constants(bins, alpha, offload_cost)
        table = FixedTable(
            offloads=whole_column(self.bins),
            agreements=whole_column(self.bins),
            costs=whole_column(2 if offload_cost is None else 0),
            expiry=whole_column(self.bins),
            own=whole_column(self.bins),
            monotone=self.assumes_monotone,
            threshold=self.constants.threshold,
            rate=self.constants.rate,
            shift=self.constants.shift,
        )
        self.start(table, offloads=offloads_fixed, learns=learn_fixed, rebuilds=rebuild_fixed)

    def expiry(self, bin: int) -> int:
        expiry = super().expiry(bin)
        return FOREVER if expiry > CLOCK_END else expiry


class LiteTwin(_InWholeNumbers, HILCBLite):
    """HI-LCB-lite as a microcontroller runs it.

    >>> twin = LiteTwin(bins=16, alpha=0.52, offload_cost=0.5)
    >>> for _ in range(12):
    ...     decision = twin.decide(11)
    ...     if decision.offload:
    ...         twin.learn(decision, agreed=True)
    >>> print(twin.explain(11))
    Bin 11 is accepted: local agreed in 6 of 6 offloads; checked again in 5 samples.
    """


class MonotoneTwin(_InWholeNumbers, HILCB):
    """HI-LCB as a microcontroller runs it."""


ROOT_HALF, LOG_TWO = 0.7071067811865476, 0.6931471805599453
LOG_TERMS = tuple(1.0 / odd for odd in range(21, 0, -2))
LONGEST = 2**31 - 1  # the longest licence where Sentinel learns


def log(x: float) -> float:
    """The logarithm: x = 2^k m with √½ ≤ m < √2, and log m = 2 (s + s³/3 + s⁵/5 + …) with s = (m - 1) / (m + 1).

    >>> log(1.0), abs(log(10.0) - math.log(10.0)) < 1e-15
    (0.0, True)
    """
    m, k = math.frexp(x)
    if m < ROOT_HALF:
        m, k = 2.0 * m, k - 1
    s = (m - 1.0) / (m + 1.0)
    square, total = s * s, 0.0
    for term in LOG_TERMS:
        total = total * square + term
    return k * LOG_TWO + 2.0 * s * total


def log1p(x: float) -> float:
    """log(1 + x), to 1e-16 and not to so many digits: it is added to evidence."""
    return log(1.0 + x)


def sqrt(x: float) -> float:
    """The square root by Newton's method, from an estimate that halves the exponent.

    >>> sqrt(4.0), abs(sqrt(10.0) - math.sqrt(10.0)) < 1e-15
    (2.0, True)
    """
    bits = struct.unpack("<Q", struct.pack("<d", x))[0]
    root: float = struct.unpack("<d", struct.pack("<Q", (bits >> 1) + 0x1FF8000000000000))[0]
    for _ in range(4):
        root = 0.5 * (root + x / root)
    return root


def divergence(p: float, q: float) -> float:
    """kl(p, q), as written: where p is near q it loses digits that no decision needs."""
    return p * log(p / q) + (1.0 - p) * log((1.0 - p) / (1.0 - q))


def _in_our_arithmetic() -> dict[str, Any]:
    """Sentinel's functions: the same code, that finds the functions above in place of Python's."""
    ours = {"math": SimpleNamespace(log=log, log1p=log1p, sqrt=sqrt), "divergence": divergence}
    bounds = {"FOREVER": LONGEST, "MOST_SAMPLES": LONGEST - 1}
    names: dict[str, Any] = {**vars(isotonic), **vars(sentinel), **ours, **bounds}
    for name, value in names.items():
        if isinstance(value, FunctionType) and value.__module__ in (isotonic.__name__, sentinel.__name__):
            names[name] = FunctionType(value.__code__, names, name, value.__defaults__, value.__closure__)
    return names


_SENTINEL = _in_our_arithmetic()


def learn_next(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Learn as Sentinel, but not told when it was decided: an audit's feedback is the first that comes after it."""
    _SENTINEL["learn_watched"](table, bin, 1.0 if agreed >= 1.0 else 0.0, cost, table.audited[bin] or time, now)


class SentinelTwin(Sentinel):
    """Sentinel as a microcontroller runs it, for a cost that is known and above 0 and below 1."""

    def __init__(self, bins: int = 16, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        self.constants = constants(bins, sentinel.ALPHA, offload_cost)
        if not 0.0 < self.constants.break_even < 1.0:
            raise InvalidValue("sentinel", "offload_cost", "must be known, above 0 and below 1, to learn on a device")
        names = ("offloads_watched", "rebuild_watched", "note_offload", "accept_counted")
        offloads, rebuilds, notes, accepts = (_SENTINEL[name] for name in names)
        self.start(
            self.table,
            offloads=offloads,
            learns=learn_next,
            rebuilds=rebuilds,
            notes=notes,
            price=self.table.price,
            accepts=accepts,
        )


Twin = LiteTwin | MonotoneTwin | SentinelTwin


def twin_of(source: Policy | Gate) -> Twin:
    """The twin that starts from all that a policy, or a gate's, knows; what its counters cannot hold is scaled down.

    >>> policy = HILCBLite(bins=2, offload_cost=0.5)
    >>> policy.learn(policy.decide(1), agreed=True)
    >>> twin_of(policy).expiry(1) == policy.expiry(1)
    True
    """
    policy = source.policy if isinstance(source, Gate) else source
    if isinstance(policy, Sentinel):
        return _sentinel_twin(policy)
    if not isinstance(policy, HILCB | HILCBLite):
        raise TypeError(
            f"{policy.name}: only sentinel, hi-lcb and hi-lcb-lite learn on a device; try 'hinge export table'"
        )
    if isinstance(policy, HILCB) and not policy.offload_unseen:
        raise InvalidValue(policy.name, "offload_unseen", "must be True: a microcontroller offloads every bin once")
    kind = MonotoneTwin if isinstance(policy, HILCB) else LiteTwin
    twin: LiteTwin | MonotoneTwin = kind(policy.bins, policy.alpha, policy.offload_cost)
    twin.time, twin.learned = policy.time, policy.learned
    for bin in range(policy.bins):
        counts = _whole_counts(policy.table.offloads[bin], policy.table.agreements[bin])
        twin.table.offloads[bin], twin.table.agreements[bin] = counts
    if policy.offload_cost is None:
        offloads, costs, _ = policy.table.costs
        twin.table.costs[0], twin.table.costs[1] = _whole_counts(offloads, costs * COST_UNIT)
    twin._rebuild()
    return twin


def _sentinel_twin(policy: Sentinel) -> SentinelTwin:
    if policy.stakes is not None:
        raise InvalidValue(policy.name, "stakes", "must be None: on a device every wrong answer costs the same")
    twin = SentinelTwin(policy.bins, policy.offload_cost)
    twin.time, twin.learned, table, known = policy.time, policy.learned, twin.table, policy.table
    for field in policy.carried:
        getattr(table, field)[:] = getattr(known, field)
    for bin in range(policy.bins):
        counts = _whole_counts(known.offloads[bin], known.agreements[bin], SUMMED)
        table.offloads[bin], table.agreements[bin] = counts
        table.recent_agreements[bin] = math.floor(known.recent_agreements[bin])
        if known.audited_at[bin] > 0.0:  # at a cost known beforehand, which devices are not told
            table.audited[bin] = 0
        _SENTINEL["fit_bin"](table, bin, table.offloads[bin], table.agreements[bin], twin.constants.break_even)
    return twin


def _whole_counts(offloads: float, total: float, most: int = COUNTED) -> tuple[int, int]:
    """Fewer than so many offloads, and a sum over them whose mean is no higher than that given."""
    while math.ceil(offloads) >= most:
        offloads, total = offloads / 2, total / 2
    return math.ceil(offloads), math.floor(total)
