"""Messages of Protocol Buffers, walked field by field: of a model's file, what its classes are called."""

from collections.abc import Iterable, Iterator
from typing import Any

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # how a field is written


def fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a message: numbers, and the bytes of what has a length; damage raises `ValueError`.

    >>> [(number, bytes(value)) for number, value in fields(memoryview(b"\\x0a\\x02hi"))]
    [(1, b'hi')]
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, form = key >> 3, key & 7
        if not 0 < number < 2**29:
            raise ValueError("a field has no number")
        if form == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if form == _LENGTH:
            size, position = _varint(message, position)
        elif form in (_FIXED64, _FIXED32):
            size = 8 if form == _FIXED64 else 4
        else:
            raise ValueError("a field has no form")
        end = position + size
        if end > len(message):
            raise ValueError("a field is longer than the message")
        yield number, message[position:end] if form == _LENGTH else 0
        position = end


def parts(message: memoryview, *wanted: int) -> dict[int, list[Any]]:
    """What the fields wanted hold, by their numbers: all of each, in order.

    >>> {number: len(values) for number, values in parts(memoryview(b"\\x0a\\x02hi\\x10\\x07"), 1, 2, 3).items()}
    {1: 1, 2: 1, 3: 0}
    """
    found: dict[int, list[Any]] = {number: [] for number in wanted}
    for number, value in fields(message):
        if number in found:
            found[number].append(value)
    return found


def integers(values: Iterable[memoryview | int]) -> list[int]:
    """The signed numbers of a repeated field, as it holds them: one by one, or many packed together.

    >>> integers([5, memoryview(bytes([172, 2] + [255] * 9 + [1]))])
    [5, 300, -1]
    """
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        position = 0
        while position < len(value):
            number, position = _varint(value, position)
            found.append(number)
    return [number - 2**64 if number >= 2**63 else number for number in found]


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends.

    >>> _varint(memoryview(bytes([172, 2])), 0)
    (300, 2)
    """
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise ValueError("a number does not end")
