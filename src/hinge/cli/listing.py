"""The command `list`."""

from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from hinge.cli import options, show
from hinge.errors import UnknownName
from hinge.names import did_you_mean
from hinge.policies import policy_class, policy_names
from hinge.traces import load_trace, trace_names


def list_command(
    what: Annotated[str, typer.Argument(help="'policies', 'traces', or nothing for both.")] = "",
    json: options.Json = False,
) -> None:
    """List the policies and the traces that there are.

    Example: hinge list traces
    """
    kinds = {"policies": _policies, "traces": _traces}
    if what and what not in kinds:
        raise UnknownName(f"there is no list of {what!r}{did_you_mean(what, kinds)}")
    chosen = [what] if what else list(kinds)
    if json:
        show.print_json({kind: kinds[kind]() for kind in chosen})
        return
    for kind in chosen:
        rows = kinds[kind]()
        table = Table(title=kind, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for heading in rows[0]:
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        show.out.print(table)  # folds long texts to fit


def _policies() -> list[dict[str, Any]]:
    return [{"name": name, "what": (policy_class(name).__doc__ or "").split("\n")[0]} for name in policy_names()]


def _traces() -> list[dict[str, Any]]:
    rows = []
    for name in trace_names():
        trace = load_trace(name)
        about = "; ".join(f"{key}: {value}" for key, value in trace.about.items())
        rows.append({"name": name, "samples": len(trace), "agreement": round(trace.agreement, 4), "about": about})
    return rows
