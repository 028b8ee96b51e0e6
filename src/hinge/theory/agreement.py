"""What a log says about the agreement of every bin: estimates with intervals, and the threshold that costs least.

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
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import positive, real

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


def fit_threshold(confidences: ArrayLike, agreed: ArrayLike, offload_cost: float) -> tuple[float, float]:
    """The threshold on the confidence that costs least at a price, in hindsight, and what it costs per sample.

    Samples below it are offloaded; all of them at a threshold of 1. Of those that part the samples likewise it has the
    fewest decimals, and of two that cost the same it is the higher.

    >>> fit_threshold([0.12, 0.31, 0.52, 0.58, 0.87, 0.99], [0, 1, 0, 1, 1, 1], offload_cost=0.3)
    (0.57, 0.15)
    """
    values, places, rows = np.unique(np.asarray(confidences, np.float64), return_inverse=True, return_counts=True)
    wrong = np.bincount(places.ravel(), 1.0 - np.asarray(agreed, np.float64))
    below = np.concatenate(([0], np.cumsum(rows)))
    costs = offload_cost * below + wrong.sum() - np.concatenate(([0.0], np.cumsum(wrong)))
    best = int(np.flatnonzero(costs <= costs.min() + 1e-9)[-1])
    if best in (0, len(values)):
        return float(best > 0), float(costs[best] / below[-1])
    return _shortest(values[best - 1], min(values[best], _BELOW)), float(costs[best] / below[-1])


_BELOW = math.nextafter(1.0, 0.0)  # a threshold of 1 accepts nothing


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
