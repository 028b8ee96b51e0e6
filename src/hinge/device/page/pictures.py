"""Samples as small pictures."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 64  # pixels of a picture, each way
_KINDS = {1: 0, 3: 2}  # PNG's numbers for grey and for colour, by channels


def small(sample: Any) -> NDArray[np.uint8] | None:
    """A copy of an image, made small by leaving out pixels; None if the sample is no image.

    An image has two axes, or a third of 1 or 3 channels, first or last. Floats go from 0 to 1.

    >>> small(np.zeros((3, 640, 480), np.uint8)).shape
    (64, 48, 3)
    >>> small("no image") is None
    True
    """
    if not isinstance(sample, np.ndarray) or (sample.dtype != np.uint8 and sample.dtype.kind != "f"):
        return None
    if sample.ndim == 3 and sample.shape[0] in _KINDS and sample.shape[2] not in _KINDS:
        sample = np.moveaxis(sample, 0, -1)
    if sample.ndim == 2:
        sample = sample[..., None]
    if sample.ndim != 3 or sample.shape[2] not in _KINDS or min(sample.shape) == 0:
        return None
    step = -(-max(sample.shape[:2]) // SIDE)
    pixels = sample[::step, ::step]
    if pixels.dtype == np.uint8:
        return np.array(pixels)
    return np.array(255 * np.nan_to_num(pixels).clip(0, 1), np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels of shape [height, width, channels] as a PNG file.

    >>> png(np.zeros((1, 1, 1), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, _KINDS[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def data_url(pixels: NDArray[np.uint8]) -> str:
    """A picture as an address that holds all of it."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
