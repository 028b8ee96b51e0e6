"""A shared budget: what all accounts spend together is bounded, whatever becomes of what they tell each other."""

import random
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge import Gate, InvalidState, Isotonic, Sentinel, at_most
from hinge.policies import SharedBudget, restore
from hinge.policies.shared_budget import ACCOUNTS, START

BINS = 4


def shared(offloads: float = 0.05, cost: float | None = 0.1) -> SharedBudget:
    return SharedBudget(Sentinel(BINS, cost), offloads)


def run(policy: SharedBudget, bins: list[int], agreed: bool = False) -> int:
    offloads = 0
    for bin in bins:
        decision = policy.decide(bin)
        if decision.offload:
            offloads += 1
            policy.learn(decision, agreed, 0.1)
    return offloads


@pytest.mark.parametrize("offloads", [0.0, 0.05, 0.3, 1.0])
def test_alone_it_is_a_budget_of_its_own(offloads: float) -> None:
    policy, spent = shared(offloads), 0
    for time in range(1, 4001):
        spent += run(policy, [0])
        assert spent <= offloads * time + START
        assert policy.balance == pytest.approx(offloads * time + START - spent)
    assert spent >= min(4000, offloads * 4000 + START - 10)  # of samples that local never gets right


def test_the_price_is_what_is_missing_from_what_devices_hold_on_average() -> None:
    policy = shared()
    run(policy, [3] * 1000, agreed=True)
    held, full = policy.balance, START + 2 * sqrt(1010)
    policy.hear(0.0, 110.0, 2)
    run(policy, [3] * 10, agreed=True)
    assert policy.price == pytest.approx(0.9 * (1 - (held + 0.5 + 110) / 3 / full), abs=0.011)
    policy.hear(0.0, 1e9, 2)
    run(policy, [3] * 10, agreed=True)
    assert policy.price == 0.0


def test_a_higher_price_lets_fewer_bins_be_offloaded() -> None:
    taught = random.Random(1)

    def offloads(others_hold: float) -> list[int]:
        policy, counts = shared(1.0, 0.1), [0] * BINS
        policy.cede({1: 0})
        for _ in range(4000):
            policy.hear(0.0, others_hold - 1e4 * policy.balance, 9999)  # so that the price is theirs alone
            bin = taught.randrange(BINS)
            decision = policy.decide(bin)
            if decision.offload:
                counts[bin] += 1
                policy.learn(decision, taught.random() < (0.1, 0.4, 0.7, 0.99)[bin])
        return counts

    cheap, dear = offloads(1e9), offloads(0.0)
    assert cheap[1] > 800
    assert sum(dear) <= START + 10  # until the first review


def test_a_price_that_falls_is_heeded_at_once() -> None:
    policy = shared(1.0, 0.1)
    run(policy, [1] * 300)
    policy.hear(0.0, -1e9, 1)
    assert run(policy, [1] * 100) <= 10
    policy.hear(0.0, 1e9, 1)
    assert run(policy, [1] * 100) >= 90


def test_ceded_credits_cannot_be_spent_and_received_ones_can() -> None:
    giver, taker = shared(), shared()
    giver.cede({7: 15})
    giver.cede({7: 100})  # more than it holds: nothing
    assert (giver.balance, giver.granted, giver.ceded) == (5.0, {7: 15}, 15)
    taker.hear(15.0, 0.0, 0)
    taker.hear(9.0, 0.0, 0)  # older news
    assert taker.balance == 35.0
    assert run(giver, [0] * 100) <= 10
    assert 30 <= run(taker, [0] * 100) <= 40
    with pytest.raises(ValueError, match="credits must be for 8 accounts"):
        giver.cede(dict.fromkeys(range(1, ACCOUNTS + 2), 0))
    with pytest.raises(ValueError, match="credits must be for 8 accounts"):
        giver.cede({1: -1})
    with pytest.raises(ValueError, match="none of them 0"):
        giver.cede({7: 1, 0: 1})
    assert giver.ceded == 15


def test_an_account_that_gets_nothing_now_makes_room_for_another() -> None:
    policy = shared()
    policy.cede(dict.fromkeys(range(1, ACCOUNTS + 1), 1))
    policy.cede({99: 2, 3: 1})
    assert policy.granted[99] == 2
    assert policy.granted[3] == 2
    assert len(policy.granted) == ACCOUNTS
    assert policy.ceded == ACCOUNTS + 3


@settings(max_examples=50)
@given(bins=st.lists(st.integers(0, BINS - 1), max_size=200), heard=st.floats(0, 50), seed=st.integers(0, 9))
def test_a_restored_one_goes_on_bit_by_bit(bins: list[int], heard: float, seed: int) -> None:
    policy, chance = shared(0.2), random.Random(seed)
    policy.hear(heard, 40.0, 3)
    policy.cede({5: 3})
    for bin in bins:
        decision = policy.decide(bin)
        if decision.offload and chance.random() < 0.9:
            policy.learn(decision, chance.random() < 0.5)
    for bin in range(BINS):
        policy.explain(bin)  # changes nothing
    other = restore(policy.state())
    assert isinstance(other, SharedBudget)
    assert other.state() == policy.state()
    assert [other.decide(bin).offload for bin in bins] == [policy.decide(bin).offload for bin in bins]
    assert other.state() == policy.state()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("ledger", [0, 1, 0, 0, 0, 0]),  # an offload before the first sample
        ("ledger", [0, 0, 21, 0, 0, 0]),
        ("ledger", [0, 0, -1, 0, 0, 0]),
        ("granted", [1] * ACCOUNTS),
        ("reviewed", [1]),
    ],
)
def test_an_impossible_account_is_refused(field: str, values: list[float]) -> None:
    state = shared().state()
    state["carried"][field] = values
    with pytest.raises(InvalidState):
        restore(state)


def test_a_learned_cost_counts_with_the_price() -> None:
    policy = shared(1.0, None)
    for _ in range(40):
        decision = policy.decide(0)
        if decision.offload:
            policy.learn(decision, agreed=False, cost=0.3)
    assert policy.price_with_cost == pytest.approx(0.3 + policy.price)


def test_why_says_price_and_credits() -> None:
    fresh, spent, dry = shared(), shared(), shared()
    assert str(fresh.explain(2)).startswith("Bin 2 is offloaded: no offload of it seen yet, and an offload costs 0.1;")
    assert fresh.explain(2).offload_probability == 1.0
    run(spent, [0] * 30)
    spent.hear(0.0, -1e9, 1)
    run(spent, [0] * 20)
    assert "Bin 0 is accepted: local agreed in 0 of" in str(spent.explain(0))
    assert "and an offload costs 1; the price for 0.05 offloads a sample" not in str(fresh.explain(0))
    agreeing = shared()
    assert run(agreeing, [3] * 5, agreed=True) == 5
    assert "local agreed in 5 of 5 offloads" in str(agreeing.explain(3))
    dry.cede({1: 20})
    why = "Bin 0 is accepted: nothing is left to spend; the price for 0.05 offloads a sample, together, is 0"
    assert str(dry.explain(0)).startswith(why)
    assert dry.exhausted


def test_what_can_be_inside() -> None:
    assert SharedBudget(at_most(Sentinel(BINS, 0.1), 0.2)).takes_labels
    assert Gate(shared()).decide([0.0, 1.0]).offload
    with pytest.raises(TypeError, match="told a cost, as 'sentinel' can"):
        SharedBudget(Isotonic(BINS, offload_cost=0.1))


def test_true_labels_shift_the_cost_inside() -> None:
    policy = shared(1.0, 0.3)
    for _ in range(40):
        policy.learn_truth(disagreement=1, gain=0)  # the remote is never worth it
    assert policy.price_with_cost >= 1.0
    assert run(policy, [0] * 100) == 0
