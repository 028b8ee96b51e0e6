"""Answers about images: boxes with labels (detection), and which pixels belong to something (segmentation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hinge._checks import real, whole
from hinge.tasks.task import LEAST, mean, parsed

MAX_BOXES = 300  # of an answer: a remote must not keep a device busy with more
_SIDES = ("left", "top", "right", "bottom")


class Detection:
    """Boxes with labels; of a detector's boxes those count whose score is `keep` or more.

        output        a list of objects {"box": [left, top, right, bottom], "label": …, "score": …}
        answer        those whose score is `keep` or more; one without a score counts as sure
        confidence    the mean of their scores, or the least; 0 where nothing was found
        agreement     F1 = 2 · matched / (local boxes + remote boxes)

    Boxes may be matched that have equal labels and an IoU of `overlap` or more. Of all ways to match them one to one,
    the one with most pairs counts, found by augmenting paths: so agreement is symmetric, and does not hang on an order.

    >>> task, cat = Detection(), {"box": [0, 0, 10, 10], "label": "cat", "score": 0.8}
    >>> task.confidence([cat]), task.confidence([])
    (0.8, 0.0)
    >>> remote = task.answer([{"box": [0, 0, 10, 9], "label": "cat"}, {"box": [20, 0, 30, 9], "label": "dog"}])
    >>> round(task.agreement(task.answer([cat]), remote), 3)
    0.667
    """

    def __init__(self, keep: float = 0.5, measure: Literal["mean", "least"] = "mean", overlap: float = 0.5) -> None:
        self.keep, self.overlap = real("Detection", "keep", keep, 0, 1), real("Detection", "overlap", overlap, 0, 1)
        if measure not in ("mean", "least"):
            raise ValueError(f"Detection: measure must be 'mean' or 'least', got {measure!r}")
        self.measure = measure

    def answer(self, output: Any) -> list[dict[str, Any]]:
        """The boxes that are kept, as JSON can hold them.

        >>> Detection().answer([{"box": [0, 0, 1], "label": "cat"}])
        Traceback (most recent call last):
        ValueError: Detection: box 0 must be {"box": [left, top, right, bottom], "label": …, "score": …}, got ...
        """
        found = parsed("Detection", output)
        if not isinstance(found, list | tuple) or len(found) > MAX_BOXES:
            raise ValueError(f"Detection: an output must be a list of {MAX_BOXES} boxes at most, got {found!r:.50}")
        boxes = [_checked(number, each) for number, each in enumerate(found)]
        return [box for box in boxes if box["score"] >= self.keep]

    def confidence(self, output: Any) -> float:
        scores = [box["score"] for box in self.answer(output)]
        if not scores:
            return 0.0
        return max(LEAST, min(scores) if self.measure == "least" else mean(scores))

    def agreement(self, local: Any, remote: Any) -> float:
        """F1 of the matched boxes; 1 where neither model found anything."""
        if not local and not remote:
            return 1.0
        edges = [[k for k, other in enumerate(remote) if self._match(one, other)] for one in local]
        return 2 * most_pairs(edges) / (len(local) + len(remote))

    def _match(self, one: Any, other: Any) -> bool:
        return one["label"] == other["label"] and iou(one["box"], other["box"]) >= self.overlap


def most_pairs(edges: Sequence[Sequence[int]]) -> int:
    """How many can be matched one to one, where `edges[i]` are those with which i can be.

    >>> most_pairs([[0, 1], [0]]), most_pairs([[0], [0]])
    (2, 1)
    """
    partner: dict[int, int] = {}

    def place(one: int, tried: set[int]) -> bool:
        for other in edges[one]:
            if other not in tried:
                tried.add(other)
                if other not in partner or place(partner[other], tried):
                    partner[other] = one
                    return True
        return False

    return sum(place(one, set()) for one in range(len(edges)))


def iou(one: Sequence[float], other: Sequence[float]) -> float:
    """The area that two boxes share, over that which they cover together; without area, 1 if they are equal.

    >>> iou([0, 0, 2, 2], [1, 0, 3, 2])
    0.3333333333333333
    """
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    covered = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - shared
    return shared / covered if covered > 0 else float(list(one) == list(other))


def _checked(number: int, given: Any) -> dict[str, Any]:
    name = f"box {number}"
    try:
        named, label, score = dict(zip(_SIDES, given["box"], strict=True)), given["label"], given.get("score", 1.0)
    except (TypeError, ValueError, LookupError, AttributeError):
        wanted = '{"box": [left, top, right, bottom], "label": …, "score": …}'
        raise ValueError(f"Detection: {name} must be {wanted}, got {given!r:.80}") from None
    plain = label.item() if hasattr(label, "item") else label
    if not isinstance(plain, str | int):
        raise ValueError(f"Detection: the label of {name} must be a name or a number, got {label!r:.50}")
    box = [real("Detection", f"{side} of {name}", value) for side, value in named.items()]
    if box[0] > box[2] or box[1] > box[3]:
        raise ValueError(f"Detection: {name} must have left <= right and top <= bottom, got {box}")
    return {"box": box, "label": plain, "score": real("Detection", f"the score of {name}", score, 0, 1)}


# -- masks ------------------------------------------------------------------------------------------------------------


MAX_PIXELS = 2**24  # that a mask of a few bytes may ask for


class Segmentation:
    """The pixels of one class; `mask` makes an array of an answer.

        output        the probability of each pixel, an array of height x width; 0 and 1 for a mask
        answer        the mask, the pixels of 1/2 or more: {"shape": [height, width], "runs": […]}, with the lengths of
                      the runs of pixels outside and inside in turn, row by row, beginning outside
        confidence    the mean margin of the pixels, |2p - 1|; 0 where no pixel is inside
        agreement     IoU: the pixels inside both masks, over those inside either

    >>> task = Segmentation()
    >>> answer = task.answer([[0.1, 0.9], [0.6, 0.2]])
    >>> answer, task.mask(answer).tolist()
    ({'shape': [2, 2], 'runs': [1, 2, 1]}, [[False, True], [True, False]])
    >>> round(task.confidence([[0.1, 0.9], [0.6, 0.2]]), 3), task.agreement(answer, task.answer([[0, 1], [0, 0]]))
    (0.6, 0.5)
    """

    def answer(self, output: Any) -> dict[str, list[int]]:
        """The mask, in runs.

        >>> Segmentation().answer([[0.5, float("nan")]])
        Traceback (most recent call last):
        ValueError: Segmentation: a pixel must have a probability from 0 to 1, got nan
        """
        pixels = self._pixels(output)
        inside = (pixels >= 0.5).ravel()
        ends = np.concatenate(([0], np.flatnonzero(inside[1:] != inside[:-1]) + 1, [inside.size]))
        return {"shape": list(pixels.shape), "runs": [0] * int(inside[0]) + np.diff(ends).tolist()}

    def confidence(self, output: Any) -> float:
        pixels = self._pixels(output)
        return max(LEAST, float(np.abs(2.0 * pixels - 1.0).mean())) if (pixels >= 0.5).any() else 0.0

    def agreement(self, local: Any, remote: Any) -> float:
        """IoU; 1 where both masks are empty."""
        if local["shape"] != remote["shape"]:
            raise ValueError(f"Segmentation: masks must have one shape, got {local['shape']} and {remote['shape']}")
        one, other = self.mask(local), self.mask(remote)
        either = int((one | other).sum())
        return int((one & other).sum()) / either if either else 1.0

    def mask(self, answer: Any) -> NDArray[np.bool_]:
        """An answer as an array."""
        try:
            shape = [whole("Segmentation", "shape", size, 1) for size in answer["shape"]]
            runs = [whole("Segmentation", "runs", run, 0) for run in answer["runs"]]
        except LookupError as error:
            raise ValueError(f"Segmentation: a mask must have shape and runs, and has no {error}") from None
        if len(shape) != 2 or sum(runs) != shape[0] * shape[1] or sum(runs) > MAX_PIXELS:
            raise ValueError(f"Segmentation: runs must sum to the pixels of the shape {shape}, got {sum(runs)}")
        return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(shape)

    def _pixels(self, output: Any) -> NDArray[np.float64]:
        found = output if isinstance(output, np.ndarray) else parsed("Segmentation", output)
        if isinstance(found, dict):
            return self.mask(found).astype(np.float64)
        try:
            pixels = np.asarray(found, np.float64)
        except (TypeError, ValueError, OverflowError):
            pixels = np.empty(0)
        if pixels.ndim != 2 or not pixels.size:
            raise ValueError(f"Segmentation: an output must be an array of height x width, got {found!r:.80}")
        outside = pixels[~((pixels >= 0) & (pixels <= 1))]
        if outside.size:
            raise ValueError(f"Segmentation: a pixel must have a probability from 0 to 1, got {outside[0]}")
        return pixels
