"""A hard limit on offloads.

It remembers when each of the last L offloads leaves the window; while the oldest of them is still in it, samples are
accepted, whatever the policy inside would do. Hence no window of `window` samples, wherever it begins, holds more than
L = ⌊offloads × window⌋ of them, against any input.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hinge.arguments import real, whole
from hinge.errors import InvalidState
from hinge.policies.base import Policy
from hinge.policies.columns import Wholes, whole_column
from hinge.policies.enclosing import Budgeted, inner_learns, inner_notes, inner_offloads


class LimitTable(NamedTuple):
    """The table of the policy inside, and when there will be room for the next offload."""

    inner: Any
    leaves: Wholes  # when each of the last L offloads leaves the window
    oldest: Wholes  # which of them leaves first
    window: int


def offloads_within(table: LimitTable, bin: int, time: int) -> bool:
    """Offload as the policy inside does, where the window has room."""
    return bool(time >= table.leaves[table.oldest[0]] and inner_offloads(table.inner, bin, time))


def note_within(table: LimitTable, bin: int, time: int) -> None:
    """The offload takes the place of the oldest."""
    inner_notes(table.inner, bin, time)
    table.leaves[table.oldest[0]] = time + table.window
    table.oldest[0] = (table.oldest[0] + 1) % len(table.leaves)


def learn_within(table: LimitTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """The policy inside learns."""
    inner_learns(table.inner, bin, agreed, cost, time, now)


class AtMost(Budgeted):
    """A limit that holds in every window; see `at_most`.

    >>> from hinge import AlwaysRemote
    >>> policy = at_most(AlwaysRemote(bins=16), offloads=0.25, window=8)
    >>> [policy.decide(3).offload for _ in range(10)]
    [True, True, False, False, False, False, False, False, True, True]
    """

    name = "at-most"
    _own = ("leaves", "oldest")

    def __init__(self, policy: Policy | Mapping[str, Any], offloads: float = 0.2, window: int = 1000) -> None:
        inner, owner = self._enclose(policy), type(self).__name__
        self.offloads = real(owner, "offloads", offloads, 0, 1)
        self.window = whole(owner, "window", window, 1, 2**31)
        limit = math.floor(self.offloads * self.window + 1e-9)  # 0.29 × 100 is 28.999999999999996
        if limit < 1:
            raise ValueError(f"{owner}: offloads must allow one in {window} samples at least, got {offloads!r}")
        self.table = LimitTable(inner.table, whole_column(limit), whole_column(1), self.window)
        self._surround(offloads_within, note_within, learn_within)

    def _refresh(self) -> None:
        super()._refresh()
        if self.table.oldest[0] >= len(self.table.leaves):
            raise InvalidState(f"{type(self).__name__}: state has {self.table.oldest[0]} as 'oldest'")

    def _refuses(self) -> bool:
        return bool(self.time + 1 < self.table.leaves[self.table.oldest[0]])

    def _refusal_to_spend(self, bin: int) -> str:
        room = self.table.leaves[self.table.oldest[0]] - self.time
        return f"Bin {bin} is accepted: {self._terms()}, and the next may go in {room} sample{'s' * (room != 1)}."

    def _terms(self) -> str:
        return f"at most {len(self.table.leaves)} of {self.window} samples are offloaded"


def at_most(policy: Policy, offloads: float = 0.2, window: int = 1000) -> AtMost:
    """The policy, with at most this share of offloads in every window of so many samples, against any input.

    Where the window is full, samples are accepted, whichever come. A price (`on_budget`) that aims a little lower keeps
    room for those that are worth most: `at_most(on_budget(policy, offloads=0.18), offloads=0.2)`.

    >>> from hinge import Isotonic
    >>> policy = at_most(Isotonic(bins=16, offload_cost=0.5), offloads=0.2, window=1000)
    >>> sum(policy.decide(0).offload for _ in range(1000))
    200
    """
    return AtMost(policy, offloads, window)
