"""What a person sees: tables, progress, and the figures in a file."""

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hinge.policies import Policy, policy_class, policy_names
from hinge.simulation import Record, interval
from hinge.simulation.engine import Progress as Report
from hinge.simulation.kernel import numba_installed
from hinge.theory import Dip

INFORMED = ("adahedge-g", "hedge-g", "hil-f", "logistic", "offline", "oracle")
INTERRUPTED = 130  # the exit code of a program that was stopped with Ctrl-C

class _Console(Console):
    """A console whose reader may leave: that ends the command as it ends others, and not as if it had failed."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


out = _Console()
err = _Console(stderr=True)

COLUMNS: tuple[tuple[str, str, str, str | None], ...] = (  # heading, key in JSON, format, key of what follows ±
    ("offloaded", "offload_fraction", "{:.3f}", None),
    ("agrees", "accuracy", "{:.2%}", None),
    ("cost", "cost_per_sample", "{:.4f}", None),
    ("regret", "regret", "{:.1f}", "regret_ci95"),
    ("true acc.", "true_accuracy", "{:.2%}", None),
    ("shuffled cost", "shuffled_cost_per_sample", "{:.4f}", "shuffled_spread"),
)


def print_json(data: Mapping[str, Any]) -> None:
    """One JSON object, with null for what is not a number."""
    print(json.dumps(_plain(data), indent=2, allow_nan=False))


def print_line(data: Mapping[str, Any]) -> None:
    """One JSON object in a line of its own, at once: who reads it may be waiting."""
    sys.stdout.write(json.dumps(_plain(data), allow_nan=False) + "\n")
    sys.stdout.flush()


def warn(problem: str) -> None:
    """A line on standard error, about what the command can live with."""
    err.print(f"hinge: {problem}", highlight=False, markup=False, soft_wrap=True)


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "sample"), counted(2, "sample")
    ('1 sample', '2 samples')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def print_figures(title: str, figures: Sequence[Mapping[str, Any]]) -> None:
    """A table with a row for each policy, and the columns that any of them has."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    columns = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in figures)]
    for heading, *_ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in figures:
        name = row["policy"] + (" *" if row["policy"] in INFORMED else "")
        table.add_row(name, *(_cell(row, *column[1:]) for column in columns))
    print_table(table)


def print_legend(figures: Sequence[Mapping[str, Any]]) -> None:
    """What the marks in a table mean."""
    if any(row["policy"] in INFORMED for row in figures):
        out.print("* knows more than a device can: fitted on this very log, told about every sample, or the truth")
    if any(row.get("regret_ci95") is not None for row in figures):
        out.print("regret ± half of its 95 % interval")
    if any(row.get("shuffled_spread") is not None for row in figures):
        out.print("shuffled cost ± standard deviation over orders")


def print_dips(dips: Sequence[Dip], policies: Mapping[str, Policy], bins: int) -> None:
    """A warning, on standard error, about the dip that would cost most and the policies that it may mislead."""
    if not dips:
        return
    worst, *others = sorted(dips, key=lambda dip: -dip.price * dip.rows)
    here, below = _span(worst.bin, worst.last_bin, bins), _span(worst.below_bin, worst.below_last_bin, bins)
    shares = f"{100 * worst.agreement:.1f} % of {worst.rows} rows agree there"
    lines = [f"Warning: agreement falls with confidence, most clearly in {here}: {shares},"]
    lines[0] += f" but {100 * worst.below_agreement:.1f} % of {worst.below_rows} in {below}."
    if others:
        spans = [_span(dip.bin, dip.last_bin, bins) for dip in others]
        lines[0] += f" It falls in {_listed(spans if len(spans) <= 5 else [*spans[:4], 'others'])} too."
    misled = sorted(name for name, policy in policies.items() if policy.assumes_monotone)
    if misled:
        who = _listed(misled) if len(misled) <= 4 else f"{len(misled)} of these policies"
        lines.append(f"{who} assume{'s' * (len(misled) == 1)} that it never falls, and may accept such samples")
        lines[-1] += f" wrongly, at {worst.price:.2g} each: compare the costs above."
    kinds = {name: policy_class(name) for name in policy_names()}
    single = [name for name, kind in kinds.items() if kind.weighs_cost and not kind.assumes_monotone]
    err.print(*lines, f"{_listed(single)} judge each bin by itself.", sep="\n", style="yellow", soft_wrap=True)


def _span(first: int, last: int, bins: int) -> str:
    confidences = f"(confidence {first / bins:.3g} to {(last + 1) / bins:.3g})"
    return f"bin {first} {confidences}" if first == last else f"bins {first} to {last} {confidences}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def print_table(table: Table) -> None:
    """A table in full: no figure is cut, even where the terminal is narrower or the output goes to a file."""
    wide = _Console(file=out.file, width=1000)
    wide.width = max(out.width, Measurement.get(wide, wide.options, table).maximum)
    wide.print(table)


def _cell(row: Mapping[str, Any], key: str, form: str, spread: str | None) -> str:
    if row.get(key) is None:
        return ""
    around = row.get(spread) if spread else None
    return form.format(row[key]) + ("" if around is None else f" ± {form.format(around)}")


@contextmanager
def progress(label: str) -> Iterator[Report]:
    """A progress bar on standard error, where somebody can see it; until the first run is done it says why."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(f"{label}: compiling, the first time" if numba_installed() else label, total=None)
        with interruptible():
            yield lambda done, total: bar.update(task, description=label, completed=done, total=total)


@contextmanager
def status(label: str) -> Iterator[Callable[[str], None]]:
    """What is being done now, on standard error, where somebody can see it."""
    with err.status(label) if err.is_terminal else nullcontext() as line, interruptible():
        yield lambda text: line.update(text) if line else None


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends a command with one line."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("hinge: interrupted")
        raise typer.Exit(INTERRUPTED) from None


def write_curves(path: Path, records: Mapping[str, Record]) -> None:
    """The figures of every policy at every checkpoint, as CSV."""
    fields = ("regret", "realised_regret", "offload_fraction", "accuracy", "cost_per_sample")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["policy", "time", *(column for field in fields for column in (field, f"{field}_ci95"))])
        for name, record in records.items():
            series = [getattr(record, field) for field in fields]
            for position, time in enumerate(record.times.tolist()):
                figures = [number for values in series for number in interval(values[:, position])]
                writer.writerow([name, time, *("" if math.isnan(number) else number for number in figures)])


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
