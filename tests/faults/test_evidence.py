"""R4: what failed, came late or made no sense teaches nothing: the gate is bit by bit as if it had only waited.

Where the price is measured, what a failure cost counts in the price, and nothing else is learned.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hinge import Answer, FixedCost, Gate
from hinge.device.store import Store
from hinge.policies.policy import State
from hinge.price import COUNT, SUM
from tests.device.worlds import KINDS, measured, policy, true_label
from tests.faults.counts import FAULTY, LATE
from tests.faults.setting import (
    FAULTS,
    LONG_S,
    SHORT_S,
    WAITING,
    each_kind,
    introduced,
    made,
    proxied,
    row,
    tireless,
)
from tests.support.chaos import Fault

REPLIES = [fault for fault in FAULTS if fault not in {*WAITING, Fault.REFUSE}]


GATES = {"16 bins": lambda: Gate(policy(offload_cost=0.2)), "fitted": lambda: Gate(offload_cost=0.2)}


def text(state: State) -> str:
    return json.dumps(state, sort_keys=True)  # floats are written in full, so that equal texts are equal bits


def evidence(gate: Gate) -> State:
    table = gate.policy.state()["table"]
    return {name: table[name] for name in gate.policy.evidence}


def only_waited(before: str, answers: list[Answer]) -> State:
    """The gate after the same decisions, of which it was told nothing but what they cost."""
    twin = Gate.restore(json.loads(before))
    for answer in sorted(answers, key=lambda answer: answer.decision.time or 0):
        decision = twin.decide(confidence=answer.confidence)
        assert decision == answer.decision
        twin.forget(decision, answer.cost)
    return twin.state()


def taught(device: Any) -> list[Any]:
    """Samples that are offloaded, whatever comes of it, after the gate has learned from others."""
    for number in range(600):
        device.infer(row(number))
    assert device.policy.learned > 50
    found = [row(number) for number in range(1000) if "is offloaded" in device.explain(row(number)).reason]
    assert len(found) > 20
    return found


@each_kind
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_r4_the_state_is_bit_identical_after_faulty_replies(
    kind: Any, gate: str, on_disk: bool, tmp_path: Path
) -> None:
    replies = FAULTY if kind is KINDS[0] else FAULTY // 5
    settings = {"breaker": tireless(), "state": tmp_path if on_disk else None}
    with proxied() as proxy:
        remote = introduced(proxy)
        with made(kind, remote, deadline_s=LONG_S, gate=GATES[gate](), **settings) as device:
            samples, answers = taught(device), list[Answer]()
            before, known = text(device.state()), evidence(device.gate)
            each = -(-replies // len(REPLIES))
            for fault in REPLIES:
                proxy.fault = fault
                answers += [device.infer(samples[number % len(samples)]) for number in range(each)]
            assert sum(device.status.fell_back.values()) == len(answers) >= replies
            assert (evidence(device.gate), len(device.policy.pending)) == (known, 0)
            assert text(device.state()) == text(only_waited(before, answers))
    if on_disk:
        with Store(tmp_path) as store:
            assert text(store.gate.state()) == text(device.state())


@each_kind
def test_r4_a_measured_price_counts_what_failed_and_nothing_else_is_learned(kind: Any) -> None:
    price = FixedCost(0.2)
    with proxied() as proxy:
        remote = introduced(proxy)
        settings = {"breaker": tireless(), "price": price, "gate": measured()}
        with made(kind, remote, deadline_s=LONG_S, **settings) as device:
            samples, answers = taught(device), list[Answer]()
            before, known, paid = text(device.state()), evidence(device.gate), list(device.gate.price.sums)
            for number, fault in enumerate(5 * REPLIES):
                proxy.fault = fault
                answers.append(device.infer(samples[number % len(samples)]))
            assert {answer.source for answer in answers} == {"local"}
            assert (evidence(device.gate), len(device.policy.pending)) == (known, 0)
            sums = device.gate.price.sums
            assert sums[COUNT] - paid[COUNT] == len(answers)
            assert sums[SUM] - paid[SUM] == pytest.approx(0.2 * len(answers))
            assert text(device.state()) == text(only_waited(before, answers))


@each_kind
def test_r4_a_reply_after_the_deadline_teaches_nothing(kind: Any) -> None:
    came, lock = [0], threading.Lock()

    def slow(sample: Any) -> Any:
        time.sleep(2 * SHORT_S)
        with lock:
            came[0] += 1
        return true_label(int(sample.item()))

    samples = [row(number) for number in range(LATE)]
    terms: dict[str, Any] = {"deadline_s": SHORT_S, "breaker": tireless(), "in_flight": 64}
    with made(kind, slow, **terms) as device:
        before = text(device.state())
        if kind is KINDS[0]:
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(device.infer, samples))
        else:
            answers = [device.infer(sample) for sample in samples]
        for _ in range(500):
            if came[0] == len(samples):
                break
            time.sleep(0.01)
        assert came[0] == len(samples)  # they have all come by now, too late
        assert {(answer.source, answer.fault) for answer in answers} == {("local", "no answer in time")}
        assert text(device.state()) == text(only_waited(before, answers))


@each_kind
def test_r4_a_response_that_is_whole_after_the_deadline_teaches_nothing(kind: Any) -> None:
    samples = [row(number) for number in range(LATE // 10)]
    with proxied(byte_s=SHORT_S / 20) as proxy:
        remote = introduced(proxy)
        proxy.fault = Fault.DRIP
        with made(kind, remote, deadline_s=SHORT_S, breaker=tireless()) as device:
            before = text(device.state())
            answers = [device.infer(sample) for sample in samples]
            assert device.status.fell_back == {"late": len(samples)}
            assert text(device.state()) == text(only_waited(before, answers))
            proxy.fault = Fault.NONE
            assert device.policy.learned == 0
