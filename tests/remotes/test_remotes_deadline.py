"""Deadlines: what is left, and that no share of one ends after the whole."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.remotes import Deadline

instants = st.floats(-1e9, 1e9)


@given(end_s=instants, now=instants)
def test_nothing_is_left_once_it_has_passed(end_s: float, now: float) -> None:
    deadline = Deadline(end_s)
    assert (deadline.left(now) == 0) == (now >= end_s)
    assert deadline.left(now) >= 0
    assert deadline.left(end_s) == 0
    assert deadline.left(math.nextafter(end_s, -math.inf)) > 0


@given(end_s=instants, now=instants, parts=st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_no_share_ends_after_the_whole(end_s: float, now: float, parts: list[float]) -> None:
    deadline = Deadline(end_s)
    for part in parts:
        step = deadline.split(part, now)
        assert step.end_s <= deadline.end_s
        assert step.left(now) == pytest.approx(part * deadline.left(now), abs=1e-6)
        deadline = step


def test_one_deadline_spans_every_step() -> None:
    deadline, now = Deadline.after(1.0, now=50.0), 50.0
    for part in (0.5, 0.5, 1.0):  # connecting, asking, reading: each takes all it may
        now = deadline.split(part, now).end_s
    assert now == deadline.end_s == 51.0
    assert deadline.split(0.5, now=60.0) == deadline  # too late: no step gets any time
    assert Deadline.after(0.25, now=0) == Deadline(0.25)


def test_it_reads_the_monotonic_clock_when_it_is_told_no_time() -> None:
    deadline = Deadline.after(60.0)
    assert 0 < deadline.left() <= 60.0
    assert Deadline.after(-1.0).left() == 0
