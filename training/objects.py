"""Objects in photographs: YOLOX-Nano as local detector, YOLOv8n as the remote one, both trained on COCO's 80 classes.

    python training/objects.py local FOLDER      (and remote; FOLDER has the photographs of Flickr8k, see README.md)

A detector gives boxes from a score of 0.25 on, and those are kept whose score is 0.5 or more (`hinge.tasks.Detection`).
Nobody has drawn the true boxes: the remote's answer counts as right.
"""

import random
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from recording import CACHE, LEAST, ROOT, Pair, Recorded, checked, main

from hinge.tasks import Detection

LOCAL = "e8af074932d4ed7e232278e3055cefcdea3edf178874a3694ae292649fb464dd"
REMOTE = "505648ada344cd9f3f31e51d49c489c070819bc96cc758258a8fd51488e00579"
DATA = "54fadf9ac52fc7883b62c8889bd05fb8290fe2a7e3f3a06c4dcba8595eb677c6"
SEED, PHOTOS = 0, 2500

Yolo = runpy.run_path(str(ROOT / "examples" / "camera.py"))["Yolo"]  # the detectors are the example's


def photos(folder: Path) -> Sequence[Path]:
    """The samples."""
    return random.Random(SEED).sample(sorted(checked(folder, DATA).iterdir()), PHOTOS)


def detector(name: str, sha256: str) -> Callable[[Path], Any]:
    """What a detector sees in a photograph: score, number of the class and edges of each box."""
    yolo = Yolo(checked(CACHE / "weights" / name, sha256), names=range(80))  # only one file has the names

    def look(photo: Path) -> list[dict[str, Any]]:
        with Image.open(photo) as image:
            found: list[dict[str, Any]] = yolo(image.convert("RGB"))
        return found

    return look


def recorded(_: Path, ours: list[Any], theirs: list[Any]) -> Recorded:
    """The trace's columns: how far the two detectors agree."""
    task = Detection()
    kept, far = ([task.answer(boxes) for boxes in answers] for answers in (ours, theirs))
    agreed = [*map(task.agreement, kept, far)]
    scores, all_scores = (
        [np.array([box["score"] for box in boxes] or [0.0]) for boxes in seen] for seen in (kept, ours)
    )
    measures = {
        "mean score": np.array([found.mean() for found in scores]),
        "least score": np.array([found.min() for found in scores]),
        "product of the scores": np.array([found.prod() for found in scores]),
        "mean score of all boxes": np.array([found.mean() for found in all_scores]),
        "boxes scored above 0.5": np.array([(found >= task.keep).mean() for found in all_scores]),
    }
    least = np.array([LEAST if boxes else 0.0 for boxes in kept])
    columns = {"agreed": agreed, "local_right": agreed, "remote_right": np.ones(len(agreed))}
    return Recorded(columns, {name: np.maximum(found, least) for name, found in measures.items()}, "mean score")


PAIR = Pair(
    trace="objects-yolox",
    samples=photos,
    local=lambda: detector("yolox_nano.onnx", LOCAL),
    remote=lambda: detector("yolov8n.onnx", REMOTE),
    recorded=recorded,
    about={
        "samples": "photographs of Flickr8k (Hodosh, Young and Hockenmaier, 2013)",
        "local": "YOLOX-Nano (Ge et al., 2021)",
        "remote": "YOLOv8n (Ultralytics, 2023)",
        "truth": "none is known: the remote's answer counts as right",
        "licence": "photographs for research, models Apache-2.0 and AGPL-3.0; the trace holds figures, no photograph",
    },
)

if __name__ == "__main__":
    main(PAIR, __doc__ or "")
