"""A gate's policy behind a lock: what a device decides and learns by, from all its threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from hinge.errors import InvalidState
from hinge.gate import Gate, policy_state, unsealed
from hinge.policies.policy import Decision, Decisions, Explanation, Policy, State, restore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


class LockedPolicy:
    """A gate's policy behind a lock. Thread-safe; what is learned is gone with the process.

    >>> from hinge import Gate
    >>> policy = LockedPolicy(Gate(offload_cost=0.5))
    >>> policy.learn(policy.decide(12), agreed=True)
    >>> policy.locked(lambda policy: policy.learned)
    1
    """

    on_disk = another_local = False
    damage: str | None = None  # what was found damaged, and what became of it

    def __init__(self, gate: Gate) -> None:
        self.lock = RLock()  # of the policy; a signal handler may ask, too
        self.gate: Gate | None = gate
        self.policy: Policy = gate.policy
        self._described: State = gate.description()  # of bins and confidence measure

    @property
    def problem(self) -> str | None:
        """Why what is learned now may be lost, though it should be on disk; None: all is well."""
        return None

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        """Decide as the policy does; an offload under a budget is written down before it can be made."""
        with self.lock:
            decision = self.policy.decide(bin) if cost is None else self.policy.decide(bin, cost)
            if decision.time is None:  # accepted
                return decision
            version = self._changed()
        if self.policy.spent:
            self._save(version)
        return decision

    def decide_many(
        self, bins: Iterable[int] | NDArray[np.integer[Any]], costs: Iterable[float | None] | None = None
    ) -> Decisions:
        """Decide for a batch at once, as the policy does."""
        with self.lock:
            batch = self.policy.decide_many(bins) if costs is None else self.policy.decide_many(bins, costs)
            if not (batch.offload.any() or (batch.accepted_wait and len(batch))):
                return batch
            version = self._changed()
        if self.policy.spent:
            self._save(version)
        return batch

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Learn as the policy does, and write it down; `benchmarks/store.py` measures what that adds."""
        self.apply(lambda policy: policy.learn(decision, agreed, cost))

    def forget(self, decision: Decision, cost: float = 0.0) -> None:
        """Expect no feedback for a decision any more; written down with what comes next."""
        with self.lock:
            self.policy.forget(decision, cost)
            self._changed()

    def apply(self, change: Callable[[Policy], T]) -> T:
        """What a function returns that changes the policy as `learn` does; written down as that is."""
        with self.lock:
            found = change(self.policy)
            version = self._changed()
        self._save(version)
        return found

    def locked(self, function: Callable[[Policy], T]) -> T:
        """What the function returns for the policy, while no other thread decides or learns."""
        with self.lock:
            return function(self.policy)

    def explain(self, bin: int) -> Explanation:
        """Why the next sample of a bin would be accepted or offloaded, as the policy says it."""
        with self.lock:
            return self.policy.explain(bin)

    def merge(self, *other_states: Mapping[str, Any]) -> None:
        """Add the evidence in other devices' states, of gates or policies; if one is refused, none is added.

        States of gates with other bins or another confidence measure are refused.
        """
        states = [self.fitting(state) for state in other_states]

        def merge_all(policy: Policy) -> None:
            for state in states:
                policy.merge(state)

        self.locked(lambda policy: merge_all(restore(policy.state())))  # what is refused changes nothing
        self.apply(merge_all)

    def fitting(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The policy's state in a gate's or policy's, if it was made with these bins and this measure, or is silent."""
        held = unsealed(state)
        for what in ("bins", "confidence") if "hinge_gate" in held else ():
            if held.get(what) != self._described[what]:
                raise InvalidState(
                    f"the state to merge was made with {what} {held.get(what)!r:.200}, "
                    f"and this one with {self._described[what]}: evidence cannot be added"
                )
        return policy_state(held)

    def warnings(self) -> tuple[str | None, int, str | None]:
        """What the policy cannot keep, how many changes of the world it has found, and `problem`."""
        problem = self.problem
        with self.lock:
            return self.policy.warning, sum(self.policy.alarms.values()), problem

    def learns_from(self, local: str | None) -> None:
        """From now on another local model's answers are learned from, whose file has this digest; None: not known."""

    def close(self) -> None:
        """Release what the store holds."""

    def _changed(self) -> int:
        """The policy was changed; returns how often it was. Needs `lock`."""
        return 0

    def _save(self, version: int) -> None:
        """Write that version of the policy, or a later one, where there is a disk."""
