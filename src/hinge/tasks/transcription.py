"""Transcription: spoken words.

    output        {"text": …, "logprobs": […]}, the log-probability of each token; or {"text": …, "confidence": …}, the
                  decoder's own; or the text alone, which is taken for sure
    answer        the text
    confidence    exp of the mean log-probability, the geometric mean of the tokens' probabilities; 0 without a word
    agreement     1 - WER, 0 at least; or 1 where the two are the same command, else 0

The word error rate is the least number of words to replace, insert or delete, over the words of the remote's text.
Words are compared in lower case and without punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hinge.tasks.task import sureness, text_of

_APART = re.compile(r"[^\w']+|(?<!\w)'|'(?!\w)")  # what is between words; an apostrophe inside one belongs to it


class Transcription:
    """Spoken words; of `commands`, only which one was heard counts, and anything else is no answer.

    >>> task = Transcription()
    >>> task.confidence({"text": "Lights on", "logprobs": [-0.1, -0.3]})
    0.8187307530779818
    >>> task.agreement("lights on", "Turn the lights on!")
    0.5
    >>> commands = Transcription(commands=["lights on", "lights off"])
    >>> commands.agreement("lights on", "Lights on."), commands.confidence("nice weather")
    (1.0, 0.0)
    """

    def __init__(self, commands: Sequence[str] | None = None) -> None:
        if isinstance(commands, str) or not all(isinstance(each, str) for each in commands or ()):
            raise TypeError(f"Transcription: commands must be a list of texts, got {commands!r}")
        self.commands = None if commands is None else {" ".join(words(each)) for each in commands}

    def answer(self, output: Any) -> str:
        """The text."""
        return text_of("Transcription", output)

    def confidence(self, output: Any) -> float:
        """How likely the tokens are; 0 where there is no word, or no command."""
        heard = " ".join(words(self.answer(output)))
        if not heard or (self.commands is not None and heard not in self.commands):
            return 0.0
        return sureness("Transcription", output)

    def agreement(self, local: str, remote: str) -> float:
        """1 - WER, or 1 where both are the same command."""
        if self.commands is not None:
            return float(words(local) == words(remote))
        return 1.0 - error_rate(words(local), words(remote))


def words(text: str) -> list[str]:
    """The words of a text, in lower case.

    >>> words("Don't stop: it's 5 o'clock!")
    ["don't", 'stop', "it's", '5', "o'clock"]
    """
    return [word for word in _APART.split(text.lower()) if word]


def error_rate(found: Sequence[str], wanted: Sequence[str]) -> float:
    """Edits from one to the other (Levenshtein), over the length of what is wanted; 1 at most.

    >>> error_rate("kitten", "sitting"), error_rate("", "")
    (0.42857142857142855, 0.0)
    """
    if not wanted:
        return float(bool(found))
    edits = list(range(len(wanted) + 1))
    for row, one in enumerate(found, 1):
        above, edits[0] = edits[0], row
        for column, other in enumerate(wanted, 1):
            above, edits[column] = edits[column], min(above + (one != other), edits[column] + 1, edits[column - 1] + 1)
    return min(1.0, edits[-1] / len(wanted))
