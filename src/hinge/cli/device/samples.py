"""Where the samples of `hinge device` come from: images, arrays, frames on standard input, or a trace."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hinge import fashion
from hinge.cli import show
from hinge.errors import InvalidTrace
from hinge.models.base import OneInput
from hinge.traces import Trace

_ARRAYS = ("samples", "images", "x")  # what the samples are called in an npz file, if not by the first name in it


class Case(NamedTuple):
    """A sample, and what is known of it besides."""

    sample: Any
    truth: Any = None  # the true label
    remote: Any = None  # what the remote said when the sample was recorded
    name: str | None = None


@dataclass(frozen=True)
class Stream:
    """Samples, one after another."""

    cases: Iterable[Case]
    example: Any  # a sample such as will come
    length: int | None = None  # None: nobody knows
    classes: Sequence[str] | None = None  # the names of the labels, if they have some
    truths: Sequence[Any] = ()  # the true labels by number, of those that have one


def from_fashion() -> Stream:
    """The test images that come with Hinge."""
    images, labels = fashion.labelled_images()
    cases = (Case(image, fashion.CLASSES[label]) for image, label in zip(images, labels, strict=True))
    return Stream(cases, images[0], len(images), fashion.CLASSES)


def from_trace(trace: Trace) -> Stream:
    """The rows of a trace: a sample is its number, in an array of one, as a server can be sent it."""
    rows = np.arange(len(trace))[:, None]
    truths = [None] * len(trace) if trace.label is None else trace.label.tolist()
    columns = zip(rows, truths, trace.remote.tolist(), strict=True)
    return Stream((Case(*column) for column in columns), rows[0], len(trace))


def is_trace(path: Path) -> bool:
    """Whether an npz file holds a trace rather than samples."""
    names = _opened(path).files
    return "confidence" in names or "local_logits" in names


def from_array(path: Path) -> Stream:
    """The samples in an npy file, as they are."""
    samples = _loaded(path)
    if not isinstance(samples, np.ndarray):
        raise InvalidTrace(f"{path}: not an .npy file")
    if samples.ndim < 1 or not len(samples):
        raise InvalidTrace(f"{path}: there are no samples in it")
    return Stream((Case(sample) for sample in samples), samples[0], len(samples))


def from_arrays(path: Path) -> Stream:
    """The samples in an npz file, as they are, with their `labels` if it has some."""
    arrays = _opened(path)
    names = [name for name in (*_ARRAYS, *arrays.files) if name in arrays.files and name != "labels"]
    if not names:
        raise InvalidTrace(f"{path}: there are no samples in it")
    samples = _array(path, arrays, names[0])
    if samples.ndim < 1 or not len(samples):
        raise InvalidTrace(f"{path}: there are no samples in array {names[0]!r}")
    truths: list[Any] = []
    if "labels" in arrays.files:
        truths = _array(path, arrays, "labels").tolist()
        if not isinstance(truths, list) or len(truths) != len(samples):
            raise InvalidTrace(f"{path}: there must be a label for each of {show.counted(len(samples), 'sample')}")
    labels = truths or [None] * len(samples)
    cases = (Case(sample, label) for sample, label in zip(samples, labels, strict=True))
    return Stream(cases, samples[0], len(samples), truths=truths)


def from_frames(wanted: OneInput, source: IO[bytes] | None = None) -> Stream:
    """Raw frames of the model's size and type back to back, as a camera sends them, until the end of the input."""
    shape = wanted.sample_shape
    if min(shape, default=1) < 0 or wanted.dtype.kind not in "iufb":
        raise ValueError(f"frames need a model whose samples have one size; this one takes {list(shape)}")
    return Stream(_frames(source or sys.stdin.buffer, shape, wanted.dtype), np.zeros(shape, wanted.dtype))


def _frames(source: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Case]:
    size, frames = dtype.itemsize * math.prod(shape), 0
    while len(frame := source.read(size)) == size:
        frames += 1
        yield Case(np.frombuffer(frame, dtype).reshape(shape))
    if not frames:
        cut = f", but {len(frame)} of its {size} bytes" if frame else ""
        raise ValueError(f"no frame on standard input{cut}")
    if frame:
        show.warn(f"the last frame is cut short, at {len(frame)} of {size} bytes")


def _opened(path: Path) -> Any:
    arrays = _loaded(path)
    if not hasattr(arrays, "files"):
        raise InvalidTrace(f"{path}: not an .npz file")
    return arrays


def _loaded(path: Path) -> Any:
    content = io.BytesIO(path.read_bytes())  # so that whatever fails from here on is the file's fault
    try:
        return np.load(content, allow_pickle=False)
    except Exception as error:  # broken bytes surface anywhere in numpy, zipfile and zlib
        raise InvalidTrace(f"{path}: not an {path.suffix.lower()} file") from error


def _array(path: Path, arrays: Any, name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = arrays[name]
    except Exception as error:
        raise InvalidTrace(f"{path}: array {name!r} cannot be read ({error or type(error).__name__})") from error
    return array
