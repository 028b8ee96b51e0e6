"""Saving a policy, and continuing it elsewhere."""

import inspect
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from hinge.arguments import whole
from hinge.errors import InvalidState
from hinge.policies.decision import Decision

STATE_VERSION = 1
_ROUNDING = 1e-6  # agreements may be sums of prices

State = dict[str, Any]
Evidence = dict[str, list[float]]
Self = TypeVar("Self", bound="Saved")


class Saved(ABC):
    """The part of a policy that turns it into plain data and back.

    What was learned is a set of sums (the fields of the table named in `evidence`); everything else in the table is
    derived from them by `_rebuild`.
    """

    name: ClassVar[str]
    evidence: tuple[str, ...] = ()  # fields of the table that are sums of what was learned
    carried: tuple[str, ...] = ()  # derived fields that remember rounding: saved as they are
    order_matters: tuple[str, ...] = ()  # fields of the evidence that depend on the order of the feedback

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
            "alarms": self._alarms(),
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
        except (TypeError, ValueError, MemoryError, OverflowError) as error:
            problem = str(error) or type(error).__name__
            raise InvalidState(f"{cls.__name__}: state has impossible parameters: {problem}") from error
        policy._fill(state)
        return policy

    def _column(self, field: str) -> Any:
        """A field of the table that is saved."""
        return getattr(self.table, field)

    def _as_of(self) -> int:
        """The time that the evidence in the table is as of."""
        return self.time

    def _alarms(self) -> list[int]:
        """How often evidence was dropped, by kind; for policies that forget."""
        return []

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
        self._refresh()

    def _refresh(self) -> None:
        """Check what was restored, and bring in line what depends on carried fields."""
        for source, snapshot in self._merged.items():
            if snapshot["as_of"] > self.time:
                raise InvalidState(f"{type(self).__name__}: state has evidence of {source!r} from the future")

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
        alarms = state.get("alarms", [])
        if not isinstance(alarms, list) or not all(type(count) is int and count >= 0 for count in alarms):
            raise InvalidState(f"{type(self).__name__}: alarms must be a list of counts, got {alarms!r}")
        return {"time": time, "learned": learned, "as_of": as_of, "alarms": list(alarms), "evidence": checked}

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


def _copied(snapshot: State) -> State:
    evidence = {field: list(values) for field, values in snapshot["evidence"].items()}
    return {**snapshot, "evidence": evidence}


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
