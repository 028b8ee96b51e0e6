"""Answers in text: short ones of a language model, spoken words, and text read in images."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import exp, fsum, isclose, isfinite
from typing import Any, Literal

from hinge.tasks.task import LEAST, numbers, sureness, text_of

Measure = Literal["product", "mean", "least", "margin"]
MAX_LENGTH = 2**20  # characters: reasons may stand before a number, and to read a text takes as many steps
_NUMBER = re.compile(r"[-−]?(?:\d[\d,]*(?:\.\d+)?|(?<!\w)\.\d+)(?:[eE][-+]?\d+)?")
_DIGITS = 400  # a number of more is beyond every float, and slow to read


class ShortText:
    """A short text; `form` says what is compared in it, `options` what it may be, and `measure` how sure it is.

        output        {"text": …, "logprobs": […]}, the log-probability of each token, and for the measure "margin"
                      "top", those of the likeliest first tokens; or {"text": …, "confidence": …}; or the text, taken
                      for sure; with "cut": true if it was cut off at a greatest length
        answer        the text; of options the one that it is
        confidence    "product": of the tokens' probabilities, how likely the whole answer is, for texts and options;
                      "mean": their geometric mean, for numbers and JSON, which may be long; "least": of them;
                      "margin": by how much the first token's exceeds that of the next likely one; 0 where the text is
                      empty, no option, no number, no JSON object, or cut off: an option is one, however it ended
        agreement     1 where the two are the same but for case, white space, quotes and a full stop, else 0; the same
                      option; the same last number; the share of fields that are the same, with texts compared as
                      above at any depth

    >>> task = ShortText(options=["yes", "no"])
    >>> task.answer(" Yes."), task.agreement("yes", "no"), task.confidence("maybe")
    ('yes', 0.0, 0.0)
    >>> ShortText("number").agreement("So it costs $1,200.", "#### 1200")
    1.0
    >>> ShortText("json").agreement('{"size": "XL", "count": 2}', '{"size": "xl", "count": 3}')
    0.5
    >>> paris = {"text": "Paris", "logprobs": [-0.1, -0.7]}
    >>> round(ShortText().confidence(paris), 3), round(ShortText(measure="least").confidence(paris), 3)
    (0.449, 0.497)
    """

    def __init__(
        self,
        form: Literal["text", "number", "json"] = "text",
        *,
        options: Sequence[str] | None = None,
        measure: Measure | None = None,
    ) -> None:
        if form not in ("text", "number", "json"):
            raise ValueError(f"ShortText: form must be 'text', 'number' or 'json', got {form!r}")
        if measure not in (None, "product", "mean", "least", "margin"):
            raise ValueError(f"ShortText: measure must be 'product', 'mean', 'least' or 'margin', got {measure!r}")
        if isinstance(options, str) or not all(isinstance(each, str) for each in options or ()):
            raise TypeError(f"ShortText: options must be a list of texts, got {options!r}")
        self.form = form
        self.measure: Measure = measure or ("product" if form == "text" else "mean")
        self.options = tuple(options or ())
        self._options = {normalised(option): option for option in options or ()}

    def answer(self, output: Any) -> str:
        text = text_of("ShortText", output, MAX_LENGTH)
        return self._options.get(normalised(text), text)

    def confidence(self, output: Any) -> float:
        text, cut = text_of("ShortText", output, MAX_LENGTH), isinstance(output, dict) and bool(output.get("cut"))
        if self._read(text) is None or (normalised(text) not in self._options if self._options else cut):
            return 0.0
        told = isinstance(output, dict) and "confidence" not in output  # by its tokens, and not by one number
        if self.measure == "mean" or not told or (self.measure == "product" and "logprobs" not in output):
            return sureness("ShortText", output)
        if self.measure != "margin":
            found = numbers("ShortText", "logprobs", output.get("logprobs"), high=0.001)
            return max(LEAST, min(1.0, exp(min(found) if self.measure == "least" else fsum(found))))
        first, second, *_ = [*sorted(numbers("ShortText", "top", output.get("top"), high=0.001), reverse=True), -1e9]
        return max(LEAST, min(1.0, exp(first) - exp(second)))

    def agreement(self, local: str, remote: str) -> float:
        """1 or 0; of JSON the share of the fields of either that are the same in both."""
        one, other = self._read(local), self._read(remote)
        if one is None or other is None:
            return float(local == remote)
        if isinstance(one, dict):
            fields = one.keys() | other.keys()
            same = sum(field in one and field in other and one[field] == other[field] for field in fields)
            return same / len(fields) if fields else 1.0
        return float(isclose(one, other, rel_tol=1e-9) if isinstance(one, float) else one == other)

    def _read(self, text: str) -> Any:
        """What is compared; None where there is no such thing."""
        if self.form == "text":
            return normalised(text) or None
        if self.form == "number":
            return _last_number(text)
        try:
            inner = text[text.index("{") : text.rindex("}") + 1]  # words or a fence may stand around it
            fields = _comparable(json.loads(inner, parse_constant=_refuse))
        except (ValueError, RecursionError):
            return None
        return fields


def _last_number(text: str) -> float | None:
    """The last number in a text.

    >>> _last_number("about 1e5"), _last_number("−.5 in all"), _last_number("9" * 5000)
    (100000.0, -0.5, None)
    """
    last = next(reversed(_NUMBER.findall(text)), "")
    number = float(last.replace(",", "").replace("−", "-")) if 0 < len(last) <= _DIGITS else float("inf")
    return number if isfinite(number) else None


def _comparable(value: Any) -> Any:
    """What JSON holds, such that `==` tells what is the same at any depth: normalised texts, and True is not 1.

    >>> _comparable({"a": ["X ", 1.0]}) == {"a": ["x", 1]}, _comparable([True]) == _comparable([1])
    (True, False)
    """
    if isinstance(value, str):
        return normalised(value)
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return {name: _comparable(each) for name, each in value.items()} if isinstance(value, dict) else value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def normalised(text: str) -> str:
    """A text in lower case, without quotes and full stops around it, every white space one blank.

    >>> normalised(' "Book\\n a  Flight." ')
    'book a flight'
    """
    return " ".join(text.casefold().split()).strip(" .!\"'`*")


# -- spoken words -----------------------------------------------------------------------------------------------------


_APART = re.compile(r"[^\w']+|(?<!\w)'|'(?!\w)")  # what is between words; an apostrophe inside one belongs to it


class Transcription:
    """Spoken words; of `commands`, only which one was heard counts, and anything else is no answer.

        output        {"text": …, "logprobs": […]}, the log-probability of each token; or {"text": …, "confidence": …},
                      the decoder's own; or the text alone, which is taken for sure
        answer        the text
        confidence    exp of the mean log-probability, the geometric mean of the tokens' probabilities; 0 without a word
        agreement     1 - WER, 0 at least; or 1 where the two are the same command, else 0

    The word error rate is the least number of words to replace, insert or delete, over the words of the remote's text.
    Words are compared in lower case and without punctuation.

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
        return text_of("Transcription", output)

    def confidence(self, output: Any) -> float:
        heard = " ".join(words(self.answer(output)))
        if not heard or (self.commands is not None and heard not in self.commands):
            return 0.0
        return sureness("Transcription", output)

    def agreement(self, local: str, remote: str) -> float:
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


# -- text in images ---------------------------------------------------------------------------------------------------


class OCR:
    """Text in images.

        output        {"text": …, "scores": […]}, the probability of each character; or {"text": …, "confidence": …};
                      or the text alone, which is taken for sure
        answer        the text
        confidence    the mean score; 0 where nothing was read
        agreement     1 - CER, 0 at least

    The character error rate is the least number of characters to replace, insert or delete, over the length of the
    remote's text. White space counts as one blank, and at the ends not at all.

    >>> task = OCR()
    >>> task.confidence({"text": "No 7", "scores": [0.9, 0.8, 1.0, 0.5]}), task.confidence("")
    (0.8, 0.0)
    >>> task.agreement("No  1", "No 7")
    0.75
    """

    def answer(self, output: Any) -> str:
        return text_of("OCR", output)

    def confidence(self, output: Any) -> float:
        return sureness("OCR", output) if self.answer(output).strip() else 0.0

    def agreement(self, local: str, remote: str) -> float:
        return 1.0 - error_rate(" ".join(local.split()), " ".join(remote.split()))
