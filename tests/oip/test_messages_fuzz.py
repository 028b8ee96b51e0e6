import gc
import random
import tracemalloc
from collections.abc import Callable

import numpy as np

from hinge.errors import InvalidMessage
from hinge.oip import messages as oip
from hinge.oip.tensors import Tensor
from tests.oip.test_messages import LENGTH, NUMPY

PIECES = [b"9" * 12, b"-1", b"null", b"NaN", b"1e999", b"[" * 60, b"\\u", b'"', b"\0\xff", b"{"]

Parser = Callable[[dict[str, str], bytes], None]


def seeds() -> list[tuple[Parser, oip.Message]]:
    inputs: dict[str, Tensor] = {f"t{i}": np.arange(6).reshape(2, 3).astype(t) for i, t in enumerate(NUMPY.values())}
    inputs["text"] = np.array([b"ab", b"", b'\\"['], object)
    messages: list[tuple[Parser, oip.Message]] = []
    for binary in (False, True):
        for few in (inputs, {"x": inputs["t10"]}, {"text": inputs["text"]}, {"x": inputs["t0"], "y": inputs["t3"]}):
            outputs = ["x"] if "x" in few else []
            messages.append((read_request, oip.build_request(few, id="42", outputs=outputs, binary=binary)))
            request = oip.InferenceRequest({}, id="42", binary=binary)
            messages.append((read_response, oip.build_response(request, few, model="m", version="1")))
    spec = oip.TensorSpec("x", "FP32", (-1, 3))
    metadata = oip.ModelMetadata("m", "onnx", (spec,), (spec,), ("1",))
    return [*messages, (read_metadata, oip.build_model_metadata(metadata))]


def mutated(
    chance: random.Random, message: oip.Message, others: list[tuple[Parser, oip.Message]]
) -> tuple[dict[str, str], bytes]:
    text = bytearray(message.body)
    headers = dict(message.headers)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(text) + 1)
        match chance.randrange(5):
            case 0 if place < len(text):
                text[place] ^= 1 << chance.randrange(8)
            case 1:
                del text[place : place + chance.choice([1, 4, len(text)])]
            case 2:
                other = chance.choice(others)[1].body
                start = chance.randrange(len(other))
                text[place:place] = other[start : start + chance.randint(1, 60)]
            case 3:
                text[place : place + chance.randint(0, 3)] = chance.choice(PIECES)
            case 4 if LENGTH in headers:
                headers[LENGTH] = str(int(headers[LENGTH]) + chance.randint(-4, 4))
    return headers, bytes(text)


def fuzz(count: int, seed: int) -> int:
    """How many of so many mutated messages were accepted; of those, what was read can be sent and read again."""
    chance = random.Random(seed)
    messages = seeds()
    accepted = longest = 0
    for _ in range(count):
        parse, message = chance.choice(messages)
        try:
            parse(*mutated(chance, message, messages))
            accepted += 1
        except InvalidMessage as refusal:
            longest = max(longest, len(str(refusal)))
    assert longest < 250
    return accepted


def read_request(headers: dict[str, str], text: bytes) -> None:
    request = oip.parse_request(headers, text)
    again = oip.build_request(request.inputs, id=request.id, outputs=request.outputs, binary=True)
    copy = oip.parse_request(again.headers, again.body)
    for name, tensor in request.inputs.items():
        np.testing.assert_array_equal(copy.inputs[name], tensor, strict=True)


def read_response(headers: dict[str, str], text: bytes) -> None:
    assert oip.parse_response(headers, text, id="42").id == "42"


def read_metadata(_: dict[str, str], text: bytes) -> None:
    metadata = oip.parse_model_metadata(text)
    assert oip.parse_model_metadata(oip.build_model_metadata(metadata).body) == metadata


def test_mutated_messages_are_read_or_refused_in_bounded_memory() -> None:
    fuzz(100, seed=1)
    tracemalloc.start()
    try:
        accepted = fuzz(20_000, seed=0)
        gc.collect()
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 1000 < accepted < 15_000
    assert peak < 2**20
    assert left < 2**17
