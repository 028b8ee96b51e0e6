"""OCR: the character error rate against its recursive definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.tasks import OCR
from tests.tasks.test_text_transcription import edits

lines = st.text("ab 7", max_size=8)


@given(lines, lines)
def test_agreement_is_one_minus_the_character_error_rate(found: str, wanted: str) -> None:
    one, other = (" ".join(text.split()) for text in (found, wanted))
    expected = edits(tuple(one), tuple(other)) / len(other) if other else float(bool(one))
    assert OCR().agreement(found, wanted) == pytest.approx(1.0 - min(1.0, expected))


def test_confidence_is_the_mean_score() -> None:
    assert OCR().confidence({"text": "EXIT", "scores": [0.9, 0.7, 1.0, 0.8]}) == pytest.approx(0.85)
    assert OCR().confidence({"text": "EXIT", "confidence": 0.4}) == 0.4
    assert OCR().confidence({"text": "  ", "scores": [0.9]}) == 0.0


def test_a_text_is_not_compared_for_ever() -> None:
    with pytest.raises(ValueError, match="OCR: an output must be a text of 5000 characters at most"):
        OCR().answer("a" * 5001)
