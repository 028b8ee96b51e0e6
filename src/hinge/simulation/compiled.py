"""A kernel bound to a policy's functions, as machine code where numba is installed and as Python otherwise.

Both give the same results, bit for bit: numba compiles the very functions that the objects call, without any licence to
reorder arithmetic. Machine code is kept on disk under a name that holds a digest of everything that went into it.
"""

import hashlib
import marshal
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from hinge.policies import Policy
from hinge.policies.binding import bound_to

Kernel = Callable[..., None]


def numba_installed() -> bool:
    """Whether the extra `sim` is there."""
    return find_spec("numba") is not None


_binding = threading.Lock()  # else a thread may compile what another has only begun to register


def bound(
    kernel: FunctionType, offloads: FunctionType, notes: FunctionType, learns: FunctionType, machine_code: bool
) -> Kernel:
    """The kernel with a policy's own functions in place of its stand-ins."""
    with _binding:
        return _bound(kernel, offloads, notes, learns, machine_code)


@cache
def _bound(
    kernel: FunctionType, offloads: FunctionType, notes: FunctionType, learns: FunctionType, machine_code: bool
) -> Kernel:
    copy = bound_to(kernel, offloads=offloads, notes=notes, learns=learns)
    if not machine_code:
        return copy
    import numba
    from numba.extending import register_jitable

    called: dict[str, FunctionType] = {}
    _collect(copy, called)
    del called[_identity(copy)]
    for function in called.values():
        _register_once(function, register_jitable)
    copy.__qualname__ = f"{kernel.__name__}_{_digest([copy, *called.values()])}"
    # Nothing is allocated in there, so references need no counting: it would double the time of a decision.
    options: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
    compiled: Kernel = numba.njit(**options)(copy)
    return compiled


def machine_table(policy: Policy) -> Any:
    """A policy's table with numpy arrays in place of its columns, as compiled code takes it."""
    return _with_arrays(policy.table)


def _with_arrays(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return type(value)(*map(_with_arrays, value))
    return np.array(value) if hasattr(value, "typecode") else value


_registered: set[FunctionType] = set()


def _register_once(function: FunctionType, register: Callable[[FunctionType], object]) -> None:
    if function not in _registered:
        _registered.add(function)
        register(function)


def _collect(function: FunctionType, called: dict[str, FunctionType]) -> None:
    """The function and all Python functions that it calls, by name."""
    called[_identity(function)] = function
    for name in function.__code__.co_names:
        target = function.__globals__.get(name)
        if isinstance(target, FunctionType) and _identity(target) not in called:
            _collect(target, called)


def _identity(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _digest(functions: list[FunctionType]) -> str:
    """Changes whenever the code of one of the functions does, or a number that one of them takes from its module."""
    digest = hashlib.sha256()
    for function in functions:
        digest.update(function.__qualname__.encode())
        digest.update(marshal.dumps((_without_lines(function.__code__), repr(function.__defaults__))))
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, int | float | tuple):
                digest.update(f"{name}={value!r}".encode())
    return digest.hexdigest()[:16]


def _without_lines(code: CodeType) -> Any:
    constants = tuple(_without_lines(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    return code.co_code, constants, code.co_names, code.co_varnames
