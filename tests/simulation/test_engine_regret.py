"""Regret as the paper proves it: below the bounds of its theorems on every source, and growing like log T.

Of every mean over runs the upper end of its 95 % confidence interval is compared with the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from hinge import HILCB, HILCBLite, Policy, UniformBins
from hinge.policies import HedgeHI
from hinge.simulation import Record, interval, simulate
from hinge.simulation.sources import (
    BimodalPrice,
    ConstantPrice,
    PriceProcess,
    Resampled,
    Scheduled,
    Synthetic,
)
from hinge.theory import Problem, adversarial_bound, forced_offload_regret, stochastic_bound
from hinge.traces import load_trace, trace_names

Reals = NDArray[np.float64]

HORIZON = 100_000
ALPHAS = (0.52, 0.6, 1.0, 2.0)
ORDERS: dict[str, Callable[[Reals], list[int]]] = {  # of bins, from their weights
    "the least confident first": lambda weights: list(range(len(weights))),
    "the most confident first": lambda weights: list(range(len(weights)))[::-1],
    "the rarest first": lambda weights: np.argsort(weights, kind="stable").tolist(),
}


@dataclass(frozen=True)
class Case:
    """A random monotone setting."""

    number: int
    known_cost: bool

    @property
    def chance(self) -> np.random.Generator:
        return np.random.default_rng([self.number, 7])

    @property
    def alpha(self) -> float:
        return ALPHAS[self.number % len(ALPHAS)]

    def draw(self) -> tuple[Reals, PriceProcess, Reals]:
        """Agreement, costs, weights: 1 to 32 bins, some of them rare."""
        chance = self.chance
        bins = int(chance.integers(1, 33))
        agreement = np.sort(chance.beta(0.8, 0.8, bins))
        mean = float(chance.uniform(0.1, 0.9))
        costs = ConstantPrice(mean) if self.known_cost else BimodalPrice(mean - 0.1, mean + 0.1)
        return agreement, costs, chance.dirichlet(np.full(bins, 0.7)) + 1e-4

    def __str__(self) -> str:
        return f"{self.number}, {'known' if self.known_cost else 'learned'} cost"


def policies(bins: int, alpha: float, cost: float | None) -> dict[str, Policy]:
    return {
        "HI-LCB": HILCB(bins, alpha, cost),
        "pure threshold": HILCB(bins, alpha, cost, offload_unseen=False),
        "lite": HILCBLite(bins, alpha, cost),
    }


def upper(record: Record) -> float:
    """The upper end of the confidence interval of the mean regret."""
    return sum(interval(record.regret[:, -1]))


def setting_of(source: Resampled | Synthetic, known_cost: bool, weights: bool = True) -> Problem:
    """What the theorems know about a source; an adversary's arrivals have no weights."""
    shares = source.weights.tolist() if weights else None
    return Problem(source.agreement.tolist(), source.mean_offload_cost, shares, known_cost)


def bounds_by_chance(setting: Problem, alpha: float) -> dict[str, float]:
    """Theorem 2, in the form that its lemmas prove, with Algorithm 1's forced offloads."""
    threshold = stochastic_bound(setting, horizon=HORIZON, alpha=alpha)
    return {
        "HI-LCB": threshold + forced_offload_regret(setting, horizon=HORIZON),
        "pure threshold": threshold,
        "lite": adversarial_bound(setting, horizon=HORIZON, alpha=alpha),
    }


def regrets_by_chance(source: Resampled | Synthetic, known_cost: bool, alpha: float) -> dict[str, tuple[float, float]]:
    """Measured regret and bound of each policy, samples arriving by chance."""
    cost = source.mean_offload_cost if known_cost else None
    records = simulate(policies(source.bins, alpha, cost), source, HORIZON, runs=6, seed=3)
    bounds = bounds_by_chance(setting_of(source, known_cost), alpha)
    return {name: (upper(records[name]), bound) for name, bound in bounds.items()}


def regrets_in(order: str, period: int | None, case: Case) -> dict[str, tuple[float, float]]:
    """Measured regret and bound of each policy where bins come one after another."""
    agreement, costs, weights = case.draw()
    source = Scheduled(agreement, costs, weights, order=ORDERS[order](weights), period=period)
    cost = source.mean_offload_cost if case.known_cost else None
    bound = adversarial_bound(setting_of(source, case.known_cost, False), horizon=HORIZON, alpha=case.alpha)
    records = simulate(policies(source.bins, case.alpha, cost), source, HORIZON, runs=4, seed=3)
    return {name: (upper(record), bound) for name, record in records.items()}


@pytest.mark.parametrize("known_cost", [True, False], ids=["known cost", "learned cost"])
@pytest.mark.parametrize("name", [name for name in trace_names() if name.startswith("synthetic")])
def test_regret_on_a_trace_is_below_the_bound(name: str, known_cost: bool) -> None:
    costs = ConstantPrice(0.5) if known_cost else BimodalPrice()
    source = Resampled(load_trace(name), UniformBins(16), costs)
    assert setting_of(source, known_cost).oracle_is_threshold  # HI-LCB's bounds need it
    for policy, (regret, bound) in regrets_by_chance(source, known_cost, alpha=0.52).items():
        assert regret <= bound, policy


@pytest.mark.parametrize("known_cost", [True, False], ids=["known cost", "learned cost"])
def test_regret_in_random_monotone_settings_is_below_the_bound(known_cost: bool) -> None:
    for number in range(48):
        case = Case(number, known_cost)
        source = Synthetic(*case.draw())
        for policy, (regret, bound) in regrets_by_chance(source, known_cost, case.alpha).items():
            assert regret <= bound, f"{policy} in setting {case}"


def test_the_bounds_say_something() -> None:
    broken = 0
    for number in range(48):
        case = Case(number, known_cost=True)
        setting = setting_of(Synthetic(*case.draw()), known_cost=True)
        lost = HORIZON * float((np.asarray(setting.weights) * setting.gaps)[setting.licensed].sum())
        broken += lost > bounds_by_chance(setting, case.alpha)["HI-LCB"]
    assert broken >= 30  # by offloading everything; in some settings hardly any bin is one to accept


@pytest.mark.parametrize("known_cost", [True, False], ids=["known cost", "learned cost"])
@pytest.mark.parametrize(("order", "period"), [*product(ORDERS, [None]), ("the least confident first", 800)])
def test_regret_in_any_order_is_below_the_bound(order: str, period: int | None, known_cost: bool) -> None:
    for number in range(12):
        case = Case(number, known_cost)
        for policy, (regret, bound) in regrets_in(order, period, case).items():
            assert regret <= bound, f"{policy} in setting {case}"


# -- growth -----------------------------------------------------------------------------------------------------------

HIGH = np.linspace(0.8, 0.98, 12)  # bins to accept, at a cost of 0.5
MIXED = np.concatenate([np.linspace(0.05, 0.25, 4), HIGH])
ASYMPTOTE = float((0.52 / (HIGH - 0.5)).sum())  # Σ α/Δ: n Δ² / α = log T licenses a bin, and each offload costs Δ
LONG = 10_000_000


def line(x: Reals, y: Reals) -> tuple[float, float]:
    """Slope and sum of squared residuals of a least-squares line."""
    design = np.column_stack([np.ones_like(x), x])
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    return float(coefficients[1]), float(((design @ coefficients - y) ** 2).sum())


def slope_between(record: Record, first: float, last: float) -> tuple[float, float]:
    """Mean over runs of the slope of regret over log T, and the half-width of its confidence interval."""
    window = (record.times >= first) & (record.times <= last)
    logs = np.log(record.times[window])
    return interval(np.array([line(logs, regret[window])[0] for regret in record.regret]))


def fits(times: Reals, regret: Reals) -> tuple[float, float]:
    """Squared residuals of a + b log T and of a + b T^(2/3)."""
    return line(np.log(times), regret)[1], line(times ** (2 / 3), regret)[1]


def long_run(agreement: Reals, known_cost: bool, runs: int) -> dict[str, Record]:
    costs, cost = (ConstantPrice(0.5), 0.5) if known_cost else (BimodalPrice(), None)
    bins = len(agreement)
    both: list[Policy] = [HILCB(bins, 0.52, cost), HILCBLite(bins, 0.52, cost)]
    return dict(simulate(both, Synthetic(agreement, costs), LONG, runs=runs, seed=11))


@pytest.mark.parametrize("known_cost", [True, False], ids=["known cost", "learned cost"])
def test_regret_grows_like_log_t(known_cost: bool) -> None:
    # With a learned cost every bin is one to accept: what is known about the cost then grows like log T, too.
    for name, record in long_run(MIXED if known_cost else HIGH, known_cost, runs=40 if known_cost else 24).items():
        later = record.times >= 1000
        log_fit, power_fit = fits(record.times[later].astype(float), record.regret.mean(axis=0)[later])
        assert log_fit < power_fit / 20, name
        slope, _ = slope_between(record, 1e3, LONG)
        before, last = slope_between(record, 1e5, 1e6)[0], slope_between(record, 1e6, LONG)[0]
        assert abs(last - before) < 0.3 * slope, (name, before, last)
        if known_cost:
            assert slope == pytest.approx(ASYMPTOTE, rel=0.25), name


def test_where_right_offloads_teach_the_cost_regret_grows_no_faster_than_with_a_known_one() -> None:
    # The bins to offload teach the cost without regret. Until they have, the other bins are offloaded more than a known
    # cost asks for; then regret rests until log T has caught up. It never grows faster than with a known cost.
    for name, record in long_run(MIXED, False, runs=8).items():
        for first in (1e3, 1e4, 1e5, 1e6):
            slope, half = slope_between(record, first, 10 * first)
            assert slope - half < ASYMPTOTE, (name, first)


def test_hedge_hi_does_not_grow_like_log_t() -> None:
    agreement = np.array([0.1, 0.25, 0.35, 0.65, 0.75, 0.9])
    source, regret = Synthetic(agreement, ConstantPrice(0.5)), []
    times = np.round(np.logspace(3, 7, 9)).astype(int)
    for horizon in times.tolist():
        record = simulate([HedgeHI(horizon, 6, 0.5)], source, horizon, runs=4 if horizon < 10**6 else 2)["hedge-hi"]
        regret.append(float(record.regret[:, -1].mean()))
    log_fit, power_fit = fits(times.astype(float), np.array(regret))
    assert power_fit < log_fit / 100
    exponent, _ = line(np.log(times), np.log(regret))
    assert exponent == pytest.approx(2 / 3, abs=0.07)
