import json
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hinge.errors import InvalidMessage
from hinge.oip import messages as oip
from hinge.oip.tensors import DATATYPES, Tensor

LENGTH = "Inference-Header-Content-Length"
NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2",
    "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip  # several to a line
X = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}
SPEC = oip.TensorSpec("x", "FP32", (2,))


def body(**changes: object) -> bytes:
    return json.dumps({"id": "42", "inputs": [{**X, **changes}]}).encode()


def with_binary(data: bytes, *items: dict[str, Any], role: str = "inputs") -> tuple[dict[str, str], bytes]:
    header = json.dumps({"id": "42", role: items}).encode()
    return {LENGTH: str(len(header))}, header + data


def binary_item(datatype: str, shape: list[int], size: object, **more: object) -> dict[str, object]:
    return {"name": "x", "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}, **more}


# The examples of the specification (in the first, which says [true] for a shape of [3], all three elements).


def test_the_specifications_request_in_json() -> None:
    text = """{"id" : "42", "inputs" : [
      {"name" : "input0", "shape" : [ 2, 2 ], "datatype" : "UINT32", "data" : [ 1, 2, 3, 4 ]},
      {"name" : "input1", "shape" : [ 3 ], "datatype" : "BOOL", "data" : [ true, false, true ]}],
      "outputs" : [ {"name" : "output0"} ] }"""
    request = oip.parse_request({"content-type": "application/json"}, text.encode())
    assert (request.id, request.outputs, request.binary) == ("42", {"output0": False}, False)
    np.testing.assert_array_equal(request.inputs["input0"], np.array([[1, 2], [3, 4]], np.uint32), strict=True)
    np.testing.assert_array_equal(request.inputs["input1"], np.array([True, False, True]), strict=True)
    built = oip.build_request(request.inputs, id="42", outputs=["output0"])
    assert json.loads(built.body) == json.loads(text)
    assert built.headers == {"Content-Type": "application/json"}


def test_the_specifications_response_in_json_names_no_model() -> None:
    text = b"""{"id" : "42", "outputs" : [
      {"name" : "output0", "shape" : [3, 2], "datatype" : "FP32", "data" : [1.0, 1.1, 2.0, 2.1, 3.0, 3.1]}]}"""
    expected = oip.TensorSpec("output0", "FP32", (-1, 2))
    response = oip.parse_response({}, text, id="42", model="mymodel", expected=[expected])
    truth = np.array([[1, 1.1], [2, 2.1], [3, 3.1]], np.float32)
    np.testing.assert_array_equal(response.outputs["output0"], truth, strict=True)


def test_tritons_binary_request_and_its_response() -> None:
    message = oip.build_request(
        {"input0": np.array([[1, 2], [3, 4]], np.uint32), "input1": np.array([True, False, True])},
        outputs=["output0"],
        binary=True,
    )
    length = int(message.headers[LENGTH])
    header = json.loads(message.body[:length])
    assert message.headers["Content-Type"] == "application/octet-stream"
    assert message.body[length:] == struct.pack("<4I3?", 1, 2, 3, 4, True, False, True)
    assert [item["parameters"] for item in header["inputs"]] == [{"binary_data_size": 16}, {"binary_data_size": 3}]
    assert header["outputs"] == [{"name": "output0", "parameters": {"binary_data": True}}]

    request = oip.parse_request({LENGTH.lower(): str(length)}, message.body)
    answer = oip.build_response(request, {"output0": np.ones((3, 2), np.float32), "other": np.ones(1)}, model="m")
    length = int(answer.headers[LENGTH])
    assert answer.body[length:] == struct.pack("<6f", *[1] * 6)
    assert list(oip.parse_response(answer.headers, answer.body, id="").outputs) == ["output0"]


@pytest.mark.parametrize(("timeout", "seconds"), [(0, None), (None, None), (1500, 0.0015)])
def test_a_timeout_of_zero_is_none(timeout: int | None, seconds: float | None) -> None:
    text = json.dumps({"parameters": {"timeout": timeout}, "inputs": [X]}).encode()
    assert oip.parse_request({}, text).timeout_s == seconds


def test_a_flag_on_an_output_overrides_the_requests() -> None:
    text = json.dumps(
        {
            "parameters": {"binary_data_output": True},
            "inputs": [X],
            "outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}],
        }
    ).encode()
    assert oip.parse_request({}, text).outputs == {"a": True, "b": False}


def test_strings_are_prefixed_by_their_length_in_binary() -> None:
    message = oip.build_request({"x": np.array([b"ab", "é", b""], object)}, binary=True)
    assert message.body.endswith(b"\x02\0\0\0ab\x02\0\0\0\xc3\xa9\0\0\0\0")
    assert oip.parse_request(message.headers, message.body).inputs["x"].tolist() == [b"ab", "é".encode(), b""]


def test_what_kserve_does_not_have_it_writes_as_null() -> None:
    output = {**X, "parameters": None}
    text = {"model_name": "m", "model_version": None, "id": "1", "parameters": None, "outputs": [output]}
    assert oip.parse_response({}, json.dumps(text).encode(), id="1", model="m").version == ""


def test_metadata_of_server_and_model() -> None:
    server = oip.ServerMetadata("triton", "2.60.0", ("classification", "binary_tensor_data"))
    assert server.binary
    assert oip.parse_server_metadata(oip.build_server_metadata(server).body) == server
    assert not oip.parse_server_metadata(b'{"name":"mlserver","version":"1.7.1","extensions":[]}').binary
    spec = oip.TensorSpec("x", "UINT8", (-1, 28, 28))
    model = oip.ModelMetadata("fashion", "onnxruntime_onnx", (spec,), (), ("1", "2"))
    assert oip.parse_model_metadata(oip.build_model_metadata(model).body) == model


# Round trips


def tensors(datatype: str, binary: bool) -> st.SearchStrategy[Tensor]:
    shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    if datatype != "BYTES":
        finite = {} if binary or datatype[0] != "F" else {"allow_nan": False, "allow_infinity": False}
        return arrays.arrays(NUMPY[datatype], shapes, elements=finite)
    element = st.binary(max_size=9) if binary else st.text(max_size=9).map(str.encode)
    return shapes.flatmap(
        lambda shape: st.lists(element, min_size=(size := int(np.prod(shape))), max_size=size).map(
            lambda elements: np.array([*elements, None], object)[:-1].reshape(shape)
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("datatype", DATATYPES)
@settings(max_examples=40)
@given(data=st.data())
def test_tensors_arrive_as_they_were_sent(datatype: str, binary: bool, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["x", "ünï", 'a"b', "back\\", "[{"]), min_size=1, unique=True))
    sent = {name: data.draw(tensors(datatype, binary)) for name in names}
    message = oip.build_request(sent, id='4"2', binary=binary)
    request = oip.parse_request(message.headers, message.body)
    answer = oip.build_response(request, request.inputs, model="m", version="1")
    expected = [oip.TensorSpec(name, datatype, tensor.shape) for name, tensor in sent.items()]
    response = oip.parse_response(answer.headers, answer.body, id='4"2', model="m", expected=expected)
    assert (LENGTH in answer.headers) == (LENGTH in message.headers) == binary
    for name, tensor in sent.items():
        np.testing.assert_array_equal(response.outputs[name], tensor, strict=True)
        assert response.outputs[name].flags.writeable


@given(tensor=tensors("INT16", False), flip=st.booleans())
def test_nested_data_is_the_same_as_flat(tensor: Tensor, flip: bool) -> None:
    tensor = np.asfortranarray(tensor.T if flip else tensor).astype(">i2")
    nested = tensor.tolist() if tensor.ndim else [tensor.item()]
    item = {"name": "x", "shape": tensor.shape, "datatype": "INT16"}
    flat = json.loads(oip.build_request({"x": tensor}).body)["inputs"][0]["data"]
    for data in (nested, flat):
        request = oip.parse_request({}, json.dumps({"inputs": [{**item, "data": data}]}).encode())
        np.testing.assert_array_equal(request.inputs["x"], tensor)


# Refusals

NUMBERS = {
    "null": [1, None], "text": [1, "2"], "a truth value": [1, True], "too few": [1], "too many": [1, 2, 3],
    "nested wrongly": [[1], [2]], "half nested": [1, [2]], "beyond FP32": [1, 1e39], "beyond FP64": [1, 10**400],
    "no list": 5, "an object": {"0": 1}, "no data": None,
}  # fmt: skip  # several to a line
FIELDS: dict[str, dict[str, object]] = {
    "datatype unknown": {"datatype": "FP128"}, "BF16": {"datatype": "BF16"}, "datatype a list": {"datatype": ["FP32"]},
    "datatype in lower case": {"datatype": "fp32"}, "negative size": {"shape": [-2]}, "any size": {"shape": [-1]},
    "two negatives": {"shape": [-1, -2]}, "size a float": {"shape": [2.0]}, "size true": {"shape": [True, 2]},
    "shape a number": {"shape": 2}, "shape missing": {"shape": None}, "huge": {"shape": [2**63, 2]},
    "huge beside zero": {"shape": [0, 2**26, 2**26], "data": []}, "overflow to 2": {"shape": [2**32, 2**32, 2]},
    "many dimensions": {"shape": [1] * 33}, "name empty": {"name": ""}, "name long": {"name": "Z" * 257},
    "name a number": {"name": 7}, "name with newline": {"name": "a\nb"}, "name half a pair": {"name": "\ud800"},
    "parameters a list": {"parameters": []},
    "size without bytes": {"data": None, "parameters": {"binary_data_size": 8}},
    "integer out of range": {"datatype": "UINT8", "data": [1, 256]},
    "below zero": {"datatype": "UINT64", "data": [1, -1]},
    "float for integer": {"datatype": "INT32", "data": [1, 2.0]},
    "number for truth": {"datatype": "BOOL", "data": [1, 0]},
    "number for text": {"datatype": "BYTES", "data": ["a", 1]},
    "no UTF-8": {"datatype": "BYTES", "data": ["a", "\ud800"]},
}  # fmt: skip  # several to a line
TEXTS = {
    "empty": b"", "no JSON": b"Z" * 500, "no object": b"[]", "no UTF-8": b'{"a": "\xff"}',
    "UTF-16": "{}".encode("utf-16"),
    "deep": b"[" * 10**6, "deep objects": b'{"a":' * 10**5, "deep behind text": b'["\\"]\\\\",' + b"[" * 5000,
    "deep behind closings": b'{"a":[' + b"]" * 5000 + b"[" * 10**5, "open text": b'["' + b'\\"' * 10**6,
    "keys": b"{" + b",".join(b'"%d":[]' % i for i in range(2**15)) + b"}", "long": b" " * (2**24 + 1),
    "objects": b'{"inputs":[' + b"{}," * 2**15, "NaN": body(data=[1, float("nan")]),
    "infinite": body(data=[1, float("-inf")]), "many": b"[" + b"0," * 2**22,
    "beyond floats": body().replace(b"2.0", b"2e999"), "long number": body().replace(b"2.0", b"2" * 10**5),
    "id a number": b'{"id":1,"inputs":[]}',
    "id long": b'{"id":"%s"}' % (b"Z" * 999),
    "no inputs": b'{"id":"42"}', "inputs empty": b'{"inputs":[]}', "inputs an object": b'{"inputs":{}}',
    "input no object": b'{"inputs":[5]}', "names twice": json.dumps({"inputs": [X, X]}).encode(),
    "many inputs": json.dumps({"inputs": [{**X, "name": f"{i}"} for i in range(65)]}).encode(),
    "outputs twice": json.dumps({"inputs": [X], "outputs": [{"name": "y"}] * 2}).encode(),
    "flag no truth": json.dumps({"inputs": [X], "parameters": {"binary_data_output": 1}}).encode(),
    "rest": body() + b"0",
}  # fmt: skip  # several to a line
STRING = b"\x02\0\0\0ab"
BINARY = {
    "truncated": with_binary(bytes(7), binary_item("FP32", [2], 8)),
    "over-long": with_binary(bytes(9), binary_item("FP32", [2], 8)),
    "size too small": with_binary(bytes(4), binary_item("FP32", [2], 4)),
    "size too large": with_binary(bytes(12), binary_item("FP32", [2], 12)),
    "size negative": with_binary(b"", binary_item("FP32", [0], -1)),
    "size no integer": with_binary(bytes(8), binary_item("FP32", [2], 8.0)),
    "size huge": with_binary(bytes(8), binary_item("FP32", [2**24], 2**26)),
    "shape huge": with_binary(bytes(8), binary_item("FP64", [2**26], 8)),
    "data twice": with_binary(bytes(8), binary_item("FP32", [2], 8, data=[1, 2])),
    "truth of 2": with_binary(b"\1\2", binary_item("BOOL", [2], 2)),
    "text cut off": with_binary(STRING[:-1], binary_item("BYTES", [1], 5)),
    "text cut in its length": with_binary(STRING + b"\0\0\0", binary_item("BYTES", [2], 9)),
    "text too long": with_binary(STRING + b"c", binary_item("BYTES", [1], 7)),
    "too many texts": with_binary(STRING, binary_item("BYTES", [2**25], 6)),
    "fewer texts": with_binary(b"\4\0\0\0abcd", binary_item("BYTES", [2], 8)),
    "two of one name": with_binary(bytes(4), *[binary_item("INT8", [2], 2)] * 2),
    "no header": ({}, with_binary(bytes(8), binary_item("FP32", [2], 8))[1]),
    **{f"header {text}": ({LENGTH: text}, body()) for text in ("", "-1", "0", "1e2", "+9", "٣", "9" * 9, "9" * 500)},
    "header twice": ({LENGTH: f"{len(body())}", LENGTH.lower(): f"{len(body())}"}, body()),
}
REQUESTS: dict[str, tuple[dict[str, str], bytes]] = {
    **{f"data: {name}": ({}, body(data=data)) for name, data in NUMBERS.items()},
    **{f"field: {name}": ({}, body(**changes)) for name, changes in FIELDS.items()},
    **{f"text: {name}": ({}, text) for name, text in TEXTS.items()},
    **{f"binary: {name}": message for name, message in BINARY.items()},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_malformed_requests_are_refused_in_little_memory(name: str) -> None:
    headers, text = REQUESTS[name]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMessage) as refusal:
            oip.parse_request(headers, text)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(text) + 2**18
    finally:
        tracemalloc.stop()
    assert len(str(refusal.value)) < 250
    assert max(str(refusal.value).count(sign) for sign in "Z9") <= 80


def response(**changes: object) -> bytes:
    return json.dumps({"model_name": "m", "id": "42", "outputs": [X], **changes}).encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (response(id="41"), "to request '41', not to '42'"),
        (response(id=None), "to request '', not to '42'"),
        (response(model_name="other"), "of model 'other', not of 'm'"),
        (response(model_name="../m"), "model_name must be"),
        (response(outputs=[]), "outputs must be 1 to 64, got 0"),
        (response(outputs=[{**X, "name": "y"}]), "tensor 'x' is missing"),
        (response(outputs=[{**X, "shape": [2, 1]}]), r"shape must be \[2\], got \[2, 1\]"),
        (response(outputs=[{**X, "datatype": "FP64"}]), "datatype must be FP32, got FP64"),
        (response(outputs=[X, X]), "same name"),
        (response(error="Z" * 500), "^the server reports an error: 'Z{10,78}…$"),
    ],
)
def test_responses_that_are_not_the_answer_are_refused(text: bytes, problem: str) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        oip.parse_response({}, text, id="42", model="m", expected=[SPEC])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "ä", "a" * 65, "%2e", "http://x"])
def test_names_that_could_be_paths_name_no_model(name: str) -> None:
    for use in (oip.model_name, oip.inference_path):
        with pytest.raises(InvalidMessage):
            use(name)
    with pytest.raises(InvalidMessage):
        oip.parse_model_metadata(json.dumps({"name": name, "inputs": [], "outputs": []}).encode())


@pytest.mark.parametrize(
    "build",
    [
        lambda: oip.build_request({}),
        lambda: oip.build_request({"x": np.array([1j])}),
        lambda: oip.build_request({"x": np.array([np.nan])}),
        lambda: oip.build_request({"x": np.array([b"\xff"])}),
        lambda: oip.build_request({"x": np.array([None])}, binary=True),
        lambda: oip.build_request({"x": np.broadcast_to(np.int8(0), (2**26 + 1,))}, binary=True),
        lambda: oip.build_request({"x": np.zeros(1)}, outputs=["y", "y"]),
        lambda: oip.build_request({"": np.zeros(1)}),
        lambda: oip.build_response(oip.InferenceRequest({}, outputs={"y": True}), {"x": np.zeros(1)}, model="m"),
        lambda: oip.parse_request({}, body(), expected=[oip.TensorSpec("y", "FP32", (2,))]),
        lambda: oip.parse_request({}, json.dumps({"inputs": [X, {**X, "name": "y"}]}).encode(), expected=[SPEC]),
        lambda: oip.parse_server_metadata(b'{"name":"s","extensions":[1]}'),
        lambda: oip.parse_model_metadata(json.dumps({"name": "m", "inputs": [X, X], "outputs": []}).encode()),
    ],
)
def test_what_has_no_form_is_not_sent(build: Callable[[], object]) -> None:
    with pytest.raises(InvalidMessage):
        build()
