"""A folder of images as samples of the shape that a model takes.

Files are taken by name, in order. Folders in the folder are classes, and what lies in them is of that class: they are
named by the numbers of the classes, or there is one for each, in the order of the model's. Each image is resized to the
model's height and width, and turned grey if the model has one channel or none; bytes stay from 0 to 255, floats go from
0 to 1. Whatever else a model wants of its input, such as a mean subtracted, has to be part of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hinge.cli import show
from hinge.cli.device.samples import Case, Stream
from hinge.errors import InvalidModel
from hinge.models.base import OneInput

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_GREY, _COLOUR = 1, 3


class Form(NamedTuple):
    """What an image has to become; a size of -1 is left as it is."""

    height: int
    width: int
    channels: int | None  # None: no axis for them
    first: bool  # whether the channels come first
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, wanted: OneInput) -> Form:
        """The form of the images that a model takes.

        >>> Form.of(OneInput("local.onnx", (-1, 3, 224, 224), np.dtype(np.float32)))
        Form(height=224, width=224, channels=3, first=True, dtype=dtype('float32'))
        >>> Form.of(OneInput("local.onnx", (-1, 28, 28), np.dtype(np.uint8))).channels is None
        True
        """
        shape, dtype = wanted.sample_shape, wanted.dtype
        if dtype != np.uint8 and dtype.kind != "f":
            dtype = np.dtype(np.float32)  # of a quantised model, which takes them, too
        if len(shape) == 2:
            return cls(shape[0], shape[1], None, False, dtype)
        if len(shape) == 3 and shape[0] in (_GREY, _COLOUR):
            return cls(shape[1], shape[2], shape[0], True, dtype)
        if len(shape) == 3 and shape[2] in (_GREY, _COLOUR):
            return cls(shape[0], shape[1], shape[2], False, dtype)
        raise InvalidModel(f"images do not fit a model that takes samples of shape {list(shape)}")


def from_images(folder: Path, wanted: OneInput) -> Stream:
    """The images in a folder, with the names of their classes if it has folders for them."""
    _pillow()
    form = Form.of(wanted)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = _files([folder / name for name in names] or [folder])
    if not files:
        raise ValueError(f"{folder}: there are no images in it")
    example = next((sample for path in files if (sample := _read(path, form)) is not None), None)
    if example is None:
        raise ValueError(f"{folder}: none of the images can be read")
    numbered = all(name.isdecimal() for name in names)
    cases, truths = _cases(folder, files, form, numbered), [int(name) for name in names] if numbered else []
    return Stream(cases, example, len(files), None if numbered else names, truths)


def _files(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES]


def _cases(folder: Path, files: Sequence[Path], form: Form, numbered: bool) -> Iterator[Case]:
    for path in files:
        sample = _read(path, form)
        if sample is None:
            show.warn(f"{path}: cannot be read as an image, and is left out")
            continue
        parent = path.parent
        truth = None if parent == folder else int(parent.name) if numbered else parent.name
        yield Case(sample, truth, name=str(path.relative_to(folder)))


def _read(path: Path, form: Form) -> NDArray[Any] | None:
    """The image in a file as the model takes it; None if it cannot be read."""
    images = _pillow()
    try:
        with images.open(path) as image:
            plain = image.convert("RGB" if form.channels == _COLOUR else "L")
            size = (plain.width if form.width < 0 else form.width, plain.height if form.height < 0 else form.height)
            pixels = np.asarray(plain if plain.size == size else plain.resize(size, images.Resampling.BILINEAR))
    except (OSError, ValueError, SyntaxError, images.DecompressionBombError):
        return None
    if form.channels == _GREY:
        pixels = pixels[..., None]
    if form.first:
        pixels = np.moveaxis(pixels, -1, 0)
    return np.ascontiguousarray(pixels if form.dtype == np.uint8 else (pixels / 255.0).astype(form.dtype))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"images need the extra 'images' ({error}): pip install 'hinge-gate[images]'") from error
    return Image
