"""A device answers, learns and falls back as the policy and the terms say, with threads and with an event loop."""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from hinge import (
    HILCB,
    Breaker,
    Classification,
    CostMatrix,
    Decision,
    Device,
    FixedCost,
    Gate,
    InvalidState,
    MeasuredCost,
    OnnxModel,
    Target,
    Thompson,
    UniformBins,
    fashion,
)
from hinge.device.store import Store
from hinge.errors import InvalidModel, RemoteInvalid, RemoteLate, RemoteUnreachable
from hinge.policies import HILF, AlwaysRemote
from hinge.remotes import Reply
from hinge.traces import read_log
from tests.device.worlds import KINDS, LOCAL, Scripted, measured, policy, true_label

patient = partial(Device, deadline_s=30)  # where time is not what matters, a busy machine must not matter either
DOWN = RemoteUnreachable("cannot be reached")
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["threads", "event loop"])


def content(device: Any) -> str:
    """What the policy knows, without whose it is."""
    return json.dumps({**device.policy.state(), "id": ""}, sort_keys=True)


@pytest.mark.medium
@each_kind
def test_answers_and_learns_as_the_policy_alone_would(kind: Any) -> None:
    alone = policy()
    remote = Scripted()
    with kind(LOCAL, remote, policy()) as device:
        for sample in range(3000):
            answer = device.infer(sample)
            label, confidence = LOCAL.answer(sample)
            decision = alone.decide(UniformBins(16).bin(confidence))
            assert answer.decision.offload == decision.offload
            assert answer.offloaded == decision.offload
            assert answer.source == ("remote" if decision.offload else "local")
            assert answer.label == (true_label(sample) if decision.offload else label)
            assert answer.confidence == confidence
            assert answer.cost == (0.5 if decision.offload else 0.0)
            assert answer.fault is None
            if decision.offload:
                alone.learn(decision, label == true_label(sample), 0.5)
        assert content(device) == json.dumps({**alone.state(), "id": ""}, sort_keys=True)
    assert remote.closed
    assert 0 < len(remote.asked) < 3000


@each_kind
def test_every_answer_says_who_gave_it_and_why(kind: Any) -> None:
    with kind(LOCAL, Scripted(), policy()) as device:
        first = device.infer(0)
        assert " is offloaded: " in first.reason
        answers = [device.infer(sample) for sample in range(2000)]
        accepted = next(answer for answer in reversed(answers) if answer.source == "local")
        assert " is accepted for " in accepted.reason
        assert accepted.why.offloads is not None
        described = accepted.as_dict()
        assert json.loads(json.dumps(described)) == described
        assert described["decision"] == "accept"
        assert (described["local"], described["remote"]) == (accepted.label, None)
        offloaded = next(answer for answer in answers if answer.source == "remote" and answer.label != answer.local)
        assert (offloaded.as_dict()["local"], offloaded.as_dict()["remote"]) == (offloaded.local, offloaded.label)
        assert described["samples_left"] == accepted.why.samples_left


@each_kind
def test_the_reason_of_the_last_sample_of_a_licence_is_that_of_the_decision(kind: Any) -> None:
    last = 0
    with kind(LOCAL, Scripted(), policy()) as device:
        for sample in range(1000):
            answer = device.infer(sample)
            reason = answer.reason
            assert reason == answer.as_dict()["reason"]
            if answer.decision.offload != bool(answer.why.offload_probability):
                last += answer.source == "local"
                done = "Offloaded" if answer.decision.offload else "Accepted"
                assert reason == f"{done} by what was known. The next: {answer.why.reason}"
            else:
                assert reason == answer.why.reason
    assert last > 3


@each_kind
def test_reasons_speak_of_confidences_and_logs_of_what_was_in_one_bin_at_one_time(kind: Any) -> None:
    with kind(LOCAL, Scripted(), Gate(offload_cost=0.3)) as device:
        answers = [device.infer(sample) for sample in range(3000)]
        for answer in answers[-200:]:
            low, high = map(float, re.findall(r"Confidence ([\d.]+)–([\d.]+) ", answer.reason)[0])
            assert low - 0.01 <= answer.confidence <= high + 0.01
            assert "Bin" not in answer.reason
    found: dict[int, list[float]] = {}
    for answer in answers:
        found.setdefault(answer.as_dict()["bin"], []).append(answer.confidence)
    assert len(found) > 16
    ends = sorted((group // 16, min(sure), max(sure)) for group, sure in found.items())
    assert all(one[0] != two[0] or one[2] < two[1] for one, two in pairwise(ends))


@pytest.mark.medium
@each_kind
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in batches"])
def test_answers_are_dated_in_logs(kind: Any, together: bool, tmp_path: Path) -> None:
    with kind(LOCAL, Scripted(), policy()) as device:
        answers = device.infer_many(range(3000)) if together else [device.infer(sample) for sample in range(3000)]
    rows = [answer.as_dict() for answer in answers]
    times = [datetime.fromisoformat(row["time"]) for row in rows]
    assert times == sorted(times)
    assert abs(datetime.now(UTC) - times[-1]) < timedelta(minutes=5)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_log(tmp_path / "log.jsonl")
    assert log.offloaded.tolist() == [answer.source == "remote" for answer in answers]
    assert log.bin is not None


@each_kind
def test_a_failing_remote_leaves_the_local_answer_and_teaches_nothing(kind: Any) -> None:
    with kind(LOCAL, Scripted(rest=DOWN), policy()) as device:
        before = content(device)
        answers = [device.infer(sample) for sample in range(50)]
        after = json.loads(content(device))
    assert [answer.label for answer in answers] == [LOCAL.answer(sample)[0] for sample in range(50)]
    assert {answer.source for answer in answers} == {"local"}
    assert all(answer.fault for answer in answers)
    assert "The remote's answer could not be had: cannot be reached; the local one stands." in answers[0].reason
    assert "failed 5 times; next try in" in str(answers[-1].fault)
    assert {**after, "time": 0, "as_of": 0} == {**json.loads(before), "time": 0, "as_of": 0}


@each_kind
@pytest.mark.parametrize(
    "reply", [Reply([]), Reply([1, 2]), Reply([True], -1), ValueError("anything"), KeyError("?")], ids=repr
)
def test_replies_that_make_no_sense_are_failures(kind: Any, reply: Any) -> None:
    prices = [[float(row != column) for column in range(10)] for row in range(10)]
    with kind(LOCAL, Scripted(rest=reply), policy(), task=Classification(wrong=CostMatrix(prices))) as device:
        answer = device.infer(0)
        assert (answer.source, answer.offloaded) == ("local", True)
        assert device.policy.learned == 0
        assert sum(device.status.fell_back.values()) == 1


@each_kind
def test_a_connection_that_failed_is_tried_once_more(kind: Any) -> None:
    remote = Scripted([DOWN, None])
    with kind(LOCAL, remote, policy()) as device:
        assert device.infer(0).source == "remote"
    assert remote.asked == [[0], [0]]
    remote = Scripted([DOWN, DOWN, None])
    with kind(LOCAL, remote, policy()) as device:
        assert device.infer(0).source == "local"
    assert remote.asked == [[0], [0]]


@each_kind
def test_what_is_late_or_invalid_is_not_tried_again(kind: Any) -> None:
    for fault in (RemoteLate("no answer in time"), RemoteInvalid("garbage")):
        remote = Scripted([fault])
        with kind(LOCAL, remote, policy()) as device:
            assert device.infer(0).source == "local"
        assert remote.asked == [[0]]


@each_kind
def test_a_slow_function_is_left_behind_at_the_deadline(kind: Any) -> None:
    hold = Event()

    def slow(sample: int) -> Any:
        hold.wait(30)
        return true_label(sample)

    with kind(LOCAL, slow, policy(), deadline_s=0.05) as device:
        answers = [device.infer(sample) for sample in range(8)]
        hold.set()  # now the late replies come
        time.sleep(0.1)
        assert {(answer.source, answer.fault is None) for answer in answers} == {("local", False)}
        assert answers[0].fault == "no answer in time"
        assert device.policy.learned == 0
        assert device.policy.state()["pending"] == []


def test_an_event_loop_may_ask_a_coroutine() -> None:
    async def remote(sample: int) -> Any:
        return true_label(sample)

    with KINDS[1](LOCAL, remote, policy()) as device:
        assert device.infer(7).label == true_label(7)
    with pytest.raises(TypeError, match="got a coroutine function, which AsyncDevice takes"):
        patient(LOCAL, remote, policy())


@each_kind
def test_a_batch_is_decided_at_once_and_offloaded_in_parts(kind: Any) -> None:
    alone, remote = policy(), Scripted()
    bins = [UniformBins(16).bin(LOCAL.answer(sample)[1]) for sample in range(500)]
    offloads = [decision.offload for decision in alone.decide_many(bins)]
    with kind(LOCAL, remote, policy(), batch=32) as device:
        answers = device.infer_many(range(500), together=True)
        assert device.policy.learned == sum(offloads)
        again = device.infer_many(range(500))
        assert device.infer_many([]) == []
    assert [answer.decision.offload for answer in answers] == offloads
    for sample, answer in enumerate(answers):
        assert answer.label == (true_label(sample) if answer.offloaded else LOCAL.answer(sample)[0])
    assert max(map(len, remote.asked)) == 32
    assert sorted(sample for part in remote.asked[:16] for sample in part) == list(range(500))
    assert sum(answer.offloaded for answer in again) < 500


@each_kind
def test_a_batch_learns_as_it_goes(kind: Any) -> None:
    """One request at a time, each of the samples that are not accepted by what those before it have taught."""
    remote, samples = Scripted(), range(700, 3000)
    with kind(LOCAL, remote, policy(), batch=20, in_flight=1) as device:
        answers = device.infer_many(samples)
        assert device.policy.learned == sum(answer.offloaded for answer in answers) < 1000
        assert (device.policy.time, device.policy.state()["pending"]) == (2300, [])
    assert [sample for part in remote.asked for sample in part] == [
        sample for sample, answer in zip(samples, answers, strict=True) if answer.offloaded
    ]
    for sample, answer in zip(samples, answers, strict=True):
        assert answer.label == (true_label(sample) if answer.offloaded else LOCAL.answer(sample)[0])
    alone, waiting = policy(), list[tuple[Decision, bool]]()
    for sample, answer in zip(samples, answers, strict=True):
        label, confidence = LOCAL.answer(sample)
        decision = alone.decide(UniformBins(16).bin(confidence))
        assert answer.decision.offload == decision.offload
        waiting += [(decision, label == true_label(sample))] * decision.offload
        if len(waiting) == 20:
            for each in waiting:
                alone.learn(*each)
            waiting.clear()


@each_kind
def test_a_device_with_experience_has_all_its_requests_in_flight(kind: Any) -> None:
    """AlwaysRemote: 10, 10, 20 and then 40 at once, in requests of 10."""

    class Together:
        def __init__(self) -> None:
            self.asked, self.all_four = list[list[int]](), Barrier(4)

        def ask(self, samples: Sequence[int], deadline: Any) -> Reply:
            self.asked.append(list(samples))
            if samples[0] >= 40:
                self.all_four.wait(30)  # fails unless four requests come here
            return Reply([true_label(sample) for sample in samples])

        def close(self) -> None:
            pass

    remote = Together()
    with kind(LOCAL, remote, AlwaysRemote(16), price=FixedCost(0.5), batch=10, in_flight=4) as device:
        answers = device.infer_many(range(160))
    assert [answer.label for answer in answers] == [true_label(sample) for sample in range(160)]
    assert {answer.source for answer in answers} == {"remote"}
    assert remote.asked[:2] == [[*range(10)], [*range(10, 20)]]
    assert {*map(len, remote.asked)} == {10}


@each_kind
def test_a_batch_of_which_a_sample_is_refused_decides_nothing(kind: Any) -> None:
    class Short:
        def answer(self, sample: int) -> tuple[int, float]:
            return 1, 1.5 if sample == 99 else 0.9

        def answer_many(self, samples: Sequence[int]) -> list[tuple[int, float]]:
            return [self.answer(sample) for sample in samples if sample != 42]

    with kind(Short(), Scripted(), policy()) as device:
        with pytest.raises(ValueError, match=r"got 1\.5"):
            device.infer_many(range(50, 100))
        with pytest.raises(ValueError, match=r"^Device: local must answer each of 50 samples, got 49 answers$"):
            device.infer_many(range(50))
        assert device.policy.time == 0


@each_kind
def test_a_batch_survives_the_failure_of_a_part(kind: Any) -> None:
    with kind(LOCAL, Scripted([None, RemoteInvalid("no")]), policy(), batch=10) as device:
        answers = device.infer_many(range(50), together=True)
    assert Counter(answer.source for answer in answers) == {"remote": 40, "local": 10}
    assert device.policy.learned == 40


@pytest.mark.medium
def test_eight_threads_lose_and_double_nothing(tmp_path: Path) -> None:
    """Each decision once, each offload learned once, in memory and on disk."""
    for state in (None, tmp_path):
        remote = Scripted()
        with patient(LOCAL, remote, policy(), state=state) as device, ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(device.infer, range(8000)))
            status = device.status
        assert [answer.label for answer in answers] == [
            true_label(sample) if answer.source == "remote" else LOCAL.answer(sample)[0]
            for sample, answer in enumerate(answers)
        ]
        asked = Counter(sample for part in remote.asked for sample in part)
        assert asked == Counter(sample for sample, answer in enumerate(answers) if answer.offloaded)
        assert max(asked.values()) == 1
        assert device.policy.time == status.samples == 8000
        assert device.policy.learned == status.answered_by_remote == len(asked)
        assert device.policy.state()["pending"] == []
        times = [answer.decision.time for answer in answers if answer.offloaded]
        assert len(set(times)) == len(times)
        assert not status.fell_back


@each_kind
def test_in_shadow_answers_stay_local_and_the_policy_learns_behind(kind: Any) -> None:
    remote = Scripted()
    with kind(LOCAL, remote, policy(), shadow="local") as device:
        answers = [device.infer(sample) for sample in range(200)] + device.infer_many(range(200, 220))
    assert [answer.label for answer in answers] == [LOCAL.answer(sample)[0] for sample in range(220)]
    assert {answer.source for answer in answers} == {"local"}
    assert not any(answer.offloaded for answer in answers)
    assert "In shadow, the local answer stands." in answers[0].reason
    assert device.policy.learned == len(remote.asked) > 0
    assert device.policy.state()["pending"] == []


@pytest.mark.medium
@each_kind
def test_in_shadow_of_the_remote_it_answers_everything(kind: Any) -> None:
    remote, alone = Scripted(), policy()
    with kind(LOCAL, remote, policy(), shadow="remote") as device:
        answers = [device.infer(sample) for sample in range(2000)]
        assert content(device) == _driven(alone, 2000)
    assert [answer.label for answer in answers] == [true_label(sample) for sample in range(2000)]
    spared = [answer for answer in answers if not answer.decision.offload]
    assert spared
    assert [answer for answer in answers if answer.audit] == spared  # HI-LCB itself makes none
    assert spared[-1].reason.endswith("In shadow, the remote was asked all the same.")


def _driven(alone: Any, samples: int) -> str:
    for sample in range(samples):
        label, confidence = LOCAL.answer(sample)
        decision = alone.decide(UniformBins(16).bin(confidence))
        if decision.offload:
            alone.learn(decision, label == true_label(sample), 0.5)
    return json.dumps({**alone.state(), "id": ""}, sort_keys=True)


@pytest.mark.medium
def test_the_state_survives_the_process(tmp_path: Path) -> None:
    with patient(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        for sample in range(1000):
            device.infer(sample)
        before = content(device)
        assert (device.status.on_disk, device.status.not_durable) == (True, None)
    with patient(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        assert content(device) == before
        assert device.status.samples == 0
        for sample in range(1000, 2000):
            device.infer(sample)
        after = content(device)
    with patient(LOCAL, Scripted(), policy()) as device:
        for sample in range(2000):
            device.infer(sample)
        assert content(device) == after
        assert (device.status.on_disk, device.status.not_durable) == (False, None)
    with pytest.raises(InvalidState, match="offload_cost"):
        patient(LOCAL, Scripted(), policy(offload_cost=0.3), state=tmp_path)


def test_r10_a_broken_new_model_leaves_the_old_one_serving(tmp_path: Path) -> None:
    images, _ = fashion.labelled_images()
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(fashion.local_model().read_bytes()[:5000])
    with patient(OnnxModel(fashion.local_model()), lambda _: 0, policy()) as device:
        old = device.local
        with pytest.raises(InvalidModel):
            device.local = OnnxModel(broken)
        nothing: Any = 3
        with pytest.raises(TypeError, match="local must be a model or a function"):
            device.local = nothing
        assert device.local is old
        assert device.infer(images[0]).confidence > 0
        device.local = OnnxModel(fashion.remote_model())
        assert device.local is not old
        assert device.infer(images[0]).label in range(10)


class Forecasting:
    """A price that knows beforehand: dear for even samples, cheap for odd ones, and at times unable to say."""

    def cost(self, *, latency_ms: float = 0.0, size_bytes: float = 0.0, calls: float = 1.0) -> float:
        return 0.4

    def forecast(self, sample: int) -> float | None:
        if sample % 7 == 0:
            raise OSError("no radio")
        return None if sample % 11 == 0 else 0.15 if sample % 2 else 0.9


def expected(sample: int) -> float | None:
    return None if sample % 7 == 0 else Forecasting().forecast(sample)


@pytest.mark.medium
@each_kind
def test_a_forecast_is_asked_before_each_decision(kind: Any) -> None:
    alone = measured()
    with kind(LOCAL, Scripted(), measured(), price=Forecasting(), deadline_s=30) as device:
        for sample in range(1500):
            answer = device.infer(sample)
            decision = alone.decide(confidence=answer.confidence, cost=expected(sample))
            assert answer.decision.offload == decision.offload
            if decision.offload:
                alone.learn(decision, agreed=LOCAL.answer(sample)[0] == true_label(sample), cost=0.4)
        batch = range(1500, 1600)
        answers = device.infer_many(batch)
    decided = [
        alone.decide(confidence=answer.confidence, cost=expected(sample)).offload
        for answer, sample in zip(answers, batch, strict=True)
    ]
    assert [answer.decision.offload for answer in answers] == decided
    assert 0 < sum(decided) < 100


@each_kind
@pytest.mark.parametrize(
    ("forecast", "why"), [(1.5, "price: forecast must be from 0 to 1, got 1.5"), (OSError(), "OSError")]
)
def test_a_forecast_that_fails_is_an_alarm(
    kind: Any, forecast: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Forecasting):
        def forecast(self, sample: int) -> float | None:
            if isinstance(forecast, Exception):
                raise forecast
            return float(forecast)

    with kind(LOCAL, Scripted(), measured(), price=Failing(), deadline_s=30) as device:
        for sample in range(100):
            device.infer(sample)
        device.infer_many(range(100, 200))
        assert device.status.alarms == {"the offload cost cannot be forecast": 1}
    assert caplog.messages == [f"the offload cost cannot be forecast: {why}"]


def test_a_forecast_that_the_policy_cannot_use_is_refused() -> None:
    with pytest.raises(TypeError, match="Device: price must not have a forecast, as 'always-remote' cannot use it"):
        Device(LOCAL, Scripted(), AlwaysRemote(16), price=Forecasting())


def test_a_measured_price_is_what_the_policy_learns() -> None:
    price = MeasuredCost(wrong_answer=1.0, per_call=0.1, per_byte=0.001, unit="€")
    with patient(LOCAL, Scripted(), measured(), price=price) as device:
        costs = [device.infer(sample).cost for sample in range(3)]
        assert costs == pytest.approx([0.1 + 0.1] * 3)
        assert device.status.offload_cost == pytest.approx(sum(costs))
        many = device.infer_many(range(3, 6))
    assert [answer.cost for answer in many] == pytest.approx([0.1 / 3 + 0.1] * 3)  # one call, and each its own bytes


def test_latency_is_measured_from_the_beginning_of_the_offload() -> None:
    price = MeasuredCost(wrong_answer=1000.0, per_ms=1.0, unit="ms")

    def slow(sample: int) -> Any:
        time.sleep(0.05)
        return true_label(sample)

    with patient(LOCAL, slow, measured(), price=price, deadline_s=10) as device:
        assert device.infer(0).cost >= 0.05


def test_classes_have_names() -> None:
    names = [f"class {k}" for k in range(10)]

    def scores(sample: int) -> list[float]:
        return [float(k == sample % 10) for k in range(10)]

    remote: Any = lambda sample: sample % 10 if sample % 2 else names[sample % 10]  # noqa: E731  # a number or a name
    with patient(scores, remote, policy(), task=Classification(names)) as device:
        answers = [device.infer(sample) for sample in range(20)]
    assert [answer.label for answer in answers] == [names[sample % 10] for sample in range(20)]
    with patient(scores, lambda _: 10, policy(), task=Classification(names)) as device:
        assert device.infer(0).fault == "an unknown label, 10"


def test_alarms_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="hinge")
    with patient(LOCAL, Scripted(rest=DOWN), policy()) as device:
        for sample in range(300):
            device.infer(sample)
        alarms = device.status.alarms
    assert alarms == {"the breaker opened": 1}
    assert [record.message for record in caplog.records] == ["the breaker opened: cannot be reached"]


@pytest.mark.medium
def test_the_end_of_an_outage_is_logged_as_its_begin_is(caplog: pytest.LogCaptureFixture) -> None:
    outage = [DOWN, DOWN, None]
    breaker = Breaker(failures=2, interval_s=0.5)
    asking = partial(Device, deadline_s=0.4, price=FixedCost(0.5))
    with asking(LOCAL, Scripted(outage * 2), AlwaysRemote(bins=16), breaker=breaker) as device:
        for sample in range(2 * len(outage)):
            time.sleep(0.6 if breaker.state == "open" else 0)
            device.infer(sample)
        assert (device.status.breaker, device.status.last_fault) == ("closed", "cannot be reached")
        assert device.status.alarms == {"the breaker opened": 1}
    again = ["the breaker opened: cannot be reached", "the remote answers again"]
    assert [record.message for record in caplog.records] == again * 2


def test_explaining_changes_nothing() -> None:
    with patient(LOCAL, Scripted(), policy()) as device:
        for sample in range(500):
            device.infer(sample)
        before = content(device)
        assert str(device.explain(3)).startswith("Confidence ")
        assert content(device) == before


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"deadline_s": 0}, "Device: deadline_s must be > 0, got 0"),
        ({"shadow": "both"}, "Device: shadow must be None, 'local' or 'remote', got 'both'"),
        ({"batch": 0}, "Device: batch must be an integer >= 1, got 0"),
        ({"deadline_s": 10, "breaker": Breaker(interval_s=10)}, "must be less than the breaker's interval_s, 10"),
        ({"deadline_s": 1e10}, "Device: deadline_s must be at most 1000000, got 10000000000.0"),
        ({"deadline_s": float("inf")}, "Device: deadline_s must be a finite number, got inf"),
        ({"price": 0.3}, r"Device: price must be such as FixedCost\(0.3\), a MeasuredCost, .*, got 0.3"),
        ({"price": lambda **_: 0.2}, r"Device: price must be such as FixedCost\(0.3\)"),
        ({"price": FixedCost}, r"Device: price must be such as FixedCost\(0.3\)"),
        ({"gate": Gate()}, "Device: price must say what an offload costs"),
        ({"gate": HILCB(16)}, "Device: price must say what an offload costs"),
        ({"gate": 3}, "Device: gate must be a Gate or a policy, got 3"),
        ({"gate": None}, "Device: gate, offload_cost or price must be given, got none of them"),
        ({"offload_cost": 0.5}, "Device: offload_cost is the gate's, and cannot be given beside it, got 0.5"),
        ({"remote": 3}, "Device: remote must be a remote or a function from sample to label, got 3"),
        ({"local": None}, "Device: local must be a model or a function from sample to scores, got None"),
        ({"gate": HILF(1000, bins=16)}, "Device: policy must learn from offloads alone"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_named(settings: dict[str, Any], problem: str) -> None:
    arguments = {"local": LOCAL, "remote": Scripted(), "gate": policy(), **settings}
    with pytest.raises((TypeError, ValueError), match=problem):
        Device(**arguments)


@each_kind
@pytest.mark.parametrize("chosen", [Target(0.95), AlwaysRemote(16)], ids=lambda each: each.name)
def test_a_policy_that_weighs_no_cost_needs_no_price(kind: Any, chosen: Any) -> None:
    with kind(LOCAL, Scripted(), Gate(policy=chosen.fresh())) as device:
        answers = [device.infer(sample) for sample in range(50)]
        assert {answer.source for answer in answers} >= {"remote"}
        assert {answer.cost for answer in answers} == {0.0}
        assert (device.status.offload_cost, device.status.alarms.get("offloads cost nothing")) == (0.0, None)


def test_a_deadline_of_days_can_be_waited_for() -> None:
    with Device(LOCAL, Scripted(), policy(), deadline_s=1e6) as device:
        assert device.infer(0).source == "remote"


@pytest.mark.parametrize("chosen", [HILCB(16, offload_cost=0.5), Thompson(16, offload_cost=0.5, seed=3)], ids=repr)
def test_other_policies_run_as_well(chosen: Any) -> None:
    with patient(LOCAL, Scripted(), chosen, price=FixedCost(0.5), breaker=Breaker(failures=3, interval_s=60)) as device:
        sources = Counter(device.infer(sample).source for sample in range(2000))
    assert min(sources["local"], sources["remote"]) > 0


@each_kind
def test_calls_that_never_return_end_neither_offloading_nor_the_process(kind: Any) -> None:
    hold, calls, down = Event(), list[int](), [True]

    def stuck(sample: int) -> Any:
        calls.append(sample)
        if down[0]:
            hold.wait(60)
        return true_label(sample)

    patient = Breaker(failures=1000, interval_s=1000)
    with kind(LOCAL, stuck, AlwaysRemote(16), price=FixedCost(0.5), deadline_s=0.01, breaker=patient) as device:
        answers = [device.infer(sample) for sample in range(200)]
        assert [answer.source for answer in answers] == ["local"] * 200
        assert 64 <= len(calls) < 64 + 5  # beyond that, one a second at most
        assert device.status.fell_back["queue"] >= 200 - len(calls)
        assert [*device.status.alarms] == ["calls of the remote do not return"]
        down[0] = False
        end = time.monotonic() + 20
        while device.infer(7).source == "local":
            assert time.monotonic() < end
            time.sleep(0.05)
        hold.set()


def test_closing_waits_for_what_other_threads_have_in_flight(tmp_path: Path) -> None:
    asked, answer = Event(), Event()

    def remote(_: float) -> int:
        asked.set()
        assert answer.wait(30)
        return 1

    local, gate, patient = lambda sample: [0.0, sample], Gate(offload_cost=0.5), Breaker(interval_s=60)
    device = Device(local, remote, gate, deadline_s=30, breaker=patient, state=tmp_path)
    thread = Thread(target=device.infer, args=(3.0,))
    thread.start()
    assert asked.wait(30)
    closing = Thread(target=device.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    answer.set()
    closing.join(30)
    thread.join(30)
    with Store(tmp_path) as kept:
        assert kept.policy.learned == 1
