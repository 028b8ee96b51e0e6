"""What Prometheus is told of a device is what the device knows of itself."""

import socket
import threading
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hinge import AsyncDevice, Device, FixedCost
from hinge.device.metrics import AT_ONCE, METRICS, DeviceCollector, MetricsServer
from hinge.errors import RemoteInvalid
from hinge.policies import AlwaysRemote


def scores(sample: float) -> list[float]:
    return [0.0, sample]


def registered(device: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(DeviceCollector(device))
    return registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_the_figures_are_those_of_the_status(tmp_path: Path) -> None:
    with Device(scores, lambda sample: int(sample > 1), offload_cost=0.5, state=tmp_path, deadline_s=30) as device:
        registry = registered(device)
        for sample in [0.1, 3.0] * 40:
            device.infer(sample)
        status = device.status
        assert value(registry, "hinge_samples_total") == 80
        assert value(registry, "hinge_offloads_total") == status.answered_by_remote > 0
        assert value(registry, "hinge_agreements_total") == status.agreed
        assert 0 < status.agreed < status.answered_by_remote
        assert value(registry, "hinge_offload_cost_total") == 0.5 * status.answered_by_remote
        assert value(registry, "hinge_attempts_total", outcome="succeeded") == status.answered_by_remote
        assert value(registry, "hinge_learned_total") == device.policy.learned == status.answered_by_remote
        assert value(registry, "hinge_durable") == 1
        assert value(registry, "hinge_breaker_open") == 0


def test_a_failing_remote_shows() -> None:
    def fail(sample: float) -> int:
        raise RemoteInvalid("no")

    with Device(scores, fail, AlwaysRemote(bins=4), price=FixedCost(0.5)) as device:
        registry = registered(device)
        assert value(registry, "hinge_fallbacks_total", kind="breaker") == 0, "known before the first"
        for _ in range(20):
            device.infer(1.0)
        fell_back = device.status.fell_back
        assert fell_back["breaker"] > 0
        assert {kind: value(registry, "hinge_fallbacks_total", kind=kind) for kind in fell_back} == fell_back
        assert value(registry, "hinge_offloads_total") == 20
        assert value(registry, "hinge_breaker_open") == 1
        assert value(registry, "hinge_breaker_opened_total") == 1
        assert value(registry, "hinge_alarms_total", alarm="the breaker opened") == 1
        assert value(registry, "hinge_durable") == 0
        assert value(registry, "hinge_offload_cost_total") == 2.5  # five were tried before the breaker opened


def test_every_name_is_documented_and_none_besides() -> None:
    device = AsyncDevice(scores, int, offload_cost=0.5)
    families = list(text_string_to_metric_families(generate_latest(registered(device)).decode()))
    exposed = {f"{family.name}{'_total' * (family.type == 'counter')}" for family in families}
    assert exposed == {name.partition("{")[0] for name in METRICS}


def test_every_kind_of_failure_is_counted_from_the_start() -> None:
    registry = registered(AsyncDevice(scores, int, offload_cost=0.5))
    for kind in ("unreachable", "late", "error", "refused", "invalid", "task", "policy", "queue", "breaker"):
        assert value(registry, "hinge_fallbacks_total", kind=kind) == 0


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "device.md").read_text("utf-8")
    for name, text in METRICS.items():
        assert f"| `{name}` | {text} |" in page


def test_registering_touches_nothing() -> None:
    class Broken:
        @property
        def status(self) -> Any:
            raise AssertionError("looked at")

    registered(Broken())


# -- served -----------------------------------------------------------------------------------------------------------


def scraped(port: int, host: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/metrics", headers={"Host": host})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:9", ""])
def test_l15_another_site_cannot_read_the_metrics(host: str) -> None:
    with (
        Device(scores, lambda _: 1, AlwaysRemote(16), price=FixedCost(0.5)) as device,
        MetricsServer(device, 0) as server,
    ):
        assert scraped(server.server_port, f"127.0.0.1:{server.server_port}")[1].startswith(b"# HELP hinge_samples")
        assert scraped(server.server_port, "localhost")[0] == 200
        assert scraped(server.server_port, host)[0] == 403


@pytest.mark.slow
def test_l15_clients_that_send_nothing_take_few_threads_and_are_left() -> None:
    with (
        Device(scores, lambda _: 1, AlwaysRemote(16), price=FixedCost(0.5)) as device,
        MetricsServer(device, 0) as server,
    ):
        before = threading.active_count()
        with ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=20))
                for _ in range(5 * AT_ONCE)
            ]
            assert silent[-1].recv(1) == b""  # at once
            assert threading.active_count() <= before + AT_ONCE
            for each in silent:  # once their time is over
                assert each.recv(1) == b""
            assert scraped(server.server_port, "localhost")[0] == 200
