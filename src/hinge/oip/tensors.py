"""Tensors of the Open Inference Protocol: datatypes, shapes, data as bytes or as JSON, and how they stand in messages.

The bytes are little-endian and row by row, a BOOL one byte, an element of BYTES its length in four bytes and then
itself. BF16, for which numpy has no type, is refused. Limits hold before anything is allocated: of a tensor in a
message, shape and data stay raw until its name, datatype and size have passed.
"""

import math
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from numpy.typing import NDArray

from hinge._checks import kind, shown
from hinge.errors import InvalidMessage, printable

Tensor: TypeAlias = NDArray[Any]

MAX_BODY_BYTES = 64 * 2**20  # of a message
MAX_TEXT = 256  # characters in a name or an id
MODEL_NAME = r"[A-Za-z0-9_.-]{1,64}"  # a regular expression
MAX_RANK = 32  # dimensions, as many as every numpy can have
MAX_STRINGS = 2**18  # elements of BYTES, each of which becomes an object
MAX_ELEMENTS = 2**20  # of a tensor whose data is JSON

_TYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"), "UINT16": np.dtype("<u2"), "UINT32": np.dtype("<u4"), "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"), "INT16": np.dtype("<i2"), "INT32": np.dtype("<i4"), "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}  # fmt: skip  # several to a line
_NAMES = {(dtype.kind, dtype.itemsize): name for name, dtype in _TYPES.items() if name != "BYTES"}
_LENGTH = struct.Struct("<I")

DATATYPES = tuple(_TYPES)


@dataclass(frozen=True)
class TensorSpec:
    """What metadata says of a tensor. In its shape, -1 stands for any size.

    >>> TensorSpec("scores", "FP32", (-1, 10)).check(np.zeros((5, 9), np.float32))
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: tensor 'scores': shape must be [-1, 10], got [5, 9]
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        owner = f"tensor {shown(text('tensor name', self.name))}"
        check_datatype(owner, self.datatype)
        object.__setattr__(self, "shape", checked_shape(owner, list(self.shape), low=-1))

    def check(self, tensor: Tensor) -> None:
        """Refuse a tensor of another datatype or shape."""
        self.check_form(datatype_of(f"tensor {shown(self.name)}", tensor), tensor.shape)

    def check_form(self, datatype: str, shape: tuple[int, ...]) -> None:
        """Refuse another datatype or shape, before there is a tensor."""
        if datatype != self.datatype:
            raise InvalidMessage(f"tensor {shown(self.name)}: datatype must be {self.datatype}, got {datatype}")
        fits = len(shape) == len(self.shape)
        for size, got in zip(self.shape, shape, strict=False):
            fits = fits and size in (-1, got)
        if not fits:
            want, found = (shown(str(list(sizes))).strip("'") for sizes in (self.shape, shape))
            raise InvalidMessage(f"tensor {shown(self.name)}: shape must be {want}, got {found}")


def text(owner: str, value: object, empty: bool = False) -> str:
    """The value, if it is text that may stand in a log: short, printable, and not empty unless it may be."""
    if not isinstance(value, str) or not (value or empty) or len(value) > MAX_TEXT or not value.isprintable():
        raise InvalidMessage(f"{owner} must be 1 to {MAX_TEXT} printable characters, got {shown(value)}")
    return value


def model_name(value: object, owner: str = "model name") -> str:
    """The value, if it may name a model (or a version of one): nothing that a path or an address could be made of.

    >>> model_name("resnet-50.v2")
    'resnet-50.v2'
    >>> model_name("../secrets")
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: model name must be 1 to 64 of A-Z a-z 0-9 _ . - and more than dots, got '../secrets'
    """
    if not isinstance(value, str) or not re.fullmatch(MODEL_NAME, value) or not value.strip("."):
        raise InvalidMessage(f"{owner} must be 1 to 64 of A-Z a-z 0-9 _ . - and more than dots, got {shown(value)}")
    return value


def check_datatype(owner: str, value: object) -> str:
    """The value, if it names a datatype we can hold."""
    if value == "BF16":
        raise InvalidMessage(f"{owner}: datatype BF16 is not supported; convert to FP32")
    if not isinstance(value, str) or value not in _TYPES:
        raise InvalidMessage(f"{owner}: datatype must be one of {', '.join(DATATYPES)}, got {shown(value)}")
    return value


def dtype_of(datatype: str) -> np.dtype[Any]:
    """The numpy type of a datatype.

    >>> dtype_of("FP32")
    dtype('float32')
    """
    return _TYPES[datatype]


def cast(owner: str, tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """The tensor in another type, if that is of the same kind or a wider one, and holds all of its numbers.

    >>> cast("sample", np.array([1, 300]), np.dtype("u1"))
    Traceback (most recent call last):
    ValueError: sample: the model takes uint8, the sample is int64
    >>> cast("sample", np.array([1, 300]), np.dtype("i1"))
    Traceback (most recent call last):
    ValueError: sample: the model takes int8, the sample has values beyond that
    """
    if not np.can_cast(tensor.dtype, dtype, "same_kind"):
        raise ValueError(f"{owner}: the model takes {dtype.name}, the sample is {tensor.dtype.name}")
    with np.errstate(over="ignore"):
        found: Tensor = tensor.astype(dtype)
    fits = np.array_equal(found, tensor) if dtype.kind in "iu" else np.array_equal(np.isinf(found), np.isinf(tensor))
    if not fits:
        raise ValueError(f"{owner}: the model takes {dtype.name}, the sample has values beyond that")
    return found


def datatype_of(owner: str, tensor: Tensor) -> str:
    """The datatype of an array; arrays of objects and of text are BYTES.

    >>> datatype_of("input 'x'", np.zeros(3, np.float32))
    'FP32'
    """
    if not isinstance(tensor, np.ndarray):
        raise InvalidMessage(f"{owner} must be a numpy array, got {kind(tensor)}")
    if tensor.dtype.kind in "OSU":
        return "BYTES"
    name = _NAMES.get((tensor.dtype.kind, tensor.dtype.itemsize))
    return name or check_datatype(owner, {"bfloat16": "BF16"}.get(tensor.dtype.name, tensor.dtype.name))


def checked_shape(owner: str, value: Sequence[int], low: int = 0) -> tuple[int, ...]:
    """The sizes as a shape, if a message could hold such a tensor.

    >>> checked_shape("input 'x'", [2**40, 2**40])
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: input 'x': shape must have sizes from 0 to 67108864, got 1099511627776
    """
    if len(value) > MAX_RANK:
        raise InvalidMessage(f"{owner}: dimensions may be {MAX_RANK} at most, got {len(value)}")
    total = 1
    for size in value:
        if type(size) is not int or not low <= size <= MAX_BODY_BYTES:
            raise InvalidMessage(f"{owner}: shape must have sizes from {low} to {MAX_BODY_BYTES}, got {shown(size)}")
        total *= max(size, 1)  # numpy wants room even beside a size of 0
    if total > MAX_BODY_BYTES:
        raise InvalidMessage(f"{owner}: shape is too large for any message of {MAX_BODY_BYTES} bytes")
    return tuple(value)


def to_bytes(owner: str, tensor: Tensor) -> bytes:
    """The data of a tensor as the binary extension has it.

    >>> to_bytes("input 'x'", np.array([1, 2], ">u2"))
    b'\\x01\\x00\\x02\\x00'
    """
    datatype = datatype_of(owner, tensor)
    if datatype != "BYTES":
        return tensor.astype(_TYPES[datatype], copy=False).tobytes()
    return b"".join(_LENGTH.pack(len(element)) + element for element in strings(owner, tensor))


def from_bytes(owner: str, data: memoryview, datatype: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor that the bytes hold, if they are exactly as many as it needs.

    >>> from_bytes("input 'x'", memoryview(bytes(7)), "FP32", (2,))
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: input 'x': 2 elements of FP32 are 8 bytes, got 7
    """
    count = math.prod(shape)
    if datatype == "BYTES":
        return objects(_parted(owner, data, count)).reshape(shape)
    dtype = _TYPES[datatype]
    if count * dtype.itemsize != len(data):
        raise InvalidMessage(
            f"{owner}: {count} elements of {datatype} are {count * dtype.itemsize} bytes, got {len(data)}"
        )
    if datatype == "BOOL" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise InvalidMessage(f"{owner}: a BOOL must be a byte of 0 or 1")
    tensor: Tensor = np.frombuffer(data, dtype).reshape(shape).copy()  # aligned, and free of the body it came in
    return tensor


def _parted(owner: str, data: memoryview, count: int) -> list[bytes]:
    """The elements of BYTES, each behind its length."""
    if count > MAX_STRINGS or count * _LENGTH.size > len(data):
        raise InvalidMessage(f"{owner}: {count} elements of BYTES do not fit in {len(data)} bytes, or are too many")
    content, position, elements = bytes(data), 0, []
    with suppress(struct.error):  # a length that is cut off
        for _ in range(count):
            start = position + _LENGTH.size
            position = start + _LENGTH.unpack_from(content, position)[0]
            elements.append(content[start:position])
    if position != len(content) or len(elements) != count:
        raise InvalidMessage(f"{owner}: the lengths inside BYTES do not add up to {len(content)} bytes")
    return elements


def strings(owner: str, tensor: Tensor) -> list[bytes]:
    """The elements of a tensor of BYTES."""
    if tensor.size > MAX_STRINGS:
        raise InvalidMessage(f"{owner}: BYTES may have {MAX_STRINGS} elements at most, got {tensor.size}")
    elements = [_encoded(owner, element) for element in tensor.ravel().tolist()]
    if sum(map(len, elements)) > MAX_BODY_BYTES:
        raise InvalidMessage(f"{owner}: BYTES hold more than a message of {MAX_BODY_BYTES} bytes")
    return elements


def _encoded(owner: str, element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if not isinstance(element, str):
        raise InvalidMessage(f"{owner}: an element of BYTES must be bytes or text, got {kind(element)}")
    try:
        return element.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can write
        raise InvalidMessage(f"{owner}: an element of BYTES is no text in UTF-8") from None


def objects(elements: list[bytes]) -> Tensor:
    """An array of one dimension that holds these."""
    tensor = np.empty(len(elements), object)
    tensor[:] = elements
    return tensor


# -- data in JSON ------------------------------------------------------------------------------------------------------

_WORDS = {"b": "true and false", "f": "numbers", "O": "text"}
_NESTED = re.compile(rb"\[\s*\[")
_COUNTED = 2**20  # bytes of data from which elements are counted before they are read
_MANY = 4096  # elements from which `_floats` looks for numbers that msgspec needs 10 µs each to read
_SLOW = re.compile(rb"e[-+]?0*[1-9][0-9][0-9]")  # such as 5e-324, which Python reads in 1 µs
_ZEROS = b"0" * 40  # or the same without an exponent
_SLOWLY = 2**16  # elements that may be read like this, which takes a tenth of a second
_MAX_DIGITS = 64  # bytes of an integer of 64 bits, with room for blanks


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
        wanted = _WORDS.get(dtype.kind) or f"integers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
        problem = f"data of {datatype} must hold {wanted}: {json_problem(error)}"
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
    if kind in "ui" and len(max(data.split(b","), key=len)) > _MAX_DIGITS:
        raise InvalidMessage(f"{owner}: data has integers of more than {_MAX_DIGITS} characters")


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
    if dtype == np.uint8:  # most images: a fifth of the time that numpy takes
        return np.frombuffer(bytearray(elements), dtype)
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


def json_problem(error: Exception) -> str:
    """What msgspec says is wrong with JSON, in short."""
    if isinstance(error, UnicodeDecodeError):
        return "no UTF-8"
    return printable(str(error).removeprefix("JSON is "), 160)


# -- in messages -------------------------------------------------------------------------------------------------------

_SHAPE_BYTES = 2048  # of the JSON of a shape, which need not be read if it has more
_ABSENT = (b"", b"null")  # data in JSON that is not there
_SIZES = msgspec.json.Decoder(list[int])

Name = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Datatype = Annotated[str, Meta(extra_json_schema={"enum": list(DATATYPES)})]
Sizes = Annotated[
    Raw, Meta(extra_json_schema={"type": "array", "maxItems": MAX_RANK, "items": {"type": "integer", "minimum": 0}})
]
Data = Annotated[Raw, Meta(extra_json_schema={"type": "array"})]


class TensorParameters(Struct, gc=False):
    """Parameters of a tensor; others are ignored."""

    binary_data_size: Annotated[int, Meta(ge=0)] | None = None


class TensorBody(Struct, gc=False):
    """A tensor in a request or a response; its data is in the JSON, or behind it if it has a size there."""

    name: Name
    shape: Sizes
    datatype: Datatype
    parameters: TensorParameters | None = None
    data: Data | UnsetType = UNSET


def write_tensor(owner: str, name: str, tensor: Tensor, parts: list[bytes] | None) -> dict[str, object]:
    """A tensor in a message; with `parts`, its data is appended to them, else it is in the JSON."""
    item: dict[str, object] = {"name": name, "shape": checked_shape(owner, tensor.shape)}
    item["datatype"] = datatype_of(owner, tensor)
    if parts is None:
        return {**item, "data": to_json(owner, tensor)}
    parts.append(to_bytes(owner, tensor))
    return {**item, "parameters": {"binary_data_size": len(parts[-1])}}


def read_tensor(owner: str, body: TensorBody, data: memoryview, spec: TensorSpec | None) -> tuple[Tensor, memoryview]:
    """The tensor, if it is such as `spec` says, and what is left of the binary data of its message."""
    sizes = bytes(body.shape)
    if len(sizes) > _SHAPE_BYTES:
        raise InvalidMessage(f"{owner}: dimensions may be {MAX_RANK} at most, got more")
    datatype, shape = check_datatype(owner, body.datatype), _shape(owner, sizes)
    if spec is not None:
        spec.check_form(datatype, shape)
    in_json = b"" if body.data is UNSET else bytes(body.data)
    size = None if body.parameters is None else body.parameters.binary_data_size
    if size is None:
        return from_json(owner, in_json, datatype, shape), data
    if in_json not in _ABSENT:
        raise InvalidMessage(f"{owner} has its data twice, in JSON and as binary data")
    if size > len(data):
        raise InvalidMessage(f"{owner}: binary_data_size must be from 0 to {len(data)}, got {shown(size)}")
    return from_bytes(owner, data[:size], datatype, shape), data[size:]


# A client sends the same names and shapes again and again: not checking them again takes 9 µs off a request.


@lru_cache(maxsize=256)
def owner_of(role: str, name: str) -> str:
    """What an error about a tensor begins with, if that may be its name."""
    return f"tensor {shown(text(f'{role}: name', name))}"


@lru_cache(maxsize=256)
def _shape(owner: str, sizes: bytes) -> tuple[int, ...]:
    """The shape that is written in JSON."""
    try:
        shape = _SIZES.decode(sizes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"JSON: {json_problem(error)}") from None
    return checked_shape(owner, shape)
