"""The thresholds that are best at some price: against a search over all of them, at many prices."""

import numpy as np
import pytest

from hinge.theory import best_thresholds


def costs(confidence: list[float], agreed: list[float], price: float, thresholds: list[float]) -> list[float]:
    """Of each threshold, one sample after another."""
    pairs = list(zip(confidence, agreed, strict=True))
    return [sum(price if sure < each else 1 - a for sure, a in pairs) for each in thresholds]


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(8))
def test_at_every_price_one_of_them_is_the_best_and_none_is_there_in_vain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = np.round(rng.beta(3, 1, 60), 2 if seed % 2 else 6).tolist()  # with and without equal ones
    chance = rng.random(60) < np.square(confidence)
    agreed = (chance if seed % 4 < 2 else np.round(rng.random(60) * confidence, 3)).astype(float).tolist()
    found = best_thresholds(confidence, agreed)
    assert found == sorted(set(found))
    every, chosen, used = [0.0, *sorted(set(confidence)), 2.0], [0.0, *found, 2.0], set[float]()
    for price in np.linspace(0.0, 1.0, 2001).tolist():
        paid = costs(confidence, agreed, price, chosen)
        assert min(paid) == pytest.approx(min(costs(confidence, agreed, price, every)))
        used |= {each for each, cost in zip(chosen, paid, strict=True) if cost < min(paid) + 0.02}
    assert used >= set(found)


def test_each_parts_the_samples_with_the_fewest_decimals() -> None:
    assert best_thresholds([0.1234, 0.1278, 0.9], [0, 1, 1]) == [0.127]
    assert best_thresholds([0.9996, 1.0], [0, 1]) == [1.0]
    assert best_thresholds([0.5, 0.5000000000000001], [0, 1]) == [0.5000000000000001]
    assert best_thresholds([0.0, 1e-30], [0, 1]) == [1e-30]


def test_where_nothing_rises_there_is_none() -> None:
    assert best_thresholds([0.2, 0.6, 0.9], [1, 1, 0]) == []
    assert best_thresholds([0.7, 0.7], [0, 1]) == []
