"""Short text: what is the same, what is no answer, and how sure it is."""

import json
import math
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge import Device, Gate
from hinge.errors import InvalidState
from hinge.tasks import ShortText

fields = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2) | st.sampled_from(["x", "Y", None]), max_size=4)


@pytest.mark.parametrize(
    ("form", "local", "remote", "agreement"),
    [
        ("text", ' "Paris." ', "paris", 1.0),
        ("text", "-5", "5", 0.0),
        ("text", "book a flight", "book  a\nFlight", 1.0),
        ("number", "She has 3 + 4 = 7 apples.", "7", 1.0),
        ("number", "$1,200.50", "1200.5 in all", 1.0),
        ("number", "-7", "7", 0.0),
        ("number", "none", "7", 0.0),
        ("number", "none", "none", 1.0),
        ("number", "about 1e5", "100,000", 1.0),
        ("number", "1e5", "5", 0.0),
        ("number", "6.02E+23 of them", "602e21", 1.0),
        ("number", "it is .5", "0.5", 1.0),
        ("number", "\N{MINUS SIGN}7", "-7", 1.0),
        ("number", "Well, " * 2_000 + "7", "7", 1.0),
        ("number", "9" * 6_000, "8" * 6_000, 0.0),
        ("json", '```json\n{"a": "X", "b": 2}\n```', '{"b": 2, "a": "x"}', 1.0),
        ("json", '{"a": 1}', "a is 1", 0.0),
        ("json", "{}", "{}", 1.0),
        ("json", '{"a": null}', "{}", 0.0),
        ("json", '{"a": true, "b": 1}', '{"a": 1, "b": 1.0}', 0.5),
        ("json", '{"a": [true, {"b": 1}]}', '{"a": [1, {"b": 1}]}', 0.0),
        ("json", '{"a": [{"b": [1, true]}]}', '{"a": [{"b": [1.0, true]}]}', 1.0),
        ("json", '{"a": {"b": ["Paris. "]}}', '{"a": {"b": ["paris"]}}', 1.0),
        ("json", '{"a": [1, 2]}', '{"a": [2, 1]}', 0.0),
        ("json", '{"a": ' + "[" * 200 + "0" + "]" * 200 + "}", '{"a": ' + "[" * 200 + "-0.0" + "]" * 200 + "}", 1.0),
        ("json", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"a": []}', 0.0),
    ],
)
def test_what_agrees(form: Literal["text", "number", "json"], local: str, remote: str, agreement: float) -> None:
    assert ShortText(form).agreement(local, remote) == agreement


@given(fields, fields)
def test_of_json_the_share_of_the_fields_agrees(one: dict[str, Any], other: dict[str, Any]) -> None:
    names = {*one, *other}
    same = [name for name in {*one} & {*other} if str(one[name]).lower() == str(other[name]).lower()]
    expected = len(same) / len(names) if names else 1.0
    assert ShortText("json").agreement(json.dumps(one), json.dumps(other)) == pytest.approx(expected)


def test_options() -> None:
    task = ShortText(options=["Book flight", "cancel"])
    assert task.answer("  book FLIGHT.") == "Book flight"
    assert task.answer("I would cancel") == "I would cancel"
    assert task.confidence({"text": "Cancel", "logprobs": [-0.5]}) == pytest.approx(math.exp(-0.5))
    assert task.confidence({"text": "I would cancel", "logprobs": [0.0]}) == 0.0


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("text", " . "),
        ("number", "9" * 6_000),
        ("number", "1e999"),
        ("number", "seven"),
        ("json", "{a: 1}"),
        ("json", "}{"),
        ("json", "[1]"),
        ("json", '{"a": NaN}'),
    ],
)
def test_what_is_no_answer(form: Literal["text", "number", "json"], text: str) -> None:
    assert ShortText(form).confidence({"text": text, "logprobs": [0.0]}) == 0.0


def test_what_is_cut_off_is_no_answer_unless_it_is_an_option() -> None:
    output = {"text": "7", "logprobs": [-0.5], "cut": True}
    assert ShortText("number").confidence(output) == ShortText().confidence(output) == 0.0
    assert ShortText(options=["7", "8"]).confidence(output) == pytest.approx(math.exp(-0.5))


@pytest.mark.parametrize(
    ("task", "measure"),
    [
        (ShortText(), "product"),
        (ShortText(options=["a", "7"]), "product"),
        (ShortText("number"), "mean"),
        (ShortText("number", measure="product"), "product"),
        (ShortText(measure="mean"), "mean"),
        (ShortText(measure="least"), "least"),
    ],
)
def test_texts_are_measured_by_the_product_and_what_may_be_long_by_the_mean(task: ShortText, measure: str) -> None:
    tokens = [0.5, 0.8, 0.9]
    expected = {"product": math.prod(tokens), "mean": math.prod(tokens) ** (1 / 3), "least": min(tokens)}
    output = {"text": "7", "logprobs": [math.log(token) for token in tokens]}
    assert task.confidence(output) == pytest.approx(expected[measure])
    assert task.confidence({"text": "7", "logprobs": [-50.0] * 60}) > 0  # an answer, however unlikely


def test_a_state_is_refused_by_another_measure(tmp_path: Path) -> None:
    def answered(**options: Any) -> None:
        gate, local = Gate(offload_cost=0.5), {"text": "yes", "logprobs": [-0.1]}
        task = ShortText(**options)
        with Device(lambda _: local, lambda _: "yes", gate, task=task, state=tmp_path, deadline_s=10) as device:
            device.infer("a question")

    answered()
    answered(measure="product")
    with pytest.raises(InvalidState, match=r"made with confidence .*product.*this gate has .*mean.*use another folder"):
        answered(measure="mean")


def test_the_margin_is_that_of_the_first_token() -> None:
    task = ShortText(measure="margin")
    assert task.confidence({"text": "yes", "top": [math.log(0.2), math.log(0.7)]}) == pytest.approx(0.5)
    assert task.confidence({"text": "yes", "top": [math.log(0.9)]}) == pytest.approx(0.9)
    with pytest.raises(ValueError, match="ShortText: top must be a list of numbers, got None"):
        task.confidence({"text": "yes", "logprobs": [-0.1]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "poem"}, "ShortText: form must be 'text', 'number' or 'json', got 'poem'"),
        ({"measure": "most"}, "ShortText: measure must be 'product', 'mean', 'least' or 'margin', got 'most'"),
        ({"options": "yes"}, "ShortText: options must be a list of texts, got 'yes'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ShortText(**options)
