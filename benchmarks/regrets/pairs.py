"""Real pairs beyond image labels: which confidence measure to trust, and what the policies cost with it.

The traces are recorded by training/intents.py and its neighbours, which also keep every confidence measure of every
sample, in benchmarks/regrets/measures. Sedna's filters are our own rendering of KubeEdge Sedna's
`sedna.algorithms.hard_example_mining` with its defaults: a sample is hard, and offloaded, where

- Threshold: the mean of its scores is below 0.5;
- IBT: at least half of its scores are 0.5 or less;
- CrossEntropy: 1 less the entropy of the class probabilities, over its largest value, is below 0.5.

A sample without any score is never hard.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import SPREAD, spread
from hinge import Gate, Trace, UniformBins, load_trace, simulate
from hinge.policies import Need, policy_class, policy_names
from hinge.simulation import lineup
from hinge.simulation.evaluate import FITTED
from hinge.simulation.sources import ConstantPrice, Shuffled
from hinge.theory import fit_threshold, monotone

HORIZON = 100_000
BINS = 16
COSTS = (0.1, 0.2, 0.3, 0.5)
COST = 0.2  # of the table of all policies
DEFAULT, REFERENCE = "probation", "hi-lcb"
WITHIN, AT_MOST = 0.02, 0.4  # of the best threshold's cost, and of HI-LCB's regret
NONE = 1.0  # so little regret, of one wrong answer, counts as none
GOALS = ("threshold", "Sedna", "HI-LCB")
MEASURES = Path(__file__).parent / "measures"
HARD_BELOW = 0.5  # every default of Sedna's

Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Pair(NamedTuple):
    """A trace, and how sure the local model was by every measure."""

    trace: Trace
    measures: Mapping[str, Reals]


def pairs() -> list[Pair]:
    """All that were recorded."""
    found = []
    for path in sorted(MEASURES.glob("*.npz")):
        with np.load(path) as stored:
            found.append(Pair(load_trace(path.stem), {name: stored[name].astype(np.float64) for name in stored.files}))
    return found


# -- measures ---------------------------------------------------------------------------------------------------------


def measure_row(pair: Pair, name: str, runs: int) -> str:
    """Agreement by sixths of the samples, from the least sure; how far it falls, how far confidence is off, and what
    the best threshold on it, HI-LCB and the default cost."""
    sure, agreed = pair.measures[name], pair.trace.agreed.astype(np.float64)
    sixths = np.array_split(np.argsort(sure, kind="stable"), 6)
    shown = " ".join(f"{agreed[rows].mean():.2f}" for rows in sixths)
    bins = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(bins, minlength=BINS)
    means, sureness = (np.bincount(bins, each, BINS) / np.maximum(rows, 1) for each in (agreed, sure))
    weights = rows / rows.sum()
    there = rows > 0
    violation = float(weights[there] @ np.abs(means[there] - monotone(means[there], rows[there])))
    error = float(weights @ np.abs(means - sureness))
    trace = Trace(sure, agreed=pair.trace.agreed)
    source = Shuffled(trace, UniformBins(BINS), ConstantPrice(COST))
    gates = {REFERENCE: Gate(REFERENCE, offload_cost=COST, bins=BINS), DEFAULT: Gate(offload_cost=COST)}
    results = simulate(gates, source, HORIZON, runs)
    costs = [best_threshold_cost(trace, COST), *(results[name].cost_per_sample[:, -1].mean() for name in results)]
    return f"| {name} | {shown} | {violation:.4f} | {error:.3f} | {' | '.join(f'{c:.4f}' for c in costs)} |"


# -- costs ------------------------------------------------------------------------------------------------------------


def best_threshold_cost(trace: Trace, cost: float) -> float:
    """The least cost per sample of a fixed threshold on the confidence itself, in hindsight."""
    return fit_threshold(trace.confidence, trace.agreed, cost)[1]


def filters(pair: Pair, nothing: bool = False) -> dict[str, Flags]:
    """Which samples are hard, by those of Sedna's filters that the pair's scores allow; `nothing`: without a score."""
    sure, found = pair.measures, {"Threshold": scores(pair) < HARD_BELOW}
    for name in ("words scored above 0.5", "boxes scored above 0.5"):
        if name in sure:
            found["IBT"] = sure[name] <= HARD_BELOW
    if "option entropy" in sure:
        found["CrossEntropy"] = sure["option entropy"] < HARD_BELOW
    return {name: np.where(scores(pair) > 0.0, hard, nothing) for name, hard in found.items()}


def scores(pair: Pair) -> Reals:
    """The mean of the scores that Sedna sees: of a detector those of all boxes, kept or not."""
    return pair.measures.get("mean score of all boxes", pair.trace.confidence)


def filter_cost(trace: Trace, hard: Flags, cost: float) -> float:
    """The cost per sample of offloading what is hard."""
    return float(np.where(hard, cost, 1.0 - trace.agreed.astype(np.float64)).mean())


class Cell(NamedTuple):
    """A pair at a cost."""

    pair: Pair
    cost: float
    default: Reals  # cost per sample, run by run
    share: float  # offloaded by the default
    agreement: float  # of what the default answers with the remote
    threshold: float
    sedna: Mapping[str, float]
    regrets: tuple[float, float]  # the default's, and HI-LCB's

    @property
    def over(self) -> float:
        return float(self.default.mean() / self.threshold - 1.0)

    @property
    def ratio(self) -> float:
        return over(*self.regrets)

    @property
    def met(self) -> tuple[bool, bool, bool]:
        """Whether each of the three goals is."""
        cheaper = all(self.default.mean() < cost for cost in self.sedna.values())
        return self.over <= WITHIN, cheaper, self.ratio <= AT_MOST


def over(regret: float, reference: float) -> float:
    """The regret as a multiple of another; 0 where there is none, as of those that rightly offload everything."""
    return 0.0 if regret < NONE else regret / max(reference, NONE)


def cell(pair: Pair, cost: float, bins: int | None, runs: int) -> Cell:
    source = Shuffled(pair.trace, UniformBins(BINS), ConstantPrice(cost))
    gates = {DEFAULT: Gate(offload_cost=cost, bins=bins), REFERENCE: Gate(REFERENCE, offload_cost=cost, bins=BINS)}
    results = simulate(gates, source, HORIZON, runs)
    default, reference = results[DEFAULT], results[REFERENCE]
    regrets = float(default.regret[:, -1].mean()), float(reference.regret[:, -1].mean())
    sedna = {name: filter_cost(pair.trace, hard, cost) for name, hard in filters(pair).items()}
    share, agreement = (float(each[:, -1].mean()) for each in (default.offload_fraction, default.accuracy))
    costs = default.cost_per_sample[:, -1]
    return Cell(pair, cost, costs, share, agreement, best_threshold_cost(pair.trace, cost), sedna, regrets)


def unscored(pair: Pair) -> str:
    """What the filters would cost if they offloaded the samples without a score, too."""
    none = scores(pair) == 0.0
    if not none.any():
        return "Every sample has a score."
    costs = {name: filter_cost(pair.trace, hard, COST) for name, hard in filters(pair, nothing=True).items()}
    said = f"{none.sum()} samples have no score, and agree {pair.trace.agreed[none].mean():.2f}. If Sedna's filters"
    return f"{said} offloaded them: {', '.join(f'{name} {cost:.4f}' for name, cost in costs.items())} at cost {COST}."


def cost_row(found: Cell) -> str:
    sedna = ", ".join(f"{name} {cost:.4f}" for name, cost in found.sedna.items())
    ours = f"{found.default.mean():.4f} | {found.threshold:.4f} | {found.over:+.1%} | {sedna} | {found.ratio:.2f}"
    missed = ", ".join(goal for goal, met in zip(GOALS, found.met, strict=True) if not met)
    said = f"**not {missed}**" if missed else "yes"
    return f"| {found.cost} | {found.share:.1%} | {found.agreement:.2%} | {ours} | {said} |"


def goals_row(name: str, cells: Sequence[Cell]) -> str:
    """At how many costs each goal is met."""
    counts = (sum(goal) for goal in zip(*(found.met for found in cells), strict=True))
    return f"| {name} | {' | '.join(f'{count} of {len(cells)}' for count in counts)} |"


def finer_row(name: str, cells: Sequence[Cell]) -> str:
    """The two figures that bins change, at each cost, the regret at all of them together, and the goals."""
    overs, ratios = (
        " ".join(f"{each:{form}}" for each in column)
        for column, form in (((found.over for found in cells), "+.1%"), ((found.ratio for found in cells), ".2f"))
    )
    together = over(*map(sum, zip(*(found.regrets for found in cells), strict=True)))
    return goals_row(f"{name} | {overs} | {ratios} | {together:.2f}", cells)


def mark(name: str) -> str:
    """A dagger for what knows more than a device can."""
    hindsight = name == "oracle" or name == FITTED
    return " †" if hindsight or Need.AGREEMENT in policy_class(name).needs else ""


def policy_rows(pair: Pair, runs: int) -> list[str]:
    """The regret of every policy, the default first, then from the least."""
    source = Shuffled(pair.trace, UniformBins(BINS), ConstantPrice(COST))
    names = [name for name in policy_names() if name not in ("threshold", "target")]
    policies = lineup(names, source, offload_cost=COST, horizon=HORIZON)
    results = simulate(policies, source, HORIZON, runs)
    order = sorted(results, key=lambda name: (name != DEFAULT, results[name].regret[:, -1].mean()))
    base = results[REFERENCE].regret[:, -1].mean()
    return [
        f"| {name}{mark(name)} | {spread(results[name].regret[:, -1])} "
        f"| {over(results[name].regret[:, -1].mean(), base):.2f} "
        f"| {results[name].offload_fraction[:, -1].mean():.1%} | {results[name].accuracy[:, -1].mean():.2%} |"
        for name in order
    ]


def report(quick: bool) -> list[str]:
    """The tables as Markdown."""
    runs, costs = (2, COSTS[1:2]) if quick else (30, COSTS)
    lines = [
        "## Real pairs",
        "",
        f"Every row of a trace once in each pass, shuffled, up to T = {HORIZON}; {BINS} uniform bins, known cost,",
        f"{runs} runs; {SPREAD}. Agreement by sixths: from the sixth of the samples of which the local model is",
        "least sure to the surest. Fall: mean distance of the bins' agreement from the closest curve that never falls.",
        "ECE: mean distance of confidence and agreement. Threshold, and the",
        f"policies beside it: the cost per sample with that measure, at an offload cost of {COST}. The default is",
        "compared with the best fixed threshold on the confidence itself, in hindsight, and with Sedna's filters at",
        "their defaults.",
        "†: knows more than a device can: fitted to the trace in hindsight, or told about accepted samples, too.",
        f"Goals: at most {WITHIN:.0%} above the threshold, below every filter, regret at most {AT_MOST} × HI-LCB's,",
        f"where a regret below {NONE:g}, of one wrong answer in all samples, counts as none.",
        "At all costs: their regrets added up.",
        "",
    ]
    found = {pair.trace.name: (pair, [cell(pair, cost, BINS, runs) for cost in costs]) for pair in pairs()}
    fitted = {
        f"{name} | {len(pair.trace)}": [cell(pair, cost, None, runs) for cost in costs]
        for name, (pair, _) in found.items()
    }
    unmet = sum(not all(found.met) for cells in fitted.values() for found in cells)
    cells_in_all = sum(map(len, fitted.values()))
    lines += [
        "| costs at which the goal is met | within the threshold | below Sedna | of HI-LCB |",
        "|---" * 4 + "|",
        *(goals_row(name, cells) for name, (_, cells) in found.items()),
        "",
        f"With bins that fit themselves. All goals are met in {cells_in_all - unmet} of {cells_in_all} cells; regret",
        f"is by the oracle of {BINS} uniform bins, which may be dearer than these.",
        "",
        "| trace | rows | over the threshold | × HI-LCB | at all costs | within the threshold | below Sedna "
        "| of HI-LCB |",
        "|---" * 8 + "|",
        *(finer_row(name, cells) for name, cells in fitted.items()),
        "",
    ]
    for name, (pair, cells) in found.items():
        about = pair.trace.about
        lines += [
            f"### {name}",
            "",
            f"{about['samples']}. Local: {about['local']}, right {about['local accuracy']}. Remote: {about['remote']},",
            f"right {about['remote accuracy']}. They agree: {about['agreement']}. The trace's confidence is the",
            f"{about['confidence']}." + (f" Truth: {about['truth']}." if "truth" in about else ""),
            "",
            f"| measure | agreement by sixths | fall | ECE | threshold | {REFERENCE} | {DEFAULT} |",
            "|---" * 7 + "|",
            *(measure_row(pair, measure, runs) for measure in pair.measures),
            "",
            "| cost | offloaded | agreement | its cost | best threshold | over it | Sedna | × HI-LCB | goals met |",
            "|---" * 9 + "|",
            *map(cost_row, cells),
            "",
            unscored(pair),
            "",
            f"| policy, cost {COST} | regret | × HI-LCB | offloaded | agreement |",
            "|---" * 5 + "|",
            *policy_rows(pair, runs),
            "",
        ]
    return lines
