"""Isotonic against HI-LCB on every real trace: regret at T = 100 000, side by side, on the same samples.

    python benchmarks/regret.py [--quick] [--markdown FILE]
"""

import argparse
import statistics
from pathlib import Path

from hinge import HILCB, Isotonic, UniformBins, load_trace, simulate, trace_names
from hinge.simulation import interval
from hinge.sources import BimodalCosts, FixedCosts, Resampled

HORIZON = 100_000
COSTS = tuple(round(0.1 * step, 1) for step in range(1, 10))
WORTH_A_LOOK = 20.0  # cells in which HI-LCB's regret is smaller say little
Cell = tuple[str, float, tuple[float, float], tuple[float, float]]


def cell(trace: str, cost: float, bins: int, learned: bool, runs: int) -> Cell:
    """Mean regret and half-width of both policies."""
    costs = BimodalCosts(cost - 0.05, cost + 0.05) if learned else FixedCosts(cost)
    source, known = Resampled(load_trace(trace), UniformBins(bins), costs), None if learned else cost
    results = simulate([HILCB(bins, 0.52, known), Isotonic(bins, 0.52, known)], source, HORIZON, runs, seed=4)
    return trace, cost, interval(results["hi-lcb"].regret[:, -1]), interval(results["isotonic"].regret[:, -1])


def table(title: str, cells: list[Cell]) -> list[str]:
    """A row for each cell, and what they come to."""
    lines = [f"## {title}", "", "| trace | cost | HI-LCB | Isotonic | ratio |", "|---|---|---|---|---|"]
    ratios = []
    for trace, cost, theirs, ours in cells:
        ratio = ours[0] / theirs[0] if theirs[0] > 0 else float("nan")
        if theirs[0] >= WORTH_A_LOOK:
            ratios.append(ratio)
        figures = " | ".join(f"{mean:.1f} ± {half:.1f}" for mean, half in (theirs, ours))
        lines.append(f"| {trace} | {cost} | {figures} | {ratio:.2f} |")
    worst, middle = max(ratios), statistics.median(ratios)
    cells_said = f"Where HI-LCB's regret is at least {WORTH_A_LOOK:g} ({len(ratios)} cells)"
    lines += ["", f"{cells_said}: ratio at most {worst:.2f}, {middle:.2f} in the median."]
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the regret of Isotonic and HI-LCB.")
    parser.add_argument("--quick", action="store_true", help="two costs, five runs")
    parser.add_argument("--markdown", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    costs, runs = ((0.2, 0.5), 5) if options.quick else (COSTS, 50)
    traces = [name for name in trace_names() if not name.startswith("synthetic-")]
    lines = [
        "# Isotonic against HI-LCB",
        "",
        f"Written by `benchmarks/regret.py`: pseudo-regret at T = {HORIZON}, α = 0.52, {runs} runs ± half of the 95 %",
        "interval, the same samples for both.",
        "",
    ]
    for bins, learned in ((16, False), (256, False), (16, True)):
        title = f"{bins} bins, {'learned' if learned else 'known'} cost"
        lines += table(title, [cell(trace, cost, bins, learned, runs) for trace in traces for cost in costs])
        print("\n".join(lines[-2:]), flush=True)
    text = "\n".join(lines)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
