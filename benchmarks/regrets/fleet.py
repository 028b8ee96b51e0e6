"""Fleets: what sharing saves, and what liars, unlike devices and bad connections cost, against three ways to share.

Every number is the regret per honest device, mean over devices and runs, as a multiple of what the same devices have
alone, on the same streams. The constants of `hinge.fleet.pooling` and of Sentinel's bets on others were chosen on the
traces in CHOSEN, with other seeds; the other traces are held out, save that STAKE_GROWTH, ENTRY / √b, SHIFTED and that
evidence counts for no more devices than have it were compared on all traces.

Measuring takes hours: it goes on where it was stopped, and the page says how many runs there are so far.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import checkpoint
from benchmarks.workload import image_traces
from hinge import UniformBins, load_trace
from hinge.fleet import pooling as robust
from hinge.policies import sentinel
from hinge.simulation import fleet as simulated
from hinge.simulation.engine import Threads
from hinge.simulation.fleet import Lie, Pooling, SimulatedFleet, simulate_fleet
from hinge.simulation.sources import ConstantPrice, Resampled, Samples

BINS, COSTS, HORIZON = 16, (0.2, 0.5, 0.8), 10_000
RUNS, AT_ONCE = 50, 5
CHOSEN = ("fashion", "cifar100-resnet50", "imagenet-mobilenet", "cifar10-vgg16")
UNLIKE = (
    ("fashion", "cifar100-resnet50"),
    ("imagenet-mobilenet", "cifar10-vgg16"),
    ("cifar100-resnet50", "cifar10-vgg16"),
)
LIES = tuple(lie for lie in Lie if lie != Lie.HONEST)
SHARED = (Pooling.MERGE, Pooling.MEDIAN_OF_MEANS, Pooling.FILTERED)
Wholes = NDArray[np.int64]
Reals = NDArray[np.float64]


class Trial(NamedTuple):
    """A fleet of equal parts of the traces named, at a cost."""

    traces: tuple[str, ...]
    cost: float
    devices: int
    pooling: Pooling
    lie: Lie = Lie.HONEST
    liars: int = 0
    network: str = ""


def is_base(trial: Trial) -> bool:
    """Whether others are compared with it: it is measured first."""
    honest = len(trial.traces) == 1 and trial.devices == 12 and trial.liars == 0 and not trial.network
    return honest and trial.pooling in (Pooling.ALONE, Pooling.MERGE, Pooling.ROBUST)


class Block(NamedTuple):
    """A few runs of a trial."""

    number: int
    trial: Trial


class Recorded:
    """A trace resampled; what was drawn lately is kept, as all trials of a block are on the same streams."""

    def __init__(self, trace: str, cost: float) -> None:
        self.bins, self.drawn = BINS, Resampled(load_trace(trace), UniformBins(BINS), ConstantPrice(cost))
        self.kept = lru_cache(maxsize=50 * AT_ONCE)(lambda seed, horizon: list(self.drawn.stream(seed, horizon)))

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        yield from self.kept(seed, horizon)


@lru_cache(maxsize=2)
def recorded(trace: str, cost: float) -> Recorded:
    return Recorded(trace, cost)


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


def compiled() -> None:
    """The loops of fleets, once for all processes."""
    simulate_fleet(SimulatedFleet([recorded("fashion", 0.5)] * 2), 0.5, horizon=10, machine_code=True)


def measured(block: Block) -> tuple[list[list[float]], float]:
    """The regret of each honest device of the first population, run by run, and messages per device."""
    trial = block.trial
    sources = [recorded(trace, trial.cost) for trace in trial.traces]
    devices = [sources[k * len(sources) // trial.devices] for k in range(trial.devices)]
    network = NETWORKS.get(trial.network)
    brokers = (lambda rounds: network(rounds, trial.devices)) if network else None
    runs = simulate_fleet(
        SimulatedFleet(devices, [trial.lie] * trial.liars, brokers=brokers),
        *(trial.cost, trial.pooling),
        horizon=HORIZON,
        runs=AT_ONCE,
        seed=210 + block.number,
        executor=Threads(1),
    )
    first = trial.devices // len(sources) - trial.liars
    regrets = [np.round(run.regret[-1, :first], 3).tolist() for run in runs]
    return regrets, float(np.mean([run.messages.mean() for run in runs]))


class Measure(NamedTuple):
    """What a trial measured: regret, run by run and device by device, and messages per device."""

    regrets: Reals
    messages: float

    @property
    def mean(self) -> float:
        return float(self.regrets.mean())

    @property
    def error(self) -> float:
        return float(self.regrets.mean(axis=1).std() / np.sqrt(len(self.regrets)))


def run_all(trials: Iterable[Trial], runs: int) -> dict[Trial, Measure]:
    """Measure, on all cores; what is on disk by the same code is not measured again."""
    code = "".join(inspect.getsource(module) for module in (robust, sentinel, simulated)) + f"{HORIZON} {AT_ONCE}"
    trials = dict.fromkeys(trials)
    wanted = [Block(number, trial) for number in range(runs // AT_ONCE) for trial in trials]
    wanted.sort(key=lambda block: block.number // 2 if is_base(block.trial) else block.number)
    found = checkpoint.measured("fleet", code, measured, wanted, 10, [compiled])
    blocks: dict[Trial, list[list[Any]]] = {}
    for block, figures in found.items():
        blocks.setdefault(block.trial, []).append(figures)
    return {
        trial: Measure(np.array([row for rows, _ in each for row in rows]), float(np.mean([m for _, m in each])))
        for trial, each in blocks.items()
    }


def cell(trace: str, cost: float) -> dict[str, Trial]:
    """The trials of a trace at a cost, by name: those that decide goals first."""

    def trial(devices: int, pooling: Pooling, lie: Lie = Lie.HONEST, liars: int = 0) -> Trial:
        return Trial((trace,), cost, devices, pooling, lie, liars)

    named = {"alone": trial(12, Pooling.ALONE), "robust": trial(12, Pooling.ROBUST)}
    named |= {pooling.name: trial(12, pooling) for pooling in SHARED}
    for lie in LIES:
        named[f"fifth {lie.name}"] = trial(12, Pooling.ROBUST, lie, 2)
        named[f"most {lie.name}"] = trial(12, Pooling.ROBUST, lie, 10)
        if cost == 0.5:
            named |= {f"{pooling.name} {lie.name}": trial(12, pooling, lie, 2) for pooling in SHARED}
    return named | {"50": trial(50, Pooling.ROBUST), "50 merge": trial(50, Pooling.MERGE)}


def populations(costs: tuple[float, ...]) -> dict[tuple[str, float], dict[str, Trial]]:
    """Two unlike halves of a fleet, and each of them alone and among its kin."""
    return {
        (f"{one} beside {other}", cost): {
            "alone": Trial((one,), cost, 6, Pooling.ALONE),
            "kin": Trial((one,), cost, 6, Pooling.ROBUST),
            "both": Trial((one, other), cost, 12, Pooling.ROBUST),
            "merge": Trial((one, other), cost, 12, Pooling.MERGE),
        }
        for pair in UNLIKE
        for one, other in (pair, pair[::-1])
        for cost in costs
    }


def networks(traces: tuple[str, ...]) -> dict[tuple[str, float], dict[str, Trial]]:
    """Devices that are not always connected, beside those that are."""
    return {
        (trace, 0.5): {"alone": Trial((trace,), 0.5, 12, Pooling.ALONE)}
        | {name or "all connected": Trial((trace,), 0.5, 12, Pooling.ROBUST, network=name) for name in ("", *NETWORKS)}
        for trace in traces
    }


def verdict(said: str, values: list[float], goal: float) -> str:
    if not values:
        return f"- {said}: not measured."
    over = sum(value > goal for value in values)
    met = "met" if over == 0 else f"MISSED in {over} of {len(values)}"
    return f"- {said}: {np.median(values):.2f} in the median, {max(values):.2f} at most. Goal: at most {goal}: {met}."


def report(quick: bool) -> list[str]:
    traces, costs = (("fashion", "cifar10-vgg16"), (0.5,)) if quick else (tuple(image_traces(synthetic=True)), COSTS)
    cells = {(trace, cost): cell(trace, cost) for trace in traces for cost in costs}
    apart, connected = populations(costs), networks(traces)
    groups = [trials for group in (cells, apart, connected) for trials in group.values()]
    measures = run_all((trial for trials in groups for trial in trials.values()), AT_ONCE if quick else RUNS)
    cells, apart, connected = (  # what was stopped too soon has fewer rows
        {key: trials for key, trials in group.items() if measures.keys() >= {*trials.values()}}
        for group in (cells, apart, connected)
    )

    def over(trials: dict[str, Trial], name: str, base: str = "alone") -> float:
        """Regret as a multiple, of the runs that both have."""
        one, other = measures[trials[name]].regrets, measures[trials[base]].regrets
        runs = min(len(one), len(other))
        return float(one[:runs].mean() / other[:runs].mean())

    def worst(trials: dict[str, Trial], name: str, base: str) -> float:
        return max(over(trials, f"{name} {lie.name}", base) for lie in LIES)

    def tail(trials: dict[str, Trial], name: str) -> str:
        regrets = measures[trials[name]].regrets
        return f"{np.quantile(regrets, 0.99):.0f} | {regrets.max():.0f}"

    def runs(group: dict[tuple[str, float], dict[str, Trial]], *named: str) -> int:
        """At least so many of each trial whose name begins so."""
        chosen = (trial for trials in group.values() for name, trial in trials.items() if name.startswith(named))
        return min((len(measures[trial].regrets) for trial in chosen), default=0)

    lines = [
        "## Fleets",
        "",
        f"Sentinel, {BINS} bins, known cost, T = {HORIZON} samples a device. At least {runs(cells, 'alone', 'robust')} "
        f"runs of 12 devices that are alike,",
        f"{runs(cells, 'fifth', 'most')} with liars, {runs(cells, '50')} of 50 devices, with other ways to share, with "
        "unlike devices and bad connections;",
        "on the same streams. Regret per honest device as a multiple of what it has alone. Constants were chosen on",
        f"{', '.join(CHOSEN)}, with other seeds; the other traces are held out, save that how the stake grows,",
        "how little evidence is asked of many devices, for how many it counts, and the limit of shifted odds were",
        "compared on all traces.",
        "",
        "| trace | cost | alone | 12: merge | medians | filter | **robust** | 50: merge | **robust** | messages |",
        "|---" * 10 + "|",
    ]
    names = (*(pooling.name for pooling in SHARED), "robust", "50 merge", "50")
    for (trace, cost), trials in cells.items():
        alone = measures[trials["alone"]]
        figures = " | ".join(f"{over(trials, name):.2f}" for name in names)
        held = "" if trace in CHOSEN else " (held out)"
        lines.append(
            f"| {trace}{held} | {cost} | {alone.mean:.1f} ± {alone.error:.1f} | {figures} "
            f"| {measures[trials['robust']].messages:.0f} |"
        )
    lines += [
        "",
        verdict("12 devices over alone", [over(trials, "robust") for trials in cells.values()], 0.4),
        verdict("50 devices over alone", [over(trials, "50") for trials in cells.values()], 0.15),
        verdict("12 honest devices over merge", [over(trials, "robust", "MERGE") for trials in cells.values()], 1.2),
        "",
        "### The unluckiest devices",
        "",
        "Regret that 99 % of all devices in all runs stay below, and the worst of them; with liars, of eight kinds.",
        "",
        "| trace | cost | alone: 99 % | worst | 12 robust: 99 % | worst | 50 robust: 99 % | worst "
        "| 2 of 12 lie: worst | 10 of 12 lie: worst |",
        "|---" * 10 + "|",
    ]
    for (trace, cost), trials in cells.items():
        lying = [
            f"{max(measures[trials[f'{share} {lie.name}']].regrets.max() for lie in LIES):.0f}"
            for share in ("fifth", "most")
        ]
        honest = [tail(trials, name) for name in ("alone", "robust", "50")]
        lines.append(f"| {trace} | {cost} | {' | '.join(honest + lying)} |")
    lines += [
        "",
        "### Liars",
        "",
        "Two of 12 devices lie, over an honest fleet; and ten of 12, over alone. The kinds: "
        + ", ".join(lie.name.lower() for lie in LIES)
        + ".",
        "",
        f"| trace | cost | {' | '.join(f'{liars} {lie.name.lower()}' for liars in (2, 10) for lie in LIES)} |",
        "|---" * (2 + 2 * len(LIES)) + "|",
    ]
    for (trace, cost), trials in cells.items():
        fifth = [f"{over(trials, f'fifth {lie.name}', 'robust'):.2f}" for lie in LIES]
        most = [f"{over(trials, f'most {lie.name}'):.2f}" for lie in LIES]
        lines.append(f"| {trace} | {cost} | {' | '.join(fifth + most)} |")
    lines += [
        "",
        verdict(
            "A fifth lies, the worst of eight kinds, over all honest",
            [worst(t, "fifth", "robust") for t in cells.values()],
            1.3,
        ),
        verdict(
            "A fifth lies, the mean of eight kinds",
            [float(np.mean([over(t, f"fifth {lie.name}", "robust") for lie in LIES])) for t in cells.values()],
            1.3,
        ),
        verdict(
            "Ten of 12 lie, the worst of eight kinds, over alone",
            [worst(t, "most", "alone") for t in cells.values()],
            1.25,
        ),
        verdict(
            "Ten of 12 lie, the mean of eight kinds",
            [float(np.mean([over(t, f"most {lie.name}") for lie in LIES])) for t in cells.values()],
            1.25,
        ),
        "",
        "The other ways to share with a fifth of liars, cost 0.5, the worst of eight kinds, over alone:",
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
    for (trace, _), trials in connected.items():
        figures = " | ".join(f"{over(trials, name):.2f}" for name in ("all connected", *NETWORKS))
        lines.append(f"| {trace} | {figures} |")
    return [*lines, ""]
