"""The devices that report to this server: the last report of each, and how its figures went over time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hinge import __version__
from hinge.oip.json import write_json
from hinge.server.events import Listener, Listeners, event
from hinge.server.refusal import overloaded
from hinge.server.report import OWN, Figures, Point, write_point

MOST_DEVICES = 64
FORGET_S = 60.0  # silence after which a device makes room for another
POINTS = 600  # of a device's history

_GAUGES = {
    "samples": "Samples decided on",
    "offloads": "Samples offloaded: answered by the remote, or fallen back",
    "answered_by_remote": "Samples that the remote answered",
    "agreed": "Answers of the remote in which local agreed",
    "offload_cost": "What the answers of the remote cost, in wrong answers",
    "cost_per_sample": "What an answer cost, mistakes included, where the true labels are known",
    "regret": "How much more the answers cost than the oracle's, where the true labels are known",
    "breaker_open": "Whether the remote is left alone",
    "not_durable": "Whether what should be safe on disk is not",
    "licensed_bins": "Bins that are answered locally at present",
}


class _Device:
    """One device's last report and its history."""

    def __init__(self, name: str, figures: Figures, now: float) -> None:
        self._name = name
        self.figures, self.heard = figures, now
        self.points: list[Point] = [figures.point]
        self._history: bytes | None = None  # as it is told, once somebody wanted to know

    def take(self, figures: Figures, now: float) -> None:
        before, self.figures, self.heard = self.figures, figures, now
        self._history = None
        if figures.samples < before.samples:
            self.points.clear()  # it began anew
        if figures.samples == before.samples and self.points:
            self.points.pop()  # nothing happened since
        if figures.compared != before.compared:
            self.points[:] = [point[:OWN] for point in self.points]  # what was told of others was of other ones
        self.points.append(figures.point)
        if len(self.points) > POINTS:
            del self.points[1:-1:2]  # what is long ago is told in larger steps

    def report(self) -> bytes:
        """The event that tells of the last report."""
        return self.figures.told

    def history(self) -> bytes:
        """The event that tells of the history: the same bytes for everyone, until it changes."""
        if self._history is None:
            known = write_json({"device": self._name, "compared": self.figures.compared})
            points = b",".join(map(write_point, self.points))
            self._history = event("history", b'%s,"points":[%s]}' % (known[:-1], points))
        return self._history


class Reports(Collector):
    """All devices, for the page and for the metrics. Changed in the event loop only."""

    def __init__(self, requests: Callable[[], list[Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self.listeners = Listeners(self._greet, self._beat)
        self._requests, self._clock = requests, clock
        self._devices: dict[str, _Device] = {}

    def put(self, name: str, figures: Figures) -> None:
        """Take a report, and tell those who listen."""
        device = self._devices.get(name)
        if device is None:
            self._make_room()
            device = self._devices[name] = _Device(name, figures, self._clock())
        else:
            device.take(figures, self._clock())
        self.listeners.tell(name, device.report)

    def collect(self) -> Iterator[Metric]:
        """The figures of the last reports, for Prometheus."""
        told = [(name, device.figures, device.heard) for name, device in sorted(self._devices.items())]
        for field, what in _GAUGES.items():
            family = GaugeMetricFamily(f"hinge_device_{field}", what, labels=["device"])
            for name, figures, _ in told:
                value = getattr(figures, field)
                if value is not None:
                    family.add_metric([name], float(value))
            yield family
        for field, what, label in (
            ("fell_back", "Samples answered locally as the remote failed", "kind"),
            ("alarms", "Things that need a person", "alarm"),
        ):
            family = GaugeMetricFamily(f"hinge_device_{field}", what, labels=["device", label])
            for name, figures, _ in told:
                for kind, count in getattr(figures, field).items():
                    family.add_metric([name, kind], float(count))
            yield family
        silence = GaugeMetricFamily("hinge_device_silent_seconds", "Since the last report", labels=["device"])
        for name, _, heard in told:
            silence.add_metric([name], self._clock() - heard)
        yield silence

    def _make_room(self) -> None:
        if len(self._devices) < MOST_DEVICES:
            return
        name = min(self._devices, key=lambda each: self._devices[each].heard)
        if self._clock() - self._devices[name].heard < FORGET_S:
            raise overloaded(f"{MOST_DEVICES} devices report already")
        del self._devices[name]

    def _greet(self, listener: Listener) -> None:
        """Tell a new listener all there is."""
        hello = event("hello", write_json({"version": __version__}))
        listener.tell("hello", lambda: hello)
        for name, device in sorted(self._devices.items()):
            listener.tell(f"history of {name}", device.history)
            listener.tell(name, device.report)

    def _beat(self) -> bytes:
        now = self._clock()
        silent = {name: round(now - device.heard, 1) for name, device in self._devices.items()}
        return write_json({"requests": self._requests(), "silent_s": silent})
