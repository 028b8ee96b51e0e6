"""The policies side by side, as they are shown below the device while it works."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from hinge.cli.demo.comparison import FLAGSHIP, SHADOWS, Comparison


class SideBySide:
    """A line for each policy."""

    lines = 3 + len(SHADOWS)  # with one above, and the heading

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("side by side", no_wrap=True)
        for heading in ("offloaded", "cost per sample", "regret", "accuracy"):
            table.add_column(heading, justify="right", no_wrap=True)
        for name in (FLAGSHIP, *SHADOWS):
            figures = self._comparison.ledgers[name].figures()
            share, accuracy = f"{figures['offload_fraction']:.1%}", f"{figures['true_accuracy']:.1%}"
            cost, regret = f"{figures['cost_per_sample']:.4f}", f"{figures['regret']:.1f}"
            shown = f"{name}, live" if name == FLAGSHIP else f"{name}, in shadow"
            table.add_row(shown, share, cost, regret, accuracy, style="green" if name == FLAGSHIP else None)
        return Padding(table, (1, 0, 0, 0))
