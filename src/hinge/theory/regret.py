"""The least regret that is possible on average, for one bin whose agreement f is uniform on (0, 1).

It solves a problem of optimal stopping. Accepting teaches nothing, so a policy that knows the horizon T and the prior
offloads first and accepts ever after. After n offloads, a of which agreed, the next agrees with chance
f̂ = (a + 1) / (n + 2), and

    V(n, a) = min( (T - n) (1 - f̂),  cost + f̂ V(n + 1, a + 1) + (1 - f̂) V(n + 1, a) ),      V(T, a) = 0

is the least expected cost of what is left. The oracle knows f and pays T E[min(1 - f, cost)] = T (cost - cost² / 2).
"""

import math

import numpy as np
from numpy.typing import NDArray

from hinge._checks import real, whole

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
