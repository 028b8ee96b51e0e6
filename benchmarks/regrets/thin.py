"""Thin devices: what it costs that a server learns for them, and that its tables come late, beside devices that learn.

The very classes run that the server and, but for the language, the C run: `hinge.fleet.thin`. Measuring goes on where
it was stopped; the page has the cells that are done.
"""

import inspect
import sys
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from benchmarks.checkpoint import measured
from benchmarks.workload import image_traces
from hinge import Sentinel, UniformBins, load_trace
from hinge.fleet import pooling
from hinge.fleet import thin as devices_and_kinds
from hinge.fleet.messages import Table, build_table
from hinge.fleet.thin import Kind, ThinDevice
from hinge.policies import isotonic, sentinel
from hinge.simulation import fleet as simulated
from hinge.simulation.engine import Threads, run_seeds
from hinge.simulation.fleet import Lie, Pooling, SimulatedFleet, simulate_fleet
from hinge.simulation.sources import ConstantPrice, Resampled

BINS, COSTS, HORIZON, GOAL = 16, (0.2, 0.5, 0.8), 10_000, 1.1
RUNS, MANY_RUNS = 40, 6
DELAYS = (0, 10, 100)  # samples of the device
MANY, MANY_COST, MANY_TRACES = 12, 0.5, ("fashion", "cifar10-vgg16", "imagenet-mobilenet")
LIARS = {f"{MANY} thin": (), "two always agree": (Lie.OVER,) * 2, "two never agree": (Lie.UNDER,) * 2}
DEVICES = (f"{MANY} learning", *LIARS)
JUDGED = 1.2  # growth of the reports from one judgement to the next, as at the server

Stream = list[tuple[int, float, float]]  # bin, agreement, gap


def source(trace: str, cost: float) -> Resampled:
    return Resampled(load_trace(trace), UniformBins(BINS), ConstantPrice(cost))


def stream(trace: str, cost: float, seed: int) -> Stream:
    chunks = list(source(trace, cost).stream(seed, HORIZON))
    columns = [np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("bins", "agreed", "gaps")]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def learning(found: Stream, cost: float, delay: int) -> float:
    """The regret of a device that learns, from answers that come so many samples late."""
    policy, regret, waiting = Sentinel(BINS, cost), 0.0, deque[tuple[int, Any, float]]()
    for time, (bin, agreed, gap) in enumerate(found):
        while waiting and waiting[0][0] <= time:
            policy.learn(*waiting.popleft()[1:])
        decision = policy.decide(bin)
        if decision.offload:
            waiting.append((time + 1 + delay, decision, agreed))
        regret += max(0.0, -gap if decision.offload else gap)
    return regret


def answer(lie: Lie, agreed: float) -> bool:
    """Whether local agreed, as a device has the server believe."""
    return {Lie.OVER: True, Lie.UNDER: False}.get(lie, agreed > 0.5)


def thin(found: Sequence[Stream], cost: float, delay: int = 0, lies: Sequence[Lie] = ()) -> float:
    """The regret per honest device of thin ones, whose tables come so many samples late."""
    kind, devices, regret = Kind(Sentinel(BINS, cost)), [ThinDevice(BINS) for _ in found], 0.0
    told = [*lies, *[Lie.HONEST] * (len(found) - len(lies))]
    waiting, reports, judged, step = deque[tuple[int, bytes]](), 0, 0, 0
    for time in range(HORIZON):
        for number, device in enumerate(devices):
            while waiting and waiting[0][0] <= step:
                message = waiting.popleft()[1]
                for each in devices:
                    each.take(message)
            step += 1
            bin, agreed, gap = found[number][time]
            offload, lie = device.decide(bin), told[number]
            regret += max(0.0, -gap if offload else gap) if lie == Lie.HONEST else 0.0
            if offload:
                kind.learn(f"{number}", bin, answer(lie, agreed), device.accepted)
                reports += 1
                if len(devices) > 1 and reports > JUDGED * judged:
                    judged = reports
                    kind.judge()
                waiting.append((step + delay * len(devices), build_table(Table(reports, kind.licences))))
    return regret / (len(found) - len(lies))


class Run(NamedTuple):
    """One device on one stream."""

    trace: str
    cost: float
    seed: int


def one(run: Run) -> list[float]:
    """The regret of a learning device, of thin ones by delay, and of learning ones with a delay."""
    found, cost = stream(*run), run.cost
    late = [learning(found, cost, delay) for delay in DELAYS[1:]]
    return [learning(found, cost, 0), *(thin([found], cost, delay) for delay in DELAYS), *late]


class Many(NamedTuple):
    """12 devices: learning ones in a fleet, or thin ones, as DEVICES names them."""

    trace: str
    devices: str
    seed: int


def many(run: Many) -> list[float]:
    """The regret per honest device."""
    cost, [first] = MANY_COST, run_seeds(run.seed, 1)
    seeds = run_seeds(first, MANY)  # the streams of a fleet
    if run.devices in LIARS:
        return [thin([stream(run.trace, cost, seed) for seed in seeds], cost, lies=LIARS[run.devices])]
    fleet = SimulatedFleet([source(run.trace, cost)] * MANY)
    [found] = simulate_fleet(fleet, cost, Pooling.ROBUST, horizon=HORIZON, seed=run.seed, executor=Threads(1))
    return [float(found.regret[-1].mean())]


def regrets(part: Run | Many) -> list[float]:
    return one(part) if isinstance(part, Run) else many(part)


def verdict(what: str, ratios: Sequence[float]) -> str:
    mean, kept = float(np.exp(np.mean(np.log(ratios)))), sum(value <= GOAL for value in ratios)
    return (
        f"- {what}: {mean:.2f} in the geometric mean, {max(ratios):.2f} at most; "
        f"within {GOAL} in {kept} of {len(ratios)}"
    )


def report(quick: bool) -> list[str]:
    traces, costs, runs = (("fashion",), (0.5,), 2) if quick else (tuple(image_traces(synthetic=True)), COSTS, RUNS)
    crowd_runs = 2 if quick else MANY_RUNS
    modules = (pooling, devices_and_kinds, isotonic, sentinel, simulated, sys.modules[__name__])
    code = "".join(map(inspect.getsource, modules))
    cells = {(trace, cost): [Run(trace, cost, seed) for seed in range(runs)] for trace in traces for cost in costs}
    crowds = {
        (trace, devices): [Many(trace, devices, seed) for seed in range(crowd_runs)]
        for trace in (traces if quick else MANY_TRACES)
        for devices in DEVICES
    }
    parts: list[Run | Many] = [*chain(*crowds.values()), *chain(*cells.values())]
    done = measured("thin", code, regrets, parts)
    means = {cell: np.mean([done[run] for run in each], axis=0) for cell, each in cells.items() if {*each} <= {*done}}
    if not means:
        return ["## Thin devices", "", "Stopped before any cell was measured.", ""]
    lines = [
        "## Thin devices",
        "",
        f"Sentinel, {BINS} bins, known cost, T = {HORIZON} samples, {runs} runs. Regret as a multiple of that of a",
        "learning device on the same samples. A table comes 0, 10 or 100 samples late; beside it a learning device",
        "to which the remote's answers come as late.",
        "",
        "| trace | cost | learning | **thin** | 10 late: thin | learning | 100 late: thin | learning |",
        "|---" * 8 + "|",
    ]
    for (trace, cost), (base, *others) in means.items():
        now, ten, hundred, learning_ten, learning_hundred = (each / base for each in others)
        figures = " | ".join(f"{value:.2f}" for value in (now, ten, learning_ten, hundred, learning_hundred))
        lines.append(f"| {trace} | {cost} | {base:.1f} | {figures} |")
    ratios = np.array([each[1:] / each[0] for each in means.values()])
    lines += [
        "",
        f"The goal is {GOAL} times the regret of a device that learns:",
        "",
        verdict("Table at once", ratios[:, 0].tolist()),
        verdict("10 late, over learning at once", ratios[:, 1].tolist()),
        verdict("10 late, over learning 10 late", (ratios[:, 1] / ratios[:, 3]).tolist()),
        verdict("100 late, over learning at once", ratios[:, 2].tolist()),
        verdict("100 late, over learning 100 late", (ratios[:, 2] / ratios[:, 4]).tolist()),
        "",
        f"### {MANY} devices of one kind",
        "",
        f"Cost {MANY_COST}, {crowd_runs} runs, tables at once. Regret per honest device, with its standard error, and",
        "the largest of a run: learning ones in a fleet, thin ones, and thin ones of which two tell that local always",
        "agrees, or never does.",
        "",
        f"| trace | {' | '.join(DEVICES)} |",
        "|---" * 5 + "|",
    ]
    for trace in dict.fromkeys(trace for trace, _ in crowds):
        if all({*crowds[trace, devices]} <= {*done} for devices in DEVICES):
            found = [np.array([done[each][0] for each in crowds[trace, devices]]) for devices in DEVICES]
            columns = (f"{x.mean():.1f} ± {x.std() / np.sqrt(len(x)):.1f} (≤ {x.max():.0f})" for x in found)
            lines.append(f"| {trace} | {' | '.join(columns)} |")
    return [*lines, ""]
