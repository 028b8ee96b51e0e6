"""Renewal of locks, connections and threads in a forked process.

A child of `fork` inherits copies of all three: locks that a thread of the parent holds for ever, connections that the
parent goes on using, and pools whose threads do not exist. An object that has any of them calls
`renew_after_fork(self)` when it is made; its `after_fork` is called in every child before anything else runs there.

The `lock` of a `Locked` one is held during the fork, so that the child inherits no half of a change that another thread
was making. The wait is bounded: the thread that forks may itself hold the lock, as one in a signal handler does.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Protocol, runtime_checkable
from weakref import WeakSet

_WAIT_S = 1.0  # for a lock before a fork; changes take microseconds


class Renewable(Protocol):
    """Has something that a forked child must not use."""

    def after_fork(self) -> None: ...


@runtime_checkable
class Locked(Renewable, Protocol):
    """Has data that a lock guards; its `after_fork` is to replace the lock in the child."""

    lock: Lock


_objects: WeakSet[Renewable] = WeakSet()
_held: list[Lock] = []
_one_at_a_time = Lock()  # two threads that fork at once would wait for each other's locks


def renew_after_fork(thing: Renewable) -> None:
    """Call the object's `after_fork` in every child that is forked while the object lives."""
    _objects.add(thing)


def _living() -> list[Renewable]:
    while True:
        try:
            return list(_objects)
        except RuntimeError:  # another thread added one just then
            continue


def _acquire_all() -> None:
    for lock in [_one_at_a_time, *(thing.lock for thing in _living() if isinstance(thing, Locked))]:
        if lock.acquire(timeout=_WAIT_S):
            _held.append(lock)


def _release_all() -> None:
    while _held:
        _held.pop().release()


def _renew_all() -> None:
    _release_all()
    for thing in _living():
        thing.after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_renew_all)
