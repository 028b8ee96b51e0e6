"""The command `reproduce`."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from hinge.cli import console, options
from hinge.paper.figures import EXPERIMENTS, FULL, QUICK
from hinge.paper.reproduce import page_name, reproduce

NAMES = ", ".join(experiment.name for experiment in EXPERIMENTS)


def command(
    what: Annotated[str, typer.Argument(help=f"'all', or one of {NAMES}.")] = "all",
    out: Annotated[Path, typer.Option(help="The folder for the report and the figures' numbers.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and coarser grids.")] = False,
    json: options.Json = False,
) -> None:
    """Ours stand beside them. Writes a CSV for each figure and table and a page to look at; for 'all' the claims, too.

    Example: hinge reproduce all --out results/
    """
    start = time.perf_counter()
    with console.status("compiling") as report:
        found, claims = reproduce(what, out, QUICK if quick else FULL, report)
    taken = time.perf_counter() - start
    if json:
        verdicts = [{"claim": claim.claim, "measured": claim.measured, "holds": claim.holds} for claim in claims]
        console.print_json({"out": str(out), "seconds": taken, "claims": verdicts})
        return
    for claim in claims:
        verdict = Text("holds", "green") if claim.holds else Text("fails", "red")
        console.out.print(verdict.append(f"  {claim.claim}", "default"), soft_wrap=True)
    console.say(f"Found in {taken:.0f} s: {', '.join(experiment.name for experiment in found)}")
    console.say(f"Look at {out / page_name(what)}")
