"""Adding up what several policies have learned.

Evidence is a set of sums, so merging is addition. It is kept by its source, the policy that gathered it, so that every
source counts once, by whichever route its evidence came.
"""

from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any, TypeVar

from hinge.arguments import positive
from hinge.errors import InvalidState
from hinge.policies.saving import Evidence, Saved, State

Self = TypeVar("Self", bound="Merging")


class Merging(Saved):
    """The part of a policy that takes in what others know."""

    merges_on: tuple[str, ...] = ("bins",)  # parameters two policies must share to add up their evidence

    def merge(self, other_state: Mapping[str, Any]) -> None:
        """Add the evidence in another device's state to this policy's own.

        States may come in any order, by any route and repeatedly: of each source the latest evidence seen counts, once.
        Where evidence ages, theirs is as old here as it is there.
        """
        self._take_all(other_state, 1.0)

    def warm_start(self, state: Mapping[str, Any], weight: float) -> None:
        """Start from what another policy knows: each of its offloads counts as `weight` of one.

        A weight of 1 trusts it like one's own; the less alike the two worlds are, the smaller the weight should be. It
        gives way to the other's evidence itself, should that be merged later.

        >>> from hinge import Isotonic
        >>> veteran, novice = Isotonic(bins=2, offload_cost=0.5), Isotonic(bins=2, offload_cost=0.5)
        >>> for decision in veteran.decide_many([1] * 20):
        ...     veteran.learn(decision, agreed=True)
        >>> novice.warm_start(veteran.state(), weight=0.5)
        >>> print(novice.explain(1))
        Bin 1 is accepted: local agreed in 10 of 10 offloads; checked again in 4812 samples.
        """
        self._take_all(state, positive(type(self).__name__, "weight", weight))

    def _take_all(self, state: Mapping[str, Any], weight: float) -> None:
        self._check_like(type(self)._checked_header(state)["parameters"])
        other = type(self).restore(state)
        for field in self.evidence:
            mine, theirs = len(self._column(field)), len(other._column(field))
            if mine and mine != theirs:
                wanted = f"{type(self).__name__}: other_state must have {mine} numbers as {field!r}"
                raise InvalidState(f"{wanted}, got {theirs}: whether the cost is learned must be the same")
        now = self._catch_up()
        for source, snapshot in other._sources().items():
            self._take(source, snapshot, weight, now)
        self._rebuild()

    def _check_like(self, theirs: Mapping[str, Any]) -> None:
        """Evidence can be added only between policies that mean the same by it."""
        for name in self.merges_on:
            if getattr(self, name) != theirs.get(name):
                wanted = f"{type(self).__name__}: other_state must have {name}={getattr(self, name)!r}"
                raise InvalidState(f"{wanted}, got {theirs.get(name)!r}")

    def _take(self, source: str, snapshot: State, weight: float, now: int) -> None:
        """Count the evidence of a source, in place of what was known of it before."""
        evidence = {field: self._weighed(field, snapshot["evidence"][field], weight) for field in self.evidence}
        known = self._merged.get(source)
        before = self._left(known) if known else {field: [] for field in self.evidence}
        if source == self.id or (known and (*_age(known), _amount(before)) >= (*_age(snapshot), _amount(evidence))):
            return
        for field in self.evidence:
            _add(self._column(field), evidence[field])
            _subtract(self._column(field), before[field])
        self._merged[source] = {**snapshot, "evidence": evidence, "as_of": now, "alarms": self._alarms()}

    def _weighed(self, field: str, values: list[float], weight: float) -> list[float]:
        column = self._column(field)
        if weight != 1.0 and column.typecode == "q":
            raise TypeError(f"{type(self).__name__}: weight must be 1, as {field!r} are whole numbers, got {weight!r}")
        scaled = values if weight == 1.0 else [weight * value for value in values]
        return list(scaled) if len(column) else []  # costs are of no use where the cost is known

    def _sources(self) -> dict[str, State]:
        """What this policy knows at present, taken apart by who gathered it."""
        total = {field: list(self._column(field)) for field in self.evidence}
        own = self._aged(total, self._as_of())
        sources = {}
        for source, snapshot in self._merged.items():
            evidence = self._left(snapshot)
            sources[source] = {**snapshot, "evidence": evidence}
            for field, values in own.items():
                _subtract(values, evidence[field])
        return {self.id: {"time": self.time, "learned": self.learned, "evidence": own}, **sources}

    # -- evidence that ages; by default it does not -------------------------------------------------------------------

    def _catch_up(self) -> int:
        """Bring the evidence in the table to the present; returns that time."""
        return self.time

    def _left(self, snapshot: State) -> Evidence:
        """What is left at present of what was once merged."""
        return self._aged(snapshot["evidence"], snapshot["as_of"])

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        """What is left at present of evidence as of an earlier time."""
        return {field: list(values) for field, values in evidence.items()}


def _add(total: MutableSequence[float], values: Sequence[float]) -> None:
    for position, value in enumerate(values):
        total[position] += value


def _subtract(total: MutableSequence[float], values: Sequence[float]) -> None:
    for position, value in enumerate(values):
        left = total[position] - value
        total[position] = left if left > 1e-9 * value else 0 * left  # sums leave a rounding error


def _age(snapshot: State) -> tuple[int, int]:
    """Of two states of one source, the later has seen more samples, and learned from more of them."""
    return snapshot["time"], snapshot["learned"]


def _amount(evidence: Evidence) -> float:
    """Of two copies of one state, the one that has faded less, or has the larger weight, is the larger."""
    return sum(map(sum, evidence.values()))
