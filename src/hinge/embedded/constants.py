"""A policy's parameters as the whole numbers that `hinge.h` is compiled with."""

import math
from typing import NamedTuple

from hinge.arguments import real, whole

MOST_BINS = 255  # a bin is a byte, and one value is left for a bin too high
ONE = 2**32  # the unit of all fractions
LOWEST_ALPHA, HIGHEST_ALPHA = 1e-4, 1e4


class Constants(NamedTuple):
    """What the C and its twin compute with; `threshold`, `rate` and `shift` are explained in `hinge.h`."""

    bins: int
    threshold: int  # 0 where the cost is learned
    rate: int
    shift: int


def constants(bins: int, alpha: float, offload_cost: float | None) -> Constants:
    """The nearest constants that never license a bin that the parameters do not.

    >>> constants(bins=16, alpha=0.52, offload_cost=0.5)
    Constants(bins=16, threshold=2147483648, rate=2979003855, shift=2)
    >>> constants(bins=256, alpha=0.52, offload_cost=0.5)
    Traceback (most recent call last):
    ValueError: microcontroller: bins must be an integer from 1 to 255, got 256
    """
    bins = whole("microcontroller", "bins", bins, 1, MOST_BINS)
    alpha = real("microcontroller", "alpha", alpha, LOWEST_ALPHA, HIGHEST_ALPHA)
    threshold = 0 if offload_cost is None else min(math.ceil((1.0 - offload_cost) * ONE), ONE - 1)
    rate = 1.0 / (alpha * math.log(2.0))
    shift = max(0, math.frexp(rate)[1])
    return Constants(bins, threshold, min(int(math.ldexp(rate, 32 - shift)), ONE - 1), shift)
