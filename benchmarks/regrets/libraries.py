"""Regret and time per sample of Hinge's policies and of other libraries, side by side on the same samples.

The libraries' bandits assume that a pulled arm reveals its reward. Here an accepted sample reveals nothing, so nobody
is told anything then. An offload reveals both rewards, and each library is tried in two ways:

- as is: only the arm that was pulled, offload, is updated, and accept never is;
- told both: both arms are updated, as if accept had been pulled too.

Both are played up to the first horizon; the one with less regret there goes on to the second, and only it is shown.
Rewards are 1 - 1{disagree} for accept and 1 - cost for offload, as the libraries want them between 0 and 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import SPREAD, spread
from benchmarks.timing import in_turn, whole
from hinge import HILCB, Policy, Probation, Thompson, UniformBins, load_trace, simulate
from hinge.policies import HedgeHI
from hinge.simulation import run_seeds
from hinge.simulation.sources import ConstantPrice, Resampled

BINS = 16
ALPHA = 0.52
SEED = 4
REPEATS = 3  # of a timed batch; the shortest counts
OFFLOAD, ACCEPT = 1, 0
ARMS = [OFFLOAD, ACCEPT]  # some libraries break ties by taking the first: offload, from which they learn
CELLS = (("cifar10-vgg16", 0.5), ("cifar10-vgg16", 0.2), ("fashion", 0.5), ("fashion", 0.2))  # traces and offload costs

Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]


# -- the libraries ----------------------------------------------------------------------------------------------------


class Gate(ABC):
    """A library's bandit put to our problem. `both`: an offload also updates accept."""

    def __init__(self, cost: float, both: bool, seed: int) -> None:
        self.cost, self.both, self.seed = cost, both, seed

    @abstractmethod
    def offloads(self, bin: int) -> bool:
        """Decide for the next sample."""

    @abstractmethod
    def learn(self, bin: int, agreed: bool) -> None:
        """Take in what an offload revealed."""


class RiverUCB(Gate):
    """UCB1, one bandit for each bin."""

    def __init__(self, cost: float, both: bool, seed: int) -> None:
        super().__init__(cost, both, seed)
        self.bandits = [self.bandit(seed * BINS + bin) for bin in range(BINS)]

    def bandit(self, seed: int) -> Any:
        from river import bandit

        return bandit.UCB(delta=1, seed=seed)

    def offloads(self, bin: int) -> bool:
        return bool(self.bandits[bin].pull(ARMS) == OFFLOAD)

    def learn(self, bin: int, agreed: bool) -> None:
        if self.both:
            self.bandits[bin].update(ACCEPT, agreed)
        self.bandits[bin].update(OFFLOAD, 1.0 - self.cost)


class RiverThompson(RiverUCB):
    """Thompson sampling, one bandit for each bin. River's Beta counts hits and misses: 1 - cost is drawn as one."""

    def __init__(self, cost: float, both: bool, seed: int) -> None:
        super().__init__(cost, both, seed)
        self.draw = Random(seed).random

    def bandit(self, seed: int) -> Any:
        from river import bandit, proba

        return bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=seed)

    def learn(self, bin: int, agreed: bool) -> None:
        if self.both:
            self.bandits[bin].update(ACCEPT, agreed)
        self.bandits[bin].update(OFFLOAD, self.draw() >= self.cost)


class RiverLinUCB(Gate):
    """LinUCB, the bin one-hot as its context."""

    def __init__(self, cost: float, both: bool, seed: int) -> None:
        from river import bandit

        super().__init__(cost, both, seed)
        self.bandit = bandit.LinUCBDisjoint(seed=seed)
        self.contexts = [{f"bin{bin}": 1.0} for bin in range(BINS)]

    def offloads(self, bin: int) -> bool:
        return bool(self.bandit.pull(ARMS, self.contexts[bin]) == OFFLOAD)

    def learn(self, bin: int, agreed: bool) -> None:
        if self.both:
            self.bandit.update(ACCEPT, self.contexts[bin], float(agreed))
        self.bandit.update(OFFLOAD, self.contexts[bin], 1.0 - self.cost)


class VowpalWabbit(Gate):
    """`--cb_explore`, the bin as its only feature. Labels carry the chance with which they were revealed."""

    options = "--cb_explore 2 --epsilon 0.05"

    def __init__(self, cost: float, both: bool, seed: int) -> None:
        import vowpalwabbit

        super().__init__(cost, both, seed)
        self.learner = vowpalwabbit.Workspace(f"{self.options} --random_seed {seed + 1} --quiet")
        self.draw = Random(seed).random
        self.chance = 1.0

    def offloads(self, bin: int) -> bool:
        self.chance = self.learner.predict(self.example(bin))[0]
        return self.draw() < self.chance

    def learn(self, bin: int, agreed: bool) -> None:
        if self.both:
            self.learner.learn(self.example(bin, accept=1.0 - agreed))
        self.learner.learn(self.example(bin, offload=self.cost))

    def example(self, bin: int, offload: float | None = None, accept: float | None = None) -> Any:
        """A sample as Vowpal Wabbit reads it, with the cost of an action where there is one to tell."""
        if offload is not None:
            return f"1:{offload}:{self.chance} | bin{bin}"
        return f"| bin{bin}" if accept is None else f"2:{accept}:{self.chance} | bin{bin}"


class VowpalWabbitSquare(VowpalWabbit):
    """`--cb_explore_adf --squarecb`, an action in a bin as the only feature."""

    options = "--cb_explore_adf --squarecb"

    def example(self, bin: int, offload: float | None = None, accept: float | None = None) -> Any:
        return [self.action("offload", bin, offload), self.action("accept", bin, accept)]

    def action(self, name: str, bin: int, cost: float | None) -> str:
        label = "" if cost is None else f"0:{cost}:{self.chance} "
        return f"{label}| {name}{bin}"


class VowpalWabbitNoise(VowpalWabbitSquare):
    """`--cb_explore_adf --rnd`: explores by random network distillation."""

    options = "--cb_explore_adf --rnd 1 --epsilon 0"


class MabWiserUCB(Gate):
    """UCB1, one bandit for each bin. It cannot predict before it is fitted: the first sample of a bin is offloaded."""

    def __init__(self, cost: float, both: bool, seed: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        super().__init__(cost, both, seed)
        self.bandits = [MAB(ARMS, LearningPolicy.UCB1(alpha=1.0), seed=seed) for _ in range(BINS)]
        self.fitted = [False] * BINS

    def offloads(self, bin: int) -> bool:
        return not self.fitted[bin] or bool(self.bandits[bin].predict() == OFFLOAD)

    def learn(self, bin: int, agreed: bool) -> None:
        self.fitted[bin] = True
        if self.both:
            self.bandits[bin].partial_fit(ARMS, [1.0 - self.cost, float(agreed)])
        else:
            self.bandits[bin].partial_fit([OFFLOAD], [1.0 - self.cost])


class MabWiserLinUCB(Gate):
    """LinUCB, the bin one-hot as its context. The first sample of all is offloaded."""

    def __init__(self, cost: float, both: bool, seed: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        super().__init__(cost, both, seed)
        self.bandit = MAB(ARMS, LearningPolicy.LinUCB(alpha=1.0), seed=seed)
        self.contexts = [row.reshape(1, -1) for row in np.eye(BINS)]
        self.fitted = False

    def offloads(self, bin: int) -> bool:
        return not self.fitted or bool(self.bandit.predict(self.contexts[bin]) == OFFLOAD)

    def learn(self, bin: int, agreed: bool) -> None:
        self.fitted = True
        context = self.contexts[bin]
        if self.both:
            self.bandit.partial_fit(ARMS, [1.0 - self.cost, float(agreed)], np.concatenate([context, context]))
        else:
            self.bandit.partial_fit([OFFLOAD], [1.0 - self.cost], context)


@dataclass(frozen=True)
class Entry:
    """A library's bandit, and how many runs it is given."""

    label: str
    package: str
    make: Callable[[float, bool, int], Gate]
    runs: int
    far: bool = True  # whether it is played to the second horizon


ENTRIES = (
    Entry("river UCB", "river", RiverUCB, 10),
    Entry("river ThompsonSampling", "river", RiverThompson, 10),
    Entry("river LinUCBDisjoint", "river", RiverLinUCB, 5, far=False),
    Entry("Vowpal Wabbit cb_explore, ε = 0.05", "vowpalwabbit", VowpalWabbit, 5),
    Entry("Vowpal Wabbit cb_explore_adf, squarecb", "vowpalwabbit", VowpalWabbitSquare, 5),
    Entry("Vowpal Wabbit cb_explore_adf, rnd", "vowpalwabbit", VowpalWabbitNoise, 5),
    Entry("MABWiser UCB1", "mabwiser", MabWiserUCB, 5),
    Entry("MABWiser LinUCB", "mabwiser", MabWiserLinUCB, 3, far=False),
)


# -- samples and regret -----------------------------------------------------------------------------------------------


class Draws(NamedTuple):
    """One run's samples: bins, whether local agreed, and what accepting costs more than offloading, on average."""

    bins: list[int]
    agreed: list[bool]
    gaps: Reals

    def part(self, start: int, stop: int) -> "Draws":
        return Draws(self.bins[start:stop], self.agreed[start:stop], self.gaps[start:stop])


def draws(source: Resampled, run_seed: int, horizon: int) -> Draws:
    """The samples that `simulate` shows its policies in the run of that seed."""
    chunks = list(source.stream(run_seed, horizon))
    bins = np.concatenate([chunk.bins for chunk in chunks])
    agreed = np.concatenate([chunk.agreed for chunk in chunks]) > 0
    return Draws(bins.tolist(), agreed.tolist(), np.concatenate([chunk.gaps for chunk in chunks]))


def regret(decisions: Flags, gaps: Reals) -> float:
    """Pseudo-regret: Σ |gap| over the decisions that differ from the oracle's."""
    return float(np.abs(gaps[decisions != (gaps >= 0)]).sum())


def play(gate: Gate, samples: Draws) -> float:
    """The regret of a library on some samples; it goes on from where it was."""
    decisions = np.zeros(len(samples.bins), np.bool_)
    for time, bin in enumerate(samples.bins):
        if gate.offloads(bin):
            decisions[time] = True
            gate.learn(bin, samples.agreed[time])
    return regret(decisions, samples.gaps)


# -- rows -------------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """A line of the table: regrets of all runs at the first and, where they got that far, the second horizon."""

    label: str
    told: str
    near: list[float]
    far: list[float] | None
    microseconds: float

    def markdown(self) -> str:
        near, far = figure(self.near), figure(self.far) if self.far else "—"
        growth = f"{np.mean(self.far) / np.mean(self.near):.1f}" if self.far and np.mean(self.near) > 0 else "—"
        cells = (self.label, self.told, len(self.near), near, far, growth, f"{self.microseconds:.2f}")
        return f"| {' | '.join(map(str, cells))} |"


def figure(values: list[float]) -> str:
    return spread(values, 0 if np.mean(values) >= 100 else 1)


@dataclass(frozen=True)
class Trial:
    """One trace at one cost: its source and horizons, and the most runs that anybody is given."""

    trace: str
    cost: float
    horizons: tuple[int, int]
    most_runs: int

    def source(self) -> Resampled:
        return Resampled(load_trace(self.trace), UniformBins(BINS), ConstantPrice(self.cost))

    def streams(self, runs: int) -> list[Draws]:
        source = self.source()
        return [draws(source, seed, self.horizons[1]) for seed in run_seeds(SEED, runs)]


def policies(cost: float, horizon: int) -> dict[str, Policy]:
    return {
        "Probation": Probation(BINS, cost),
        "HI-LCB": HILCB(BINS, ALPHA, cost),
        "Thompson": Thompson(BINS, cost),
        "Hedge-HI": HedgeHI(horizon, BINS, cost),
    }


def policy_rows(trial: Trial, streams: list[Draws]) -> Iterator[Row]:
    """Hinge's policies: simulated for their regret, and called one sample at a time for their speed."""
    near, far = trial.horizons
    lineup = policies(trial.cost, far)
    results = simulate(lineup, trial.source(), far, len(streams), SEED, record_decisions=True)
    for name, policy in lineup.items():
        early, late = [], []
        for run, samples in zip(results[name].runs, streams, strict=True):
            assert run.decisions is not None
            early.append(regret(run.decisions[:near], samples.gaps[:near]))
            late.append(regret(run.decisions, samples.gaps))
        first_part, fresh = streams[0].part(0, near), policy.fresh
        took = microseconds(lambda fresh=fresh, part=first_part: played_by(fresh(), part), first_part)  # type: ignore[misc]  # a default binds the loop's value
        yield Row(f"hinge {name}", "", early, late, took)


def played_by(policy: Policy, samples: Draws) -> None:
    """Let one of Hinge's policies decide all samples, one at a time, and learn from those that are offloaded."""
    for bin, agreed in zip(samples.bins, samples.agreed, strict=True):
        decision = policy.decide(bin)
        if decision.offload or policy.needs:
            policy.learn(decision, agreed)


def library_row(entry: Entry, trial: Trial, streams: list[Draws]) -> Row:
    """The better of the two ways to use a library."""
    near, far = trial.horizons
    told = {both: [entry.make(trial.cost, both, run) for run in range(len(streams))] for both in (False, True)}
    regrets = {both: played(gates, streams, 0, near) for both, gates in told.items()}
    both = float(np.mean(regrets[True])) <= float(np.mean(regrets[False]))
    late = None
    if entry.far:
        later = played(told[both], streams, near, far)
        late = [first + then for first, then in zip(regrets[both], later, strict=True)]
    first_part = streams[0].part(0, near)
    took = microseconds(lambda: play(entry.make(trial.cost, both, 0), first_part), first_part)
    return Row(entry.label, "told both" if both else "as is", regrets[both], late, took)


def played(gates: list[Gate], streams: list[Draws], start: int, stop: int) -> list[float]:
    return [play(gate, samples.part(start, stop)) for gate, samples in zip(gates, streams, strict=True)]


def microseconds(once: Callable[[], object], samples: Draws) -> float:
    """Return the time of a sample in the shortest of several batches, each the same samples seen anew."""
    return in_turn({"": whole(once, len(samples.bins))}, REPEATS)[""].ns / 1000


# -- the report -------------------------------------------------------------------------------------------------------


def table(trial: Trial) -> list[str]:
    """One trace at one cost."""
    near, far = trial.horizons
    streams = trial.streams(trial.most_runs)
    head = f"| | fed | runs | regret at {near} | regret at {far} | growth | µs per sample |"
    lines = [f"### {trial.trace}, cost {trial.cost}", "", scale(trial, streams), "", head, "|---" * 7 + "|"]
    lines += [row.markdown() for row in policy_rows(trial, streams)]
    for entry in ENTRIES:
        if find_spec(entry.package):
            runs = min(entry.runs, trial.most_runs)
            lines.append(library_row(entry, trial, streams[:runs]).markdown())
        else:
            lines.append(f"| {entry.label} | not installed | | | | | |")
    return [*lines, ""]


def scale(trial: Trial, streams: list[Draws]) -> str:
    """What two policies that never learn would regret."""
    accepting, offloading = (
        np.mean([np.maximum(sign * samples.gaps, 0.0).sum() for samples in streams]) for sign in (1.0, -1.0)
    )
    return f"At {trial.horizons[1]} always accepting regrets {accepting:.0f}, always offloading {offloading:.0f}."


def preface(horizons: tuple[int, int]) -> list[str]:
    near, far = horizons
    return [
        "## Hinge and other libraries",
        "",
        f"Pseudo-regret, {BINS} bins, the same samples for all (fewer runs: the first);",
        f"{SPREAD}.",
        f"Growth is regret at {far} over regret at {near}; {far / near:g} is linear. —: too slow to be played so far.",
        "",
        "Nobody is told anything about an accepted sample. An offload reveals what both arms would have earned, and a",
        "library is fed it *as is* (only the arm pulled, offload, is updated) or *told both* (both are), whichever",
        f"regrets less at {near}. Where a library breaks ties by order, offload comes first. Vowpal Wabbit's labels",
        "carry the chance with which they were revealed; of twelve settings of its explorers, tried in two runs, rnd",
        f"regretted least at 10000, all four tables together. Hedge-HI knows the horizon, {far}.",
        "",
        f"Time: to decide and to learn, one sample at a time, over the first {near} samples of the first run, CPU time",
        f"in the shortest of {REPEATS} batches that all start afresh. Who seldom offloads seldom learns, and it shows.",
        "",
    ]


def report(quick: bool) -> list[str]:
    """The section of the page, as Markdown lines; quick: one table, a tenth of the horizon, three runs."""
    horizons, runs = ((1_000, 10_000), 3) if quick else ((10_000, 100_000), 50)
    lines = preface(horizons)
    for trace, cost in CELLS[:1] if quick else CELLS:
        lines += table(Trial(trace, cost, horizons, runs))
    return lines
