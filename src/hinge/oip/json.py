"""JSON of the Open Inference Protocol: typed decoding with msgspec, and the data of tensors.

What a client or a server sends is hostile. Types are checked while the text is decoded, so that most of what is wrong
is refused at its first byte; limits hold before anything is allocated, and an error shows only a few characters of it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Raw

from hinge._checks import shown as shown
from hinge.errors import InvalidMessage, printable
from hinge.oip.tensors import MAX_BODY_BYTES as MAX_BODY_BYTES
from hinge.oip.tensors import MAX_RANK, MAX_STRINGS, Tensor, datatype_of, dtype_of, objects, strings

MAX_JSON_BYTES = 16 * 2**20  # large tensors are for binary data; reading JSON takes more time and memory
MAX_SMALL_BYTES = 2**20  # of metadata and of errors
MAX_OBJECTS = 2**14  # opening braces in a message, of which one with the most tensors has some hundred
MAX_ELEMENTS = 2**20  # of a tensor whose data is JSON

JSON_LENGTH = "Inference-Header-Content-Length"  # the header of a message with binary data behind its JSON
_JSON_LENGTH = JSON_LENGTH.lower()
_SHAPE_BYTES = 2048  # of the JSON of a shape
_SIZES = msgspec.json.Decoder(list[int])

T = TypeVar("T")


@dataclass(frozen=True)
class Message:
    """What goes over HTTP: the headers that the format needs, and the body."""

    headers: dict[str, str]
    body: bytes


def json_message(value: object) -> Message:
    """A message of JSON alone. KServe refuses it without its content type.

    >>> json_message({"error": "no such model"})
    Message(headers={'Content-Type': 'application/json'}, body=b'{"error":"no such model"}')
    """
    return Message({"Content-Type": "application/json"}, limited(write_json(value)))


def limited(body: bytes) -> bytes:
    """The body, unless it is larger than any message may be."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidMessage(f"a message may have {MAX_BODY_BYTES} bytes, got {len(body)}")
    return body


def write_json(value: object) -> bytes:
    """The value as compact JSON."""
    return msgspec.json.encode(value)


def decoded(body: bytes, decoder: msgspec.json.Decoder[T], most: int = MAX_SMALL_BYTES) -> T:
    """What a decoder makes of JSON; whatever is wrong with it raises `InvalidMessage`.

    >>> decoded(b'{"id": 7}', msgspec.json.Decoder(dict[str, str]))
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: JSON: Expected `str`, got `int` - at `$[...]`
    """
    if len(body) > most:
        raise InvalidMessage(f"JSON: {len(body)} bytes, more than {most}")
    if body.count(b"{") > MAX_OBJECTS:  # msgspec limits the length of a list only once it is read
        raise InvalidMessage(f"JSON: more than {MAX_OBJECTS} objects")
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = _problem(error)
    except RecursionError:
        problem = "nested too deep"
    raise InvalidMessage(f"JSON: {problem}")  # out here, so that the error does not hold on to the body


def decoded_message(headers: Mapping[str, str], body: bytes, decoder: msgspec.json.Decoder[T]) -> tuple[T, memoryview]:
    """What a decoder makes of the JSON of a message, and the binary data behind that."""
    limited(body)
    lengths = [value for name, value in headers.items() if name.lower() == _JSON_LENGTH]
    if not lengths:
        return decoded(body, decoder, MAX_JSON_BYTES), memoryview(b"")
    if len(lengths) > 1 or not re.fullmatch(r"[0-9]{1,9}", lengths[0]) or int(lengths[0]) > len(body):
        raise InvalidMessage(f"{JSON_LENGTH} must be one number up to {len(body)}, got {shown(lengths[0])}")
    length = int(lengths[0])
    return decoded(body[:length], decoder, MAX_JSON_BYTES), memoryview(body)[length:]


def decoded_shape(owner: str, sizes: Raw) -> list[int]:
    """The sizes of a tensor, not checked yet; their JSON is not read where it is too long for a shape."""
    if len(bytes(sizes)) > _SHAPE_BYTES:
        raise InvalidMessage(f"{owner}: dimensions may be {MAX_RANK} at most, got more")
    return decoded(bytes(sizes), _SIZES)


def _problem(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "no UTF-8"
    return printable(str(error).removeprefix("JSON is "), 160)


# -- the data of tensors ----------------------------------------------------------------------------------------------

_WORDS = {"b": "true and false", "f": "numbers", "O": "text"}
_NESTED = re.compile(rb"\[\s*\[")
_COUNTED = 2**20  # bytes of data from which elements are counted before they are read
_MANY = 4096  # elements from which `_floats` looks for numbers that msgspec needs 10 µs each to read
_SLOW = re.compile(rb"e[-+]?0*[1-9][0-9][0-9]")  # such as 5e-324, which Python reads in 1 µs
_ZEROS = b"0" * 40  # or the same without an exponent
_SLOWLY = 2**16  # elements that may be read like this, which takes a tenth of a second
_WIDEST = 64  # bytes of an integer of 64 bits, with room for blanks


def to_json(owner: str, tensor: Tensor) -> list[Any]:
    """The data of a tensor as a flat list for JSON.

    >>> to_json("input 'x'", np.array([[1.5], [np.nan]]))
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: input 'x': NaN and infinity have no form in JSON; send them as binary data
    """
    if datatype_of(owner, tensor) == "BYTES":
        return [_utf8(owner, element) for element in strings(owner, tensor)]
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        raise InvalidMessage(f"{owner}: NaN and infinity have no form in JSON; send them as binary data")
    elements: list[Any] = tensor.ravel().tolist()
    return elements


def from_json(owner: str, data: bytes, datatype: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor whose data is a JSON list, flat or nested as the shape is.

    >>> from_json("input 'x'", b"[[1, 2.5], [3, 4]]", "FP32", (2, 2)).tolist()
    [[1.0, 2.5], [3.0, 4.0]]
    """
    count, dtype = math.prod(shape), dtype_of(datatype)
    most = MAX_STRINGS if datatype == "BYTES" else MAX_ELEMENTS
    if count > most:
        raise InvalidMessage(f"{owner}: data in JSON may be {most} elements, got {count}; send binary data")
    if len(data) > _COUNTED:
        _check_count(owner, data, count, dtype.kind)
    nested = _NESTED.match(data) is not None
    try:
        if dtype.kind == "f" and count > _MANY and not nested:
            elements = _floats(data, count)
        else:
            elements = _decoder(datatype, max(len(shape), 1) if nested else 1).decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        problem = f"data of {datatype} must hold {_elements(dtype)}: {_problem(error)}"
    else:
        flat = _flat(owner, elements, shape) if nested else elements
        if len(flat) != count:
            raise InvalidMessage(f"{owner}: data must be {count} elements, got {len(flat)}")
        return _array(owner, flat, dtype).reshape(shape)
    raise InvalidMessage(f"{owner}: {problem}")  # out here, so that the error does not hold on to the data


def _check_count(owner: str, data: bytes, count: int, kind: str) -> None:
    """Refuse more or wider elements than the shape has, before they are read."""
    commas = data.count(b",")
    if commas + 1 < count or (kind != "O" and commas + 1 > max(count, 1)):
        raise InvalidMessage(f"{owner}: data must be {count} elements")
    if kind in "ui" and len(max(data.split(b","), key=len)) > _WIDEST:
        raise InvalidMessage(f"{owner}: data has integers of more than {_WIDEST} characters")


def _floats(data: bytes, count: int) -> list[float]:
    if b'"' in data or b"l" in data or b"u" in data:  # text, null, true or false
        raise ValueError("there is something else in it")
    if _ZEROS in data or b"E" in data or _SLOW.search(data):
        if count > _SLOWLY:
            raise ValueError(f"exponents of three digits may be in {_SLOWLY} elements, got {count}; send binary data")
        return [float(number) for number in data[1:-1].split(b",")]  # of valid JSON, of which only numbers are left
    numbers: list[float] = _decoder("FP64", 1).decode(data)
    return numbers


@cache
def _decoder(datatype: str, depth: int) -> msgspec.json.Decoder[Any]:
    """The decoder of lists in lists, so many deep, of elements of that datatype."""
    type: Any = {"b": bool, "f": float, "O": str}.get(dtype_of(datatype).kind, int)
    if type is int:
        limits = np.iinfo(dtype_of(datatype))
        high = None if limits.max > np.iinfo(np.int64).max else int(limits.max)  # msgspec has no bound beyond int64
        type = Annotated[int, Meta(ge=int(limits.min), le=high)]
    for _ in range(depth):
        type = list[type]
    return msgspec.json.Decoder(type)


def _elements(dtype: np.dtype[Any]) -> str:
    if dtype.kind in _WORDS:
        return _WORDS[dtype.kind]
    return f"integers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"


def _flat(owner: str, nested: list[Any], shape: tuple[int, ...]) -> list[Any]:
    parts: list[Any] = [nested]
    for size in shape:
        if not all(len(part) == size for part in parts):
            raise InvalidMessage(f"{owner}: data must be flat or nested as its shape is")
        parts = list(chain.from_iterable(parts))
    return parts


def _array(owner: str, elements: list[Any], dtype: np.dtype[Any]) -> Tensor:
    if dtype.kind == "O":
        return objects(list(map(str.encode, elements)))
    if dtype.kind != "f":
        try:
            return np.fromiter(elements, dtype, len(elements))
        except OverflowError:  # beyond 64 bits
            raise InvalidMessage(f"{owner}: data is out of the range of {dtype.name}") from None
    with np.errstate(over="ignore"):
        numbers = np.fromiter(elements, np.float64, len(elements)).astype(dtype, copy=False)
    if not np.isfinite(numbers).all():
        raise InvalidMessage(f"{owner}: data is out of the range of {dtype.name}")
    return numbers


def _utf8(owner: str, element: bytes) -> str:
    try:
        return element.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidMessage(f"{owner}: bytes that are not UTF-8 have no form in JSON; send binary data") from None
