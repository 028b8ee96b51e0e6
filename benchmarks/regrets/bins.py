"""How many bins, and cut where: the cost of the default policy over that of the best fixed threshold in hindsight.

Few bins are learned sooner, many come closer to the best threshold in the end; bins that fit themselves do both.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.regrets import image_traces
from benchmarks.regrets.pairs import COSTS, DEFAULT, pairs
from hinge import FittedBins, Gate, Trace, UniformBins, load_trace, simulate
from hinge.bins import Bins
from hinge.simulation.sources import ConstantPrice, Shuffled
from hinge.theory import fit_threshold

RUNS = {2_000: 50, 10_000: 20, 100_000: 10}  # of each horizon
KINDS: dict[str, Bins] = {f"{count} uniform": UniformBins(count) for count in (8, 16, 32, 64, 128)}
KINDS["fitted"] = FittedBins()


def over_threshold(trace: Trace, kind: str, cost: float, horizon: int, runs: int) -> float:
    """The mean cost of the default over that of the best threshold, less 1."""
    source = Shuffled(trace, UniformBins(16), ConstantPrice(cost))
    results = simulate({DEFAULT: Gate(offload_cost=cost, bins=KINDS[kind])}, source, horizon, runs)
    least = fit_threshold(trace.confidence, trace.agreed, cost)[1]
    return float(results[DEFAULT].cost_per_sample[:, -1].mean() / least - 1.0)


def table(traces: Sequence[Trace], horizon: int, runs: int) -> tuple[list[str], dict[str, float]]:
    """A row for each way to cut: the means of the traces, of all, and the worst; and the means of all by themselves."""
    lines = [
        f"| bins | {' | '.join(trace.name for trace in traces)} | mean | worst |",
        "|---|" + "--:|" * (len(traces) + 2),
    ]
    means = {}
    for kind in KINDS:
        cells = np.array([[over_threshold(trace, kind, cost, horizon, runs) for cost in COSTS] for trace in traces])
        means[kind] = float(cells.mean())
        shown = " | ".join(f"{each:.1%}" for each in (*cells.mean(axis=1), cells.mean(), cells.max()))
        lines.append(f"| {kind} | {shown} |")
    return lines, means


def report(quick: bool) -> list[str]:
    """The tables as Markdown."""
    horizons = {2_000: 2} if quick else RUNS
    groups = {"Images": [load_trace(name) for name in image_traces()], "Real pairs": [pair.trace for pair in pairs()]}
    lines = [
        "## How many bins",
        "",
        f"What the default ({DEFAULT}) costs over the best fixed threshold on the confidence itself, in hindsight, at",
        f"known costs of {', '.join(map(str, COSTS))}; below a trace their mean, and in the last column the worst",
        "of all cells. Every row of a trace once in each pass, shuffled. Fitted: bins that fit themselves.",
        "",
    ]
    for horizon, runs in horizons.items():
        for group, traces in groups.items():
            rows, means = table(traces, horizon, runs)
            best = min(means, key=lambda kind: means[kind])
            lines += [f"### {group}, T = {horizon}", "", f"{runs} runs. Least in the mean: {best}.", "", *rows, ""]
    return lines
