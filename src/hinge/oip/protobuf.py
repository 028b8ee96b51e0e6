"""Messages of Protocol Buffers, walked field by field without making objects of them: to count, and to search.

Two bytes may become an object of a hundred, so what a stranger sends is looked through before a library decodes it.
"""

from collections.abc import Iterator

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
