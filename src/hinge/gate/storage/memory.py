"""A policy in memory, for many threads: what a store is, without the disk."""

from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from hinge.policies.base import Policy
from hinge.policies.decision import Decision, Decisions, Explanation
from hinge.policies.saving import State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Keeper(Protocol):
    """Who asks and teaches a policy on behalf of many threads: a `Store` or a `Memory`."""

    policy: Policy

    def decide(self, bin: int) -> Decision: ...

    def decide_many(self, bins: "Iterable[int] | NDArray[np.integer[Any]]") -> Decisions: ...

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None: ...

    def forget(self, decision: Decision) -> None: ...

    def explain(self, bin: int) -> Explanation: ...

    def state(self) -> State: ...

    @property
    def reason(self) -> str | None: ...

    def close(self) -> None: ...


class Memory:
    """Lets threads share a policy. What it learns is gone with the process."""

    reason = "the policy is kept in memory only"

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._lock = Lock()

    def decide(self, bin: int) -> Decision:
        """Decide as the policy does."""
        with self._lock:
            return self.policy.decide(bin)

    def decide_many(self, bins: "Iterable[int] | NDArray[np.integer[Any]]") -> Decisions:
        """Decide for a batch at once, as the policy does."""
        with self._lock:
            return self.policy.decide_many(bins)

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Let the policy learn."""
        with self._lock:
            self.policy.learn(decision, agreed, cost)

    def forget(self, decision: Decision) -> None:
        """Wait no longer for the feedback of a decision."""
        with self._lock:
            self.policy.forget(decision)

    def explain(self, bin: int) -> Explanation:
        """Explain as the policy does."""
        with self._lock:
            return self.policy.explain(bin)

    def state(self) -> State:
        """The policy's state, while nobody changes it."""
        with self._lock:
            return self.policy.state()

    def close(self) -> None:
        """Nothing is kept open."""
