"""What no policy can beat: Theorem 3, and the same argument for many bins.

All are asymptotic, constant · log T up to O(1), for policies whose regret stays small in *every* setting of their kind.
They are 0 where nothing has to be learned at a price: no licensed bin arrives, or the divergence is infinite because
one offload settles the question (f = 1: the first cost paid proves γ > 1 − f; γ = 1: the first agreement proves f > 0).
"""

import math

import numpy as np
from numpy.typing import NDArray

from hinge.arguments import whole
from hinge.theory.kl import bernoulli_kl
from hinge.theory.setting import Setting


def single_bin_lower_bound(setting: Setting, *, horizon: int) -> float:
    """Theorem 3 for one bin: Δ_1 log T / D_B(γ ‖ 1 − f) with Bernoulli costs to learn.

    With the cost known only f can be mistaken, and it is Δ_1 log T / D_B(f ‖ 1 − γ).

    >>> single_bin_lower_bound(Setting([0.75], 0.5, known_cost=False), horizon=1)
    0.0
    >>> round(single_bin_lower_bound(Setting([0.75], 0.5), horizon=100_000), 3)  # ¼ · 11.5129 / 0.130812
    22.003
    """
    owner = "single_bin_lower_bound"
    horizon = whole(owner, "horizon", horizon, 1)
    if setting.bins != 1:
        raise ValueError(f"{owner}: setting must have one bin, got {setting.bins}")
    if setting.known_cost:
        return unstructured_lower_bound(setting, horizon=horizon)
    error, cost = 1 - setting.agreement[0], setting.mean_offload_cost
    return float(setting.gaps[0]) * math.log(horizon) / bernoulli_kl(cost, error) if setting.licensed[0] else 0.0


def unstructured_lower_bound(setting: Setting, *, horizon: int) -> float:
    """Σ_{Φ_H} Δ_i log T / D_B(f_i ‖ 1 − γ), for policies that do not assume f monotone, such as HI-LCB-lite.

    A cost to be learned cannot lower it, and adds nothing sure: every offload teaches γ, those in Φ_L at no regret.

    >>> round(unstructured_lower_bound(Setting([0.75, 0.75], 0.5), horizon=100_000), 3)
    44.006
    """
    horizon = whole("unstructured_lower_bound", "horizon", horizon, 1)
    return float(_per_log(setting).sum()) * math.log(horizon)


def structured_lower_bound(setting: Setting, *, horizon: int) -> float:
    """Δ_i0 log T / D_B(f_i0 ‖ 1 − γ), i0 the lowest bin of Φ_H that arrives, for policies that assume f monotone.

    Only i0 has no lower bin to vouch for it; once it is proven, monotone f proves every bin above.

    >>> round(structured_lower_bound(Setting([0.25, 0.75, 0.75], 0.5), horizon=100_000), 3)
    22.003
    """
    horizon = whole("structured_lower_bound", "horizon", horizon, 1)
    return float(_per_log(setting)[:1].sum()) * math.log(horizon)


def _per_log(setting: Setting) -> NDArray[np.float64]:
    # Δ_i / D_B(f_i ‖ 1 − γ) for the bins of Φ_H that arrive, lowest first; Δ_i > 0 there, so the divergence is too.
    counted = setting.licensed & setting.arriving
    divergences = [bernoulli_kl(f, 1 - setting.mean_offload_cost) for f in np.asarray(setting.agreement)[counted]]
    return setting.gaps[counted] / np.array(divergences, dtype=np.float64)
