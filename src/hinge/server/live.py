"""What the live page shows: the devices that report to this server, and the events that tell open pages of them.

A page that reads slowly misses what is overtaken meanwhile; one that does not read is dropped.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from math import isnan, nan
from typing import Any, NamedTuple, TypeAlias

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hinge import __version__
from hinge.device.metrics import families
from hinge.device.report import Report
from hinge.errors import InvalidMessage
from hinge.oip.messages import decoded
from hinge.server.connections import Refusal, is_loopback, overloaded

MAX_REPORT_BYTES = 2**20
MOST_DEVICES = 64
MOST_OF_ADDRESS = 32  # devices that one address may report, unless it is this machine's own
FORGET_S = 60.0  # silence after which a device makes room for another, and its name is free
POINTS = 600  # of a device's history
MOST_PAGES = 32  # that are open
BEAT_S = 1.0  # between two events about the server, by which both sides notice that the other is gone

_DECODER = msgspec.json.Decoder(Report)

# What the page draws over time: these figures, then for each policy that is compared its offload fraction, cost per
# sample and regret. What is not known is NaN.
_DRAWN = ("samples", "offloads", "offload_cost", "cost_per_sample", "regret")
OWN = len(_DRAWN)
Point: TypeAlias = "array[float]"  # as a history of many devices is to be small


class ReportFigures(NamedTuple):
    """What is kept of a report: the numbers that go into the metrics and the history, and the event that shows it."""

    samples: int
    gauges: dict[str, float | None]  # by their names in `_GAUGES`
    fell_back: dict[str, int]
    alarms: dict[str, int]
    compared: tuple[str, ...]  # the policies beside the device's own
    point: Point
    event: bytes


def read_report(name: str, body: bytes) -> ReportFigures:
    """The figures of a report of the device of that name; anything else raises `InvalidMessage`."""
    report = decoded(body, _DECODER, MAX_REPORT_BYTES)
    if report.device != name:
        raise InvalidMessage("report: device must be the one that reports")
    return figures_of(report)


def figures_of(report: Report) -> ReportFigures:
    """What is kept of a report."""
    status = report.status
    gauges = {
        "samples": status.samples,
        "offloads": status.answered_by_remote + sum(status.fell_back.values()),
        "answered_by_remote": status.answered_by_remote,
        "agreed": status.agreed,
        "offload_cost": status.offload_cost,
        "cost_per_sample": report.cost_per_sample,
        "regret": report.regret,
        "breaker_open": status.breaker != "closed",
        "not_durable": status.not_durable is not None,
        "licensed_bins": sum(each.licensed for each in report.bins),
    }
    numbers = [gauges[each] for each in _DRAWN]
    for row in report.compare:
        numbers += [row.offload_fraction, row.cost_per_sample, row.regret]
    point = array("d", [nan if number is None else number for number in numbers])
    shown = event("report", b'{"report":%s,"point":%s}' % (msgspec.json.encode(report), write_point(point)))
    compared = tuple(row.policy for row in report.compare)
    return ReportFigures(status.samples, gauges, status.fell_back, status.alarms, compared, point, shown)


def write_point(point: Point) -> bytes:
    """A point as JSON; nine digits are more than a chart can show.

    >>> write_point(array("d", [3.0, nan, 1 / 3]))
    b'[3,null,0.333333333]'
    """
    return b"[%s]" % ",".join(map(_number, point)).encode("ascii")


def _number(number: float) -> str:
    if isnan(number):
        return "null"
    return str(int(number)) if number.is_integer() else f"{number:.9g}"


def event(kind: str, data: bytes) -> bytes:
    """A server-sent event; the data is one line.

    >>> event("server", b'{"models":[]}')
    b'event: server\\ndata: {"models":[]}\\n\\n'
    """
    return b"event: %s\ndata: %s\n\n" % (kind.encode("ascii"), data)


# -- devices -----------------------------------------------------------------------------------------------------------


class ReportingDevice:
    """One device's last report and its history."""

    def __init__(self, name: str, figures: ReportFigures, address: str, now: float) -> None:
        self._name = name
        self.figures, self.address, self.heard = figures, address, now
        self.points: list[Point] = [figures.point]
        self._history: bytes | None = None  # the event, once a page needed it

    def update(self, figures: ReportFigures, address: str, now: float) -> None:
        before, self.figures, self.address, self.heard = self.figures, figures, address, now
        self._history = None
        if figures.samples < before.samples:
            self.points.clear()  # it began anew
        if figures.samples == before.samples and self.points:
            self.points.pop()  # nothing happened since
        if figures.compared != before.compared:
            self.points[:] = [point[:OWN] for point in self.points]  # the other figures were of other policies
        self.points.append(figures.point)
        if len(self.points) > POINTS:
            del self.points[1:-1:2]  # what is long ago has larger steps

    def report(self) -> bytes:
        return self.figures.event

    def history(self) -> bytes:
        """The event with the history: the same bytes for all pages, until it changes."""
        if self._history is None:
            known = msgspec.json.encode({"device": self._name, "compared": self.figures.compared})
            points = b",".join(map(write_point, self.points))
            self._history = event("history", b'%s,"points":[%s]}' % (known[:-1], points))
        return self._history


_GAUGES = {
    "samples": "Samples decided on",
    "offloads": "Samples offloaded: answered by the remote, or fallen back",
    "answered_by_remote": "Samples that the remote answered",
    "agreed": "Answers of the remote in which local agreed",
    "offload_cost": "What the answers of the remote cost, in wrong answers",
    "cost_per_sample": "What an answer cost, mistakes included, where the true labels are known",
    "regret": "How much more the answers cost than the oracle's, where the true labels are known",
    "breaker_open": "Whether the circuit breaker keeps the remote from being asked",
    "not_durable": "Whether what should be safe on disk is not",
    "licensed_bins": "Bins that are answered locally at present",
}
_METRICS = {f"hinge_device_{name}{{device}}": what for name, what in _GAUGES.items()} | {
    "hinge_device_fell_back{device,kind}": "Samples answered locally as the remote failed",
    "hinge_device_alarms{device,alarm}": "Things that need a person",
    "hinge_device_silent_seconds{device}": "Since the last report",
}


class Reports(Collector):
    """All devices, for the page and for the metrics, and the pages that are open. Changed in the event loop only."""

    def __init__(self, requests: Callable[[], list[Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self.devices: dict[str, ReportingDevice] = {}
        self.pages: set[Page] = set()
        self._requests, self._clock = requests, clock

    def put(self, name: str, figures: ReportFigures, address: str = "127.0.0.1") -> None:
        """Add a report that came from an address, and send it to the open pages."""
        now, device = self._clock(), self.devices.get(name)
        if device is None:
            self._make_room(address)
            device = self.devices[name] = ReportingDevice(name, figures, address, now)
        else:
            if device.address != address and now - device.heard < FORGET_S:
                raise Refusal(403, "name taken", "another address reports a device of that name")
            device.update(figures, address, now)
        for page in self.pages:
            page.put(name, device.report)

    def collect(self) -> Iterator[Metric]:
        figures: dict[str, dict[Any, float]] = {key: {} for key in _METRICS}
        for name, device in sorted(self.devices.items()):
            last = device.figures
            known = {**last.gauges, "silent_seconds": self._clock() - device.heard}
            for key, value in known.items():
                if value is not None:
                    figures[f"hinge_device_{key}{{device}}"][name] = value
            figures["hinge_device_fell_back{device,kind}"] |= {(name, each): n for each, n in last.fell_back.items()}
            figures["hinge_device_alarms{device,alarm}"] |= {(name, each): n for each, n in last.alarms.items()}
        return families(_METRICS, figures)

    def open_page(self) -> Page:
        """One more open page, if there is room; it is sent all there is."""
        if len(self.pages) >= MOST_PAGES:
            raise overloaded(f"{MOST_PAGES} pages are open")
        page = Page(self)
        self.pages.add(page)
        hello = event("hello", msgspec.json.encode({"version": __version__}))
        page.put("hello", lambda: hello)
        for name, device in sorted(self.devices.items()):
            page.put(f"history of {name}", device.history)
            page.put(name, device.report)
        return page

    def end_pages(self) -> None:
        for page in self.pages:
            page.end()

    def beat(self) -> bytes:
        now = self._clock()
        silent = {name: round(now - device.heard, 1) for name, device in self.devices.items()}
        return event("server", msgspec.json.encode({"requests": self._requests(), "silent_s": silent}))

    def _make_room(self, address: str) -> None:
        held = sum(device.address == address for device in self.devices.values())
        if held >= MOST_OF_ADDRESS and not is_loopback(address):
            raise Refusal(403, "too many names", f"an address may report {MOST_OF_ADDRESS} devices")
        if len(self.devices) < MOST_DEVICES:
            return
        name = min(self.devices, key=lambda each: self.devices[each].heard)
        if self._clock() - self.devices[name].heard < FORGET_S:
            raise overloaded(f"{MOST_DEVICES} devices report already")
        del self.devices[name]


class Page(StreamingResponse):
    """An open page, and the events it has still to be sent: the latest of each subject, written when it is sent."""

    def __init__(self, reports: Reports) -> None:
        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        headers["x-accel-buffering"] = "no"  # a proxy that collects events would keep them from the page
        super().__init__(self._events(), headers=headers)
        self._reports, self._ended = reports, False
        self._pending: dict[str, Callable[[], bytes]] = {}
        self._news = asyncio.Event()

    def put(self, subject: str, write: Callable[[], bytes]) -> None:
        """Queue an event in place of one on the same subject that has not been sent."""
        self._pending[subject] = write
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reports.pages.discard(self)

    async def _events(self) -> AsyncIterator[bytes]:
        """Events until the stream is ended; a page that does not read is hung up on by its connection."""
        loop = asyncio.get_running_loop()
        beat_at = loop.time()
        while not self._ended:
            if loop.time() >= beat_at:
                beat_at = loop.time() + BEAT_S
                self.put("server", self._reports.beat)
            if self._pending:
                yield self._pending.pop(next(iter(self._pending)))()
                continue
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(beat_at):
                    await self._news.wait()
