"""A policy around another: what the budgets of `limits` and `prices` share.

Their functions are written around stand-ins for those of the policy inside, and their table holds its table.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from hinge.errors import InvalidState
from hinge.policies.base import Policy
from hinge.policies.binding import bound_to
from hinge.policies.decision import ACCEPTED, Decision, Explanation
from hinge.policies.registry import policy_class
from hinge.policies.saving import Evidence, State

Self = TypeVar("Self", bound="Budgeted")


def inner_offloads(table: Any, bin: int, time: int) -> bool:
    """Stands for the policy's own."""
    raise NotImplementedError


def inner_notes(table: Any, bin: int, time: int) -> None:
    """Stands for the policy's own."""
    raise NotImplementedError


def inner_learns(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Stands for the policy's own."""
    raise NotImplementedError


def inner_rebuilds(table: Any) -> None:
    """Stands for the policy's own."""
    raise NotImplementedError


@cache
def around(
    function: Callable[..., Any],
    offloads: Callable[..., bool],
    notes: Callable[..., None],
    learns: Callable[..., None],
    rebuilds: Callable[..., None],
) -> Callable[..., Any]:
    """A function around those of the policy inside; one and the same for the same, so that it is compiled once."""
    inner = {"inner_offloads": offloads, "inner_notes": notes, "inner_learns": learns, "inner_rebuilds": rebuilds}
    return bound_to(function, **inner)


class Budgeted(Policy):
    """A policy around another, whose clock, evidence and open decisions it takes over: ask this one from now on."""

    wraps = True
    _own: tuple[str, ...]  # fields of the table that are not the inner policy's

    def _enclose(self, policy: Policy | Mapping[str, Any]) -> Policy:
        owner = type(self).__name__
        inner = _built(owner, policy)
        if inner.needs or not inner.can_be_overruled:
            raise TypeError(f"{owner}: policy must learn from offloads alone, and not by their chance, got {inner!r}")
        if inner.enclosed:
            raise ValueError(f"{owner}: policy must not be inside another already, got {inner!r}")
        inner.enclosed = True
        super().__init__(inner.bins, inner.offload_cost)
        self.policy, self._inner = {"policy": inner.name, "parameters": inner.parameters}, inner
        self.id, self.time, self.learned = inner.id, inner.time, inner.learned
        self._pending, self._merged = inner._pending, inner._merged
        self.weighs_cost, self.assumes_monotone = inner.weighs_cost, inner.assumes_monotone
        self.evidence, self.order_matters = inner.evidence, inner.order_matters
        self.carried = (*self._own, *(f"inner.{field}" for field in inner.carried))
        return inner

    def _surround(self, *functions: Callable[..., Any]) -> None:
        self._offloads, self._notes, self._learns = (around(function, *self._functions()) for function in functions)

    def _functions(self) -> tuple[Callable[..., Any], ...]:
        inner = self._inner
        return inner._offloads, inner._notes, inner._learns, inner._rebuilds or rebuild_nothing

    def decide(self, bin: int) -> Decision:
        bin = self._checked_bin(bin)
        self.time = time = self.time + 1
        if not self._offloads(self.table, bin, time):
            return ACCEPTED
        self._notes(self.table, bin, time)
        return self._await(True, bin, time)

    def explain(self, bin: int) -> Explanation:
        bin = self._checked_bin(bin)
        copy = type(self).restore(self.state())  # to decide may review the price, and to explain changes nothing
        offload = copy._offloads(copy.table, bin, copy.time + 1)
        why = copy._now().explain(bin)
        if why.offload_probability > 0.0 and not offload and copy._refuses():
            return Explanation(bin, 0.0, why.offloads, why.agreement, None, None, copy._refusal_to_spend(bin))
        reason = f"{why.reason[:-1]}; {copy._terms()}."
        return Explanation(bin, float(offload), why.offloads, why.agreement, why.expiry, why.samples_left, reason)

    def share(self, other: "Budgeted") -> None:
        """Let the budget inside be one with that inside another policy of the same kind; see `OnBudget.share`."""
        if type(other) is not type(self) or not isinstance(self._inner, Budgeted):
            raise TypeError(f"{type(self).__name__}: other must be around a budget as this one is, got {other!r}")
        self._share(other)

    def _share(self, other: "Budgeted") -> None:
        inner, theirs = self._inner, other._inner
        if not isinstance(inner, Budgeted) or not isinstance(theirs, Budgeted):
            raise TypeError(f"{type(self).__name__}: only a price can be shared, got {inner!r} and {theirs!r}")
        inner._share(theirs)
        self.table = self.table._replace(inner=inner.table)

    @property
    def alarms(self) -> dict[str, int]:
        return self._inner.alarms

    @property
    def exhausted(self) -> bool:
        return self._refuses() or self._now().exhausted

    @property
    def inside(self) -> Policy:
        """The policy that this one is around."""
        return self._now()

    def _now(self) -> Policy:
        """The policy inside, its clock set."""
        self._inner.time = self.time
        return self._inner

    def fresh(self: Self, seed: int | None = None) -> Self:
        own = {name: value for name, value in self.parameters.items() if name != "policy"}
        policy: Self = type(self)(**{**own, "policy": self._inner.fresh(seed)})
        return policy

    def __reduce__(self) -> Any:
        return type(self).restore, (self.state(),)  # functions made here cannot be pickled

    def _check_like(self, theirs: Mapping[str, Any]) -> None:
        described = theirs.get("policy")
        if not isinstance(described, Mapping) or described.get("policy") != self._inner.name:
            wanted = f"{type(self).__name__}: other_state must be around {self._inner.name!r}"
            raise InvalidState(f"{wanted}, got {described!r}")
        self._inner._check_like(described["parameters"])

    def _column(self, field: str) -> Any:
        if field in self._own:
            return getattr(self.table, field)
        return self._inner._column(field.removeprefix("inner."))

    def _rebuild(self) -> None:
        self._inner._rebuild()

    def _as_of(self) -> int:
        return self._now()._as_of()

    def _catch_up(self) -> int:
        return self._now()._catch_up()

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        return self._now()._aged(evidence, since)

    def _left(self, snapshot: State) -> Evidence:
        return self._now()._left(snapshot)

    def _alarms(self) -> list[int]:
        return self._inner._alarms()

    def _refresh(self) -> None:
        self._now()._refresh()

    def _refuses(self) -> bool:
        """Whether there is nothing to spend at present."""
        raise NotImplementedError

    def _refusal_to_spend(self, bin: int) -> str:
        """Why a sample is accepted that the policy inside would offload."""
        raise NotImplementedError

    def _terms(self) -> str:
        """What the budget says at present."""
        raise NotImplementedError


def rebuild_nothing(table: Any) -> None:
    """The policy inside has nothing that is derived from its evidence."""


def _built(owner: str, policy: Policy | Mapping[str, Any]) -> Policy:
    """The policy to go inside: one that exists, or the description of one in saved parameters."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, Mapping) or not isinstance(policy.get("parameters"), Mapping):
        raise TypeError(f"{owner}: policy must be a policy, got {policy!r}")
    built: Policy = policy_class(str(policy.get("policy")))(**policy["parameters"])
    return built
