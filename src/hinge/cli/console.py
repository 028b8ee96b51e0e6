"""What commands print: tables, progress and warnings for people, JSON for programs, curves for a file.

Text from outside (file names, labels, what a remote says) goes through `hinge.errors.printable`, and is never read as
Rich markup: it can neither move the cursor nor flood the terminal.
"""

import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hinge._files import write_csv
from hinge._html import PICTURES, Panel, check_picture, save
from hinge.errors import InvalidValue, printable
from hinge.policies import policy_class, policy_names
from hinge.simulation import Results, interval
from hinge.simulation.kernel import numba_installed
from hinge.simulation.results import table as figures_table
from hinge.simulation.trade import SPREAD, Trade

INTERRUPTED = 130  # the exit code of a program that was stopped with Ctrl-C
EVERY_S: float | None = 10.0  # between two lines of progress, where there is no terminal for a bar
_MAX_LENGTH = 1000  # characters of a line


class _Console(Console):
    """A console that raises when its reader has left, so that the command ends as others do."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


out = _Console()
err = _Console(stderr=True)


# -- lines ------------------------------------------------------------------------------------------------------------


def say(text: str, style: str | None = None, prose: bool = False) -> None:
    """A line on standard output, not wrapped, as it may have a command to copy; prose is, in a terminal."""
    unbroken = not (prose and out.is_terminal)
    out.print(printable(text, _MAX_LENGTH), style=style, highlight=False, markup=False, soft_wrap=unbroken)


def note(text: str, style: str | None = None) -> None:
    """A line on standard error, not wrapped."""
    err.print(printable(text, _MAX_LENGTH), style=style, highlight=False, markup=False, soft_wrap=True)


def warn(problem: str) -> None:
    """A line on standard error about a problem that does not end the command."""
    note(f"hinge: {problem}")


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "sample"), counted(2, "sample")
    ('1 sample', '2 samples')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


# -- JSON and CSV -----------------------------------------------------------------------------------------------------


def print_json(data: Mapping[str, Any], line: bool = False) -> None:
    """One JSON object, with null for what is not a number; many of them have a line each, flushed."""
    print(json.dumps(_plain(data), indent=None if line else 2, allow_nan=False), flush=line)


def print_either(as_json: bool, figures: Mapping[str, Any], *lines: str) -> None:
    """What was done: for a program, or for people."""
    if as_json:
        print_json(figures)
    else:
        for line in lines:
            say(line)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_out(path: Path | None) -> None:
    """Refuse a file that `write_curves` could not write, before the work."""
    if path is None:
        return
    if path.suffix.lower() not in (".csv", *PICTURES):
        raise InvalidValue("hinge", "out", f"must end in .csv, {', '.join(PICTURES)}, got {path.name!r}")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.stat()  # raises the error of a folder that is not there
    if path.suffix.lower() != ".csv":
        check_picture(path)


def write_curves(path: Path, results: Results, title: str, more: Sequence[Panel] = ()) -> None:
    """The figures of every policy at every checkpoint, as CSV, or drawn below `more`."""
    if path.suffix.lower() != ".csv":
        save(path, title, [*more, *results.panels()])
        return
    fields = ("regret", "realised_regret", "offload_fraction", "accuracy", "cost_per_sample")
    rows: list[list[Any]] = [["policy", "time", *(column for field in fields for column in (field, f"{field}_ci95"))]]
    for name, record in results.items():
        series = [getattr(record, field) for field in fields]
        for position, when in enumerate(record.times.tolist()):
            figures = [number for values in series for number in interval(values[:, position])]
            rows.append([name, when, *("" if math.isnan(number) else number for number in figures)])
    write_csv(path, rows)


# -- tables -----------------------------------------------------------------------------------------------------------


def table(*headings: str, right: bool = False, **look: Any) -> Table:
    """An empty table: the first column to the left and never wrapped, the others to the right if asked for."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), **look)
    for position, heading in enumerate(headings):
        made.add_column(heading, justify="right" if right and position else "left", no_wrap=right or not position)
    return made


def print_rows(
    headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, bold: str | None = None
) -> None:
    """A table in full: no figure is cut, even where the terminal is narrower or the output goes to a file.

    `bold` is the first cell of the row that stands out. Headings that are all empty are not shown.
    """
    filled = table(*headings, right=True, show_header=any(headings))
    for row in rows:
        filled.add_row(*row, style="bold" if row[0] == bold else None)
    if title is not None:
        say(title, style="italic")
    wide = _Console(file=out.file, width=1000)
    wide.width = max(out.width, Measurement.get(wide, wide.options, filled).maximum)
    wide.print(filled, markup=False)


def is_informed(policy: str) -> bool:
    """Whether the policy of that name knows more than a device can.

    >>> is_informed("oracle"), is_informed("probation")
    (True, False)
    """
    return policy in policy_names() and policy_class(policy).is_informed()


def print_figures(title: str, figures: Sequence[Mapping[str, Any]]) -> None:
    """A table with a row for each policy."""
    headings, *rows = figures_table(figures)
    print_rows(headings, ([name + (" *" if is_informed(name) else ""), *cells] for name, *cells in rows), title)


def print_trade(trade: Trade, offload_cost: float | None = None, how: str = "", more: str = "") -> None:
    """What a policy costs and does at every price, and in a sentence what is gained; also at the price at hand.

    `more` joins the explanation of the columns.
    """
    rows, price = list(trade.rows()), None if offload_cost is None else f"{offload_cost:g}"
    title = f"What {trade.policy} gains at each price of an offload, simulated{how}"
    say("")
    print_rows(list(rows[0]), [list(row.values()) for row in rows], title, bold=price)
    means = f", mean of runs and its interval ({SPREAD})" if SPREAD in rows[0] else ""
    saves = "saves: of the cheaper of local and remote alone"
    key = f"by rule: cost per sample{means}; {saves}; agrees: with remote{more and f'; {more}'}"
    say(key, style="dim")
    say(" ".join(trade.sentences(offload_cost)), prose=True)


# -- progress ---------------------------------------------------------------------------------------------------------


@contextmanager
def progress(label: str, lines: bool = True, compiles: bool = True) -> Iterator[Callable[..., None]]:
    """A progress bar on standard error if it is a terminal, else a line now and then, unless a program is reading.

    It is told how much is done, of how much in all, and of what if the work has parts. Until then, and from the end of
    one part to the first report of the next, it says that the run at hand may have to be compiled.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    label = printable(label)
    waits = f"{label}: a first run, which may have to compile" if compiles and numba_installed() else label
    with (
        Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar,
        _now_and_then(waits) if lines else nullcontext() as says,
        interruptible(),
    ):
        task = bar.add_task(waits, total=None)

        def report(done: int, total: int | None, part: str = "") -> None:
            text, figures = f"{label}{part and f', {part}'}", f": {done}{'' if total is None else f' of {total}'}"
            if done == total:  # what comes next may have to compile, too
                text, figures, done = waits, "", 0
            bar.update(task, description=text, completed=done, total=total)
            if says:
                says(text + figures)

        yield report


@contextmanager
def status(label: str) -> Iterator[Callable[[str], None]]:
    """What is being done now, on standard error: all of it if that is a terminal, else a line now and then."""
    with err.status(label) if err.is_terminal else nullcontext() as line, _now_and_then(label) as says, interruptible():
        yield line.update if line else says


@contextmanager
def _now_and_then(text: str) -> Iterator[Callable[[str], None]]:
    """Print a line every few seconds, if standard error is no terminal: the text, or what it was last replaced by."""
    began, ended = time.monotonic(), threading.Event()

    def replace(other: str) -> None:
        nonlocal text
        text = other

    def print_lines() -> None:
        while not ended.wait(EVERY_S):
            note(f"{text} ({time.monotonic() - began:.0f} s)")

    thread = threading.Thread(target=print_lines, name="hinge-progress", daemon=True)
    if not err.is_terminal:
        thread.start()
    try:
        yield replace
    finally:
        ended.set()
        if thread.is_alive():
            thread.join(1.0)  # so that its last line comes before what is said next; not if nobody reads it


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends a command with one line."""
    try:
        yield
    except KeyboardInterrupt:
        note("hinge: interrupted")
        raise SystemExit(INTERRUPTED) from None


def end_interrupted(what: str = "this is what was done.", code: int = INTERRUPTED) -> None:
    """Say that the results are those of a part of the work, and exit."""
    note(f"Interrupted: {what}")
    raise SystemExit(code)
