"""Tables that read well in a terminal and on a page."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from hinge.simulation import interval

ABSENT = "–"
LEFT = ("", "detail")  # columns of words


@dataclass
class Table:
    """A title, rows of text under a header, and what one should know to read them."""

    title: str
    header: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For a terminal: words to the left, numbers to the right."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [self.title, "=" * len(self.title)]
        for row in (self.header, ["-" * width for width in widths], *self.rows):
            cells = zip(self.header, row, widths, strict=True)
            aligned = [cell.ljust(width) if name in LEFT else cell.rjust(width) for name, cell, width in cells]
            lines.append("  ".join(aligned).rstrip())
        return "\n".join([*lines, *self.notes])

    def markdown(self) -> str:
        rule = ["---" if name in LEFT else "---:" for name in self.header]
        rows = ["| " + " | ".join(row) + " |" for row in (self.header, rule, *self.rows)]
        return "\n".join([f"## {self.title}", "", *rows, *(f"\n{note}" for note in self.notes)])


def span(nanoseconds: float) -> str:
    """A time in the unit that suits it.

    >>> span(71.2), span(2_950.0), span(3.2e7), span(float("nan"))
    ('71 ns', '2.95 µs', '32 ms', '–')
    """
    if nanoseconds != nanoseconds:
        return ABSENT
    for size, unit in ((1e6, "ms"), (1e3, "µs")):
        if nanoseconds >= size:
            value = nanoseconds / size
            return f"{value:.2f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{nanoseconds:.0f} ns"


def spread(values: ArrayLike, digits: int = 0) -> str:
    """Mean over runs, half of its 95 % interval, and the 99th percentile of the runs.

    >>> spread([10.0, 11.0, 12.0]), spread([0.5, 0.25, 0.75], 2)
    ('11 ± 2 (p99 12)', '0.50 ± 0.62 (p99 0.74)')
    """
    runs = np.asarray(values, np.float64)
    mean, half = interval(runs)
    return f"{mean:.{digits}f} ± {half:.{digits}f} (p99 {np.percentile(runs, 99):.{digits}f})"


SPREAD = "± half of the 95 % interval of the mean, and the 99th percentile of the runs"


def ratio(value: float) -> str:
    """A factor.

    >>> ratio(1.296), ratio(41.3), ratio(float("nan"))
    ('1.30x', '41x', '–')
    """
    if value != value:
        return ABSENT
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"
