"""What a log says about the agreement of every bin: estimates with intervals, and where it falls with confidence.

**Estimates**, and what a policy would have cost. In a production log the remote's answer is known where the sample was
offloaded, and nowhere else. Within a bin the offload is decided before its outcome is seen, so each outcome is a coin
of the bin's disagreement d_i whatever was decided before: with n_i offloads, k_i of which disagreed, the likelihood of
the log is

    L(d) = ∏ d_i^k_i (1 - d_i)^(n_i - k_i)

however the policy chose them, and all curves d with L(d) ≥ max L / 40 are taken for possible. A policy that accepts
the share a_i of the samples of bin i, which come with weight w_i, costs Σ w_i (a_i d_i + (1 - a_i) γ) a sample: its
interval runs from the least to the largest of these costs among possible curves. Setting the derivative of
log L(d) + λ Σ w_i a_i d_i to 0, the curve that reaches either end has

    λ w_i a_i d_i (1 - d_i) = n_i d_i - k_i

for the one λ at which its likelihood is max L / 40. The chance in the weights, and in simulated a_i, is added in
quadrature. What a policy accepts depends on the curve too, as it has to learn: `hinge.evaluate` finds a_i by simulation
on the likeliest curve, and for either end on the one by which accepting what may be worth it costs least, and most.

At fixed numbers of offloads, 1/40 would give intervals that hold in 99.3 % of logs (Wilks: χ²₁ ≤ 2 log 40). But these
numbers are chosen as the outcomes come in: a policy that stops to ask where it was lucky sees too much agreement. What
is beyond 95 % is kept for that; `benchmarks/regrets/logs.py` measures what remains. Intervals do not assume that
agreement rises with confidence; the fit in their midst does, where that is possible.

Where agreement is a number from 0 to 1, k_i sums the disagreements, and L(d) is no likelihood. But its ratios bound
tails as those of coins do: E e^(sX) ≤ 1 - d + d e^s for every X in [0, 1] of mean d, as e^(sx) lies below its chord
(Hoeffding 1963). So the same curves are possible, and the intervals are wider than they need be.

**Dips.** Does agreement fall with confidence by more than chance explains (the assumption of equation 2)? Neighbouring
bins are taken together in blocks of 1, 2, 4, 8 … of them, and every block is compared with every block below it, by
Fisher's exact test: of the agreements that both have together, did the lower block get too many? If no bin of the lower
block agrees more often than any of the upper one, the test's error is at most its level, whatever the rows in each; so
with the level shared among all comparisons, a monotone log of any length raises a false alarm with probability
1 − confidence at most. Blocks find what single bins, with few rows each, cannot show. The test is one of coins. A row
whose agreement lies between 0 and 1 is counted as a coin of that chance, thrown with a seed that is always the same:
coins of the bin's mean, whatever its rows are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import positive, real, whole
from hinge.theory.problem import TIE, bin_costs

LEEWAY = math.log(40.0)
_LARGEST, _ROUNDS = 1e12, 5  # λ is looked for up to the first, in so many rounds

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Agreement by bin, from the samples of each, how many of them were offloaded, and in how many local agreed.

    >>> estimate = Estimate([100, 100, 800], [100, 0, 40], [60, 0, 40])
    >>> estimate.agreement.round(2), estimate.unknown
    (array([0.6, 0.8, 1. ]), [1])
    >>> low, high = estimate.bounds
    >>> low.round(3), high.round(3)
    (array([0.464, 0.   , 0.912]), array([0.726, 1.   , 1.   ]))

    Of 1000 samples 40 are known to disagree; what accepting all of them costs depends on what the others hide:

    >>> [round(cost, 3) for cost in estimate.cost([1, 1, 1], offload_cost=0.5)]
    [0.026, 0.212]
    """

    samples: Wholes
    offloads: Wholes
    agreements: Reals
    leeway: float  # how much less likely than the best a possible curve may be, as a logarithm

    def __init__(
        self, samples: ArrayLike, offloads: ArrayLike, agreements: ArrayLike, *, leeway: float = LEEWAY
    ) -> None:
        object.__setattr__(self, "leeway", positive("Estimate", "leeway", leeway))
        for name, counts in (("samples", samples), ("offloads", offloads), ("agreements", agreements)):
            object.__setattr__(self, name, np.asarray(counts, np.float64 if name == "agreements" else np.int64))
        if self.samples.ndim != 1 or not self.samples.shape == self.offloads.shape == self.agreements.shape:
            raise ValueError("Estimate: samples, offloads and agreements must have one number per bin each")
        ordered = (self.samples >= self.offloads) & (self.offloads >= self.agreements) & (self.agreements >= 0)
        if not ordered.all() or not self.offloads.any():
            raise ValueError("Estimate: samples ≥ offloads ≥ agreements ≥ 0 must hold in every bin, not all 0")

    @property
    def unknown(self) -> list[int]:
        """The bins that have samples, and were never offloaded."""
        return np.flatnonzero((self.samples > 0) & (self.offloads == 0)).tolist()

    @cached_property
    def agreement(self) -> Reals:
        """The most likely monotone curve; or the shares that agreed, where that one is not possible.

        Bins without offloads lie on the line between their neighbours.
        """
        seen = np.flatnonzero(self.offloads)
        shares = self.agreements[seen] / self.offloads[seen]
        fit = monotone(shares, self.offloads[seen])
        wrong = (self.offloads - self.agreements)[seen].astype(np.float64)
        possible = _loss(self.offloads[seen], wrong, 1.0 - fit) <= self.leeway
        return np.interp(np.arange(len(self.offloads)), seen, fit if possible else shares)

    @cached_property
    def bounds(self) -> tuple[Reals, Reals]:
        """The least and the largest possible agreement of each bin by itself."""
        ends = np.array([self._ends(np.eye(len(self.samples))[bin]) for bin in range(len(self.samples))])
        return 1.0 - ends[:, 1], 1.0 - ends[:, 0]

    def extremes(self, offload_cost: float) -> tuple[Reals, Reals]:
        """The possible curves by which accepting what may be worth it costs least, and most; as fitted elsewhere."""
        worth = (self.bounds[1] > 1.0 - offload_cost) & (self.samples > 0)
        counts = self.offloads[worth], (self.offloads - self.agreements)[worth].astype(np.float64)
        curves = self.agreement.copy(), self.agreement.copy()
        for curve, side in zip(curves, (-1.0, 1.0), strict=True):
            curve[worth] = 1.0 - _extreme(*counts, side * self.samples[worth] / self.samples.sum(), self.leeway)
        return curves

    def cost(self, accepted: ArrayLike, offload_cost: float) -> tuple[float, float]:
        """What a policy costs per sample that accepts these shares of every bin: the least and the most possible.

        The shares may be those of several runs, a row each: what the runs differ by is added to the interval.
        """
        runs, total = np.atleast_2d(np.asarray(accepted, np.float64)), int(self.samples.sum())
        weights, accepts = self.samples / total, runs.mean(axis=0)
        price = accepts * (1.0 - self.agreement) + (1.0 - accepts) * offload_cost
        likely = float(weights @ price)
        spread = 2.0 * self.leeway * max(float(weights @ price**2) - likely**2, 0.0) / total
        if len(runs) > 1:
            costs = (runs * (1.0 - self.agreement) + (1.0 - runs) * offload_cost) @ weights
            few = (len(runs) - 1) / max(len(runs) - 3, 1)  # the variance of Student's t
            spread += 2.0 * self.leeway * few * float(np.var(costs, ddof=1)) / len(runs)
        wrong = float(weights * accepts @ (1.0 - self.agreement))
        low, high = self._ends(weights * accepts)
        return (
            max(0.0, likely - math.sqrt((wrong - low) ** 2 + spread)),
            min(1.0, likely + math.sqrt((high - wrong) ** 2 + spread)),
        )

    def open(self, bin: int) -> float:
        """How much of a cost per sample the possible agreements of a bin leave open, if all of it is accepted."""
        low, high = self.bounds
        return float((high - low)[bin] * self.samples[bin] / self.samples.sum())

    def audits(self, bin: int, open: float = 0.01) -> int:
        """How many more offloads of a bin would leave so much open, if its agreement is as the fit says.

        >>> estimate = Estimate([100, 100, 800], [100, 0, 40], [60, 0, 40])
        >>> round(estimate.open(2), 3), estimate.audits(2), estimate.audits(1)
        (0.07, 254, 470)
        """
        width = real("Estimate.audits", "open", open, 0.0001, 1.0) * self.samples.sum() / max(int(self.samples[bin]), 1)
        low, high, agreement = 1, 2**30, float(self.agreement[bin])
        while low < high:
            middle = (low + high) // 2
            one = np.array([middle]), np.array([middle * (1.0 - agreement)])
            least, most = (_extreme(*one, np.array([side]), self.leeway) for side in (-1.0, 1.0))
            low, high = (low, middle) if most - least <= width else (middle + 1, high)
        return max(low - int(self.offloads[bin]), 0)

    def _ends(self, weights: Reals) -> tuple[float, float]:
        """The least and the largest possible Σ weight · disagreement."""
        matters = weights > 0.0
        counts = self.offloads[matters], (self.offloads - self.agreements)[matters].astype(np.float64)
        low, high = (_extreme(*counts, side * weights[matters], self.leeway) for side in (-1.0, 1.0))
        return float(weights[matters] @ low), float(weights[matters] @ high)


def monotone(values: ArrayLike, weights: ArrayLike) -> Reals:
    """The closest values that never fall, by weighted least squares: neighbours that fall are pooled.

    For shares it is the most likely monotone curve too (Robertson, Wright and Dykstra, Order Restricted Statistical
    Inference, 1988).

    >>> monotone([0.2, 0.9, 0.6], [1, 1, 2]).round(3)
    array([0.2, 0.7, 0.7])
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(np.asarray(values, np.float64), np.asarray(weights, np.float64), strict=True):
        mean, mass, length = float(value), float(weight), 1
        while blocks and blocks[-1][0] >= mean:
            below, more, longer = blocks.pop()
            mean, mass, length = (mean * mass + below * more) / (mass + more), mass + more, length + longer
        blocks.append((mean, mass, length))
    return np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])


def best_thresholds(confidences: ArrayLike, agreed: ArrayLike) -> list[float]:
    """Every threshold on the confidence that is the best at some price of an offload, in hindsight.

    A threshold costs γ for each sample below it, and 1 − a for each other, with a the agreement: it is best where
    Σ_below (a − (1 − γ)) is least, which is where the slope of the greatest convex minorant of Σ_below a passes 1 − γ.
    These slopes are the closest curve that never falls (`monotone`): all the best thresholds are where it rises. Of the
    numbers that part the samples likewise, each has the fewest decimals.

    >>> best_thresholds([0.12, 0.31, 0.52, 0.58, 0.87, 0.99], [0, 1, 0, 1, 1, 1])
    [0.3, 0.57]
    """
    values, places, rows = np.unique(np.asarray(confidences, np.float64), return_inverse=True, return_counts=True)
    curve = monotone(np.bincount(places, np.asarray(agreed, np.float64)) / rows, rows)
    return [_shortest(values[rise], values[rise + 1]) for rise in np.flatnonzero(np.diff(curve) > 0.0)]


def _shortest(low: float, high: float) -> float:
    """The number of the fewest decimals that is above `low` and not above `high`."""
    cut = (math.floor(high * 10**digits) / 10**digits for digits in range(17))
    return float(next((each for each in cut if low < each <= high), high))


def _extreme(offloads: Wholes, wrong: Reals, weights: Reals, leeway: float) -> Reals:
    """The possible curve with the largest Σ weight · disagreement: as likelihood falls with λ, λ is closed in on."""
    pulls = np.concatenate(([0.0], np.geomspace(1e-3, _LARGEST, 64)))
    for _ in range(_ROUNDS):
        curves = _tilted(offloads, wrong, pulls[:, None] * weights)
        last = int(np.flatnonzero(_loss(offloads, wrong, curves) <= leeway)[-1])
        if last + 1 == len(pulls):
            break
        pulls = np.linspace(pulls[last], pulls[last + 1], 32)
    found: Reals = curves[last]
    return found


def _tilted(offloads: Wholes, wrong: Reals, pull: Reals) -> Reals:
    """The root d of pull · d (1 - d) = n d - k in [0, 1]; without offloads it goes all the way."""
    slope = offloads - pull
    root = np.sqrt(slope**2 + 4.0 * pull * wrong)
    with np.errstate(divide="ignore", invalid="ignore"):  # of two forms of the root, the one that loses no digits
        curve = np.where(slope >= 0.0, 2.0 * wrong / (slope + root), (root - slope) / (2.0 * pull))
    return np.clip(np.where(offloads > 0, curve, pull > 0.0), 0.0, 1.0)


def _loss(offloads: Wholes, wrong: Reals, disagreement: Reals) -> Reals:
    """How much less likely a curve, or each of many, is than the best one, as a logarithm."""
    right, best = offloads - wrong, wrong / np.maximum(offloads, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(wrong > 0, wrong * np.log(best / disagreement), 0.0)
        terms += np.where(right > 0, right * np.log((1.0 - best) / (1.0 - disagreement)), 0.0)
    total: Reals = terms.sum(axis=-1)
    return total


# -- dips -------------------------------------------------------------------------------------------------------------

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

    first: Wholes
    last: Wholes
    rows: Wholes
    agreements: Wholes
    cost: Reals  # the mean offload cost of its rows

    @property
    def agreement(self) -> Reals:
        agreement: Reals = self.agreements / self.rows
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


def _tally(bins: ArrayLike, agreed: ArrayLike, n_bins: int) -> tuple[Wholes, Wholes]:
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


def _blocks(rows: Wholes, agreements: Wholes, costs: Reals) -> _Blocks:
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


def log_chance(n: Wholes, a: Wholes, m: Wholes, b: Wholes) -> Reals:
    """The logarithm of Fisher's p-value of a agreements in n rows beside b in m, where b / m < a / n; or a little more.

    It is the first term of the tail over one minus its first ratio: the ratios of a hypergeometric distribution fall
    along its tail, so a geometric series bounds what follows.

    >>> (n, a, m, b) = (np.array([each]) for each in (2, 2, 2, 0))
    >>> round(float(np.exp(log_chance(n, a, m, b))[0]), 6)  # one of the six ways to place two agreements
    0.166667
    """
    factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, 1 + np.max(n + m, initial=0))))))

    def choose(rows: Wholes, some: Wholes) -> Reals:
        ways: Reals = factorials[rows] - factorials[some] - factorials[rows - some]
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
