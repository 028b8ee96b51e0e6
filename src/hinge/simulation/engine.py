"""Where runs run: on threads of this machine, or on a cluster.

Simulation: many runs of many policies, each run one stream of samples that all policies share.

Policies by name, made ready for a source: each gets what it needs to know and no more.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hinge._checks import whole
from hinge.policies import ExpiryPolicy, Need, Policy, build, policy_class, policy_names
from hinge.policies.budgets import plain
from hinge.policies.expiry import FOREVER
from hinge.policies.random import SEED_LIMIT
from hinge.simulation.kernel import (
    ERRORS,
    OFFLOAD_COST,
    OFFLOADS,
    REGRET,
    RIGHT,
    TOTALS,
    Kernel,
    bound,
    machine_table,
    numba_installed,
    play,
    play_against,
)
from hinge.simulation.results import Record, Run, Wholes, checkpoints
from hinge.simulation.sources import Adaptive, Replay, Samples, Source, Synthetic

Result = TypeVar("Result")


class Executor(Protocol):
    """Runs tasks, and hands out their results in order."""

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """The result of each task."""


class Threads:
    """Threads of this machine: compiled loops let go of Python's lock, so that threads beat processes."""

    def __init__(self, count: int | None = None) -> None:
        self.count = whole("Threads", "count", count, 1) if count is not None else _cores()

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """Results in order; leaving early drops the tasks that have not begun."""
        pool = ThreadPoolExecutor(self.count)
        try:
            yield from pool.map(lambda task: task(), tasks)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class Ray:
    """The workers of a Ray cluster (extra `ray`); the one that is already connected, or one started here."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """Results in order; leaving early cancels what is still running."""
        import ray

        started = not ray.is_initialized()
        if started:
            ray.init(**self.options)
        waiting: list[Any] = []
        try:
            remote = ray.remote(_call)
            waiting += [remote.remote(task) for task in tasks]
            for reference in waiting:
                yield ray.get(reference)
        finally:
            for reference in waiting:
                ray.cancel(reference)
            if started:
                ray.shutdown()


def _cores() -> int:
    """The cores this process may use; only Linux says which of them are its own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _call(task: Callable[[], Result]) -> Result:
    return task()


Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Results(Mapping[str, Record]):
    """The records of all policies, by name. `complete` is False where a run was interrupted."""

    records: dict[str, Record]
    complete: bool

    def __getitem__(self, name: str) -> Record:
        return self.records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def difference(self, one: str, other: str) -> NDArray[np.float64]:
        """Regret of one policy minus that of another on the same samples: runs × checkpoints."""
        return self[one].regret - self[other].regret


@dataclass(frozen=True, eq=False)
class Task:
    """One run: a stream, and the policies that play on it. It can be sent to another process or machine."""

    policies: Mapping[str, Policy]
    source: Source
    horizon: int
    times: Wholes
    seed: int
    record_decisions: bool
    machine_code: bool

    def __call__(self) -> dict[str, Run]:
        players = {name: self._player(policy) for name, policy in self.policies.items()}
        oracle_cost, marks, time = 0.0, [], 0
        for samples in self.source.stream(self.seed, self.horizon):
            for player in players.values():
                samples = player.take(samples)  # an adversary fills in its bins
            sums = oracle_cost + np.cumsum(np.where(samples.gaps < 0, 1.0 - samples.agreed, samples.costs))
            stops = self.times[(self.times > time) & (self.times <= time + len(sums))] - time
            marks.append(sums[stops - 1])
            oracle_cost, time = float(sums[-1]), time + len(sums)
        return {name: player.run(np.concatenate(marks)) for name, player in players.items()}

    def _player(self, policy: Policy) -> "Player":
        fresh = policy.fresh(policy_seed(self.seed))
        room = self.horizon if self.record_decisions else 0
        return Player(fresh, self.source, self.times, room, self.machine_code)


class Player:
    """A policy at play: its table, its kernel, and its sums."""

    def __init__(self, policy: Policy, source: Source, times: Wholes, room: int, machine_code: bool) -> None:
        self.policy, self.source, self.times, self.machine_code = policy, source, times, machine_code
        self.table = machine_table(policy) if machine_code else policy.table
        against = isinstance(source, Adaptive)
        functions = (play_against if against else play, policy._offloads, policy._notes, policy._learns)
        kernel, offloads, notes, learns = map(plain, functions)
        self.kernel: Kernel = bound(kernel, offloads, notes, learns, machine_code)
        self.take = self._take_from_adversary if against else self._take
        self.time = 0
        self.totals = np.zeros(TOTALS)
        self.marks = np.full((len(times), TOTALS), np.nan)
        self.wrong_accepts = np.zeros(policy.bins, np.int64)
        self.wrong_offloads = np.zeros(policy.bins, np.int64)
        self.decisions = np.zeros(room, np.bool_)
        self.knows_truth = False

    def _take(self, samples: Samples) -> Samples:
        self.knows_truth = samples.local_right is not None
        nothing = np.zeros(0, np.bool_)
        columns = [nothing if column is None else column for column in samples]
        needs = self.policy.needs
        self.kernel(
            *(self.table, self.time),
            *(self._native(column) for column in columns),
            *(Need.COST in needs, Need.AGREEMENT in needs),
            *self._sums(len(samples.bins)),
        )
        self.time += len(samples.bins)
        return samples

    def _take_from_adversary(self, samples: Samples) -> Samples:
        length, source = len(samples.bins), self.source
        if not isinstance(source, Adaptive):
            raise TypeError(f"{self.policy.name}: only an adaptive adversary chooses its samples")
        bins, agreed = np.zeros(length, np.int64), np.zeros(length)
        columns = (source.agreement, source.gaps, samples.agreed, samples.costs)
        self.kernel(
            *(self.table, self.time),
            *(self._native(column) for column in columns),
            *self._sums(length),
            *(bins, agreed),
        )
        self.time += length
        return Samples(bins, agreed, samples.costs, source.gaps[bins])

    def _native(self, column: NDArray[Any]) -> Any:
        return column if self.machine_code else column.tolist()  # Python is faster on lists

    def _sums(self, length: int) -> tuple[Any, ...]:
        """Where the kernel keeps its sums, and the decisions of the next samples."""
        decisions = self.decisions[self.time : self.time + length]
        return self.totals, self.times, self.marks, self.wrong_accepts, self.wrong_offloads, decisions

    def run(self, oracle_cost: NDArray[np.float64]) -> Run:
        """All that was written down."""
        sums, times = self.marks.T, self.times
        right = sums[RIGHT] if self.knows_truth else np.full(len(times), np.nan)
        return Run(
            regret=sums[REGRET],
            cost=sums[OFFLOAD_COST] + sums[ERRORS],
            oracle_cost=oracle_cost,
            offloads=sums[OFFLOADS],
            matched=times - sums[ERRORS],
            right=right,
            true_cost=sums[OFFLOAD_COST] + (times - right),
            wrong_accepts=self.wrong_accepts,
            wrong_offloads=self.wrong_offloads,
            decisions=self.decisions if len(self.decisions) else None,
        )


def simulate(
    policies: Mapping[str, Policy] | Sequence[Policy],
    source: Source,
    horizon: int,
    runs: int = 1,
    seed: int = 0,
    *,
    record_decisions: bool = False,
    times: Sequence[int] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    machine_code: bool | None = None,
) -> Results:
    """Run policies on streams from a source; all policies see the same samples in the same run.

    `policies` are prototypes: every run starts from a fresh copy with a seed of its own. Interrupting (Ctrl-C) keeps
    the runs that are done. Without numba the same loops run as Python. Sums are written down at `times` and at the
    horizon; by default at times that are evenly spread on a logarithmic scale.

    >>> from hinge import HILCB, AlwaysRemote
    >>> from hinge.simulation.sources import FixedCosts, Synthetic
    >>> source = Synthetic(agreement=[0.1, 0.6, 0.9], costs=FixedCosts(0.5))
    >>> results = simulate([HILCB(bins=3, offload_cost=0.5), AlwaysRemote(bins=3)], source, horizon=2000, runs=3)
    >>> bool(results["hi-lcb"].regret[:, -1].mean() < results["always-remote"].regret[:, -1].mean())
    True
    """
    named = policies if isinstance(policies, Mapping) else _by_name(policies)
    _check(named, source)
    horizon, runs = whole("simulate", "horizon", horizon, 1, FOREVER), whole("simulate", "runs", runs, 1)
    seed = whole("simulate", "seed", seed, 0)
    machine_code = numba_installed() if machine_code is None else machine_code
    marks = checkpoints(horizon) if times is None else _marks(times, horizon)
    tasks = [
        Task(named, source, horizon, marks, run_seed, record_decisions, machine_code)
        for run_seed in run_seeds(seed, runs)
    ]
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


def _marks(times: Sequence[int], horizon: int) -> Wholes:
    checked = {whole("simulate", f"times[{k}]", time, 1, horizon) for k, time in enumerate(times)}
    return np.array(sorted({*checked, horizon}), np.int64)


def run_seeds(seed: int, runs: int) -> list[int]:
    """A seed for each run; the first runs are the same however many follow.

    >>> run_seeds(1, 2) == run_seeds(1, 3)[:2]
    True
    """
    return [int(np.random.SeedSequence([seed, run]).generate_state(1)[0]) for run in range(runs)]


def policy_seed(seed: int) -> int:
    """The seed of the policies in a run: another stream of chance than that of the samples."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]) % SEED_LIMIT


def _by_name(policies: Sequence[Policy]) -> dict[str, Policy]:
    named = {policy.name: policy for policy in policies}
    if len(named) < len(policies):
        names = [policy.name for policy in policies]
        raise ValueError(f"simulate: policies of one name need a dict that names them apart, got {names}")
    return named


def _check(policies: Mapping[str, Policy], source: Source) -> None:
    for name, policy in policies.items():
        if policy.bins != source.bins:
            raise ValueError(f"simulate: policy {name!r} has {policy.bins} bins, but the source has {source.bins}")
        if isinstance(source, Adaptive):
            if not isinstance(policy, ExpiryPolicy):
                raise TypeError(f"simulate: an adaptive adversary needs policies that decide by expiry, got {name!r}")
            if len(policies) > 1:
                raise ValueError("simulate: an adaptive adversary plays against one policy at a time")


FITTED = ("offline", "logistic")  # fitted in hindsight, on the very samples they are then tried on
KNOWING = ("oracle", "static", *FITTED)  # need a number for the cost, and cannot learn it


def lineup(
    names: Iterable[str],
    source: Replay | Synthetic,
    *,
    offload_cost: float | None,
    horizon: int,
    alpha: float = 0.52,
    seed: int = 0,
) -> dict[str, Policy]:
    """The policies of these names for a source; `all` stands for every policy that is free to offload at its cost.

    The oracle is told the source's agreement and mean cost. The modules that are fitted on labelled history (offline,
    logistic) are fitted on the source's own bins, in hindsight: they show the best that such a module could do.

    >>> from hinge.simulation.sources import FixedCosts
    >>> source = Synthetic([0.2, 0.9], FixedCosts(0.5))
    >>> lineup(["hi-lcb", "oracle"], source, offload_cost=0.5, horizon=1000)["oracle"]
    Oracle(agreement=[0.2, 0.9], offload_cost=0.5)
    """
    wanted = list(names)
    if wanted == ["all"]:
        wanted = [name for name in policy_names() if not policy_class(name).keeps_budget]
    return {name: _ready(name, source, offload_cost, horizon, alpha, seed) for name in wanted}


def _ready(
    name: str, source: Replay | Synthetic, offload_cost: float | None, horizon: int, alpha: float, seed: int
) -> Policy:
    chosen = policy_class(name)
    settings = {
        "bins": source.bins,
        "alpha": alpha,
        "offload_cost": source.mean_offload_cost if name in KNOWING and offload_cost is None else offload_cost,
        "horizon": horizon,
        "seed": seed,
        "agreement": source.agreement.tolist(),
    }
    if hasattr(chosen, "fit"):
        settings["history"], settings["agreed"] = _history(source)
    return build(name, **settings)


def _history(source: Replay | Synthetic) -> tuple[list[int], list[float]]:
    """A labelled history in the proportions of the source: its rows, or the share of each bin."""
    if isinstance(source, Replay):
        return source.rows()
    counts = np.maximum(np.round(source.weights * 10_000), 0).astype(int)
    history = np.repeat(np.arange(source.bins), counts)
    return history.tolist(), source.agreement[history].tolist()
