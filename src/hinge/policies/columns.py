"""The columns of a policy's table: plain typed arrays, 8 bytes a bin, as compiled code wants them too."""

from array import array
from collections.abc import MutableSequence

Wholes = MutableSequence[int]
Reals = MutableSequence[float]


def whole_column(length: int, value: int = 0) -> Wholes:
    """A column of integers.

    >>> whole_column(3)
    array('q', [0, 0, 0])
    """
    return array("q", [value]) * length


def real_column(length: int, value: float = 0.0) -> Reals:
    """A column of real numbers.

    >>> real_column(2, 1.0)
    array('d', [1.0, 1.0])
    """
    return array("d", [value]) * length
