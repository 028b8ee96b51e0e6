"""A budget is kept in every stretch of samples, whatever comes, and spent on what is worth most."""

import json
import math
import random
from collections import deque
from itertools import accumulate

import pytest

from hinge import Gate, InvalidState
from hinge.budget import make_budget, restore_budget
from hinge.policies import Decision

SHARES = (0.01, 0.05, 0.2, 0.5)


def most_beyond(offloads: list[bool], share: float, shortest: int) -> float:
    """By how much any stretch of so many samples or more exceeds its share of offloads, at most."""
    spent = list(accumulate((offload - share for offload in offloads), initial=0.0))
    least = worst = math.inf
    for end in range(shortest, len(spent)):
        least = min(least, spent[end - shortest])
        worst = min(worst, least - spent[end])
    return -worst


def kept(offloads: list[bool], share: float) -> None:
    """The promise."""
    assert most_beyond(offloads, share, 1) <= max(2.0, 20.0 * share) + 1e-6
    assert most_beyond(offloads, share, 1000) <= 1e-6


def run(gate: Gate, samples: int, kind: str, flight: int = 0, restores: bool = False, seed: int = 1) -> list[bool]:
    """Samples of a kind that tempts a gate to offload too much; whether each was offloaded."""
    chance, waiting, offloads = random.Random(seed), deque[Decision](), []
    for time in range(samples):
        if kind == "idle, then busy":  # the bucket is filled, and then all samples are hopeless
            confidence, agreed = (0.99, True) if time // 1500 % 2 == 0 else (0.3, False)
        elif kind == "sly":  # disagrees whenever it is asked
            confidence, agreed = chance.random(), False
        else:
            confidence = chance.random()
            agreed = chance.random() < confidence
        told = chance.choice((0.0, 0.3)) if kind == "told" else None
        decision = gate.decide(confidence=confidence, cost=told)
        offloads.append(decision.offload)
        if decision.offload:
            waiting.append(decision)
        while len(waiting) > flight:
            decided = waiting.popleft()
            if kind == "failing" and chance.random() < 0.7:
                gate.forget(decided, cost=1.0)
            else:
                gate.learn(decided, agreed, cost=chance.choice((0.0, 0.1, 1.0)) if kind == "measured" else 0.1)
        if restores and chance.random() < 0.01:
            gate = Gate.restore(json.loads(json.dumps(gate.state())))
    return offloads


@pytest.mark.parametrize("flight", [0, 200])
@pytest.mark.parametrize("kind", ["plain", "idle, then busy", "sly", "told", "failing", "measured"])
@pytest.mark.parametrize("share", SHARES)
def test_no_stretch_of_samples_exceeds_the_budget(share: float, kind: str, flight: int) -> None:
    cost = None if kind == "measured" else 0.01
    kept(run(Gate(offload_cost=cost, budget=share), 8_000, kind, flight), share)


@pytest.mark.parametrize("name", ["hi-lcb", "hi-lcb-lite", "thompson", "discounted"])
def test_every_policy_that_takes_a_price_keeps_a_budget(name: str) -> None:
    offloads = run(Gate(name, offload_cost=0.05, budget=0.1), 6_000, "sly", 20)
    kept(offloads, 0.1)
    assert sum(offloads) > 0.08 * 6_000


@pytest.mark.parametrize("share", SHARES)
def test_a_budget_is_kept_over_restarts(share: float) -> None:
    kept(run(Gate(offload_cost=0.01, budget=share), 6_000, "sly", restores=True), share)


def test_looks_at_the_price_are_charged_too() -> None:
    gate = Gate(bins=1, budget=0.01)
    offloads = run(gate, 20_000, "sly")
    kept(offloads, 0.01)
    assert sum(offloads) > 0.007 * 20_000


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_it_is_spent_on_what_is_worth_most(share: float) -> None:
    """Agreement is the confidence: offloading the lowest would be best."""
    gate, chance, cost = Gate(offload_cost=0.01, budget=share), random.Random(5), 0.0
    for time in range(40_000):
        confidence = chance.random()
        agreed, decision = chance.random() < confidence, gate.decide(confidence=confidence)
        if decision.offload:
            gate.learn(decision, agreed)
        if time >= 20_000:
            cost += 0.01 if decision.offload else 1.0 - confidence
    best = 0.01 * share + (1.0 - share) ** 2 / 2.0
    assert cost / 20_000 < 1.1 * best


def test_a_budget_that_is_not_needed_changes_little() -> None:
    free, ample = Gate(offload_cost=0.3), Gate(offload_cost=0.3, budget=1.0)
    one, other = (sum(run(gate, 10_000, "plain")) for gate in (free, ample))
    assert other == pytest.approx(one, rel=0.1)


@pytest.mark.parametrize("budget", [0, 0.001, -0.1, 1.1, math.nan, "much"])
def test_what_is_no_budget_is_refused(budget: float) -> None:
    with pytest.raises((TypeError, ValueError), match="Gate: budget must be"):
        Gate(offload_cost=0.1, budget=budget)


def test_a_policy_without_a_price_keeps_no_budget() -> None:
    for name in ("always-local", "target"):
        with pytest.raises(TypeError, match=f"Gate: {name} keeps no budget, as its price cannot be raised"):
            Gate(name, budget=0.1)


@pytest.mark.parametrize(
    "values", [None, [], [5.0, 0.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0], [1.0, 0.0, 11.0, 0.0], [math.nan, 0.0, 0.0, 0.0]]
)
def test_an_impossible_budget_is_refused(values: object) -> None:
    with pytest.raises(InvalidState, match="Gate: state has an impossible budget"):
        restore_budget(make_budget(0.2), values, time=10)
