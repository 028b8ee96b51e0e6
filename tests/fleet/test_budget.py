"""One budget for a fleet: it holds whatever becomes of messages and devices, and credits go where they are used."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge import Sentinel
from hinge.fleet.budget import MOST, TO_ONE, Account, account_of
from hinge.fleet.messages import Statement
from hinge.policies import SharedBudget, restore
from hinge.policies.policy import MOST_SAMPLES, State
from hinge.policies.shared_budget import ACCOUNTS, START, full_at

BINS, SHARE = 3, 0.1


def policy() -> SharedBudget:
    return SharedBudget(Sentinel(BINS, 0.05), SHARE)


class World:
    """Devices that run, publish, hear any message of any time, crash and lose their state, and what they did in all."""

    def __init__(self, devices: int) -> None:
        self.policies = [policy() for _ in range(devices)]
        self.accounts = [Account(f"d{i}", each) for i, each in enumerate(self.policies)]
        self.saved: list[State] = [each.state() for each in self.policies]
        self.published: list[list[Statement]] = [[] for _ in range(devices)]
        self.samples, self.offloads, self.opened = 0, 0, devices

    def run(self, device: int, count: int, bin: int) -> None:
        """Samples that local never gets right; an offload is on disk before it is made."""
        each = self.policies[device]
        for _ in range(count):
            decision = each.decide(bin)
            self.samples += 1
            if decision.offload:
                self.offloads += 1
                self.saved[device] = each.state()
                each.learn(decision, agreed=False)
            self.check()

    def publish(self, device: int, credits: int, to: int) -> None:
        """Cede by the rules, and any number besides; it is on disk before it is published."""
        each, account = self.policies[device], self.accounts[device]
        others = {f"d{i}": said[-1] for i, said in enumerate(self.published) if said and i != device}
        gifts = account.gifts(account.statement(each), each.time, others)
        each.cede(gifts)
        account.ceded(gifts, others)
        each.cede({int(self.accounts[to].id, 16): credits})
        self.saved[device] = each.state()
        self.published[device].append(account.statement(each))

    def hear(self, device: int, source: int, number: int) -> None:
        said = self.published[source]
        if said and source != device:
            each, account = self.policies[device], self.accounts[device]
            account.hear(f"d{source}", said[number % len(said)])
            each.hear(*account.heard(each.time, [said[-1] for said in self.published if said]))
            self.check()

    def restart(self, device: int, keeps_state: bool) -> None:
        restored: Any = restore(self.saved[device]) if keeps_state else policy()
        self.policies[device] = restored
        self.opened += not keeps_state
        self.saved[device] = restored.state()
        self.accounts[device] = Account(f"d{device}", restored)

    def check(self) -> None:
        assert self.offloads <= SHARE * self.samples + START * self.opened


devices = st.integers(0, 3)
actions = st.one_of(
    st.tuples(st.just(World.run), devices, st.integers(1, 60), st.integers(0, BINS - 1)),
    st.tuples(st.just(World.publish), devices, st.integers(0, 30), devices),
    st.tuples(st.just(World.hear), devices, devices, st.integers(0, 20)),
    st.tuples(st.just(World.restart), devices, st.booleans()),
)


@pytest.mark.medium
@settings(max_examples=150, deadline=None)
@given(st.lists(actions, max_size=60))
def test_no_loss_order_repetition_crash_or_lost_state_breaks_the_bound(steps: list[tuple[Any, ...]]) -> None:
    world = World(4)
    for action, *arguments in steps:
        act: Callable[..., None] = action
        act(world, *arguments)


def test_credits_go_to_who_offloads_most() -> None:
    hard, easy = World(4), range(1, 4)
    for _ in range(40):
        hard.run(0, 50, 0)
        for device in easy:
            hard.policies[device].time += 50
            hard.samples += 50
        for device in range(4):
            hard.publish(device, 0, 0)
            for other in range(4):
                hard.hear(device, other, -1)
    spent = hard.policies[0].offloaded
    assert spent > 2.5 * SHARE * 2000  # of 4 × 200 that all have earned
    assert max(hard.policies[device].balance for device in easy) < 5 * START


def statement(balance: int = 0, spent: int = 0, account: str = "0" * 14 + "1", **granted: int) -> Statement:
    return Statement(account, balance, spent, granted)


def by_device(*said: Statement) -> dict[str, Statement]:
    """Statements of as many devices."""
    return {f"device of {each.account}": each for each in said}


def rich(samples: int = 2000) -> tuple[Account, Statement]:
    each = policy()
    each.time = samples
    account = Account("hall", each)
    return account, account.statement(each)


def test_a_statement_is_due_when_the_balance_has_changed_enough() -> None:
    account, own = rich()
    assert account.due(own, 2000)
    account.told = own
    assert not account.due(own, 2000)
    most = 2000 * SHARE / 6
    assert not account.due(Statement(own.account, own.balance - int(most), 0, {}), 2000)
    assert account.due(Statement(own.account, own.balance - int(most) - 1, 0, {}), 2000)
    assert account.due(Statement(own.account, own.balance, 0, {"0" * 15: 1}), 2000)


def test_what_is_stated_is_within_reason() -> None:
    account, own = rich(10**6)
    assert own.balance == int(MOST * full_at(10**6))
    assert account.heard(100, [statement(MOST_SAMPLES)]) == (0.0, MOST * full_at(100), 1)


def test_nobody_receives_more_from_a_device_than_a_part_of_what_one_has_earned() -> None:
    account, _ = rich()
    for number in range(3 * ACCOUNTS):  # by however many accounts
        account.hear("liar", Statement(f"{number:015x}", 0, 0, {account.id: MOST_SAMPLES}))
    assert account.heard(1000, [])[0] == SHARE * 1000
    assert account.heard(1000, [statement()] * 5)[0] == pytest.approx(0.6 * SHARE * 1000)
    assert account.heard(1000, [statement()] * 50)[0] == TO_ONE * SHARE * 1000
    assert account.heard(1000, [])[0] == TO_ONE * SHARE * 1000  # though it hears nobody now
    account.hear("other", Statement("f" * 15, 0, 0, {account.id: 7, "0" * 15: 9}))
    assert account.heard(1000, [])[0] == TO_ONE * SHARE * 1000 + 7


def test_who_says_to_lack_most_gets_no_more_than_who_does() -> None:
    account, own = rich()
    hard, liar = statement(0, 220), statement(0, MOST_SAMPLES, "0" * 14 + "2")
    gifts = account.gifts(own, 2000, by_device(hard, liar))
    assert gifts[1] == gifts[2]
    assert sum(gifts.values()) <= own.balance - START
    friend = statement(0, 0, "0" * 14 + "3", **{"0" * 14 + "2": MOST_SAMPLES})  # vouches for what it can have ceded
    gifts = account.gifts(own, 2000, by_device(hard, liar, friend))
    assert gifts[2] == pytest.approx(gifts[1] * 421 / 221, abs=2)


def test_gifts_are_for_those_that_lack_and_of_many_for_some() -> None:
    account, own = rich()
    many = [statement(0, 200, f"{number:015x}") for number in range(1, 100)]
    gifts = account.gifts(own, 2000, by_device(*many))
    assert len(gifts) == ACCOUNTS
    assert own.balance - START - ACCOUNTS < sum(gifts.values()) <= own.balance - START
    account.heard(2000, many)
    assert max(account.gifts(own, 2000, by_device(*many[:2])).values()) <= TO_ONE * SHARE * 2000
    before = Statement(own.account, own.balance, 0, {f"{number:015x}": 1 for number in range(50, 50 + ACCOUNTS)})
    assert set(account.gifts(before, 2000, by_device(*many))) == set(range(50, 50 + ACCOUNTS))
    busy = Statement(own.account, own.balance, 300, {})
    assert account.gifts(busy, 2000, by_device(statement(500, 0))) == {}
    assert account.gifts(own, 2000, {}) == account.gifts(own, 2000, by_device(own)) == {}


def test_a_liar_that_opens_account_after_account_gets_no_more_than_with_one() -> None:
    giver = policy()
    account, lost = Account("hall", giver), 0
    honest = by_device(*(statement(100, 100, f"{number:015x}") for number in range(1, 21)))
    for number in range(100):
        giver.time += 100
        account.heard(giver.time, honest.values())
        others = honest | {"liar": statement(0, MOST_SAMPLES, f"{1000 + number:015x}")}
        gifts = account.gifts(account.statement(giver), giver.time, others)
        giver.cede(gifts)
        account.ceded(gifts, others)
        lost += gifts.get(1000 + number, 0)
    assert 0 < lost <= TO_ONE * SHARE * giver.time


def test_a_copy_of_a_state_has_another_account() -> None:
    assert len({account_of("a", "1"), account_of("b", "1"), account_of("a", "2")}) == 3
