"""What the server counts, for Prometheus."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.samples import Sample

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All counts of one server, apart from those of any other in the process.

    >>> metrics = Metrics()
    >>> metrics.refused("too large")
    >>> 'hinge_refused_total{reason="too large"} 1.0' in metrics.page().decode()
    True
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests = self._counter("hinge_requests", "Requests answered", "model", "code")
        self._refused = self._counter("hinge_refused", "Requests refused", "reason")
        self._loads = self._counter("hinge_model_loads", "Times a model was loaded", "model")
        self._failures = self._counter("hinge_model_load_failures", "Times a new file could not replace it", "model")
        self._seconds = self._histogram("hinge_request_seconds", "From headers to answer", SECONDS)
        self._rows = self._histogram("hinge_batch_rows", "Rows run at once", ROWS)
        self._queued = Gauge("hinge_queued_requests", "Waiting for a model", ["model"], registry=self.registry)
        self._in_flight = Gauge("hinge_in_flight_requests", "Inferences under way", registry=self.registry)
        self._codes: dict[tuple[str, int], Counter] = {}
        self._latencies: dict[str, Histogram] = {}

    def answered(self, model: str, status: int, seconds: float) -> None:
        """A request was answered; `model` is empty where it concerned none that is served."""
        count = self._codes.get((model, status))
        if count is None:
            count = self._codes[model, status] = self._requests.labels(model, str(status))
        count.inc()
        latency = self._latencies.get(model)
        if latency is None:
            latency = self._latencies[model] = self._seconds.labels(model)
        latency.observe(seconds)

    def refused(self, reason: str) -> None:
        """A request was refused."""
        self._refused.labels(reason).inc()

    def loaded(self, model: str, well: bool) -> None:
        """A model was loaded, or its new file could not be."""
        (self._loads if well else self._failures).labels(model).inc()

    def watch_model(self, model: str, queued: Callable[[], int]) -> Callable[[float], None]:
        """Show how many requests wait for a model; returns what counts the rows of its batches."""
        self._queued.labels(model).set_function(queued)
        self._failures.labels(model)  # so that it reads 0, and not nothing
        return self._rows.labels(model).observe

    def watch_requests(self, in_flight: Callable[[], int]) -> None:
        """Show how many inferences are under way."""
        self._in_flight.set_function(in_flight)

    def requests(self) -> list[dict[str, Any]]:
        """For each model, how many requests were answered in which way, and how fast, for the page."""
        codes: dict[str, dict[str, float]] = {}
        for sample in _samples(self._requests, "_total"):
            codes.setdefault(sample.labels["model"], {})[sample.labels["code"]] = sample.value
        totals = {sample.labels["model"]: sample.value for sample in _samples(self._seconds, "_sum")}
        within: dict[str, list[tuple[float, float]]] = {}
        for sample in _samples(self._seconds, "_bucket"):
            within.setdefault(sample.labels["model"], []).append((float(sample.labels["le"]), sample.value))
        return [
            {"model": model, "codes": counts, "seconds": totals[model], "seconds_p99": _most(within[model], 0.99)}
            for model, counts in sorted(codes.items())
        ]

    def page(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return generate_latest(self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, what, ["model"], buckets=buckets, registry=self.registry)


def _samples(metric: Counter | Histogram, end: str) -> Iterator[Sample]:
    return (sample for family in metric.collect() for sample in family.samples if sample.name.endswith(end))


def _most(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """The bound within which this share lies; None beyond the last, or where there is nothing."""
    wanted = share * buckets[-1][1]
    found = next(bound for bound, count in buckets if count >= wanted)
    return found if wanted and math.isfinite(found) else None
