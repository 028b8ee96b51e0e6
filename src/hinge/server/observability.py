"""Logs and metrics of the server."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hinge.errors import InvalidValue

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class JsonFormatter(logging.Formatter):
    """Write an event and its fields as a line of JSON; what the package warns of elsewhere is the event `alarm`."""

    def format(self, record: logging.LogRecord) -> str:
        now = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = getattr(record, "fields", None)
        told = {"event": "alarm", "problem": record.getMessage()} if fields is None else {"event": record.msg, **fields}
        return json.dumps({"time": now, "level": record.levelname.lower(), **told})


class EventLog(logging.Logger):
    """Events at or above a level, each one line of JSON on standard error.

    >>> import sys
    >>> log = EventLog("info")
    >>> _ = log.handlers[0].setStream(sys.stdout)
    >>> log.write("info", "started", models=["fashion"])  # doctest: +ELLIPSIS
    {"time": "...Z", "level": "info", "event": "started", "models": ["fashion"]}
    """

    def __init__(self, level: str) -> None:
        if level not in LEVELS:
            raise InvalidValue("Server", "log_level", f"must be one of {', '.join(LEVELS)}, got {level!r}")
        super().__init__("hinge.server", LEVELS[level])
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        self.addHandler(handler)

    def writes(self, level: str) -> bool:
        return self.isEnabledFor(LEVELS[level])

    def write(self, level: str, event: str, **fields: object) -> None:
        self.log(LEVELS[level], event, extra={"fields": fields})

    @contextmanager
    def taking_alarms(self) -> Iterator[None]:
        """Take what the package warns of, such as a device's alarms, while the block runs."""
        package = logging.getLogger("hinge")
        package.addHandler(self.handlers[0])
        try:
            yield
        finally:
            package.removeHandler(self.handlers[0])


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
        self._seconds = histogram("hinge_request_seconds", "From headers to answer", ["model"], buckets=SECONDS)
        self._rows = histogram("hinge_batch_rows", "Rows run at once", ["model"], buckets=ROWS)
        self._queued = gauge("hinge_queued_requests", "Waiting for a model", ["model"])
        self._in_flight = gauge("hinge_in_flight_requests", "Inferences in flight")

    def answered(self, model: str, status: int, seconds: float) -> None:
        """Count an answer; `model` is empty where it concerned none that is served."""
        self._requests.labels(model, str(status)).inc()
        self._seconds.labels(model).observe(seconds)

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def watch_model(self, model: str, queued: Callable[[], int]) -> Callable[[float], None]:
        """Show how many requests wait for a model; returns what counts the rows of its batches."""
        self._queued.labels(model).set_function(queued)
        return self._rows.labels(model).observe

    def watch(self, in_flight: Callable[[], int]) -> None:
        """Show how many inferences are in flight."""
        self._in_flight.set_function(in_flight)

    def page(self) -> bytes:
        return generate_latest(self.registry)
