"""A gate behind a lock: what a device decides and learns by, from all its threads; `store` keeps one on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any, TypeVar

from hinge.gate import Gate
from hinge.policies.policy import Decision, Explanation, Policy

T = TypeVar("T")


class LockedGate:
    """A gate behind a lock. Thread-safe; what is learned is gone with the process.

    >>> gate = LockedGate(Gate(offload_cost=0.5))
    >>> gate.learn(gate.decide(0.8), agreed=True, cost=0.5)
    >>> gate.policy.learned
    1
    """

    on_disk = another_local = False
    damage: str | None = None  # what was found damaged, and what became of it

    def __init__(self, gate: Gate) -> None:
        self.lock = RLock()  # of the gate; a signal handler may ask, too
        self.gate = gate

    @property
    def policy(self) -> Policy:
        """The policy of the gate, to read."""
        return self.gate.policy

    @property
    def problem(self) -> str | None:
        """Why what is learned now may be lost, though it should be on disk; None: all is well."""
        return None

    def decide(self, confidence: float, cost: float | None = None) -> Decision:
        """Decide as the gate does; an offload under a budget is written down before it can be made."""
        with self.lock:
            decision = self.gate.decide(confidence=confidence, cost=cost)
            if decision.time is None:  # accepted
                return decision
            version = self._changed()
        if self.gate.budget is not None:
            self._save(version)
        return decision

    def decide_many(self, confidences: Sequence[float], costs: Sequence[float | None] | None = None) -> list[Decision]:
        """Decide for a batch at once, as the gate does one by one."""
        told = costs or [None] * len(confidences)
        with self.lock:
            pairs = zip(confidences, told, strict=True)
            decisions = [self.gate.decide(confidence=confidence, cost=cost) for confidence, cost in pairs]
            if all(decision.time is None for decision in decisions):
                return decisions
            version = self._changed()
        if self.gate.budget is not None:
            self._save(version)
        return decisions

    def learn(self, decision: Decision, agreed: float | None, cost: float) -> None:
        """Learn as the gate does, and write it down; `benchmarks/store.py` measures what that adds."""
        self.apply(lambda gate: gate.learn(decision, agreed, cost))

    def forget(self, decision: Decision, cost: float = 0.0) -> None:
        """Expect no feedback for a decision any more; written down with what comes next."""
        with self.lock:
            self.gate.forget(decision, cost)
            self._changed()

    def apply(self, change: Callable[[Gate], T]) -> T:
        """Return what a function returns that changes the gate as `learn` does; written down as that is."""
        with self.lock:
            found = change(self.gate)
            version = self._changed()
        self._save(version)
        return found

    def locked(self, function: Callable[[Gate], T]) -> T:
        """Return what the function returns for the gate, while no other thread decides or learns."""
        with self.lock:
            return function(self.gate)

    def explain(self, confidence: float) -> Explanation:
        """Say why the next sample of a confidence would be accepted or offloaded, as the gate says it."""
        with self.lock:
            return self.gate.explain(confidence)

    def merge(self, *states: Mapping[str, Any]) -> None:
        """Add the evidence in the states of other gates; if one is refused, none is added."""

        def merge_all(gate: Gate) -> None:
            for state in states:
                gate.merge(state)

        self.locked(lambda gate: merge_all(copy_of(gate)))  # what is refused changes nothing
        self.apply(merge_all)

    def warning(self) -> str | None:
        """Say what the policy cannot keep at present."""
        with self.lock:
            return self.policy.warning

    def learns_from(self, local: str | None) -> None:
        """Name the local model that is learned from by now, by the digest of its file; None: not known."""

    def close(self) -> None:
        """Release what the store holds."""

    def _changed(self) -> int:
        """The gate was changed; returns how often it was. Needs `lock`."""
        return 0

    def _save(self, version: int) -> None:
        """Write that version of the gate, or a later one, where there is a disk."""


def copy_of(gate: Gate) -> Gate:
    """Return a gate that knows as much, to try or to read while the other goes on."""
    return Gate.restore(gate.state(), bins=gate.bins, confidence=gate.confidence)
