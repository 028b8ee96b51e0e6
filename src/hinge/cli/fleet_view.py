"""What `hinge fleet` shows: in a terminal the fleet's figures and as many devices as there is room for, on this
machine's own address a page and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

import hinge
from hinge.cli import console
from hinge.device.metrics import LoopbackServer, families
from hinge.errors import printable
from hinge.fleet.hub import VERDICTS, FleetView, Hub, SeenDevice

_AROUND = 11  # lines that are no devices
_LEVELS = " ▁▂▃▄▅▆▇█"
_STYLES = {"kin": "green", "unlike": "red", "other gate": "yellow"}


class FleetTable:
    """A fleet as its hub sees it, drawn a few times a second; who is not believed comes first."""

    def __init__(self, hub: Hub, url: str) -> None:
        self._hub, self._url = hub, url

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        view = self._hub.view
        problem = view.problem or (None if view.online else "not connected")
        state = ("connected", "green") if problem is None else (printable(problem), "red")
        title = f"fleet {view.fleet}" if view.region is None else f"region {view.region}, fleet {view.fleet}"
        heading = Text.assemble((title, "bold"), "  ", state, no_wrap=True, overflow="ellipsis")
        ranked = sorted(view.devices, key=lambda each: (list(VERDICTS).index(each.verdict) - 1) % len(VERDICTS))
        room = max(3, terminal.size.height - _AROUND)
        more = f"and {len(ranked) - room} more; " if len(ranked) > room else ""
        rest = Text(f"{more}the page is at {self._url}/", "dim")
        yield Group(heading, _totals(view), _table(ranked[:room]), rest, Text(" "))


def _totals(view: FleetView) -> Text:
    totals, dropped = view.totals, sum(view.dropped.values())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in totals.verdicts.items() if count)
    share = f" ({totals.offloads / totals.samples:.1%})" if totals.samples else ""
    online = f"{totals.online} online" if view.online else "who is online is not known"
    reasons = ", ".join(f"{reason} {count}" for reason, count in view.dropped.items() if count)
    words = [
        f"{totals.devices} devices, {online}: {counts or 'nobody'}",
        f"{totals.samples} samples, {totals.offloads} offloaded{share}",
        f"{view.received} messages, {dropped} dropped{f' ({reasons})' if reasons else ''}",
    ]
    return Text("\n".join(words))


def _table(devices: Sequence[SeenDevice]) -> Table:
    table = console.table(expand=True)
    table.add_column("device", no_wrap=True, overflow="ellipsis", max_width=24)
    for heading in ("samples", "offloads", "agreed", "price"):
        table.add_column(heading, no_wrap=True, justify="right")
    table.add_column("agreement by bin", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for each in devices:
        agreed = "–" if each.agreement is None else f"{each.agreement:.1%}"
        price = "–" if each.price is None else f"{each.price:.3g}"
        style = "default" if each.online else "dim"
        told = Text(each.verdict, _STYLES.get(each.verdict, "dim"))
        if each.why is not None:
            told.append(f": {each.why}", "default")
        name = Text(each.device, style)
        table.add_row(name, str(each.samples), str(each.offloads), agreed, price, _levels(each), told)
    return table


def _levels(each: SeenDevice) -> str:
    """A letter for each bin, as high as local agreed; a blank for one that was never offloaded."""
    if each.evidence is None:
        return ""
    pairs = zip(each.evidence.offloads, each.evidence.agreements, strict=True)
    letters = [" " if not seen else _LEVELS[1 + min(7, int(8 * agreed / seen))] for seen, agreed in pairs]
    return "".join(letters[:: -(-len(letters) // 32)])


# -- the page and the metrics -----------------------------------------------------------------------------------------


def _by_device(view: FleetView, name: str) -> dict[str, Any]:
    return {each.device: value for each in view.devices if (value := getattr(each, name)) is not None}


_FIGURES: dict[str, tuple[str, Callable[[FleetView], Any]]] = {
    "hinge_hub_online": ("1 while there is a connection to the broker", lambda view: view.online),
    "hinge_hub_devices{verdict}": ("devices, by what the hub makes of them", lambda view: view.totals.verdicts),
    "hinge_hub_devices_online": ("devices that say that they are there", lambda view: view.totals.online),
    "hinge_hub_samples": ("samples that all of them have decided on", lambda view: view.totals.samples),
    "hinge_hub_offloads": ("samples that all of them have offloaded", lambda view: view.totals.offloads),
    "hinge_hub_received_total": ("messages that brought evidence", lambda view: view.received),
    "hinge_hub_published_total": ("messages of its own that the broker has acknowledged", lambda view: view.published),
    "hinge_hub_dropped_total{reason}": ("messages that were not counted", lambda view: view.dropped),
    "hinge_hub_failures_total{kind}": ("how often there was no connection to the broker", lambda view: view.failures),
    "hinge_hub_device_online{device}": (
        "1 while a device says that it is there",
        lambda view: _by_device(view, "online"),
    ),
    "hinge_hub_device_samples{device}": (
        "samples that a device has decided on",
        lambda view: _by_device(view, "samples"),
    ),
    "hinge_hub_device_offloads{device}": ("samples that it has offloaded", lambda view: _by_device(view, "offloads")),
    "hinge_hub_device_agreement{device}": (
        "the share of its evidence in which local agreed with remote",
        lambda view: _by_device(view, "agreement"),
    ),
    "hinge_hub_device_believed{device}": (
        "1 while its evidence is like that of the largest group",
        lambda view: {each.device: each.verdict == "kin" for each in view.devices},
    ),
}
METRICS = {name: about for name, (about, _) in _FIGURES.items()}
_PACKAGE = Path(hinge.__file__).parent
_SHARED = _PACKAGE / "server" / "page"  # the live page of `hinge serve`, whose looks this page has
_FILES = {
    "/": ("text/html; charset=utf-8", _PACKAGE / "fleet" / "page" / "fleet.html"),
    "/fleet.js": ("text/javascript", _PACKAGE / "fleet" / "page" / "fleet.js"),
    "/elements.js": ("text/javascript", _SHARED / "elements.js"),
    "/numbers.js": ("text/javascript", _SHARED / "numbers.js"),
    "/style.css": ("text/css", _SHARED / "style.css"),
}


class HubServer(LoopbackServer, Collector):
    """Serves the page of a hub, what it shows as JSON, and the metrics."""

    def __init__(self, hub: Hub, port: int) -> None:
        self._hub = hub
        super().__init__(port, self)

    def document(self, path: str) -> tuple[str, bytes] | None:
        if path == "/fleet.json":
            return "application/json", msgspec.json.encode(self._hub.view)
        if path in _FILES:
            return _FILES[path][0], _FILES[path][1].read_bytes()
        return super().document(path) if path == "/metrics" else None

    def collect(self) -> Iterator[Metric]:
        view = self._hub.view
        return families(METRICS, {name: find(view) for name, (_, find) in _FIGURES.items()})
