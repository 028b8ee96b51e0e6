"""Robust pooling: own evidence and what others say they have seen → what to borrow. Grade A: derived here.

Everything that others say may be a lie, or true of another world. What is believed of it passes four checks.

**Kin.** Two devices are alike where one agreement f_i for each bin explains what both saw. The Bayes factor of two
agreements against one, each uniform beforehand, of n offloads with a agreements here and m with b there is

    log  B(a+1, n-a+1) B(b+1, m-b+1) / B(a+b+1, n+m-a-b+1)

Its sum over the bins that both have seen, in which no bin counts less than -ALIKE, is at most UNLIKE for kin, and no
bin alone exceeds UNLIKE_BIN. Many bins that each differ a little are found by one more test: odds of agreement that
differ by one factor everywhere, normal beforehand on the log scale, against odds that do not. With r_i the agreement of
both together, its Bayes factor is by Mantel and Haenszel's score (1959)

    U² / (2 (V + 1)) - ½ log(V + 1),    U = Σ a_i - n_i r_i,    V = Σ n_i m_i r_i (1 - r_i) / (n_i + m_i - 1)

and at most SHIFTED for kin, or SHIFTED_HUB where a hub asks. Who is not kin of oneself, by one's own offloads, is not
believed in anything.

**Trimming by the size of the fleet.** Of s kin, oneself included, s/4 may lie. In each bin the s/4 lowest and the s/4
highest shares are dropped, whoever has seen it; what is left is the *reference*. Trimming among the witnesses of a bin
alone would not do: a lie about a rare bin is carried upwards by monotonicity. A bin with no more than 2 · s/4
witnesses believes nobody; it is taken together with the bins above it until they have more. Their agreement, put down
to the highest of them, is too low if anything.

**Outliers.** A trimmed mean of small counts is skewed, and wastes half of what was seen. So the reference only judges:
who is kin of it is counted in full, save in bins where the Bayes factor exceeds OUTLIER.

**Caps.** Nobody counts for more than twice the median of the witnesses.

What comes out must be like one's own evidence, too. Else the half of the kin that is less like oneself is believed no
longer, and the rest is pooled again. `Sentinel.borrow` takes it from there:
own offloads must bear it out before it licenses anything, and for as long as it does.

**Kinship** is who is like whom, seen from no device in particular: for a hub, which has seen nothing itself. Groups of
kin are found one after the other: of the devices that are left, the one with the most evidence pools the others, and
its kin are its group. The largest group is the fleet's. Who fits what that group has pooled joins it, as somebody with
little evidence may have been counted with a liar. All others are doubted, for a reason that can be said: the bin in
which their evidence speaks most against that of the largest group.
"""

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNLIKE, UNLIKE_BIN = 3.0, 6.0  # nats, of all bins and of one
SHIFTED = 0.25  # nats, of odds that differ by one factor
SHIFTED_HUB = 1.0  # for a hub: people look at whom it names, while a device that doubts one of its kin loses little
ALIKE = 0.5  # nats that a bin in which two devices are alike counts at most: many must not hide one that is not
OUTLIER = 4.0
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
Reals = NDArray[np.float64]


class Verdict(IntEnum):
    """What a device makes of another."""

    SILENT = 0  # it has said nothing
    KIN = 1
    UNLIKE_US = 2  # its evidence contradicts one's own
    UNLIKE_FLEET = 3  # its evidence contradicts that of one's kin


class Pool(NamedTuple):
    """What a device borrows, bin by bin, and what it makes of each other device."""

    offloads: list[float]
    agreements: list[float]
    verdicts: dict[str, Verdict]

    @property
    def devices(self) -> int:
        """How many lend it."""
        return len(_of_verdict(self, Verdict.KIN))


def pool(
    own: tuple[Sequence[float], Sequence[float]], others: Mapping[str, tuple[Any, Any]], shifted: float = SHIFTED
) -> Pool:
    """Pool what other devices have seen: of each, offloads and agreements by bin. Kin differ by `shifted` nats at most.

    >>> fleet = {f"camera {k}": ([10, 40], [2, 36]) for k in range(8)} | {"liar": ([90, 90], [90, 90])}
    >>> pooled = pool(([8, 8], [1, 8]), fleet)
    >>> pooled.offloads, pooled.agreements, pooled.verdicts["liar"].name
    ([80.0, 320.0], [16.0, 288.0], 'UNLIKE_US')
    >>> pooled.devices
    8
    """
    bins = len(own[0])
    offloads, agreements = (np.array([pair[k] for pair in others.values()], float).reshape(-1, bins) for k in (0, 1))
    verdicts, lent_n, lent_a = _pool(np.array(own[0], float), np.array(own[1], float), offloads, agreements, shifted)
    named = {name: Verdict(code) for name, code in zip(others, verdicts.tolist(), strict=True)}
    return Pool(lent_n.tolist(), lent_a.tolist(), named)


def log_factorial(x: Any) -> Any:
    """log Γ(x + 1), of a number or of each of many, by Stirling's series for Γ(x + 9).

    >>> [bool(abs(log_factorial(x) - math.lgamma(x + 1.0)) < 1e-9) for x in (0.0, 2.5, 100.0)]
    [True, True, True]
    """
    pairs, y = x * (x + 9.0), x + 9.0
    below = (pairs + 8.0) * (pairs + 14.0) * (pairs + 18.0) * (pairs + 20.0)  # (x + 1) … (x + 8)
    z = 1.0 / (y * y)
    tail = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z / 1680))) / y
    return (y - 0.5) * np.log(y) - y + _HALF_LOG_TAU + tail - np.log(below)


def log_marginal(offloads: Any, agreements: Any) -> Any:
    """log B(a + 1, n - a + 1), the likelihood of what was seen under a uniform agreement."""
    return log_factorial(agreements) + log_factorial(offloads - agreements) - log_factorial(offloads + 1.0)


def unlike(n: Any, a: Any, m: Any, b: Any) -> Any:
    """The Bayes factor, in nats, of two agreements against one; of numbers or of each of many.

    >>> bool(unlike(20, 18, 20, 17) < 0.0), bool(unlike(20, 18, 20, 3) > 10.0)
    (True, True)
    """
    return log_marginal(n, a) + log_marginal(m, b) - log_marginal(n + m, a + b)


def unlikeness(n: Any, a: Any, m: Any, b: Any, shifted: float = SHIFTED) -> Any:
    """How far what each of many devices (rows of m and b) has seen is from being kin of n and a; above 0, it is not."""
    factors = np.where((n > 0.0) & (m > 0.0), unlike(n, a, m, b), 0.0)
    total = np.where(factors > UNLIKE_BIN, math.inf, np.maximum(factors, -ALIKE)).sum(axis=1)
    share = (a + b) / np.maximum(n + m, 1e-9)
    score = (a - n * share).sum(axis=1)
    spread = (n * m * share * (1.0 - share) / np.maximum(n + m - 1.0, 1.0)).sum(axis=1)
    shift = 0.5 * (score * score / (spread + 1.0) - np.log(spread + 1.0))
    return np.maximum(total - UNLIKE, shift - shifted)


def are_kin(one: tuple[Any, Any], other: tuple[Any, Any], shifted: float = SHIFTED) -> bool:
    """Whether two devices are alike by what they have seen: of each, offloads and agreements by bin.

    >>> are_kin(([20, 40], [4, 36]), ([30, 10], [7, 8])), are_kin(([20, 40], [4, 36]), ([30, 10], [28, 10]))
    (True, False)
    """
    (n, a), (m, b) = np.array(one, float), np.array(other, float)
    return bool(unlikeness(n, a, m[None], b[None], shifted)[0] <= 0.0)


def _pool(
    own_n: Reals, own_a: Reals, n: Reals, a: Reals, shifted: float
) -> tuple[NDArray[np.int64], Reals, Reals]:
    """The verdicts, and what is borrowed, by arrays of device by bin."""
    said, limit = n.sum(axis=1) > 0.0, 0.0
    scores = np.where(said, unlikeness(own_n, own_a, n, a, shifted), math.inf)
    verdicts = np.where(said, Verdict.UNLIKE_US, Verdict.SILENT)
    while True:
        kin = np.flatnonzero(scores <= limit)
        verdicts[kin], lent_n, lent_a = _lend(n[kin], a[kin], shifted)
        if len(kin) == 0 or unlikeness(own_n, own_a, lent_n[None], lent_a[None], shifted)[0] <= 0.0:
            return verdicts, lent_n, lent_a
        verdicts[kin] = Verdict.UNLIKE_US  # some of them must be: the half that is least alike is believed no longer
        ranked = np.sort(scores[kin])
        limit = ranked[len(kin) // 2 - 1] if ranked[len(kin) // 2 - 1] < ranked[-1] else -math.inf


def _lend(block_n: Reals, block_a: Reals, shifted: float) -> tuple[NDArray[np.int64], Reals, Reals]:
    """What is made of each of one's kin, and what they lend: all that they have seen, but for outliers."""
    trim, bins = (len(block_n) + 1) // 4, block_n.shape[1]
    reference_n, reference_a, most = np.zeros((3, bins))
    for i in range(bins):
        witnesses = np.flatnonzero(block_n[:, i] > 0.0)
        if len(witnesses) <= 2 * trim:
            if i + 1 < bins:
                block_n[:, i + 1] += block_n[:, i]
                block_a[:, i + 1] += block_a[:, i]
            block_n[:, i] = block_a[:, i] = 0.0
            continue
        counts = block_n[witnesses, i]
        shares = block_a[witnesses, i] / counts
        most[i] = 2.0 * np.median(counts)
        kept = np.lexsort((counts, shares))[trim : len(witnesses) - trim]
        capped = np.minimum(counts[kept], most[i])
        reference_n[i], reference_a[i] = capped.sum(), (capped * shares[kept]).sum()
    strange = unlikeness(reference_n, reference_a, block_n, block_a, shifted) > 0.0
    verdicts = np.where(strange, Verdict.UNLIKE_FLEET, Verdict.KIN)
    block_n[strange] = block_a[strange] = 0.0
    capped = most / np.maximum(np.maximum(block_n, most), 1e-9)
    weights = np.where(unlike(reference_n, reference_a, block_n, block_a) > OUTLIER, 0.0, capped)
    return verdicts, (weights * block_n).sum(axis=0), (weights * block_a).sum(axis=0)


# -- seen from no device in particular --------------------------------------------------------------------------------


MOST_GROUPS = 8  # that are looked for, the largest of which is what matters

Sums = tuple[Sequence[float], Sequence[float]]  # offloads and agreements, by bin


class Doubt(NamedTuple):
    """Why a device is not believed: what it says of one bin, what its fleet says, and how much that differs."""

    bin: int
    offloads: float
    agreements: float
    fleet_offloads: float
    fleet_agreements: float
    nats: float

    def __str__(self) -> str:
        own, fleet = (_share(*pair) for pair in (self[1:3], self[3:5]))
        more = "" if self.nats > UNLIKE else ", and more in other bins"
        return f"bin {self.bin}: local agreed in {own}, in the fleet in {fleet} ({self.nats:.1f} nats{more})"


class Kinship(NamedTuple):
    """The groups of a fleet, the largest first, what that one has seen together, and why others are not believed."""

    groups: list[list[str]]
    pooled: Pool
    doubts: dict[str, Doubt | None]  # None: it is of no group, and yet no bin tells why


def kinship(said: Mapping[str, Sums], bins: int) -> Kinship:
    """What a hub makes of what devices say they have seen, offloads and agreements by bin.

    >>> fleet = {f"camera {k}": ([10.0, 40.0], [2.0, 36.0]) for k in range(8)} | {"liar": ([90.0, 90.0], [90.0, 90.0])}
    >>> found = kinship(fleet, bins=2)
    >>> [len(group) for group in found.groups], found.pooled.offloads
    ([8, 1], [80.0, 320.0])
    >>> print(found.doubts["liar"])
    bin 0: local agreed in 100 % of 90, in the fleet in 20 % of 80 (68.2 nats)
    """
    left = {name: sums for name, sums in _by_evidence(said) if sum(sums[0]) > 0.0}
    heard, groups = dict(left), list[list[str]]()
    while left and len(groups) < MOST_GROUPS:
        first = next(iter(left))
        own = left.pop(first)
        groups.append([first, *_of_verdict(pool(own, left, SHIFTED_HUB), Verdict.KIN)])
        left = {name: sums for name, sums in left.items() if name not in groups[-1]}
    nothing = [0.0] * bins, [0.0] * bins  # own evidence of who has none: all are alike
    if not groups:
        return Kinship([], Pool(*nothing, {}), {})
    groups.sort(key=len, reverse=True)
    largest = set(groups[0])
    known = pool(nothing, {name: heard[name] for name in largest}, SHIFTED_HUB)
    strays = heard.keys() - largest
    largest |= {name for name in strays if are_kin(known[:2], heard[name], SHIFTED_HUB)}
    pooled = pool(nothing, {name: heard[name] for name in sorted(largest)}, SHIFTED_HUB)
    kin = set(_of_verdict(pooled, Verdict.KIN))
    others = ([name for name in group if name not in largest] for group in groups)
    ranked = sorted((sorted(group) for group in others if group), key=len, reverse=True)
    return Kinship([sorted(kin), *ranked], pooled, {name: doubt(heard[name], pooled) for name in heard.keys() - kin})


def doubt(sums: Sums, pooled: Pool) -> Doubt | None:
    """The bin in which evidence speaks most against what a group has pooled; None where they have none in common."""
    columns = zip(*sums, pooled.offloads, pooled.agreements, strict=True)
    found = [
        Doubt(i, *pairs, float(unlike(*pairs))) for i, pairs in enumerate(columns) if pairs[0] > 0.0 and pairs[2] > 0.0
    ]
    return max(found, key=lambda each: each.nats, default=None)


def _by_evidence(said: Mapping[str, Sums]) -> list[tuple[str, Sums]]:
    return sorted(said.items(), key=lambda each: (-sum(each[1][0]), each[0]))


def _of_verdict(pooled: Pool, wanted: Verdict) -> list[str]:
    return [name for name, verdict in pooled.verdicts.items() if verdict is wanted]


def _share(offloads: float, agreements: float) -> str:
    return f"{agreements / offloads:.0%} of {offloads:,.0f}".replace("%", " %").replace(",", " ")
