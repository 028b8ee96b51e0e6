"""A policy in memory, for many threads: what a store is, without the disk."""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hinge.policies.policy import Decision, Decisions, Policy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")


class Keeper(Protocol):
    """Who asks and teaches a policy on behalf of many threads: a `Store` or a `Memory`."""

    policy: Policy
    on_disk: bool

    def decide(self, bin: int) -> Decision: ...

    def decide_many(self, bins: "Iterable[int] | NDArray[np.integer[Any]]") -> Decisions: ...

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None: ...

    def forget(self, decision: Decision) -> None: ...

    def look(self, function: Callable[[Policy], T]) -> T: ...

    @property
    def reason(self) -> str | None: ...  # why what is learned now may be lost, though it should not

    def close(self) -> None: ...


class Memory:
    """Lets threads share a policy. What it learns is gone with the process."""

    on_disk = False
    reason = None  # it is where it should be

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

    def look(self, function: Callable[[Policy], T]) -> T:
        """What the function finds out about the policy, while nobody changes it."""
        with self._lock:
            return function(self.policy)

    def close(self) -> None:
        """Nothing is kept open."""
