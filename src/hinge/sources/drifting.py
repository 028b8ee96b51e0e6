"""Streams that change: agreement, arrivals or costs move from one setting to another, at once, slowly, or to and fro.

At time t the agreement of each bin, the arrival weights and the distribution of the cost are each a mixture of those
`before` and `after`, with share s(t) of the latter: whichever of them the two settings differ in, drifts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hinge.arguments import positive, real
from hinge.sources.samples import Reals, Samples, chunk_lengths, generators
from hinge.sources.synthetic import Synthetic, draw_bins


class Change(Protocol):
    """How a stream goes from one setting to another."""

    def share(self, position: Reals) -> Reals:
        """The share of the new setting at each position, where 0 is the start of the horizon and 1 its end."""


@dataclass(frozen=True)
class Sudden:
    """All at once.

    >>> Sudden(at=0.5).share(np.array([0.0, 0.4, 0.5, 1.0]))
    array([0., 0., 1., 1.])
    """

    at: float = 0.5

    def __post_init__(self) -> None:
        real("Sudden", "at", self.at, 0, 1)

    def share(self, position: Reals) -> Reals:
        return (position >= self.at).astype(np.float64)


@dataclass(frozen=True)
class Gradual:
    """Evenly between two positions.

    >>> Gradual(start=0.2, end=0.6).share(np.array([0.0, 0.4, 0.8]))
    array([0. , 0.5, 1. ])
    """

    start: float = 0.25
    end: float = 0.75

    def __post_init__(self) -> None:
        real("Gradual", "start", self.start, 0, 1)
        if real("Gradual", "end", self.end, 0, 1) <= self.start:
            raise ValueError(f"Gradual: end must be > start {self.start}, got {self.end}")

    def share(self, position: Reals) -> Reals:
        return np.clip((position - self.start) / (self.end - self.start), 0.0, 1.0)


@dataclass(frozen=True)
class Periodic:
    """To and fro, a number of times over the horizon.

    >>> Periodic(cycles=1).share(np.array([0.0, 0.5, 1.0])).round(6)
    array([0., 1., 0.])
    """

    cycles: float = 4.0

    def __post_init__(self) -> None:
        positive("Periodic", "cycles", self.cycles)

    def share(self, position: Reals) -> Reals:
        return (1.0 - np.cos(2.0 * math.pi * self.cycles * position)) / 2.0


class Drifting:
    """A stream that goes from one synthetic setting to another.

    >>> from hinge.sources import FixedCosts
    >>> before, after = Synthetic([0.2, 0.9], FixedCosts(0.5)), Synthetic([0.2, 0.4], FixedCosts(0.5))
    >>> chunk = next(Drifting(before, after, Sudden(at=0.5)).stream(seed=1, horizon=1000))
    >>> round(float(chunk.gaps[chunk.bins == 1].min()), 2), round(float(chunk.gaps[chunk.bins == 1].max()), 2)
    (-0.4, 0.1)
    """

    def __init__(self, before: Synthetic, after: Synthetic, change: Change) -> None:
        if before.bins != after.bins:
            raise ValueError(f"Drifting: after must have the {before.bins} bins of before, got {after.bins}")
        self.before, self.after, self.change = before, after, change
        self.bins = before.bins

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks of samples of the setting as it is at their time."""
        arrivals, agreement, costs = generators(seed)
        before, after = self.before, self.after
        for first, length in chunk_lengths(horizon):
            share = self.change.share(np.arange(first - 1, first - 1 + length) / horizon)
            uniforms = arrivals.random(length)
            changed = arrivals.random(length) < share
            bins = np.where(changed, draw_bins(after.weights, uniforms), draw_bins(before.weights, uniforms))
            chance = before.agreement[bins] + share * (after.agreement - before.agreement)[bins]
            agreed = (agreement.random(length) < chance).astype(np.float64)
            old, new = before.costs.draw(costs, length, None), after.costs.draw(costs, length, None)
            mean = before.mean_offload_cost + share * (after.mean_offload_cost - before.mean_offload_cost)
            paid = np.where(costs.random(length) < share, new, old)
            yield Samples(bins, agreed, paid, 1.0 - chance - mean)
