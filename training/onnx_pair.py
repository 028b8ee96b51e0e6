"""Any folder of photos and any two ONNX models to a trace: say, ShuffleNet V2 on all of ImageNet's validation set.

    python training/onnx_pair.py PHOTOS LOCAL.onnx REMOTE.onnx --out imagenet-shufflenetv2.npz

PHOTOS has one folder per class (see `photos.labelled_photos` for their numbering), or `--labels` names a file of lines
`file,class`. Size, layout and type of the images are read from the models; how pixels are scaled is not in them, and
has to be said where it is not ImageNet's usual mean and deviation. Scores that are probabilities are taken as such, and
the first of 1001 classes, a background, is dropped.
"""

import argparse
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from photos import Photo, central_square, labelled_photos
from PIL import Image

from hinge.traces import Trace, write_trace

Floats = NDArray[np.float32]

PIXELS = {  # name: what is taken off a byte, and by what it is divided then
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "symmetric": ((127.5,) * 3, (127.5,) * 3),
    "unit": ((0.0,) * 3, (255.0,) * 3),
    "bytes": ((0.0,) * 3, (1.0,) * 3),
}


class OnnxClassifier:
    """A photo to scores, whose softmax are the model's probabilities."""

    def __init__(self, path: Path, pixels: str, share: float, size: int) -> None:
        self.path, self._share = path, share
        self._session = InferenceSession(path, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0]
        self._channels_last = self._input.shape[-1] == 3
        side = self._input.shape[2]
        self._size = side if isinstance(side, int) else size
        self._bytes = self._input.type == "tensor(uint8)"
        self._mean, self._deviation = (np.array(one, np.float32) for one in PIXELS["bytes" if self._bytes else pixels])

    def __call__(self, photo: Path) -> Floats:
        image = central_square(photo, self._size, self._share, Image.Resampling.BICUBIC)
        scaled = (image - self._mean) / self._deviation
        turned = scaled if self._channels_last else scaled.transpose(2, 0, 1)
        batch = turned[None].astype(np.uint8 if self._bytes else np.float32)
        scores = np.ravel(self._session.run(None, {self._input.name: batch})[0]).astype(np.float32)
        return _logits(scores[1:] if len(scores) == 1001 else scores)


def _logits(scores: Floats) -> Floats:
    """Of probabilities their logarithms. A dropped background may keep their sum below 1."""
    if scores.min() >= 0 and scores.max() <= 1 and scores.sum() <= 1.01:
        return np.log(np.maximum(scores, np.finfo(np.float32).tiny))
    return scores


def make_trace(photos: list[Photo], local: OnnxClassifier, remote: OnnxClassifier, name: str) -> Trace:
    """Both models' answers to all photos."""
    labels = [photo.label for photo in photos]
    local_logits, remote_logits = (np.stack([model(photo.path) for photo in photos]) for model in (local, remote))
    about = {
        "images": f"{len(photos)} photos of {len(set(labels))} classes",
        "local": local.path.name,
        "remote": remote.path.name,
        "date": str(date.today()),
        "script": "training/onnx_pair.py",
    }
    return Trace.from_scores(local_logits, remote_logits, labels, name=name, about=about)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A folder of photos and two ONNX models to a trace.")
    parser.add_argument("photos", type=Path)
    parser.add_argument("local", type=Path)
    parser.add_argument("remote", type=Path)
    parser.add_argument("--labels", type=Path, help="lines `file,class`, if classes are not folders")
    parser.add_argument("--out", type=Path, required=True, help="the trace: .npz, .csv or .parquet")
    parser.add_argument("--most", type=int, help="only so many photos")
    for model in ("local", "remote"):
        parser.add_argument(f"--{model}-pixels", choices=PIXELS, default="imagenet", help="default: %(default)s")
        parser.add_argument(f"--{model}-share", type=float, default=0.875, help="of the shorter side that is seen")
        parser.add_argument(f"--{model}-size", type=int, default=224, help="where the model takes any size")
    return parser.parse_args()


def main() -> None:
    """Writes the trace, and says how well both models did."""
    given = _arguments()
    photos = labelled_photos(given.photos, given.labels)[: given.most]
    local = OnnxClassifier(given.local, given.local_pixels, given.local_share, given.local_size)
    remote = OnnxClassifier(given.remote, given.remote_pixels, given.remote_share, given.remote_size)
    trace = make_trace(photos, local, remote, given.out.stem)
    write_trace(trace, given.out)
    print(f"{trace}: local {trace.local_accuracy:.2%} right, remote {trace.remote_accuracy:.2%}")


if __name__ == "__main__":
    main()
