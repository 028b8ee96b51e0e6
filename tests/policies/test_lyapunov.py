"""Lyapunov-EXP4: its queue is the recursion it says, its pseudo-losses are unbiased, and its budget is met."""

import math
import random
from typing import Any

import numpy as np
import pytest

from hinge import simulate
from hinge.policies import LyapunovEXP4
from hinge.policies.random import uniform
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Synthetic

RISING = np.linspace(0.1, 0.95, 8)
BINS = 5
KINDS: dict[str, dict[str, float | None]] = {
    "offloads": {"offloads": 0.3},
    "known cost": {"cost": 0.1, "offload_cost": 0.4},
    "learned cost": {"cost": 0.1},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, **settings: Any) -> LyapunovEXP4:
    return LyapunovEXP4(BINS, **{**KINDS[kind], "tradeoff": 20.0, "exploration": 0.1, **settings})


def spent(kind: str, cost: float) -> float:
    return 1.0 if kind == "offloads" else 0.4 if kind == "known cost" else cost


def drive(policy: LyapunovEXP4, slots: int, seed: int = 1) -> LyapunovEXP4:
    chance = random.Random(seed)
    for _ in range(slots):
        bin = chance.randrange(BINS)
        decision, agreed = policy.decide(bin), chance.random() < (bin + 0.5) / BINS
        if decision.offload:
            policy.learn(decision, agreed, chance.choice((0.2, 0.6)))
    return policy


def reseeded(state: dict[str, Any], seed: int) -> LyapunovEXP4:
    return LyapunovEXP4.restore(state | {"parameters": state["parameters"] | {"seed": seed}})


# -- the queue --------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@every_kind
def test_the_queue_is_the_recursion_sample_by_sample(kind: str) -> None:
    policy, chance, queue = made(kind), random.Random(2), 0.0
    budget, empty, most = policy.offloads or policy.cost or 0.0, 0, 0.0
    for _ in range(20_000):
        decision = policy.decide(chance.randrange(BINS))
        cost = chance.choice((0.2, 0.6))
        if decision.offload:
            policy.learn(decision, chance.random() < 0.5, cost)
            queue += spent(kind, cost)
        assert policy.queue == pytest.approx(queue, abs=1e-9)
        queue = max(0.0, queue - budget)
        empty, most = empty + (queue == 0.0), max(most, queue)
    assert empty > 5
    assert most > 5


def test_losses_are_those_of_the_formula() -> None:
    """Experts recomputed: who offloads pays Q c, who accepts V e / p, both over V + Q_max c."""
    policy, chance, queue = LyapunovEXP4(BINS, offloads=0.3, tradeoff=20.0, seed=4), random.Random(3), 0.0
    losses, share = np.zeros(BINS + 1), np.zeros(BINS + 1)
    for time in range(1, 2_001):
        bin = chance.randrange(BINS)
        disagreed = chance.random() > (bin + 0.5) / BINS
        share = np.exp(-policy.learning_rate * (losses - losses.min()))
        p = 0.015 + 0.985 * share[bin + 1 :].sum() / share.sum()
        assert policy.offload_probability(bin) == pytest.approx(p, rel=1e-9)
        losses[bin + 1 :] += queue / 40.0
        decision = policy.decide(bin)
        assert decision.offload == (uniform(4, time, 0) < p)
        if decision.offload:
            policy.learn(decision, not disagreed)
            losses[: bin + 1] += 20.0 * disagreed / p / 40.0
        queue = max(0.0, queue + decision.offload - 0.3)
    assert policy.state()["evidence"]["losses"] == pytest.approx(losses.tolist(), rel=1e-9)


# -- pseudo-losses ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("agreed", [True, False])
@every_kind
def test_pseudo_losses_are_unbiased(kind: str, agreed: bool) -> None:
    """Over the policy's own chance, an expert's loss grows by Q c where it offloads, else by V e, on average."""
    bin, draws, state = 3, 4_000, drive(made(kind), 300).state()
    policy = LyapunovEXP4.restore(state)
    chance, before = policy.offload_probability(bin), np.array(state["evidence"]["losses"])
    policy.decide(bin)
    queue = policy.queue - (spent(kind, 0.0) if policy.table.chances[301] > uniform(0, 301, 0) else 0.0)
    grown = np.zeros((draws, BINS + 1))
    for seed in range(draws):
        policy = reseeded(state, seed)
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agreed, 0.4)
        grown[seed] = np.array(policy.state()["evidence"]["losses"]) - before
    assert 0.1 <= chance < 0.9
    assert queue > 0
    for expert in range(BINS + 1):
        seen = bin >= expert or kind == "learned cost"  # only by an offload
        loss = (20.0 * (not agreed) if bin >= expert else queue * spent(kind, 0.4)) / policy.table.scale
        deviation = loss * math.sqrt((1 / chance - 1) / draws) if seen else 0.0
        assert abs(grown[:, expert].mean() - loss) <= 5 * deviation + 1e-12


def test_late_feedback_is_weighed_by_the_chance_of_its_own_time() -> None:
    prompt, late = (made("offloads", seed=3) for _ in range(2))
    decision = late.decide(2)
    assert decision.offload
    chance = late.table.chances[1]
    drive(late, 200)
    assert late.offload_probability(2) != chance
    before = np.array(late.state()["evidence"]["losses"])
    late.learn(decision, agreed=False)
    prompt.learn(prompt.decide(2), agreed=False)
    grown = np.array(late.state()["evidence"]["losses"]) - before
    assert grown[:3] == pytest.approx([0.5 / chance] * 3)
    assert grown[3:] == pytest.approx([0.0] * 3)
    assert prompt.state()["evidence"]["losses"][:3] == pytest.approx(grown[:3])


def test_feedback_that_comes_too_late_teaches_nothing() -> None:
    policy = made("offloads", memory=64, seed=3)
    decisions = [decision for decision in (policy.decide(2) for _ in range(65)) if decision.offload]
    before = policy.state()["evidence"]["losses"]
    assert decisions[0].time == 1
    policy.learn(decisions[0], agreed=False)
    assert policy.state()["evidence"]["losses"] == before
    policy.learn(decisions[1], agreed=False)
    assert policy.state()["evidence"]["losses"] != before


# -- the budget -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0.05, 0.2, 0.4])
def test_the_share_of_offloads_meets_the_budget(budget: float) -> None:
    source = Synthetic(RISING, ConstantPrice(0.05))
    record = simulate([LyapunovEXP4(8, offloads=budget)], source, 100_000, runs=4, seed=2)["lyapunov-exp4"]
    assert record.offload_fraction[:, -1].mean() == pytest.approx(budget, abs=0.01)
    below = int(8 * budget)  # bins that deserve all of their samples, and the next one the rest
    share = np.clip(8 * budget - np.arange(8), 0, 1)
    assert share[:below].min(initial=1.0) == 1.0
    best = float(np.mean(0.05 * share + (1 - RISING) * (1 - share)))
    assert record.cost_per_sample[:, -1].mean() == pytest.approx(best, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("known", [0.2, None], ids=["known", "learned"])
def test_a_mean_cost_is_met(known: float | None) -> None:
    source, policy = Synthetic(RISING, BimodalPrice(0.1, 0.3)), LyapunovEXP4(8, known, cost=0.05, tradeoff=20.0)
    record = simulate([policy], source, 100_000, runs=4, seed=2)[policy.name]
    assert record.offload_fraction[:, -1].mean() * 0.2 == pytest.approx(0.05, abs=0.003)


# -- what it says -----------------------------------------------------------------------------------------------------


def test_an_explanation_names_the_queue() -> None:
    said = str(made("offloads").explain(0))
    assert said.endswith("of the weight, and exploration takes 0.1, and 0 is spent beyond the budget.")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(TypeError, match="LyapunovEXP4: offloads or cost must be given, and not both"):
        LyapunovEXP4(offloads=0.2, cost=0.1)


def test_a_cost_is_asked_for_only_where_the_budget_counts_it() -> None:
    for kind, asks in (("offloads", False), ("known cost", False), ("learned cost", True)):
        policy = made(kind)
        decision = policy.decide(0)
        while not decision.offload:
            decision = policy.decide(0)
        if asks:
            with pytest.raises(TypeError, match="cost must be a number"):
                policy.learn(decision, agreed=True)
        policy.learn(decision, agreed=True, cost=0.5 if asks else None)
