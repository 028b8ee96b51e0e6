"""The floor of one bin against brute force in fractions, and against what policies regret."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from hinge import HILCB, Probation, Thompson, simulate
from hinge.simulation.sources import ConstantPrice, Synthetic
from hinge.theory import stopping_floor


def brute_force(horizon: int, cost: Fraction) -> Fraction:
    """The recursion of the docstring, state by state."""

    @cache
    def value(n: int, a: int) -> Fraction:
        if n == horizon:
            return Fraction(0)
        agrees = Fraction(a + 1, n + 2)
        offload = cost + agrees * value(n + 1, a + 1) + (1 - agrees) * value(n + 1, a)
        return min((horizon - n) * (1 - agrees), offload)

    return value(0, 0) - horizon * (cost - cost * cost / 2)


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 20, 60])
@pytest.mark.parametrize("cost", [Fraction(1, 50), Fraction(1, 5), Fraction(1, 2), Fraction(2, 3), Fraction(49, 50)])
def test_it_is_the_brute_force_recursion(horizon: int, cost: Fraction) -> None:
    assert stopping_floor(horizon, float(cost)) == pytest.approx(float(brute_force(horizon, cost)), abs=1e-12)


@pytest.mark.parametrize("cost", [0.1, 0.5, 0.9])
def test_states_taken_as_settled_do_not_move_it(cost: float) -> None:
    """At this horizon the band leaves most states out."""
    horizon = 1500
    saved = np.zeros(horizon + 1)
    for n in range(horizon - 1, -1, -1):
        agrees = np.arange(1, n + 2) / (n + 2)
        offload = agrees * saved[1 : n + 2] + (1 - agrees) * saved[: n + 1]
        saved = np.maximum(offload, (horizon - n) * (agrees - (1 - cost)))
    assert stopping_floor(horizon, cost) == pytest.approx(horizon * cost * cost / 2 - saved[0], abs=1e-9)


@pytest.mark.parametrize("cost", [0.05, 0.3, 0.8])
def test_it_grows_with_the_horizon(cost: float) -> None:
    floors = [stopping_floor(horizon, cost) for horizon in (1, 2, 5, 10, 100, 101, 1000, 4000)]
    assert floors == sorted(floors)
    assert floors[0] < floors[-1]


def test_it_grows_slower_than_the_horizon() -> None:
    assert stopping_floor(4000, 0.5) < 2 * stopping_floor(1000, 0.5)


@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_where_one_decision_is_never_wrong_nothing_is_regretted(cost: float) -> None:
    assert stopping_floor(100, cost) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("policy", [HILCB, Probation, Thompson])
@pytest.mark.parametrize("cost", [0.2, 0.5])
def test_no_policy_is_below_it(policy: type[HILCB] | type[Probation] | type[Thompson], cost: float) -> None:
    regrets = []
    for draw in range(500):
        source = Synthetic([(draw + 0.5) / 500], ConstantPrice(cost))
        results = simulate([policy(1, offload_cost=cost)], source, 2000, 1, seed=draw)
        regrets.append(results[policy.name].regret[0, -1])
    assert np.mean(regrets) > stopping_floor(2000, cost)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="stopping_floor: horizon"):
        stopping_floor(0, 0.5)
    with pytest.raises(ValueError, match="stopping_floor: offload_cost"):
        stopping_floor(10, 1.5)
