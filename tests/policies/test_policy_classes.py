"""Costs per class: every class is judged by itself, at its own stake, on one table and one clock."""

import random

import numpy as np
import pytest

from hinge import ClassBins, CostMatrix, DiscountedIsotonic, Isotonic, Trace, UniformBins, simulate
from hinge.policies import FOREVER
from hinge.simulation.sources import ConstantPrice, Resampled

STAKES, COST, WITHIN = [1.0, 0.4, 0.05], 0.1, 5


@pytest.mark.parametrize("kind", [Isotonic, DiscountedIsotonic])
def test_one_table_decides_as_a_policy_for_each_class_would(kind: type[Isotonic | DiscountedIsotonic]) -> None:
    chance, policy = random.Random(2), kind(15, offload_cost=COST, stakes=STAKES)
    single = [kind(WITHIN, offload_cost=min(1.0, COST / stake)) for stake in STAKES]
    for time in range(4_000):
        group, bin = chance.randrange(3), chance.randrange(WITHIN)
        single[group].time = time  # one clock for all
        if kind is DiscountedIsotonic:
            single[group].table.due[0] = policy.table.due[0]
        decision, alone = policy.decide(group * WITHIN + bin), single[group].decide(bin)
        assert decision.offload == alone.offload, (time, group, bin)
        if decision.offload:
            price = STAKES[group] * (chance.random() > (bin + 1) / WITHIN)
            policy.learn(decision, agreed=1 - price)
            single[group].learn(alone, agreed=1 - price / STAKES[group])


def test_a_class_worth_less_than_an_offload_is_never_offloaded() -> None:
    for cost in (COST, None):
        policy = Isotonic(15, offload_cost=cost, stakes=[1.0, 1.0, 0.0])
        for _ in range(50):  # a learned cost has to be learned first
            policy.learn(policy.decide(0), agreed=False, cost=0.5)
        assert not policy.decide(10).offload
        assert policy.expiry(10) > 10**6
    assert Isotonic(15, offload_cost=COST, stakes=STAKES).expiry(10) == FOREVER


def alarms(length: int) -> Trace:
    """Local says fire too often and is mostly wrong then; when it says quiet, it misses a fire now and then."""
    chance = np.random.default_rng(1)
    confidence, says_fire = chance.random(length), chance.random(length) < 0.3
    agrees = chance.random(length) < np.where(says_fire, 0.3 + 0.5 * confidence, 0.9 + 0.1 * confidence)
    remote = np.where(agrees, says_fire, ~says_fire)
    return Trace(confidence, says_fire.astype(int), remote.astype(int), name="alarms")


@pytest.mark.medium
def test_stakes_lower_the_cost_of_asymmetric_mistakes() -> None:
    prices = CostMatrix([[0, 1], [0.15, 0]])
    trace, within = alarms(20_000), UniformBins(8)
    by_class = ClassBins(within, 2)
    blind = Resampled(trace, within, ConstantPrice(0.05), wrong=prices)
    aware = Resampled(trace, by_class, ConstantPrice(0.05), wrong=prices)
    costs = {}
    for name, source, policy in (
        ("blind", blind, Isotonic(8, offload_cost=0.05)),
        ("one stake", aware, Isotonic(16, offload_cost=0.05, stakes=[1.0, 1.0])),
        ("stakes", aware, Isotonic(16, offload_cost=0.05, stakes=prices.stakes)),
    ):
        record = simulate([policy], source, 50_000, runs=5, seed=3)["isotonic"]
        costs[name] = record.cost_per_sample[:, -1].mean()
    assert costs["stakes"] < costs["one stake"] < costs["blind"]


def test_sources_price_wrong_answers() -> None:
    trace = Trace([0.9, 0.9, 0.1], [0, 1, 1], [1, 0, 1])
    source = Resampled(trace, UniformBins(2), ConstantPrice(0.2), wrong=CostMatrix([[0, 1], [0.5, 0]]))
    assert source.agreement.tolist() == [1.0, 0.25]
    bins = ClassBins(UniformBins(2), ["a", "b"])
    named = Trace([0.9, 0.2], ["b", "a"], ["b", "b"])
    assert named.bins_by(bins).tolist() == [3, 0]


def test_wrong_stakes_and_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="Isotonic: stakes must be for as many classes as divide 16 bins, got 3"):
        Isotonic(16, stakes=[1, 1, 1])
    with pytest.raises(ValueError, match=r"Isotonic: stakes\[1\] must be from 0 to 1, got 2"):
        Isotonic(16, stakes=[1, 2])
    with pytest.raises(ValueError, match="ClassBins: label must be one of the classes, got 'smoke'"):
        ClassBins(UniformBins(2), ["quiet", "fire"]).bin(0.5, "smoke")
    with pytest.raises(ValueError, match="ClassBins: classes must be different names"):
        ClassBins(UniformBins(2), ["fire", "fire"])
    with pytest.raises(TypeError, match="ClassBins: within must be UniformBins, EdgeBins or QuantileBins, got 16"):
        ClassBins(16, 2)  # type: ignore[arg-type]  # that is the point
