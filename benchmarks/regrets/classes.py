"""Costs per class: what is gained by judging each class at its own stake, where mistakes have different prices.

On CIFAR-10, to take a vehicle for something else (a missed alarm) costs 1, and every other mistake 0.1. First with all
ten classes; then with two, vehicle or not.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.report import SPREAD, spread
from hinge import ClassBins, CostMatrix, HILCBLite, Isotonic, Policy, Sentinel, Trace, UniformBins, load_trace, simulate
from hinge.simulation.sources import ConstantPrice, Resampled

HORIZON, CLASSES = 100_000, 10
VEHICLES = (0, 1, 8, 9)  # airplane, automobile, ship, truck
TRACES = ("cifar10-vgg16", "cifar10-vgg16-calibrated")
COSTS = (0.03, 0.08)
WITHIN = UniformBins(16)
ALARM = CostMatrix([[0, 1], [0.1, 0]])  # rows: the local answer, 1 for a vehicle; columns: the remote's


def prices() -> CostMatrix:
    """Rows are local answers, columns the remote's."""
    missed = np.isin(np.arange(CLASSES), VEHICLES)[None, :] & ~np.isin(np.arange(CLASSES), VEHICLES)[:, None]
    matrix = np.where(missed, 1.0, 0.1)
    np.fill_diagonal(matrix, 0.0)
    return CostMatrix(matrix.tolist())


def ten_classes(runs: int) -> list[str]:
    matrix, by_class = prices(), ClassBins(WITHIN, CLASSES)
    kinds: dict[str, tuple[UniformBins | ClassBins, list[float] | None]] = {
        "one table for all classes": (WITHIN, None),
        "bins by class, one stake": (by_class, [1.0] * CLASSES),
        "bins by class, own stakes": (by_class, matrix.stakes),
    }
    lines = [
        f"| trace | offload cost | {' | '.join(f'{kind}: cost, offloads' for kind in kinds)} |",
        "|---" * (len(kinds) + 2) + "|",
    ]
    for trace in TRACES:
        for cost in COSTS:
            cells = []
            for binning, stakes in kinds.values():
                source = Resampled(load_trace(trace), binning, ConstantPrice(cost), wrong=matrix)
                policy = Isotonic(source.bins, offload_cost=cost, stakes=stakes)
                record = simulate([policy], source, HORIZON, runs, seed=5)["isotonic"]
                cells.append(f"{spread(record.cost_per_sample[:, -1], 5)}, {record.offload_fraction[:, -1].mean():.3f}")
            lines.append(f"| {trace} | {cost} | {' | '.join(cells)} |")
    return [*lines, ""]


def vehicle_or_not(trace: Trace) -> Trace:
    """The same stream with two classes; the confidence stays that of the class out of ten."""
    local, remote = (np.isin(answers, VEHICLES).astype(np.int64) for answers in (trace.local, trace.remote))
    return Trace(trace.confidence, local, remote)


CONTESTANTS: dict[str, tuple[bool, Callable[[int, float], Policy]]] = {  # whether bins are by class
    "isotonic, one table": (False, lambda bins, cost: Isotonic(bins, offload_cost=cost)),
    "isotonic, own stakes": (True, lambda bins, cost: Isotonic(bins, offload_cost=cost, stakes=ALARM.stakes)),
    "sentinel, own stakes": (True, lambda bins, cost: Sentinel(bins, offload_cost=cost, stakes=ALARM.stakes)),
    "hi-lcb-lite, bins by class": (True, lambda bins, cost: HILCBLite(bins, 0.52, cost)),
}


def two_classes(runs: int) -> list[str]:
    lines = ["| trace | offload cost | policy | cost | offloads | regret |", "|---" * 6 + "|"]
    for name in TRACES:
        trace = vehicle_or_not(load_trace(name))
        for cost in COSTS:
            for label, (by_class, make) in CONTESTANTS.items():
                bins = ClassBins(WITHIN, 2) if by_class else WITHIN
                source = Resampled(trace, bins, ConstantPrice(cost), wrong=ALARM)
                record = simulate({label: make(source.bins, cost)}, source, HORIZON, runs, seed=5)[label]
                paid, regret = spread(record.cost_per_sample[:, -1], 5), spread(record.regret[:, -1])
                share = record.offload_fraction[:, -1].mean()
                lines.append(f"| {name} | {cost} | {label} | {paid} | {share:.3f} | {regret} |")
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    runs = 5 if quick else 50
    return [
        "## Costs per class",
        "",
        f"A missed vehicle costs 1, any other mistake 0.1. T = {HORIZON}, {runs} runs;",
        f"{SPREAD}.",
        "",
        *ten_classes(runs),
        "### Vehicle or not",
        "",
        "Two classes: a missed vehicle costs 1, a false alarm 0.1. The same samples for all. Regret is against the",
        "oracle of the bins that a policy has, so that one table for both classes is measured by a poorer one.",
        "",
        *two_classes(runs),
    ]
