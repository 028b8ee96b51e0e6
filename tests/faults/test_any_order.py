"""R8: a whole device, in any order: samples, batches, faults that come and go, crashes, restarts.

Beside it runs a gate that is only told what the answers say. `tests/device/test_store_stateful.py` does the same to
the store alone, with late and double feedback and with merges, whose laws the conformance suite has for every policy.
"""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hinge import Breaker, Device, FixedCost, Gate
from hinge.errors import RemoteLate, RemoteUnreachable
from hinge.remotes import Reply
from tests.device.disks import image, lay, stores_of_devices
from tests.device.worlds import LOCAL, Scripted, policy, true_label
from tests.faults.counts import either

OUTCOMES = [
    None,  # the truth
    RemoteUnreachable("cannot be reached"),
    RemoteLate("no answer in time"),
    ValueError("anything"),
    Reply([]),
]
COST = 0.2
GATES: dict[str, Callable[[], Gate]] = {
    "16 bins": lambda: Gate(policy(offload_cost=COST)),
    "fitted": lambda: Gate(offload_cost=COST),
    "budget": lambda: Gate(offload_cost=COST, budget=0.3),
    "measured": Gate,
}
ROWS = st.integers(0, 500)
LIVED = {"lives": 0, "steps": 0}


def text(gate: Gate) -> str:
    return json.dumps(gate.state(), sort_keys=True)


class Lived(RuleBasedStateMachine):
    """A device against a gate that learns what the answers tell."""

    @initialize(name=st.sampled_from(sorted(GATES)))
    def start(self, name: str) -> None:
        self.name, self.folder, self.remote, self.lives = name, TemporaryDirectory(), Scripted(), 0
        self.open(Path(self.folder.name) / "0")
        self.twin = Gate.restore(self.device.state())
        self.remember()

    def open(self, folder: Path) -> None:
        breaker = Breaker(failures=3, interval_s=3600)
        self.remote = Scripted(rest=self.turned)
        with pytest.MonkeyPatch.context() as patch:
            stores = stores_of_devices(patch)
            self.device = Device(
                LOCAL,
                self.remote,
                GATES[self.name](),
                price=FixedCost(COST),
                state=folder,
                breaker=breaker,
                batch=3,
                in_flight=1,  # so that it learns in the order of samples
            )
        (self.store,) = stores

    turned: Any = None  # how the remote answers

    def remember(self) -> None:
        """What a crash would leave: the state as it was last written."""
        assert self.store.sync()
        self.last = text(self.twin)

    @rule(outcome=st.sampled_from(range(len(OUTCOMES))))
    def turn(self, outcome: int) -> None:
        self.turned = OUTCOMES[outcome]
        self.remote.turn(self.turned)

    @rule(sample=ROWS)
    def infer(self, sample: int) -> None:
        self.check([sample], [self.device.infer(sample)])

    @rule(samples=st.lists(ROWS, max_size=10))
    def infer_many(self, samples: list[int]) -> None:
        self.check(samples, self.device.infer_many(samples, together=True))

    def check(self, samples: list[int], answers: list[Any]) -> None:
        decisions = [self.twin.decide(confidence=answer.confidence) for answer in answers]
        for sample, answer, decision in zip(samples, answers, decisions, strict=True):
            label, _ = LOCAL.answer(sample)
            assert answer.decision == decision
            assert answer.label == (true_label(sample) if answer.source == "remote" else label)
            assert (answer.fault is None) == (answer.source == "remote" or not decision.offload)
            if answer.source == "remote":
                self.twin.learn(decision, agreed=label == answer.label, cost=answer.cost)
            elif decision.offload:
                self.twin.forget(decision, answer.cost)
        self.remember()

    @rule()
    def crash(self) -> None:
        """The process is killed, and started again."""
        self.lives += 1
        self.open(lay(Path(self.folder.name) / str(self.lives), image(self.store.folder)))
        self.twin = Gate.restore(json.loads(self.last))

    @rule()
    def restart(self) -> None:
        self.device.close()
        self.open(self.store.folder)

    @precondition(lambda self: hasattr(self, "device"))
    @invariant()
    def is_as_the_twin(self) -> None:
        LIVED["steps"] += 1
        assert text(self.device.gate) == text(self.twin)
        assert self.store.sync()
        assert self.store.damage is None

    def teardown(self) -> None:
        if hasattr(self, "device"):
            self.device.close()
            self.folder.cleanup()
            LIVED["lives"] += 1


TestR8InAnyOrder = Lived.TestCase
TestR8InAnyOrder.settings = settings(max_examples=either(30, 500), stateful_step_count=25)
