"""R9: whatever bytes come, a parser reads them or refuses them in its own words, and keeps nothing.

HINGE_FUZZ is the number of inputs, over all parsers; a fixed seed makes them.
"""

import gc
import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hinge.errors import InvalidState
from tests.fuzz import subjects
from tests.fuzz.subjects import Subject, Unfit

pytestmark = pytest.mark.usefixtures("frozen")

INPUTS = int(os.environ.get("HINGE_FUZZ", "40000"))
LONGEST = 1000  # characters of what is said about a message
ROOM_BYTES = 2**29
GROWTH_BYTES = 24 * 2**20  # what the allocator may keep back for later
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


def resident() -> int:
    """Bytes of memory in use."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def fed(subject: Subject, inputs: int, seed: int) -> int:
    """Feed so many; returns how many were read."""
    chance, read, longest, left = random.Random(seed), 0, 0, inputs
    while left:
        left -= 1
        data = mutated(chance, chance.choice(subject.seeds), subject.seeds)
        try:
            read += subject.feed(data) is not None
        except subject.errors as refusal:
            longest = max(longest, 0 if isinstance(refusal, InvalidState) else len(str(refusal)))
        except Unfit:
            left += 1
        except BaseException:
            print(f"the input was {data!r}")
            raise
    assert longest <= LONGEST
    return read


@contextmanager
def room(size: int) -> Iterator[None]:
    """No more memory than so much, so that who asks for all of it is refused and not served."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def check(name: str, subject: Subject) -> None:
    known = 0
    for seed in subject.seeds:
        with suppress(*subject.errors):  # a few are examples of what is refused
            known += subject.feed(seed) is not None
    assert known > 0.7 * len(subject.seeds)
    inputs = max(200, round(INPUTS * subject.share))
    with room(ROOM_BYTES):
        read = fed(subject, inputs // 10, seed=1)
        before = resident()
        read += fed(subject, inputs - inputs // 10, seed=2)
        grown = resident() - before
    assert read < inputs
    assert grown < GROWTH_BYTES


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "requests": subjects.request_subject,
    "responses": subjects.response_subject,
    "metadata": subjects.metadata_subject,
    "tensors": subjects.tensor_subject,
    "rows": subjects.row_subject,
    "states": subjects.state_subject,
    "models, by onnxruntime": subjects.onnx_subject,
    "models, by OpenVINO": subjects.openvino_subject,
    "CSV": subjects.csv_subject,
    "lines of JSON": subjects.jsonl_subject,
    "npz": subjects.npz_subject,
    "Parquet": subjects.parquet_subject,
    "TOML": subjects.toml_subject,
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_r9_fuzzed(name: str) -> None:
    check(name, SUBJECTS[name]())


def test_r9_fuzzed_over_http() -> None:
    with subjects.http_subject() as subject:
        check("HTTP", subject)
