"""What a fall of agreement with confidence costs the policies that assume there is none.

All policies see the same samples; figures are pseudo-regret at the horizon.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import SPREAD, spread
from benchmarks.workload import image_traces
from hinge import UniformBins, load_trace, simulate
from hinge.policies import policy_class
from hinge.simulation import lineup
from hinge.simulation.sources import ConstantPrice, Replay, Resampled, Synthetic
from hinge.theory import Problem, best_threshold, oracle_cost, significant_dips, threshold_costs

HORIZON = 100_000
POLICIES = ("hi-lcb", "isotonic", "sentinel", "hi-lcb-lite", "kl", "thompson")  # monotone ones first
LENDING = {"hi-lcb": "hi-lcb-lite"}  # the same bounds, with evidence lent and without
COST = 0.5
CURVE = tuple(np.linspace(0.1, 0.98, 16).tolist())  # above 1 − cost from bin 7 on
CROSSING, HARMLESS = 10, 14  # bins at 0.69 and 0.92, under which a dip is planted
DEPTHS = (0.1, 0.2, 0.3, 0.4)
TOP, OVERCONFIDENT = 15, (0.58, 0.68)  # the highest bin brought down to 0.4 and to 0.3
Regrets = dict[str, NDArray[np.float64]]  # of each policy, at the end of each run


def regrets(source: Resampled | Synthetic, runs: int) -> Regrets:
    """Every policy's regret against the oracle, which judges each bin by itself; the same samples for all."""
    policies = lineup(POLICIES, source, offload_cost=source.mean_offload_cost, horizon=HORIZON)
    return {name: each.regret[:, -1] for name, each in simulate(policies, source, HORIZON, runs, seed=6).items()}


def setting_of(source: Replay | Synthetic) -> Problem:
    return Problem(source.agreement.tolist(), source.mean_offload_cost, source.weights.tolist())


def threshold_regret(setting: Problem) -> float:
    """What the best static threshold costs more than the oracle over the whole horizon."""
    extra = float(threshold_costs(setting)[best_threshold(setting)] - oracle_cost(setting))
    return HORIZON * max(0.0, extra)  # rounding can make it a little less than nothing


def row(label: str, figures: Regrets, less: float = 0.0) -> str:
    return f"| {label} | " + " | ".join(spread(values - less) for values in figures.values()) + " |"


def header(*first: str) -> list[str]:
    marks = [f"{name}{' †' if policy_class(name).assumes_monotone else ''}" for name in POLICIES]
    return [f"| {' | '.join((*first, *marks))} |", "|---" * (len(first) + len(marks)) + "|"]


# -- traces -----------------------------------------------------------------------------------------------------------


def through(trace: str, bins: int, cost: float) -> Resampled:
    return Resampled(load_trace(trace), UniformBins(bins), ConstantPrice(cost))


def crossing(traces: Sequence[str], bins: int, costs: Sequence[float]) -> list[Resampled]:
    """The traces at those costs at which a dip crosses the break-even, so that no threshold is the oracle."""
    sources = [through(trace, bins, cost) for trace in traces for cost in costs]
    return [source for source in sources if not setting_of(source).oracle_is_threshold]


def trace_tables(title: str, sources: Sequence[Resampled], runs: int) -> list[str]:
    """Regret against the oracle, then against the best threshold."""
    oracle, threshold = header("trace", "cost", "dips", "best threshold"), header("trace", "cost")
    saved = dict.fromkeys(LENDING, 0)
    for source in sources:
        setting, figures = setting_of(source), regrets(source, runs)
        for lender, alone in LENDING.items():
            saved[lender] += bool(figures[lender].mean() < figures[alone].mean())
        label, allowed = f"{source.trace.name} | {source.mean_offload_cost:g}", threshold_regret(setting)
        oracle.append(row(f"{label} | {setting.dips.sum()} of {setting.arriving.sum()} | {allowed:.0f}", figures))
        threshold.append(row(label, figures, allowed))
    lines = [f"### {title}", "", "Regret against the oracle of each bin:", "", *oracle, ""]
    lines += ["The same against the best static threshold:", "", *threshold, ""]
    counts = (f"{lender} less than {alone} in {saved[lender]}" for lender, alone in LENDING.items())
    return [*lines, f"Lending against judging alone: {', '.join(counts)} of {len(sources)} rows.", ""]


def certain(sources: Sequence[Resampled]) -> int:
    """How many of the traces have a dip that chance does not explain."""
    return sum(bool(significant_dips(*source.history(), source.bins, source.mean_offload_cost)) for source in sources)


# -- planted dips -----------------------------------------------------------------------------------------------------


def planted(bin: int, depth: float) -> Synthetic:
    """The rising curve with one bin lower by `depth`."""
    return Synthetic([value - depth * (i == bin) for i, value in enumerate(CURVE)], ConstantPrice(COST))


def planted_table(runs: int, depths: Sequence[float]) -> list[str]:
    """A row without a dip, then deeper and deeper ones, and what the deepest come to."""
    without = regrets(planted(CROSSING, 0.0), runs)
    lines, notes = [*header("dip", "agreement", "best threshold"), _planted_row("none", CROSSING, 0.0, without)], []
    kinds = (("crossing", CROSSING, depths), ("harmless", HARMLESS, depths), ("overconfident", TOP, OVERCONFIDENT))
    for kind, bin, below in kinds:
        for depth in below:
            dipping = regrets(planted(bin, depth), runs)
            lines.append(_planted_row(f"{kind}, bin {bin}, {depth:g} deep", bin, depth, dipping))
            if kind == "overconfident":
                notes.append(_stuck(dipping, without, bin, depth))
        changes = (f"{name} {np.mean(dipping[name] - without[name]):+.0f}" for name in POLICIES)
        notes.append(f"The {kind} dip of {below[-1]:g} changes mean regret by: {', '.join(changes)}.")
        if kind == "crossing":
            notes.append(_stuck(dipping, without, bin, below[-1]))
    return [*lines, "", *notes, "", *MEANING, ""]


def _planted_row(label: str, bin: int, depth: float, figures: Regrets) -> str:
    source = planted(bin, depth)
    return row(f"{label} | {source.agreement[bin]:.2f} | {threshold_regret(setting_of(source)):.0f}", figures)


def _stuck(dipping: Regrets, without: Regrets, bin: int, depth: float) -> str:
    """How many runs lost more by the dip than half of what accepting it throughout would cost."""
    price = (1.0 - COST - CURVE[bin] + depth) * HORIZON / len(CURVE)
    lost = {name: dipping[name] - without[name] > price / 2 for name in dipping}
    counts = (f"{name} {np.sum(runs)} of {len(runs)}" for name, runs in lost.items())
    said = f"Accepting bin {bin}, {depth:g} lower, throughout costs {price:.0f}. Runs that lost more than half of that"
    return f"{said}: {', '.join(counts)}."


MEANING = (
    "Where a dip crosses the break-even, HI-LCB accepts it on the evidence of the bins below, and pays for",
    "nearly every sample of it. Isotonic and Sentinel, which pool the dip's own evidence with theirs, do so in few",
    "runs in the middle of the curve, and in most where the highest bin dips, as all bins below speak for it; policies",
    "that judge each bin by itself do not. Elsewhere a dip costs those that lend nothing, and the others a little, as",
    "a bin nearer to the break-even takes longer to judge.",
)


def report(quick: bool) -> list[str]:
    """The tables as Markdown."""
    runs = 3 if quick else 50
    traces = image_traces()[: 1 if quick else None]
    fine = [through(trace, 256, COST) for trace in traces]
    coarse = crossing(traces, 16, [0.8] if quick else [step / 10 for step in range(1, 10)])
    sources = [*fine, *coarse]
    return [
        "## Where agreement falls with confidence",
        "",
        f"T = {HORIZON}, α = 0.52 (Sentinel: its own), known cost, {runs} runs, the same samples for all; {SPREAD}.",
        "†: assumes that agreement never falls.",
        "",
        *trace_tables("Real traces, 256 bins", fine, runs),
        *trace_tables("Real traces, 16 bins, at the costs at which a dip crosses 1 − cost", coarse, runs),
        "Rows are drawn with replacement, which makes a trace's own shares the truth, noise included. More than noise,",
        f"by `hinge.theory.significant_dips`, are the dips of {certain(sources)} of these {len(sources)} rows.",
        "",
        f"### A planted dip, 16 bins that come equally often, cost {COST}",
        "",
        f"Agreement rises from {CURVE[0]:g} to {CURVE[-1]:g}, but for one bin that is lowered.",
        "",
        *planted_table(runs, DEPTHS[1::2] if quick else DEPTHS),
    ]
