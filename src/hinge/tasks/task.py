"""What a gate needs to know of a task: which answer an output is, how sure it is, and how far two answers agree.

Agreement is a number from 0 to 1: what an answer is worth where the remote's counts as right. A mistake of a classifier
has 0; a transcript with one wrong word in ten has 0.9.

**Not an answer** is confidence 0: a detector that found nothing, words that are none of the options. Whatever is an
answer has a confidence above 0. So it falls into the lowest bin of any bins, is decided and learned there, audited and
limited by a budget as every other sample is, and travels through traces, simulations and tables as they are. That bin
is all but its own: answers rarely have a confidence below 1/16, and `QuantileBins.fit` puts an edge right above 0 where
many samples have it. A rule beside the policy, such as "always offload", would be wrong half of the time: words that
are no option never agree, but where a detector found nothing there mostly is nothing.
"""

from __future__ import annotations

import json
from math import exp, fsum
from typing import Any, Protocol, runtime_checkable

from hinge._checks import real
from hinge.errors import TaskFailed

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


def plain(task: Task, answer: Any) -> Any:
    """An answer of a task, if it is plain data; else the task is wrong, and named.

    >>> from hinge.tasks import OCR
    >>> plain(OCR(), [float("nan")])
    Traceback (most recent call last):
    hinge.errors.TaskFailed: OCR.answer must return plain data, as JSON has it, got list: Out of range float ...
    """
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
