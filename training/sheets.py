"""Image sets on disk: lossless sheets of 10 000 images each, and the labels beside them.

NAME/train-0.webp, NAME/train-1.webp, …, NAME/test-0.webp    100 x 100 images, row by row
NAME/labels.npz                                              `train` and `test`, one number per image
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

PER_ROW = 100
PER_SHEET = 10_000

Bytes = NDArray[np.uint8]


class Part(NamedTuple):
    """Images (samples x height x width x channels) and their labels."""

    images: Bytes
    labels: Bytes


class ImageSet(NamedTuple):
    """What to train on, and what to test on."""

    train: Part
    test: Part


def write_set(found: ImageSet, folder: Path, name: str) -> None:
    """Writes all sheets and labels of a set, reading each sheet back to see that nothing was lost."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        images = getattr(found, part).images
        for k, start in enumerate(range(0, len(images), PER_SHEET)):
            _write_sheet(images[start : start + PER_SHEET], folder / name / f"{part}-{k}.webp")
    np.savez_compressed(folder / name / "labels.npz", train=found.train.labels, test=found.test.labels)


def read_set(folder: Path, name: str, size: int = 32, channels: int = 3) -> ImageSet:
    """The set of that name, with images of `size` x `size`."""
    with np.load(folder / name / "labels.npz") as labels:
        return ImageSet(*(_read_part(folder / name, part, labels[part], size, channels) for part in ("train", "test")))


def _read_part(folder: Path, part: str, labels: Bytes, size: int, channels: int) -> Part:
    sheets = -(-len(labels) // PER_SHEET)
    images = np.concatenate([_read_sheet(folder / f"{part}-{k}.webp", size, channels) for k in range(sheets)])
    if len(images) != len(labels):
        raise ValueError(f"{folder}, {part}: there are {len(images)} images and {len(labels)} labels")
    return Part(images, labels)


def _write_sheet(images: Bytes, path: Path) -> None:
    count, size, _, channels = images.shape
    rows = images.reshape(count // PER_ROW, PER_ROW, size, size, channels).swapaxes(1, 2)
    sheet = rows.reshape(-1, PER_ROW * size, channels)
    Image.fromarray(np.repeat(sheet, 3 // channels, axis=2)).save(path, lossless=True, quality=50)
    if not np.array_equal(_read_sheet(path, size, channels), images):
        raise OSError(f"{path}: the sheet does not read back as it was written")


def _read_sheet(path: Path, size: int, channels: int) -> Bytes:
    sheet = np.asarray(Image.open(path).convert("RGB"))[:, :, :channels]
    rows = sheet.reshape(-1, size, PER_ROW, size, channels).swapaxes(1, 2)
    return rows.reshape(-1, size, size, channels)
