"""R1: whatever the remote does, every sample gets one answer, from the local model, and no exception comes out."""

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
from tests.device.worlds import KINDS, LOCAL, true_label
from tests.faults.counts import SENT, SENT_AS_JSON, SENT_BY_LOOP, SHIELDED, SWITCHED
from tests.faults.setting import (
    FAULTS,
    LONG_S,
    SHORT_S,
    WAITING,
    check_local,
    each_fault,
    each_kind,
    introduced,
    made,
    proxied,
    row,
    rows,
    tireless,
)
from tests.support.chaos import ChaosProxy, Fault

THREADS = 8


@each_kind
@each_fault
def test_r1_behind_a_breaker(kind: Any, fault: Fault) -> None:
    samples = rows(SHIELDED)
    with proxied() as proxy:
        proxy.fault, proxy.faults_metadata = fault, True
        remote = OpenInference(proxy.url, model="remote")
        with made(kind, remote, deadline_s=0.1 if fault in WAITING else LONG_S) as device:
            check_local([device.infer(sample) for sample in samples[:-20]] + device.infer_many(samples[-20:]), samples)
            status = device.status
    assert status.samples == sum(status.fell_back.values()) == len(samples)
    assert (status.answered_by_remote, status.attempts.under_way) == (0, 0)
    assert device.policy.learned == 0


def infer_all(kind: Any, device: Any, samples: list[Any]) -> list[Answer]:
    """One request for each sample, several at a time."""
    if kind is not KINDS[0]:
        answers: list[Answer] = device.infer_many(samples)
        return answers
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(device.infer, samples))


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
@each_kind
@each_fault
def test_r1_every_sample_is_really_sent(kind: Any, fault: Fault, binary: bool) -> None:
    threads = kind is KINDS[0]
    samples = rows((SENT if threads else SENT_BY_LOOP) if binary else SENT_AS_JSON)
    deadline_s = SHORT_S if fault in WAITING else LONG_S
    with proxied(binary=binary) as proxy:
        remote = introduced(proxy)
        proxy.fault = fault
        terms: dict[str, Any] = {"deadline_s": deadline_s, "breaker": tireless(), "batch": 1, "in_flight": THREADS}
        with made(kind, remote, **terms) as device:
            check_local(infer_all(kind, device, samples), samples)
            status = device.status
    assert sum(status.fell_back.values()) == len(samples)
    assert status.attempts.attempts >= len(samples)
    assert ("late" in status.fell_back) == (fault in WAITING)
    if fault not in {*WAITING, Fault.REFUSE}:
        assert len(proxy.attempts) == status.attempts.attempts


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
        always: dict[str, Any] = {"policy": AlwaysRemote(bins=16), "price": FixedCost(0.5), "breaker": breaker}
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
