"""The budget for retries: its bound in every stretch, and the bucket in exact fractions."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.device.resilience import RetryBudget


@given(
    share=st.integers(0, 10**6).map(lambda millionths: Fraction(millionths, 10**6)),
    reserve=st.integers(0, 3),
    calls=st.lists(st.booleans(), max_size=80),  # True: a retry is asked for
)
def test_no_stretch_holds_more_retries_than_its_share_and_the_reserve(
    share: Fraction, reserve: int, calls: list[bool]
) -> None:
    budget, level = RetryBudget(float(share), reserve), Fraction(reserve)
    owed = worst = Fraction(0)  # retries less their share of the attempts, in the stretch where that is most
    for asks in calls:
        if asks:
            granted = budget.retry()
            assert granted == (level >= 1)
            level -= granted
            owed = max(owed, Fraction(0)) + granted
        else:
            budget.attempted()
            level = min(level + share, Fraction(reserve))
            owed -= share
        worst = max(worst, owed)
        assert budget.left == int(level)
    assert worst <= reserve


def test_a_tenth_is_a_tenth() -> None:
    budget = RetryBudget(share=0.1, reserve=1)
    assert budget.retry()
    granted = 0
    for _ in range(1000):
        budget.attempted()
        granted += budget.retry()
    assert granted == 100


def test_an_outage_is_not_amplified() -> None:
    budget, granted = RetryBudget(), 0
    for _ in range(600):  # each fails, and would be made again as often as it may
        budget.attempted()
        while budget.retry():
            granted += 1
    assert granted == 600 // 10 + 5 - 1  # the share the very first attempt paid into the full bucket is spilt


def test_savings_are_not_kept_beyond_the_reserve() -> None:
    budget = RetryBudget(share=1, reserve=3)
    for _ in range(1000):
        budget.attempted()
    assert [budget.retry() for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"share": 1.5}, ValueError, "RetryBudget: share must be from 0 to 1, got 1.5"),
        ({"share": "some"}, TypeError, "RetryBudget: share must be a number, got 'some'"),
        ({"reserve": -1}, ValueError, "RetryBudget: reserve must be an integer >= 0, got -1"),
        ({"reserve": 0.5}, TypeError, "RetryBudget: reserve must be an integer >= 0, got 0.5"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        RetryBudget(**parameters)
    assert str(raised.value) == message
