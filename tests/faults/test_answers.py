"""R1, R2: whatever the remote does, every sample gets one answer by its deadline, and no exception comes out.

What is asserted of time holds on any machine; `benchmarks/faults.py` has the times.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from hinge import Answer, Breaker, Device, FixedCost, OpenInference
from hinge.policies import AlwaysRemote
from tests.device.worlds import KINDS, LOCAL, REMOTE, true_label
from tests.faults.counts import SENT, SHIELDED, STALLED, SWITCHED
from tests.faults.hanging import full_port
from tests.faults.setting import (
    FAULTS,
    LONG_S,
    SHORT_S,
    WAITING,
    check_local,
    each_kind,
    introduced,
    made,
    proxied,
    row,
    rows,
    tireless,
)
from tests.support.chaos import ChaosProxy, Fault
from tests.support.loopback import OipServer

THREADS = 8
HANGS_S = 1.0  # over the deadline: far more than any machine needs, and far less than a remote that is waited for takes


# How each fault is told, with its kind: what a proxy did not do would be told otherwise, or not at all.
TOLD = {
    Fault.REFUSE: ("unreachable", "cannot be reached"),
    Fault.STALL: ("late", "no answer in time"),
    Fault.DRIP: ("late", "no answer in time"),
    Fault.RESET: ("unreachable", "cannot be reached"),
    Fault.EMPTY: ("unreachable", "closed the connection without a response"),
    Fault.TRUNCATE: ("invalid", "no HTTP: Response payload is not completed"),
    Fault.STATUS_500: ("error", "HTTP 500, 'internal error'"),
    Fault.GARBAGE: ("invalid", "no HTTP: "),
    Fault.GARBAGE_BODY: ("invalid", "JSON: "),
    Fault.NAN: ("invalid", "the scores are not finite"),
    Fault.WRONG_SHAPE: ("invalid", "shape"),
    Fault.WRONG_ID: ("invalid", "the response is to request 'not-"),
}


def infer_all(kind: Any, device: Any, samples: list[Any]) -> list[tuple[float, Answer]]:
    """One request for each sample, several at a time: how long each took, and its answer."""

    def infer(sample: Any) -> tuple[float, Answer]:
        began = time.monotonic()
        answer: Answer = device.infer(sample)
        return time.monotonic() - began, answer

    if kind is not KINDS[0]:  # whose loop runs in this thread
        return [infer(sample) for sample in samples]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(infer, samples))


@each_kind
@pytest.mark.parametrize("fault", TOLD, ids=lambda fault: fault.name)
def test_r1_r2_every_sample_is_sent_and_has_one_local_answer_by_the_deadline(kind: Any, fault: Fault) -> None:
    samples = rows(SENT)
    deadline_s = SHORT_S if fault in WAITING else LONG_S
    with proxied(byte_s=SHORT_S / 10) as proxy:  # each byte comes well within the deadline, and all of them do not
        remote = introduced(proxy)
        proxy.fault = fault
        with made(kind, remote, deadline_s=deadline_s, breaker=tireless(), batch=1, in_flight=THREADS) as device:
            took, answers = zip(*infer_all(kind, device, samples), strict=True)
            status = device.status
    check_local(answers, samples)
    assert max(took) < deadline_s + HANGS_S
    reported, text = TOLD[fault]
    assert status.samples == sum(status.fell_back.values()) == len(samples)
    assert (status.answered_by_remote, status.attempts.under_way, device.policy.learned) == (0, 0, 0)
    assert status.fell_back == {reported: len(samples)}
    assert all(text in str(answer.fault) for answer in answers)
    assert fault in {*WAITING, Fault.REFUSE} or proxy.inferences >= len(samples)


@each_kind
def test_r2_connecting_to_a_black_hole_is_part_of_the_deadline(kind: Any) -> None:
    samples = rows(STALLED)
    with full_port() as url:
        remote = OpenInference(url, model="remote")
        with made(kind, remote, deadline_s=SHORT_S, breaker=tireless()) as device:
            took, answers = zip(*infer_all(kind, device, samples), strict=True)
            assert device.status.fell_back == {"late": len(samples)}
    check_local(answers, samples)
    assert max(took) < SHORT_S + HANGS_S


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


@each_kind
def test_r1_behind_a_breaker(kind: Any) -> None:
    """A few samples are sent, and all others answered at once."""
    samples = rows(SHIELDED)
    with proxied() as proxy:
        remote = introduced(proxy)
        proxy.fault = Fault.STALL
        with made(kind, remote, deadline_s=0.1) as device:
            check_local([device.infer(sample) for sample in samples[:-20]] + device.infer_many(samples[-20:]), samples)
            assert device.status.fell_back["breaker"] >= len(samples) - 20


@contextmanager
def weather(proxy: ChaosProxy, seed: int) -> Iterator[list[Fault]]:
    """Faults come and go, each for a moment, until the block ends."""
    chance, over, seen = random.Random(seed), threading.Event(), list[Fault]()

    def blow() -> None:
        while not over.wait(chance.uniform(0.001, 0.01)):
            proxy.fault = chance.choice([*FAULTS, Fault.NONE, Fault.NONE, Fault.NONE])
            seen.append(proxy.fault)

    wind = threading.Thread(target=blow, name="weather")
    wind.start()
    try:
        yield seen
    finally:
        over.set()
        wind.join(30)


@pytest.mark.parametrize("opens", [False, True], ids=["every sample sent", "with a breaker"])
def test_r1_faults_come_and_go_under_eight_threads(opens: bool) -> None:
    samples, pause_s = rows(SWITCHED), 0.001
    breaker = Breaker(failures=5, interval_s=0.02) if opens else tireless()

    def infer(sample: Any) -> Answer:
        time.sleep(pause_s)
        answer: Answer = device.infer(sample)
        return answer

    with proxied() as proxy:
        remote = introduced(proxy)
        always: dict[str, Any] = {"gate": AlwaysRemote(bins=16), "price": FixedCost(0.5), "breaker": breaker}
        with made(Device, remote, deadline_s=0.015, **always) as device, weather(proxy, seed=1 + opens):
            with ThreadPoolExecutor(THREADS) as pool:
                answers = list(pool.map(infer, samples))
            status = device.status
    for number, answer in enumerate(answers):
        assert answer.label == (true_label(number) if answer.source == "remote" else LOCAL.answer(row(number))[0])
        assert (answer.fault is None) == (answer.source == "remote")
    sources = Counter(answer.source for answer in answers)
    assert status.answered_by_remote == sources["remote"] == device.policy.learned
    assert sources["remote"] + sum(status.fell_back.values()) == len(samples) == status.samples
    assert device.policy.state()["pending"] == []
