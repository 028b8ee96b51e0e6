"""Samples made to order: arrivals by chance and by schedule, agreement, and what is refused."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge.simulation.sources import (
    CHUNK,
    BimodalPrice,
    ConstantPrice,
    LognormalPrice,
    Scheduled,
    Source,
    Synthetic,
    draw_bins,
)
from tests.simulation.laws import agreement_follows, arrivals_follow, mean_follows, whole

AGREEMENT = np.array([0.05, 0.3, 0.5, 0.8, 1.0])
WEIGHTS = np.array([3.0, 0.0, 1.0, 4.0, 2.0])
COSTS = ConstantPrice(0.4)
MAKERS: dict[str, Callable[[], Synthetic]] = {
    "synthetic": lambda: Synthetic(AGREEMENT, BimodalPrice(), WEIGHTS),
    "scheduled": lambda: Scheduled(AGREEMENT, BimodalPrice(), WEIGHTS, order=[4, 0, 1, 3, 2]),
    "blocks": lambda: Scheduled(AGREEMENT, BimodalPrice(), WEIGHTS, order=range(5), period=250),
}
every_source = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@pytest.mark.slow
@every_source
def test_agreement_costs_and_gaps_follow_the_setting(make: Callable[[], Synthetic]) -> None:
    source = make()
    samples = whole(source, 200_000)
    assert len(samples.bins) == 200_000
    assert agreement_follows(samples, AGREEMENT)
    assert mean_follows(samples.costs, 0.5)
    assert samples.gaps == pytest.approx(1 - AGREEMENT[samples.bins] - 0.5)
    assert set(samples.agreed.tolist()) <= {0.0, 1.0}


def test_bins_arrive_by_weight_and_independently() -> None:
    samples = whole(Synthetic(AGREEMENT, COSTS, WEIGHTS), 300_000)
    assert arrivals_follow(samples, WEIGHTS / 10)
    assert 1 not in samples.bins
    pairs = np.bincount(samples.bins[1:] * 5 + samples.bins[:-1], minlength=25) / 299_999
    assert pairs == pytest.approx(np.outer(WEIGHTS, WEIGHTS).ravel() / 100, abs=0.005)


def test_without_weights_all_bins_come_alike() -> None:
    assert arrivals_follow(whole(Synthetic(AGREEMENT, COSTS), 200_000), np.full(5, 0.2))


def test_agreement_does_not_depend_on_the_sample_before() -> None:
    agreed = whole(Synthetic([0.5], COSTS), 200_000).agreed
    assert abs(np.corrcoef(agreed[1:], agreed[:-1])[0, 1]) < 5 / np.sqrt(200_000)


# -- schedules --------------------------------------------------------------------------------------------------------


def runs_of(bins: list[int]) -> list[tuple[int, int]]:
    """Which bins follow one another, and for how long."""
    changes = [0, *(np.flatnonzero(np.diff(bins)) + 1).tolist(), len(bins)]
    return [(bins[start], end - start) for start, end in pairwise(changes)]


@pytest.mark.parametrize("horizon", [10, 1000, 100_000])
def test_a_schedule_sends_each_bin_for_its_share(horizon: int) -> None:
    shares = [(3, 4), (0, 3), (2, 1), (4, 2)]
    source = Scheduled(AGREEMENT, COSTS, WEIGHTS, order=[3, 0, 1, 2, 4])
    assert runs_of(whole(source, horizon).bins.tolist()) == [(bin, tenths * horizon // 10) for bin, tenths in shares]


def test_periods_go_round_and_round() -> None:
    bins = whole(Scheduled(AGREEMENT, COSTS, order=range(5), period=150), 40_000).bins.tolist()
    assert bins == [bin for _ in range(267) for bin in range(5) for _ in range(30)][:40_000]
    weighted = whole(Scheduled(AGREEMENT, COSTS, WEIGHTS, order=range(5), period=100), 300).bins.tolist()
    assert runs_of(weighted) == [(0, 30), (2, 10), (3, 40), (4, 20)] * 3


@settings(max_examples=60)
@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda weights: sum(weights) > 0.01),
    horizon=st.integers(1, 40_000),
    turn=st.randoms(use_true_random=False),
)
def test_a_schedule_is_off_by_at_most_one_sample(weights: list[float], horizon: int, turn: Any) -> None:
    order = list(range(len(weights)))
    turn.shuffle(order)
    source = Scheduled(np.linspace(0, 1, len(weights)), COSTS, weights, order=order)
    bins = whole(source, horizon).bins
    assert len(bins) == horizon
    places = np.argsort(order)[bins]
    assert (np.diff(places) >= 0).all()  # each bin once, in the order given
    counts = np.bincount(bins, minlength=len(weights))
    assert (np.abs(counts - np.array(weights) / sum(weights) * horizon) <= 1 + 1e-6).all()


# -- drawing ----------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1)), min_size=1, max_size=40).filter(any),
    uniforms=st.lists(st.floats(0, 1, exclude_max=True), max_size=50),
)
def test_the_guide_table_finds_the_bin_that_a_search_finds(weights: list[float], uniforms: list[float]) -> None:
    shares = np.array(weights) / sum(weights)
    edges = np.cumsum(shares)
    edges[-1] = 1.0
    at_edges = [edge for edge in edges.tolist() if edge < 1] + [cell / 4096 for cell in (0, 1, 2047, 4095)]
    numbers = np.array(uniforms + at_edges)
    expected = [next(bin for bin, edge in enumerate(edges.tolist()) if number < edge) for number in numbers.tolist()]
    assert draw_bins(shares, numbers).tolist() == expected


# -- one seed, independent streams of chance --------------------------------------------------------------------------


@every_source
def test_the_same_seed_gives_the_same_samples(make: Callable[[], Synthetic]) -> None:
    one, again, other = whole(make(), 40_000, 5), whole(make(), 40_000, 5), whole(make(), 40_000, 6)
    assert [column.tobytes() for column in one[:4]] == [column.tobytes() for column in again[:4]]
    assert one.agreed.tobytes() != other.agreed.tobytes()
    assert one.costs.tobytes() != other.costs.tobytes()


def test_changing_one_law_leaves_the_draws_of_the_others() -> None:
    base = whole(Synthetic(AGREEMENT, COSTS, WEIGHTS), 40_000)
    dearer = whole(Synthetic(AGREEMENT, LognormalPrice(0.3), WEIGHTS), 40_000)
    assert base.bins.tobytes() == dearer.bins.tobytes()
    assert base.agreed.tobytes() == dearer.agreed.tobytes()
    chancier = whole(Synthetic(AGREEMENT / 2, BimodalPrice(), WEIGHTS), 40_000)
    assert base.bins.tobytes() == chancier.bins.tobytes()
    rearranged = whole(Synthetic(AGREEMENT / 2, BimodalPrice(), WEIGHTS[::-1]), 40_000)
    assert chancier.costs.tobytes() == rearranged.costs.tobytes()
    assert not (chancier.agreed > base.agreed).any()  # the same draws against lower chances


def test_arrivals_agreement_and_costs_are_independent() -> None:
    samples = whole(Synthetic([0.5, 0.5], BimodalPrice()), 200_000)
    table = np.corrcoef(np.vstack([samples.bins, samples.agreed, samples.costs]))
    assert np.abs(table[np.triu_indices(3, 1)]).max() < 5 / np.sqrt(200_000)


@pytest.mark.parametrize("horizon", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
@every_source
def test_a_stream_has_as_many_samples_as_the_horizon(make: Callable[[], Source], horizon: int) -> None:
    lengths = [len(chunk.bins) for chunk in make().stream(1, horizon)]
    assert sum(lengths) == horizon
    assert max(lengths) <= CHUNK
    for chunk in make().stream(1, horizon):
        assert {len(column) for column in chunk[:4]} == {len(chunk.bins)}


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Synthetic([], COSTS), "Synthetic: agreement must be a number for each bin"),
        (lambda: Synthetic([[0.1, 0.2]], COSTS), "Synthetic: agreement must be a number for each bin"),
        (lambda: Synthetic([0.1, 1.2], COSTS), r"Synthetic: agreement\[1\] must be from 0 to 1, got 1.2"),
        (lambda: Synthetic([0.1, np.nan], COSTS), r"Synthetic: agreement\[1\] must be from 0 to 1, got nan"),
        (lambda: Synthetic([0.1, 0.2], COSTS, [1, -1]), r"Synthetic: weights\[1\] must be >= 0, got -1"),
        (lambda: Synthetic([0.1, 0.2], COSTS, [1, np.inf]), r"Synthetic: weights\[1\] must be >= 0, got inf"),
        (lambda: Synthetic([0.1, 0.2], COSTS, [1, 2, 3]), "Synthetic: weights must be 2 numbers"),
        (lambda: Synthetic([0.1, 0.2], COSTS, [0, 0]), "Synthetic: weights must be 2 numbers, not all 0"),
        (lambda: Scheduled([0.1, 0.2], COSTS, order=[0, 0]), "Scheduled: order must hold each of 2 bins once"),
        (lambda: Scheduled([0.1, 0.2], COSTS, order=[0, 1], period=0), "Scheduled: period must be an integer >= 1"),
    ],
)
def test_impossible_arguments_are_refused_by_name(make: Callable[[], Synthetic], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_agreement_that_is_no_list_of_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match="Synthetic: agreement must be a number for each bin, got 'high'"):
        Synthetic("high", COSTS)
