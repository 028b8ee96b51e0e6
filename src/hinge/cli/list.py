"""The command `list`."""

from typing import Annotated, Any

import typer
from rich.padding import Padding

from hinge._checks import did_you_mean
from hinge.cli import console, options
from hinge.errors import UnknownName
from hinge.policies import policy_class, policy_names
from hinge.traces import load_trace, trace_names


def command(
    what: Annotated[str, typer.Argument(help="'policies', 'traces', or nothing for both.")] = "",
    json: options.Json = False,
) -> None:
    """Traces are listed with where they come from.

    Example: hinge list traces
    """
    kinds = {"policies": _policies, "traces": _traces}
    if what and what not in kinds:
        raise UnknownName(f"there is no list of {what!r}{did_you_mean(what, kinds)}")
    found = {kind: kinds[kind]() for kind in ([what] if what else kinds)}
    if json:
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


def _policies() -> list[dict[str, Any]]:
    return [{"name": name, "what": (policy_class(name).__doc__ or "").split("\n")[0]} for name in policy_names()]


def _traces() -> list[dict[str, Any]]:
    traces = [load_trace(name) for name in trace_names()]
    return [{"name": trace.name, "samples": len(trace), "about": dict(trace.about)} for trace in traces]
