"""A function from sample to scores as a local model: its label and its confidence."""

from typing import Any

import numpy as np
import pytest

from hinge.confidence import margin, max_softmax, temperature
from hinge.models.base import Classifier


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


@pytest.mark.parametrize("classes", [64, 65, 4096, 4097])
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
