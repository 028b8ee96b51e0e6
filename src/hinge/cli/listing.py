"""The command `list`."""

from typing import Annotated, Any

import typer
from rich import box
from rich.padding import Padding
from rich.table import Table

from hinge._checks import did_you_mean
from hinge.cli import options, show
from hinge.errors import UnknownName
from hinge.policies import policy_class, policy_names
from hinge.traces import load_trace, trace_names


def list_command(
    what: Annotated[str, typer.Argument(help="'policies', 'traces', or nothing for both.")] = "",
    json: options.Json = False,
) -> None:
    """List the policies, and the traces with where they come from.

    Example: hinge list traces
    """
    kinds = {"policies": _policies, "traces": _traces}
    if what and what not in kinds:
        raise UnknownName(f"there is no list of {what!r}{did_you_mean(what, kinds)}")
    found = {kind: kinds[kind]() for kind in ([what] if what else kinds)}
    if json:
        show.print_json(found)
        return
    if "policies" in found:
        _print_policies(found["policies"])
    for trace in found.get("traces", []):
        _print_trace(trace)


def _policies() -> list[dict[str, Any]]:
    return [{"name": name, "what": (policy_class(name).__doc__ or "").split("\n")[0]} for name in policy_names()]


def _traces() -> list[dict[str, Any]]:
    traces = [load_trace(name) for name in trace_names()]
    return [{"name": trace.name, "samples": len(trace), "about": dict(trace.about)} for trace in traces]


def _print_policies(policies: list[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    table.add_column("what it does")
    for policy in policies:
        table.add_row(policy["name"], policy["what"])
    show.out.print(table)


def _print_trace(trace: dict[str, Any]) -> None:
    show.out.print(f"[bold]{trace['name']}[/]: {show.counted(trace['samples'], 'sample')}", highlight=False)
    for key, value in trace["about"].items():
        show.out.print(Padding(f"{key}: {value}", (0, 0, 0, 4)), highlight=False)
