"""Costs per class: what is gained by judging each class at its own stake, where mistakes have different prices.

On CIFAR-10, to take a vehicle for something else (a missed alarm) costs 1, and every other mistake 0.1.
"""

import numpy as np

from hinge import ClassBins, CostMatrix, Isotonic, UniformBins, load_trace, simulate
from hinge.simulation import interval
from hinge.simulation.sources import FixedCosts, Resampled

HORIZON, CLASSES = 100_000, 10
VEHICLES = (0, 1, 8, 9)  # airplane, automobile, ship, truck
TRACES = ("cifar10-vgg16", "cifar10-vgg16-calibrated")


def prices() -> CostMatrix:
    """Rows are local answers, columns the remote's."""
    missed = np.isin(np.arange(CLASSES), VEHICLES)[None, :] & ~np.isin(np.arange(CLASSES), VEHICLES)[:, None]
    matrix = np.where(missed, 1.0, 0.1)
    np.fill_diagonal(matrix, 0.0)
    return CostMatrix(matrix.tolist())


def report(quick: bool) -> list[str]:
    runs, matrix, within = 5 if quick else 50, prices(), UniformBins(16)
    by_class = ClassBins(within, CLASSES)
    kinds: dict[str, tuple[UniformBins | ClassBins, list[float] | None]] = {
        "one table for all classes": (within, None),
        "bins by class, one stake": (by_class, [1.0] * CLASSES),
        "bins by class, own stakes": (by_class, matrix.stakes),
    }
    lines = [
        "## Costs per class",
        "",
        f"A missed vehicle costs 1, any other mistake 0.1. T = {HORIZON}, {runs} runs ± half of the 95 % interval.",
        "",
        f"| trace | offload cost | {' | '.join(f'{kind}: cost, offloads' for kind in kinds)} |",
        "|---" * (len(kinds) + 2) + "|",
    ]
    for trace in TRACES:
        for cost in (0.03, 0.08):
            cells = []
            for binning, stakes in kinds.values():
                source = Resampled(load_trace(trace), binning, FixedCosts(cost), wrong=matrix)
                policy = Isotonic(source.bins, offload_cost=cost, stakes=stakes)
                record = simulate([policy], source, HORIZON, runs, seed=5)["isotonic"]
                mean, half = interval(record.cost_per_sample[:, -1])
                cells.append(f"{mean:.5f} ± {half:.5f}, {record.offload_fraction[:, -1].mean():.3f}")
            lines.append(f"| {trace} | {cost} | {' | '.join(cells)} |")
    return [*lines, ""]
