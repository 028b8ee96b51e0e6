"""A device's figures for Prometheus, read when they are asked for: the way of a sample does not know of them.

    hinge_samples_total                 samples decided on
    hinge_offloads_total                samples offloaded: answered by the remote, or fallen back
    hinge_fallbacks_total{kind}         samples answered locally as the remote failed: unreachable, late, error,
                                        invalid, or breaker (it was left alone)
    hinge_agreements_total              answers of the remote in which local agreed
    hinge_offload_cost_total            what asking has cost, whether or not an answer came, in wrong answers
    hinge_attempts_total{outcome}       times the remote was asked: succeeded, failed, unanswered or released
    hinge_breaker_open                  1 while the remote is left alone, but for probes
    hinge_breaker_opened_total          how often that began
    hinge_learned_total                 offloads learned from, by the policy, since it was first made
    hinge_durable                       1 while what is learned is safe on disk
    hinge_alarms_total{alarm}           things that need a person
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hinge.device.device import BaseDevice
from hinge.device.status import Status

_KINDS = ("unreachable", "late", "error", "refused", "invalid", "breaker")  # named from the start, so that they read 0
_OUTCOMES = ("succeeded", "failed", "unanswered", "released")


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
        offloads = status.answered_by_remote + sum(status.fell_back.values())
        yield _count("hinge_samples", "Samples decided on", status.samples)
        yield _count("hinge_offloads", "Samples offloaded: answered by the remote, or fallen back", offloads)
        yield _counts("hinge_fallbacks", "Samples answered locally as the remote failed", "kind", _fallbacks(status))
        yield _count("hinge_agreements", "Answers of the remote in which local agreed", status.agreed)
        yield _count("hinge_offload_cost", "What asking the remote cost, in wrong answers", status.offload_cost)
        yield _counts("hinge_attempts", "Times the remote was asked", "outcome", _attempts(status))
        yield _gauge("hinge_breaker_open", "Whether the remote is left alone", status.breaker != "closed")
        yield _count("hinge_breaker_opened", "Times the breaker opened", status.attempts.opened)
        yield _count("hinge_learned", "Offloads learned from since the policy was first made", learned)
        durable = status.on_disk and status.not_durable is None
        yield _gauge("hinge_durable", "Whether what is learned is safe on disk", durable)
        yield _counts("hinge_alarms", "Things that need a person", "alarm", status.alarms)

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: registering does not touch the device."""
        return []


def _fallbacks(status: Status) -> dict[str, float]:
    return dict.fromkeys(_KINDS, 0.0) | status.fell_back


def _attempts(status: Status) -> dict[str, float]:
    return {outcome: getattr(status.attempts, outcome) for outcome in _OUTCOMES}


def _count(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(name, what, value=float(value))


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=float(value))


def _counts(name: str, what: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, what, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
