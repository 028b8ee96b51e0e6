"""Folders of photos: which there are, what they show, and how a network wants to see them."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


class Photo(NamedTuple):
    """A file and its class."""

    path: Path
    label: int


def labelled_photos(folder: Path, labels: Path | None = None, seed: int = 0) -> list[Photo]:
    """All photos with their classes, shuffled: folders come class by class, but a stream does not.

    Classes are folders, counted by their numbers where all their names are numbers, else in the order of their names;
    or they are in a file of lines `file,class` (or with a blank between), the file's name relative to the folder.
    """
    found = _from_file(folder, labels) if labels else _from_folders(folder)
    if not found:
        raise ValueError(f"{folder}: there are no photos")
    return [found[k] for k in np.random.default_rng(seed).permutation(len(found))]


def central_square(
    path: Path, size: int, share: float = 0.875, resample: int = Image.Resampling.BILINEAR
) -> NDArray[np.uint8]:
    """The middle of a photo, `share` of its shorter side, as size x size x 3 bytes."""
    with Image.open(path) as photo:
        width, height = photo.size
        side = share * min(width, height)
        box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
        return np.asarray(photo.convert("RGB").resize((size, size), resample, box))


def _from_folders(folder: Path) -> list[Photo]:
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    numbered = all(path.name.isdecimal() for path in classes)
    return [
        Photo(photo, int(path.name) if numbered else k)
        for k, path in enumerate(classes)
        for photo in sorted(path.iterdir())
        if photo.suffix.lower() in SUFFIXES
    ]


def _from_file(folder: Path, labels: Path) -> list[Photo]:
    lines = labels.read_text().replace(",", " ").splitlines()
    rows = csv.reader(lines, delimiter=" ", skipinitialspace=True)
    return [Photo(folder / name, int(label)) for name, label in (row for row in rows if row)]
