"""What Prometheus is told of a device is what the device knows of itself."""

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hinge import AsyncDevice, Device, FixedCost, Isotonic
from hinge.device.metrics import METRICS, DeviceCollector
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
    policy = Isotonic(bins=16, offload_cost=0.5)
    with Device(scores, lambda sample: int(sample > 1), policy, state=tmp_path) as device:
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
        assert value(registry, "hinge_learned_total") == policy.learned == status.answered_by_remote
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
    device = AsyncDevice(scores, int, Isotonic(bins=4, offload_cost=0.5))
    families = list(text_string_to_metric_families(generate_latest(registered(device)).decode()))
    exposed = {f"{family.name}{'_total' * (family.type == 'counter')}" for family in families}
    assert exposed == {name.partition("{")[0] for name in METRICS}


def test_every_kind_of_failure_is_counted_from_the_start() -> None:
    registry = registered(AsyncDevice(scores, int, Isotonic(bins=4, offload_cost=0.5)))
    for kind in ("unreachable", "late", "error", "refused", "invalid", "breaker"):
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
