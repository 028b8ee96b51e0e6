"""A device's figures for Prometheus, read when they are scraped: answering costs no more for them.

`METRICS` is the table of them, from which the help texts and the one in `docs/device.md` come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hinge.device.device import BaseDevice
from hinge.errors import RemoteFailed

KINDS = tuple(failure.kind for failure in RemoteFailed.__subclasses__())  # all from the start, so that they read 0
OUTCOMES = ("succeeded", "failed", "unanswered", "released")

METRICS = {
    "hinge_samples_total": "samples decided on",
    "hinge_offloads_total": "samples offloaded: answered by the remote, or fallen back",
    "hinge_fallbacks_total{kind}": f"samples answered locally as the remote failed, by kind: {', '.join(KINDS)}",
    "hinge_agreements_total": "answers of the remote in which local agreed",
    "hinge_offload_cost_total": "what asking has cost, whether or not an answer came, in wrong answers",
    "hinge_attempts_total{outcome}": f"requests to the remote: {', '.join(OUTCOMES)}",
    "hinge_breaker_open": "1 while the breaker is open or probing",
    "hinge_breaker_opened_total": "how often the breaker opened",
    "hinge_learned_total": "offloads learned from since the policy was first made",
    "hinge_durable": "1 while what is learned is safe on disk",
    "hinge_alarms_total{alarm}": "things that need a person",
}
_HELP = {name.partition("{")[0].removesuffix("_total"): text for name, text in METRICS.items()}


class DeviceCollector(Collector):
    """The figures of a `Device` or an `AsyncDevice`, to be registered once with a registry.

    >>> from hinge import Device, Isotonic
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> with Device(lambda sample: [0.0, sample], lambda sample: 1, Isotonic(bins=16, offload_cost=0.5)) as device:
    ...     registry.register(DeviceCollector(device))
    ...     _ = device.infer(3.0)
    ...     registry.get_sample_value("hinge_offloads_total"), registry.get_sample_value("hinge_durable")
    (1.0, 0.0)
    """

    def __init__(self, device: BaseDevice) -> None:
        self._device = device

    def collect(self) -> Iterator[Metric]:
        """All figures at one instant."""
        status, learned = self._device.status, self._device.policy.learned
        yield _count("hinge_samples", status.samples)
        yield _count("hinge_offloads", status.answered_by_remote + sum(status.fell_back.values()))
        yield _counts("hinge_fallbacks", "kind", dict.fromkeys(KINDS, 0) | status.fell_back)
        yield _count("hinge_agreements", status.agreed)
        yield _count("hinge_offload_cost", status.offload_cost)
        yield _counts("hinge_attempts", "outcome", {each: getattr(status.attempts, each) for each in OUTCOMES})
        yield _gauge("hinge_breaker_open", status.breaker != "closed")
        yield _count("hinge_breaker_opened", status.attempts.opened)
        yield _count("hinge_learned", learned)
        yield _gauge("hinge_durable", status.on_disk and status.not_durable is None)
        yield _counts("hinge_alarms", "alarm", status.alarms)

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: registering does not read the device."""
        return []


def _count(name: str, value: float) -> Metric:
    return CounterMetricFamily(name, _HELP[name], value=float(value))


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, _HELP[name], value=float(value))


def _counts(name: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, _HELP[name], labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
