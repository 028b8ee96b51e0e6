"""The options that most commands share: one name, one meaning, one place."""

from pathlib import Path
from typing import Annotated

import typer

from hinge.policies import policy_names
from hinge.simulation.sources import BimodalCosts, FixedCosts, OffloadCosts
from hinge.traces import Trace, load_trace, read_trace, trace_names


def complete_policies(incomplete: str) -> list[str]:
    """What the shell offers for the last of several policies."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ["all", *policy_names()]]


Policy = Annotated[
    str, typer.Option(help="The policy, by name; see 'hinge list policies'.", autocompletion=policy_names)
]
Policies = Annotated[
    str, typer.Option(help="Policies by name, separated by commas, or 'all'.", autocompletion=complete_policies)
]
TraceName = Annotated[
    str,
    typer.Option("--trace", help="A trace by name (see 'hinge list traces'), or a file.", autocompletion=trace_names),
]
OffloadCost = Annotated[
    str | None,
    typer.Option(
        help="What an offload costs, from 0 to 1, known to the policies; or 'learned': as the trace recorded, or else "
        "0.45 or 0.55 by chance, and the policies have to find out. Without it: learned where the trace has costs, "
        "else 0.5."
    ),
]
Alpha = Annotated[float, typer.Option(help="The exploration parameter of the paper's policies.")]
Bins = Annotated[int, typer.Option(help="How many bins confidences are sorted into.")]
Horizon = Annotated[int, typer.Option(help="Samples in each run.")]
Runs = Annotated[int, typer.Option(help="Runs to average over.")]
Seed = Annotated[int, typer.Option(help="The seed: the same seed gives the same figures.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Config = Annotated[
    Path | None, typer.Option(help="A file of settings, as by 'hinge new'; what the command line says goes before it.")
]
Out = Annotated[Path | None, typer.Option(help="Also write the figures at every checkpoint to this CSV file.")]


def find_trace(name: str) -> Trace:
    """A trace by its name in the catalog, or from a file: whatever has a suffix or a folder is a file."""
    path = Path(name)
    if path.suffix or len(path.parts) > 1:
        return read_trace(path)
    return load_trace(name)


def known_cost(text: str | None, trace: Trace) -> float | None:
    """The number in `--offload-cost`, or None for costs that have to be learned."""
    if text == "learned" or (text is None and trace.cost is not None):
        return None
    return 0.5 if text is None else cost_number(text)


def cost_number(text: str) -> float:
    """The number in `--offload-cost`."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"--offload-cost must be a number from 0 to 1, or 'learned', got {text!r}") from None
    if not 0 <= number <= 1:  # nor NaN
        raise ValueError(f"--offload-cost must be from 0 to 1, got {text}")
    return number


def costs_for(trace: Trace, offload_cost: float | None) -> OffloadCosts | None:
    """What offloads cost: the given number; or, to be learned, what the trace recorded or the paper's 0.45 and 0.55."""
    if offload_cost is not None:
        return FixedCosts(offload_cost)
    return BimodalCosts() if trace.cost is None else None
