"""What the policies that already know the setting cost per sample: the oracle π* and the static thresholds."""

import numpy as np
from numpy.typing import NDArray

from hinge.theory.setting import TIE, Setting, arrival_weights


def oracle_cost(setting: Setting) -> float:
    """π*'s expected cost per sample, Σ_i w_i · min(1 − f_i, γ) (Lemma 1).

    >>> oracle_cost(Setting([0.25, 0.875], 0.5, weights=[0.5, 0.5]))
    0.3125
    """
    weights = arrival_weights("oracle_cost", setting)
    return float(weights @ np.minimum(1.0 - np.asarray(setting.agreement), setting.mean_offload_cost))


def threshold_costs(setting: Setting) -> NDArray[np.float64]:
    """The expected cost per sample of every static threshold k = 0 … bins, which offloads a bin iff it is below k.

    Entry k is Σ_{i<k} w_i γ + Σ_{i≥k} w_i (1 − f_i): entry 0 always accepts, the last one always offloads.

    >>> threshold_costs(Setting([0.25, 0.875], 0.5, weights=[0.5, 0.5])).tolist()
    [0.4375, 0.3125, 0.5]
    """
    weights = arrival_weights("threshold_costs", setting)
    offloading = np.concatenate(([0.0], np.cumsum(weights * setting.mean_offload_cost)))
    errors = weights * (1.0 - np.asarray(setting.agreement))
    accepting = np.concatenate((np.cumsum(errors[::-1])[::-1], [0.0]))
    return offloading + accepting


def best_threshold(setting: Setting) -> int:
    """The static threshold k of lowest expected cost; of several, the highest.

    Equal costs (to 10⁻¹²) come from bins with Δ_i = 0, which π* offloads, and from bins that never arrive, about
    which nothing is known: the highest threshold offloads both. Where f is monotone this is π*, at π*'s cost; where
    it is not, it is the best that a threshold can do.

    >>> best_threshold(Setting([0.25, 0.5, 0.875], 0.5, weights=[0.5, 0.25, 0.25]))
    2
    """
    costs = threshold_costs(setting)
    return int(np.flatnonzero(costs <= costs.min() + TIE)[-1])
