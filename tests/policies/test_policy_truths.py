"""True labels: a policy decides by the shifted cost, exactly as one that was told it, and keeps what it was taught."""

import json
import random
from typing import Any

import pytest

from hinge import Isotonic, Thompson, at_most, build, on_budget
from hinge.costs import shifted_cost
from hinge.errors import InvalidState
from hinge.policies import Policy, Sentinel, policy_names, restore

BINS, COST = 4, 0.3
SETTINGS: dict[str, Any] = {"bins": BINS, "horizon": 3000, "agreement": [0.5] * BINS, "history": [0], "agreed": [True]}
AGREEMENT = (0.3, 0.55, 0.75, 0.95)
MOVABLE = [name for name in policy_names() if build(name, **SETTINGS, offload_cost=COST).price_column is not None]


def made(name: str, cost: float = COST) -> Policy:
    return build(name, **SETTINGS, offload_cost=cost)


def teach(policy: Policy, disagreements: int, gain: int) -> None:
    """Labelled disagreements; remote is right in so many more of them than local."""
    for label in range(disagreements):
        policy.learn_truth(1.0, 1.0 if label < gain else 0.0)


def decisions(policy: Policy, samples: int, seed: int = 1) -> list[bool]:
    chance, offloads = random.Random(seed), []
    for _ in range(samples):
        bin, luck = chance.randrange(BINS), chance.random()
        decision = policy.decide(bin)
        offloads.append(decision.offload)
        if decision.offload:
            policy.learn(decision, luck < AGREEMENT[bin])
    return offloads


def test_most_policies_of_our_own_have_a_price_that_moves() -> None:
    assert {"isotonic", "sentinel", "hi-lcb", "hi-lcb-lite", "kl", "discounted-isotonic"} <= {*MOVABLE}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVABLE)
def test_it_decides_as_one_that_is_told_the_shifted_cost(name: str) -> None:
    taught, told = made(name), made(name, shifted_cost(COST, 90, 50))
    teach(taught, 90, 50)
    assert (taught.offload_cost, taught.shifted_cost) == (COST, 0.5)
    assert decisions(taught, 3000) == decisions(told, 3000)
    assert decisions(made(name), 3000) != decisions(made(name, 0.5), 3000)


@pytest.mark.parametrize("name", MOVABLE)
def test_what_labels_taught_is_saved(name: str) -> None:
    policy = made(name)
    decisions(policy, 500)
    teach(policy, 40, 10)
    again = restore(json.loads(json.dumps(policy.state())))
    assert again.state() == policy.state()
    assert again.shifted_cost == policy.shifted_cost != COST
    assert decisions(again, 2000, seed=2) == decisions(policy, 2000, seed=2)


@pytest.mark.parametrize("name", ["isotonic", "hi-lcb", "hi-lcb-lite", "kl"])
def test_evidence_that_came_before_the_labels_counts_at_the_shifted_cost(name: str) -> None:
    policy = made(name)
    decisions(policy, 500)
    teach(policy, 90, 50)
    state = policy.state()
    told = restore({**state, "truths": [0.0] * 3, "parameters": {**state["parameters"], "offload_cost": 0.5}})
    assert [policy.explain(bin) for bin in range(BINS)] == [told.explain(bin) for bin in range(BINS)]


def test_a_state_of_a_version_without_labels_is_read() -> None:
    policy = made("isotonic")
    decisions(policy, 500)
    older = {key: value for key, value in policy.state().items() if key != "truths"}
    assert restore(older).state() == policy.state()


@pytest.mark.parametrize(
    "truths", [None, [], [1.0], [1, 2, 0], [5, -1, 0], [5, 1, -6], [5, 1, float("nan")], ["5", 1, 0], [2**60, 0, 0]]
)
def test_impossible_labels_are_refused(truths: Any) -> None:
    with pytest.raises(InvalidState, match="true labels"):
        restore({**made("isotonic").state(), "truths": truths})


def test_budgets_hand_the_shifted_cost_on() -> None:
    def limited(cost: float) -> Policy:
        return at_most(on_budget(Isotonic(BINS, offload_cost=cost), 0.4), 0.6, 50)

    taught, told = limited(COST), limited(0.5)
    teach(taught, 90, 50)
    again = restore(json.loads(json.dumps(taught.state())))
    expected = decisions(told, 3000)
    assert decisions(taught, 3000) == expected
    assert decisions(again, 3000) == expected


def test_a_policy_whose_labels_came_before_its_budget_keeps_them() -> None:
    inner = Isotonic(BINS, offload_cost=COST)
    teach(inner, 90, 50)
    assert at_most(inner, 0.5).shifted_cost == 0.5
    assert on_budget(inner.fresh(), 0.5).shifted_cost == COST


@pytest.mark.parametrize("name", MOVABLE)
def test_a_learned_cost_takes_no_labels(name: str) -> None:
    learned = build(name, **SETTINGS, offload_cost=None)
    for policy in (learned, at_most(learned.fresh(), 0.5)):
        before = policy.state()
        with pytest.raises(TypeError, match=f"{type(learned).__name__}: true labels need a known offload cost"):
            policy.learn_truth(1.0, 0.0)
        assert (policy.state(), policy.takes_labels) == (before, False)
    assert made(name).takes_labels
    assert at_most(made(name), 0.5).takes_labels


def test_a_label_that_does_not_move_the_cost_rebuilds_nothing() -> None:
    rebuilt = []

    class Counted(Isotonic):
        def start(self, table: Any, **functions: Any) -> None:
            def counted(table: Any) -> None:
                rebuilt.append(table)
                functions["rebuilds"](table)

            super().start(table, **{**functions, "rebuilds": counted})

    policy = Counted(BINS, offload_cost=COST)
    policy.learn_truth(0.0, 0.0)  # local and remote agree
    policy.learn_truth(1.0, 1.0)
    assert (len(rebuilt), policy.state()["truths"]) == (0, [2.0, 1.0, 1.0])
    policy.learn_truth(1.0, 0.0)
    assert len(rebuilt) == 1


def test_a_budget_of_cost_counts_what_is_paid() -> None:
    policy = on_budget(Isotonic(BINS, offload_cost=COST), cost=0.1)
    teach(policy, 90, 50)
    policy.learn(policy.decide(1), agreed=True)
    assert policy.shifted_cost == 0.5
    assert policy.state()["carried"]["ledger"] == pytest.approx([0.0, COST, 0.0])


def test_a_cost_that_is_told_beforehand_is_shifted() -> None:
    taught, told = Sentinel(BINS, offload_cost=COST), Sentinel(BINS, offload_cost=0.5)
    teach(taught, 90, 50)
    chance = random.Random(3)
    for _ in range(2000):
        bin, cost, luck = chance.randrange(BINS), chance.choice((0.06, 0.3)), chance.random()
        decisions = [taught.decide(bin, cost), told.decide(bin, cost / 0.6)]
        assert decisions[0].offload == decisions[1].offload
        if decisions[0].offload:
            for policy, decision in zip((taught, told), decisions, strict=True):
                policy.learn(decision, luck < AGREEMENT[bin])


def test_where_nothing_is_worth_an_offload_nothing_is_offloaded_until_labels_say_otherwise() -> None:
    for policy in (Isotonic(BINS, offload_cost=COST), Sentinel(BINS, offload_cost=COST)):
        teach(policy, 60, 0)
        assert policy.shifted_cost == 1.0
        assert not any(decisions(policy, 200))
        teach(policy, 600, 600)
        assert any(decisions(policy, 200))


def test_what_labels_cannot_move_says_so() -> None:
    with pytest.raises(TypeError, match=r"Thompson: true labels need .* a price that can be moved"):
        Thompson(BINS, offload_cost=COST).learn_truth(1.0, 1.0)
    with pytest.raises(TypeError, match="price that can be moved"):
        at_most(Thompson(BINS, offload_cost=COST), 0.5).learn_truth(1.0, 1.0)
    for wrong in ((1.5, 0.0), (0.5, 1.5), (-0.1, 0.0)):
        with pytest.raises(ValueError, match="Isotonic"):
            Isotonic(BINS, offload_cost=COST).learn_truth(*wrong)


def test_the_explanation_goes_by_the_shifted_cost() -> None:
    policy = Isotonic(BINS, offload_cost=COST)
    for _ in range(10):
        policy.learn(policy.decide(0), agreed=False)
    teach(policy, 90, 50)
    assert "cheaper above 0.5 of them" in str(policy.explain(0))
