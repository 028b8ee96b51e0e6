"""What an experiment finds: numbers for a file, and curves for a plot."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Curve:
    """A line through points, with an interval around it where there is one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    half_width: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """One plot: curves over a common axis."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Result:
    """The panels of a figure, or the rows of a table."""

    panels: Sequence[Panel] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """All numbers, as CSV: a row for each point of each curve, or the table itself."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if self.columns:
                writer.writerow(self.columns)
                writer.writerows(self.rows)
                return
            writer.writerow(["panel", "curve", "x", "y", "half_width_95"])
            for panel in self.panels:
                for curve in panel.curves:
                    widths = curve.half_width if curve.half_width is not None else [""] * len(curve.x)
                    for point in zip(curve.x, curve.y, widths, strict=True):
                        writer.writerow([panel.title, curve.name, *point])
