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
from tests.fuzz import answers, subjects
from tests.fuzz.mutations import mutated
from tests.fuzz.subjects import Subject, Unfit

pytestmark = pytest.mark.usefixtures("frozen")

INPUTS = int(os.environ.get("HINGE_FUZZ", "40000"))
LONGEST = 1000  # characters of what is said about a message
ROOM_BYTES = 2**29
GROWTH_BYTES = 24 * 2**20  # what the allocator may keep back for later


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
    with answers.http_subject() as subject:
        check("HTTP", subject)
