"""Regression: intervals and tolerance."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.tasks import Regression

widths = st.floats(0, 1e6)


@given(widths, widths)
def test_a_wider_interval_is_never_surer(one: float, other: float) -> None:
    narrow, wide = sorted((one, other))
    task = Regression(0.1)
    found = [task.confidence({"value": 5.0, "low": 5.0 - width, "high": 5.0 + width}) for width in (narrow, wide)]
    assert 1.0 >= found[0] >= found[1] > 0.0


def test_confidence_is_a_half_where_the_interval_is_the_tolerance() -> None:
    assert Regression(2.0).confidence({"value": 5, "low": 3, "high": 7}) == 0.5
    assert Regression(2.0).confidence(5) == 1.0


def test_the_tolerance_itself_agrees() -> None:
    assert (Regression(0.5).agreement(1.0, 1.5), Regression(0.5).agreement(1.0, 1.5001)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"value": float("nan")}, "Regression: value must be a finite number, got nan"),
        ({"low": 1, "high": 2}, "Regression: value must be a number, got None"),
        ({"value": 1, "low": 2, "high": 1}, "Regression: low must be high at most"),
        ({"value": 1, "low": "a"}, "Regression: low must be a number, got 'a'"),
        ([1, 2], "Regression: value must be a number"),
    ],
    ids=str,
)
def test_what_is_wrong_with_an_output_is_named(output: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        Regression(1.0).confidence(output)
    assert message in str(caught.value)
