"""How long a sample takes: measured for the local and the remote model, estimated for policies that only shadow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from hinge import fashion
from hinge.cli.demo.comparison import Comparison
from hinge.cli.device.samples import Case
from hinge.device.device import Device
from hinge.remotes import Deadline

if TYPE_CHECKING:
    from hinge.remotes.open_inference import OpenInference

DEADLINE_S = 5.0  # of a request; what is shown are the policies, and a busy machine should not spoil that
_REQUESTS = 200
_LOCAL = 1_000
_FIRST = 5  # answers that take longer, as connections are made and caches filled


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one answer of each model by itself, one after another."""

    local_ms: float
    remote_ms: float
    requests: int  # that the remote was measured over


class Clock:
    """How long the device took for what it accepted, and for what it offloaded."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._accepted = self._offloaded = 0
        self._accepted_s = self._offloaded_s = 0.0

    def take(self, offloaded: bool, seconds: float) -> None:
        """Count a sample."""
        if offloaded:
            self._offloaded += 1
            self._offloaded_s += seconds
        else:
            self._accepted += 1
            self._accepted_s += seconds

    def estimate_ms(self, offload_fraction: float) -> float:
        """What a device takes for a sample that offloads this share, which for this very device is what it took.

        >>> clock = Clock(Timing(local_ms=1.0, remote_ms=2.0, requests=200))
        >>> clock.estimate_ms(0.5)
        2.0
        >>> clock.take(False, 0.001), clock.take(True, 0.007)
        (None, None)
        >>> clock.estimate_ms(0.5), clock.estimate_ms(0.25)
        (4.0, 2.5)
        """
        accepted, offloaded = self._timing.local_ms, self._timing.local_ms + self._timing.remote_ms
        if self._accepted:
            accepted = 1000 * self._accepted_s / self._accepted
        if self._offloaded:
            offloaded = 1000 * self._offloaded_s / self._offloaded
        return (1.0 - offload_fraction) * accepted + offload_fraction * offloaded


def measure(device: Device, remote: OpenInference, cases: Iterator[Case], comparison: Comparison) -> Timing:
    """Ask both models about the first images, the remote about a part of them; its answers are checked, too."""
    first = list(islice(cases, _LOCAL))
    asked = first[:: max(1, len(first) // _REQUESTS)][:_REQUESTS]
    for case in asked[:_FIRST]:
        device.local.answer(case.sample)
        _ask(remote, case)
    began = time.perf_counter()
    for case in first:
        device.local.answer(case.sample)
    local_s = (time.perf_counter() - began) / len(first)
    began = time.perf_counter()
    answers = [(case, _ask(remote, case)) for case in asked]
    remote_s = (time.perf_counter() - began) / len(asked)
    for case, label in answers:
        comparison.check(label == case.remote)
    return Timing(1000 * local_s, 1000 * remote_s, len(asked))


def _ask(remote: OpenInference, case: Case) -> str:
    label = remote.ask([case.sample], Deadline.after(DEADLINE_S, time.monotonic())).labels[0]
    return fashion.CLASSES[int(label)]
