"""Devices of tasks other than classification: what they answer, learn, log and record."""

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hinge
from hinge import AsyncDevice, Device, Gate, OpenInference, Trace, load_trace, margin
from hinge.errors import InvalidModel, InvalidTrace
from hinge.oip.tensors import TensorSpec
from hinge.tasks import OCR, Detection, Regression, Transcription
from hinge.traces import read_log
from tests.support.loopback import OipServer

CAT = {"box": [0.0, 0.0, 10.0, 10.0], "label": "cat", "score": 0.8}
DOG = {"box": [20.0, 0.0, 30.0, 10.0], "label": "dog", "score": 0.7}


def one(device: Any, sample: Any) -> Any:
    answer = device.infer(sample)
    return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer


def close(device: Any) -> None:
    closing = device.close()
    if asyncio.iscoroutine(closing):
        asyncio.run(closing)


@pytest.mark.parametrize("kind", [Device, AsyncDevice])
def test_a_device_learns_how_far_answers_agree(kind: Any) -> None:
    device = kind(lambda _: [CAT], lambda _: [CAT, DOG], Gate(offload_cost=0.5), task=Detection(), deadline_s=30)
    answer = one(device, 0)
    assert (answer.label, answer.local, answer.source) == ([CAT, DOG], [CAT], "remote")
    assert (answer.confidence, answer.agreed) == (0.8, 2 / 3)
    assert device.gate.explain(0.8).agreement == device.status.agreed == 2 / 3
    close(device)


def test_what_is_no_answer_has_a_confidence_of_0_and_is_offloaded() -> None:
    with Device(lambda _: "", lambda _: "Exit", Gate(offload_cost=0.3), task=OCR(), deadline_s=30) as device:
        answers = [device.infer(0) for _ in range(30)]
    assert {(answer.confidence, answer.group, answer.source) for answer in answers} == {(0.0, 0, "remote")}


def test_batches_are_asked_for_where_the_local_model_takes_them() -> None:
    class Thermometer:
        asked: ClassVar[list[int]] = []

        def __call__(self, sample: float) -> Any:
            raise AssertionError("one by one")

        def many(self, samples: Any) -> list[Any]:
            self.asked.append(len(samples))
            return [{"value": sample, "low": sample - 0.1, "high": sample + 0.1} for sample in samples]

    gate = Gate(offload_cost=0.5)
    with Device(Thermometer(), lambda sample: sample + 1.0, gate, task=Regression(2.0), deadline_s=30) as device:
        answers = device.infer_many([1.0, 2.0, 3.0])
    assert [(answer.local, answer.label, answer.agreed) for answer in answers] == [(1, 2, 1), (2, 3, 1), (3, 4, 1)]
    assert Thermometer.asked == [3]


def test_a_remote_whose_answer_is_malformed_is_not_learned_from() -> None:
    with Device(lambda _: [CAT], lambda _: "[{]", Gate(offload_cost=0.5), task=Detection(), deadline_s=30) as device:
        answer = device.infer(0)
        assert (answer.source, answer.label, answer.agreed, device.policy.learned) == ("local", [CAT], None, 0)
        assert "Detection: an answer in text must be JSON" in str(answer.fault)


class Count:
    """A task of a user's own, with the errors that one makes."""

    def __init__(self, answer: Any = None, agreement: Any = None) -> None:
        self._answer, self._agreement = answer or int, agreement or (lambda one, other: one == other)

    def answer(self, output: Any) -> Any:
        return self._answer(output)

    def confidence(self, output: Any) -> float:
        return 0.9

    def agreement(self, local: Any, remote: Any) -> Any:
        return self._agreement(local, remote)


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (Count(agreement=lambda one, other: 1 / (one - other + 1)), "Count.agreement raised ZeroDivisionError"),
        (Count(agreement=lambda one, _: one["people"]), "Count.agreement raised TypeError"),
        (Count(agreement=lambda *_: 3.0), "Count: agreement must be from 0 to 1, got 3.0"),
        (Count(agreement=lambda *_: None), "Count: agreement must be a number, got None"),
        (Count(lambda output: {4: 4, 5: object()}[output]), "Count.answer must return plain data, as JSON has it"),
        (Count(lambda output: {4: 4, 5: float("nan")}[output]), "Count.answer must return plain data, as JSON has it"),
        (Count(lambda output: {4: 4}[output]), "Count.answer raised KeyError: 5"),
    ],
)
def test_a_tasks_own_error_is_named_and_not_the_remotes(task: Count, problem: str) -> None:
    with Device(lambda _: 4, lambda _: 5, Gate(offload_cost=0.5), task=task, deadline_s=30) as device:
        for _ in range(20):
            answer = device.infer(0)
            assert (answer.source, answer.label) == ("local", 4)
            assert problem in str(answer.fault)
        assert device.status.fell_back == {"task": 20}
        assert (device.status.breaker, device.policy.learned) == ("closed", 0)


def test_an_agreement_that_refuses_an_answer_is_named_too() -> None:
    """A ValueError says that the remote's answer is not to be compared; or it is a mistake in the task."""
    task: Any = Count(agreement=lambda *_: int("x"))
    with Device(lambda _: 4, lambda _: 5, Gate(offload_cost=0.5), task=task, deadline_s=30) as device:
        assert str(device.infer(0).fault).startswith("Count.agreement raised ValueError: invalid literal for int()")
        assert device.status.fell_back == {"invalid": 1}


NOT_PLAIN = {"object": object(), "nan": float("nan"), "inf": {"a": [float("inf")]}, "numpy": np.int64(3)}


@pytest.mark.parametrize("answer", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_a_local_answer_that_is_no_plain_data_is_named(answer: Any) -> None:
    device = Device(lambda _: 4, lambda _: 5, Gate(offload_cost=0.5), task=Count(lambda _: answer), deadline_s=30)
    with device, pytest.raises(InvalidModel, match=r"the local model: Count.answer must return plain data"):
        device.infer(0)


def test_an_answer_may_come_as_json() -> None:
    gate, sent = Gate(offload_cost=0.5), json.dumps([CAT])
    with Device(lambda _: [CAT], lambda _: sent, gate, task=Detection(), deadline_s=30) as device:
        assert device.infer(0).agreed == 1.0


@pytest.mark.parametrize("binary", [False, True])
def test_boxes_come_over_the_open_inference_protocol_as_text(binary: bool) -> None:
    def boxes(inputs: Any) -> dict[str, Any]:
        return {"boxes": np.array([json.dumps([CAT, DOG]).encode()] * len(inputs["sample"]), object)}

    spec = TensorSpec("boxes", "BYTES", (-1,))
    with OipServer(boxes, outputs=[spec], binary=binary) as server:
        remote = OpenInference(server.url, "remote")
        with Device(lambda _: [CAT], remote, Gate(offload_cost=0.5), task=Detection(), deadline_s=30) as device:
            answers = device.infer_many([np.zeros(3)] * 3)
    assert [(answer.source, answer.label, answer.agreed) for answer in answers] == [("remote", [CAT, DOG], 2 / 3)] * 3


def test_a_local_model_that_gives_no_output_of_the_task_is_named() -> None:
    device = Device(lambda _: [{"box": [0, 0, 1]}], lambda _: [], Gate(offload_cost=0.5), task=Detection())
    with device, pytest.raises(InvalidModel, match="the local model: Detection: box 0 must be"):
        device.infer(0)


@pytest.mark.parametrize("kind", [bool, np.bool_])
@pytest.mark.parametrize("remote", [1.0, 3.0])
def test_an_agreement_may_be_true_or_false(kind: type, remote: float) -> None:
    class Same(Regression):
        def agreement(self, local: float, remote: float) -> Any:
            return kind(local == remote)

    with Device(lambda _: 1.0, lambda _: remote, Gate(offload_cost=0.5), task=Same(1.0), deadline_s=30) as device:
        assert device.infer(0).agreed == (remote == 1.0)


def test_an_agreement_out_of_range_is_refused() -> None:
    class Wild(Regression):
        def agreement(self, local: float, remote: float) -> float:
            return 2.0

    with Device(lambda _: 1.0, lambda _: 1.0, Gate(offload_cost=0.5), task=Wild(1.0), deadline_s=30) as device:
        answer = device.infer(0)
    assert (answer.source, device.policy.learned) == ("local", 0)
    assert "agreement must be from 0 to 1, got 2.0" in str(answer.fault)


def test_the_state_names_the_confidence_of_the_task(tmp_path: Path) -> None:
    with Device(lambda _: [CAT], lambda _: [CAT], Gate(offload_cost=0.5), task=Detection(), state=tmp_path) as device:
        device.infer(0)
        assert device.gate.state()["confidence"]["function"] == "hinge.tasks.images:Detection.confidence"
    with pytest.raises(hinge.InvalidState, match="was made with confidence"):
        Device(lambda _: [0.0, 1.0], lambda _: 1, Gate(offload_cost=0.5), state=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": object()}, "Device: task must have answer, confidence and agreement"),
        ({"task": Detection}, "Device: task must have answer, confidence and agreement"),
        ({"task": Detection(), "gate": Gate(offload_cost=0.5, confidence=margin)}, "confidence is the task's"),
    ],
)
def test_what_contradicts_the_task_is_refused(options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Device(lambda _: [CAT], lambda _: [CAT], **({"gate": Gate(offload_cost=0.5)} | options))


# -- logs and traces --------------------------------------------------------------------------------------------------


def test_the_log_of_a_device_can_be_evaluated(tmp_path: Path) -> None:
    gate, task = Gate(offload_cost=0.4), Detection()
    with Device(lambda _: [CAT], lambda _: [CAT, DOG], gate, task=task, deadline_s=30) as device:
        answers = [device.infer(0) for _ in range(300)]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(answer.as_dict()) + "\n" for answer in answers))
    log = read_log(path)
    asked = [answer for answer in answers if answer.source == "remote"]
    assert 0 < len(asked) < 300
    assert (len(log), len(log.offloads)) == (300, len(asked))
    assert log.offloads.agreement == pytest.approx(2 / 3)
    found = hinge.evaluate(log, ["probation", "always-local"], offload_cost=0.4, runs=2)
    low, high = (found.figures()[1][end] for end in ("cost_low", "cost_high"))
    assert low < 1 / 3 < high


def test_what_is_recorded_of_a_task(tmp_path: Path) -> None:
    texts, truth = ["turn on", "turn off", ""], ["turn it on", "turn off", "stop"]
    trace = hinge.record(
        lambda k: {"text": texts[k], "logprobs": [-0.1]},
        lambda k: ["turn it on", "turn off", "stop now"][k],
        range(3),
        truth,
        task=Transcription(),
        out=tmp_path / "speech.npz",
    )
    assert trace.agreed.tolist() == pytest.approx([2 / 3, 1.0, 0.0])
    assert trace.columns["local_right"].tolist() == pytest.approx([2 / 3, 1.0, 0.0])
    assert trace.columns["remote_right"].tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert trace.confidence.tolist() == pytest.approx([0.9048374, 0.9048374, 0.0])
    assert [*trace.columns] == ["confidence", "remote", "label", "agreed", "local_right", "remote_right"]
    assert hinge.read_trace(tmp_path / "speech.npz") == trace


def test_a_recording_of_a_task_goes_on(tmp_path: Path) -> None:
    def local(k: int) -> Any:
        if k == 40 and len(calls) == 0:
            calls.append(k)
            raise KeyboardInterrupt
        return [CAT] * (k % 2)

    calls: list[int] = []
    recording: dict[str, Any] = {"samples": range(50), "task": Detection(), "batch": 10, "out": tmp_path / "boxes.npz"}
    with pytest.raises(KeyboardInterrupt):
        hinge.record(local, lambda _: [CAT], **recording)
    trace = hinge.record(local, lambda _: [CAT], **recording)
    assert trace.agreed.tolist() == [0.0, 1.0] * 25
    assert [*trace.columns] == ["confidence", "agreed"]


def test_answers_cannot_be_had_from_a_trace_that_has_none() -> None:
    trace = Trace([0.5], agreed=[0.5], name="boxes")
    with pytest.raises(InvalidTrace, match="the trace 'boxes' holds how far the answers agree, and not the answers"):
        hinge.models.RecordedModel(trace)
    assert load_trace("fashion").answers[0][0] == 9
