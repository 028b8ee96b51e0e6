"""What comes with Hinge to run for real: Fashion-MNIST's test images, a tiny local model and a strong remote one.

The images are Zalando's (MIT licence, beside them in `data`); the models were trained by `training/fashion.py`. Both
models take raw bytes, `image` uint8 [batch, 28, 28], and give `scores` float32 [batch, 10].
"""

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")

_DATA = Path(__file__).with_name("data")
_HEADER = {"images": 16, "labels": 8}  # bytes before the data in the idx format


def local_model() -> Path:
    """The local model, ONNX in 8-bit integers, 15 kB."""
    return _DATA / "fashion-local.onnx"


def remote_model() -> Path:
    """The remote model, ONNX in floats, 3.5 MB."""
    return _DATA / "fashion-remote.onnx"


def labelled_images() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The 10 000 test images and their labels.

    >>> images, labels = labelled_images()
    >>> images.shape, CLASSES[labels[0]]
    ((10000, 28, 28), 'ankle boot')
    """
    images = _read("t10k-images-idx3-ubyte.gz", "images").reshape(-1, 28, 28)
    return images, _read("t10k-labels-idx1-ubyte.gz", "labels").astype(np.int64)


def _read(name: str, kind: str) -> NDArray[np.uint8]:
    content = gzip.decompress((_DATA / name).read_bytes())
    return np.frombuffer(content, np.uint8, offset=_HEADER[kind])
