"""Logs and metrics of the server."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.samples import Sample

from hinge.errors import InvalidValue

LEVELS = ("debug", "info", "warning", "error")
LINES = 4096  # that wait to be written
WRITE_S = 0.05  # between two writes
CLOSE_S = 1.0  # for the last lines, when the log is closed
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class EventLog:
    """Events at or above a level, each one line of JSON on standard error.

    They are written by a thread from a bounded queue; one that finds the queue full is dropped and counted.

    >>> log = EventLog("info", sys.stdout)
    >>> log.write("info", "loaded", model="fashion")
    >>> log.close()  # doctest: +ELLIPSIS
    {"time": "...Z", "level": "info", "event": "loaded", "model": "fashion"}
    """

    def __init__(self, level: str, file: TextIO | None = None) -> None:
        if level not in LEVELS:
            raise InvalidValue("Server", "log_level", f"must be one of {', '.join(LEVELS)}, got {level!r}")
        self._lowest = LEVELS.index(level)
        self._file = file
        self._lines: deque[str] = deque()
        self._queued, self._closing = threading.Event(), threading.Event()
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()  # a second writer would take lines from under the first
        self.dropped = 0

    def writes(self, level: str) -> bool:
        return LEVELS.index(level) >= self._lowest

    def write(self, level: str, event: str, **fields: object) -> None:
        """Queue an event, if its level is high enough. Thread-safe; never blocks."""
        if not self.writes(level):
            return
        if len(self._lines) >= LINES:
            self.dropped += 1
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._lines.append(json.dumps({"time": now, "level": level, "event": event, **fields}) + "\n")
        if not self._queued.is_set():
            self._queued.set()
        if self._writer is None:
            with self._starting:
                if self._writer is None:
                    writer = threading.Thread(target=self._write_lines, name="hinge-log", daemon=True)
                    writer.start()
                    self._writer = writer

    def close(self) -> None:
        """Write what is queued, for a second at most."""
        with self._starting:
            writer = self._writer
        if writer is not None:
            self._closing.set()
            self._queued.set()
            writer.join(CLOSE_S)
            self._closing.clear()
            self._writer = None

    def _write_lines(self) -> None:
        closing = False
        while not closing:
            self._queued.wait()
            closing = self._closing.wait(WRITE_S)  # lines are written together: waking this thread for each costs more
            self._queued.clear()
            if lines := [self._lines.popleft() for _ in range(len(self._lines))]:
                self._put("".join(lines))

    def _put(self, text: str) -> None:
        file = self._file or sys.stderr
        try:
            handle = file.fileno()
        except (OSError, ValueError, AttributeError):
            handle = -1  # not a file of the system
        try:
            if handle < 0:
                file.write(text)
                file.flush()
            else:  # past the file's own lock, which a blocked write would hold when the process ends
                data = text.encode("ascii")
                while data:
                    data = data[os.write(handle, data) :]
        except (OSError, ValueError):
            self.dropped += text.count("\n")


class Alarms(logging.Handler):
    """What the package warns of by `logging`, such as a device's alarms, as events of a log, while the block runs."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self._log.write(level, "alarm", problem=record.getMessage())

    def __enter__(self) -> None:
        logging.getLogger("hinge").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("hinge").removeHandler(self)


class Metrics:
    """The counts of one server, in a registry of its own.

    >>> metrics = Metrics()
    >>> metrics.refused("too large")
    >>> 'hinge_refused_total{reason="too large"} 1.0' in metrics.page().decode()
    True
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._requests = counter("hinge_requests", "Requests answered", ["model", "code"])
        self._refused = counter("hinge_refused", "Requests refused", ["reason"])
        self._loads = counter("hinge_model_loads", "Times a model was loaded", ["model"])
        self._failures = counter("hinge_model_load_failures", "Times a new file could not replace it", ["model"])
        self._seconds = histogram("hinge_request_seconds", "From headers to answer", ["model"], buckets=SECONDS)
        self._rows = histogram("hinge_batch_rows", "Rows run at once", ["model"], buckets=ROWS)
        self._queued = gauge("hinge_queued_requests", "Waiting for a model", ["model"])
        self._in_flight = gauge("hinge_in_flight_requests", "Inferences in flight")
        self._connections = gauge("hinge_connections", "Open connections")
        self._dropped = gauge("hinge_log_lines_dropped", "Log lines that could not be written")
        self._codes: dict[tuple[str, int], Counter] = {}
        self._latencies: dict[str, Histogram] = {}

    def answered(self, model: str, status: int, seconds: float) -> None:
        """Count an answer; `model` is empty where it concerned none that is served."""
        count = self._codes.get((model, status))
        if count is None:
            count = self._codes[model, status] = self._requests.labels(model, str(status))
        count.inc()
        latency = self._latencies.get(model)
        if latency is None:
            latency = self._latencies[model] = self._seconds.labels(model)
        latency.observe(seconds)

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def loaded(self, model: str, well: bool) -> None:
        (self._loads if well else self._failures).labels(model).inc()

    def watch_model(self, model: str, queued: Callable[[], int]) -> Callable[[float], None]:
        """Show how many requests wait for a model; returns what counts the rows of its batches."""
        self._queued.labels(model).set_function(queued)
        self._failures.labels(model)  # so that it reads 0, and not nothing
        return self._rows.labels(model).observe

    def watch(self, in_flight: Callable[[], int], connections: Callable[[], int], dropped: Callable[[], int]) -> None:
        """Show how many inferences are in flight, connections open, and lines of the log dropped."""
        self._in_flight.set_function(in_flight)
        self._connections.set_function(connections)
        self._dropped.set_function(dropped)

    def requests(self) -> list[dict[str, Any]]:
        """For each model, how many requests were answered with which status, and how fast, for the page."""
        codes: dict[str, dict[str, float]] = {}
        for sample in _samples(self._requests, "_total"):
            codes.setdefault(sample.labels["model"], {})[sample.labels["code"]] = sample.value
        totals = {sample.labels["model"]: sample.value for sample in _samples(self._seconds, "_sum")}
        within: dict[str, list[tuple[float, float]]] = {}
        for sample in _samples(self._seconds, "_bucket"):
            within.setdefault(sample.labels["model"], []).append((float(sample.labels["le"]), sample.value))
        return [
            {"model": model, "codes": counts, "seconds": totals[model], "seconds_p99": _quantile(within[model], 0.99)}
            for model, counts in sorted(codes.items())
        ]

    def page(self) -> bytes:
        return generate_latest(self.registry)


def _samples(metric: Counter | Histogram, end: str) -> Iterator[Sample]:
    return (sample for family in metric.collect() for sample in family.samples if sample.name.endswith(end))


def _quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """The bucket's bound within which this share lies; None beyond the last, or where there is nothing."""
    wanted = share * buckets[-1][1]
    found = next(bound for bound, count in buckets if count >= wanted)
    return found if wanted and math.isfinite(found) else None
