"""The commands `simulate` and `evaluate`."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
import typer

from hinge.bins import UniformBins
from hinge.cli import options, show
from hinge.errors import UnknownName
from hinge.policies import Policy
from hinge.simulation import Results, lineup, simulate
from hinge.simulation.engine import Progress
from hinge.simulation.sources import InOrder, Replay, Resampled, Shuffled
from hinge.theory import Dip, significant_dips
from hinge.traces import trace_names


def simulate_command(
    policy: options.Policy = "isotonic",
    trace: options.TraceName = "cifar10-vgg16",
    offload_cost: options.OffloadCost = None,
    alpha: options.Alpha = 0.52,
    bins: options.Bins = 16,
    horizon: options.Horizon = 100_000,
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Run one policy on a trace, drawn with replacement, and report its regret.

    Example: hinge simulate --policy isotonic --trace cifar10-vgg16 --offload-cost 0.5 --runs 100
    """
    if policy == "all":
        raise UnknownName("--policy takes one policy; 'hinge evaluate' compares several")
    recorded = options.find_trace(trace)
    cost = options.known_cost(offload_cost, recorded)
    source = Resampled(recorded, UniformBins(bins), options.costs_for(recorded, cost))
    policies = lineup([policy], source, offload_cost=cost, horizon=horizon, alpha=alpha, seed=seed)
    with show.progress(f"{policy} on {trace}") as report:
        results = simulate(policies, source, horizon, runs, seed, progress=report)
    figures = results[policy].summary()
    if out:
        show.write_curves(out, results)
    if json:
        show.print_json({**figures, "trace": trace, "alpha": alpha, "bins": bins, "offload_cost": cost})
    else:
        show.print_figures(f"{trace}, horizon {horizon}, {show.counted(figures['runs'], 'run')}", [figures])
    _end(results)


def evaluate_command(
    trace: Annotated[
        str,
        typer.Argument(
            help="A file (confidence,local,remote[,label][,cost]), or a trace by name.", autocompletion=trace_names
        ),
    ],
    policies: options.Policies = "all",
    offload_cost: options.OffloadCost = None,
    alpha: options.Alpha = 0.52,
    bins: options.Bins = 16,
    horizon: Annotated[int | None, typer.Option(help="Draw this many samples; without it: once, in order.")] = None,
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Say what every policy would have cost on a recorded log.

    Without --horizon the log is replayed once, in its own order, and then in shuffled orders to show how much the order
    matters. With --horizon samples are drawn from it with replacement. The offline and logistic modules are fitted on
    the log itself, in hindsight. A warning says where agreement falls with confidence, which misleads some policies.

    Example: hinge evaluate log.csv --offload-cost 0.5 --policies isotonic,hi-lcb
    """
    recorded = options.find_trace(trace)
    cost = options.known_cost(offload_cost, recorded)
    binning, costs = UniformBins(bins), options.costs_for(recorded, cost)
    source: Replay = (InOrder if horizon is None else Resampled)(recorded, binning, costs)
    length = len(recorded) if horizon is None else horizon
    names = [name.strip() for name in policies.split(",")]
    chosen = lineup(names, source, offload_cost=cost, horizon=length, alpha=alpha, seed=seed)
    with show.progress(f"policies on {trace}") as report:
        results = simulate(chosen, source, length, 1 if horizon is None else runs, seed, progress=report)
        shuffled: Results | None = None
        if horizon is None and results.complete:
            results, shuffled = _shuffle(results, chosen, Shuffled(recorded, binning, costs), runs, seed, report)
    figures = [_with_spread(record.summary(), shuffled) for record in results.values()]
    dips = significant_dips(*source.history(), source.bins, source.mean_offload_cost)
    dips = [dip for dip in dips if dip.crosses]  # the others mislead nobody
    if out:
        show.write_curves(out, results)
    if json:
        settings = {"trace": trace, "samples": len(recorded), "bins": bins, "offload_cost": cost}
        settings |= {"alpha": alpha, "seed": seed}
        warnings = [_warning(dip, bins) for dip in dips]
        show.print_json({**settings, "policies": figures, "warnings": warnings})
    else:
        order = "in order" if horizon is None else f"drawn {show.counted(length, 'time')} with replacement"
        samples = show.counted(len(recorded), "sample")
        show.print_figures(f"{trace}: {samples}, {order}", sorted(figures, key=_by_cost))
        show.print_legend(figures)
        show.print_dips(dips, chosen, bins)
    _end(results if shuffled is None else shuffled)


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


def _by_cost(figures: Mapping[str, Any]) -> float:
    return float(figures["cost_per_sample"])


def _end(results: Results) -> None:
    if not results.complete:
        show.err.print("Interrupted: these are the runs that were done.")
        raise typer.Exit(show.INTERRUPTED)
