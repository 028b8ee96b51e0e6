"""A world that changes: regret before and after, of policies that forget and of policies that do not.

The agreement of all bins falls or rises by 0.35; arrivals move from the low bins to the high ones; the offload cost,
which has to be learned, falls from 0.5 to 0.2 or rises the other way. At once in the middle, slowly, or to and fro.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import SPREAD, spread
from hinge import Policy, build, simulate
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
SEED = 4711  # not the one with which memory, audits and alarm were chosen
AGREEMENT = np.linspace(0.15, 0.97, BINS)
LOW, HIGH = np.linspace(2.0, 0.2, BINS), np.linspace(0.2, 2.0, BINS)
CHANGES: dict[str, Change] = {"sudden": Sudden(0.5), "gradual": Gradual(0.25, 0.75), "periodic": Periodic(2)}
LASTING = ("hi-lcb", "hi-lcb-lite", "kl", "isotonic", "thompson", "hedge-hi")
FORGETTING = ("sentinel", "discounted-isotonic", "discounted-hi-lcb")
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


def policies(learned: bool) -> dict[str, Policy]:
    cost = None if learned else 0.5
    settings = {"bins": BINS, "offload_cost": cost, "horizon": HORIZON}
    return {name: build(name, **settings) for name in (*LASTING, *FORGETTING)}


def halves(source: Source, learned: bool, runs: int) -> Halves:
    """The regret of every policy in the first half and in the second."""
    results = simulate(policies(learned), source, HORIZON, runs, SEED, times=[HORIZON // 2])
    figures = {}
    for name, record in results.items():
        before, total = record.regret[:, 0], record.regret[:, -1]
        figures[name] = (before, total - before)
    return figures


def table(title: str, cells: Mapping[str, Halves]) -> list[str]:
    """A row for each policy, two columns for each cell."""
    heads = [f"{cell}: {part}" for cell in cells for part in ("1st half", "2nd half")]
    lines = [f"### {title}", "", f"| policy | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in (*LASTING, *FORGETTING):
        figures = (spread(regrets) for cell in cells.values() for regrets in cell[name])
        lines.append(f"| {name} | {' | '.join(figures)} |")
    return [*lines, ""]


def best(names: tuple[str, ...], figures: Halves, part: int) -> tuple[str, float]:
    name = min(names, key=lambda each: float(figures[each][part].mean()))
    return name, float(figures[name][part].mean())


def verdict(what: str, change: str, figures: Halves) -> str:
    """Whether a policy that forgets beats every one that does not, after the change."""
    theirs, ours = best(LASTING, figures, 1), best(FORGETTING, figures, 1)
    flagship = float(figures["discounted-isotonic"][1].mean())
    holds = "yes" if flagship < theirs[1] else "another does" if ours[1] < theirs[1] else "**no**"
    return f"| {what} | {change} | {theirs[0]} {theirs[1]:.0f} | {flagship:.0f} | {ours[0]} {ours[1]:.0f} | {holds} |"


def steady(runs: int) -> list[str]:
    """Where nothing changes: what readiness costs."""
    lines = ["### Nothing changes", "", "| cost | hi-lcb | policy | regret | ratio to hi-lcb |", "|---" * 5 + "|"]
    for learned in (False, True):
        source = setting(costs=BimodalPrice(0.45, 0.55) if learned else None, weights=np.ones(BINS))
        results = simulate(policies(learned), source, HORIZON, runs, SEED)
        plain = results["hi-lcb"].regret[:, -1].mean()
        for name in ("isotonic", *FORGETTING):
            regrets = results[name].regret[:, -1]
            said = f"{'learned' if learned else 'known'} | {plain:.0f} | {name} | {spread(regrets)}"
            lines.append(f"| {said} | {regrets.mean() / plain:.2f} |")
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    runs = 3 if quick else 50
    lines = [
        "## Drift",
        "",
        f"Pseudo-regret in the first {HORIZON // 2} samples and in the second, {BINS} bins, {runs} runs, the same",
        f"samples for all; {SPREAD}. Policies that",
        "forget have their default memory and audits. Where only arrivals change, nothing that was learned becomes",
        "wrong, and forgetting can only cost. Memory, audits and alarm were chosen on these settings, in runs with",
        "another seed.",
        "",
    ]
    verdicts = []
    for what, (before, after, learned) in pairs().items():
        cells = {name: halves(Drifting(before, after, change), learned, runs) for name, change in CHANGES.items()}
        lines += table(f"{what.capitalize()}{' (learned cost)' if learned else ''}", cells)
        verdicts += [verdict(what, name, figures) for name, figures in cells.items()]
    heads = "what changes | how | best that never forgets | discounted-isotonic | best that forgets | beats them all"
    lines += ["### After the change", "", f"| {heads} |", "|---" * 6 + "|", *verdicts, ""]
    return lines + steady(runs)
