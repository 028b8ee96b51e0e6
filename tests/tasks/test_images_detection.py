"""Detection: matching against all matchings, IoU against pixels that are counted."""

from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge.tasks import Detection
from hinge.tasks.images import iou, most_pairs

sides = st.integers(0, 7)
rectangles = st.builds(lambda a, b, c, d: [min(a, c), min(b, d), max(a, c), max(b, d)], *[sides] * 4)
graphs = st.lists(st.lists(st.integers(0, 4), unique=True), max_size=5)


def pixels(box: list[int]) -> set[tuple[int, int]]:
    return {*product(range(box[0], box[2]), range(box[1], box[3]))}


@given(rectangles, rectangles)
def test_iou_is_that_of_the_pixels(one: list[int], other: list[int]) -> None:
    either = pixels(one) | pixels(other)
    expected = len(pixels(one) & pixels(other)) / len(either) if either else float(one == other)
    assert iou(one, other) == pytest.approx(expected) == iou(other, one)


@pytest.mark.medium
@settings(max_examples=60)
@given(graphs)
def test_no_matching_has_more_pairs(edges: list[list[int]]) -> None:
    places = [*range(5), *[None] * len(edges)]
    best = max(sum(k in edges[i] for i, k in enumerate(way)) for way in permutations(places[:8], len(edges)))
    assert most_pairs(edges) == best


def found(*boxes: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [{"box": list(box), "label": label, "score": score} for *box, label, score in boxes]


CAT, CLOSE, FAR = (0, 0, 10, 10, "cat", 0.9), (0, 0, 10, 8, "cat", 0.6), (50, 50, 60, 60, "cat", 0.7)


@pytest.mark.parametrize(
    ("local", "remote", "f1"),
    [
        ([CAT], [CLOSE], 1.0),
        ([CAT], [FAR], 0.0),
        ([CAT], [(*CAT[:4], "dog", 0.9)], 0.0),
        ([CAT, FAR], [CLOSE], 2 / 3),
        ([CAT, CAT], [CAT], 2 / 3),  # one box of the remote's is matched once
        ([], [CAT], 0.0),
        ([], [], 1.0),
        ([(0, 0, 10, 10, "cat", 0.9)], [(0, 0, 10, 5, "cat", 0.9)], 1.0),  # an IoU of 0.5 is enough
    ],
)
def test_agreement_is_f1(local: Any, remote: Any, f1: float) -> None:
    task = Detection()
    one, other = task.answer(found(*local)), task.answer(found(*remote))
    assert task.agreement(one, other) == pytest.approx(f1) == task.agreement(other, one)


def test_a_greedy_matching_would_find_fewer_pairs() -> None:
    local = found((0, 0, 10, 10, "cat", 1.0), (0, 0, 10, 7, "cat", 1.0))
    remote = found((0, 0, 10, 9, "cat", 1.0), (0, 0, 10, 15, "cat", 1.0))
    assert Detection().agreement(local, remote) == 1.0  # 10-15 and 7-9, though 10-9 overlap most


def test_only_what_is_kept_counts() -> None:
    task, output = Detection(keep=0.65), found(CAT, CLOSE, FAR)
    assert [box["score"] for box in task.answer(output)] == [0.9, 0.7]
    assert task.confidence(output) == pytest.approx(0.8)
    assert Detection(keep=0.65, measure="least").confidence(output) == 0.7
    assert Detection(keep=0.95).confidence(output) == 0.0


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ({"box": [0, 0, 1, float("nan")], "label": "cat"}, "bottom of box 1 must be a finite number, got nan"),
        ({"box": [3, 0, 1, 1], "label": "cat"}, "Detection: box 1 must have left <= right"),
        ({"box": [0, 0, 1], "label": "cat"}, "Detection: box 1 must be {"),
        ({"box": [0, 0, 1, 1]}, "Detection: box 1 must be {"),
        ({"box": [0, 0, 1, 1], "label": None}, "the label of box 1 must be a name or a number, got None"),
        ({"box": [0, 0, 1, 1], "label": "cat", "score": 1.2}, "the score of box 1 must be from 0 to 1, got 1.2"),
        ("cat", "Detection: box 1 must be {"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_box_is_named(box: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        Detection().answer([*found(CAT), box])
    assert message in str(caught.value)


def test_a_remote_cannot_keep_a_device_busy_with_boxes() -> None:
    with pytest.raises(ValueError, match="must be a list of 300 boxes at most"):
        Detection().answer(found(CAT) * 301)
    assert Detection().agreement(found(CAT) * 40, found(CAT) * 300) == 2 * 40 / 340


@pytest.mark.parametrize("options", [{"keep": 2}, {"measure": "most"}, {"overlap": float("nan")}], ids=str)
def test_settings_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=f"Detection: {next(iter(options))} must be"):
        Detection(**options)
