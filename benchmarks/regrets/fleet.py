"""Fleets: what sharing saves, and what liars, unlike devices and bad connections cost, against three ways to share.

Every number is the regret per honest device, mean over devices and runs, as a multiple of what the same devices have
alone. The constants of `hinge.fleet.pooling` and of Sentinel's trials were chosen on the traces in CHOSEN, with other
seeds; the other traces are held out.
"""

import os
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.workload import image_traces
from hinge import UniformBins, load_trace
from hinge.simulation.engine import Threads
from hinge.simulation.fleet import Lie, Pooling, SimulatedFleet, simulate_fleet
from hinge.simulation.sources import FixedCosts, Resampled

BINS, COSTS = 16, (0.2, 0.5, 0.8)
SHORT, LONG = 10_000, 100_000
CHOSEN = ("fashion", "cifar100-resnet50", "imagenet-mobilenet", "cifar10-vgg16")
UNLIKE = (
    ("fashion", "cifar100-resnet50"),
    ("imagenet-mobilenet", "cifar10-vgg16"),
    ("cifar100-resnet50", "cifar10-vgg16"),
)
LIES = tuple(lie for lie in Lie if lie != Lie.HONEST)
SHARED = (Pooling.MERGE, Pooling.MEDIAN_OF_MEANS, Pooling.FILTERED)
Wholes = NDArray[np.int64]


class Trial(NamedTuple):
    """A fleet of equal parts of the traces named, at a cost."""

    traces: tuple[str, ...]
    cost: float
    devices: int
    pooling: Pooling
    runs: int
    lie: Lie = Lie.HONEST
    liars: int = 0
    horizon: int = SHORT
    network: str = ""


def a_third_away(rounds: Wholes, devices: int) -> Wholes:
    """Each third of the devices in turn is away for a third of the time."""
    absent = rounds[:, None] * 3 // (rounds[-1] + 1)
    return np.where(np.arange(devices)[None, :] % 3 == absent, -1, 0)


def split(rounds: Wholes, devices: int) -> Wholes:
    """Two halves that do not hear each other for the middle third of the time."""
    apart = (rounds[:, None] * 3 // (rounds[-1] + 1)) == 1
    return np.where(apart & (np.arange(devices)[None, :] % 2 == 1), 1, 0)


def one_by_one(rounds: Wholes, devices: int) -> Wholes:
    """A device joins after every twelfth of the first half of the time."""
    return np.where(rounds[:, None] * 2 * devices >= np.arange(devices)[None, :] * rounds[-1], 0, -1)


NETWORKS: dict[str, Callable[[Wholes, int], Wholes]] = {
    "a third away": a_third_away,
    "split": split,
    "joining one by one": one_by_one,
}


def measured(trial: Trial) -> tuple[float, float, float]:
    """Regret per honest device of the first population, its standard error over runs, and messages per device."""
    sources = [Resampled(load_trace(trace), UniformBins(BINS), FixedCosts(trial.cost)) for trace in trial.traces]
    devices = [sources[k * len(sources) // trial.devices] for k in range(trial.devices)]
    network = NETWORKS.get(trial.network)
    fleet = SimulatedFleet(
        devices, [trial.lie] * trial.liars, brokers=(lambda rounds: network(rounds, trial.devices)) if network else None
    )
    runs = simulate_fleet(
        fleet, trial.cost, trial.pooling, horizon=trial.horizon, runs=trial.runs, seed=21, executor=Threads(1)
    )
    first = trial.devices // len(sources) - (trial.liars if len(sources) > 1 else 0)
    regrets = [run.regret[-1, : first if len(sources) > 1 else None].mean() for run in runs]
    messages = float(np.mean([run.messages.mean() for run in runs]))
    return float(np.mean(regrets)), float(np.std(regrets) / np.sqrt(len(regrets))), messages


class Measures(dict[Trial, tuple[float, float, float]]):
    """Trials and what they measured."""

    def ratio(self, trial: Trial, to: Trial) -> float:
        return self[trial][0] / self[to][0]


def run_all(trials: Iterable[Trial]) -> Measures:
    """Measure, on all cores."""
    trials = sorted({*trials}, key=lambda trial: -(trial.devices**2) * trial.runs * trial.horizon)
    source = Resampled(load_trace("fashion"), UniformBins(BINS), FixedCosts(0.5))
    simulate_fleet(SimulatedFleet([source] * 2), 0.5, horizon=10)
    with get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:  # compiled once, above
        return Measures(zip(trials, pool.map(measured, trials, chunksize=1), strict=True))


class Plan(NamedTuple):
    """Runs of each kind of trial."""

    traces: tuple[str, ...]
    costs: tuple[float, ...]
    honest: int
    compared: int
    large: int
    lying: int
    long: int


def cell(plan: Plan, trace: str, cost: float) -> dict[str, Trial]:
    """The trials of a trace at a cost, by name."""

    def trial(
        devices: int, pooling: Pooling, runs: int, lie: Lie = Lie.HONEST, liars: int = 0, horizon: int = SHORT
    ) -> Trial:
        return Trial((trace,), cost, devices, pooling, runs, lie, liars, horizon)

    named = {"alone": trial(12, Pooling.ALONE, plan.honest), "robust": trial(12, Pooling.ROBUST, plan.honest)}
    named["merge"] = trial(12, Pooling.MERGE, plan.honest)
    named |= {pooling.name: trial(12, pooling, plan.compared) for pooling in SHARED[1:]}
    named |= {"50": trial(50, Pooling.ROBUST, plan.large), "50 merge": trial(50, Pooling.MERGE, plan.large)}
    for lie in LIES:
        named[f"fifth {lie.name}"] = trial(12, Pooling.ROBUST, plan.lying, lie, 2)
        named[f"most {lie.name}"] = trial(12, Pooling.ROBUST, plan.lying, lie, 10)
        if cost == 0.5:
            named |= {f"{pooling.name} {lie.name}": trial(12, pooling, plan.compared, lie, 2) for pooling in SHARED}
    if cost == 0.5:
        named |= {
            "long alone": trial(12, Pooling.ALONE, plan.long, horizon=LONG),
            "long 12": trial(12, Pooling.ROBUST, plan.long, horizon=LONG),
            "long 50": trial(50, Pooling.ROBUST, plan.long, horizon=LONG),
        }
    return named


def populations(plan: Plan) -> dict[tuple[str, float], dict[str, Trial]]:
    """Two unlike halves of a fleet, and each of them alone and among its kin."""
    found = {}
    for pair in UNLIKE:
        for one, other in (pair, pair[::-1]):
            for cost in plan.costs:
                found[f"{one} beside {other}", cost] = {
                    "alone": Trial((one,), cost, 6, Pooling.ALONE, plan.lying),
                    "kin": Trial((one,), cost, 6, Pooling.ROBUST, plan.lying),
                    "both": Trial((one, other), cost, 12, Pooling.ROBUST, plan.lying),
                    "merge": Trial((one, other), cost, 12, Pooling.MERGE, plan.lying),
                }
    return found


def networks(plan: Plan) -> dict[str, dict[str, Trial]]:
    return {
        trace: {
            name or "all connected": Trial((trace,), 0.5, 12, Pooling.ROBUST, plan.lying, network=name)
            for name in ("", *NETWORKS)
        }
        | {"alone": Trial((trace,), 0.5, 12, Pooling.ALONE, plan.honest)}
        for trace in plan.traces
    }


def verdict(said: str, values: list[float], goal: float) -> str:
    over = sum(value > goal for value in values)
    met = "met" if over == 0 else f"MISSED in {over} of {len(values)}"
    return f"- {said}: {np.median(values):.2f} in the median, {max(values):.2f} at most. Goal: at most {goal}: {met}."


def report(quick: bool) -> list[str]:
    every = tuple(image_traces(synthetic=True))
    plan = Plan(("fashion", "cifar10-vgg16"), (0.5,), 3, 2, 1, 2, 1) if quick else Plan(every, COSTS, 5, 1, 1, 2, 1)
    cells = {(trace, cost): cell(plan, trace, cost) for trace in plan.traces for cost in plan.costs}
    apart, connected = populations(plan), networks(plan)
    measures = run_all(
        trial for group in (cells, apart, connected) for trials in group.values() for trial in trials.values()
    )

    def over(trials: dict[str, Trial], name: str, base: str = "alone") -> float:
        return measures.ratio(trials[name], trials[base])

    def worst(trials: dict[str, Trial], name: str, base: str) -> float:
        return max(over(trials, f"{name} {lie.name}", base) for lie in LIES)

    halves = [trials for (_, cost), trials in cells.items() if cost == 0.5]
    lines = [
        "## Fleets",
        "",
        f"Sentinel, {BINS} bins, known cost, T = {SHORT} samples a device. Runs: {plan.honest} of 12 devices,",
        f"{plan.compared} with medians of means and the filter, {plan.large} of 50, "
        f"{plan.lying} with liars or unlike devices.",
        "Regret per honest device as a multiple of what it has alone. Constants were chosen on "
        + ", ".join(CHOSEN)
        + ";",
        "the other traces are held out.",
        "",
        "| trace | cost | alone | 12: merge | medians | filter | **robust** | 50: merge | **robust** | messages |",
        "|---" * 10 + "|",
    ]
    for (trace, cost), trials in cells.items():
        mean, error, _ = measures[trials["alone"]]
        shown = [over(trials, name) for name in ("merge", "MEDIAN_OF_MEANS", "FILTERED", "robust", "50 merge", "50")]
        figures = " | ".join(f"{value:.2f}" for value in shown)
        held = "" if trace in CHOSEN else " (held out)"
        lines.append(
            f"| {trace}{held} | {cost} | {mean:.1f} ± {error:.1f} | {figures} | {measures[trials['robust']][2]:.0f} |"
        )
    lines += [
        "",
        verdict("12 devices over alone", [over(trials, "robust") for trials in cells.values()], 0.4),
        verdict("50 devices over alone", [over(trials, "50") for trials in cells.values()], 0.15),
        verdict("12 honest devices over merge", [over(trials, "robust", "merge") for trials in cells.values()], 1.2),
        "",
        f"At T = {LONG} and cost 0.5, over alone ({plan.long} run):",
        "",
        verdict("12 devices", [over(trials, "long 12", "long alone") for trials in halves], 0.4),
        verdict("50 devices", [over(trials, "long 50", "long alone") for trials in halves], 0.15),
        "",
        "### Liars",
        "",
        "Two of 12 devices lie, over an honest fleet; and ten of 12, over alone. The kinds: "
        + ", ".join(lie.name.lower() for lie in LIES)
        + ".",
        "",
        f"| trace | cost | {' | '.join(f'{liars} {lie.name.lower()}' for liars in (2, 10) for lie in LIES)} |",
        "|---" * 14 + "|",
    ]
    for (trace, cost), trials in cells.items():
        fifth = [f"{over(trials, f'fifth {lie.name}', 'robust'):.2f}" for lie in LIES]
        most = [f"{over(trials, f'most {lie.name}'):.2f}" for lie in LIES]
        lines.append(f"| {trace} | {cost} | {' | '.join(fifth + most)} |")
    lines += [
        "",
        verdict(
            "A fifth lies, the worst of six kinds, over all honest",
            [worst(t, "fifth", "robust") for t in cells.values()],
            1.3,
        ),
        verdict(
            "A fifth lies, the mean of six kinds",
            [float(np.mean([over(t, f"fifth {lie.name}", "robust") for lie in LIES])) for t in cells.values()],
            1.3,
        ),
        verdict(
            "Ten of 12 lie, the worst of six kinds, over alone",
            [worst(t, "most", "alone") for t in cells.values()],
            1.25,
        ),
        verdict(
            "Ten of 12 lie, the mean of six kinds",
            [float(np.mean([over(t, f"most {lie.name}") for lie in LIES])) for t in cells.values()],
            1.25,
        ),
        "",
        "The other ways to share with a fifth of liars, cost 0.5, the worst of six kinds, over alone:",
        "",
        "| trace | merge | median of means | filter | **robust** |",
        "|---" * 5 + "|",
    ]
    for (trace, cost), trials in cells.items():
        if cost == 0.5:
            figures = " | ".join(f"{worst(trials, name, 'alone'):.2f}" for name in (*(p.name for p in SHARED), "fifth"))
            lines.append(f"| {trace} | {figures} |")
    lines += [
        "",
        "### Unlike populations",
        "",
        "Six devices of each of two traces in one fleet; the regret of those of the first, over what they have alone.",
        "",
        "| trace | cost | six kin only | **with the others** | merge with the others | over kin only |",
        "|---" * 6 + "|",
    ]
    for (name, cost), trials in apart.items():
        figures = " | ".join(f"{over(trials, key):.2f}" for key in ("kin", "both", "merge"))
        lines.append(f"| {name} | {cost} | {figures} | {over(trials, 'both', 'kin'):.2f} |")
    lines += [
        "",
        verdict("Over kin only", [over(trials, "both", "kin") for trials in apart.values()], 1.2),
        "",
        "### Away, split, joining",
        "",
        f"12 devices, cost 0.5, over alone: {', '.join(NETWORKS)}.",
        "",
        f"| trace | all connected | {' | '.join(NETWORKS)} |",
        "|---" * (len(NETWORKS) + 2) + "|",
    ]
    for trace, trials in connected.items():
        figures = " | ".join(f"{over(trials, name):.2f}" for name in ("all connected", *NETWORKS))
        lines.append(f"| {trace} | {figures} |")
    return [*lines, ""]
