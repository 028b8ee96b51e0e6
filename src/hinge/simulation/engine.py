"""Simulation: many runs of many policies; in each run all policies see the same samples.

A run is a `Task`, which an executor runs: `Threads` of this machine (compiled loops release the GIL), or any object
with the same `map`.
"""

import copy
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hinge._checks import whole
from hinge.bins import FittedBins, UniformBins
from hinge.budget import make_budget
from hinge.cells import make_cells
from hinge.gate import Gate
from hinge.ledger import ERRORS, OFFLOAD_COST, OFFLOADS, REGRET, RIGHT, SUMS
from hinge.policies import Need, Policy, policy_class
from hinge.policies.policy import FOREVER, Functions
from hinge.policies.random import SEED_LIMIT
from hinge.price import make_price
from hinge.simulation import kernel
from hinge.simulation.results import Record, Results, Run, Wholes, checkpoints
from hinge.simulation.sources import ConstantPrice, Resampled, Samples, Source
from hinge.traces import Trace

Result = TypeVar("Result")
Progress = Callable[[int, int], None]


class Executor(Protocol):
    """Runs tasks, and yields their results in order."""

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """The result of each task."""


class Threads:
    """Threads of this machine, as many as it has cores for this process (Linux says which) unless said otherwise."""

    def __init__(self, count: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.count = cores if count is None else whole("Threads", "count", count, 1)

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """Results in order; closing the iterator early cancels the tasks that have not begun."""
        pool = ThreadPoolExecutor(self.count)
        try:
            yield from pool.map(lambda task: task(), tasks)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class Decides(Protocol):
    """The least that a policy must be able to do to be simulated."""

    def decide(self, bin: int, /) -> Any:
        """A decision: an object with a flag `offload`, or the flag itself."""

    def learn(self, decision: Any, agreed: Any, cost: float, /) -> Any:
        """What an offload revealed: whether local agreed with remote, and what it cost."""


Playable = Policy | Gate | Decides | Callable[[], Decides]


class PlainPolicy:
    """An object with `decide` and `learn`, or a function that makes one, in the form of a policy; it runs as Python.

    Every run starts from a deep copy of the object, or from a new one by the function.
    """

    def __init__(self, original: Decides | Callable[[], Decides], made: Decides | None = None) -> None:
        self.original, self.made = original, made
        described: Any = original if made is None else made
        self.needs: frozenset[Need] = getattr(described, "needs", frozenset())
        self.bins: int | None = getattr(described, "bins", None)
        self.table, self.decision = self, None
        self.functions = Functions(offloads=_decides, learns=_learns)

    def fresh(self, seed: int | None = None) -> "PlainPolicy":
        """The object before its first sample; it sets its own seed."""
        original: Any = self.original
        makes = isinstance(original, type) or not hasattr(original, "decide")
        return PlainPolicy(original, original() if makes else copy.deepcopy(original))


def _decides(plain: Any, bin: int, time: int) -> bool:
    decision = plain.decision = plain.made.decide(bin)
    offload = getattr(decision, "offload", decision)
    if not isinstance(offload, bool | np.bool_):
        wanted = "simulate: decide must return True, False or an object with a flag offload"
        raise TypeError(f"{wanted}, got {decision!r:.80}")
    return bool(offload)


def _learns(plain: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    plain.made.learn(plain.decision, bool(agreed) if agreed in (0.0, 1.0) else agreed, cost)
    return 0


@dataclass(frozen=True, eq=False)
class Job:
    """One run: a stream, and the policies that play on it. It can be pickled and run elsewhere."""

    policies: Mapping[str, Gate | Policy | PlainPolicy]
    source: Source
    horizon: int
    times: Wholes
    seed: int
    record_decisions: bool
    compiled: frozenset[str]
    told_costs: frozenset[str] = frozenset()

    def __call__(self) -> dict[str, Run]:
        room, playing = self.horizon if self.record_decisions else 0, {}
        for name, policy in self.policies.items():
            fresh, told_cost = policy.fresh(policy_seed(self.seed)), name in self.told_costs
            playing[name] = Player(fresh, self.source, self.times, room, name in self.compiled, told_cost)
        usual, told, time = Oracle(self.times), Oracle(self.times) if self.told_costs else None, 0
        for given in self.source.stream(self.seed, self.horizon):
            samples = checked_samples(self.source, given, self.horizon - time)
            if told:
                priced = samples._replace(gaps=told_gaps(self.source, samples))
                told.pay(priced)
            for each in playing.values():
                each.play(priced if each.told.beforehand else samples)
            usual.pay(samples)
            time += len(samples.bins)
        if time < self.horizon:
            raise ValueError(f"{_kind(self.source)}: stream must give {self.horizon} samples in all, got {time}")
        return {
            name: each.run((told if told and each.told.beforehand else usual).cost) for name, each in playing.items()
        }


def checked_samples(source: Source, samples: Samples, most: int) -> Samples:
    """A chunk of a stream, of the types that loops take; an error names the source, as it may be a user's own.

    Compiled loops check nothing: what is out of range here would be written somewhere in memory there.
    """
    owner, length = _kind(source), len(samples.bins)
    if np.asarray(samples.bins).dtype.kind not in "iu":
        raise TypeError(f"{owner}: bins must be integers, got {np.asarray(samples.bins).dtype}")
    columns = {name: column for name, column in samples._asdict().items() if column is not None}
    for name in columns:
        try:
            columns[name] = np.asarray(columns[name], np.int64 if name in ("bins", "rows") else np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{owner}: {name} must be numbers, got {columns[name]!r:.80}") from None
        if (shape := columns[name].shape) != (length,):
            raise ValueError(f"{owner}: {name} must have one number for each of {length} samples, got shape {shape}")
    if length > most:
        raise ValueError(f"{owner}: stream must give {most} samples more at most, got {length}")
    for name, column in columns.items():
        low, high = _RANGES.get(name, (0, source.bins - 1))
        outside = np.flatnonzero(~((column >= low) & (column <= high)))  # nor NaN
        if outside.size:
            wanted = "finite" if high == _MOST else f"from {low} to {high}"
            raise ValueError(f"{owner}: {name} must be {wanted}, got {column[outside[0]]}")
    return Samples(**columns)


_MOST = float(np.finfo(np.float64).max)
_RANGES: dict[str, tuple[float, float]] = {"agreed": (0, 1), "costs": (0, 1), "rows": (0, _MOST)}
_RANGES |= dict.fromkeys(("gaps", "local_right", "remote_right"), (-_MOST, _MOST))


def _kind(source: Source) -> str:
    return type(source).__name__


class Oracle:
    """What the oracle would have paid, at each of the times; NaN where gaps are not known."""

    def __init__(self, times: Wholes) -> None:
        self._times, self._marks = times, list[NDArray[np.float64]]()
        self._paid, self._time = 0.0, 0

    def pay(self, samples: Samples) -> None:
        """Add a chunk."""
        gaps = samples.gaps
        costs = np.where(gaps < 0, 1.0 - samples.agreed, np.where(np.isnan(gaps), np.nan, samples.costs))
        sums, first = self._paid + np.cumsum(costs), self._time
        stops = self._times[(self._times > first) & (self._times <= first + len(sums))] - first
        self._marks.append(sums[stops - 1])
        self._paid, self._time = float(sums[-1]), first + len(sums)

    @property
    def cost(self) -> NDArray[np.float64]:
        """At the times that have come."""
        return np.concatenate(self._marks)


def told_gaps(source: Source, samples: Samples) -> NDArray[np.float64]:
    """The gaps of samples where what offloading each would cost is told: 1 - f less that cost, and not less its mean.

    NaN where the source does not know f, as where it changes.
    """
    agreement: Any = getattr(source, "agreement", None)
    if np.shape(agreement) != (source.bins,):
        return np.full(len(samples.bins), np.nan)
    return np.asarray(1.0 - np.asarray(agreement)[samples.bins] - samples.costs)


def features_of(playable: "Gate | Policy | PlainPolicy", told_cost: bool) -> kernel.Features:
    """Return what a loop has to do for it."""
    if not isinstance(playable, Gate):
        return kernel.Features(told=told_cost)
    fitted, measured, budgeted = isinstance(playable.bins, FittedBins), playable.price, playable.budget
    return kernel.Features(fitted, measured is not None, budgeted is not None, told_cost)


def parts_of(playable: "Gate | Policy | PlainPolicy") -> kernel.Parts:
    """Return its tables, with empty ones for what it does not have."""
    if not isinstance(playable, Gate):
        return kernel.Parts(playable.table, make_cells(1), make_price(), make_budget(1.0))
    cells = playable.bins.cells if isinstance(playable.bins, FittedBins) else make_cells(1)
    price = playable.price or make_price(playable.offload_price)
    return kernel.Parts(playable.policy.table, cells, price, playable.budget or make_budget(1.0))


def places_of(playable: "Gate | Policy | PlainPolicy", source: Source) -> tuple[Wholes | None, int]:
    """Return where each row of a trace falls in the cells or bins of a gate, if not as in the source; and its bins."""
    trace: Any = getattr(source, "trace", None)
    if trace is None or not isinstance(playable, Gate):
        return None, source.bins
    if isinstance(playable.bins, FittedBins):
        return playable.bins.cell_many(trace.confidence), source.bins
    if (binning := getattr(source, "binning", None)) is not None and binning.state() == playable.bins.state():
        return None, source.bins
    return trace.bins_by(playable.bins), playable.bins.bins


class Player:
    """A policy in a run: its table, its loop, and its sums."""

    def __init__(
        self,
        playable: Gate | Policy | PlainPolicy,
        source: Source,
        times: Wholes,
        room: int,
        machine_code: bool,
        told_cost: bool = False,
    ) -> None:
        self.machine_code = machine_code
        self.places, own = places_of(playable, source)
        self.fitted = isinstance(playable, Gate) and isinstance(playable.bins, FittedBins)
        policy = playable.policy if isinstance(playable, Gate) else playable
        parts = parts_of(playable)
        self.parts: Any = kernel.machine_table(parts) if machine_code else parts
        self.told = kernel.Told(Need.COST in policy.needs, Need.AGREEMENT in policy.needs, told_cost)
        self.loop = kernel.loop(policy.functions, features_of(playable, told_cost), machine_code)
        self.time = 0
        self.book = kernel.Book(
            sums=np.zeros(SUMS) if machine_code else [0.0] * SUMS,  # Python is faster on lists
            stops=times,
            marks=np.full((len(times), SUMS), np.nan),
            wrong_accepts=np.zeros(own, np.int64),
            wrong_offloads=np.zeros(own, np.int64),
            decisions=np.zeros(room, np.bool_),
        )
        self.has_truth, self._knows = False, True

    def play(self, samples: Samples) -> None:
        """Run over the next samples."""
        self.has_truth = samples.local_right is not None
        self._knows = self._knows and not np.isnan(samples.gaps).any()
        length = len(samples.bins)
        if self.places is not None and samples.rows is not None:
            here = self.places[samples.rows]
            samples = samples._replace(**({"rows": here} if self.fitted else {"bins": here, "rows": None}))
        elif samples.rows is not None:
            samples = samples._replace(rows=None)
        nothing, nowhere = np.zeros(0), np.zeros(0, np.int64)
        empty = (nowhere, nothing, nothing, nothing, nothing, nothing, nowhere)
        given: Any = (mine if column is None else column for column, mine in zip(samples, empty, strict=True))
        columns = Samples(*map(self._native, given))
        book = self.book._replace(decisions=self.book.decisions[self.time : self.time + length])
        self.loop(self.parts, self.time, columns, self.told, book)
        self.time += length

    def _native(self, column: NDArray[Any]) -> Any:
        return column if self.machine_code else column.tolist()

    def run(self, oracle_cost: NDArray[np.float64]) -> Run:
        """What was recorded."""
        sums, times = self.book.marks.T, self.book.stops
        right = sums[RIGHT] if self.has_truth else np.full(len(times), np.nan)
        return Run(
            regret=sums[REGRET] if self._knows else np.full(len(times), np.nan),
            cost=sums[OFFLOAD_COST] + sums[ERRORS],
            oracle_cost=oracle_cost,
            offloads=sums[OFFLOADS],
            matched=times - sums[ERRORS],
            right=right,
            true_cost=sums[OFFLOAD_COST] + (times - right),
            wrong_accepts=self.book.wrong_accepts,
            wrong_offloads=self.book.wrong_offloads,
            decisions=self.book.decisions if len(self.book.decisions) else None,
        )


def simulate(
    policies: "Mapping[str, Playable | str] | Sequence[Playable | str] | Playable | str",
    source: Source | Trace,
    horizon: int,
    runs: int = 1,
    seed: int = 0,
    *,
    offload_cost: float | None = None,
    bins: int | str = 16,
    record_decisions: bool = False,
    times: Sequence[int] | None = None,
    told_costs: Collection[str] = (),
    executor: Executor | None = None,
    progress: Progress | None = None,
    machine_code: bool | None = None,
) -> Results:
    """Run policies on streams from a source; all policies see the same samples in the same run.

    `policies` are names or prototypes: every run starts from a fresh copy with a seed of its own. Besides policies they
    may be gates, objects with `decide(bin)` and `learn(decision, agreed, cost)`, which are copied deeply for every run,
    or functions without parameters that make such objects. `source` is a `Source`, or a trace, whose rows are drawn
    with replacement at an `offload_cost` and in so many uniform `bins` ("fitted": bins that fit themselves).

    Objects run as Python. The rest is compiled if numba is there and horizon × runs is more than 200 000, or it
    was compiled before in this process; `machine_code` says which. The results are the same. Interrupting (Ctrl-C)
    keeps the runs that are done. Sums are recorded at `times` and at the horizon; by default at times that are evenly
    spread on a logarithmic scale. Policies named in `told_costs` are told what offloading a sample costs before they
    decide, as by `decide(bin, cost=…)`; their regret is by an oracle that knows it, too: NaN where the source has no
    `agreement`. A gate may have other bins than the source, if that has confidences; the oracle has the source's.

    >>> from hinge import load_trace
    >>> class EveryOther:  # a policy may be any object with decide and learn
    ...     seen = 0
    ...     def decide(self, bin):
    ...         self.seen += 1
    ...         return self.seen % 2 == 0  # whether to offload
    ...     def learn(self, decision, agreed, cost):
    ...         pass
    >>> results = simulate(["hi-lcb", EveryOther()], load_trace("fashion"), horizon=2000, runs=3, offload_cost=0.5)
    >>> bool(results["hi-lcb"].regret[:, -1].mean() < results["EveryOther"].regret[:, -1].mean())
    True
    """
    fitted = bins == "fitted"
    if isinstance(source, Trace):
        binning = UniformBins(16 if fitted else whole("simulate", "bins", bins, 1))
        source = Resampled(source, binning, None if offload_cost is None else ConstantPrice(offload_cost))
    context = {"horizon": whole("simulate", "horizon", horizon, 1, FOREVER), "seed": 0}
    made = {name: _built(policy, source, fitted, context) for name, policy in by_name(policies).items()}
    _warn_of_prices(made, source)
    named = {name: _playable(policy, source) for name, policy in made.items()}
    _check(named, source, told_costs)
    runs = whole("simulate", "runs", runs, 1)
    seed = whole("simulate", "seed", seed, 0)

    def compiles(playable: Gate | Policy | PlainPolicy, told_cost: bool) -> bool:
        if isinstance(playable, PlainPolicy):
            return False
        if machine_code is not None:
            return machine_code
        policy = playable.policy if isinstance(playable, Gate) else playable
        return kernel.pays(horizon * runs, policy.functions, features_of(playable, told_cost))

    compiled = frozenset(name for name, policy in named.items() if compiles(policy, name in told_costs))
    marks = checkpoints(horizon)
    if times is not None:
        checked = {whole("simulate", f"times[{k}]", time, 1, horizon) for k, time in enumerate(times)}
        marks = np.array(sorted({*checked, horizon}), np.int64)
    told, seeds = frozenset(told_costs), run_seeds(seed, runs)
    tasks = [Job(named, source, horizon, marks, each, record_decisions, compiled, told) for each in seeds]
    done: list[dict[str, Run]] = []
    try:
        for result in (executor or Threads()).map(tasks):
            done.append(result)
            if progress:
                progress(len(done), runs)
    except KeyboardInterrupt:
        if not done:
            raise
    records = {name: Record(name, marks, tuple(run[name] for run in done)) for name in named}
    return Results(records, complete=len(done) == runs)


def run_seeds(seed: int, runs: int) -> list[int]:
    """A seed for each run; the first runs are the same however many follow.

    >>> run_seeds(1, 2) == run_seeds(1, 3)[:2]
    True
    """
    return [int(np.random.SeedSequence([seed, run]).generate_state(1)[0]) for run in range(runs)]


def policy_seed(seed: int) -> int:
    """The seed of the policies in a run: another stream of random numbers than that of the samples."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]) % SEED_LIMIT


def by_name(policies: Any) -> dict[str, Any]:
    """Return policies under their names; those of plain objects are the names of their classes."""
    if isinstance(policies, Mapping):
        return dict(policies)
    if isinstance(policies, str) or not isinstance(policies, Iterable):
        policies = [policies]
    names = [_name(policy) for policy in policies]
    if len({*names}) < len(names):
        raise ValueError(f"simulate: policies of one name need a dict that names them apart, got {names}")
    return dict(zip(names, policies, strict=True))


def _name(policy: Any) -> str:
    if isinstance(policy, str):
        return policy
    policy = policy.policy if isinstance(policy, Gate) else policy
    return str(getattr(policy, "name", None) or getattr(policy, "__name__", type(policy).__name__))


def _built(policy: Any, source: Source, fitted: bool, context: Mapping[str, Any]) -> Any:
    """Return a policy by name at the price of the source, or the object as it is."""
    if not isinstance(policy, str):
        return policy
    cost = getattr(source, "mean_offload_cost", None)
    kind = policy_class(policy)
    settings = {**context, "bins": source.bins, "offload_cost": cost, "agreement": getattr(source, "agreement", None)}
    built = kind.from_settings({key: value for key, value in settings.items() if value is not None})
    return Gate(built, bins=FittedBins()) if fitted and built.functions.regroups else built


def _warn_of_prices(policies: Mapping[str, Any], source: Source) -> None:
    """Say where a policy decides by another price than its world has."""
    world = getattr(source, "mean_offload_cost", None)
    for name, policy in policies.items():
        price = getattr(policy.policy if isinstance(policy, Gate) else policy, "offload_cost", None)
        measured = isinstance(policy, Gate) and policy.price is not None
        if isinstance(price, float) and world is not None and not measured and abs(price - world) > 1e-9:
            told = f"decides by an offload cost of {price:g}, but offloads cost {world:g} here"
            warnings.warn(f"simulate: {name} {told}", stacklevel=3)


def _playable(policy: Any, source: Source) -> "Gate | Policy | PlainPolicy":
    if isinstance(policy, Gate):
        if not hasattr(source, "trace"):
            if isinstance(policy.bins, FittedBins):
                raise ValueError("simulate: bins that fit themselves need a source with confidences, as a trace has")
            if policy.bins.bins != source.bins:
                raise ValueError(f"simulate: a gate has {policy.bins!r}, but the source has {source.bins} bins")
        return policy
    if isinstance(policy, Policy):
        return policy
    if callable(policy) or (hasattr(policy, "decide") and hasattr(policy, "learn")):
        return PlainPolicy(policy)
    wanted = "simulate: policies must be policies, their names, objects with decide and learn, or what makes one"
    raise TypeError(f"{wanted}, got {policy!r}")


def _check(policies: "Mapping[str, Gate | Policy | PlainPolicy]", source: Source, told_costs: Collection[str]) -> None:
    for name in told_costs:
        policy = policies.get(name)
        inner = policy.policy if isinstance(policy, Gate) else policy
        if not isinstance(inner, Policy) or inner.functions.offloads_at is None:
            raise TypeError(f"simulate: told_costs must name policies whose decide takes a cost, got {name!r}")
    for name, policy in policies.items():
        if isinstance(policy, Gate) or policy.bins is None:
            continue
        if policy.bins != source.bins:
            raise ValueError(f"simulate: policy {name!r} has {policy.bins} bins, but the source has {source.bins}")
