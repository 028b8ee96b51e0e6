"""Lyapunov-EXP4: its queue and losses are the recursions it says, and its budget is met."""

import random
from typing import Any

import numpy as np
import pytest

from hinge import simulate
from hinge.policies import LyapunovEXP4
from hinge.policies.random import uniform
from hinge.simulation.sources import ConstantPrice, Synthetic

RISING = np.linspace(0.1, 0.95, 8)
BINS = 5


def made(**settings: Any) -> LyapunovEXP4:
    return LyapunovEXP4(BINS, **{"offloads": 0.3, "tradeoff": 20.0, "exploration": 0.1, **settings})


def drive(policy: LyapunovEXP4, slots: int, seed: int = 1) -> LyapunovEXP4:
    chance = random.Random(seed)
    for _ in range(slots):
        bin = chance.randrange(BINS)
        decision, agreed = policy.decide(bin), chance.random() < (bin + 0.5) / BINS
        if decision.offload:
            policy.learn(decision, agreed)
    return policy


def losses_of(policy: LyapunovEXP4) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(policy.state()["table"]["losses"])


@pytest.mark.medium
def test_decisions_and_losses_are_those_of_the_formula() -> None:
    """Experts recomputed: who offloads pays Q, who accepts V e / p, both over V + Q_max; Q is what was spent beyond."""
    policy, chance, queue = LyapunovEXP4(BINS, offloads=0.3, tradeoff=20.0, seed=4), random.Random(3), 0.0
    losses, empty, most = np.zeros(BINS + 1), 0, 0.0
    for time in range(1, 10_001):
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
        empty, most = empty + (queue == 0.0), max(most, queue)
    assert losses_of(policy) == pytest.approx(losses, rel=1e-9)
    assert empty > 5
    assert most > 5


def test_late_feedback_is_weighed_by_the_chance_of_its_own_time() -> None:
    prompt, late = made(seed=3), made(seed=3)
    decision = late.decide(2)
    assert decision.offload
    chance = made(seed=3).offload_probability(2)
    drive(late, 200)
    assert late.offload_probability(2) != chance
    before = losses_of(late)
    late.learn(decision, agreed=False)
    prompt.learn(prompt.decide(2), agreed=False)
    grown = losses_of(late) - before
    assert grown == pytest.approx([0.5 / chance] * 3 + [0.0] * 3)
    assert losses_of(prompt)[:3] == pytest.approx(grown[:3])


def test_feedback_that_comes_too_late_teaches_nothing() -> None:
    policy = made(memory=64, seed=3)
    decisions = [decision for decision in (policy.decide(2) for _ in range(65)) if decision.offload]
    before = losses_of(policy)
    assert decisions[0].time == 1
    policy.learn(decisions[0], agreed=False)
    assert (losses_of(policy) == before).all()
    policy.learn(decisions[1], agreed=False)
    assert (losses_of(policy) != before).any()


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0.05, 0.2, 0.4])
def test_the_share_of_offloads_meets_the_budget(budget: float) -> None:
    source = Synthetic(RISING, ConstantPrice(0.05))
    record = simulate([LyapunovEXP4(8, offloads=budget)], source, 100_000, runs=4, seed=2)["lyapunov-exp4"]
    assert record.offload_fraction[:, -1].mean() == pytest.approx(budget, abs=0.01)
    share = np.clip(8 * budget - np.arange(8), 0, 1)  # bins that deserve all of their samples, and the next the rest
    best = float(np.mean(0.05 * share + (1 - RISING) * (1 - share)))
    assert record.cost_per_sample[:, -1].mean() == pytest.approx(best, abs=0.02)
