"""R2: one deadline for all of an offload. What is asserted holds anywhere; `benchmarks/faults.py` has the times."""

import time
from typing import Any

import pytest

from hinge import Answer, OpenInference
from tests.device.worlds import REMOTE
from tests.faults.counts import STALLED
from tests.faults.hanging import full_port
from tests.faults.setting import SHORT_S, check_local, each_kind, introduced, made, proxied, rows, tireless
from tests.support.chaos import Fault
from tests.support.loopback import OipServer

HANGS_S = 1.0  # over the deadline: far more than any machine needs, and far less than a remote that is waited for takes


def timed(device: Any, samples: list[Any]) -> list[Answer]:
    """The answers, of which none took long after its deadline."""
    answers = []
    for sample in samples:
        began = time.monotonic()
        answers.append(device.infer(sample))
        assert time.monotonic() - began < SHORT_S + HANGS_S
    return answers


@each_kind
@pytest.mark.parametrize("fault", [Fault.STALL, Fault.DRIP, Fault.BLACK_HOLE], ids=lambda fault: fault.name)
def test_r2_a_stalled_remote_is_left_at_the_deadline(kind: Any, fault: Fault) -> None:
    samples = rows(STALLED)
    with proxied(byte_s=SHORT_S / 10) as proxy:  # each byte comes well within the deadline, and all of them do not
        remote = introduced(proxy)
        proxy.fault = fault
        with made(kind, remote, deadline_s=SHORT_S, breaker=tireless()) as device:
            check_local(timed(device, samples), samples)
            assert device.status.fell_back == {"late": len(samples)}


@each_kind
def test_r2_connecting_is_part_of_the_deadline(kind: Any) -> None:
    samples = rows(STALLED)
    with full_port() as url:
        remote = OpenInference(url, model="remote")
        with made(kind, remote, deadline_s=SHORT_S, breaker=tireless()) as device:
            check_local(timed(device, samples), samples)
            assert device.status.fell_back == {"late": len(samples)}


@each_kind
def test_r2_retries_are_part_of_the_deadline(kind: Any) -> None:
    """The first attempt fails at three fifths of the deadline, so that the second must be cut short."""
    with OipServer.of_labels(REMOTE, 10) as server:

        def fails_slowly(_: Any) -> Any:
            time.sleep(0.15)
            raise ValueError("slowly")

        server.answer = fails_slowly
        with made(kind, OpenInference(server.url, model="remote"), deadline_s=0.25) as device:
            samples = rows(1)
            check_local([device.infer(samples[0])], samples)
            status = device.status
    assert sum(status.fell_back.values()) == 1
    assert status.attempts.attempts <= 2
    assert status.attempts.under_way == 0
