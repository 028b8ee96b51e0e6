"""The command `evaluate`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
import typer

from hinge.bins import UniformBins
from hinge.cli import console, options
from hinge.policies import Policy, policy_class, policy_names
from hinge.simulation import Results, lineup, simulate
from hinge.simulation.engine import Progress
from hinge.simulation.sources import InOrder, Replay, Resampled, Shuffled
from hinge.theory import Dip, significant_dips
from hinge.traces import trace_names

_DIPS_NAMED = 5
_POLICIES_NAMED = 4


def command(
    trace: Annotated[
        str,
        typer.Argument(
            help="A file (confidence,local,remote[,label][,cost]), or a trace by name.", autocompletion=trace_names
        ),
    ],
    policies: Annotated[
        str,
        typer.Option(
            help="Policies by name, separated by commas, or 'all'.", autocompletion=options.complete_policies
        ),
    ] = "all",
    offload_cost: options.OffloadCost = None,
    alpha: options.Alpha = 0.52,
    bins: options.Bins = 16,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Draw this many samples; without it: once, in order.")
    ] = None,
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Without --horizon the log is replayed once, in its own order, and then in shuffled orders to show how much the
    order matters. With --horizon samples are drawn from it with replacement. The offline and logistic modules are
    fitted on the log itself, in hindsight. A warning says where agreement falls with confidence, which misleads some
    policies.

    Example: hinge evaluate log.csv --offload-cost 0.5 --policies isotonic,hi-lcb
    """
    recorded = options.find_trace(trace)
    cost = options.known_cost(offload_cost, recorded)
    binning, costs = UniformBins(bins), options.costs_for(recorded, cost)
    source: Replay = (InOrder if horizon is None else Resampled)(recorded, binning, costs)
    length = len(recorded) if horizon is None else horizon
    names = [name.strip() for name in policies.split(",")]
    chosen = lineup(names, source, offload_cost=cost, horizon=length, alpha=alpha, seed=seed)
    with console.progress(f"policies on {trace}") as report:
        results = simulate(chosen, source, length, 1 if horizon is None else runs, seed, progress=report)
        shuffled: Results | None = None
        if horizon is None and results.complete:
            results, shuffled = _shuffle(results, chosen, Shuffled(recorded, binning, costs), runs, seed, report)
    figures = [_with_spread(record.summary(), shuffled) for record in results.values()]
    dips = significant_dips(*source.rows(), source.bins, source.mean_offload_cost)
    dips = [dip for dip in dips if dip.crosses]  # the others mislead no policy
    if out:
        console.write_curves(out, results)
    if json:
        settings = {"trace": trace, "samples": len(recorded), "bins": bins, "offload_cost": cost}
        settings |= {"alpha": alpha, "seed": seed}
        warnings = [_warning(dip, bins) for dip in dips]
        console.print_json({**settings, "policies": figures, "warnings": warnings})
    else:
        order = "in order" if horizon is None else f"drawn {console.counted(length, 'time')} with replacement"
        samples = console.counted(len(recorded), "sample")
        by_cost = sorted(figures, key=lambda row: float(row["cost_per_sample"]))
        console.print_figures(f"{trace}: {samples}, {order}", by_cost)
        _print_legend(figures)
        _print_dips(dips, chosen, bins)
    if not (results if shuffled is None else shuffled).complete:
        console.end_interrupted("these are the runs that were done.")


def _warning(dip: Dip, bins: int) -> dict[str, Any]:
    """A dip for programs: its bins, and where on the scale of confidence they lie."""
    confidence = {"confidence_from": dip.bin / bins, "confidence_to": (dip.last_bin + 1) / bins}
    return {"warning": "agreement falls with confidence", **confidence, **asdict(dip)}


def _shuffle(
    ordered: Results, policies: Mapping[str, Policy], source: Shuffled, runs: int, seed: int, report: Progress
) -> tuple[Results, Results | None]:
    """The same policies on shuffled orders; interrupted before the first is done, the order as recorded remains."""
    try:
        return ordered, simulate(policies, source, len(source.trace), runs, seed, progress=report)
    except KeyboardInterrupt:
        return replace(ordered, complete=False), None


def _with_spread(figures: dict[str, Any], shuffled: Results | None) -> dict[str, Any]:
    if shuffled is not None:
        costs = shuffled[figures["policy"]].cost_per_sample[:, -1]
        figures["shuffled_cost_per_sample"] = float(costs.mean())
        figures["shuffled_spread"] = float(np.std(costs, ddof=1)) if len(costs) > 1 else None
    return figures


def _print_legend(figures: Sequence[Mapping[str, Any]]) -> None:
    """What the marks in the table mean."""
    if any(row["policy"] in console.INFORMED for row in figures):
        console.say("* knows more than a device can: fitted on this very log, told about every sample, or the truth")
    if any(row.get("regret_ci95") is not None for row in figures):
        console.say("regret ± half of its 95 % interval")
    if any(row.get("shuffled_spread") is not None for row in figures):
        console.say("shuffled cost ± standard deviation over orders")


def _print_dips(dips: Sequence[Dip], policies: Mapping[str, Policy], bins: int) -> None:
    """A warning, on standard error, about the dip that would cost most and the policies that it may mislead."""
    if not dips:
        return
    worst, *others = sorted(dips, key=lambda dip: -dip.price * dip.rows)
    here, below = _span(worst.bin, worst.last_bin, bins), _span(worst.below_bin, worst.below_last_bin, bins)
    shares = f"{100 * worst.agreement:.1f} % of {worst.rows} rows agree there"
    lines = [f"Warning: agreement falls with confidence, most clearly in {here}: {shares},"]
    lines[0] += f" but {100 * worst.below_agreement:.1f} % of {worst.below_rows} in {below}."
    if others:
        spans = [_span(dip.bin, dip.last_bin, bins) for dip in others]
        few = spans if len(spans) <= _DIPS_NAMED else [*spans[: _DIPS_NAMED - 1], "others"]
        lines[0] += f" It falls in {_listed(few)} too."
    misled = sorted(name for name, policy in policies.items() if policy.assumes_monotone)
    if misled:
        who = _listed(misled) if len(misled) <= _POLICIES_NAMED else f"{len(misled)} of these policies"
        lines.append(f"{who} assume{'s' * (len(misled) == 1)} that it never falls, and may accept such samples")
        lines[-1] += f" wrongly, at {worst.price:.2g} each: compare the costs above."
    kinds = {name: policy_class(name) for name in policy_names()}
    single = [name for name, kind in kinds.items() if kind.weighs_cost and not kind.assumes_monotone]
    for line in (*lines, f"{_listed(single)} judge each bin by itself."):
        console.note(line, style="yellow")


def _span(first: int, last: int, bins: int) -> str:
    confidences = f"(confidence {first / bins:.3g} to {(last + 1) / bins:.3g})"
    return f"bin {first} {confidences}" if first == last else f"bins {first} to {last} {confidences}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
