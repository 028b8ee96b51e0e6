"""The commands `simulate` and `reproduce`, and `list`, of what these and `evaluate` can be given."""

import time
from pathlib import Path
from typing import Annotated, Any

from rich.padding import Padding
from rich.text import Text

from hinge._checks import did_you_mean
from hinge.cli import console, options
from hinge.cli.options import flag, option
from hinge.cli.settings import UsageError
from hinge.errors import UnknownName
from hinge.paper import page_name, reproduce
from hinge.paper.figures import EXPERIMENTS, FULL, QUICK
from hinge.policies import policy_class, policy_names
from hinge.simulation import lineup, simulate
from hinge.simulation.evaluate import as_trace, costs_for, known_cost
from hinge.simulation.sources import Resampled
from hinge.traces import load_trace, trace_names


def simulate_command(
    *,
    policy: options.Policy = "probation",
    trace: Annotated[str, option("A trace by name (see 'hinge list traces'), or a file.")] = "cifar10-vgg16",
    offload_cost: options.OffloadCost = None,
    set: options.Set = (),
    bins: options.Bins = "16",
    horizon: Annotated[int, option("Samples in each run.", 1)] = 100_000,
    runs: options.Runs = 20,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    out: options.Out = None,
) -> None:
    """Samples are drawn from a trace, with replacement.

    Example: hinge simulate --policy probation --trace cifar10-vgg16 --offload-cost 0.5 --runs 100
    """
    policy = options.policy_named(policy)
    if policy == "all":
        raise UsageError("--policy takes one policy; 'hinge evaluate' compares several")
    console.check_out(out)
    recorded = as_trace(trace)
    cost = known_cost(options.offload_cost(offload_cost), recorded)
    source = Resampled(recorded, options.binning(bins), costs_for(recorded, cost))
    settings = options.policy_settings([policy], set, {*options.TAKEN, "seed"})
    policies = lineup([policy], source, offload_cost=cost, horizon=horizon, seed=seed, **settings)
    with console.progress(f"{policy} on {trace}", lines=not as_json) as report:
        results = simulate(policies, source, horizon, runs, seed, progress=report)
    figures = results[policy].summary()
    if out:
        console.write_curves(out, results, f"{policy} on {trace}")
    if as_json:
        console.print_json({**figures, "trace": trace, "bins": source.bins, "offload_cost": cost, **settings})
    else:
        console.print_figures(f"{trace}, horizon {horizon}, {console.counted(figures['runs'], 'run')}", [figures])
    if not results.complete:
        console.end_interrupted("these are the runs that were done.")


def reproduce_command(
    what: Annotated[str, option(f"'all', or one of {', '.join(each.name for each in EXPERIMENTS)}.")] = "all",
    /,
    *,
    out: Annotated[Path, option("The folder for the report and the figures' numbers.")] = Path("results"),
    quick: Annotated[bool, flag("Fewer runs and coarser grids.")] = False,
    as_json: options.Json = False,
) -> None:
    """Ours stand beside them. Writes a CSV for each figure and table and a page to look at; for 'all' the claims, too.

    Example: hinge reproduce all --out results/
    """
    start = time.perf_counter()
    with console.status("compiling") as report:
        found, claims = reproduce(what, out, QUICK if quick else FULL, report)
    taken = time.perf_counter() - start
    if as_json:
        verdicts = [{"claim": claim.claim, "measured": claim.measured, "holds": claim.holds} for claim in claims]
        console.print_json({"out": str(out), "seconds": taken, "claims": verdicts})
        return
    for claim in claims:
        verdict = Text("holds", "green") if claim.holds else Text("fails", "red")
        console.out.print(verdict.append(f"  {claim.claim}", "default"), soft_wrap=True)
    console.say(f"Found in {taken:.0f} s: {', '.join(experiment.name for experiment in found)}")
    console.say(f"Look at {out / page_name(what)}")


def list_command(
    what: Annotated[str, option("'policies', 'traces', or nothing for both.")] = "", /, *, as_json: options.Json = False
) -> None:
    """Traces are listed with where they come from.

    Example: hinge list traces
    """
    if what not in ("", "policies", "traces"):
        raise UnknownName(f"there is no list of {what!r}{did_you_mean(what, ['policies', 'traces'])}")
    found: dict[str, list[dict[str, Any]]] = {}
    if what != "traces":
        kinds = {name: policy_class(name).__doc__ or "" for name in policy_names()}
        found["policies"] = [{"name": name, "what": about.split("\n")[0]} for name, about in kinds.items()]
    if what != "policies":
        traces = map(load_trace, trace_names())
        found["traces"] = [{"name": each.name, "samples": len(each), "about": dict(each.about)} for each in traces]
    if as_json:
        console.print_json(found)
        return
    if "policies" in found:
        table = console.table("policy", "what it does")
        for policy in found["policies"]:
            table.add_row(policy["name"], policy["what"])
        console.out.print(table)
    for trace in found.get("traces", []):
        console.say(f"{trace['name']}: {console.counted(trace['samples'], 'sample')}", style="bold")
        for key, value in trace["about"].items():
            console.out.print(Padding(f"{key}: {value}", (0, 0, 0, 4)), highlight=False, markup=False)
