"""A process that is forked has its parent's files open, and must leave them alone."""

import os
from typing import Protocol
from weakref import WeakSet

COPIED = "this process is a copy of the one that opened the folder"


class Parted(Protocol):
    """Has to know when it is in a copy of its process."""

    def part(self) -> None:
        """Leave alone what the parent goes on with. Called in the child, before anything else is."""


_KNOWN: "WeakSet[Parted]" = WeakSet()


def watch(what: Parted) -> None:
    """Tell it in every child that is forked from now on."""
    _KNOWN.add(what)


def _part_all() -> None:
    for what in list(_KNOWN):
        what.part()


os.register_at_fork(after_in_child=_part_all)
