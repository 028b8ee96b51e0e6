"""What a gate needs to know of a task: which answer an output is, how sure it is, and how far two answers agree.

Agreement is a number from 0 to 1: what an answer is worth where the remote's counts as right. A mistake of a classifier
has 0; a transcript with one wrong word in ten has 0.9.

**Not an answer** is confidence 0: a detector that found nothing, words that are none of the options. Whatever is an
answer has a confidence above 0. So it falls into the lowest bin, is decided and learned there, audited and limited by a
budget as every other sample is, and travels through traces, simulations and tables as they are. That bin is all but its
own: answers rarely have a confidence below 1/16, and bins that fit themselves have a cell for it. A rule beside the
policy, such as "always offload", would be wrong half of the time: words that are no option never agree, but where a
detector found nothing there mostly is nothing.

The plainest tasks are here, too: one of several classes, and a number.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Sequence
from math import exp, fsum, inf
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hinge._checks import positive, real
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.costs import WrongCost
from hinge.errors import InvalidValue, TaskFailed, printable

MAX_TEXT = 5_000  # characters: to compare two of them takes as many steps as their product
LEAST = 1e-6  # confidence in an answer, however unlikely its tokens: 0 is for what is none


@runtime_checkable
class Task(Protocol):
    """Three functions of what models give; any object that has them is a task.

    >>> class Sign:
    ...     def answer(self, output):
    ...         return 1 if output > 0 else -1
    ...     def confidence(self, output):
    ...         return min(1.0, abs(output))
    ...     def agreement(self, local, remote):
    ...         return float(local == remote)
    >>> isinstance(Sign(), Task)
    True
    """

    def answer(self, output: Any) -> Any:
        """The answer in an output, as JSON can hold it: what is given to callers, compared, logged and sent.

        An answer is an output, too, and its own answer: so it comes back from a log or a remote. A `ValueError` or
        `TypeError` says what is wrong with anything else; any other exception is an error of the task itself.
        """

    def confidence(self, output: Any) -> float:
        """How sure a model is of its output: above 0 and at most 1; 0 where it is no answer."""

    def agreement(self, local: Any, remote: Any) -> float:
        """How far two answers agree: from 0 to 1, which equal ones do.

        A `ValueError` says that they cannot be compared, such as masks of two shapes; the remote's is then invalid.
        """


def checked_answer(task: Task, output: Any) -> Any:
    """The answer in an output, if it is plain data; else the task is wrong, and named.

    >>> class Same(Classification):
    ...     def answer(self, output):
    ...         return output
    >>> checked_answer(Same(), [float("nan")])
    Traceback (most recent call last):
    hinge.errors.TaskFailed: Same.answer must return plain data, as JSON has it, got list: Out of range float ...
    """
    answer = task.answer(output)
    try:
        if type(answer) is not str:
            json.dumps(answer, allow_nan=False)
        return answer
    except (TypeError, ValueError, RecursionError) as error:
        wanted = f"{type(task).__name__}.answer must return plain data, as JSON has it"
        raise TaskFailed(f"{wanted}, got {type(answer).__name__}: {error}") from None


def parsed(owner: str, output: Any) -> Any:
    """An output as plain data; text is read as JSON, as which answers come from a server.

    >>> parsed("Detection", "[1, 2]"), parsed("Detection", {"box": [0, 1]})
    ([1, 2], {'box': [0, 1]})
    """
    if hasattr(output, "tolist"):  # numpy's arrays and numbers
        return output.tolist()
    if not isinstance(output, str | bytes):
        return output
    try:
        return json.loads(output)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{owner}: an answer in text must be JSON, got {output!r:.50} ({error})") from None


def text_of(owner: str, output: Any, most: int = MAX_TEXT) -> str:
    """The text of an output, which is it or has it."""
    text = output.get("text") if isinstance(output, dict) else output
    if not isinstance(text, str) or len(text) > most:
        wanted = f"must be a text of {most} characters at most, or have it as 'text'"
        raise ValueError(f"{owner}: an output {wanted}, got {output!r:.80}")
    return text


def sureness(owner: str, output: Any) -> float:
    """How sure a text is: as it says itself, by its log-probabilities or scores; 1 where it says nothing.

    >>> sureness("OCR", {"text": "7", "scores": [0.5, 1.0]}), sureness("OCR", {"text": "7", "logprobs": [0.0, 0.0]})
    (0.75, 1.0)
    >>> sureness("OCR", {"text": "7", "scores": [float("nan")]})
    Traceback (most recent call last):
    hinge.errors.InvalidValue: OCR: scores[0] must be from 0 to 1, got nan
    """
    given = output if isinstance(output, dict) else {}
    if "confidence" in given:
        return max(LEAST, real(owner, "confidence", given["confidence"], 0, 1))
    if "logprobs" in given:
        return max(LEAST, min(1.0, exp(mean(numbers(owner, "logprobs", given["logprobs"], high=0.001)))))
    return max(LEAST, mean(numbers(owner, "scores", given["scores"], 0, 1))) if "scores" in given else 1.0


def numbers(owner: str, name: str, values: Any, low: float = -1e300, high: float = 1e300) -> list[float]:
    """A list of finite numbers from `low` to `high`, one at least."""
    plain = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(plain, list | tuple) or not plain:
        raise ValueError(f"{owner}: {name} must be a list of numbers, got {values!r:.80}")
    return [real(owner, f"{name}[{place}]", value, low, high) for place, value in enumerate(plain)]


def mean(values: list[float]) -> float:
    """The mean, with no error of rounding from the sum."""
    return fsum(values) / len(values)


# -- one of several classes -------------------------------------------------------------------------------------------


MAX_LABEL = 200  # characters


class Classification:
    """One of several classes, which `labels` names in order. This is a device's task unless it is given another.

        output        a score for each class, or a label: a number or a name
        answer        the label: its name, where names are given
        confidence    a measure of the scores (`hinge.confidence`), `max_softmax` unless another is given
        agreement     1 where the labels are equal, else 0; what `wrong` says where mistakes have different prices

    >>> task = Classification(["cat", "dog"])
    >>> task.answer([0.3, 2.1]), round(task.confidence([0.3, 2.1]), 3), task.answer(1)
    ('dog', 0.858, 'dog')
    >>> task.agreement("dog", "cat")
    0.0
    """

    def __init__(
        self,
        labels: Sequence[str] | None = None,
        measure: ConfidenceMeasure = max_softmax,
        wrong: WrongCost | None = None,
    ) -> None:
        if labels is not None and (isinstance(labels, str) or not all(isinstance(name, str) for name in labels)):
            raise TypeError(f"Classification: labels must be the names of the classes, got {labels!r}")
        for name, times in Counter(labels or ()).items():
            if times > 1:
                raise InvalidValue("Classification", "labels", f"must name each class once, got {name!r:.50} twice")
        self.labels, self.confidence, self.wrong = labels, measure, wrong

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
        ValueError: the remote answers 'dog' where local answers 1: a name and a number never agree; name the ...
        """
        if self.wrong is not None:
            return self.wrong.agreed(local, remote)
        if isinstance(local, str) != isinstance(remote, str):
            raise ValueError(
                f"the remote answers {remote!r:.24} where local answers {local!r:.24}: a name and a number never "
                "agree; name the classes in order, by Classification([...]) or --labels"
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


# -- a number ---------------------------------------------------------------------------------------------------------


class Regression:
    """A number, right if it is off by `tolerance` at most.

        output        {"value": …, "low": …, "high": …}, a value and its interval; or the value alone, taken for sure
        answer        the value
        confidence    1 / (1 + half the width of the interval / tolerance): 1/2 where half of it is the tolerance
        agreement     1 where the values differ by the tolerance at most, else 0

    >>> task = Regression(tolerance=0.5)
    >>> task.answer({"value": 21.5, "low": 21, "high": 22}), task.confidence({"value": 21.5, "low": 21, "high": 22})
    (21.5, 0.5)
    >>> task.agreement(21.5, 21.9), task.agreement(21.5, 22.5)
    (1.0, 0.0)
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = positive("Regression", "tolerance", tolerance)

    def answer(self, output: Any) -> float:
        """The value.

        >>> Regression(1).answer(float("nan"))
        Traceback (most recent call last):
        hinge.errors.InvalidValue: Regression: value must be a finite number, got nan
        """
        found = parsed("Regression", output)
        return real("Regression", "value", found.get("value") if isinstance(found, dict) else found)

    def confidence(self, output: Any) -> float:
        found, value = parsed("Regression", output), self.answer(output)
        if not isinstance(found, dict):
            return 1.0
        low, high = (real("Regression", end, found.get(end, value)) for end in ("low", "high"))
        if not low <= high:
            raise ValueError(f"Regression: low must be high at most, got {low} and {high}")
        return 1.0 / (1.0 + (high - low) / 2 / self.tolerance)

    def agreement(self, local: float, remote: float) -> float:
        return float(abs(local - remote) <= self.tolerance)
