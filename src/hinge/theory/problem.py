"""The problem of Section II: how often local agrees with remote in each bin, what an offload costs, what arrives.

And what the policies that know all of it cost per sample: the oracle π* and the static thresholds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hinge._checks import real, reals

# 1 − 0.9 is not 0.1 in floating point. A gap below this is a tie, or its 1/Δ would be 10¹⁶ instead of absent.
TIE = 1e-12


@dataclass(frozen=True)
class Problem:
    """What the oracle knows and a policy has to learn.

    `agreement` is f(φ_i) per bin. The theory wants it non-decreasing; an empirical one may dip (see `dips`).
    `mean_offload_cost` is γ = E[Γ_t], or a sequence of γ_i where it differs from bin to bin. `weights` are the arrival
    probabilities w_i; None means that the arrivals are an adversary's and any bin may come. A bin of weight 0 never
    arrives: it is no part of Φ, for any quantity here. `known_cost` says whether the policy is told γ (Γ_t = γ, Remark
    9) or learns it from offloads.

    >>> problem = Problem(agreement=[0.25, 0.5, 0.875], mean_offload_cost=0.25, weights=[0.25, 0.25, 0.5])
    >>> problem.gaps.tolist(), problem.licensed.tolist()
    ([0.5, 0.25, 0.125], [False, False, True])
    """

    agreement: Sequence[float]
    mean_offload_cost: float | Sequence[float]
    weights: Sequence[float] | None = None
    known_cost: bool = True

    def __post_init__(self) -> None:
        agreement = tuple(reals("Problem", "agreement", self.agreement, 0, 1))
        if not agreement:
            raise ValueError("Problem: agreement must have at least one bin, got none")
        costs = bin_costs("Problem", self.mean_offload_cost, len(agreement)).tolist()
        cost = tuple(costs) if isinstance(self.mean_offload_cost, Sequence | np.ndarray) else costs[0]
        if not isinstance(self.known_cost, bool):
            raise TypeError(f"Problem: known_cost must be True or False, got {self.known_cost!r}")
        # A frozen record can only be completed through object: plain tuples make it comparable and hashable.
        object.__setattr__(self, "agreement", agreement)
        object.__setattr__(self, "mean_offload_cost", cost)
        if self.weights is not None:
            object.__setattr__(self, "weights", _probabilities(self.weights, len(agreement)))

    @property
    def bins(self) -> int:
        """The number of bins, |Φ|.

        >>> Problem([0.2, 0.9], 0.5).bins
        2
        """
        return len(self.agreement)

    @property
    def offload_costs(self) -> NDArray[np.float64]:
        """γ_i: the mean offload cost of each bin.

        >>> Problem([0.2, 0.9], 0.5).offload_costs.tolist()
        [0.5, 0.5]
        """
        return bin_costs("Problem", self.mean_offload_cost, self.bins)

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Δ_i = |1 − f_i − γ_i|: what one wrong decision in bin i costs (Section IV).

        >>> Problem([0.9, 0.95], 0.1).gaps.round(12).tolist()
        [0.0, 0.05]
        """
        advantage = self._advantage()
        return np.where(np.abs(advantage) > TIE, np.abs(advantage), 0.0)

    @property
    def licensed(self) -> NDArray[np.bool_]:
        """Φ_H = {i : 1 − f_i < γ_i}, the bins to accept (Definition 1). Strict: a tie, Δ_i = 0, is offloaded.

        >>> Problem([0.25, 0.5, 0.75], 0.5).licensed.tolist()
        [False, False, True]
        """
        licensed: NDArray[np.bool_] = self._advantage() > TIE
        return licensed

    @property
    def oracle_offloads(self) -> NDArray[np.bool_]:
        """Φ_L, the bins not in Φ_H: π*'s decision in each bin, True to offload (Lemma 1).

        >>> Problem([0.25, 0.5, 0.75], 0.5).oracle_offloads.tolist()
        [True, True, False]
        """
        return ~self.licensed

    @property
    def arriving(self) -> NDArray[np.bool_]:
        """The bins that can come: those with w_i > 0, or all of them when the arrivals are an adversary's.

        >>> Problem([0.25, 0.5], 0.5, weights=[0, 1]).arriving.tolist()
        [False, True]
        """
        if self.weights is None:
            return np.ones(self.bins, dtype=np.bool_)
        arriving: NDArray[np.bool_] = np.asarray(self.weights) > 0
        return arriving

    @property
    def dips(self) -> NDArray[np.bool_]:
        """The arriving bins whose agreement is below that of some lower arriving bin.

        >>> Problem([0.2, 0.6, 0.5, 0.55, 0.9], 0.5).dips.tolist()
        [False, False, True, True, False]
        """
        agreement = np.asarray(self.agreement)
        highest = np.maximum.accumulate(np.where(self.arriving, agreement, 0.0))
        dips: NDArray[np.bool_] = self.arriving & (agreement < highest)
        return dips

    @property
    def monotone(self) -> bool:
        """Whether f is non-decreasing over the bins that arrive, the paper's assumption (equation 2).

        >>> Problem([0.2, 0.6, 0.5], 0.5).monotone
        False
        """
        return not self.dips.any()

    @property
    def oracle_is_threshold(self) -> bool:
        """Whether every arriving bin above a licensed one is licensed too, so that π* is a static threshold.

        All that the proofs for HI-LCB use of "f is non-decreasing": a dip on one side of 1 − γ is harmless. Where this
        fails, HI-LCB lends a licence to a bin that deserves none, for ever, and its bounds do not hold. HI-LCB-lite
        lends nothing and needs neither.

        >>> Problem([0.2, 0.8, 0.7], 0.5).oracle_is_threshold, Problem([0.2, 0.8, 0.4], 0.5).oracle_is_threshold
        (True, False)
        """
        licensed = self.licensed[self.arriving]
        return bool((licensed[1:] >= licensed[:-1]).all())

    def _advantage(self) -> NDArray[np.float64]:
        # γ_i − (1 − f_i): how much cheaper accepting is than offloading.
        advantage: NDArray[np.float64] = self.offload_costs - (1.0 - np.asarray(self.agreement, dtype=np.float64))
        return advantage


def bin_costs(owner: str, mean_offload_cost: object, bins: int) -> NDArray[np.float64]:
    """The mean offload cost of each bin, from one for all or one for each.

    >>> bin_costs("Problem", [0.5, 0.25], 3)
    Traceback (most recent call last):
    ValueError: Problem: mean_offload_cost must be a number, or one for each of 3 bins, got 2
    """
    if not isinstance(mean_offload_cost, Sequence | np.ndarray) or isinstance(mean_offload_cost, str):
        return np.full(bins, real(owner, "mean_offload_cost", mean_offload_cost, 0, 1))
    costs = reals(owner, "mean_offload_cost", mean_offload_cost, 0, 1)
    if len(costs) != bins:
        wanted = f"{owner}: mean_offload_cost must be a number, or one for each of {bins} bins"
        raise ValueError(f"{wanted}, got {len(costs)}")
    return np.array(costs)


def arrival_weights(owner: str, problem: Problem) -> NDArray[np.float64]:
    """The weights w of a problem with stochastic arrivals; the error names who needs them.

    >>> arrival_weights("oracle_cost", Problem([0.5], 0.5))
    Traceback (most recent call last):
    ValueError: oracle_cost: problem must have weights (stochastic arrivals), got None
    """
    if problem.weights is None:
        raise ValueError(f"{owner}: problem must have weights (stochastic arrivals), got None")
    return np.asarray(problem.weights, dtype=np.float64)


def _probabilities(values: object, bins: int) -> tuple[float, ...]:
    weights = tuple(reals("Problem", "weights", values, 0, 1))
    if len(weights) != bins:
        raise ValueError(f"Problem: weights must have one entry per bin ({bins}), got {len(weights)}")
    if abs(math.fsum(weights) - 1) > 1e-6:
        raise ValueError(f"Problem: weights must sum to 1, got {math.fsum(weights):g}")
    return weights


def oracle_cost(problem: Problem) -> float:
    """π*'s expected cost per sample, Σ_i w_i · min(1 − f_i, γ_i) (Lemma 1).

    >>> oracle_cost(Problem([0.25, 0.875], 0.5, weights=[0.5, 0.5]))
    0.3125
    """
    weights = arrival_weights("oracle_cost", problem)
    return float(weights @ np.minimum(1.0 - np.asarray(problem.agreement), problem.offload_costs))


def threshold_costs(problem: Problem) -> NDArray[np.float64]:
    """The expected cost per sample of every static threshold k = 0 … bins, which offloads a bin iff it is below k.

    Entry k is Σ_{i<k} w_i γ_i + Σ_{i≥k} w_i (1 − f_i): entry 0 always accepts, the last one always offloads.

    >>> threshold_costs(Problem([0.25, 0.875], 0.5, weights=[0.5, 0.5])).tolist()
    [0.4375, 0.3125, 0.5]
    """
    weights = arrival_weights("threshold_costs", problem)
    offloading = np.concatenate(([0.0], np.cumsum(weights * problem.offload_costs)))
    errors = weights * (1.0 - np.asarray(problem.agreement))
    accepting = np.concatenate((np.cumsum(errors[::-1])[::-1], [0.0]))
    return offloading + accepting


def best_threshold(problem: Problem) -> int:
    """The static threshold k of lowest expected cost; of several, the highest.

    Equal costs (to 10⁻¹²) come from bins with Δ_i = 0, which π* offloads, and from bins that never arrive, about
    which nothing is known: the highest threshold offloads both. Where f is monotone this is π*, at π*'s cost; where
    it is not, it is the best that a threshold can do.

    >>> best_threshold(Problem([0.25, 0.5, 0.875], 0.5, weights=[0.5, 0.25, 0.25]))
    2
    """
    costs = threshold_costs(problem)
    return int(np.flatnonzero(costs <= costs.min() + TIE)[-1])
