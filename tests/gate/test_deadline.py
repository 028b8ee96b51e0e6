"""Deadlines: what is left, and that no share of one ends after the whole."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge.gate.deadline import Deadline

repeatable = settings(deadline=None, derandomize=True)
instants = st.floats(-1e9, 1e9)


@given(end_s=instants, now=instants)
@repeatable
def test_it_has_expired_when_nothing_is_left(end_s: float, now: float) -> None:
    deadline = Deadline(end_s)
    assert deadline.expired(now) == (now >= end_s) == (deadline.left(now) == 0)
    assert deadline.left(now) >= 0
    assert deadline.expired(end_s)
    assert not deadline.expired(math.nextafter(end_s, -math.inf))


@given(end_s=instants, now=instants, parts=st.lists(st.floats(0, 1), min_size=1, max_size=5))
@repeatable
def test_no_share_ends_after_the_whole(end_s: float, now: float, parts: list[float]) -> None:
    deadline = Deadline(end_s)
    for part in parts:
        step = deadline.share(part, now)
        assert step.end_s <= deadline.end_s
        assert step.left(now) == pytest.approx(part * deadline.left(now), abs=1e-6)
        deadline = step


def test_one_deadline_spans_every_step() -> None:
    deadline, now = Deadline.after(1.0, now=50.0), 50.0
    for part in (0.5, 0.5, 1.0):  # connecting, asking, reading: each takes all it may
        now = deadline.share(part, now).end_s
    assert now == deadline.end_s == 51.0
    assert deadline.share(0.5, now=60.0) == deadline  # too late: no step gets any time
    assert Deadline.after(0.25, now=0) == Deadline(0.25)


def test_it_cannot_be_moved() -> None:
    deadline = Deadline(1)
    assert type(deadline.end_s) is float
    with pytest.raises(dataclasses.FrozenInstanceError):
        deadline.end_s = 2.0  # type: ignore[misc]  # that is what is tested


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Deadline(math.nan), ValueError, "Deadline: end_s must be a finite number, got nan"),
        (lambda: Deadline.after(0, now=1), ValueError, "Deadline: deadline_s must be > 0, got 0"),
        (lambda: Deadline.after(1, now=math.inf), ValueError, "Deadline: now must be a finite number, got inf"),
        (lambda: Deadline(1).left(math.nan), ValueError, "Deadline: now must be a finite number, got nan"),
        (lambda: Deadline(1).share(1.5, now=0), ValueError, "Deadline: part must be from 0 to 1, got 1.5"),
        (lambda: Deadline(1).share(0.5, now=math.nan), ValueError, "Deadline: now must be a finite number, got nan"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert str(raised.value) == message
