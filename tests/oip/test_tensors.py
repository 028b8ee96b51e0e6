"""JSON from strangers: decoded by type, and refused early; little of it is shown."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hinge._checks import shown
from hinge.errors import InvalidMessage, printable
from hinge.oip.messages import MAX_JSON_BYTES, MAX_SMALL_BYTES, TensorSpec, decoded, parse_request
from hinge.oip.tensors import MAX_ELEMENTS, from_json

FIELDS = msgspec.json.Decoder(dict[str, Any])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)


def read_json(body: bytes) -> dict[str, Any]:
    return decoded(body, FIELDS)


@pytest.mark.medium
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.booleans())
def test_json_is_read_as_python_reads_it(value: dict[str, Any], ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8")) == value


@given(text=st.text('[]{}",:\\au0', max_size=60))
@example('["\\\\"[[')
def test_what_python_cannot_read_is_refused(text: str) -> None:
    try:
        valid = isinstance(json.loads(text), dict)
    except ValueError:
        valid = False
    if not valid:
        with pytest.raises(InvalidMessage):
            read_json(text.encode())


@pytest.mark.parametrize("inside", ["[" * 99, "[" * 10**5, '"' + "[" * 99, "\\" + "{" * 99, '\\"' + "[" * 99 + "\\\\"])
def test_brackets_in_text_are_not_depth(inside: str) -> None:
    assert read_json(json.dumps({inside: [inside]}).encode()) == {inside: [inside]}


def test_deep_json_is_refused_wherever_it_is_read() -> None:
    def below(frames: int) -> None:
        if frames:
            return below(frames - 1)
        for body in (b"[" * 10**5, b'{"a":' + b"[" * 10**5, b'{"a":' * 10**4):
            with pytest.raises(InvalidMessage):
                read_json(body)
        return None

    below(sys.getrecursionlimit() // 2)


def test_json_has_a_size() -> None:
    with pytest.raises(InvalidMessage, match="more than 1048576"):
        read_json(b'{"a":"%s"}' % (b"Z" * MAX_SMALL_BYTES))
    with pytest.raises(InvalidMessage, match="more than 16777216"):
        parse_request({}, b" " * (MAX_JSON_BYTES + 1))


# The data of tensors


@pytest.mark.medium
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@example([5e-324, 1e300])
@example([2.2250738585072011e-308])
def test_many_floats_are_read_bit_by_bit(few: list[float]) -> None:
    numbers = few * (5000 // len(few))
    body = json.dumps(numbers).encode()
    assert from_json("x", body, "FP64", (len(numbers),)).tolist() == numbers
    assert from_json("x", body.upper(), "FP64", (len(numbers),)).tolist() == numbers


@pytest.mark.parametrize("odd", [b"true", b"null", b'"1"', b"[1]", b"{}", b"1e999", b"9" * 400])
def test_among_many_floats_every_other_thing_is_refused(odd: bytes) -> None:
    for extreme in (b"0.5", b"5e-324"):
        with pytest.raises(InvalidMessage):
            from_json("x", b"[" + (extreme + b",") * 5000 + odd + b"]", "FP64", (5001,))


def filled(start: bytes, item: bytes, end: bytes) -> bytes:
    """JSON as large as it may be."""
    return start + item * ((MAX_JSON_BYTES - len(start) - len(end)) // len(item)) + end


def tensor(datatype: str, count: int, data: bytes) -> bytes:
    return b'{"inputs":[{"name":"x","shape":[%d],"datatype":"%s","data":[%s]}]}' % (count, datatype.encode(), data)


def digits(datatype: str) -> Callable[[], bytes]:
    return lambda: tensor(datatype, 4000, b",".join([b"9" * 4000] * 4000))


BOMBS: dict[str, Callable[[], bytes]] = {  # made when they are thrown: together they take 0.4 GB
    **{
        f"4000-digit integers as {datatype}": digits(datatype)
        for datatype in ("INT8", "INT64", "UINT64", "FP32", "FP64", "BOOL", "BYTES")
    },
    "a million strings": lambda: tensor("BYTES", 10**6, b",".join([b'"a"'] * 10**6)),
    "a million strings for floats": lambda: tensor("FP32", 10**6, b",".join([b'"a"'] * 10**6)),
    "the slowest floats": lambda: tensor("FP64", 4096, b",".join([b"5e-324"] * 4096 + [b"null"])),
    "many of the slowest floats": lambda: tensor("FP64", 10**6, b",".join([b"5e-324"] * 10**6)),
    "more floats than the shape has": lambda: tensor("FP32", 4, b"0," * 8_000_000 + b"0"),
    "more floats than may be": lambda: tensor("FP32", 8_000_001, b"0," * 8_000_000 + b"0"),
    "sizes": lambda: filled(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[', b"1,", b"1]}]}"),
    "inputs": lambda: filled(b'{"inputs":[', b'{"name":"a","shape":[],"datatype":"BOOL"},', b"0]}"),
    "outputs": lambda: filled(b'{"outputs":[', b'{"name":"a"},', b"0]}"),
    "unknown objects": lambda: filled(b'{"a":[', b"{},", b"0]}"),
    "unknown lists": lambda: filled(b'{"a":[', b"[],", b"0]}"),
    "unknown keys": lambda: filled(b"{", b'"a":0,', b'"a":0}'),
    "depth": lambda: b'{"a":' + b"[" * 10**6,
    "a long id": lambda: filled(b'{"id":"', b"\\u00e9", b'"}'),
}


@pytest.mark.parametrize("name", BOMBS)
def test_s2_a_bomb_is_refused_at_once(name: str) -> None:
    bomb = BOMBS[name]()
    assert len(bomb) <= MAX_JSON_BYTES
    began = time.process_time()
    with pytest.raises(InvalidMessage):
        parse_request({}, bomb)
    assert time.process_time() - began < 1  # it is below 0.1 s on an idle core


def test_a_tensor_that_the_model_does_not_take_is_refused_before_its_data_is_read() -> None:
    for datatype, shape in (("BYTES", [1, 10**5]), ("FP32", [1, 10**5])):
        body = {"inputs": [{"name": "x", "shape": shape, "datatype": datatype, "data": "not even a list"}]}
        with pytest.raises(InvalidMessage, match=r"tensor .x.: (datatype|shape) must be"):
            parse_request({}, json.dumps(body).encode(), expected=[TensorSpec("x", "FP32", (-1, 784))])


def test_the_largest_tensor_in_json() -> None:
    body = tensor("UINT8", MAX_ELEMENTS, b",".join([b"7"] * MAX_ELEMENTS))
    np.testing.assert_array_equal(parse_request({}, body).inputs["x"], np.full(MAX_ELEMENTS, 7, np.uint8), strict=True)


# What is shown


@given(value=st.text() | st.integers() | st.floats() | st.none() | st.lists(st.text()))
def test_little_is_shown(value: object) -> None:
    assert len(shown(value)) <= 36


@given(text=st.text(), most=st.integers(2, 60))
@example("\x1b]0;title\x07\x1b[2J\u202e\u2028\ud800", 60)
def test_what_is_shown_is_printable_and_short(text: str, most: int) -> None:
    assert printable(text, most).isprintable()
    assert len(printable(text, most)) <= most
    assert shown(text, most).isprintable()
    if text.isprintable() and len(text) <= most:
        assert printable(text, most) == text
