"""Robust pooling: own evidence and what others say they have seen → what to borrow. Grade A: derived here.

Everything that others say may be a lie, or true of another world. What is believed of it passes four checks.

**Kin.** Two devices are alike where one agreement f_i for each bin explains what both saw. The Bayes factor of two
agreements against one, each uniform beforehand, of n offloads with a agreements here and m with b there is

    log  B(a+1, n-a+1) B(b+1, m-b+1) / B(a+b+1, n+m-a-b+1)

Its sum over the bins that both have seen, in which no bin counts less than -ALIKE, is at most UNLIKE for kin, and no
bin alone exceeds UNLIKE_BIN. Who is not kin of oneself, by one's own offloads, is not believed in anything.

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
own offloads must bear it out before it licenses anything, and veto it later.
"""

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

UNLIKE, UNLIKE_BIN = 3.0, 6.0  # nats, of all bins and of one
ALIKE = 0.5  # nats that a bin in which two devices are alike counts at most: many must not hide one that is not
OUTLIER = 4.0
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


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


def pool(own: tuple[Sequence[float], Sequence[float]], others: Mapping[str, tuple[Any, Any]]) -> Pool:
    """Pool what other devices have seen: of each, offloads and agreements by bin.

    >>> fleet = {f"camera {k}": ([10, 40], [2, 36]) for k in range(8)} | {"liar": ([90, 90], [90, 90])}
    >>> pooled = pool(([8, 8], [1, 8]), fleet)
    >>> pooled.offloads, pooled.agreements, pooled.verdicts["liar"].name
    ([80.0, 320.0], [16.0, 288.0], 'UNLIKE_US')
    """
    bins = len(own[0])
    offloads, agreements = (np.array([pair[k] for pair in others.values()], float).reshape(-1, bins) for k in (0, 1))
    verdicts, lent = np.zeros(len(others), np.int64), np.zeros((2, bins))
    pool_into(np.array(own[0], float), np.array(own[1], float), -1, offloads, agreements, verdicts, lent[0], lent[1])
    named = {name: Verdict(code) for name, code in zip(others, verdicts.tolist(), strict=True)}
    return Pool(lent[0].tolist(), lent[1].tolist(), named)


def log_factorial(x: float) -> float:
    """log Γ(x + 1) by Stirling's series, from 8 upwards: thrice as fast as `math.lgamma` where it is compiled.

    >>> abs(log_factorial(0.0)) < 1e-9, abs(log_factorial(2.5) - math.lgamma(3.5)) < 1e-9
    (True, True)
    """
    below, x = 1.0, x + 1.0
    while x < 8.0:
        below, x = below * x, x + 1.0
    y = 1.0 / (x * x)
    tail = (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / x
    return (x - 0.5) * math.log(x) - x + _HALF_LOG_TAU + tail - math.log(below)


def log_marginal(offloads: float, agreements: float) -> float:
    """log B(a + 1, n - a + 1), the likelihood of what was seen under a uniform agreement."""
    return log_factorial(agreements) + log_factorial(offloads - agreements) - log_factorial(offloads + 1.0)


def unlike(n: float, a: float, m: float, b: float) -> float:
    """The Bayes factor, in nats, of two agreements against one.

    >>> unlike(20, 18, 20, 17) < 0.0, unlike(20, 18, 20, 3) > 10.0
    (True, True)
    """
    return log_marginal(n, a) + log_marginal(m, b) - log_marginal(n + m, a + b)


def unlikeness(n: Any, a: Any, m: Any, b: Any) -> float:
    """How much what two devices have seen speaks against one agreement for each bin; at most UNLIKE for kin."""
    total = 0.0
    for i in range(len(n)):
        if n[i] > 0.0 and m[i] > 0.0:
            one = unlike(n[i], a[i], m[i], b[i])
            if one > UNLIKE_BIN:
                return math.inf
            total += max(one, -ALIKE)
    return total


def pool_into(own_n: Any, own_a: Any, me: int, n: Any, a: Any, verdicts: Any, lent_n: Any, lent_a: Any) -> None:
    """`pool` on arrays, device by bin, in the subset of Python that numba compiles; row `me` is one's own, if any."""
    devices, limit = len(n), UNLIKE
    scores = np.full(devices, math.inf)
    for d in range(devices):
        verdicts[d] = Verdict.SILENT
        if d != me and n[d].max() > 0.0:
            scores[d], verdicts[d] = unlikeness(own_n, own_a, n[d], a[d]), Verdict.UNLIKE_US
    while True:
        kin = np.flatnonzero(scores <= limit)
        verdicts[kin] = Verdict.KIN
        lend(kin, n, a, verdicts, lent_n, lent_a)
        if len(kin) == 0 or unlikeness(own_n, own_a, lent_n, lent_a) <= UNLIKE:
            return
        verdicts[kin] = Verdict.UNLIKE_US  # some of them must be: the half that is least alike is believed no longer
        ranked = np.sort(scores[kin])
        limit = ranked[len(kin) // 2 - 1] if ranked[len(kin) // 2 - 1] < ranked[-1] else -math.inf


def lend(kin: Any, n: Any, a: Any, verdicts: Any, lent_n: Any, lent_a: Any) -> None:
    """What kin lend: all that they have seen, but for outliers."""
    devices, bins = n.shape
    trim = (len(kin) + 1) // 4
    block_n, block_a = np.zeros((devices, bins)), np.zeros((devices, bins))
    reference_n, reference_a, most = np.zeros(bins), np.zeros(bins), np.zeros(bins)
    for i in range(bins):
        lent_n[i] = lent_a[i] = 0.0
        for d in kin:
            block_n[d, i] += n[d, i]
            block_a[d, i] += a[d, i]
        witnesses = np.flatnonzero(block_n[:, i] > 0.0)
        if len(witnesses) <= 2 * trim:
            if i + 1 < bins:
                block_n[:, i + 1], block_a[:, i + 1] = block_n[:, i], block_a[:, i]
            block_n[:, i] = block_a[:, i] = 0.0
            continue
        counts, shares = block_n[:, i][witnesses], block_a[:, i][witnesses] / block_n[:, i][witnesses]
        most[i] = 2.0 * np.median(counts)
        ranks = shares + 1e-9 * counts / (1.0 + counts)  # of equal shares the smaller count is lower: no order matters
        for k in np.argsort(ranks)[trim : len(witnesses) - trim]:
            count = min(counts[k], most[i])
            reference_n[i] += count
            reference_a[i] += count * shares[k]
    for d in kin:
        if unlikeness(reference_n, reference_a, block_n[d], block_a[d]) > UNLIKE:
            verdicts[d] = Verdict.UNLIKE_FLEET
            continue
        for i in range(bins):
            count = block_n[d, i]
            if count > 0.0 and unlike(reference_n[i], reference_a[i], count, block_a[d, i]) <= OUTLIER:
                weight = min(1.0, most[i] / count)
                lent_n[i] += weight * count
                lent_a[i] += weight * block_a[d, i]
