"""A hub finds the groups of a fleet, and says why somebody is not believed."""

from math import lgamma
from typing import Any

import numpy as np
import pytest

from hinge.fleet.pooling import Sums, kinship

CURVE = np.linspace(0.1, 0.98, 8)


def devices(name: str, number: int, curve: Any = CURVE, offloads: float = 30.0) -> dict[str, Sums]:
    """Devices that have seen about so many offloads in each bin, of this agreement."""
    random = np.random.default_rng([number, *name.encode()])
    counts = random.poisson(offloads, (number, 8))
    agreed = random.binomial(counts, curve)
    pairs = zip(counts.tolist(), agreed.tolist(), strict=True)
    return {f"{name} {place}": pair for place, pair in enumerate(pairs)}


def huge(number: int) -> dict[str, Sums]:
    return {f"liar {place}": ([1e6] * 8, [1e6] * 8) for place in range(number)}


@pytest.mark.parametrize("liars", [0, 1, 4])
def test_liars_are_a_group_of_their_own_however_much_they_claim(liars: int) -> None:
    honest = devices("camera", 12)
    found = kinship(honest | huge(liars), bins=8)
    assert found.groups == [sorted(honest), *[sorted(huge(liars))][: liars and 1]]
    assert found.doubts.keys() == huge(liars).keys()


def test_two_populations_are_two_groups_and_the_larger_is_the_fleet() -> None:
    many, few = devices("camera", 9), devices("door", 6, 1.0 - CURVE)
    found = kinship(many | few, bins=8)
    assert found.groups == [sorted(many), sorted(few)]
    assert sum(found.pooled.offloads) <= sum(sum(offloads) for offloads, _ in many.values())


def test_who_has_seen_little_belongs_to_the_fleet_and_not_to_a_liar() -> None:
    honest, newcomer = devices("camera", 12), {"newcomer": ([0.0] * 7 + [2.0], [0.0] * 7 + [2.0])}
    found = kinship(honest | huge(1) | newcomer, bins=8)
    assert found.groups == [sorted(honest | newcomer), ["liar 0"]]


def test_a_doubt_is_about_the_bin_with_the_largest_bayes_factor() -> None:
    def log_beta(a: float, b: float) -> float:
        return lgamma(a) + lgamma(b) - lgamma(a + b)

    def factor(n: float, a: float, m: float, b: float) -> float:
        return log_beta(a + 1, n - a + 1) + log_beta(b + 1, m - b + 1) - log_beta(a + b + 1, n + m - a - b + 1)

    door = devices("door", 1, 1.0 - CURVE)
    found = kinship(devices("camera", 12) | door, bins=8)
    doubt, columns = found.doubts["door 0"], zip(*door["door 0"], *found.pooled[:2], strict=True)
    nats = [factor(*column) for column in columns]
    assert doubt is not None
    assert doubt.bin == int(np.argmax(nats))
    assert doubt.nats == pytest.approx(max(nats))


def test_nobody_and_who_has_said_nothing_are_no_group() -> None:
    assert kinship({}, bins=2).groups == []
    found = kinship({"silent": ([0.0, 0.0], [0.0, 0.0])}, bins=2)
    assert (found.groups, found.doubts, found.pooled.offloads) == ([], {}, [0.0, 0.0])
