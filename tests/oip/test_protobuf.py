"""Fields that are left out quickly are those, and only those, that reading them one by one would leave out."""

from hypothesis import given
from hypothesis import strategies as st

from hinge.oip.protobuf import fields

WANTED = frozenset({2, 5})


def varint(number: int) -> bytes:
    groups = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


@st.composite
def a_field(draw: st.DrawFn) -> bytes:
    number, form = draw(st.sampled_from([1, 2, 5, 15, 16, 300])), draw(st.sampled_from([0, 1, 2, 5]))
    content = draw(st.binary(min_size=9, max_size=300))
    body = {0: varint(draw(st.integers(0, 2**64 - 1))), 1: content[:8], 5: content[:4]}
    return varint(number << 3 | form) + body.get(form, varint(len(content)) + content)


def read(message: bytes, wanted: frozenset[int] | None) -> list[tuple[int, bytes | int]] | None:
    try:
        found = list(fields(memoryview(message), wanted))
    except ValueError:
        return None
    return [(number, value if isinstance(value, int) else bytes(value)) for number, value in found if number in WANTED]


@given(st.lists(a_field(), max_size=20).map(b"".join), st.integers(0, 300), st.integers(0, 255))
def test_wanted_fields_are_found_among_any_others(message: bytes, place: int, byte: int) -> None:
    assert read(message, WANTED) == read(message, None) is not None
    cut, damaged = message[:place], bytearray(message)
    if place < len(message):
        damaged[place] = byte
    for broken in (cut, bytes(damaged)):
        assert read(broken, WANTED) == read(broken, None)


def test_lists_of_numbers_are_left_out_whole() -> None:
    floats, integers, texts = b"\x3d\x00\x00\x80\x3f" * 1000, b"\x40\xff\x01" * 1000, b"\x4a\x04LEAF" * 1000
    assert list(fields(memoryview(floats + integers + b"\x10\x07" + texts), WANTED)) == [(2, 7)]
