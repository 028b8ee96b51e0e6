"""The messages of gRPC: as Triton's own client reads and writes them, and of strangers that mean no good."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.errors import InvalidMessage
from hinge.oip import grpc as messages
from hinge.oip.grpc import MESSAGES, parse_response
from hinge.oip.tensors import MAX_BODY_BYTES, dtype_of

TYPED: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-(2**15), 2**15 - 1]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 2**16 - 1]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [1.5, -0.25]),
    "FP64": ("fp64_contents", [1e300, -0.1]),
    "BYTES": ("bytes_contents", [b"cat\x00", b""]),
}


def typed_response(datatype: str, field: str, elements: list[Any]) -> bytes:
    response = MESSAGES["ModelInferResponse"](id="1")
    output = response.outputs.add(name="y", datatype=datatype, shape=[len(elements)])
    getattr(output.contents, field).extend(elements)
    return bytes(response.SerializeToString())


@pytest.mark.parametrize("datatype", TYPED)
def test_every_datatype_may_come_number_by_number(datatype: str) -> None:
    field, elements = TYPED[datatype]
    tensor = parse_response(typed_response(datatype, field, elements), id="1").outputs["y"]
    assert tensor.tolist() == elements
    assert tensor.dtype == dtype_of(datatype)


@pytest.mark.parametrize(
    ("datatype", "field", "number"), [("INT8", "int_contents", 128), ("UINT16", "uint_contents", 2**16)]
)
def test_numbers_out_of_range_are_refused(datatype: str, field: str, number: int) -> None:
    with pytest.raises(InvalidMessage, match=f"out of the range of {datatype}"):
        parse_response(typed_response(datatype, field, [number]), id="1")


def test_half_floats_must_come_raw() -> None:
    with pytest.raises(InvalidMessage, match="FP16 must come as raw contents"):
        parse_response(typed_response("FP16", "fp32_contents", [1.0]), id="1")


def with_length(field: int, content: bytes) -> bytes:
    """A field of bytes, whose length takes four more."""
    size = len(content)
    return bytes([field << 3 | 2, *(size >> shift & 127 | 128 for shift in (0, 7, 14)), size >> 21]) + content


FLOODS = {
    "outputs": b"\x2a\x00" * 2**20,
    "raw contents": b"\x32\x00" * 2**20,
    "bytes of an output": with_length(5, with_length(5, b"\x42\x00" * 2**20)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_floods_of_fields_are_refused_before_they_become_objects(flood: str) -> None:
    with pytest.raises(InvalidMessage, match="may have 16384 fields, got more"):
        parse_response(FLOODS[flood], id="1")
    with pytest.raises(InvalidMessage, match="may have 1048576 bytes"):
        messages.parse_model_metadata(FLOODS[flood])


VALID = typed_response("FP32", "fp32_contents", [1.0, 2.0]) + b"\x32\x08" + bytes(8)
noise = st.binary(max_size=64) | st.builds(
    lambda at, put: VALID[:at] + put + VALID[at + len(put) :], st.integers(0, len(VALID)), st.binary(max_size=6)
)


@given(noise)
def test_noise_is_refused_in_our_own_words(body: bytes) -> None:
    parses: list[Callable[[bytes], object]] = [
        lambda body: parse_response(body, id="1"),
        messages.parse_model_metadata,
        messages.parse_server_metadata,
    ]
    for parse in parses:
        with suppress(InvalidMessage):
            parse(body)


def test_the_messages_are_these_bytes() -> None:
    inputs = {"x": np.array([[1.0, 2.0]], np.float32)}
    by_hand = b"\n\x01m" + b"\x12\x013" + b"\x1a\x0242"  # fields 1, 2 and 3, each with its length
    by_hand += b"*\x0d" + b"\n\x01x" + b"\x12\x04FP32" + b"\x1a\x02\x01\x02"  # 5: name, datatype, shape
    by_hand += b":\x08" + b"\x00\x00\x80?" + b"\x00\x00\x00@"  # 7: 1.0 and 2.0
    assert messages.build_request(inputs, model="m", version="3", id="42") == by_hand


@pytest.mark.medium
def test_a_request_has_a_limit() -> None:
    with pytest.raises(InvalidMessage, match="may have 67108864 bytes"):
        messages.build_request({"x": np.zeros(MAX_BODY_BYTES, np.uint8)}, model="m")  # and its name


@pytest.mark.parametrize(("asked", "answered"), [("42", "41"), ("42", ""), ("", "41")])
def test_a_response_to_another_request_is_refused(asked: str, answered: str) -> None:
    response = MESSAGES["ModelInferResponse"](id=answered)
    response.outputs.add(name="y", datatype="FP32", shape=[1]).contents.fp32_contents.append(1.0)
    with pytest.raises(InvalidMessage, match=f"the response is to request '{answered}', not to '{asked}'"):
        parse_response(response.SerializeToString(), id=asked)


def test_empty_contents_beside_raw_ones_are_no_data() -> None:
    response = messages.MESSAGES["ModelInferResponse"](model_name="m", raw_output_contents=[b"\x00\x00\x80?"])
    response.outputs.add(name="y", datatype="FP32", shape=[1]).contents.SetInParent()
    assert messages.parse_response(response.SerializeToString(), id="").outputs["y"].tolist() == [1.0]
