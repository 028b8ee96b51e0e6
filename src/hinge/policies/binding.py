"""Putting real functions in the place of stand-ins.

Compiled code cannot take functions as arguments, and a policy's functions are to be compiled. So a loop, or a policy
around another, is written with stand-ins, and copied with the real functions under their names.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any


def bound_to(function: Callable[..., Any], **real: Callable[..., Any]) -> FunctionType:
    """A copy of a function, and of those it calls in its own module, that knows these functions by these names.

    >>> def price(): return 0
    >>> def total(count): return count * price()
    >>> bound_to(total, price=lambda: 7)(3)
    21
    """
    original = plain(function)
    names = {**original.__globals__, **real}
    for name, value in original.__globals__.items():
        if name not in real and isinstance(value, FunctionType) and value.__globals__ is original.__globals__:
            names[name] = FunctionType(value.__code__, names, value.__name__, value.__defaults__)
            names[name].__qualname__ = f"{value.__qualname__}[{', '.join(f.__qualname__ for f in real.values())}]"
    copy = names.get(original.__name__)
    return copy if isinstance(copy, FunctionType) else FunctionType(original.__code__, names, original.__name__)


def plain(function: Callable[..., Any]) -> FunctionType:
    """The function, if it is one that can be copied and compiled."""
    if not isinstance(function, FunctionType):
        raise TypeError(f"a policy's functions must be plain functions, got {function!r}")
    return function
