"""A world that changes: regret before and after, of policies that forget and of policies that do not.

The agreement of all bins falls or rises by 0.35; arrivals move from the low bins to the high ones; the offload cost,
which has to be learned, falls from 0.5 to 0.2 or rises the other way. At once in the middle, slowly, or to and fro.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import ABSENT, BEFORE, SPREAD, against, best_before, geometric, spread
from hinge import Gate, Policy, build, simulate
from hinge.simulation.sources import (
    BimodalPrice,
    Change,
    ConstantPrice,
    Drifting,
    Gradual,
    Periodic,
    PriceProcess,
    Source,
    Sudden,
    Synthetic,
)

HORIZON, BINS = 100_000, 16
SEED = 4711  # not one with which constants were chosen
AGREEMENT = np.linspace(0.15, 0.97, BINS)
LOW, HIGH = np.linspace(2.0, 0.2, BINS), np.linspace(0.2, 2.0, BINS)
CHANGES: dict[str, Change] = {"sudden": Sudden(0.5), "gradual": Gradual(0.25, 0.75), "periodic": Periodic(2)}
DEFAULT = "probation"
NAMES = (DEFAULT, "discounted", "hi-lcb", "hi-lcb-lite", "thompson", "hedge-hi")
MEASURED = (DEFAULT, "discounted", "thompson")  # which a gate tells the price; the others learn it themselves
PARTS = {"1st half": "first half", "2nd half": "second half"}
Halves = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]  # of each run, before and after


def setting(
    shift: float = 0.0, costs: PriceProcess | None = None, weights: np.ndarray[tuple[int], np.dtype[np.float64]] = LOW
) -> Synthetic:
    return Synthetic(np.clip(AGREEMENT + shift, 0.0, 1.0), costs or ConstantPrice(0.5), weights)


def pairs() -> dict[str, tuple[Synthetic, Synthetic, bool]]:
    """What changes: before, after, and whether the cost is learned."""
    dear, cheap = BimodalPrice(0.45, 0.55), BimodalPrice(0.15, 0.25)
    even = np.ones(BINS)
    return {
        "agreement falls": (setting(weights=even), setting(-0.35, weights=even), False),
        "agreement rises": (setting(-0.35, weights=even), setting(weights=even), False),
        "arrivals": (setting(weights=LOW), setting(weights=HIGH), False),
        "cost falls": (setting(costs=dear, weights=even), setting(costs=cheap, weights=even), True),
        "cost rises": (setting(costs=cheap, weights=even), setting(costs=dear, weights=even), True),
    }


def policies(learned: bool) -> dict[str, Policy | Gate]:
    settings = {"bins": BINS, "horizon": HORIZON, **({} if learned else {"offload_cost": 0.5})}
    ready: dict[str, Policy | Gate] = {name: build(name, **settings) for name in NAMES}
    return ready | ({name: Gate(name, bins=BINS) for name in MEASURED} if learned else {})


def halves(source: Source, learned: bool, runs: int) -> Halves:
    """The regret of every policy in the first half and in the second."""
    results = simulate(policies(learned), source, HORIZON, runs, SEED, times=[HORIZON // 2])
    figures = {}
    for name, record in results.items():
        before, total = record.regret[:, 0], record.regret[:, -1]
        figures[name] = (before, total - before)
    return figures


def table(title: str, cells: Mapping[str, Halves], ratios: list[float]) -> list[str]:
    """A row for each policy, two columns for each cell; and the best of the baseline beside the default."""
    heads = [f"{cell}: {part}" for cell in cells for part in PARTS]
    lines = [f"### {title}", "", f"| policy | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in NAMES:
        figures = (spread(regrets) for cell in cells.values() for regrets in cell[name])
        lines.append(f"| {name} | {' | '.join(figures)} |")
    shown = []
    for how, cell in cells.items():
        for part, regrets in zip(PARTS.values(), cell[DEFAULT], strict=True):
            before = best_before("regret-drift", title, f"{how}, {part}")
            ratios.append(float(regrets.mean()) / before)
            shown.append(against(float(regrets.mean()), before))
    return [*lines, f"| {BEFORE} | {' | '.join(shown)} |", ""]


def steady(runs: int, ratios: list[float]) -> list[str]:
    """Where nothing changes: what readiness costs."""
    lines = ["### Nothing changes", "", f"| cost | policy | regret | ratio to hi-lcb | {BEFORE} |", "|---" * 5 + "|"]
    for learned in (False, True):
        source = setting(costs=BimodalPrice(0.45, 0.55) if learned else None, weights=np.ones(BINS))
        results = simulate(policies(learned), source, HORIZON, runs, SEED)
        plain, known = results["hi-lcb"].regret[:, -1].mean(), "learned" if learned else "known"
        before = best_before("regret-drift", "Nothing changes", f"cost {known}")
        for name in NAMES:
            regrets = results[name].regret[:, -1]
            beside = against(float(regrets.mean()), before) if name == DEFAULT else ABSENT
            lines.append(f"| {known} | {name} | {spread(regrets)} | {regrets.mean() / plain:.2f} | {beside} |")
        ratios.append(float(results[DEFAULT].regret[:, -1].mean()) / before)
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    runs = 3 if quick else 50
    lines = [
        "## Drift",
        "",
        f"Pseudo-regret in the first {HORIZON // 2} samples and in the second, {BINS} bins, {runs} runs, the same",
        f"samples for all; {SPREAD}. Where only",
        "arrivals change, nothing that was learned becomes wrong, and forgetting can only cost. A learned cost is",
        f"measured by the gate for {', '.join(MEASURED)}.",
        "",
    ]
    ratios = list[float]()
    for what, (before, after, learned) in pairs().items():
        cells = {name: halves(Drifting(before, after, change), learned, runs) for name, change in CHANGES.items()}
        lines += table(f"{what.capitalize()}{' (learned cost)' if learned else ''}", cells, ratios)
    lines += steady(runs, ratios)
    return [*lines, f"{DEFAULT} over the best before, geometric mean of {len(ratios)}: {geometric(ratios):.2f}.", ""]
