"""Tables for a page, the forms of their figures, and the best figures of the baseline."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hinge.simulation import interval

ABSENT = "–"
BEFORE = "best before (baseline.json)"
GOALS = ("", "goal", "measured", "", "detail")  # the header of a table that `goal` adds to
LEFT = ("", "detail")  # columns of words
SPREAD = "± half of the 95 % interval of the mean, and the 99th percentile of the runs"


@dataclass
class Table:
    """A title, rows of text under a header, and what one should know to read them."""

    title: str
    header: Sequence[str] = GOALS
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def goal(self, what: str, goal: str, measured: str, met: bool | None, detail: str = "") -> None:
        """Add a row that holds a figure against its goal; `met` is None where there is none."""
        verdict = ABSENT if met is None else "ok" if met else "MISSED"
        self.rows.append([what, goal, measured, verdict, detail])

    def __str__(self) -> str:
        """Return the table in Markdown, with its title and notes."""
        rule = ["---" if name in LEFT else "---:" for name in self.header]
        rows = ["| " + " | ".join(row) + " |" for row in (self.header, rule, *self.rows)]
        return "\n".join([f"## {self.title}", "", *rows, *(f"\n{note}" for note in self.notes), ""])


def span(nanoseconds: float) -> str:
    """Return a time in the unit that suits it: '71 ns', '2.95 µs', '32 ms'."""
    if nanoseconds != nanoseconds:
        return ABSENT
    for size, unit in ((1e6, "ms"), (1e3, "µs")):
        if nanoseconds >= size:
            value = nanoseconds / size
            return f"{value:.2f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{nanoseconds:.0f} ns"


def spread(values: ArrayLike, digits: int = 0) -> str:
    """Return the mean over runs, half of its 95 % interval, and the 99th percentile of the runs: '11 ± 2 (p99 12)'."""
    runs = np.asarray(values, np.float64)
    mean, half = interval(runs)
    return f"{mean:.{digits}f} ± {half:.{digits}f} (p99 {np.percentile(runs, 99):.{digits}f})"


def ratio(value: float) -> str:
    """Return a factor: '1.30x', '41x'."""
    if value != value:
        return ABSENT
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


@cache
def _baseline() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((Path(__file__).parent / "baseline.json").read_text("utf-8"))["regret"]
    return rows


def best_before(page: str, table: str, row: str) -> float:
    """Return the best mean of a row in baseline.json, in the first table whose name begins so; NaN if it has none."""
    for each in _baseline():
        if each["page"] == page and each["row"] == row and each["table"].lower().startswith(table.lower()):
            best = each["best"]
            return float(best["cost"]["mean"] if "cost" in best else best["mean"])
    return float("nan")


def against(ours: float, before: float, digits: int = 0) -> str:
    """Return the best figure before, and ours as a multiple of it."""
    if before != before:
        return ABSENT
    return f"{before:.{digits}f}" + (f" ({ours / before:.2f}x)" if before > 0.0 else "")


def geometric(ratios: Iterable[float]) -> float:
    """Return the geometric mean of those that are numbers."""
    known = [value for value in ratios if value == value]
    return float(np.exp(np.mean(np.log(known)))) if known else float("nan")
