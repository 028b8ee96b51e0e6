"""The regret decomposition of Section V: which bins a run lost in, and by which kind of mistake."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge.theory.setting import Setting, numbers


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


def regret_by_bin(setting: Setting, *, offloads: ArrayLike, arrivals: ArrayLike) -> RegretByBin:
    """R^φ_i = Δ_i · O_i in Φ_H, Δ_i · A_i in Φ_L, from the offloads O_i and arrivals O_i + A_i counted per bin.

    Counts may be means over runs.

    >>> setting = Setting([0.25, 0.875], 0.5)  # Δ = ¼, 3/8
    >>> regret = regret_by_bin(setting, offloads=[6, 4], arrivals=[8, 100])
    >>> regret.wrong_accepts.tolist(), regret.wrong_offloads.tolist(), regret.total
    ([0.5, 0.0], [0.0, 1.5], 2.0)
    """
    offloaded = _counts(setting, "offloads", offloads)
    accepted = _counts(setting, "arrivals", arrivals) - offloaded
    if (accepted < 0).any():
        worst = int(accepted.argmin())
        raise ValueError(f"regret_by_bin: offloads must be <= arrivals, got {-accepted[worst]:g} more in bin {worst}")
    return RegretByBin(
        wrong_accepts=np.where(setting.oracle_offloads, setting.gaps * accepted, 0.0),
        wrong_offloads=np.where(setting.licensed, setting.gaps * offloaded, 0.0),
    )


def _counts(setting: Setting, name: str, values: object) -> NDArray[np.float64]:
    counts = np.array(numbers("regret_by_bin", name, values, 0), dtype=np.float64)
    if counts.size != setting.bins:
        raise ValueError(f"regret_by_bin: {name} must have one entry per bin ({setting.bins}), got {counts.size}")
    return counts
