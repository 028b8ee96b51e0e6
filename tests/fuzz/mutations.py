"""Bytes with something wrong in them: bits turned, parts cut, doubled, swapped with others', or replaced by trouble."""

import random

TROUBLE = [
    *(b"9" * 12, b"9" * 30, b"-1", b"0", b"null", b"true", b"NaN", b"1e999", b"-Infinity", b"[" * 60, b"{", b"}", b'"'),
    *(b"\\u", b"\\ud800", b"\0", b"\xff\xff\xff\xff", b"\r\n", b"\r\n\r\n", b": ", b"\x80" * 10, b"\x7f\xff\xff\xff"),
]


def mutated(chance: random.Random, seed: bytes, others: list[bytes]) -> bytes:
    """A seed after a mutation or a few; parts may come from the others."""
    data = bytearray(seed)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0 if place < len(data):
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                del data[place : place + chance.choice([1, 2, 4, 16, len(data)])]
            case 2:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                data[place:place] = other[start : start + chance.randint(1, 60)]
            case 3:
                data[place : place + chance.randint(0, 4)] = chance.choice(TROUBLE)
            case 4 if place < len(data):
                data[place] = chance.randrange(256)
            case 5:
                data[place:place] = data[place : place + chance.randint(1, 40)]
            case 6:
                _change_number(chance, data)
    return bytes(data)


def _change_number(chance: random.Random, data: bytearray) -> None:
    """Another number in place of one that is there."""
    digits = [place for place, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
    if digits:
        place = chance.choice(digits)
        data[place : place + 1] = chance.choice([b"0", b"9", b"-3", b"17", b"4294967296", b"0.5", b"1e9"])
