"""Segmentation: runs and IoU against sets of pixels."""

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.tasks import Segmentation

grids = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.floats(0, 1), min_size=width, max_size=width), min_size=1, max_size=4)
)
squares = st.lists(st.lists(st.sampled_from([0.0, 0.4, 0.5, 1.0]), min_size=3, max_size=3), min_size=3, max_size=3)


def inside(grid: list[list[float]]) -> set[tuple[int, int]]:
    return {(y, x) for y, row in enumerate(grid) for x, value in enumerate(row) if value >= 0.5}


@given(grids)
def test_runs_are_those_of_the_pixels(grid: list[list[float]]) -> None:
    answer = Segmentation().answer(grid)
    flat = [value >= 0.5 for row in grid for value in row]
    runs = [len([*each]) for _, each in groupby(flat)]
    assert answer == {"shape": [len(grid), len(grid[0])], "runs": [0, *runs] if flat[0] else runs}
    assert {*zip(*(place.tolist() for place in np.nonzero(Segmentation().mask(answer))), strict=True)} == inside(grid)


@given(squares, squares)
def test_agreement_is_the_iou_of_the_pixels(one: list[list[float]], other: list[list[float]]) -> None:
    task = Segmentation()
    either = inside(one) | inside(other)
    expected = len(inside(one) & inside(other)) / len(either) if either else 1.0
    assert task.agreement(task.answer(one), task.answer(other)) == pytest.approx(expected)


def test_confidence_is_the_mean_margin() -> None:
    assert Segmentation().confidence([[0.9, 0.1], [0.5, 1.0]]) == pytest.approx((0.8 + 0.8 + 0.0 + 1.0) / 4)
    assert Segmentation().confidence(np.zeros((2, 2))) == 0.0  # nothing found
    assert 0.0 < Segmentation().confidence([[0.5]]) < 0.01


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([[0.5, float("nan")]], "a pixel must have a probability from 0 to 1, got nan"),
        ([[0.5], [0.5, 1.0]], "an output must be an array of height x width"),
        ([0.5], "an output must be an array of height x width"),
        ({"shape": [2, 2], "runs": [1, 2]}, "runs must sum to the pixels of the shape [2, 2], got 3"),
        ({"shape": [2, 2], "runs": [5, -1]}, "Segmentation: runs must be an integer >= 0, got -1"),
        ({"shape": [2, 2]}, "a mask must have shape and runs, and has no 'runs'"),
        ({"shape": [2**20, 2**20], "runs": [2**40]}, "runs must sum to the pixels"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_mask_is_named(output: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        Segmentation().answer(output)
    assert message in str(caught.value)


def test_masks_of_other_shapes_are_refused() -> None:
    task = Segmentation()
    with pytest.raises(ValueError, match="masks must have one shape"):
        task.agreement(task.answer([[1.0]]), task.answer([[1.0, 0.0]]))
