"""Both models' scores, as a recording often keeps them, to the columns of a trace."""

from reprlib import repr as brief
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge.confidence import ConfidenceMeasure
from hinge.errors import InvalidTrace
from hinge.traces.columns import labels as checked_labels

_OWNER = "Trace.from_scores"


def columns_from_scores(
    local_logits: ArrayLike, remote_logits: ArrayLike, labels: ArrayLike | None, measure: ConfidenceMeasure
) -> dict[str, Any]:
    """Confidence and both answers, and the truth if it is given.

    >>> from hinge.confidence import max_softmax
    >>> columns_from_scores([[0.0, 1.0]], [[float("nan"), 1.0]], None, max_softmax)
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace.from_scores: remote_logits must be finite, got nan in row 0, class 0
    """
    local, remote = _scores("local_logits", local_logits), _scores("remote_logits", remote_logits)
    if local.shape != remote.shape:
        raise InvalidTrace(f"{_OWNER}: local_logits has shape {local.shape} and remote_logits {remote.shape}")
    if not callable(measure):
        raise TypeError(f"{_OWNER}: measure must be a confidence measure, got {measure!r}")
    return {
        "confidence": measure(local),
        "local": local.argmax(axis=1),
        "remote": remote.argmax(axis=1),
        "label": None if labels is None else _truth(labels, classes=local.shape[1]),
    }


def _scores(name: str, values: ArrayLike) -> NDArray[Any]:
    array = _rows(name, values)
    if array.ndim != 2 or array.shape[1] < 2 or not len(array):
        raise InvalidTrace(f"{_OWNER}: {name} must be samples x classes, at least 1 x 2, got shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise InvalidTrace(f"{_OWNER}: {name} must be numbers, got {brief(array.flat[0].item())}")
    infinite = np.argwhere(~np.isfinite(array))
    if infinite.size:
        row, column = infinite[0]
        raise InvalidTrace(f"{_OWNER}: {name} must be finite, got {array[row, column]} in row {row}, class {column}")
    return array


def _rows(name: str, values: Any) -> NDArray[Any]:
    """An array of rows also from a frame's column of lists, which numpy takes for a column of objects."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.fromiter(values, dtype=object)
    if array.ndim != 1 or array.dtype.kind != "O":
        return array
    rows = [_row(name, k, row) for k, row in enumerate(array)]
    for k, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InvalidTrace(f"{_OWNER}: {name} has {len(row)} classes in row {k} and {len(rows[0])} in row 0")
    return np.array(rows)


def _row(name: str, k: int, row: object) -> NDArray[np.float64]:
    try:
        scores = np.asarray(row, np.float64)
    except (TypeError, ValueError):
        scores = np.empty(0)
    if scores.ndim != 1 or isinstance(row, str) or not scores.size:
        raise InvalidTrace(f"{_OWNER}: {name} must be a list of numbers in every row, got {brief(row)} in row {k}")
    return scores


def _truth(labels: ArrayLike, classes: int) -> NDArray[Any]:
    truth = checked_labels("labels", labels)
    if truth.dtype.kind != "i":
        raise InvalidTrace(f"{_OWNER}: labels must be integers from 0 to {classes - 1}, got text")
    outside = np.flatnonzero((truth < 0) | (truth >= classes))
    if outside.size:
        row = outside[0]
        raise InvalidTrace(f"{_OWNER}: labels must be from 0 to {classes - 1}, got {truth[row]} in row {row}")
    return truth
