"""Simulation: many runs of many policies, each run one stream of samples that all policies share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge.arguments import whole
from hinge.policies import ExpiryPolicy, Need, Policy
from hinge.policies.binding import plain
from hinge.policies.chance import SEED_LIMIT
from hinge.policies.expiry import FOREVER
from hinge.simulation.compiled import Kernel, bound, machine_table, numba_installed
from hinge.simulation.executors import Executor, Threads
from hinge.simulation.kernel import ERRORS, OFFLOAD_COST, OFFLOADS, REGRET, RIGHT, TOTALS, play, play_against
from hinge.simulation.record import Record, Run, Wholes, checkpoints
from hinge.sources import Adaptive, Samples, Source

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
    >>> from hinge.sources import FixedCosts, Synthetic
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
