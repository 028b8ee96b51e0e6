"""Offload costs: their draws, and the mean that each of them states."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from hinge.simulation.sources import BimodalPrice, ConstantPrice, LognormalPrice, PriceProcess, RecordedPrice, Synthetic
from tests.simulation.laws import SIGMAS, mean_follows

DRAWS = 400_000
LOGNORMAL = [
    LognormalPrice(0.4),
    LognormalPrice(0.4, 0.5, cap=0.45),
    LognormalPrice(0.05, 1.5),
    LognormalPrice(0.9, 0.1),
    LognormalPrice(2.0, 0.5),
    LognormalPrice(0.5, 3.0, cap=0.8),
    LognormalPrice(0.3, 0.01, cap=0.2),
    LognormalPrice(0.3, 0.5, cap=0.0),
]


def drawn(costs: PriceProcess, count: int = DRAWS) -> np.ndarray:
    return costs.draw(np.random.default_rng(3), count, None)


@pytest.mark.parametrize("costs", [ConstantPrice(0.3), BimodalPrice(), BimodalPrice(0.0, 1.0), *LOGNORMAL], ids=str)
def test_costs_lie_in_range_and_have_the_mean_they_state(costs: PriceProcess) -> None:
    values = drawn(costs)
    assert len(values) == DRAWS
    assert values.dtype == np.float64
    assert ((values >= 0) & (values <= 1)).all()
    assert mean_follows(values, costs.mean)


@pytest.mark.parametrize("costs", LOGNORMAL, ids=str)
def test_the_lognormal_mean_is_the_integral(costs: LognormalPrice) -> None:
    # E min(cap, m exp(s Z)) by the midpoint rule over z from -12 to 12.
    step = 1e-4
    z = np.arange(-12, 12, step) + step / 2
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    priced = np.minimum(costs.cap, costs.median * np.exp(costs.spread * z))
    assert costs.mean == pytest.approx(float((priced * density).sum() * step), abs=1e-8)


def test_lognormal_costs_have_the_median_spread_and_cap_they_state() -> None:
    costs = LognormalPrice(median=0.3, spread=0.4, cap=0.6)
    values = drawn(costs)
    assert abs((values < 0.3).mean() - 0.5) < SIGMAS * 0.5 / math.sqrt(DRAWS)
    assert np.isclose((values == 0.6).mean(), 0.5 * math.erfc(math.log(2) / 0.4 / math.sqrt(2)), atol=0.002)
    below = np.log(values[values < 0.3] / 0.3) / 0.4
    assert mean_follows(below, -math.sqrt(2 / math.pi))  # half a standard normal


def test_fixed_costs_never_vary() -> None:
    assert set(drawn(ConstantPrice(0.3), 100).tolist()) == {0.3}


def test_bimodal_costs_take_two_values_equally_often() -> None:
    values = drawn(BimodalPrice(0.2, 0.7))
    assert set(values.tolist()) == {0.2, 0.7}
    assert abs((values == 0.2).sum() - DRAWS / 2) < SIGMAS * math.sqrt(DRAWS) / 2


def test_recorded_costs_are_those_of_their_rows() -> None:
    costs = RecordedPrice(np.array([0.1, 0.2, 0.6]))
    rows = np.array([2, 0, 0, 1])
    assert costs.draw(np.random.default_rng(0), 4, rows).tolist() == [0.6, 0.1, 0.1, 0.2]
    assert costs.mean == pytest.approx(0.3)


def test_recorded_costs_need_a_trace() -> None:
    with pytest.raises(TypeError, match="RecordedPrice: needs samples that come from a trace"):
        next(Synthetic([0.2, 0.9], RecordedPrice(np.array([0.5]))).stream(1, 10))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantPrice(2), "ConstantPrice: cost must be from 0 to 1, got 2"),
        (lambda: ConstantPrice(math.nan), "ConstantPrice: cost must be from 0 to 1, got nan"),
        (lambda: BimodalPrice(-0.1, 0.5), "BimodalPrice: low must be from 0 to 1, got -0.1"),
        (lambda: BimodalPrice(0.6, 0.5), "BimodalPrice: high must be from 0.6 to 1, got 0.5"),
        (lambda: BimodalPrice(0.6, 1.5), "BimodalPrice: high must be from 0.6 to 1, got 1.5"),
        (lambda: LognormalPrice(0), "LognormalPrice: median must be > 0, got 0"),
        (lambda: LognormalPrice(0.5, -1), "LognormalPrice: spread must be > 0, got -1"),
        (lambda: LognormalPrice(0.5, 0.5, 1.1), "LognormalPrice: cap must be from 0 to 1, got 1.1"),
        (lambda: RecordedPrice(np.array([0.5, 1.5])), "RecordedPrice: recorded"),
        (lambda: RecordedPrice(np.array([])), "RecordedPrice: recorded"),
    ],
)
def test_impossible_costs_are_refused_by_name(make: Callable[[], PriceProcess], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_cost_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="ConstantPrice: cost must be a number, got 'cheap'"):
        ConstantPrice("cheap")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("spread", [8.0, 12.0, 30.0])
def test_a_wide_spread_has_a_mean(spread: float) -> None:
    assert mean_follows(drawn(LognormalPrice(0.5, spread)), LognormalPrice(0.5, spread).mean)
