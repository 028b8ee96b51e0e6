"""Does agreement fall with confidence by more than chance explains? The assumption of equation 2, tested on a log.

Neighbouring bins are taken together in blocks of 1, 2, 4, 8 … of them, and every block is compared with every block
below it, by Fisher's exact test: of the agreements that both have together, did the lower block get too many? If no
bin of the lower block agrees more often than any of the upper one, the test's error is at most its level, whatever the
rows in each; so with the level shared among all comparisons, a monotone log of any length raises a false alarm with
probability 1 − confidence at most. Blocks find what single bins, with few rows each, cannot show.

The test is one of coins. A row whose agreement lies between 0 and 1 is counted as a coin of that chance, thrown with a
seed that is always the same: coins of the bin's mean, whatever its rows are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import real, whole
from hinge.theory.problem import TIE, bin_costs

_MOST = 256  # blocks of the smallest size; where more bins have rows, that size is more than one bin


@dataclass(frozen=True)
class Dip:
    """Bins that agree less often than bins below them: `bin` to `last_bin`, mostly one and the same.

    `crosses` says that they lie below the break-even 1 − γ and the lower bins above it: what licenses those licenses
    these too, wrongly, where agreement is assumed never to fall. `price` is what accepting one of their samples costs
    more than offloading it, 1 − agreement − γ; below 0, accepting them is right.
    """

    bin: int
    last_bin: int
    agreement: float
    rows: int
    below_bin: int
    below_last_bin: int
    below_agreement: float
    below_rows: int
    crosses: bool
    price: float


@dataclass(frozen=True)
class _Blocks:
    """Blocks of neighbouring bins: the first and last bin of each, its rows, its agreements, its cost."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    rows: NDArray[np.int64]
    agreements: NDArray[np.int64]
    cost: NDArray[np.float64]  # the mean offload cost of its rows

    @property
    def agreement(self) -> NDArray[np.float64]:
        agreement: NDArray[np.float64] = self.agreements / self.rows
        return agreement


def significant_dips(
    bins: ArrayLike,
    agreed: ArrayLike,
    n_bins: int,
    mean_offload_cost: float | Sequence[float],
    confidence: float = 0.99,
) -> list[Dip]:
    """The bins whose agreement is below that of lower bins by more than chance explains, from the lowest bin up.

    The smallest groups of bins for which that is certain enough, those that cross the break-even before those that do
    not; no bin is in two. Each is set against the lower bins that speak against it most clearly. The mean offload cost
    is one for all, or one for each bin.

    >>> bins, agreed = [0] * 50 + [1] * 50 + [2] * 50, [False] * 50 + [True] * 45 + [False] * 35 + [True] * 20
    >>> [(dip.bin, dip.agreement, dip.below_bin, dip.crosses) for dip in significant_dips(bins, agreed, 3, 0.5)]
    [(2, 0.4, 1, True)]
    """
    n_bins = whole("significant_dips", "n_bins", n_bins, 1)
    costs = bin_costs("significant_dips", mean_offload_cost, n_bins)
    level = 1.0 - real("significant_dips", "confidence", confidence, 0, 1)
    blocks = _blocks(*_tally(bins, agreed, n_bins), costs)
    lower, upper = np.nonzero(blocks.last[:, None] < blocks.first[None, :])
    falls = blocks.agreement[upper] < blocks.agreement[lower]
    chance = np.zeros(len(lower))
    low, high = lower[falls], upper[falls]
    chance[falls] = log_chance(blocks.rows[low], blocks.agreements[low], blocks.rows[high], blocks.agreements[high])
    certain = falls & (chance + np.log(max(len(lower), 1)) < np.log(max(level, 1e-300)))
    found = np.flatnonzero(certain)
    ordered = found[np.argsort(chance[found], kind="stable")]
    return _sharpest([_dip(blocks, int(lower[pair]), int(upper[pair])) for pair in ordered])


def _tally(bins: ArrayLike, agreed: ArrayLike, n_bins: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and agreements of each bin."""
    index, agreements = np.asarray(bins), np.asarray(agreed)
    if index.ndim != 1 or index.shape != agreements.shape or index.size == 0:
        shapes = f"{index.shape} and {agreements.shape}"
        raise ValueError(f"significant_dips: bins and agreed must be equally long and not empty, got shapes {shapes}")
    if not np.issubdtype(index.dtype, np.integer):
        raise TypeError(f"significant_dips: bins must be integers, got {index.dtype}")
    if index.min() < 0 or index.max() >= n_bins:
        found = f"{index.min()} to {index.max()}"
        raise ValueError(f"significant_dips: bins must be from 0 to {n_bins - 1}, got {found}")
    strange = agreements[~((agreements >= 0) & (agreements <= 1))]
    if strange.size:
        raise ValueError(f"significant_dips: agreed must be from 0 to 1, got {strange[0].item()!r}")
    coins = np.random.default_rng(0).random(len(agreements)) < agreements
    return np.bincount(index, minlength=n_bins), np.bincount(index[coins], minlength=n_bins)


def _blocks(rows: NDArray[np.int64], agreements: NDArray[np.int64], costs: NDArray[np.float64]) -> _Blocks:
    """The blocks of 1, 2, 4 … bins, side by side, among the bins that have rows."""
    seen = np.flatnonzero(rows)
    size, starts, ends = -(-len(seen) // _MOST), [], []
    while size < max(len(seen), 2):
        starts.append(np.arange(0, len(seen), size))
        ends.append(np.minimum(starts[-1] + size, len(seen)))
        size *= 2
    start, end = np.concatenate(starts), np.concatenate(ends)
    sums = [np.concatenate(([0], np.cumsum(counts[seen]))) for counts in (rows, agreements, rows * (costs - costs[0]))]
    row, agreement, dearer = (total[end] - total[start] for total in sums)
    return _Blocks(seen[start], seen[end - 1], row, agreement, costs[0] + dearer / row)  # exact where all cost the same


def log_chance(
    n: NDArray[np.int64], a: NDArray[np.int64], m: NDArray[np.int64], b: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The logarithm of Fisher's p-value of a agreements in n rows beside b in m, where b / m < a / n; or a little more.

    It is the first term of the tail over one minus its first ratio: the ratios of a hypergeometric distribution fall
    along its tail, so a geometric series bounds what follows.

    >>> (n, a, m, b) = (np.array([each]) for each in (2, 2, 2, 0))
    >>> round(float(np.exp(log_chance(n, a, m, b))[0]), 6)  # one of the six ways to place two agreements
    0.166667
    """
    factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, 1 + np.max(n + m, initial=0))))))

    def choose(rows: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.float64]:
        ways: NDArray[np.float64] = factorials[rows] - factorials[some] - factorials[rows - some]
        return ways

    first = choose(n, a) + choose(m, b) - choose(n + m, a + b)
    ratio = (n - a) / (a + 1) * (b / (m - b + 1))  # below 1, as b / m < a / n
    return np.minimum(first - np.log1p(-ratio), 0.0)


def _dip(blocks: _Blocks, lower: int, upper: int) -> Dip:
    agreement, below = float(blocks.agreement[upper]), float(blocks.agreement[lower])
    price = 1.0 - agreement - float(blocks.cost[upper])
    return Dip(
        bin=int(blocks.first[upper]),
        last_bin=int(blocks.last[upper]),
        agreement=agreement,
        rows=int(blocks.rows[upper]),
        below_bin=int(blocks.first[lower]),
        below_last_bin=int(blocks.last[lower]),
        below_agreement=below,
        below_rows=int(blocks.rows[lower]),
        crosses=price > TIE and 1.0 - below - float(blocks.cost[lower]) < -TIE,
        price=price,
    )


def _sharpest(dips: list[Dip]) -> list[Dip]:
    """Of dips that share a bin only one: that which crosses, then the narrowest, then the one that came first."""
    kept: list[Dip] = []
    for dip in sorted(dips, key=lambda dip: (not dip.crosses, dip.last_bin - dip.bin)):
        if all(dip.last_bin < other.bin or other.last_bin < dip.bin for other in kept):
            kept.append(dip)
    return sorted(kept, key=lambda dip: dip.bin)
