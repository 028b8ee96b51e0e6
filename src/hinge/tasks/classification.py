"""Classification: one of several classes.

    output        a score for each class, or a label: a number or a name
    answer        the label: its name, where names are given
    confidence    a measure of the scores (`hinge.confidence`), `max_softmax` unless another is given
    agreement     1 where the labels are equal, else 0
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.errors import printable

MAX_LABEL = 200  # characters


class Classification:
    """One of several classes, which `labels` names in order. This is a device's task unless it is given another.

    >>> task = Classification(["cat", "dog"])
    >>> task.answer([0.3, 2.1]), round(task.confidence([0.3, 2.1]), 3), task.answer(1)
    ('dog', 0.858, 'dog')
    >>> task.agreement("dog", "cat")
    0.0
    """

    def __init__(self, labels: Sequence[str] | None = None, measure: ConfidenceMeasure = max_softmax) -> None:
        if labels is not None and (isinstance(labels, str) or not all(isinstance(name, str) for name in labels)):
            raise TypeError(f"Classification: labels must be the names of the classes, got {labels!r}")
        self.labels, self.confidence = labels, measure

    def answer(self, output: Any) -> Any:
        """The label as plain data: the name of the class, where there are names.

        >>> Classification().answer(float("nan"))
        Traceback (most recent call last):
        ValueError: no label, but nan (float): a label is a text or a number
        """
        names = self.labels
        plain = output.item() if isinstance(output, np.generic) else _best(output)
        if not isinstance(plain, str | int | float) or plain != plain or plain in (inf, -inf):
            raise ValueError(f"no label, but {kind_of(plain)}: a label is a text or a number")
        if names is None:
            if isinstance(plain, str) and (len(plain) > MAX_LABEL or not plain.isprintable()):
                raise ValueError(
                    f"a label must be {MAX_LABEL} printable characters at most, got {printable(plain, 50)}"
                )
            return plain
        if isinstance(plain, str) and plain in names:
            return plain
        if isinstance(plain, int) and 0 <= plain < len(names):
            return names[plain]
        raise ValueError(f"an unknown label, {plain!r:.50}")

    def agreement(self, local: Any, remote: Any) -> float:
        """1 where the labels are equal, else 0; a name and a number are refused, as they never are.

        >>> Classification().agreement(1, "dog")
        Traceback (most recent call last):
        ValueError: the remote answers 'dog' where local answers 1: a name and a number never agree; give labels=, ...
        """
        if isinstance(local, str) != isinstance(remote, str):
            raise ValueError(
                f"the remote answers {remote!r:.24} where local answers {local!r:.24}: a name and a number never "
                "agree; give labels=, the names of the classes in order"
            )
        return float(local == remote)


def _best(output: Any) -> Any:
    """The class that scores highest, if these are scores."""
    if not isinstance(output, list | np.ndarray):
        return output
    scores = np.asarray(output)
    if scores.ndim != 1 or len(scores) < 2 or scores.dtype.kind not in "fiu":
        return output
    if not np.isfinite(scores).all():
        raise ValueError(f"the scores are not finite: {output!r:.50}")
    return int(scores.argmax())


def kind_of(value: Any) -> str:
    """What came in place of an answer, for an error."""
    if inspect.iscoroutine(value):
        value.close()  # nobody will await it
        return "a coroutine (AsyncDevice takes coroutine functions)"
    return f"{value!r:.50} ({type(value).__name__})"
