"""Transcription: the word error rate against its recursive definition."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.tasks import Transcription
from hinge.tasks.text import error_rate, words

sentences = st.lists(st.sampled_from(["turn", "the", "light", "on"]), max_size=6)


def edits(found: tuple[str, ...], wanted: tuple[str, ...]) -> int:
    """Levenshtein's distance, as it is defined."""

    @cache
    def distance(i: int, k: int) -> int:
        if i == 0 or k == 0:
            return i + k
        same = found[i - 1] == wanted[k - 1]
        return min(distance(i - 1, k) + 1, distance(i, k - 1) + 1, distance(i - 1, k - 1) + (not same))

    return distance(len(found), len(wanted))


@given(sentences, sentences)
def test_agreement_is_one_minus_the_word_error_rate(found: list[str], wanted: list[str]) -> None:
    expected = edits(tuple(found), tuple(wanted)) / len(wanted) if wanted else float(bool(found))
    assert error_rate(found, wanted) == pytest.approx(min(1.0, expected))
    task = Transcription()
    assert task.agreement(" ".join(found), " ".join(wanted)) == pytest.approx(1.0 - min(1.0, expected))


def test_case_and_punctuation_do_not_count() -> None:
    assert words("It's 5 o'clock -- 'now'!") == ["it's", "5", "o'clock", "now"]
    assert Transcription().agreement("lights, on", "Lights on!") == 1.0


def test_commands_are_the_same_or_not() -> None:
    task = Transcription(commands=["Lights on", "lights off"])
    assert task.agreement("lights on!", "Lights on") == 1.0
    assert task.agreement("lights on", "lights off") == 0.0
    assert task.confidence({"text": "lights up", "logprobs": [0.0]}) == 0.0  # no command, however sure
    assert task.confidence({"text": "Lights off.", "logprobs": [0.0]}) == 1.0


def test_silence_is_no_answer() -> None:
    assert Transcription().confidence({"text": " ... ", "logprobs": [-0.01]}) == 0.0


def test_commands_must_be_texts() -> None:
    with pytest.raises(TypeError, match="Transcription: commands must be a list of texts"):
        Transcription(commands="lights on")
