"""The command `simulate`."""

from typing import Annotated

import typer

from hinge.bins import UniformBins
from hinge.cli import console, options
from hinge.simulation import lineup, simulate
from hinge.simulation.evaluate import as_trace, costs_for, known_cost
from hinge.simulation.sources import Resampled
from hinge.traces import trace_names


def command(
    policy: options.Policy = "sentinel",
    trace: Annotated[
        str, typer.Option(help="A trace by name (see 'hinge list traces'), or a file.", autocompletion=trace_names)
    ] = "cifar10-vgg16",
    offload_cost: options.OffloadCost = None,
    set: options.Set = [],  # noqa: B006  # Typer gives every call a list of its own
    alpha: options.Alpha = None,
    bins: options.Bins = 16,
    horizon: Annotated[int, typer.Option(min=1, help="Samples in each run.")] = 100_000,
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Samples are drawn from a trace, with replacement.

    Example: hinge simulate --policy sentinel --trace cifar10-vgg16 --offload-cost 0.5 --runs 100
    """
    if policy == "all":
        raise options.UsageError("--policy takes one policy; 'hinge evaluate' compares several")
    console.check_out(out)
    recorded = as_trace(trace)
    cost = known_cost(options.offload_cost(offload_cost), recorded)
    source = Resampled(recorded, UniformBins(bins), costs_for(recorded, cost))
    settings = options.policy_settings([policy], set, alpha=alpha)
    policies = lineup([policy], source, offload_cost=cost, horizon=horizon, seed=seed, **settings)
    with console.progress(f"{policy} on {trace}", lines=not json) as report:
        results = simulate(policies, source, horizon, runs, seed, progress=report)
    figures = results[policy].summary()
    if out:
        console.write_curves(out, results, f"{policy} on {trace}")
    if json:
        console.print_json({**figures, "trace": trace, "bins": bins, "offload_cost": cost, **settings})
    else:
        console.print_figures(f"{trace}, horizon {horizon}, {console.counted(figures['runs'], 'run')}", [figures])
    if not results.complete:
        console.end_interrupted("these are the runs that were done.")
