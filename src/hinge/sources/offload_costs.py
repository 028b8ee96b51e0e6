"""What offloads cost in a simulation: fixed, bimodal, of lognormal latency, or as recorded."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hinge.arguments import positive, real
from hinge.sources.samples import Reals, Wholes


class OffloadCosts(Protocol):
    """Independent draws of the offload cost, and their mean."""

    @property
    def mean(self) -> float:
        """The mean offload cost γ."""

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        """The costs of the next samples, `rows` of the trace where they come from one."""


@dataclass(frozen=True)
class FixedCosts:
    """Every offload costs the same.

    >>> FixedCosts(0.5).mean
    0.5
    """

    cost: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", real("FixedCosts", "cost", self.cost, 0, 1))

    @property
    def mean(self) -> float:
        return self.cost

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        return np.full(count, self.cost)


@dataclass(frozen=True)
class BimodalCosts:
    """Two values, equally likely: the paper's stochastic setting.

    >>> BimodalCosts().mean
    0.5
    """

    low: float = 0.45
    high: float = 0.55

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", real("BimodalCosts", "low", self.low, 0, 1))
        object.__setattr__(self, "high", real("BimodalCosts", "high", self.high, self.low, 1))

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        return np.where(chance.random(count) < 0.5, self.low, self.high)


@dataclass(frozen=True)
class LognormalCosts:
    """A lognormal latency, priced and capped: min(cap, median · exp(spread · Z)) for a standard normal Z.

    `hinge.costs.MeasuredCost` turns a median in milliseconds into one in [0, 1].

    >>> round(LognormalCosts(median=0.4, spread=0.5).mean, 4)
    0.4453
    """

    median: float
    spread: float = 0.5
    cap: float = 1.0

    def __post_init__(self) -> None:
        positive("LognormalCosts", "median", self.median)
        real("LognormalCosts", "spread", positive("LognormalCosts", "spread", self.spread), 0, 30)  # e^450 is finite
        real("LognormalCosts", "cap", self.cap, 0, 1)

    @property
    def mean(self) -> float:
        # E min(c, X) = E[X; X < c] + c P(X ≥ c), each a value of the normal distribution function.
        below = (math.log(self.cap / self.median)) / self.spread if self.cap > 0 else -math.inf
        body = self.median * math.exp(self.spread**2 / 2) * _normal_cdf(below - self.spread)
        return body + self.cap * _normal_cdf(-below)

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        return np.minimum(self.cap, self.median * np.exp(self.spread * chance.standard_normal(count)))


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2  # 1 + erf(x) would lose every digit of a small tail


@dataclass(frozen=True, eq=False)
class RecordedCosts:
    """The costs in a trace, row by row."""

    recorded: Reals

    def __post_init__(self) -> None:
        costs = np.asarray(self.recorded, np.float64)
        if costs.ndim != 1 or not len(costs) or not ((costs >= 0) & (costs <= 1)).all():
            raise ValueError(f"RecordedCosts: recorded must be numbers from 0 to 1, got {self.recorded!r}")
        object.__setattr__(self, "recorded", costs)

    @property
    def mean(self) -> float:
        return float(self.recorded.mean())

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        if rows is None:
            raise TypeError("RecordedCosts: needs samples that come from a trace")
        return self.recorded[rows]
