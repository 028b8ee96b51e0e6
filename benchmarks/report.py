"""Tables that read well in a terminal and on a page."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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


def ratio(value: float) -> str:
    """A factor.

    >>> ratio(1.296), ratio(41.3), ratio(float("nan"))
    ('1.30x', '41x', '–')
    """
    if value != value:
        return ABSENT
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"
