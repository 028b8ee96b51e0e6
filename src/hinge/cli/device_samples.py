"""The samples of `hinge device`: a folder of images, arrays, raw frames on standard input, or the rows of a trace.

Images are read in the order of their names. Sub-folders are classes: named by the numbers of the classes, or one for
each, in the order of the model's. Each image is resized to the model's height and width, and turned grey if the model
has one channel or none; bytes stay from 0 to 255, floats go from 0 to 1. Any other preprocessing, such as a mean
subtracted, has to be part of the model.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hinge import fashion
from hinge._checks import did_you_mean
from hinge.cli import console
from hinge.cli.settings import UsageError
from hinge.errors import InvalidModel, InvalidTrace
from hinge.models import OneInput
from hinge.traces import Trace

SAMPLES = (  # what the help says of them
    "A folder of images, an .npz or .npy file, '-' for raw frames on standard input, or 'fashion' for the images that "
    "come with Hinge"
)
_ARRAYS = ("samples", "images", "x", "X", "x_test", "X_test", "data")  # the samples in an npz file, else its first
_OF_TEST = "y_test"  # and not of x_train
_LABELS = ("labels", "y", _OF_TEST, "target")
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_GREY, _COLOUR = 1, 3


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
    length: int | None = None  # None: not known
    classes: Sequence[str] | None = None  # the names of the labels, if they have some
    truths: Sequence[Any] = ()  # the true labels by number, of those that have one


def open_samples(samples: str, wanted: OneInput, array: str | None) -> Stream:
    """The samples that the command line names, for a model that takes such an input; `array` is that of an npz file."""
    path = Path(samples)
    if samples == "fashion":  # the test images that come with Hinge
        images, labels = fashion.labelled_images()
        cases = (Case(image, fashion.CLASSES[label]) for image, label in zip(images, labels, strict=True))
        return Stream(cases, images[0], len(images), fashion.CLASSES)
    if samples == "-":
        return from_frames(wanted)
    if path.is_dir():
        return from_images(path, wanted)
    return from_arrays(path, array)


def from_trace(trace: Trace) -> Stream:
    """The rows of a trace: a sample is its number, in an array of one, as a server can be sent it."""
    rows = np.arange(len(trace))[:, None]
    truths = [None] * len(trace) if trace.label is None else trace.label.tolist()
    columns = zip(rows, truths, trace.answers[1].tolist(), strict=True)
    return Stream((Case(*column) for column in columns), rows[0], len(trace))


# -- arrays -----------------------------------------------------------------------------------------------------------


def is_trace(path: Path) -> bool:
    """Whether an npz file holds a trace rather than samples."""
    return not {"confidence", "local_logits"}.isdisjoint(_loaded(path))


def from_arrays(path: Path, wanted: str | None = None) -> Stream:
    """The samples in an npy or npz file, as they are, in the array that is named; with their labels if it has some."""
    arrays = _loaded(path)
    names = [name for name in dict.fromkeys((*_ARRAYS, *arrays)) if name in arrays and name not in _LABELS]
    if wanted is not None:
        if wanted not in names:
            what = "array {!r} holds labels, not samples" if wanted in arrays else "there is no array {!r}"
            raise InvalidTrace(f"{path}: {what.format(wanted)}{did_you_mean(wanted, names)}")
        names = [wanted]
    if not names:
        raise InvalidTrace(f"{path}: there are no samples in it")
    samples = _array(path, arrays, names[0])
    if samples.ndim < 1 or not len(samples):
        which = f"array {names[0]!r}" if path.suffix.lower() == ".npz" else "it"
        raise InvalidTrace(f"{path}: there are no samples in {which}")
    truths: list[Any] = []
    known = [name for name in _LABELS if name != _OF_TEST or "test" in names[0] or "_" not in names[0]]
    labelled = next((name for name in known if name in arrays), None)
    unread = [name for name in arrays if name not in (names[0], labelled)]
    if unread and not (labelled and (wanted or names[0] in _ARRAYS)):  # else there is nothing to guess
        which = f"the samples are in {names[0]!r}, {f'their labels in {labelled!r}' if labelled else 'without labels'}"
        named = f"--input names the samples, and labels are called {' or '.join(map(repr, _LABELS))}"
        console.warn(f"{path}: {which}, and {', '.join(map(repr, unread))} not read: {named}")
    if labelled:
        truths = _labels(path, _array(path, arrays, labelled))
        if not isinstance(truths, list) or len(truths) != len(samples):
            raise InvalidTrace(f"{path}: there must be a label for each of {console.counted(len(samples), 'sample')}")
    labels = truths or [None] * len(samples)
    cases = (Case(sample, label) for sample, label in zip(samples, labels, strict=True))
    return Stream(cases, samples[0], len(samples), truths=truths)


def _loaded(path: Path) -> Mapping[str, NDArray[Any]]:
    """The arrays in an npz file, by name, read when they are asked for; that in an npy file is called 'samples'."""
    if path.exists() and not path.is_file():  # a pipe would never end
        raise InvalidTrace(f"{path}: not a file")
    content = io.BytesIO(path.read_bytes())  # so that any later failure is about what is in the file
    try:
        found = np.load(content, allow_pickle=False)
        if isinstance(found, Mapping) == (path.suffix.lower() == ".npz"):
            return found if isinstance(found, Mapping) else {_ARRAYS[0]: found}
    except Exception as error:  # broken bytes surface anywhere in numpy, zipfile and zlib
        raise InvalidTrace(f"{path}: not an {path.suffix.lower()} file") from error
    raise InvalidTrace(f"{path}: not an {path.suffix.lower()} file")


def _array(path: Path, arrays: Mapping[str, Any], name: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = arrays[name]
    except Exception as error:  # as above
        raise InvalidTrace(f"{path}: array {name!r} cannot be read ({error or type(error).__name__})") from error
    return array


def _labels(path: Path, labels: NDArray[Any]) -> Any:
    """The labels as a list; floats that are all whole numbers are these, and truth values 0 and 1."""
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind != "f" or labels.ndim != 1:
        return labels.tolist()
    if len(missing := np.flatnonzero(~np.isfinite(labels))):
        found = f"the label of sample {missing[0]} is {labels[missing[0]]}"
        raise InvalidTrace(f"{path}: {found}: leave out samples without a label, or all labels")
    return (labels.astype(np.int64) if (labels == np.floor(labels)).all() else labels).tolist()


# -- frames -----------------------------------------------------------------------------------------------------------


def from_frames(wanted: OneInput, source: IO[bytes] | None = None) -> Stream:
    """Raw frames of the model's size and type back to back, as a camera sends them, until the end of the input."""
    shape = wanted.sample_shape
    if min(shape, default=1) < 0 or wanted.dtype.kind not in "iufb":
        raise UsageError(f"frames need a model whose samples have one size; this one takes {list(shape)}")
    return Stream(_frames(source or sys.stdin.buffer, shape, wanted.dtype), np.zeros(shape, wanted.dtype))


def _frames(source: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Case]:
    size, frames = dtype.itemsize * math.prod(shape), 0
    while len(frame := source.read(size)) == size:
        frames += 1
        yield Case(np.frombuffer(frame, dtype).reshape(shape))
    if not frames:
        cut = f", but {len(frame)} of its {size} bytes" if frame else ""
        raise UsageError(f"no frame on standard input{cut}")
    if frame:
        console.warn(f"the last frame is cut short, at {len(frame)} of {size} bytes")


# -- images -----------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """What an image has to become; a size of -1 is left as it is."""

    height: int
    width: int
    channels: int | None  # None: no axis for them
    channels_first: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, wanted: OneInput) -> Form:
        """The form of the images that a model takes.

        >>> Form.of(OneInput("local.onnx", (-1, 3, 224, 224), np.dtype(np.float32)))
        Form(height=224, width=224, channels=3, channels_first=True, dtype=dtype('float32'))
        >>> Form.of(OneInput("local.onnx", (-1, 28, 28), np.dtype(np.uint8))).channels is None
        True
        """
        shape, dtype = wanted.sample_shape, wanted.dtype
        if dtype != np.uint8 and dtype.kind != "f":
            dtype = np.dtype(np.float32)  # a quantised model takes them, too
        if len(shape) == 2:
            return cls(shape[0], shape[1], None, False, dtype)
        if len(shape) == 3 and shape[0] in (_GREY, _COLOUR):
            return cls(shape[1], shape[2], shape[0], True, dtype)
        if len(shape) == 3 and shape[2] in (_GREY, _COLOUR):
            return cls(shape[0], shape[1], shape[2], False, dtype)
        raise InvalidModel(f"images do not fit a model that takes samples of shape {list(shape)}")


def from_images(folder: Path, wanted: OneInput) -> Stream:
    """The images in a folder, with the names of their classes if it has folders for them."""
    form = Form.of(wanted)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = (path for name in names or ["."] for path in sorted((folder / name).iterdir()))
    files = [path for path in found if path.suffix.lower() in _IMAGES and path.is_file()]
    if not files:
        raise InvalidTrace(f"{folder}: there are no images in it")
    example = next((sample for path in files if (sample := _read(path, form)) is not None), None)
    if example is None:
        raise InvalidTrace(f"{folder}: none of the images can be read")
    numbered = all(name.isdecimal() for name in names)
    cases, truths = _cases(folder, files, form, numbered), [int(name) for name in names] if numbered else []
    return Stream(cases, example, len(files), None if numbered else names, truths)


def _cases(folder: Path, files: Sequence[Path], form: Form, numbered: bool) -> Iterator[Case]:
    for path in files:
        sample = _read(path, form)
        if sample is None:
            console.warn(f"{path}: cannot be read as an image, and is left out")
            continue
        parent = path.parent
        truth = None if parent == folder else int(parent.name) if numbered else parent.name
        yield Case(sample, truth, name=str(path.relative_to(folder)))


def _read(path: Path, form: Form) -> NDArray[Any] | None:
    """The image in a file as the model takes it; None if it cannot be read."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"images need the extra 'images' ({error}): pip install 'hinge-gate[images]'") from error
    try:
        with Image.open(path) as image:
            plain = image.convert("RGB" if form.channels == _COLOUR else "L")
            size = (plain.width if form.width < 0 else form.width, plain.height if form.height < 0 else form.height)
            pixels = np.asarray(plain if plain.size == size else plain.resize(size, Image.Resampling.BILINEAR))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    if form.channels == _GREY:
        pixels = pixels[..., None]
    if form.channels_first:
        pixels = np.moveaxis(pixels, -1, 0)
    return np.ascontiguousarray(pixels if form.dtype == np.uint8 else (pixels / 255.0).astype(form.dtype))
