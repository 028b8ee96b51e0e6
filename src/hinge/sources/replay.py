"""Samples from a trace: drawn with replacement, in order, or shuffled.

The agreement of a bin is the trace's own: the share of its rows in which local agrees with remote.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from hinge.bins import ClassBins, QuantileBins, UniformBins
from hinge.costs import WrongCost
from hinge.sources.offload_costs import OffloadCosts, RecordedCosts
from hinge.sources.samples import Reals, Samples, Wholes, chunk_lengths, generators
from hinge.traces import Trace


class Replay(ABC):
    """A trace seen through bins; a subclass says in which order its rows come.

    Without `costs` offloads cost what the trace has recorded. With `wrong` (a `hinge.CostMatrix`) wrong answers have
    the prices it says; without it, each costs 1.
    """

    def __init__(
        self,
        trace: Trace,
        binning: UniformBins | QuantileBins | ClassBins,
        costs: OffloadCosts | None = None,
        wrong: WrongCost | None = None,
    ) -> None:
        if costs is None:
            costs = self._recorded_costs(trace)
        if isinstance(costs, RecordedCosts) and len(costs.recorded) != len(trace):
            wanted = f"{type(self).__name__}: costs must hold one for each of {len(trace)} rows"
            raise ValueError(f"{wanted}, got {len(costs.recorded)}")
        self.trace, self.binning, self.costs = trace, binning, costs
        self.bins = binning.bins
        self._bins = trace.bins_by(binning)
        self._agreed = trace.agreed.astype(np.float64) if wrong is None else _priced(trace, wrong)
        rows = np.bincount(self._bins, minlength=self.bins)
        self.weights = rows / len(trace)
        self.agreement = np.bincount(self._bins, self._agreed, self.bins) / np.maximum(rows, 1)
        self.mean_offload_cost = costs.mean
        self._gaps = (1.0 - self.agreement - self.mean_offload_cost)[self._bins]

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks of the trace's rows, with their costs."""
        arrivals, _, costs = generators(seed)
        local, remote = self.trace.local_right, self.trace.remote_right
        for rows in self._rows(arrivals, horizon):
            yield Samples(
                self._bins[rows],
                self._agreed[rows],
                self.costs.draw(costs, len(rows), rows),
                self._gaps[rows],
                None if local is None else local[rows],
                None if remote is None else remote[rows],
            )

    def rows(self) -> tuple[list[int], list[float]]:
        """The bin of every row of the trace, and whether local agreed in it."""
        return self._bins.tolist(), self._agreed.tolist()

    def _recorded_costs(self, trace: Trace) -> RecordedCosts:
        if trace.cost is None:
            raise ValueError(f"{type(self).__name__}: costs must be given, as trace {trace.name!r} recorded none")
        return RecordedCosts(trace.cost)

    @abstractmethod
    def _rows(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        """Which rows come, chunk by chunk."""


def _priced(trace: Trace, wrong: WrongCost) -> Reals:
    """One minus the price of every local answer."""
    answers = zip(trace.local.tolist(), trace.remote.tolist(), strict=True)
    return np.array([wrong.agreed(local, remote) for local, remote in answers])


class Resampled(Replay):
    """Rows drawn with replacement: the paper's stochastic arrivals, for any horizon."""

    def _rows(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        for _, length in chunk_lengths(horizon):
            yield chance.integers(0, len(self.trace), length)


class InOrder(Replay):
    """The rows as they were recorded; from the start again if the horizon is longer."""

    def _rows(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        for first, length in chunk_lengths(horizon):
            yield np.arange(first - 1, first - 1 + length) % len(self.trace)


class Shuffled(Replay):
    """Every row once in each pass over the trace, in an order of its own each time."""

    def _rows(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        waiting = np.zeros(0, np.int64)
        for _, length in chunk_lengths(horizon):
            while len(waiting) < length:
                waiting = np.concatenate([waiting, chance.permutation(len(self.trace))])
            rows, waiting = waiting[:length], waiting[length:]
            yield rows
