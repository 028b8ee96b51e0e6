"""Columns of tables, which Python reads quickly and compiled code takes as numpy's arrays."""

from array import array
from collections.abc import MutableSequence
from typing import Any

Wholes = MutableSequence[int]
Reals = MutableSequence[float]


def whole_column(length: int, value: int = 0) -> Wholes:
    """Return a column of integers, 8 bytes each, as compiled code takes it too.

    >>> whole_column(3)
    array('q', [0, 0, 0])
    """
    return array("q", [value]) * length


def quick_column(length: int) -> Wholes:
    """Return a column of integers that every accepted sample reads and writes: a list, on which Python is faster.

    >>> quick_column(3)
    [0, 0, 0]
    """
    return [0] * length


def real_column(length: int, value: float = 0.0) -> Reals:
    """Return a column of real numbers, 8 bytes each.

    >>> real_column(2, 1.0)
    array('d', [1.0, 1.0])
    """
    return array("d", [value]) * length


def is_whole(column: Any) -> bool:
    """Return whether a column holds integers."""
    return isinstance(column, list) or bool(column.typecode == "q")
