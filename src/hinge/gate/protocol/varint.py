"""Numbers as Protocol Buffers write them."""


def read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends; raises `ValueError` if it does not end.

    >>> read_varint(memoryview(bytes([172, 2])), 0)
    (300, 2)
    """
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise ValueError("a number does not end")
