"""The command `reproduce`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from hinge.cli import options, show
from hinge.experiments.lab import FULL, QUICK
from hinge.experiments.reproduce import reproduce


def reproduce_command(
    what: Annotated[str, typer.Argument(help="'all', or an experiment by name, such as figure-4a.")] = "all",
    out: Annotated[Path, typer.Option(help="The folder for the report and the figures' numbers.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and coarser grids.")] = False,
    json: options.Json = False,
) -> None:
    """Reproduce every figure, table and claim of the paper, and ours beside them.

    Writes report.html, claims.csv, and a CSV for each figure and table.

    Example: hinge reproduce all --out results/
    """
    start = time.perf_counter()
    with show.status("compiling") as report:
        found, claims = reproduce(what, out, QUICK if quick else FULL, report)
    taken = time.perf_counter() - start
    if json:
        verdicts = [{"claim": claim.claim, "measured": claim.measured, "holds": claim.holds} for claim in claims]
        show.print_json({"out": str(out), "seconds": taken, "claims": verdicts})
        return
    for claim in claims:
        show.out.print(f"[{'green' if claim.holds else 'red'}]{'holds' if claim.holds else 'fails'}[/]  {claim.claim}")
    show.out.print(f"{len(found)} experiments in {taken:.0f} s; the report is {out / 'report.html'}")
