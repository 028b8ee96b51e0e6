"""Decide, learn, late, twice, crash, reload, merge, roll back, in any order, beside a model that remembers states."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hinge import Decision, InvalidDecision, InvalidState, Need
from hinge.device.storage.past import KEPT
from hinge.device.storage.recovery import generations
from hinge.device.storage.store import Store
from tests.device.disks import QuickDisk
from tests.device.pasts import Pasts
from tests.device.streams import BINS, POLICIES
from tests.device.test_store import crash, peer, text


class Kept(RuleBasedStateMachine):
    """The store against the states that the policy was in when a record or a snapshot was last written."""

    @initialize(name=st.sampled_from(list(POLICIES)))
    def start(self, name: str) -> None:
        self.folder = TemporaryDirectory()
        self.store = Store(Path(self.folder.name), POLICIES[name](), seconds=None, disk=QuickDisk())
        self.waiting: list[Decision] = []
        self.told: list[Decision] = []
        self.pasts = Pasts(self.store.generation or 0)
        self.remember()

    def remember(self) -> None:
        self.last = text(self.store.policy.state())

    def renewed(self, before: int | None, end: str, why: str | None) -> None:
        if self.store.generation != before:
            self.pasts.begin(self.store.generation or 0, end, why)
            self.remember()

    @rule(bins=st.lists(st.integers(0, BINS - 1), min_size=1, max_size=12), batch=st.booleans())
    def decide(self, bins: list[int], batch: bool) -> None:
        for decision in self.store.decide_many(bins) if batch else []:
            self.waiting += [decision] if decision.time is not None else []
        for bin in [] if batch else bins:
            written = self.store._written
            decision = self.store.decide(bin)
            self.waiting += [decision] if decision.time is not None else []
            if self.store._written > written:
                self.remember()
        if batch:
            self.store._append(3, False, 0, self.store.policy.time)  # what close() writes: the clock
            self.remember()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 10**6), agreed=st.floats(0, 1), cost=st.floats(0, 1))
    def learn(self, which: int, agreed: float, cost: float) -> None:
        decision = self.waiting.pop(which % len(self.waiting))
        told = decision.offload or Need.AGREEMENT in self.store.policy.needs
        self.store.learn(decision, agreed if told else None, cost)
        self.told.append(decision)
        self.remember()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 10**6))
    def forget(self, which: int) -> None:
        decision = self.waiting.pop(which % len(self.waiting))
        self.store.forget(decision)
        self.told.append(decision)
        self.remember()

    @precondition(lambda self: self.told)
    @rule(which=st.integers(0, 10**6))
    def learn_twice(self, which: int) -> None:
        with pytest.raises(InvalidDecision):
            self.store.learn(self.told[which % len(self.told)], True, 0.5)

    @rule(seed=st.integers(0, 3))
    def merge(self, seed: int) -> None:
        before, state = self.store.generation, self.last
        self.store.merge(peer(self.store.policy, seed))
        self.renewed(before, state, "merge")

    @rule()
    def snapshot(self) -> None:
        before, state = self.store.generation, self.last
        self.store._renew()
        self.renewed(before, state, None)

    @rule()
    def crash(self) -> None:
        folder, before = self.store.folder, self.store.generation
        crash(self.store)
        self.store = Store(folder, seconds=None, disk=QuickDisk())
        assert text(self.store.policy.state()) == self.last
        assert not self.store.found.notes
        self.renewed(before, self.last, "start")

    @rule()
    def roll_back(self) -> None:
        earlier = self.pasts.earlier(text(self.store.policy.state()))
        if earlier is None:
            with pytest.raises(InvalidState):
                self.store.rollback()
            return
        assert self.store.rollback().generation == earlier
        assert text(self.store.policy.state()) == self.pasts.ends[earlier]
        self.pasts.go_back(earlier, self.store.generation or 0)
        self.waiting, self.told = [], []  # of another past
        self.remember()

    @invariant()
    def is_durable(self) -> None:
        assert not hasattr(self, "store") or self.store.sync()

    @invariant()
    def keeps_what_may_be_gone_back_to(self) -> None:
        if hasattr(self, "store"):
            held = generations([path.name for path in self.store.folder.iterdir()])
            assert {self.store.generation, *self.pasts.ends} == set(held)
            assert len(held) <= 2 + 2 * KEPT

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=60, stateful_step_count=25)
