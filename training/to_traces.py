"""Saved scores to the traces that come with Hinge, with their provenance, and the logs of both models beside them.

    python training/to_traces.py --scores .train/scores --out src/hinge/traces/data

Writes every trace whose scores are there. Where training images were held out, the confidence is calibrated on them:
the softmax is taken at the temperature that makes their labels most likely.
"""

import argparse
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from hinge.confidence import ConfidenceMeasure, fit_temperature, max_softmax, temperature
from hinge.traces import Trace, write_trace

MOST_BYTES = 200_000
CIFAR10 = "CIFAR-10, 10 000 test images"
CIFAR100 = "CIFAR-100, 10 000 test images"
IMAGENET = "ImageNet (ILSVRC 2012), 5 000 validation images, 5 of each class"
FASHION = "Fashion-MNIST, 10 000 test images"
WRN = "WideResNet-28-10; scores averaged over an image and its mirror image"


@dataclass(frozen=True)
class Pair:
    """A trace to be: the scores' files, and in words what was classified, and by what."""

    trace: str
    local_scores: str
    remote_scores: str
    images: str
    local: str
    remote: str
    script: str


PAIRS = (
    Pair(
        "fashion",
        "fashion-local-onnx",
        "fashion-remote-onnx",
        FASHION,
        "convolutional network with 9 000 weights, in 8-bit integers (ONNX)",
        "residual network with 0.9 million weights (ONNX)",
        "training/fashion.py, training/export_fashion.py",
    ),
    Pair("cifar10-vgg16", "cifar10-vgg16", "cifar10-wrn-28-10", CIFAR10, "VGG16, weak", WRN, "training/cifar.py"),
    Pair(
        "cifar10-vgg16-calibrated",
        "cifar10-vgg16-calibrated",
        "cifar10-wrn-28-10",
        CIFAR10,
        "VGG16, well trained",
        WRN,
        "training/cifar.py",
    ),
    Pair(
        "cifar100-resnet50",
        "cifar100-resnet50",
        "cifar100-wrn-28-10",
        CIFAR100,
        "ResNet-50, weak",
        WRN,
        "training/cifar.py",
    ),
    Pair(
        "cifar100-resnet18-calibrated",
        "cifar100-resnet18-calibrated",
        "cifar100-wrn-28-10",
        CIFAR100,
        "ResNet-18, well trained",
        WRN,
        "training/cifar.py",
    ),
    Pair(
        "imagenet-mobilenet",
        "imagenet-mobilenet",
        "imagenet-efficientnet-lite2",
        IMAGENET,
        "MobileNet V1, width 0.5, 160 x 160, in 8-bit integers",
        "EfficientNet-Lite2",
        "training/imagenet.py",
    ),
    Pair(
        "imagenet-mobilenetv2",
        "imagenet-mobilenetv2",
        "imagenet-efficientnet-lite2",
        IMAGENET,
        "MobileNet V2, width 1.0, 224 x 224, in 8-bit integers",
        "EfficientNet-Lite2",
        "training/imagenet.py",
    ),
)


def make_trace(pair: Pair, folder: Path) -> Trace:
    """The trace of a pair of models whose scores are in the folder."""
    local, remote = (_scores(folder / f"{name}.npz") for name in (pair.local_scores, pair.remote_scores))
    if not np.array_equal(local["labels"], remote["labels"]):
        raise ValueError(f"{pair.trace}: the models did not see the same images")
    measure, measured = _measure(local)
    trace = Trace.from_scores(local["logits"], remote["logits"], local["labels"], measure, name=pair.trace)
    about = {
        "images": pair.images,
        "local": pair.local,
        "remote": pair.remote,
        "confidence": measured,
        "agreement": f"{trace.agreement:.2%}",
        "local accuracy": f"{trace.local_accuracy:.2%}",
        "remote accuracy": f"{trace.remote_accuracy:.2%}",
        "date": str(date.today()),
        "script": pair.script,
    }
    return Trace(**trace.columns, name=trace.name, about=about)


def _scores(path: Path) -> dict[str, Any]:
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def _measure(scores: dict[str, Any]) -> tuple[ConfidenceMeasure, str]:
    if "held_out_labels" not in scores:
        return max_softmax, "largest softmax"
    fitted = fit_temperature(scores["held_out_logits"], scores["held_out_labels"])
    held = len(scores["held_out_labels"])
    said = f"largest softmax at temperature {fitted:.3f}, fitted on {held} training images held out"
    return temperature(fitted)(max_softmax), said


def write(pair: Pair, scores: Path, out: Path) -> None:
    """The trace as NAME.npz and both models' logs as NAME.log."""
    trace, path = make_trace(pair, scores), out / f"{pair.trace}.npz"
    write_trace(trace, path)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path}: {path.stat().st_size} bytes are more than {MOST_BYTES}")
    logs = (scores / f"{name.removesuffix('-onnx')}.log" for name in (pair.local_scores, pair.remote_scores))
    path.with_suffix(".log").write_text("\n".join(log.read_text() for log in logs))
    print(f"{trace}, local {trace.local_accuracy:.2%} right, remote {trace.remote_accuracy:.2%}")


def main() -> None:
    """Writes every trace whose scores are there."""
    parser = argparse.ArgumentParser(description="Saved scores to the traces that come with Hinge.")
    parser.add_argument("--scores", type=Path, default=Path(".train/scores"), help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("src/hinge/traces/data"), help="default: %(default)s")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for pair in PAIRS:
        needed = (pair.local_scores, pair.remote_scores)
        missing = [name for name in needed if not (arguments.scores / f"{name}.npz").exists()]
        if missing:
            print(f"{pair.trace}: left out, as there are no scores of {' and '.join(missing)}")
        else:
            write(pair, arguments.scores, arguments.out)


if __name__ == "__main__":
    main()
