"""A local model's answer: the label that scores highest, and how sure the model is of it."""

from collections.abc import Callable, Sequence
from math import exp, inf
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hinge.confidence import ConfidenceMeasure, max_softmax, softmax_temperature

_SHORT = 64  # classes up to which numbers one by one are quicker than an array


@runtime_checkable
class LocalModel(Protocol):
    """A local model that says itself how sure it is; a function from sample to scores is made into one by `Scoring`."""

    def answer(self, sample: Any) -> tuple[Any, float]: ...

    def answer_many(self, samples: Sequence[Any]) -> Sequence[tuple[Any, float]]: ...


class Scoring:
    """A function from sample to scores as a local model, whose labels are class indices or the names given.

    A function with a method `many`, from samples to an array of scores with a row for each, is asked for batches.

    >>> Scoring(lambda sample: [0.0, sample], labels=["cat", "dog"]).answer(2.0)
    ('dog', 0.8807970779778823)
    """

    def __init__(
        self,
        scores: Callable[[Any], Any],
        confidence: ConfidenceMeasure = max_softmax,
        labels: Sequence[Any] | None = None,
    ) -> None:
        self.scores, self._measure, self._labels = scores, confidence, labels
        self._many = getattr(scores, "many", None)
        self._temperature = softmax_temperature(confidence)  # None: another measure, which takes longer

    def answer(self, sample: Any) -> tuple[Any, float]:
        """The answer to one sample."""
        scores = self.scores(sample)
        best = -1
        if self._temperature is not None and len(scores) <= _SHORT:
            values = scores.tolist() if isinstance(scores, np.ndarray) else list(scores)
            best, confidence = _top(values, self._temperature)
        elif self._temperature is not None:
            best, confidence = _top_of_many(np.asarray(scores), self._temperature)
        if best < 0:
            confidence = float(self._measure(scores))  # refuses scores that are no finite numbers, and says why
            best = int(np.argmax(scores))
        return (best if self._labels is None else self._named(best, len(scores))), confidence

    def _named(self, best: int, classes: int) -> Any:
        labels = self._labels or ()
        if len(labels) != classes:
            raise ValueError(f"Device: labels must name {classes} classes, as the local model has, got {len(labels)}")
        return labels[best]

    def answer_many(self, samples: Sequence[Any]) -> Sequence[tuple[Any, float]]:
        """The answers to many samples, each as `answer` gives it."""
        if self._many is None or len(samples) == 0:
            return [self.answer(sample) for sample in samples]
        scores: NDArray[Any] = self._many(samples)
        if len(scores) != len(samples):
            raise ValueError(f"Scoring: scores must have a row for each of {len(samples)} samples, got {len(scores)}")
        rows = Scoring(_same, self._measure, self._labels)
        return [rows.answer(row) for row in scores]


def _same(scores: Any) -> Any:
    return scores


def _top(scores: list[Any], temperature: float = 1.0) -> tuple[int, float]:
    """The best class and its softmax `1 / sum_k exp(s_k - max s)`; class -1 where a score is no finite number.

    >>> _top([0.0, 1.0])
    (1, 0.7310585786300049)
    >>> _top([0.0, float("nan")])[0], _top([0.0, float("-inf")])[0], _top([[1.0], [2.0]])[0]
    (-1, -1, -1)
    """
    try:
        if temperature != 1.0:
            scores = [score / temperature for score in scores]
        best = max(scores)
        total = 0.0
        for score in scores:
            total += exp(score - best)
        if not (total >= 1.0 and min(scores) > -inf and len(scores) > 1):
            return -1, 0.0
    except (TypeError, ValueError, OverflowError):  # no numbers, or none at all
        return -1, 0.0
    return scores.index(best), 1.0 / total


def _top_of_many(scores: NDArray[Any], temperature: float = 1.0) -> tuple[int, float]:
    """The same for an array of many classes.

    >>> _top_of_many(np.array([0.0, 1.0]))
    (1, 0.7310585786300049)
    >>> _top_of_many(np.array([0.0, np.nan]))[0], _top_of_many(np.array([0.0, np.inf]))[0]
    (-1, -1)
    """
    if scores.ndim != 1 or scores.dtype.kind != "f":
        return -1, 0.0
    values = scores.astype(np.float64)
    if temperature != 1.0:
        values /= temperature
    best = int(values.argmax())
    if not -inf < values.min() <= values[best] < inf:  # also false where one is NaN
        return -1, 0.0
    values -= values[best]
    np.exp(values, out=values)
    return best, 1.0 / float(values.sum())
