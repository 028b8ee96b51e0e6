"""A recorded stream in place of a local model: a sample is the number of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hinge.traces import Trace


class Recorded:
    """Answers as the local model did whose answers a trace holds; after the last row comes the first again.

    >>> from hinge import load_trace
    >>> Recorded(load_trace("fashion")).answer(0)
    (9, 0.9842391368790809)
    """

    def __init__(self, trace: Trace) -> None:
        self._labels, self._confidences = trace.local.tolist(), trace.confidence.tolist()

    def answer(self, sample: Any) -> tuple[Any, float]:
        """What the local model said of the row of that number, which may be an array of one, as a server wants it."""
        row = (sample if isinstance(sample, int) else int(sample.item())) % len(self._labels)
        return self._labels[row], self._confidences[row]

    def answer_many(self, samples: Sequence[Any]) -> list[tuple[Any, float]]:
        """What it said of many."""
        return [self.answer(sample) for sample in samples]
