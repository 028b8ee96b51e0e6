"""Streams that change: how much of the new setting there is at each time, in all that the settings differ in."""

from collections.abc import Callable

import numpy as np
import pytest

from hinge.simulation.sources import (
    BimodalPrice,
    Change,
    ConstantPrice,
    Drifting,
    Gradual,
    LognormalPrice,
    Periodic,
    Sudden,
    Synthetic,
)
from tests.simulation.laws import SIGMAS, follows, mean_follows, whole

BEFORE = Synthetic([0.1, 0.6, 0.9], ConstantPrice(0.5), [1, 1, 2])
AFTER = Synthetic([0.4, 0.5, 0.2], BimodalPrice(0.1, 0.3), [5, 4, 1])
CHANGES: list[Change] = [Sudden(0.3), Gradual(0.2, 0.7), Periodic(2.0)]
HORIZON = 400_000
every_change = pytest.mark.parametrize("change", CHANGES, ids=str)


def expected_share(change: Change, position: float) -> float:
    """The share of the new setting, by the words of the docstrings."""
    if isinstance(change, Sudden):
        return 1.0 if position >= change.at else 0.0
    if isinstance(change, Gradual):
        return min(1.0, max(0.0, (position - change.start) / (change.end - change.start)))
    assert isinstance(change, Periodic)
    return float(np.sin(np.pi * change.cycles * position) ** 2)


@every_change
def test_shares_are_those_of_the_change(change: Change) -> None:
    positions = np.linspace(0, 1, 1001)
    expected = [expected_share(change, position) for position in positions.tolist()]
    assert change.share(positions) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.medium
@every_change
def test_arrivals_agreement_and_costs_are_mixed_in_that_share(change: Change) -> None:
    samples = whole(Drifting(BEFORE, AFTER, change), HORIZON)
    parts = 20
    for part in range(parts):
        window = slice(part * HORIZON // parts, (part + 1) * HORIZON // parts)
        bins, length = samples.bins[window], HORIZON // parts
        share = np.array([expected_share(change, t / HORIZON) for t in range(window.start, window.stop)])
        weights = BEFORE.weights + share.mean() * (AFTER.weights - BEFORE.weights)
        assert follows(np.bincount(bins, minlength=3).astype(float), np.full(3, float(length)), weights)
        chance = BEFORE.agreement[bins] + share * (AFTER.agreement - BEFORE.agreement)[bins]
        surplus = np.bincount(bins, samples.agreed[window] - chance, 3)
        assert (np.abs(surplus) <= SIGMAS * np.sqrt(np.bincount(bins, chance * (1 - chance), 3)) + 1e-9).all()
        assert mean_follows(samples.costs[window], 0.5 - 0.3 * float(share.mean()))


@pytest.mark.medium
@every_change
def test_gaps_are_those_of_the_moment(change: Change) -> None:
    samples = whole(Drifting(BEFORE, AFTER, change), 50_000)
    share = np.array([expected_share(change, t / 50_000) for t in range(50_000)])
    agreement = BEFORE.agreement[samples.bins] * (1 - share) + AFTER.agreement[samples.bins] * share
    mean_cost = 0.5 * (1 - share) + 0.2 * share
    assert samples.gaps == pytest.approx(1 - agreement - mean_cost, abs=1e-12)


def test_a_sudden_change_is_the_old_setting_and_then_the_new() -> None:
    samples = whole(Drifting(BEFORE, AFTER, Sudden(0.25)), 40_000)
    assert set(samples.costs[:10_000].tolist()) == {0.5}
    assert set(samples.costs[10_000:].tolist()) == {0.1, 0.3}
    assert (samples.gaps[:10_000] == BEFORE.gaps[samples.bins[:10_000]]).all()
    assert samples.gaps[10_000:] == pytest.approx(AFTER.gaps[samples.bins[10_000:]])


@every_change
def test_only_what_differs_drifts(change: Change) -> None:
    costs = ConstantPrice(0.5)
    still = whole(Drifting(BEFORE, BEFORE, change), 40_000)
    agreement = whole(Drifting(BEFORE, Synthetic([0.4, 0.5, 0.2], costs, [1, 1, 2]), change), 40_000)
    price = whole(Drifting(BEFORE, Synthetic([0.1, 0.6, 0.9], LognormalPrice(0.3), [1, 1, 2]), change), 40_000)
    assert still.gaps == pytest.approx(BEFORE.gaps[still.bins])
    assert agreement.bins.tobytes() == price.bins.tobytes() == still.bins.tobytes()
    assert agreement.costs.tobytes() == still.costs.tobytes()
    assert price.agreed.tobytes() == still.agreed.tobytes()
    assert agreement.agreed.tobytes() != still.agreed.tobytes()


def test_the_same_seed_gives_the_same_samples() -> None:
    streams = [whole(Drifting(BEFORE, AFTER, Periodic(3)), 40_000, seed) for seed in (1, 1, 2)]
    columns = [[column.tobytes() for column in samples[:4]] for samples in streams]
    assert columns[0] == columns[1] != columns[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sudden(1.5), "Sudden: at must be from 0 to 1, got 1.5"),
        (lambda: Gradual(-0.1, 0.5), "Gradual: start must be from 0 to 1, got -0.1"),
        (lambda: Gradual(0.5, 0.5), "Gradual: end must be > start 0.5, got 0.5"),
        (lambda: Gradual(0.5, 1.5), "Gradual: end must be from 0 to 1, got 1.5"),
        (lambda: Periodic(0), "Periodic: cycles must be > 0, got 0"),
        (
            lambda: Drifting(BEFORE, Synthetic([0.5], ConstantPrice(0.5)), Sudden()),
            "Drifting: after must have the 3 bins",
        ),
    ],
)
def test_impossible_arguments_are_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("shares", [-0.1, 1.1, float("nan"), None])
def test_a_share_of_ones_own_is_checked(shares: float | None) -> None:
    class Own:
        def share(self, position: np.ndarray) -> np.ndarray:
            return np.zeros(3) if shares is None else np.full(len(position), shares)

    with pytest.raises(ValueError, match=r"Drifting: change.share must give a number from 0 to 1 for each position"):
        whole(Drifting(BEFORE, AFTER, Own()), 10)
