"""How many bins, and cut where: the cost of the default policy over that of the best fixed threshold in hindsight.

Few bins are learned sooner, many come closer to the best threshold in the end. Which are best is chosen on the traces
of images, and looked at again on the real pairs. Bins that are fitted, as `hinge evaluate` recommends them, have seen
the first half of a trace.
"""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.regrets import image_traces
from benchmarks.regrets.pairs import COSTS, DEFAULT, best_threshold_cost, first_half, pairs
from hinge import QuantileBins, Trace, UniformBins, load_trace, simulate
from hinge.bins import Bins
from hinge.simulation import lineup
from hinge.simulation.sources import ConstantPrice, Shuffled
from hinge.simulation.trade import fitted_bins

RUNS = {2_000: 50, 10_000: 20, 100_000: 10}  # of each horizon
SEEN = 1000  # confidences that quantiles are fitted to, the first of a trace
COUNTS = (8, 16, 32, 64, 128)

Kind = Callable[[Trace], Bins]


def uniform(count: int) -> Kind:
    return lambda _: UniformBins(count)


def quantile(count: int) -> Kind:
    return lambda trace: QuantileBins.fit(trace.confidence[:SEEN], count)


def fitted(count: int) -> Kind:
    return lambda trace: fitted_bins(first_half(trace), count)


KINDS = {
    **{f"{count} uniform": uniform(count) for count in COUNTS},
    **{f"{count} quantile": quantile(count) for count in COUNTS[1:4]},
    **{f"{count} uniform, fitted": fitted(count) for count in COUNTS[:4]},
}


def over_threshold(trace: Trace, kind: str, cost: float, horizon: int, runs: int) -> float:
    """The mean cost of the default over that of the best threshold, less 1."""
    source = Shuffled(trace, KINDS[kind](trace), ConstantPrice(cost))
    results = simulate(lineup([DEFAULT], source, offload_cost=cost, horizon=horizon), source, horizon, runs)
    return float(results[DEFAULT].cost_per_sample[:, -1].mean() / best_threshold_cost(trace, cost) - 1.0)


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
        "of all cells. Every row of a trace once in each pass, shuffled. Quantile: bins that share out the first",
        f"{SEEN} confidences of the trace equally; no remote is asked for these. Fitted: bins cut at every",
        "threshold that is best in the first half of the trace at some price, and uniformly besides, but for bins with",
        "fewer than √n of its n rows, as `hinge evaluate` recommends.",
        "",
    ]
    for horizon, runs in horizons.items():
        for group, traces in groups.items():
            rows, means = table(traces, horizon, runs)
            best = min(means, key=lambda kind: means[kind])
            lines += [f"### {group}, T = {horizon}", "", f"{runs} runs. Least in the mean: {best}.", "", *rows, ""]
    return lines
