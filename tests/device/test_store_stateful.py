"""R8: decide, learn, late, twice, crash, reload, merge, in any order, beside a model that remembers states."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hinge import Decision
from hinge.device.store import Store, read
from hinge.errors import InvalidDecision
from hinge.policies import Need
from tests.device.disks import image, lay
from tests.device.streams import GATES, peer, text


class Kept(RuleBasedStateMachine):
    """The store against the states that the policy was in when it was last written."""

    @initialize(name=st.sampled_from(list(GATES)))
    def start(self, name: str) -> None:
        self.folder, self.name, self.lives = TemporaryDirectory(), name, 0
        self.store = Store(Path(self.folder.name) / "0", GATES[name](), seconds=None)
        self.waiting: list[Decision] = []
        self.told: list[Decision] = []
        self.remember()

    def remember(self) -> None:
        """The state is written."""
        self.last = text(self.store.gate.state())

    @rule(confidences=st.lists(st.floats(0, 1), min_size=1, max_size=12), batch=st.booleans())
    def decide(self, confidences: list[float], batch: bool) -> None:
        many, one = self.store.decide_many, self.store.decide
        decisions = many(confidences) if batch else [one(confidence) for confidence in confidences]
        self.waiting += [decision for decision in decisions if decision.time is not None]
        assert self.store.sync()
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
        assert self.store.sync()
        self.remember()

    @precondition(lambda self: self.told)
    @rule(which=st.integers(0, 10**6))
    def learn_twice(self, which: int) -> None:
        with pytest.raises(InvalidDecision):
            self.store.learn(self.told[which % len(self.told)], True, 0.5)

    @precondition(lambda self: "offloads" in self.store.policy.evidence)
    @rule(seed=st.integers(0, 3))
    def merge(self, seed: int) -> None:
        self.store.merge(peer(self.store.gate, seed))
        self.remember()

    @rule()
    def crash(self) -> None:
        self.lives += 1
        self.open(lay(Path(self.folder.name) / str(self.lives), image(self.store.folder)))

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.remember()
        self.open(self.store.folder)

    def open(self, folder: Path) -> None:
        self.store = Store(folder, GATES[self.name](), seconds=None)
        assert text(self.store.gate.state()) == self.last
        assert self.store.damage is None

    @invariant()
    def is_durable(self) -> None:
        if hasattr(self, "store"):
            assert self.store.sync()
            assert text(read(self.store.folder).gate) == self.last

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestKept = pytest.mark.slow(Kept.TestCase)
TestKept.settings = settings(max_examples=60, stateful_step_count=25)
