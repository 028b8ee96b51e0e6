"""A device's figures for Prometheus, read when they are scraped: answering costs no more for them.

`METRICS` is the table of them, from which the help texts and the one in `docs/device.md` come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any, Self

from hinge.device.device import BaseDevice
from hinge.errors import RemoteFailed

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(f"metrics need prometheus-client ({error}): pip install 'hinge-gate[metrics]'") from error

HOST = "127.0.0.1"
AT_ONCE = 8  # scrapes; each has a thread
PATIENCE_S = 2.0  # for a client to send its request, and to read the answer
KINDS = tuple(failure.kind for failure in RemoteFailed.__subclasses__())  # all from the start, so that they read 0
SAFE = {  # headers of all that is served: a page may load nothing from elsewhere, and is loaded by nobody
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
OUTCOMES = ("succeeded", "failed", "unanswered", "released")

METRICS = {
    "hinge_samples_total": "samples decided on",
    "hinge_offloads_total": "samples offloaded: answered by the remote, or fallen back",
    "hinge_fallbacks_total{kind}": f"samples answered locally as the remote failed, by kind: {', '.join(KINDS)}",
    "hinge_local_failures_total": "requests to a gateway that the remote alone answered, as the local model failed",
    "hinge_compared_total": "answers of the remote that could be compared with the local ones",
    "hinge_agreements_total": "those of them in which local agreed",
    "hinge_offload_cost_total": "what asking has cost, whether or not an answer came, in wrong answers",
    "hinge_attempts_total{outcome}": f"requests to the remote: {', '.join(OUTCOMES)}",
    "hinge_breaker_open": "1 while the breaker is open or probing",
    "hinge_breaker_opened_total": "how often the breaker opened",
    "hinge_learned_total": "offloads learned from since the policy was first made",
    "hinge_durable": "1 while what is learned is safe on disk",
    "hinge_alarms_total{alarm}": "things that need a person",
}


def families(described: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[Metric]:
    """Metrics for Prometheus by a table of what they mean: a figure each, or by label where the name has one.

    By several labels, `{device,kind}`, figures have their values in a tuple. What ends in `_total` only grows.

    >>> [metric.samples for metric in families({"hinge_up{device}": "answers"}, {"hinge_up{device}": {"hall": 1}})]
    [[Sample(name='hinge_up', labels={'device': 'hall'}, value=1.0, timestamp=None, exemplar=None, ...)]]
    """
    for key, what in described.items():
        name, _, label = key.rstrip("}").partition("{")
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(name, what, labels=label.split(",") if label else [])
        for part, value in values[key].items() if label else [((), values[key])]:
            family.add_metric([part] if isinstance(part, str) else part, float(value))
        yield family


class DeviceCollector(Collector):
    """The figures of a `Device` or an `AsyncDevice`, to be registered once with a registry.

    >>> from hinge import Device
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> with Device(lambda sample: [0.0, sample], lambda sample: 1, offload_cost=0.5) as device:
    ...     registry.register(DeviceCollector(device))
    ...     _ = device.infer(3.0)
    ...     registry.get_sample_value("hinge_offloads_total"), registry.get_sample_value("hinge_durable")
    (1.0, 0.0)
    """

    def __init__(self, device: BaseDevice) -> None:
        self._device = device

    def collect(self) -> Iterator[Metric]:
        status = self._device.status
        figures = {
            "hinge_samples_total": status.samples,
            "hinge_offloads_total": status.answered_by_remote + sum(status.fell_back.values()),
            "hinge_fallbacks_total{kind}": dict.fromkeys(KINDS, 0) | status.fell_back,
            "hinge_local_failures_total": status.local_failed,
            "hinge_compared_total": status.compared,
            "hinge_agreements_total": status.agreed,
            "hinge_offload_cost_total": status.offload_cost,
            "hinge_attempts_total{outcome}": {each: getattr(status.attempts, each) for each in OUTCOMES},
            "hinge_breaker_open": status.breaker != "closed",
            "hinge_breaker_opened_total": status.attempts.opened,
            "hinge_learned_total": self._device.policy.learned,
            "hinge_durable": status.on_disk and status.not_durable is None,
            "hinge_alarms_total{alarm}": status.alarms,
        }
        yield from families(METRICS, figures)

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: registering does not read the device."""
        return []


class MetricsServer(ThreadingHTTPServer):
    """Serves a device's figures on this machine's own address, while a `with` block runs.

    Pages of other sites, which reach it by a name of theirs for this address, are refused by the `Host` they send.
    """

    daemon_threads = True
    request_queue_size = AT_ONCE

    def __init__(self, device: BaseDevice, port: int) -> None:
        self._free, self.registry = BoundedSemaphore(AT_ONCE), CollectorRegistry()
        self.registry.register(DeviceCollector(device))
        super().__init__((HOST, port), _Request)
        self.url = f"http://{HOST}:{self.server_port}/metrics"
        self._thread = Thread(target=self.serve_forever, args=(0.1,), name="hinge-http", daemon=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if one is free; clients beyond that are hung up on."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no error of ours."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Request(BaseHTTPRequestHandler):
    """One request; its connection is closed after it."""

    timeout = PATIENCE_S
    server: MetricsServer

    def do_GET(self) -> None:  # the name that http.server calls
        host = (self.headers.get("Host") or "").lower().rsplit(":", 1)[0]
        if host not in (HOST, "localhost"):
            self.send_error(403, "the Host must be this machine")
            return
        body = generate_latest(self.server.registry)
        self.send_response(200)
        for name, value in {"Content-Type": CONTENT_TYPE_LATEST, "Content-Length": str(len(body)), **SAFE}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""
