"""Regret taken apart by bin and by kind of mistake (Section V), and the least regret that is possible on average.

The floor (`stopping_floor`) is for one bin whose agreement f is uniform on (0, 1), and solves a problem of optimal
stopping. Accepting teaches nothing, so a policy that knows the horizon T and the prior offloads first and accepts ever
after. After n offloads, a of which agreed, the next agrees with chance f̂ = (a + 1) / (n + 2), and

    V(n, a) = min( (T - n) (1 - f̂),  cost + f̂ V(n + 1, a + 1) + (1 - f̂) V(n + 1, a) ),      V(T, a) = 0

is the least expected cost of what is left. The oracle knows f and pays T E[min(1 - f, cost)] = T (cost - cost² / 2).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import real, whole
from hinge.theory.problem import Problem, numbers


@dataclass(frozen=True, eq=False)
class RegretByBin:
    """Pseudo-regret per bin, split by mistake: `wrong_accepts` (in Φ_L) and `wrong_offloads` (in Φ_H).

    >>> regret = RegretByBin(wrong_accepts=np.array([1.5, 0.0]), wrong_offloads=np.array([0.0, 2.0]))
    >>> regret.per_bin.tolist(), regret.total
    ([1.5, 2.0], 3.5)
    """

    wrong_accepts: NDArray[np.float64]
    wrong_offloads: NDArray[np.float64]

    @property
    def per_bin(self) -> NDArray[np.float64]:
        """R^φ_i, both kinds together: in each bin at most one of them is not 0."""
        return self.wrong_accepts + self.wrong_offloads

    @property
    def total(self) -> float:
        """R(T) = Σ_i R^φ_i."""
        return float(self.per_bin.sum())


def regret_by_bin(problem: Problem, *, offloads: ArrayLike, arrivals: ArrayLike) -> RegretByBin:
    """R^φ_i = Δ_i · O_i in Φ_H, Δ_i · A_i in Φ_L, from the offloads O_i and arrivals O_i + A_i counted per bin.

    Counts may be means over runs.

    >>> problem = Problem([0.25, 0.875], 0.5)  # Δ = ¼, 3/8
    >>> regret = regret_by_bin(problem, offloads=[6, 4], arrivals=[8, 100])
    >>> regret.wrong_accepts.tolist(), regret.wrong_offloads.tolist(), regret.total
    ([0.5, 0.0], [0.0, 1.5], 2.0)
    """
    offloaded = _counts(problem, "offloads", offloads)
    accepted = _counts(problem, "arrivals", arrivals) - offloaded
    if (accepted < 0).any():
        worst = int(accepted.argmin())
        raise ValueError(f"regret_by_bin: offloads must be <= arrivals, got {-accepted[worst]:g} more in bin {worst}")
    return RegretByBin(
        wrong_accepts=np.where(problem.oracle_offloads, problem.gaps * accepted, 0.0),
        wrong_offloads=np.where(problem.licensed, problem.gaps * offloaded, 0.0),
    )


def _counts(problem: Problem, name: str, values: object) -> NDArray[np.float64]:
    counts = np.array(numbers("regret_by_bin", name, values, 0), dtype=np.float64)
    if counts.size != problem.bins:
        raise ValueError(f"regret_by_bin: {name} must have one entry per bin ({problem.bins}), got {counts.size}")
    return counts


_SURE = 46.0  # e^-46 is 10^-20


def stopping_floor(horizon: int, offload_cost: float) -> float:
    """The Bayes regret of the best policy for one bin that knows the horizon and that its agreement is uniform.

    Exact but for rounding and for states so far from q = 1 - cost that the posterior chance of the other side is below
    e^-46 (by Hoeffding: |a - n q| > √(23 n)). They are taken as settled, which moves the result by less than T e^-46.
    About T √(20 T) states are left: T = 100 000 takes seconds.

    >>> round(stopping_floor(1, 0.5), 6)  # one sample: half of the time the decision is wrong, by a quarter on average
    0.125
    >>> round(stopping_floor(6250, 0.5), 3)
    4.206
    """
    horizon = whole("stopping_floor", "horizon", horizon, 1)
    cost = real("stopping_floor", "offload_cost", offload_cost, 0, 1)
    return max(0.0, horizon * cost * cost / 2.0 - _saving(horizon, cost))


def _saving(horizon: int, cost: float) -> float:
    """What the best policy saves against offloading always: n × cost - V, by backward induction over n."""
    saved: NDArray[np.float64] = np.zeros(horizon + 2)  # by a, for the n at hand; right inside the band only
    low, high = _band(horizon, cost)
    for n in range(horizon - 1, -1, -1):
        low_after, high_after, (low, high) = low, high, _band(n, cost)
        saved[low:low_after] = 0.0  # offload for good
        beyond = np.arange(high_after + 1, high + 2)  # accept for good
        saved[beyond] = (horizon - n - 1) * ((beyond + 1) / (n + 3) - 1.0 + cost)
        agrees = np.arange(low + 1, high + 2) / (n + 2)
        here, one_more = saved[low : high + 1], saved[low + 1 : high + 2]
        offload = here + agrees * (one_more - here)
        saved[low : high + 1] = np.maximum(offload, (horizon - n) * (agrees - (1.0 - cost)))
    return float(saved[0])


def _band(n: int, cost: float) -> tuple[int, int]:
    """The agreements after n offloads that leave doubt about which side of q the agreement is on."""
    middle, reach = n * (1.0 - cost), math.sqrt(_SURE * n / 2.0)
    return max(0, math.floor(middle - reach)), min(n, math.ceil(middle + reach))
