"""Tensors of the Open Inference Protocol: datatypes, shapes, and data as JSON or as bytes.

The bytes are little-endian and row by row, a BOOL one byte, an element of BYTES its length in four bytes and then
itself. JSON holds numbers, true and false, or text, flat or nested as the shape says. FP16 in JSON goes beyond the
protocol, which leaves it to the bytes; BF16, for which numpy has no type, is refused.
"""

import math
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidMessage
from hinge.oip.json import MAX_BODY_BYTES, kind, listing, shown, text

Tensor: TypeAlias = NDArray[Any]

MAX_RANK = 32  # dimensions, as many as every numpy can have
MAX_STRINGS = 2**20  # elements of BYTES, each of which becomes an object

_TYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"), "UINT16": np.dtype("<u2"), "UINT32": np.dtype("<u4"), "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"), "INT16": np.dtype("<i2"), "INT32": np.dtype("<i4"), "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}  # fmt: skip
_NAMES = {(dtype.kind, dtype.itemsize): name for name, dtype in _TYPES.items() if name != "BYTES"}
_WORDS = {"b": "true and false", "u": "whole numbers", "i": "whole numbers", "f": "numbers", "O": "text"}
_IN_JSON: dict[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}, "O": {str}}
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
        owner = f"tensor {shown(self.name)}"
        datatype = datatype_of(owner, tensor)
        if datatype != self.datatype:
            raise InvalidMessage(f"{owner}: datatype must be {self.datatype}, got {datatype}")
        fits = len(tensor.shape) == len(self.shape) and all(
            size in (-1, got) for size, got in zip(self.shape, tensor.shape, strict=True)
        )
        if not fits:
            want, got = (shown(str(list(shape))).strip("'") for shape in (self.shape, tensor.shape))
            raise InvalidMessage(f"{owner}: shape must be {want}, got {got}")


def check_tensors(tensors: Mapping[str, Tensor], expected: Collection[str | TensorSpec]) -> None:
    """Refuse tensors among which an expected one is missing, or is not as its spec says."""
    for item in expected:
        name = item if isinstance(item, str) else item.name
        if name not in tensors:
            there = "; there is " + ", ".join(shown(other) for other in list(tensors)[:3]) if tensors else ""
            raise InvalidMessage(f"tensor {shown(name)} is missing{there}")
        if isinstance(item, TensorSpec):
            item.check(tensors[name])


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


def checked_shape(owner: str, value: object, low: int = 0) -> tuple[int, ...]:
    """The value as a shape, if a message could hold such a tensor.

    >>> checked_shape("input 'x'", [2**40, 2**40])
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: input 'x': shape must have sizes from 0 to 67108864, got 1099511627776
    """
    sizes: list[int] = []
    for size in listing(f"{owner}: dimensions", value, MAX_RANK):
        if type(size) is not int or not low <= size <= MAX_BODY_BYTES:
            raise InvalidMessage(f"{owner}: shape must have sizes from {low} to {MAX_BODY_BYTES}, got {shown(size)}")
        sizes.append(size)
    if math.prod(max(size, 1) for size in sizes) > MAX_BODY_BYTES:  # numpy wants room even beside a size of 0
        raise InvalidMessage(f"{owner}: shape is too large for any message of {MAX_BODY_BYTES} bytes")
    return tuple(sizes)


def to_bytes(owner: str, tensor: Tensor) -> bytes:
    """The data of a tensor as the binary extension has it.

    >>> to_bytes("input 'x'", np.array([1, 2], ">u2"))
    b'\\x01\\x00\\x02\\x00'
    """
    datatype = datatype_of(owner, tensor)
    if datatype != "BYTES":
        return tensor.astype(_TYPES[datatype], copy=False).tobytes()
    return b"".join(_LENGTH.pack(len(element)) + element for element in _strings(owner, tensor))


def from_bytes(owner: str, data: memoryview, datatype: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor that the bytes hold, if they are exactly as many as it needs.

    >>> from_bytes("input 'x'", memoryview(bytes(7)), "FP32", (2,))
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: input 'x': 2 elements of FP32 are 8 bytes, got 7
    """
    count = math.prod(shape)
    if datatype == "BYTES":
        return _objects(_parted(owner, data, count), shape)
    dtype = _TYPES[datatype]
    if count * dtype.itemsize != len(data):
        raise InvalidMessage(
            f"{owner}: {count} elements of {datatype} are {count * dtype.itemsize} bytes, got {len(data)}"
        )
    if datatype == "BOOL" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise InvalidMessage(f"{owner}: a BOOL must be a byte of 0 or 1")
    tensor: Tensor = np.frombuffer(data, dtype).reshape(shape).copy()  # aligned, and free of the body it came in
    return tensor


def to_json(owner: str, tensor: Tensor) -> list[object]:
    """The data of a tensor as a flat list for JSON.

    >>> to_json("input 'x'", np.array([[1.5], [np.nan]]))
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: input 'x': NaN and infinity have no form in JSON; send them as binary data
    """
    if datatype_of(owner, tensor) == "BYTES":
        return [_decoded(owner, element) for element in _strings(owner, tensor)]
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        raise InvalidMessage(f"{owner}: NaN and infinity have no form in JSON; send them as binary data")
    elements: list[object] = tensor.ravel().tolist()
    return elements


def from_json(owner: str, data: object, datatype: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor that a list, flat or nested, holds.

    >>> from_json("input 'x'", [[1, 2.5], [3, 4]], "FP32", (2, 2)).tolist()
    [[1.0, 2.5], [3.0, 4.0]]
    """
    elements = _flat(owner, data, shape)
    dtype = _TYPES[datatype]
    wrong = set(map(type, elements)) - _IN_JSON[dtype.kind]
    if wrong:
        found = shown(next(element for element in elements if type(element) in wrong))
        raise InvalidMessage(f"{owner}: data of {datatype} must hold {_WORDS[dtype.kind]}, got {found}")
    if datatype == "BYTES":
        return _objects([_encoded(owner, element) for element in elements], shape)
    if dtype.kind == "f":
        return _floats(owner, elements, dtype).reshape(shape)
    if dtype.kind != "b" and elements:
        limits = np.iinfo(dtype)
        if min(elements) < limits.min or max(elements) > limits.max:
            raise InvalidMessage(f"{owner}: data is out of the range of {datatype}")
    return np.array(elements, dtype).reshape(shape)


def _flat(owner: str, data: object, shape: tuple[int, ...]) -> list[Any]:
    count = math.prod(shape)
    parts: list[Any] = listing(f"{owner}: elements", data, MAX_BODY_BYTES)
    if list not in map(type, parts) and len(parts) == count:
        return parts
    parts = [parts]
    for size in shape:
        if not all(type(part) is list and len(part) == size for part in parts):
            raise InvalidMessage(f"{owner}: data must be {count} elements, flat or nested as its shape is")
        parts = list(chain.from_iterable(parts))
    return parts


def _floats(owner: str, elements: list[Any], dtype: np.dtype[Any]) -> Tensor:
    try:
        with np.errstate(all="ignore"):
            numbers = np.array(elements, np.float64).astype(dtype)
    except OverflowError:  # an integer beyond every float
        numbers = np.array([np.inf])
    if not np.isfinite(numbers).all():  # JSON can write 1e999
        raise InvalidMessage(f"{owner}: data is out of the range of {dtype.name}")
    return numbers


def _parted(owner: str, data: memoryview, count: int) -> list[bytes]:
    """The elements of BYTES, each behind its length."""
    if count > MAX_STRINGS or count * _LENGTH.size > len(data):
        raise InvalidMessage(f"{owner}: {count} elements of BYTES do not fit in {len(data)} bytes, or are too many")
    elements = []
    position = 0
    for _ in range(count):
        start = position + _LENGTH.size
        if start > len(data):
            break
        position = start + _LENGTH.unpack_from(data, position)[0]
        elements.append(bytes(data[start:position]))
    if position != len(data) or len(elements) != count:
        raise InvalidMessage(f"{owner}: the lengths inside BYTES do not add up to {len(data)} bytes")
    return elements


def _strings(owner: str, tensor: Tensor) -> list[bytes]:
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


def _decoded(owner: str, element: bytes) -> str:
    try:
        return element.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidMessage(f"{owner}: bytes that are not UTF-8 have no form in JSON; send binary data") from None


def _objects(elements: list[bytes], shape: tuple[int, ...]) -> Tensor:
    tensor = np.empty(len(elements), object)
    tensor[:] = elements
    return tensor.reshape(shape)


def read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number of Protocol Buffers, in groups of seven bits, and where it ends; raises `ValueError` if it does not end.

    >>> read_varint(memoryview(bytes([172, 2])), 0)
    (300, 2)
    """
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise ValueError("a number does not end")
