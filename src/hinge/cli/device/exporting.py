"""A device for those who watch it: its metrics for Prometheus on this machine, its reports for a server's page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hinge._checks import whole
from hinge.cli import show
from hinge.device.device import Device
from hinge.device.reporter import Reporter

_HOST = "127.0.0.1"


def report_to(device: Device, url: str | None, name: str, token: str | None) -> Reporter:
    """Report to the server of the remote, and say where to look."""
    if url is None or not url.startswith(("http://", "https://")):
        raise ValueError("--report needs a --remote that begins with http:// or https://, whose page shows the device")
    reporter = Reporter(device, url, name, token=token)
    show.err.print(f"Reporting to the live page at {url.rstrip('/')}/", highlight=False, soft_wrap=True)
    return reporter


@contextmanager
def serve_metrics(device: Device, port: int) -> Iterator[None]:
    """Serve the metrics while the block runs, and say where."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from hinge.device.metrics import DeviceCollector
    except ImportError as error:
        raise ImportError(f"metrics need prometheus-client ({error}): pip install 'hinge-gate[metrics]'") from error
    registry = CollectorRegistry()
    registry.register(DeviceCollector(device))
    port = whole("device", "metrics_port", port, 0, 65_535)
    try:
        server, thread = start_http_server(port, addr=_HOST, registry=registry)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"--metrics-port {port}") from error
    show.err.print(f"Metrics at http://{_HOST}:{server.server_port}/metrics", highlight=False, soft_wrap=True)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
