"""Classification: labels, names and scores."""

from typing import Any

import numpy as np
import pytest

from hinge import margin
from hinge.tasks import Classification


@pytest.mark.parametrize(
    ("labels", "output", "label"),
    [
        (None, 1, 1),
        (None, np.int64(1), 1),
        (None, "dog", "dog"),
        (None, [0.1, 2.0], 1),
        (["cat", "dog"], 1, "dog"),
        (["cat", "dog"], "dog", "dog"),
        (["cat", "dog"], np.array([3.0, 0.5], np.float32), "cat"),
    ],
)
def test_answers(labels: Any, output: Any, label: Any) -> None:
    assert Classification(labels).answer(output) == label


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("cow", "an unknown label, 'cow'"),
        (2, "an unknown label, 2"),
        ([0.1, float("nan")], "the scores are not finite"),
        ([[0.1, 0.9]], "no label, but"),
        ([0.9], "no label, but"),
        (None, "no label, but None"),
    ],
    ids=str,
)
def test_what_is_no_label_is_named(output: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("[", r"\[")):
        Classification(["cat", "dog"]).answer(output)


def test_the_measure_may_be_another() -> None:
    assert Classification(measure=margin).confidence([2.0, 1.0, 0.0]) == margin([2.0, 1.0, 0.0])


def test_equal_labels_agree_and_a_name_never_is_a_number() -> None:
    task = Classification()
    assert (task.agreement(1, 1), task.agreement("cat", "dog")) == (1.0, 0.0)
    with pytest.raises(ValueError, match="a name and a number never agree"):
        task.agreement("cat", 1)
