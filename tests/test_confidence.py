"""Confidence measures against softmax in 50 digits, and the fits against brute force."""

import math
import pickle
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hinge.confidence import (
    RESNET8_CIFAR10,
    RIDGE,
    TEMPERATURE_RANGE,
    ConfidenceMeasure,
    are_probabilities,
    entropy,
    fit_logistic,
    fit_temperature,
    logistic,
    margin,
    max_softmax,
    temperature,
)

MEASURES: dict[str, ConfidenceMeasure] = {
    "max_softmax": max_softmax,
    "margin": margin,
    "entropy": entropy,
    "logistic": logistic(*RESNET8_CIFAR10),
    "temperature": temperature(1.5)(margin),
}
every_measure = pytest.mark.parametrize("name", MEASURES)
score = st.floats(-1e4, 1e4, width=32)
one_sample = st.lists(score, min_size=2, max_size=12)
batches = st.integers(2, 20).flatmap(
    lambda classes: st.lists(st.lists(score, min_size=classes, max_size=classes), min_size=1, max_size=6)
)


def exact_softmax(scores: list[float]) -> list[Decimal]:
    """Largest first, in 50 digits."""
    with localcontext() as context:
        context.prec = 50
        powers = [(Decimal(score) - Decimal(max(scores))).exp() for score in scores]
        return sorted((power / sum(powers) for power in powers), reverse=True)


def exact_confidence(name: str, scores: list[float]) -> Decimal:
    with localcontext() as context:
        context.prec = 50
        if name == "temperature":
            return exact_confidence("margin", [float(np.float64(score) / 1.5) for score in scores])
        p = exact_softmax(scores)
        if name == "max_softmax":
            return p[0]
        if name == "margin":
            return p[0] - p[1]
        if name == "entropy":
            return 1 + sum(chance * chance.ln() for chance in p if chance > 0) / Decimal(len(p)).ln()
        intercept, top1, top2 = map(Decimal, RESNET8_CIFAR10)
        return 1 / (1 + (-(intercept + top1 * p[0] + top2 * p[1])).exp())


@every_measure
@given(scores=one_sample)
def test_equals_the_formula_in_50_digits(name: str, scores: list[float]) -> None:
    confidence = MEASURES[name](scores)
    assert type(confidence) is float
    assert 0 <= confidence <= 1
    assert confidence == pytest.approx(float(exact_confidence(name, scores)), rel=1e-12, abs=2e-15)


@pytest.mark.slow
@every_measure
@given(batch=batches)
def test_a_sample_gets_what_it_gets_in_a_batch(name: str, batch: list[list[float]]) -> None:
    one_by_one = [MEASURES[name](scores) for scores in batch]
    for layout in ("C", "F"):
        together = MEASURES[name](np.array(batch, order=layout))
        assert together.dtype == np.float64
        assert together.tolist() == one_by_one


@every_measure
@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_the_layout_in_memory_changes_no_bit(name: str, classes: int) -> None:
    scores = np.random.default_rng(classes).normal(size=(50, classes))  # near enough that every class counts in the sum
    one_by_one = [MEASURES[name](row) for row in scores]
    assert MEASURES[name](scores).tolist() == one_by_one
    assert MEASURES[name](np.asfortranarray(scores)).tolist() == one_by_one


@every_measure
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8"])
def test_takes_every_real_dtype(name: str, dtype: str) -> None:
    scores = [[7, 3, 1], [0, 0, 0], [100, 2, 50]]
    assert MEASURES[name](np.array(scores, dtype=dtype)).tolist() == MEASURES[name](scores).tolist()


@every_measure
def test_strided_and_read_only_scores_are_left_alone(name: str) -> None:
    wide = np.random.default_rng(3).normal(size=(5, 20))
    wide.setflags(write=False)
    before = wide.copy()
    assert MEASURES[name](wide[:, ::2]).tolist() == MEASURES[name](wide[:, ::2].copy()).tolist()
    assert (wide == before).all()


@pytest.mark.parametrize("name", ["max_softmax", "margin", "entropy"])
def test_extreme_scores_are_certain_and_equal_scores_are_not(name: str) -> None:
    measure = MEASURES[name]
    assert measure(np.array([1e4, -1e4, -1e4], dtype=np.float32)) == 1.0
    assert measure([1.7e308, -1.7e308]) == 1.0
    assert measure([-1e4] * 10) == pytest.approx(0.1 if name == "max_softmax" else 0.0, abs=1e-15)


@pytest.mark.parametrize("name", ["max_softmax", "margin", "entropy"])
@given(scores=one_sample, shift=st.integers(-1000, 1000))
def test_only_differences_of_scores_matter(name: str, scores: list[float], shift: int) -> None:
    whole = [float(round(score)) for score in scores]  # so that adding the shift is exact
    assert MEASURES[name]([score + shift for score in whole]) == MEASURES[name](whole)


@given(scores=one_sample, hot=st.floats(1.0, 50.0))
def test_heat_never_raises_confidence(scores: list[float], hot: float) -> None:
    assert temperature(hot)(max_softmax)(scores) <= max_softmax(scores) + 1e-12


def test_temperature_composes_and_pickles() -> None:
    scores = [[4.0, 1.0, 0.5], [0.1, 0.2, 0.3]]
    twice = temperature(2)(temperature(3)(entropy))
    assert twice(scores) == pytest.approx(temperature(6)(entropy)(scores))
    assert pickle.loads(pickle.dumps(twice))(scores).tolist() == twice(scores).tolist()
    assert temperature(1)(margin)(scores).tolist() == margin(scores).tolist()


def test_published_weights_accept_a_clear_winner_only() -> None:
    measure = logistic(*RESNET8_CIFAR10)
    assert RESNET8_CIFAR10 == (-4.634, 5.937, -3.042)
    assert measure([50.0, 0.0]) == pytest.approx(1 / (1 + math.exp(4.634 - 5.937)))
    assert measure([0.0, 0.0]) == pytest.approx(1 / (1 + math.exp(4.634 - (5.937 - 3.042) / 2)))


BAD_SCORES: list[tuple[Any, type[Exception], str]] = [
    ([], ValueError, "scores must have a sample and two classes or more, got shape (0,)"),
    (np.empty((0, 10)), ValueError, "scores must have a sample and two classes or more, got shape (0, 10)"),
    ([1.0], ValueError, "scores must have a sample and two classes or more, got shape (1,)"),
    ([[1.0], [2.0]], ValueError, "scores must have a sample and two classes or more, got shape (2, 1)"),
    (3.0, ValueError, "scores must be 1-D or 2-D (samples x classes), got 0-D"),
    (None, ValueError, "scores must be 1-D or 2-D (samples x classes), got 0-D"),
    ("cat", ValueError, "scores must be 1-D or 2-D (samples x classes), got 0-D"),
    (np.zeros((2, 2, 2)), ValueError, "scores must be 1-D or 2-D (samples x classes), got 3-D"),
    ([0.0, math.nan], ValueError, "scores must be finite, got nan in class 1"),
    ([0.0, 1.0, math.inf], ValueError, "scores must be finite, got inf in class 2"),
    ([-math.inf, 0.0], ValueError, "scores must be finite, got -inf in class 0"),
    ([[0, 1], [2, 3], [math.nan, 0], [math.inf, 0]], ValueError, "scores must be finite, got nan in row 2, class 0"),
    (np.array([[0, np.inf]], dtype=np.float16), ValueError, "scores must be finite, got inf in row 0, class 1"),
    ([1.0, "a"], TypeError, "scores must be numbers, as many in every row, got 'a' in class 1"),
    ([1.0, None], TypeError, "scores must be numbers, as many in every row, got None in class 1"),
    ([[1.0, 2.0], [3.0, "a"]], TypeError, "scores must be numbers, as many in every row, got [3.0, 'a'] in row 1"),
    ([[1.0, 2.0], [3.0]], TypeError, "scores must be numbers, as many in every row, got [3.0] in row 1"),
    ([1.0, [2.0, 3.0]], TypeError, "scores must be numbers, as many in every row, got [2.0, 3.0] in row 1"),
    ([np.zeros((2, 2)), np.zeros((2, 3))], TypeError, "scores must be numbers, as many in every row, got array"),
    ([True, False], TypeError, "scores must be numbers, as many in every row, got True in class 0"),
    ([1j, 2.0], TypeError, "scores must be numbers, as many in every row, got 1j in class 0"),
]


@every_measure
@pytest.mark.parametrize(("scores", "error", "message"), BAD_SCORES)
def test_bad_scores_are_named(name: str, scores: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        MEASURES[name](scores)
    assert str(caught.value).startswith(f"{name}: {message}")


@pytest.mark.parametrize("value", [0, -1.5, math.nan, math.inf])
def test_temperature_must_be_positive(value: float) -> None:
    wanted = "a finite number" if value == math.inf else "> 0"
    with pytest.raises(ValueError, match=rf"^temperature: value must be {wanted}, got {value}$"):
        temperature(value)


def test_temperature_takes_a_measure_not_scores() -> None:
    with pytest.raises(TypeError, match=r"^temperature: measure must be a confidence measure, got \[1\.0, 2\.0\]$"):
        temperature(1.5)([1.0, 2.0])  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("name", ["intercept", "top1", "top2"])
def test_logistic_weights_must_be_finite_numbers(name: str) -> None:
    weights: dict[str, Any] = {"intercept": 0.0, "top1": 1.0, "top2": 0.0}
    with pytest.raises(ValueError, match=f"^logistic: {name} must be a finite number, got nan$"):
        logistic(**{**weights, name: math.nan})
    with pytest.raises(TypeError, match=f"^logistic: {name} must be a number, got 'x'$"):
        logistic(**{**weights, name: "x"})


def negative_log_likelihood(scores: NDArray[np.float64], labels: NDArray[np.int64], value: float) -> float:
    tempered = scores / value
    return float((np.logaddexp.reduce(tempered, axis=1) - tempered[np.arange(len(labels)), labels]).sum())


def drawn_labels(scores: NDArray[np.float64], value: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Labels as likely as softmax(scores / value) says, by adding Gumbel noise."""
    labels: NDArray[np.int64] = (scores / value + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return labels


@pytest.mark.slow
@pytest.mark.parametrize("true_value", [0.3, 1.0, 1.7, 8.0])
def test_fitted_temperature_beats_a_fine_grid_and_recovers_the_truth(true_value: float) -> None:
    rng = np.random.default_rng(11)
    scores = rng.normal(scale=4.0, size=(4000, 10))
    labels = drawn_labels(scores, true_value, rng)
    fitted = fit_temperature(scores, labels)
    grid = np.geomspace(*TEMPERATURE_RANGE, 401)
    best = min(negative_log_likelihood(scores, labels, value) for value in grid)
    assert negative_log_likelihood(scores, labels, fitted) <= best + 1e-9 * best
    assert fitted == pytest.approx(true_value, rel=0.06)


@given(
    batch=st.lists(st.lists(st.floats(-30, 30), min_size=3, max_size=3), min_size=1, max_size=8),
    draws=st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
def test_no_temperature_on_the_grid_is_better(batch: list[list[float]], draws: list[int]) -> None:
    scores, labels = np.array(batch), np.array(draws[: len(batch)])
    assume(not are_probabilities(scores))
    fitted = fit_temperature(scores, labels)
    assert TEMPERATURE_RANGE[0] <= fitted <= TEMPERATURE_RANGE[1]
    best = min(negative_log_likelihood(scores, labels, value) for value in np.geomspace(*TEMPERATURE_RANGE, 301))
    assert negative_log_likelihood(scores, labels, fitted) <= best + 1e-9 * (1 + best)


def test_temperature_stays_in_its_range() -> None:
    coldest, hottest = TEMPERATURE_RANGE
    assert fit_temperature([[1.0, 0.0], [0.0, 1.0]], [0, 1]) == coldest  # always right: the surer the better
    assert fit_temperature([[1.0, 0.0], [0.0, 1.0]], [1, 0]) == hottest  # always wrong: the less sure the better
    assert fit_temperature([[3.0, 3.0], [1.0, 1.0]], [0, 1]) == 1.0  # nothing to tell apart


def test_fitted_temperature_survives_huge_float32_scores() -> None:
    rng = np.random.default_rng(5)
    scores = rng.uniform(-1e4, 1e4, size=(500, 4)).astype(np.float32)
    labels = drawn_labels(scores.astype(np.float64), 50.0, rng)
    assert fit_temperature(scores, labels) == pytest.approx(50.0, rel=0.5)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([0, 1], ValueError, "got shape (2,) for 3 rows"),
        ([0, 1, 2], ValueError, "got 2 in row 2"),
        ([0, -1, 1], ValueError, "got -1 in row 1"),
        ([0.0, 1.0, 1.0], TypeError, "got [0.0, 1.0, 1.0]"),
        (["a", "b", "c"], TypeError, "got ['a', 'b', 'c']"),
        ([[0], [1, 0], [1]], TypeError, "got [[0], [1, 0], [1]]"),
    ],
)
def test_bad_labels_are_named(labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        fit_temperature([[1.0, 0.0]] * 3, labels)
    assert str(caught.value) == f"fit_temperature: labels must be integers from 0 to 1, one per row, {message}"


@pytest.mark.parametrize("fit", [fit_temperature, fit_logistic])
def test_fits_want_rows_of_good_scores(fit: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{fit.__name__}: scores must be 2-D \(samples x classes\), got 1-D$"):
        fit([1.0, 2.0], [0])
    with pytest.raises(ValueError, match=f"^{fit.__name__}: scores must be finite, got nan in row 1, class 0$"):
        fit([[1.0, 2.0], [math.nan, 0.0]], [0, 1])


def ridge_objective(weights: Sequence[float], tops: list[tuple[float, float]], agreed: list[float]) -> float:
    """The formula of the docstring, sample by sample."""
    intercept, top1, top2 = weights
    lines = [intercept + top1 * first + top2 * second for first, second in tops]
    costs = [max(x, 0) + math.log1p(math.exp(-abs(x))) - target * x for x, target in zip(lines, agreed, strict=True)]
    return math.fsum(costs) + RIDGE / 2 * (intercept**2 + top1**2 + top2**2)


def exact_tops(scores: NDArray[np.float64]) -> list[tuple[float, float]]:
    ordered = [exact_softmax(row) for row in scores.tolist()]
    return [(float(p[0]), float(p[1])) for p in ordered]


@pytest.mark.parametrize("kind", ["drawn", "fractions", "parted", "all agreed", "two classes"])
def test_no_weights_nearby_fit_better(kind: str) -> None:
    rng = np.random.default_rng(7)
    scores = rng.normal(scale=2.0, size=(60, 2 if kind == "two classes" else 5))
    tops = exact_tops(scores)
    first = np.array([p for p, _ in tops])
    agreed = {
        "fractions": first,
        "parted": (first > 0.6).astype(float),
        "all agreed": np.ones(60),
    }.get(kind, (rng.random(60) < first).astype(float))
    weights = fit_logistic(scores, agreed)
    found = ridge_objective(weights, tops, agreed.tolist())
    assert all(math.isfinite(weight) for weight in weights)
    for size in (1e-3, 1e-2, 0.1, 1.0, 10.0):
        for direction in rng.normal(size=(20, 3)):
            nearby = (np.array(weights) + size * direction).tolist()
            assert ridge_objective(nearby, tops, agreed.tolist()) > found - 1e-9


def test_fitted_weights_recover_those_that_made_the_data() -> None:
    rng = np.random.default_rng(13)
    scores = rng.normal(scale=2.5, size=(40_000, 10))
    chance = logistic(*RESNET8_CIFAR10)(scores)
    fitted = fit_logistic(scores, rng.random(len(scores)) < chance)
    assert type(fitted) is tuple
    assert fitted == pytest.approx(RESNET8_CIFAR10, abs=0.35)
    assert np.abs(logistic(*fitted)(scores) - chance).max() < 0.03


def test_probabilities_are_fitted_by_their_logarithms() -> None:
    """A device with the temperature takes the logarithms of its model's probabilities, too."""
    rng = np.random.default_rng(19)
    scores = rng.normal(scale=2.0, size=(400, 5))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    labels, agreed = drawn_labels(scores, 1.5, rng), rng.random(400) < probabilities.max(axis=1)
    for outputs, rel in ((probabilities, 1e-6), (probabilities.astype(np.float32), 1e-3)):
        assert fit_temperature(outputs, labels) == pytest.approx(fit_temperature(scores, labels), rel=rel)
        assert fit_logistic(outputs, agreed) == pytest.approx(fit_logistic(scores, agreed), rel=rel)


def test_fits_repeat_bit_for_bit() -> None:
    rng = np.random.default_rng(17)
    scores, labels = rng.normal(size=(200, 4)), rng.integers(0, 4, size=200)
    assert fit_temperature(scores, labels) == fit_temperature(scores.copy(), labels.tolist())
    assert fit_logistic(scores, labels < 2) == fit_logistic(scores.copy(), (labels < 2).tolist())


@pytest.mark.parametrize(
    ("agreed", "error", "message"),
    [
        ([True], ValueError, "got shape (1,) for 2 rows"),
        ([0.5, 1.5], ValueError, "got 1.5 in row 1"),
        ([math.nan, 1.0], ValueError, "got nan in row 0"),
        (["yes", "no"], TypeError, "got ['yes', 'no']"),
    ],
)
def test_bad_agreed_is_named(agreed: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        fit_logistic([[1.0, 0.0], [0.0, 0.5]], agreed)
    assert str(caught.value) == f"fit_logistic: agreed must be numbers from 0 to 1, one per row, {message}"
