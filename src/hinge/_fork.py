"""Renewal of locks, connections and threads in a forked process.

A child of `fork` inherits copies of all three: locks that a thread of the parent holds for ever, connections that the
parent goes on using, and pools whose threads do not exist. An object that has any of them calls
`renew_after_fork(self)` when it is made; its `after_fork` is called in every child before anything else runs there.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Has something that a forked child must not use."""

    def after_fork(self) -> None: ...


_objects: WeakSet[Renewable] = WeakSet()


def renew_after_fork(thing: Renewable) -> None:
    """Call the object's `after_fork` in every child that is forked while the object lives."""
    _objects.add(thing)


def _renew_all() -> None:
    for thing in list(_objects):
        thing.after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_all)
