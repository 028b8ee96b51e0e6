"""What `hinge fleet` shows in a terminal: the fleet's figures, and as many devices as there is room for."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from hinge.errors import printable
from hinge.fleet.hub import VERDICTS, Hub, Seen, View

_AROUND = 11  # lines that are no devices
_LEVELS = " ▁▂▃▄▅▆▇█"
_STYLES = {"kin": "green", "unlike": "red", "other gate": "yellow"}


class FleetTable:
    """A fleet as its hub sees it, drawn a few times a second; who is not believed comes first."""

    def __init__(self, hub: Hub, url: str) -> None:
        self._hub, self._url = hub, url

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view = self._hub.view
        ranked = sorted(view.devices, key=lambda each: (list(VERDICTS).index(each.verdict) - 1) % len(VERDICTS))
        room = max(3, console.size.height - _AROUND)
        rest = _rest(len(ranked) - room, self._url)
        yield Group(_heading(view), _totals(view), _table(ranked[:room]), rest, Text(" "))


def _heading(view: View) -> Text:
    state = Text("connected", "green") if view.online else Text("not connected", "red")
    if view.problem is not None:
        state = Text(printable(view.problem), "red")
    title = f"fleet {view.fleet}" if view.region is None else f"region {view.region}, fleet {view.fleet}"
    return Text.assemble((title, "bold"), "  ", state, no_wrap=True, overflow="ellipsis")


def _totals(view: View) -> Text:
    totals, dropped = view.totals, sum(view.dropped.values())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in totals.verdicts.items() if count)
    share = f" ({totals.offloads / totals.samples:.1%})" if totals.samples else ""
    words = [
        f"{totals.devices} devices, {totals.online} online: {counts or 'nobody'}",
        f"{totals.samples} samples, {totals.offloads} offloaded{share}",
        f"{view.received} messages, {dropped} dropped{_reasons(view)}",
    ]
    return Text("\n".join(words))


def _reasons(view: View) -> str:
    found = ", ".join(f"{reason} {count}" for reason, count in view.dropped.items() if count)
    return f" ({found})" if found else ""


def _table(devices: Sequence[Seen]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    table.add_column("device", no_wrap=True, overflow="ellipsis", max_width=24)
    for heading in ("samples", "offloads", "agreed", "price"):
        table.add_column(heading, no_wrap=True, justify="right")
    table.add_column("agreement by bin", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for each in devices:
        agreed, price = (
            "–" if value is None else form.format(value)
            for value, form in ((each.agreement, "{:.1%}"), (each.price, "{:.3g}"))
        )
        style = "default" if each.online else "dim"
        told = Text(each.verdict, _STYLES.get(each.verdict, "dim"))
        if each.why is not None:
            told.append(f": {each.why}", "default")
        name = Text(each.device, style)
        table.add_row(name, str(each.samples), str(each.offloads), agreed, price, _levels(each), told)
    return table


def _levels(each: Seen) -> str:
    """A letter for each bin, as high as local agreed; a blank for one that was never offloaded."""
    if each.evidence is None:
        return ""
    pairs = zip(each.evidence.offloads, each.evidence.agreements, strict=True)
    letters = [" " if not seen else _LEVELS[1 + min(7, int(8 * agreed / seen))] for seen, agreed in pairs]
    return "".join(letters[:: -(-len(letters) // 32)])


def _rest(number: int, url: str) -> Text:
    more = f"and {number} more; " if number > 0 else ""
    return Text(f"{more}the page is at {url}/", "dim")
