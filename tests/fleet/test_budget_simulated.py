"""One budget for a simulated fleet: it holds at every time in every network, and saves what budgets for each do not."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.regrets.budgeted_fleet import EVERY, BudgetedFleet, BudgetLie, simulate_fleet_budget
from hinge.policies.shared_budget import START
from hinge.simulation.sources import ConstantPrice, Synthetic

SHARE, COST, HORIZON = 0.05, 0.1, 3000
HARD, EASY = (Synthetic([wrong, 0.99], ConstantPrice(COST)) for wrong in (0.3, 0.95))
SOURCES = [HARD, HARD, EASY, EASY, EASY, EASY]
Wholes = NDArray[np.int64]


def third_away(times: Wholes) -> Wholes:
    middle = (times > HORIZON // 3) & (times <= 2 * HORIZON // 3)
    return np.where(middle[:, None] & (np.arange(6) % 3 == 0), -1, 0)


def halves(times: Wholes) -> Wholes:
    return np.where(times[:, None] > HORIZON // 2, np.arange(6) % 2, 0)


@pytest.mark.parametrize("brokers", [None, third_away, halves])
@pytest.mark.parametrize("wiped", [(), (500, 1500)])
def test_the_budget_holds_at_every_time(brokers: Callable[[Wholes], Wholes] | None, wiped: tuple[int, ...]) -> None:
    run = simulate_fleet_budget(BudgetedFleet(SOURCES, (), brokers, wiped), COST, SHARE, horizon=HORIZON)
    assert np.all(run.offloads.sum(axis=1) <= SHARE * 6 * run.times + 6 * START)
    assert run.offloads[-1, :2].mean() > 1.5 * SHARE * HORIZON  # the hard ones get what the others do not need
    assert run.times[-1] == HORIZON
    assert run.messages.max() < 60


def test_it_costs_less_than_a_budget_for_each_and_all_have_one_price() -> None:
    together, apart = (
        simulate_fleet_budget(BudgetedFleet(SOURCES), COST, SHARE, shared=shared, horizon=HORIZON)
        for shared in (True, False)
    )
    assert together.cost.mean() < 0.9 * apart.cost.mean()
    assert together.prices[-10:].std(axis=1).mean() < 0.5 * apart.prices[-10:].std(axis=1).mean()
    assert apart.messages.sum() == 0


@pytest.mark.parametrize("lie", [BudgetLie.LACKS, BudgetLie.HOLDS])
def test_liars_that_give_nothing_away_do_not_move_the_bound(lie: BudgetLie) -> None:
    run = simulate_fleet_budget(BudgetedFleet(SOURCES, [lie]), COST, SHARE, horizon=HORIZON)
    assert run.offloads.shape == (HORIZON // EVERY, 5)
    # What a liar has earned and cedes is its own; what honest devices spend is within what all have earned.
    assert np.all(run.offloads.sum(axis=1) <= SHARE * 6 * run.times + 6 * START)


def test_a_liar_that_gives_what_it_has_not_adds_a_part_of_what_each_device_has_earned() -> None:
    run = simulate_fleet_budget(BudgetedFleet(SOURCES, [BudgetLie.GIVES]), COST, SHARE, horizon=HORIZON)
    assert np.all(run.offloads.sum(axis=1) <= 1.6 * SHARE * 5 * run.times + 6 * START)
