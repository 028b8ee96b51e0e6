"""Samples made to order: any agreement curve, arrivals by chance, by schedule, or chosen by an adversary."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from hinge.arguments import real, whole
from hinge.sources.offload_costs import OffloadCosts
from hinge.sources.samples import Reals, Samples, Wholes, chunk_lengths, generators


class Synthetic:
    """Independent arrivals: bin i comes with weight w_i (alike unless given), and local then agrees with chance f_i.

    >>> from hinge.sources import FixedCosts
    >>> source = Synthetic(agreement=[0.2, 0.9], costs=FixedCosts(0.5))
    >>> [len(chunk.bins) for chunk in source.stream(seed=1, horizon=20_000)]
    [16384, 3616]
    """

    def __init__(self, agreement: ArrayLike, costs: OffloadCosts, weights: ArrayLike | None = None) -> None:
        owner = type(self).__name__
        self.agreement = _curve(owner, "agreement", agreement, 1.0)
        self.bins = len(self.agreement)
        shares = _curve(owner, "weights", np.ones(self.bins) if weights is None else weights, np.inf)
        if len(shares) != self.bins or shares.sum() <= 0:
            raise ValueError(f"{owner}: weights must be {self.bins} numbers, not all 0, got {weights!r}")
        self.weights: Reals = shares / shares.sum()
        self.costs = costs
        self.mean_offload_cost = costs.mean
        self.gaps: Reals = 1.0 - self.agreement - costs.mean  # what accepting costs more than offloading

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks of samples, arriving as the source says."""
        arrivals, agreement, costs = generators(seed)
        for bins in self._arrivals(arrivals, horizon):
            agreed = (agreement.random(len(bins)) < self.agreement[bins]).astype(np.float64)
            yield Samples(bins, agreed, self.costs.draw(costs, len(bins), None), self.gaps[bins])

    def _arrivals(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        for _, length in chunk_lengths(horizon):
            yield draw_bins(self.weights, chance.random(length))


class Scheduled(Synthetic):
    """Bins one after another in a given order, each for its share of the horizon, or of a period that repeats.

    >>> from hinge.sources import FixedCosts
    >>> source = Scheduled([0.2, 0.9], FixedCosts(0.5), order=[1, 0])
    >>> next(source.stream(seed=1, horizon=6)).bins
    array([1, 1, 1, 0, 0, 0])
    """

    def __init__(
        self,
        agreement: ArrayLike,
        costs: OffloadCosts,
        weights: ArrayLike | None = None,
        *,
        order: Sequence[int],
        period: int | None = None,
    ) -> None:
        super().__init__(agreement, costs, weights)
        if sorted(order) != list(range(self.bins)):
            raise ValueError(f"{type(self).__name__}: order must hold each of {self.bins} bins once, got {order!r}")
        self.order = np.asarray(order, np.int64)
        self.period = None if period is None else whole(type(self).__name__, "period", period, 1)

    def _arrivals(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        period = horizon if self.period is None else self.period
        ends = np.round(np.cumsum(self.weights[self.order]) * period)
        ends[-1] = period
        for first, length in chunk_lengths(horizon):
            times = np.arange(first - 1, first - 1 + length) % period
            yield self.order[np.searchsorted(ends, times, side="right")]


def sorted_up(agreement: ArrayLike, costs: OffloadCosts, weights: ArrayLike | None = None) -> Scheduled:
    """The least confident samples first."""
    return Scheduled(agreement, costs, weights, order=range(np.size(agreement)))


def sorted_down(agreement: ArrayLike, costs: OffloadCosts, weights: ArrayLike | None = None) -> Scheduled:
    """The most confident samples first."""
    return Scheduled(agreement, costs, weights, order=range(np.size(agreement) - 1, -1, -1))


def rare_first(agreement: ArrayLike, costs: OffloadCosts, weights: ArrayLike) -> Scheduled:
    """The rarest bins first, when the least is known."""
    return Scheduled(agreement, costs, weights, order=np.argsort(np.asarray(weights), kind="stable").tolist())


def blocks(agreement: ArrayLike, costs: OffloadCosts, weights: ArrayLike | None = None, length: int = 50) -> Scheduled:
    """Runs of one bin, `length` samples each on average, round and round."""
    bins = np.size(agreement)
    return Scheduled(agreement, costs, weights, order=range(bins), period=whole("blocks", "length", length, 1) * bins)


class Adaptive(Synthetic):
    """An adversary who sees the policy's expiries and always sends the bin that hurts most.

    At every sample it looks at what the policy would do with each bin and sends the one whose expected regret is
    largest (the lowest of equals). It can play against deterministic policies alone.
    """

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks in which `agreed` holds uniform draws; which bin they are compared with is the adversary's choice."""
        _, agreement, costs = generators(seed)
        for _, length in chunk_lengths(horizon):
            bins, gaps = np.zeros(length, np.int64), np.zeros(length)
            yield Samples(bins, agreement.random(length), self.costs.draw(costs, length, None), gaps)


def draw_bins(weights: Reals, uniforms: Reals) -> Wholes:
    """Bins drawn by weight from uniform numbers: the first whose cumulative weight exceeds the number.

    A guide table answers for every number whose cell of the unit interval lies in one bin; the few others are searched.

    >>> draw_bins(np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.49, 0.5, 0.99]))
    array([0, 0, 2, 2])
    """
    edges = np.cumsum(weights)
    edges[-1] = 1.0  # against rounding: every number below 1 finds a bin
    cells = np.arange(_CELLS + 1) / _CELLS
    guide = np.searchsorted(edges, cells[:-1], side="right").astype(np.int64)
    mixed = np.searchsorted(edges, cells[1:], side="left") != guide
    cell = (uniforms * _CELLS).astype(np.int64)
    bins = guide[cell]
    unsure = np.flatnonzero(mixed[cell])
    bins[unsure] = np.searchsorted(edges, uniforms[unsure], side="right")
    return bins


_CELLS = 4096


def _curve(owner: str, name: str, values: ArrayLike, high: float) -> Reals:
    """A number from 0 to `high` for each bin."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{owner}: {name} must be a number for each bin, got {values!r}") from None
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{owner}: {name} must be a number for each bin, got {values!r}")
    for bin, value in enumerate(array.tolist()):
        real(owner, f"{name}[{bin}]", value, 0, high)
    return array
