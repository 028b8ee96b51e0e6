"""Where samples come from: synthetic curves, traces, and settings that change over time.

A source yields chunks of `Samples`, the same for the same seed. What offloads cost is an `PriceProcess`: fixed,
bimodal, of lognormal latency, or as recorded in a trace.

- `Synthetic`: any agreement curve, arrivals drawn by weight; `Scheduled`: in a given order.
- `Resampled`, `InOrder`, `Shuffled`: the rows of a trace. The agreement and the mean offload cost of a bin are those of
  its rows.
- `Drifting`: from one synthetic setting to another, by a share that changes over time: a sample arrives, and costs, as
  in the second setting with that chance; the agreement of its bin lies between both by that share.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import positive, real, whole
from hinge.bins import Bins
from hinge.costs import WrongCost
from hinge.traces import Trace

__all__ = [
    *("Change", "Drifting", "Gradual", "InOrder", "Periodic", "Replay", "Resampled", "Samples"),
    *("Scheduled", "Shuffled", "Source", "Sudden", "Synthetic"),
    *("BimodalPrice", "ConstantPrice", "LognormalPrice", "PriceProcess", "RecordedPrice"),
]

CHUNK = 16_384  # samples generated at a time: small enough for the cache, large enough to amortise numpy's calls

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


class Samples(NamedTuple):
    """A chunk of a stream, column by column."""

    bins: Wholes
    agreed: Reals  # 1 where local agrees with remote, 0 where not; or how far, in between
    costs: Reals  # what an offload costs
    gaps: Reals  # expected cost of accepting minus that of offloading; the oracle accepts iff negative
    local_right: Reals | None = None  # how far it is, by the true label, where there is one; see `Replay.right`
    remote_right: Reals | None = None
    rows: Wholes | None = None  # of the trace that the samples come from: gates may have bins of their own


class Source(Protocol):
    """Where samples come from. The same seed gives the same samples, for every policy."""

    bins: int

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks of samples, `horizon` of them in all."""


def chunk_lengths(horizon: int) -> Iterator[tuple[int, int]]:
    """The first time and the length of each chunk.

    >>> list(chunk_lengths(20_000))
    [(1, 16384), (16385, 3616)]
    """
    for start in range(0, horizon, CHUNK):
        yield start + 1, min(CHUNK, horizon - start)


def generators(seed: int) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Independent generators for arrivals, agreement and costs: changing one leaves the others as they are."""
    arrivals, agreement, costs = np.random.SeedSequence(seed).spawn(3)
    return np.random.default_rng(arrivals), np.random.default_rng(agreement), np.random.default_rng(costs)


class PriceProcess(ABC):
    """Independent draws of the offload cost, and their mean."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """The mean offload cost γ."""

    @abstractmethod
    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        """The costs of the next samples, `rows` of the trace where they come from one."""

    def mean_by_bin(self, row_bins: Wholes, bins: int) -> Reals:
        """The mean offload cost in each of so many bins; `row_bins` holds the bin of every row of the trace."""
        return np.full(bins, self.mean)


@dataclass(frozen=True)
class ConstantPrice(PriceProcess):
    """Every offload costs the same.

    >>> ConstantPrice(0.5).mean
    0.5
    """

    cost: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", real("ConstantPrice", "cost", self.cost, 0, 1))

    @property
    def mean(self) -> float:
        return self.cost

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        return np.full(count, self.cost)


@dataclass(frozen=True)
class BimodalPrice(PriceProcess):
    """Two values, equally likely: the paper's stochastic setting.

    >>> BimodalPrice().mean
    0.5
    """

    low: float = 0.45
    high: float = 0.55

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", real("BimodalPrice", "low", self.low, 0, 1))
        object.__setattr__(self, "high", real("BimodalPrice", "high", self.high, self.low, 1))

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        return np.where(chance.random(count) < 0.5, self.low, self.high)


@dataclass(frozen=True)
class LognormalPrice(PriceProcess):
    """A lognormal latency, priced and capped: min(cap, median · exp(spread · Z)) for a standard normal Z.

    `hinge.costs.MeasuredCost` turns a median in milliseconds into one in [0, 1].

    >>> round(LognormalPrice(median=0.4, spread=0.5).mean, 4)
    0.4453
    """

    median: float
    spread: float = 0.5
    cap: float = 1.0

    def __post_init__(self) -> None:
        positive("LognormalPrice", "median", self.median)
        real("LognormalPrice", "spread", positive("LognormalPrice", "spread", self.spread), 0, 30)  # e^450 is finite
        real("LognormalPrice", "cap", self.cap, 0, 1)

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
class RecordedPrice(PriceProcess):
    """The costs in a trace, row by row."""

    recorded: Reals

    def __post_init__(self) -> None:
        costs = np.asarray(self.recorded, np.float64)
        if costs.ndim != 1 or not len(costs) or not ((costs >= 0) & (costs <= 1)).all():
            raise ValueError(f"RecordedPrice: recorded must be numbers from 0 to 1, got {self.recorded!r}")
        object.__setattr__(self, "recorded", costs)

    @property
    def mean(self) -> float:
        return float(self.recorded.mean())

    def draw(self, chance: np.random.Generator, count: int, rows: Wholes | None) -> Reals:
        if rows is None:
            raise TypeError("RecordedPrice: needs samples that come from a trace")
        return self.recorded[rows]

    def mean_by_bin(self, row_bins: Wholes, bins: int) -> Reals:
        if len(self.recorded) != len(row_bins):
            wanted = f"RecordedPrice: costs must hold one for each of {len(row_bins)} rows"
            raise ValueError(f"{wanted}, got {len(self.recorded)}")
        rows, paid = np.bincount(row_bins, minlength=bins), np.bincount(row_bins, self.recorded, bins)
        return np.where(rows > 0, paid / np.maximum(rows, 1), self.mean)


class Synthetic:
    """Independent arrivals: bin i comes with weight w_i (alike unless given), and local then agrees with chance f_i.

    >>> source = Synthetic(agreement=[0.2, 0.9], costs=ConstantPrice(0.5))
    >>> [len(chunk.bins) for chunk in source.stream(seed=1, horizon=20_000)]
    [16384, 3616]
    """

    def __init__(self, agreement: ArrayLike, costs: PriceProcess, weights: ArrayLike | None = None) -> None:
        owner = type(self).__name__
        self.agreement = _curve(owner, "agreement", agreement, 1.0)
        self.bins = len(self.agreement)
        shares = _curve(owner, "weights", np.ones(self.bins) if weights is None else weights, np.inf)
        if len(shares) != self.bins or shares.sum() <= 0:
            raise ValueError(f"{owner}: weights must be {self.bins} numbers, not all 0, got {weights!r}")
        self.weights: Reals = shares / shares.sum()
        self.costs = costs
        self.mean_offload_cost = costs.mean
        self.offload_costs: Reals = np.full(self.bins, costs.mean)
        self.gaps: Reals = 1.0 - self.agreement - costs.mean  # what accepting costs more than offloading

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks of samples, arriving as the source says."""
        arrivals, agreement, costs = generators(seed)
        for bins in self._arrivals(arrivals, horizon):
            agreed = (agreement.random(len(bins)) < self.agreement[bins]).astype(np.float64)
            yield Samples(bins, agreed, self.costs.draw(costs, len(bins), None), self.gaps[bins])

    def history(self) -> tuple[list[int], list[float]]:
        """About 10 000 samples in the proportions of the source: the bin of each, and the agreement of that bin."""
        bins = np.repeat(np.arange(self.bins), np.round(self.weights * 10_000).astype(int))
        return bins.tolist(), self.agreement[bins].tolist()

    def _arrivals(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        for _, length in chunk_lengths(horizon):
            yield draw_bins(self.weights, chance.random(length))


class Scheduled(Synthetic):
    """Bins one after another in a given order, each for its share of the horizon, or of a period that repeats.

    >>> source = Scheduled([0.2, 0.9], ConstantPrice(0.5), order=[1, 0])
    >>> next(source.stream(seed=1, horizon=6)).bins
    array([1, 1, 1, 0, 0, 0])
    """

    def __init__(
        self,
        agreement: ArrayLike,
        costs: PriceProcess,
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


def draw_bins(weights: Reals, uniforms: Reals) -> Wholes:
    """Bins drawn by weight from uniform numbers: the first whose cumulative weight exceeds the number.

    A guide table answers for every number whose cell of the unit interval lies in one bin; the few others are searched.

    >>> draw_bins(np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.49, 0.5, 0.99]))
    array([0, 0, 2, 2])
    """
    edges, guide, mixed = _guide(np.asarray(weights, np.float64).tobytes())
    cell = (uniforms * _CELLS).astype(np.int64)
    bins = guide[cell]
    unsure = np.flatnonzero(mixed[cell])
    bins[unsure] = np.searchsorted(edges, uniforms[unsure], side="right")
    return bins


@lru_cache(maxsize=16)
def _guide(weights: bytes) -> tuple[Reals, Wholes, NDArray[np.bool_]]:
    """The upper edge of each bin; for each cell, the bin of its lower end, and whether others lie in it, too."""
    edges = np.cumsum(np.frombuffer(weights))
    edges[-1] = 1.0  # against rounding: every number below 1 finds a bin
    cells = np.arange(_CELLS + 1) / _CELLS
    guide = np.searchsorted(edges, cells[:-1], side="right").astype(np.int64)
    return edges, guide, np.searchsorted(edges, cells[1:], side="left") != guide


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


class Replay(ABC):
    """A trace and bins for its confidences; a subclass says in which order its rows come.

    The oracle, and with it the regret, goes by the agreement and the mean offload cost of each bin. Without `costs`
    offloads cost what the trace has recorded. With `wrong` (a `hinge.CostMatrix`) wrong answers have the prices it
    says; without it, each costs 1.
    """

    def __init__(
        self, trace: Trace, binning: Bins, costs: PriceProcess | None = None, wrong: WrongCost | None = None
    ) -> None:
        if costs is None:
            if trace.cost is None:
                raise ValueError(f"{type(self).__name__}: costs must be given, as trace {trace.name!r} recorded none")
            costs = RecordedPrice(trace.cost)
        self.trace, self.binning, self.costs = trace, binning, costs
        self.bins = binning.bins
        self._bins = trace.bins_by(binning)
        self._agreed = trace.agreed.astype(np.float64)
        if wrong is not None:  # one minus the price of every local answer
            pairs = zip(*(answers.tolist() for answers in trace.answers), strict=True)
            self._agreed = np.array([wrong.agreed(local, remote) for local, remote in pairs])
        rows = np.bincount(self._bins, minlength=self.bins)
        self.weights = rows / len(trace)
        self.agreement = np.bincount(self._bins, self._agreed, self.bins) / np.maximum(rows, 1)
        self.mean_offload_cost = costs.mean
        self.offload_costs = costs.mean_by_bin(self._bins, self.bins)
        self._gaps = (1.0 - self.agreement - self.offload_costs)[self._bins]

    @cached_property
    def right(self) -> tuple[Reals, Reals] | None:
        """How far local and remote are right on every row; None where the trace does not know the truth of any.

        Where it knows that of some rows only, these stand for the others, too: they count for as much more, and the
        others for nothing, so that the mean over all rows is the mean over these.
        """
        known, local, remote = self.trace.labelled_rows, self.trace.local_right, self.trace.remote_right
        if local is None or remote is None:
            return None
        share = known.mean()
        one, other = (np.where(known, each, 0.0) / share for each in (local, remote))
        return one, other

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks of the trace's rows, with their costs."""
        arrivals, _, costs = generators(seed)
        for rows in self._rows(arrivals, horizon):
            local, remote = (None, None) if self.right is None else (each[rows] for each in self.right)
            paid, gaps = self.costs.draw(costs, len(rows), rows), self._gaps[rows]
            yield Samples(self._bins[rows], self._agreed[rows], paid, gaps, local, remote, rows)

    def history(self) -> tuple[list[int], list[float]]:
        """The bin of every row of the trace, and whether local agreed in it."""
        return self._bins.tolist(), self._agreed.tolist()

    @abstractmethod
    def _rows(self, chance: np.random.Generator, horizon: int) -> Iterator[Wholes]:
        """Which rows come, chunk by chunk."""


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

    In which of both a sample arrived changes neither its agreement nor its cost, so that the gap of its bin is one.

    >>> before, after = Synthetic([0.2, 0.9], ConstantPrice(0.5)), Synthetic([0.2, 0.4], ConstantPrice(0.5))
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
            share = np.asarray(self.change.share(np.arange(first - 1, first - 1 + length) / horizon), np.float64)
            if share.shape != (length,) or not ((share >= 0.0) & (share <= 1.0)).all():
                wanted = "Drifting: change.share must give a number from 0 to 1 for each position"
                raise ValueError(f"{wanted}, got {share.min()} to {share.max()} for {length}")
            uniforms = arrivals.random(length)
            changed = arrivals.random(length) < share
            bins = np.where(changed, draw_bins(after.weights, uniforms), draw_bins(before.weights, uniforms))
            chance = before.agreement[bins] + share * (after.agreement - before.agreement)[bins]
            agreed = (agreement.random(length) < chance).astype(np.float64)
            old, new = before.costs.draw(costs, length, None), after.costs.draw(costs, length, None)
            mean = before.mean_offload_cost + share * (after.mean_offload_cost - before.mean_offload_cost)
            paid = np.where(costs.random(length) < share, new, old)
            yield Samples(bins, agreed, paid, 1.0 - chance - mean)
