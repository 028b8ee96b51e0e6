"""A function from sample to scores as a local model: its label and its confidence."""

from typing import Any

import numpy as np
import pytest

from hinge.confidence import entropy, logistic, margin, max_probability, max_softmax, temperature
from hinge.errors import InvalidModel
from hinge.models import WATCHED, Classifier


@pytest.mark.parametrize("classes", [2, 10, 64, 65, 1000])
@pytest.mark.parametrize("kelvin", [1.0, 1.7])
def test_the_quick_way_to_confidence_is_the_measure_itself(classes: int, kelvin: float) -> None:
    measure = max_softmax if kelvin == 1.0 else temperature(kelvin)(max_softmax)
    chance = np.random.default_rng(classes)
    for _ in range(200):
        scores = chance.normal(0, 5, classes).astype(np.float32)
        for given in (scores, scores.tolist()):
            label, confidence = Classifier(_same, measure).answer(given)
            assert label == int(scores.argmax())
            # What is computed in float32, as the scores are, has the digits of a float32.
            single = given is scores and classes > 64 and kelvin == 1.0
            assert confidence == pytest.approx(measure(scores), rel=1e-6 if single else 1e-14)


@pytest.mark.parametrize("classes", [3, 100])
def test_scores_that_are_no_numbers_are_refused_by_every_way(classes: int) -> None:
    for wrong in (np.nan, np.inf, -np.inf):
        scores = np.zeros(classes, np.float32)
        scores[1] = wrong
        with pytest.raises(ValueError, match="scores must be finite"):
            Classifier(_same).answer(scores)


def _same(scores: Any) -> Any:
    return scores


def test_as_many_names_as_classes() -> None:
    for names in (["a"], ["a", "b", "c"]):
        with pytest.raises(ValueError, match=f"must name 2 classes, as the local model has, got {len(names)}"):
            Classifier(lambda _: [0.0, 1.0], labels=names).answer(None)


@pytest.mark.parametrize("classes", [2, 10, 65, 1000, 100_000])
def test_scores_of_double_precision_keep_it(classes: int) -> None:
    scores = np.random.default_rng(classes).normal(0, 5, classes)
    assert Classifier(_same).answer(scores)[1] == pytest.approx(max_softmax(scores), rel=1e-13)
    assert Classifier(_same).answer(scores.astype(np.float32))[1] == pytest.approx(max_softmax(scores), rel=1e-5)


@pytest.mark.parametrize("classes", [2, 64, 65, 1000])
@pytest.mark.parametrize("top", [0.0, 20.0, 84.0, 86.0, 400.0])
def test_no_confidence_exceeds_one(classes: int, top: float) -> None:
    scores = np.zeros(classes, np.float32)
    scores[1] = top
    assert 0.0 < Classifier(_same).answer(scores)[1] <= 1.0


@pytest.mark.parametrize("classes", [64, 65, 1024, 1025, 4096, 4097])
@pytest.mark.parametrize("score", [-1000.0, -86.0, -79.0, 79.0, 86.0, 689.0, 1000.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_equal_scores_do_not_overflow(classes: int, score: float, dtype: type[np.floating[Any]]) -> None:
    label, confidence = Classifier(_same).answer(np.full(classes, score, dtype))
    assert label == 0
    assert confidence == pytest.approx(1 / classes, rel=1e-6)


@pytest.mark.parametrize("largest", [79.0, 84.0, 86.0, 699.0, 701.0, 1e30])
def test_scores_of_any_size_have_the_confidence_of_the_measure(largest: float) -> None:
    scores = np.linspace(-largest, largest, 100, dtype=np.float32)
    for shift in (0.0, -largest, largest):
        label, confidence = Classifier(_same).answer(scores + np.float32(shift))
        assert label == (scores + np.float32(shift)).argmax()
        assert confidence == pytest.approx(max_softmax(scores + np.float32(shift)), rel=1e-6)
        doubled = (scores + np.float32(shift)).astype(np.float64)
        assert Classifier(_same).answer(doubled)[1] == pytest.approx(max_softmax(doubled), rel=1e-13)


@pytest.mark.parametrize("classes", [5, 500])
def test_a_batch_is_answered_as_its_samples_are(classes: int) -> None:
    scores = np.random.default_rng(classes).normal(0, 3, (20, classes)).astype(np.float32)

    class Model:
        def __call__(self, row: int) -> Any:
            return scores[row]

        def many(self, rows: list[int]) -> Any:
            return scores[rows]

    for measure in (max_softmax, margin):
        model = Classifier(Model(), measure)
        assert model.answer_many(list(range(20))) == [model.answer(row) for row in range(20)]

    class Short(Model):
        def many(self, rows: list[int]) -> Any:
            return super().many(rows)[:-1]

    with pytest.raises(ValueError, match="a row for each of 20 samples, got 19"):
        Classifier(Short()).answer_many(list(range(20)))


# -- outputs that are probabilities -----------------------------------------------------------------------------------


def softmax(scores: Any) -> Any:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 10, 65, 1000])
@pytest.mark.parametrize("measure", [max_softmax, margin, entropy, temperature(1.7)(max_softmax), logistic(1, 2, 3)])
def test_probabilities_have_the_confidence_of_their_scores(classes: int, measure: Any) -> None:
    scores = np.random.default_rng(classes).normal(0, 3, (40, classes))
    classifier = Classifier(_same, measure)
    for row, p in zip(scores, softmax(scores), strict=True):
        assert classifier.answer(p)[1] == pytest.approx(measure(row), rel=1e-9)
        assert classifier.answer(p.astype(np.float32))[1] == pytest.approx(measure(row), rel=1e-4)
        assert classifier.answer(p.tolist())[0] == row.argmax()


def test_a_measure_of_the_users_own_is_given_the_outputs_as_they_are() -> None:
    largest: Any = max
    assert Classifier(_same, largest).answer([0.25, 0.75]) == (1, 0.75)
    assert Classifier(_same, max_probability).answer([0.25, 0.7, 0.9]) == (2, 0.9)


def test_one_row_that_looks_like_probabilities_does_not_make_them(caplog: Any) -> None:
    classifier = Classifier(_same)
    assert classifier.answer([0.0, 1.0]) == (1, 1.0)
    assert classifier.answer([2.0, -1.0])[1] == pytest.approx(max_softmax([2.0, -1.0]))
    assert caplog.records == []
    assert classifier.answer([0.25, 0.75])[1] == pytest.approx(max_softmax([0.25, 0.75]))  # scores, for good


def test_what_changes_in_the_first_samples_is_said(caplog: Any) -> None:
    classifier = Classifier(_same)
    for _ in range(3):
        assert classifier.answer([0.25, 0.75])[1] == pytest.approx(0.75)
    assert classifier.answer([0.25, 3.0])[1] == pytest.approx(max_softmax([0.25, 3.0]))
    assert [record.message.partition(": ")[2].partition(":")[0] for record in caplog.records] == [
        "its outputs are probabilities, so that no softmax is taken of them",
        "its outputs are taken for scores from now on",
    ]


def test_what_is_no_number_is_refused_and_changes_nothing(caplog: Any) -> None:
    classifier = Classifier(_same)
    classifier.answer([0.25, 0.75])
    with pytest.raises(InvalidModel, match=r"the local model: .* got nan in class 0"):
        classifier.answer([np.nan, 0.75])
    assert classifier.answer([0.25, 0.75])[1] == pytest.approx(0.75)
    assert len(caplog.records) == 1


def test_after_the_first_samples_nothing_changes() -> None:
    classifier = Classifier(_same)
    for _ in range(WATCHED):
        classifier.answer([0.25, 0.75])
    assert classifier.answer([0.25, 0.5])[1] == pytest.approx(2 / 3)  # of a sum that is rounded, the share
    with pytest.raises(ValueError, match="must be 0 or more, as those before were, got -1"):
        classifier.answer([2.0, -1.0])


@pytest.mark.parametrize(
    ("returned", "found"),
    [(None, "got None"), (0.7, r"got 0.7: of two classes return both, \[1 - p, p\]"), ([0.7], r"got \[0.7\]: of two"),
     (np.array([[0.2, 0.8]]), r"shape \[1, 2\]: return row 0"), ([[0.2, 0.8]], r"shape \[1, 2\]: return row 0"),
     (np.zeros((100, 4)), r"shape \[100, 4\]"), ({"cat": 0.2, "dog": 0.8}, "got {'cat'"), ("cat", "got 'cat'"),
     (["cat", "dog"], r"got \['cat', 'dog'\]")],
)  # fmt: skip  # several to a line
@pytest.mark.parametrize("measure", [max_softmax, margin, max])
def test_what_is_no_row_of_scores_is_refused_with_what_to_do(returned: Any, found: str, measure: Any) -> None:
    with pytest.raises(ValueError, match="Device: local must return a score for each class, of one sample, .*" + found):
        Classifier(lambda _: returned, measure).answer(None)
