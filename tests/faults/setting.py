"""A device behind the chaos proxy: samples are rows of a recording, and the server has the remote's answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hinge import Answer, Breaker, FixedCost, OpenInference
from hinge.policies import AlwaysRemote
from hinge.remotes import Deadline
from tests.device.worlds import KINDS, LOCAL, REMOTE, policy
from tests.support.chaos import ChaosProxy, Fault
from tests.support.loopback import OipServer

FAULTS = [fault for fault in Fault if fault is not Fault.NONE]
WAITING = {Fault.STALL, Fault.DRIP}  # what only the deadline ends
SHORT_S, LONG_S = 0.02, 10.0  # deadlines: one to wait for, and one that nothing here should reach
NAMES = dict(zip(KINDS, ("threads", "event loop"), strict=True))

each_kind = pytest.mark.parametrize("kind", KINDS, ids=NAMES.values())


def tireless() -> Breaker:
    """A breaker that never opens, so that every sample is really sent."""
    return Breaker(failures=10**9, interval_s=3600)


def row(number: int) -> Any:
    """A sample, as server and local model take it."""
    return np.array([number % len(REMOTE)])


def rows(count: int) -> list[Any]:
    return [row(number) for number in range(count)]


@contextmanager
def proxied(*, binary: bool = True, byte_s: float = 0.01) -> Iterator[ChaosProxy]:
    """The remote, with something on the way to it that does no harm yet."""
    with OipServer.of_labels(REMOTE, 10, binary=binary) as server, ChaosProxy(server.url, byte_s=byte_s) as proxy:
        yield proxy


def introduced(proxy: ChaosProxy) -> OpenInference:
    """A remote that knows its model already, so that the next thing it says is an inference."""
    remote = OpenInference(proxy.url, model="remote")
    remote.ask([row(0)], Deadline.after(LONG_S, now=time.monotonic()))
    remote.close()
    proxy.inferences = 0
    return remote


def made(kind: Any, remote: Any, *, deadline_s: float = LONG_S, **settings: Any) -> Any:
    """A device whose policy offloads everything, as long as nobody teaches it better."""
    return kind(LOCAL, remote, settings.pop("gate", None) or policy(), deadline_s=deadline_s, **settings)


def always(kind: Any, remote: Any, **settings: Any) -> Any:
    """A device that offloads every sample, and never leaves its remote alone."""
    terms = {"price": FixedCost(0.5), "breaker": tireless(), **settings}
    return kind(lambda _: [0.0, 0.1], remote, AlwaysRemote(bins=16), **terms)


def check_local(answers: Iterable[Answer], samples: list[Any]) -> None:
    """Each sample has its own local answer, marked as such, and it says why."""
    for answer, sample in zip(answers, samples, strict=True):
        label, confidence = LOCAL.answer(sample)
        assert (answer.label, answer.confidence, answer.source) == (label, confidence, "local")
        assert answer.decision.offload
        assert answer.fault
        assert answer.fault in answer.reason
