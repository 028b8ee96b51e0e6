"""Failures cost too: what is spent for each answer, against brute force; and what failures leave alone."""

import random

import pytest

from hinge import Isotonic, Sentinel, build
from hinge.errors import InvalidState
from hinge.policies import at_most, on_budget
from hinge.policies.policy import restore

SETTINGS = {"bins": 4, "offload_cost": None, "horizon": 1000, "seed": 1, "memory": 10_000}
LEARNING = ["hi-lcb", "hi-lcb-lite", "isotonic", "kl", "sentinel", "discounted-hi-lcb", "discounted-isotonic"]


@pytest.mark.parametrize("name", LEARNING)
def test_answers_are_charged_for_the_failures_before_them(name: str) -> None:
    policy, charged = build(name, **SETTINGS), build(name, **SETTINGS)
    chance, owed = random.Random(3), 0.0
    for _ in range(60):
        bin = chance.randrange(4)
        decision, twin = policy.decide(bin), charged.decide(bin)
        assert decision.offload == twin.offload
        if not decision.offload:
            continue
        cost = chance.choice((0.25, 0.5, 1.0))
        if chance.random() < 0.3:
            policy.forget(decision, cost)
            charged.forget(twin)
            owed += cost
        else:
            agreed = chance.random() < 0.7
            policy.learn(decision, agreed, cost)
            charged.learn(twin, agreed, min(1.0, cost + owed))
            owed -= min(1.0, cost + owed) - cost
        assert policy.state()["evidence"] == charged.state()["evidence"]
        assert policy.state()["owed"] == owed


def best(agreement: float, fails: float, cost: float, fail_cost: float) -> bool:
    """Whether always offloading beats always accepting, by trying both on many samples."""
    chance, offloaded, accepted = random.Random(5), 0.0, 0.0
    for _ in range(40_000):
        wrong, failed = chance.random() >= agreement, chance.random() < fails
        accepted += wrong
        offloaded += fail_cost + wrong if failed else cost
    return offloaded < accepted


@pytest.mark.parametrize(
    ("agreement", "fails", "cost", "fail_cost"),
    [(0.6, 0.2, 0.3, 1.0), (0.3, 0.2, 0.3, 1.0), (0.6, 0.0, 0.3, 1.0), (0.8, 0.5, 0.1, 0.3), (0.4, 0.5, 0.1, 0.3)],
)
def test_a_learned_cost_leads_to_the_best_decisions(
    agreement: float, fails: float, cost: float, fail_cost: float
) -> None:
    chance, policy, offloads = random.Random(6), Sentinel(1), 0
    for time in range(12_000):
        decision = policy.decide(0)
        if decision.offload:
            offloads += time >= 8_000
            if chance.random() < fails:
                policy.forget(decision, fail_cost)
            else:
                policy.learn(decision, chance.random() < agreement, cost)
    answers, spent, _ = policy.state()["evidence"]["costs"]
    assert spent / answers == pytest.approx(cost + fail_cost * fails / (1 - fails), abs=0.05)
    share = offloads / 4_000
    assert share > 0.95 if best(agreement, fails, cost, fail_cost) else share < 0.15


@pytest.mark.parametrize("name", LEARNING)
def test_a_remote_that_fails_at_first_is_asked_again(name: str) -> None:
    chance, policy, answered = random.Random(7), build(name, **SETTINGS), 0
    for time in range(3_000):
        decision = policy.decide(2)
        if decision.offload and time < 20:
            policy.forget(decision, 1.0)
        elif decision.offload:
            policy.learn(decision, chance.random() < 0.1, 0.2)
            answered += 1
    assert answered > 1_500


@pytest.mark.parametrize("name", ["isotonic", "hedge-hi", "sentinel"])
def test_failures_teach_nothing_where_the_cost_is_known(name: str) -> None:
    policy = build(name, bins=4, offload_cost=0.5, horizon=1000, seed=1)
    twin = restore(policy.state())
    for _ in range(10):
        decision, same = policy.decide(2), twin.decide(2)
        if decision.offload:
            policy.forget(decision, 0.9)
            twin.forget(same)
    assert policy.state() == twin.state()


def test_what_is_owed_is_saved_and_restored() -> None:
    policy = Isotonic(4)
    policy.forget(policy.decide(1), 0.75)
    restored = Isotonic.restore(policy.state())
    for each in (policy, restored):
        each.learn(each.decide(1), True, 0.25)
    assert restored.state() == policy.state()
    assert policy.state()["owed"] == 0.0
    for owed in (-1, 5.0, "1", float("nan"), None, True):
        with pytest.raises(InvalidState, match="owes"):
            Isotonic.restore({**policy.state(), "owed": owed})


@pytest.mark.parametrize("cost", [-0.1, 1.5, "1"])
def test_a_wrong_cost_is_refused_and_the_decision_still_waits(cost: float) -> None:
    policy = Isotonic(4)
    decision = policy.decide(1)
    with pytest.raises((TypeError, ValueError), match="cost"):
        policy.forget(decision, cost)
    policy.learn(decision, True, 0.5)


def test_a_budget_books_a_failure_once() -> None:
    """A failed offload stays booked as 1, an answer as what it cost itself, whatever it is charged for learning."""
    policies = [on_budget(Isotonic(4), cost=0.1), at_most(on_budget(Isotonic(4), cost=0.1), offloads=0.9, window=10)]
    for policy in policies:
        policy.forget(policy.decide(1), 0.5)
        policy.learn(policy.decide(1), True, 0.25)
        ledger = policy.state()["carried"]["ledger" if policy is policies[0] else "inner.ledger"]
        assert ledger[1] - ledger[2] == 1.0 + 0.25
        assert policy.state()["evidence"]["costs"][1] == 0.75
