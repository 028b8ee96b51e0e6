"""Segmentation: which pixels belong to something.

    output        the probability of each pixel, an array of height x width; 0 and 1 for a mask
    answer        the mask, the pixels of 1/2 or more: {"shape": [height, width], "runs": […]}, with the lengths of the
                  runs of pixels outside and inside in turn, row by row, beginning outside
    confidence    the mean margin of the pixels, |2p - 1|; 0 where no pixel is inside
    agreement     IoU: the pixels inside both masks, over those inside either
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge._checks import whole
from hinge.tasks.task import LEAST, parsed

MOST_PIXELS = 2**24  # that a mask of a few bytes may ask for


class Segmentation:
    """The pixels of one class; `mask` makes an array of an answer.

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
        """The mean margin; 0 where no pixel is inside."""
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
        if len(shape) != 2 or sum(runs) != shape[0] * shape[1] or sum(runs) > MOST_PIXELS:
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
