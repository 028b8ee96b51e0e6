"""Saving a policy, continuing it elsewhere, and adding up what several policies have learned."""

import inspect
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any, ClassVar, TypeVar

from hinge.arguments import positive, whole
from hinge.errors import InvalidState
from hinge.policies.decision import Decision

STATE_VERSION = 1
_ROUNDING = 1e-6  # agreements may be sums of prices

State = dict[str, Any]
Evidence = dict[str, list[float]]
Self = TypeVar("Self", bound="Saved")


class Saved(ABC):
    """The part of a policy that turns it into plain data and back.

    What was learned is a set of sums (the fields of the table named in `evidence`), so merging is addition; everything
    else in the table is derived from them by `_rebuild`.
    """

    name: ClassVar[str]
    evidence: tuple[str, ...] = ()  # fields of the table that are sums of what was learned
    carried: tuple[str, ...] = ()  # derived fields that remember rounding: saved as they are
    order_matters: tuple[str, ...] = ()  # fields of the evidence that depend on the order of the feedback
    merges_on: tuple[str, ...] = ("bins",)  # parameters two policies must share to add up their evidence

    id: str
    time: int
    learned: int
    table: Any
    _pending: OrderedDict[int, Decision]
    _merged: dict[str, State]

    @abstractmethod
    def _checked_bin(self, bin: object) -> int: ...

    @abstractmethod
    def _await(self, offload: bool, bin: int, time: int) -> Decision: ...

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments: enough to build the same policy anew."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def fresh(self: Self, seed: int | None = None) -> Self:
        """The same policy before its first sample; a randomised one takes the new seed if one is given."""
        parameters = self.parameters
        if seed is not None and "seed" in parameters:
            parameters["seed"] = seed
        return type(self)(**parameters)

    def state(self) -> State:
        """All that the policy knows, as a dict that JSON can hold; `restore` continues bit-identically from it."""
        return {
            "hinge_state": STATE_VERSION,
            "policy": self.name,
            "id": self.id,
            "parameters": self.parameters,
            "time": self.time,
            "learned": self.learned,
            "as_of": self._as_of(),
            "evidence": {field: list(self._column(field)) for field in self.evidence},
            "carried": {field: list(self._column(field)) for field in self.carried},
            "merged": {source: _copied(snapshot) for source, snapshot in self._merged.items()},
            "pending": [[decision.time, decision.bin, decision.offload] for decision in self._pending.values()],
        }

    @classmethod
    def restore(cls: type[Self], state: Mapping[str, Any]) -> Self:
        """The policy that `state()` described."""
        parameters = cls._checked_header(state)["parameters"]
        try:
            policy = cls(**parameters)
        except (TypeError, ValueError) as error:
            raise InvalidState(f"{cls.__name__}: state has impossible parameters: {error}") from error
        policy._fill(state)
        return policy

    def merge(self, other_state: Mapping[str, Any]) -> None:
        """Add the evidence in another device's state to this policy's own.

        Evidence is kept by its source, so that states may come in any order, by any route and repeatedly: of each
        source the largest evidence seen counts, once. Where evidence ages, theirs is as old here as it is there.
        """
        other = self._like(other_state)
        now = self._catch_up()
        for source, snapshot in other._sources().items():
            self._take(source, snapshot, now)
        self._rebuild()

    def warm_start(self, state: Mapping[str, Any], weight: float) -> None:
        """Start from what another policy knows: each of its offloads counts as `weight` of one.

        A weight of 1 trusts it like one's own; the less alike the two worlds are, the smaller the weight should be.

        >>> from hinge import Isotonic
        >>> veteran, novice = Isotonic(bins=2, offload_cost=0.5), Isotonic(bins=2, offload_cost=0.5)
        >>> batch = veteran.decide_many([1] * 20)
        >>> for decision in batch:
        ...     veteran.learn(decision, agreed=True)
        >>> novice.warm_start(veteran.state(), weight=0.5)
        >>> print(novice.explain(1))
        Bin 1 is accepted: local agreed in 10 of 10 offloads; checked again in 4812 samples.
        """
        weight = positive(type(self).__name__, "weight", weight)
        other = self._like(state)
        now = self._catch_up()
        for source, snapshot in other._sources().items():
            evidence = {field: [weight * value for value in snapshot["evidence"][field]] for field in self.evidence}
            self._take(f"{source} × {weight:g}", {**snapshot, "evidence": evidence}, now)
        self._rebuild()

    def _like(self: Self, state: Mapping[str, Any]) -> Self:
        """Another policy from its state, if its evidence can be added to this one's."""
        theirs = type(self)._checked_header(state)["parameters"]
        for name in self.merges_on:
            if getattr(self, name) != theirs.get(name):
                wanted = f"{type(self).__name__}: other_state must have {name}={getattr(self, name)!r}"
                raise InvalidState(f"{wanted}, got {theirs.get(name)!r}")
        return type(self).restore(state)

    def _take(self, source: str, snapshot: State, now: int) -> None:
        """Count the evidence of a source, in place of what was known of it before."""
        known = self._merged.get(source)
        if source == self.id or (known and _age(known) >= _age(snapshot)):
            return
        before = self._aged(known["evidence"], known["as_of"]) if known else None
        for field in self.evidence:
            column = self._column(field)
            _add(column, snapshot["evidence"][field])
            if before:
                _subtract(column, before[field])
        self._merged[source] = {**snapshot, "as_of": now}

    def _sources(self) -> dict[str, State]:
        """What this policy knows, taken apart by who gathered it."""
        total = {field: list(self._column(field)) for field in self.evidence}
        own = self._aged(total, self._as_of())
        sources = {}
        for source, snapshot in self._merged.items():
            evidence = self._aged(snapshot["evidence"], snapshot["as_of"])
            sources[source] = {**snapshot, "evidence": evidence}
            for field, values in own.items():
                _subtract(values, evidence[field])
        return {self.id: {"time": self.time, "learned": self.learned, "evidence": own}, **sources}

    def _column(self, field: str) -> Any:
        """A field of the table that is saved."""
        return getattr(self.table, field)

    # -- evidence that ages; by default it does not -------------------------------------------------------------------

    def _as_of(self) -> int:
        """The time that the evidence in the table is as of."""
        return self.time

    def _catch_up(self) -> int:
        """Bring the evidence in the table to the present; returns that time."""
        return self.time

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        """What is left at present of evidence as of an earlier time."""
        return {field: list(values) for field, values in evidence.items()}

    @abstractmethod
    def _rebuild(self) -> None:
        """Bring the derived fields of the table in line with its evidence."""

    def _fill(self, state: Mapping[str, Any]) -> None:
        self.id = _text(state, "id")
        self.time, self.learned = _count(state, "time"), _count(state, "learned")
        self._merged = {source: self._snapshot(snapshot) for source, snapshot in _mapping(state, "merged").items()}
        for field, values in self._snapshot(state)["evidence"].items():
            column = self._column(field)
            column[:] = array(column.typecode, values)
        pending = state.get("pending", [])
        if not isinstance(pending, list):
            raise InvalidState(f"{type(self).__name__}: pending must be a list, got {pending!r}")
        for entry in pending:
            self._restore_pending(entry)
        self._rebuild()
        for field in self.carried:
            column = self._column(field)
            column[:] = array(column.typecode, self._checked_field(_mapping(state, "carried"), field))

    def _restore_pending(self, entry: object) -> None:
        if not (isinstance(entry, list | tuple) and len(entry) == 3 and isinstance(entry[2], bool)):
            raise InvalidState(f"{type(self).__name__}: state has an impossible pending decision: {entry!r}")
        try:
            bin, time = self._checked_bin(entry[1]), whole(type(self).__name__, "time", entry[0], 1, self.time)
        except (TypeError, ValueError) as error:
            raise InvalidState(f"{type(self).__name__}: state has an impossible pending decision: {error}") from error
        self._await(entry[2], bin, time)

    def _snapshot(self, state: Mapping[str, Any]) -> State:
        """The evidence in a state or in one source's part of it, checked and copied."""
        evidence = _mapping(state, "evidence")
        checked = {field: self._checked_field(evidence, field) for field in self.evidence}
        for pane in ("", "pane_"):
            both = zip(checked.get(f"{pane}agreements", []), checked.get(f"{pane}offloads", []), strict=False)
            for position, (agreed, seen) in enumerate(both):
                if agreed > seen + _ROUNDING:
                    raise InvalidState(f"{type(self).__name__}: state has {agreed} agreements of {seen} at {position}")
        time, learned = _count(state, "time"), _count(state, "learned")
        as_of = _count(state, "as_of") if "as_of" in state else time
        return {"time": time, "learned": learned, "as_of": as_of, "evidence": checked}

    def _checked_field(self, evidence: Mapping[str, Any], field: str) -> list[float]:
        values, column = evidence.get(field), self._column(field)
        if not isinstance(values, list) or len(values) != len(column):
            raise InvalidState(f"{type(self).__name__}: state needs {len(column)} numbers as {field!r}")
        kinds, limit = ((int,), 2**62) if column.typecode == "q" else ((int, float), 1e308)
        for value in values:
            if type(value) not in kinds or not 0 <= value <= limit:  # nor NaN
                raise InvalidState(f"{type(self).__name__}: state has {value!r} in {field!r}")
        return list(values)

    @classmethod
    def _checked_header(cls, state: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(state, Mapping):
            raise TypeError(f"{cls.__name__}: state must be a dict as state() returns it, got {state!r}")
        version = state.get("hinge_state")
        if type(version) is not int or version < 1:
            raise InvalidState(f"{cls.__name__}: state must have a 'hinge_state' version, got {version!r}")
        if version > STATE_VERSION:
            raise InvalidState(f"{cls.__name__}: state is of version {version}; this Hinge reads up to {STATE_VERSION}")
        if state.get("policy") != cls.name:
            raise InvalidState(f"{cls.__name__}: state must be of policy {cls.name!r}, got {state.get('policy')!r}")
        _mapping(state, "parameters")
        return state


def _add(total: MutableSequence[float], values: Sequence[float]) -> None:
    for position, value in enumerate(values):
        total[position] += value


def _subtract(total: MutableSequence[float], values: Sequence[float]) -> None:
    for position, value in enumerate(values):
        total[position] = max(0, total[position] - value)  # sums of prices leave a rounding error


def _copied(snapshot: State) -> State:
    evidence = {field: list(values) for field, values in snapshot["evidence"].items()}
    return {**snapshot, "evidence": evidence}


def _age(snapshot: State) -> tuple[int, int]:
    """Evidence only grows, with the samples seen and with the feedback learned: of two states the older has less."""
    return snapshot["time"], snapshot["learned"]


def _mapping(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = state.get(key)
    if not isinstance(value, Mapping):
        raise InvalidState(f"state: {key} must be a dict, got {value!r}")
    return value


def _count(state: Mapping[str, Any], key: str) -> int:
    value = state.get(key)
    if type(value) is not int or value < 0:
        raise InvalidState(f"state: {key} must be a count, got {value!r}")
    return value


def _text(state: Mapping[str, Any], key: str) -> str:
    value = state.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidState(f"state: {key} must be a name, got {value!r}")
    return value
