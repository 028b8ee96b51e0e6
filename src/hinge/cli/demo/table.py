"""The table in the end, and what has to be said about it."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from hinge.cli import show
from hinge.cli.demo.comparison import FLAGSHIP
from hinge.cli.demo.outcome import NAMES, Outcome

HEADINGS = ("", "accuracy", "agrees", "offloads", "", "cost", "regret", "ms")


def cells(row: dict[str, Any]) -> Sequence[str]:
    """A row of the table."""
    return (
        NAMES.get(row["policy"], row["policy"]),
        f"{row['true_accuracy']:.2%}",
        f"{row['accuracy']:.2%}",
        f"{row['offloads']}",
        f"{row['offload_fraction']:.1%}",
        f"{row['cost_per_sample']:.4f}",
        f"{row['regret']:.1f}",
        f"{'≈' if row['latency_estimated'] else ''}{row['latency_ms']:.3f}",
    )


def legend(outcome: Outcome) -> list[str]:
    """What the columns are, and how the live answers compare with the recorded ones."""
    compared, price = outcome.comparison, outcome.offload_cost
    lines = [
        "accuracy: by the true labels; agrees: with the remote's",
        f"cost per sample: {price:g} for an offload, 1 for an accepted answer that disagrees",
        "regret: what decisions other than the oracle's cost in sum",
        f"ms per sample: measured; remote only: {outcome.timing.requests} requests; ≈: by the device's offloads",
    ]
    recorded = f"the live remote's {compared.checked} answers: {compared.differences} not as recorded"
    lines.append(recorded + (f"; {compared.elsewhere} samples in another bin" if compared.elsewhere else ""))
    if outcome.faults:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items()))
        lines.append(f"answered locally, as the remote failed: {kinds}")
    return lines


def print_outcome(outcome: Outcome) -> None:
    """The table of all policies."""
    title = f"{outcome.course.samples:,} images in {outcome.seconds:.1f} s, over HTTP"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for position, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if position else "left", no_wrap=True)
    for row in outcome.rows():
        table.add_row(*cells(row), style="bold" if row["policy"] == FLAGSHIP else None)
    show.print_table(table)
    for line in legend(outcome):
        show.out.print(line, highlight=False, soft_wrap=True, style="dim")
