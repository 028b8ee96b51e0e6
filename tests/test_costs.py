"""Costs: every map against its formula in exact fractions, there and back, and every bad price named."""

import math
import pickle
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.costs import (
    SURE,
    CostMatrix,
    FixedCost,
    Forecast,
    ForecastCost,
    MeasuredCost,
    OffloadPrice,
    WrongCost,
    shifted_cost,
)

amounts = st.floats(0, 1e6)
MEASURES = ("latency_ms", "size_bytes")
PRICES = ("per_call", "per_ms", "per_byte")


@st.composite
def price_matrices(draw: st.DrawFn) -> list[list[float]]:
    classes = draw(st.integers(2, 6))
    prices = draw(st.lists(st.lists(amounts, min_size=classes, max_size=classes), min_size=classes, max_size=classes))
    for k in range(classes):
        prices[k][k] = 0.0
    prices[0][1] = draw(st.floats(1e-3, 1e6))
    return prices


@given(prices=price_matrices())
def test_matrix_is_scaled_by_its_dearest_mistake(prices: list[list[float]]) -> None:
    matrix: WrongCost = CostMatrix(prices)
    worst = max(price for row in prices for price in row)
    for local, row in enumerate(prices):
        for remote, price in enumerate(row):
            wrong = matrix.wrong(local, remote)
            assert 0 <= wrong <= 1
            assert wrong == pytest.approx(float(Fraction(price) / Fraction(worst)), rel=1e-15, abs=1e-300)
            assert matrix.agreed(local, remote) == 1 - wrong
    assert CostMatrix(prices).worst == worst
    assert max(matrix.wrong(i, j) for i in range(len(prices)) for j in range(len(prices))) == 1.0


def test_matrix_of_ones_is_zero_one() -> None:
    matrix = CostMatrix([[0, 7, 7], [7, 0, 7], [7, 7, 0]])
    for local in range(3):
        for remote in range(3):
            assert matrix.wrong(local, remote) == float(local != remote)


def test_rows_are_local_and_columns_remote() -> None:
    matrix = CostMatrix(np.array([[0, 40], [2, 0]]), labels=["quiet", "fire"])  # type: ignore[arg-type]  # wider than its type
    assert matrix.wrong("quiet", "fire") == 1.0
    assert matrix.wrong("fire", "quiet") == 0.05
    assert matrix.wrong("fire", "fire") == 0.0
    assert matrix == CostMatrix([[0, 40], [2, 0]], ["quiet", "fire"])
    assert matrix != CostMatrix([[0, 40], [2, 0]])
    assert repr(matrix) == "CostMatrix(prices=((0.0, 40.0), (2.0, 0.0)), labels=('quiet', 'fire'))"
    assert CostMatrix([[0, 40], [2, 0]]).wrong(np.int32(0), np.uint8(1)) == 1.0


@pytest.mark.parametrize(
    ("prices", "error", "message"),
    [
        ([], ValueError, "prices must not be empty, got []"),
        ([[0, 1]], ValueError, "prices must be square, got 2 prices in row 0 of 1"),
        ([[0, 1], [1]], ValueError, "prices must be square, got 1 prices in row 1 of 2"),
        ([[0, 1], [-1, 0]], ValueError, "prices[1][0] must be >= 0, got -1"),
        ([[0, math.nan], [1, 0]], ValueError, "prices[0][1] must be >= 0, got nan"),
        ([[0, math.inf], [1, 0]], ValueError, "prices[0][1] must be >= 0, got inf"),
        ([[0, "1"], [1, 0]], TypeError, "prices[0][1] must be a number, got '1'"),
        ([[0, 1], [1, 3]], ValueError, "prices[1][1] must be 0, as the right answer is free, got 3.0"),
        ([[0, 0], [0, 0]], ValueError, "prices must hold at least one price > 0, got only 0"),
        ([1, 2], TypeError, "prices must be a list of rows, got [1, 2]"),
        ("ab", TypeError, "prices must be a list of rows, got 'ab'"),
        (None, TypeError, "prices must be a list of rows, got None"),
    ],
)
def test_bad_prices_are_named(prices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        CostMatrix(prices)
    assert str(caught.value) == f"CostMatrix: {message}"


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (["a"], ValueError, "labels must be 2 different names, got ['a']"),
        (["a", "a"], ValueError, "labels must be 2 different names, got ['a', 'a']"),
        (["a", 2], TypeError, "labels must be a list of names, got ['a', 2]"),
        ("ab", TypeError, "labels must be a list of names, got 'ab'"),
    ],
)
def test_bad_labels_are_named(labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        CostMatrix([[0, 1], [1, 0]], labels=labels)
    assert str(caught.value) == f"CostMatrix: {message}"


@pytest.mark.parametrize(
    ("labels", "answer", "error", "message"),
    [
        (None, 2, ValueError, "must be an integer from 0 to 1, got 2"),
        (None, -1, ValueError, "must be an integer from 0 to 1, got -1"),
        (None, "a", TypeError, "must be an integer from 0 to 1, got 'a'"),
        (None, 0.0, TypeError, "must be an integer from 0 to 1, got 0.0"),
        (["a", "b"], "c", ValueError, "must be one of the labels, got 'c'"),
        (["a", "b"], 0, TypeError, "must be one of the labels, got 0"),
    ],
)
def test_unknown_answers_are_named(labels: Any, answer: Any, error: type[Exception], message: str) -> None:
    matrix = CostMatrix([[0, 1], [1, 0]], labels=labels)
    good = "a" if labels else 0
    with pytest.raises(error) as caught:
        matrix.wrong(answer, good)
    assert str(caught.value) == f"CostMatrix: local {message}"
    with pytest.raises(error) as caught:
        matrix.agreed(good, answer)
    assert str(caught.value) == f"CostMatrix: remote {message}"


def test_fixed_cost_stays_the_same() -> None:
    cost: OffloadPrice = FixedCost(0.5)
    assert cost.cost() == cost.cost(latency_ms=84, size_bytes=12_000) == 0.5
    assert FixedCost(1) == FixedCost(1.0)
    assert repr(FixedCost(0)) == "FixedCost(offload_cost=0.0)"


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_fixed_cost_is_from_0_to_1(value: float) -> None:
    with pytest.raises(ValueError, match=f"^FixedCost: offload_cost must be from 0 to 1, got {value}$"):
        FixedCost(value)


settings: dict[str, Any] = {
    "wrong_answer": st.floats(1e-3, 1e6),
    **dict.fromkeys(PRICES, amounts),
    "cap": st.floats(0.01, 1),
}
price_lists = (
    st.fixed_dictionaries(settings)
    .filter(lambda given: any(given[price] for price in PRICES))
    .map(lambda given: MeasuredCost(**given))
)
measured = st.fixed_dictionaries(dict.fromkeys(MEASURES, amounts))


@given(prices=price_lists, measures=measured)
def test_measured_cost_is_the_formula(prices: MeasuredCost, measures: dict[str, float]) -> None:
    exact = Fraction(prices.per_call) + sum(
        Fraction(getattr(prices, price)) * Fraction(measures[measure])
        for price, measure in zip(PRICES[1:], MEASURES, strict=True)
    )
    assert prices.amount(**measures) == pytest.approx(float(exact), rel=1e-14)
    assert prices.cost(**measures) == pytest.approx(
        float(min(Fraction(prices.cap), exact / Fraction(prices.wrong_answer))), rel=1e-14
    )
    assert 0 <= prices.cost(**measures) <= prices.cap


def test_beyond_the_cap_every_amount_costs_the_cap() -> None:
    price = MeasuredCost(wrong_answer=200, per_ms=1, cap=0.9, unit="ms")
    assert price.cost(latency_ms=5000) == price.cost(latency_ms=180) == 0.9
    assert price.cost(latency_ms=179) < 0.9


@pytest.mark.parametrize(
    ("unit", "price", "measure"),
    [("ms", "per_ms", "latency_ms"), ("bytes", "per_byte", "size_bytes")],
)
def test_any_measure_can_be_the_unit(unit: str, price: str, measure: str) -> None:
    prices: dict[str, Any] = {price: 1, "unit": unit}
    cost = MeasuredCost(wrong_answer=250, **prices)
    assert cost.amount(**{measure: 50}) == 50
    assert cost.cost(**{measure: 50}) == 0.2
    assert cost.explain(**{measure: 50}) == f"50 {unit} for 50 {unit} = 50 {unit}, 0.2 of a wrong answer"


EURO = MeasuredCost(wrong_answer=0.20, per_ms=0.001, per_byte=1e-7)


@pytest.mark.parametrize(
    ("measures", "sentence"),
    [
        (
            {"latency_ms": 84, "size_bytes": 12_000},
            "0.084 € for 84 ms + 0.0012 € for 12,000 bytes = 0.0852 €, 0.426 of a wrong answer",
        ),
        ({}, "nothing = 0 €, 0 of a wrong answer"),
        ({"latency_ms": 400}, "0.4 € for 400 ms = 0.4 €, 2 of a wrong answer, capped at 1"),
        ({"size_bytes": 512}, "5.12e-05 € for 512 bytes = 5.12e-05 €, 0.000256 of a wrong answer"),
    ],
)
def test_explanations_add_up(measures: dict[str, float], sentence: str) -> None:
    assert EURO.explain(**measures) == sentence


def test_the_call_itself_is_explained() -> None:
    call = MeasuredCost(wrong_answer=1, per_call=0.25, per_ms=0.5, unit="$")
    assert call.explain() == "0.25 $ for the call = 0.25 $, 0.25 of a wrong answer"
    assert call.explain(latency_ms=1) == "0.25 $ for the call + 0.5 $ for 1 ms = 0.75 $, 0.75 of a wrong answer"
    huge = MeasuredCost(wrong_answer=1, per_ms=1e300)
    assert huge.cost(latency_ms=1e300) == 1.0
    assert huge.explain(latency_ms=1e300) == "inf € for 1e+300 ms = inf €, inf of a wrong answer, capped at 1"


@given(prices=price_lists, measures=measured)
def test_an_explanation_names_every_price_paid(prices: MeasuredCost, measures: dict[str, float]) -> None:
    sentence = prices.explain(**measures)
    paid = [prices.per_call] + [
        getattr(prices, price) * measures[measure] for price, measure in zip(PRICES[1:], MEASURES, strict=True)
    ]
    assert sentence.count(" for ") == sum(amount > 0 for amount in paid)
    assert ("capped" in sentence) == (prices.amount(**measures) / prices.wrong_answer > prices.cap)


@pytest.mark.parametrize("cost", [FixedCost(0.5), EURO], ids=lambda cost: type(cost).__name__)
@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_bad_measures_are_named(cost: FixedCost | MeasuredCost, name: str, value: float) -> None:
    owner = type(cost).__name__
    asked = [cost.cost] if isinstance(cost, FixedCost) else [cost.cost, cost.amount, cost.explain]
    for ask in asked:
        with pytest.raises(ValueError, match=f"^{owner}: {name} must be >= 0, got {value}$"):
            ask(**{name: value})
        with pytest.raises(TypeError, match=f"^{owner}: {name} must be a number, got '84'$"):
            ask(**{name: "84"})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("name", PRICES)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_bad_price_lists_are_named(name: str, value: float) -> None:
    prices: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"^MeasuredCost: {name} must be >= 0, got {value}$"):
        MeasuredCost(wrong_answer=1, **prices)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_wrong_answer_and_the_cap_cost_something(value: float) -> None:
    wanted = "a finite number" if value == math.inf else "> 0"
    with pytest.raises(ValueError, match=f"^MeasuredCost: wrong_answer must be {wanted}, got {value}$"):
        MeasuredCost(wrong_answer=value)
    with pytest.raises(ValueError, match=f"^MeasuredCost: cap must be {wanted}, got {value}$"):
        MeasuredCost(wrong_answer=1, cap=value)


def test_the_cap_is_at_most_one_and_the_unit_a_text() -> None:
    with pytest.raises(ValueError, match=r"^MeasuredCost: cap must be from 0 to 1, got 1\.5$"):
        MeasuredCost(wrong_answer=1, cap=1.5)
    with pytest.raises(TypeError, match=r"^MeasuredCost: unit must be a text, got 3$"):
        MeasuredCost(wrong_answer=1, unit=3)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("cost", [FixedCost(0.3), EURO, CostMatrix([[0, 1], [2, 0]])])
def test_costs_are_values(cost: object) -> None:
    assert pickle.loads(pickle.dumps(cost)) == cost
    assert hash(pickle.loads(pickle.dumps(cost))) == hash(cost)


def test_a_forecast_prices_recent_latency_and_the_bytes_of_the_sample() -> None:
    price = MeasuredCost(wrong_answer=1000, per_call=10, per_ms=1, per_byte=0.5, unit="ms")
    ahead: Forecast = ForecastCost(price, weight=0.25)
    sample = np.zeros((5, 4), np.float32)
    assert ahead.forecast(sample) is None
    latency_ms = 0.0
    for k, measured in enumerate((40.0, 80.0, 20.0)):
        assert ahead.cost(latency_ms=measured, size_bytes=200) == price.cost(latency_ms=measured, size_bytes=200)
        latency_ms = measured if k == 0 else 0.75 * latency_ms + 0.25 * measured
        assert ahead.forecast(sample) == pytest.approx((10 + latency_ms + 0.5 * 80) / 1000)
    assert ForecastCost(price, size=len).forecast("four") is None
    with pytest.raises(ValueError, match="ForecastCost: weight"):
        ForecastCost(price, weight=1.5)


def joint(chance: np.random.Generator, bins: int, advantage: float) -> np.ndarray[Any, Any]:
    """P(bin, truth, local, remote) over three classes, with the same advantage in all bins and all else at random."""
    table = np.zeros((bins, 3, 3, 3))
    for bin in range(bins):
        agreement, agreed_right = chance.random(2)
        neither = chance.random() * (1.0 - abs(advantage))
        remote_right = (1.0 - neither + advantage) / 2
        for truth in range(3):
            wrong, other = (k for k in range(3) if k != truth)
            table[bin, truth, truth, truth] = agreement * agreed_right
            table[bin, truth, wrong, wrong] = agreement * (1.0 - agreed_right)
            table[bin, truth, wrong, truth] = (1.0 - agreement) * remote_right
            table[bin, truth, truth, wrong] = (1.0 - agreement) * (1.0 - neither - remote_right)
            table[bin, truth, wrong, other] = (1.0 - agreement) * neither
    return np.asarray(table / 3 * chance.dirichlet(np.ones(bins))[:, None, None, None])


def true_cost(table: np.ndarray[Any, Any], offload_cost: float, offload: tuple[bool, ...]) -> float:
    """The expected cost by the truth, summed over every outcome."""
    cost = 0.0
    for (bin, truth, local, remote), chance in np.ndenumerate(table):
        cost += chance * ((offload_cost + (remote != truth)) if offload[bin] else float(local != truth))
    return cost


@pytest.mark.parametrize("seed", range(12))
def test_the_shifted_cost_makes_the_best_of_all_rules(seed: int) -> None:
    chance = np.random.default_rng(seed)
    advantage, offload_cost = chance.uniform(-0.3, 1), chance.uniform(0.02, 0.9)
    table = joint(chance, 5, advantage)
    disagree = 1 - np.eye(3)
    shares = (table * disagree).sum(axis=(1, 2, 3)) / table.sum(axis=(1, 2, 3))
    remote_right = sum(table[:, k, :, k].sum() for k in range(3))
    local_right = sum(table[:, k, k, :].sum() for k in range(3))
    labels = 1e9  # so many that the prior is forgotten
    shifted = shifted_cost(offload_cost, labels * (table * disagree).sum(), labels * (remote_right - local_right))
    assert shifted == pytest.approx(offload_cost / advantage if advantage > offload_cost else 1.0, rel=1e-6)
    least = min(true_cost(table, offload_cost, rule) for rule in product((False, True), repeat=5))
    assert true_cost(table, offload_cost, tuple(shares > shifted)) == pytest.approx(least, abs=1e-9)


def test_where_mistakes_cost_the_same_the_shifted_cost_never_undercuts_the_cost_and_starts_from_it() -> None:
    for cost in (0.0, 0.01, 0.5, 1.0):
        assert shifted_cost(cost) == cost
        assert all(shifted_cost(cost, 30, gain) >= cost for gain in range(-30, 31))
    assert shifted_cost(0.3, 1, -1) < 0.4  # one label moves it little
    assert shifted_cost(0.0, 100, -50) == 1.0  # not even for nothing


def test_with_prices_of_mistakes_the_remote_may_be_worth_more_than_a_disagreement() -> None:
    prices = CostMatrix([[0, 1, 10], [1, 0, 1], [1, 1, 0]])
    local, remote, true = 0, 1, 2
    disagreement, gain = prices.wrong(local, remote), prices.wrong(local, true) - prices.wrong(remote, true)
    assert (disagreement, gain) == pytest.approx((0.1, 0.9))
    assert shifted_cost(0.3, 100 * disagreement, 100 * gain) == pytest.approx(0.3 * 20 / 100)


def test_the_estimate_is_the_mean_of_the_posterior() -> None:
    chance = np.random.default_rng(5)
    remote, local, neither = 12, 5, 3
    drawn = chance.dirichlet([SURE + remote, local, neither], 200_000)  # remote right, local right, neither
    advantage = float((drawn[:, 0] - drawn[:, 1]).mean())
    assert shifted_cost(0.2, remote + local + neither, remote - local) == pytest.approx(0.2 / advantage, rel=5e-3)
