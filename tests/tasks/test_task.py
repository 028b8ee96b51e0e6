"""What every task promises: answers that JSON can hold, confidence and agreement from 0 to 1, errors that say what."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.tasks import OCR, Classification, Detection, Regression, Segmentation, ShortText, Task, Transcription

unit = st.floats(0.0, 1.0)
texts = st.text(max_size=30) | st.sampled_from(["Lights on.", "lights off", "7", "", '{"a": 1, "b": "x"}', "-1,200.5"])
spoken = st.fixed_dictionaries({"text": texts, "logprobs": st.lists(st.floats(-20, 0), min_size=1)})
scored = st.fixed_dictionaries({"text": texts, "scores": st.lists(unit, min_size=1)})
boxes = st.lists(
    st.builds(
        lambda left, top, width, height, label, score: {
            "box": [left, top, left + width, top + height],
            "label": label,
            "score": score,
        },
        *[st.integers(0, 8)] * 4,
        st.sampled_from(["cat", "dog", 3]),
        unit,
    ),
    max_size=6,
)
masks = st.lists(st.lists(unit, min_size=4, max_size=4), min_size=3, max_size=3)
values, widths = st.floats(-1e6, 1e6), st.floats(0, 9)
intervals = st.builds(lambda v, a, b: {"value": v, "low": v - a, "high": v + b}, values, widths, widths)
CASES: list[tuple[Task, Any]] = [
    (Classification(), st.lists(st.floats(-50, 50), min_size=3, max_size=3)),
    (Classification(["cat", "dog", "cow"]), st.lists(st.floats(-50, 50), min_size=3, max_size=3)),
    (Detection(), boxes),
    (Detection(keep=0.2, measure="mean"), boxes),
    (Transcription(), spoken | texts),
    (Transcription(commands=["lights on", "lights off"]), spoken | texts),
    (OCR(), scored | texts),
    (ShortText(), spoken | texts),
    (ShortText(options=["lights on", "7"]), spoken | texts),
    (ShortText("number", measure="least"), spoken),
    (ShortText("json"), texts),
    (Regression(0.5), intervals | values),
    (Segmentation(), masks),
]
each_task = pytest.mark.parametrize(("task", "outputs"), CASES, ids=lambda part: type(part).__name__)


@each_task
@given(data=st.data())
def test_every_task_keeps_its_promises(task: Task, outputs: Any, data: Any) -> None:
    one, other = (data.draw(outputs) for _ in range(2))
    assert 0.0 <= task.confidence(one) <= 1.0
    local, remote = task.answer(one), task.answer(other)
    assert task.agreement(local, local) == 1.0
    agreement = task.agreement(local, remote)
    assert 0.0 <= agreement <= 1.0
    assert (local != remote) or agreement == 1.0
    assert json.loads(json.dumps(local)) == local == task.answer(local)
    if not isinstance(task, Transcription | OCR):  # whose errors count over the words of the remote
        assert agreement == task.agreement(remote, local)


@each_task
@pytest.mark.parametrize("output", [None, math.nan, {}, {"box": 1}, [[]], [None], b"\xff", {"text": 3}], ids=repr)
def test_what_is_no_output_is_named(task: Task, outputs: Any, output: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        task.answer(output)
    assert str(caught.value)


@pytest.mark.parametrize("task", [Transcription(), OCR(), ShortText()], ids=lambda task: type(task).__name__)
@pytest.mark.parametrize(
    "more",
    [
        {"logprobs": [-0.1, math.nan]},
        {"logprobs": [0.5]},
        {"logprobs": []},
        {"logprobs": "high"},
        {"scores": [1.5]},
        {"confidence": math.inf},
        {"confidence": "sure"},
    ],
    ids=str,
)
def test_a_confidence_that_makes_no_sense_is_named(task: Task, more: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(more))):
        task.confidence({"text": "lights on", **more})


def test_tokens_make_the_geometric_mean_of_their_probabilities() -> None:
    probabilities = [0.9, 0.5, 0.2]
    output = {"text": "lights on", "logprobs": np.log(probabilities)}
    assert Transcription().confidence(output) == pytest.approx(math.prod(probabilities) ** (1 / 3))
    assert ShortText(measure="least").confidence(output) == pytest.approx(0.2)


def test_an_answer_however_unlikely_is_not_taken_for_none() -> None:
    assert 0.0 < Transcription().confidence({"text": "on", "logprobs": [-1e9]}) < 1 / 16


names = st.sampled_from(["box", "label", "score", "text", "value", "low", "shape", "runs"])
plain = st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | texts | st.just("[1]")
json_values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


def unless_refused(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (TypeError, ValueError):
        return None


@each_task
@given(output=json_values, data=st.data())
def test_whatever_comes_is_an_answer_or_refused(task: Task, outputs: Any, output: Any, data: Any) -> None:
    answer = unless_refused(task.answer, output)
    if answer is None:
        return
    assert task.answer(json.loads(json.dumps(answer))) == answer
    agreement = unless_refused(task.agreement, task.answer(data.draw(outputs)), answer)
    if agreement is None:  # masks of two shapes, a name and a number
        assert isinstance(task, Segmentation | Classification)
    else:
        assert 0.0 <= agreement <= 1.0
