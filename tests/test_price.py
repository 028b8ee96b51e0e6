"""A measured price follows what offloads cost, and is looked at again when nothing is offloaded."""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from hinge import Gate, InvalidState
from hinge.policies import Decision
from hinge.price import ALARMS, MEAN, make_price, pay, restore_price

LAWS: dict[str, Callable[[random.Random, float], float]] = {
    "constant": lambda _, mean: mean,
    "two values": lambda chance, mean: 1.0 if chance.random() < mean / 2 else mean / (2 - mean),
    "heavy tail": lambda chance, mean: min(1.0, mean * 0.4 * chance.paretovariate(1.6)),
    "uniform": lambda chance, mean: chance.random() * min(1.0, 2 * mean),
}
each_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def mean_of(law: Callable[[random.Random, float], float], mean: float) -> float:
    chance = random.Random(9)
    return sum(law(chance, mean) for _ in range(50_000)) / 50_000


@each_law
@pytest.mark.parametrize("mean", [0.05, 0.2, 0.5])
def test_it_is_the_mean_of_what_was_paid_lately(law: Callable[[random.Random, float], float], mean: float) -> None:
    chance, price, paid = random.Random(1), make_price(), []
    for time in range(800):
        paid.append(law(chance, mean))
        pay(price, paid[-1], time)
    if price.sums[ALARMS] == 0.0:
        assert price.sums[MEAN] == pytest.approx((sum(paid) + 0.5) / (len(paid) + 1))
    assert price.sums[MEAN] == pytest.approx(mean_of(law, mean), rel=0.25)


@each_law
@pytest.mark.parametrize(("before", "after"), [(0.05, 0.5), (0.5, 0.05), (0.1, 0.3), (0.4, 0.15)])
def test_it_follows_a_jump(law: Callable[[random.Random, float], float], before: float, after: float) -> None:
    chance, price = random.Random(2), make_price()
    for time in range(2_000):
        pay(price, law(chance, before), time)
    alarms, noticed = price.sums[ALARMS], 0
    while price.sums[ALARMS] == alarms:
        noticed += 1
        pay(price, law(chance, after), 2_000 + noticed)
        assert noticed < 400
    for time in range(300):
        pay(price, law(chance, after), 2_300 + time)
    assert price.sums[MEAN] == pytest.approx(mean_of(law, after), rel=0.4)


@each_law
def test_it_rarely_notices_what_has_not_happened(law: Callable[[random.Random, float], float]) -> None:
    alarms = 0.0
    for seed in range(10):
        chance, price = random.Random(seed), make_price()
        for time in range(3_000):
            pay(price, law(chance, 0.3), time)
        alarms += price.sums[ALARMS]
    assert alarms <= 5


def gate_at(
    costs: Callable[[int], float], samples: int, agreement: float = 0.8, seed: int = 3
) -> tuple[Gate, list[int]]:
    """A gate in one bin that measures its price, and when it offloaded."""
    gate, chance, times = Gate(bins=1), random.Random(seed), []
    for time in range(samples):
        decision = gate.decide(confidence=0.9)
        if decision.offload:
            times.append(time)
            gate.learn(decision, chance.random() < agreement, costs(time))
    return gate, times


def test_a_price_that_was_too_high_is_looked_at_again() -> None:
    """Agreement of 0.8: worth accepting at 0.6, not at 0.05; and nothing would be seen of the fall but by looking."""
    gate, times = gate_at(lambda time: 0.6 if time < 10_000 else 0.05, 20_000)
    dear = [time for time in times if 2_000 <= time < 10_000]
    assert len(dear) < 0.05 * 8_000
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) <= 2 * math.sqrt(20_000) + 1
    assert gate.offload_price == pytest.approx(0.05, abs=0.02)
    late = [time for time in times if time >= 12_000]
    assert len(late) > 0.9 * 8_000


def test_looks_cost_about_a_root_of_the_samples() -> None:
    """Where every local answer agrees, only looks and audits are offloaded."""
    _, times = gate_at(lambda _: 0.3, 40_000, agreement=1.0)
    assert len([time for time in times if time > 1_000]) < 2.5 * math.sqrt(40_000)


def test_each_offload_says_what_it_cost_and_failures_cost_too() -> None:
    gate = Gate()
    decision = gate.decide(confidence=0.5)
    assert decision.offload
    with pytest.raises(TypeError, match="Gate: cost must be a number, as the price is measured, got None"):
        gate.learn(decision, agreed=True)
    gate.learn(decision, agreed=True, cost=0.1)
    cheap = gate.offload_price
    lost = gate.policy.overrule(3, True)
    gate.policy.place(lost, 200)
    gate.forget(lost, cost=1.0)
    assert gate.offload_price > cheap
    with pytest.raises(ValueError, match="waiting for feedback"):
        gate.learn(lost, agreed=True, cost=0.1)


def test_a_told_price_is_not_looked_at() -> None:
    gate = Gate(bins=1)
    waiting: list[Decision] = [gate.decide(confidence=0.9, cost=1.0) for _ in range(5)]
    assert not any(decision.offload for decision in waiting)
    assert gate.decide(confidence=0.9).offload


@pytest.mark.parametrize(
    "values",
    [None, [], [0.5] * 6, [0.0] * 7, [1.5, *[0.0] * 6], [0.5, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0],
     [0.5, 0.0, 2000.0, 0.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0], [math.nan] * 7, ["1"] * 7],
    ids=str,
)  # fmt: skip  # several to a line
def test_an_impossible_price_is_refused(values: object) -> None:
    with pytest.raises(InvalidState, match="Gate: state has an impossible price"):
        restore_price(make_price(), values)
