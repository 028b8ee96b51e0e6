"""A device's metrics over HTTP, for Prometheus on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hinge.arguments import whole
from hinge.cli import show
from hinge.gate.device import Device

_HOST = "127.0.0.1"


@contextmanager
def serve_metrics(device: Device, port: int) -> Iterator[None]:
    """Serve the metrics while the block runs, and say where."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from hinge.gate.metrics import DeviceCollector
    except ImportError as error:
        raise ImportError(f"metrics need prometheus-client ({error}): pip install 'hinge[metrics]'") from error
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
