"""The loop that every simulation runs, for every policy: decide; if offloaded, learn; keep the sums.

`offloads`, `notes` and `learns` are the policy's own functions (see `hinge.policies.policy`). As they stand here the
loops are Python; `hinge.simulation.kernel` makes machine code of the same text.

A kernel bound to a policy's functions, as machine code where numba is installed and as Python otherwise.

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
from hinge.policies.budgets import bound_to

REGRET, OFFLOADS, OFFLOAD_COST, ERRORS, RIGHT = range(5)  # the sums, in this order
TOTALS = 5


def offloads(table: Any, bin: int, time: int) -> bool:
    """Stands for the policy's function of this name; a loop is bound to the real one before it runs."""
    raise NotImplementedError


def notes(table: Any, bin: int, time: int) -> None:
    """Stands for the policy's function of this name; a loop is bound to the real one before it runs."""
    raise NotImplementedError


def learns(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Stands for the policy's function of this name; a loop is bound to the real one before it runs."""
    raise NotImplementedError


def play(
    table: Any,
    time: int,
    bins: Any,
    agreed: Any,
    costs: Any,
    gaps: Any,
    local_right: Any,
    remote_right: Any,
    tells_cost: bool,
    tells_agreement: bool,
    totals: Any,
    stops: Any,
    marks: Any,
    wrong_accepts: Any,
    wrong_offloads: Any,
    decisions: Any,
) -> None:
    """Run a policy over a chunk of samples that follow those up to `time`.

    `tells_…`: what the policy is told about accepted samples, too. The sums are written to `marks` at the times in
    `stops`. `decisions` is filled if it has room.
    """
    regret, count, offload_cost, errors, right = totals[0], totals[1], totals[2], totals[3], totals[4]
    knows_truth, records = len(local_right) > 0, len(decisions) > 0
    start, stop = 0, first_after(stops, time)
    while start < len(bins):
        end = len(bins) if stop == len(stops) else min(len(bins), start + stops[stop] - time)
        for i in range(start, end):
            time += 1
            bin, gap = bins[i], gaps[i]
            offload = offloads(table, bin, time)
            if offload:
                notes(table, bin, time)
                learns(table, bin, agreed[i], costs[i], time, time)
                count += 1.0
                offload_cost += costs[i]
                if gap < 0.0:
                    regret -= gap
                    wrong_offloads[bin] += 1
            else:
                if tells_agreement:
                    learns(table, bin, agreed[i], costs[i], time, time)
                elif tells_cost:
                    learns(table, bin, 0.0, costs[i], time, time)
                errors += 1.0 - agreed[i]
                if gap > 0.0:
                    regret += gap
                    wrong_accepts[bin] += 1
            if knows_truth and (remote_right[i] if offload else local_right[i]):
                right += 1.0
            if records:
                decisions[i] = offload
        if stop < len(stops) and time == stops[stop]:
            mark(marks, stop, regret, count, offload_cost, errors, right)
            stop += 1
        start = end
    totals[0], totals[1], totals[2], totals[3], totals[4] = regret, count, offload_cost, errors, right


def first_after(stops: Any, time: int) -> int:
    """The position of the first stop that is still to come."""
    stop = 0
    while stop < len(stops) and stops[stop] <= time:
        stop += 1
    return stop


def mark(marks: Any, stop: int, regret: float, count: float, offload_cost: float, errors: float, right: float) -> None:
    """Write the sums down."""
    marks[stop, 0], marks[stop, 1], marks[stop, 2] = regret, count, offload_cost
    marks[stop, 3], marks[stop, 4] = errors, right


def choose(table: Any, time: int, bin_gaps: Any) -> int:
    """The adversary's choice: the bin of the largest expected regret, the lowest of equals."""
    worst, loss = 0, -1.0
    for bin in range(len(bin_gaps)):
        gap = bin_gaps[bin]
        pays = max(0.0, -gap) if offloads(table, bin, time) else max(0.0, gap)
        if pays > loss:
            worst, loss = bin, pays
    return worst


def play_against(
    table: Any,
    time: int,
    agreement: Any,
    bin_gaps: Any,
    uniforms: Any,
    costs: Any,
    totals: Any,
    stops: Any,
    marks: Any,
    wrong_accepts: Any,
    wrong_offloads: Any,
    decisions: Any,
    bins: Any,
    agreed: Any,
) -> None:
    """The same against an adversary who sees what the policy would do; writes down the bins it sent."""
    stop = first_after(stops, time)
    for i in range(len(uniforms)):
        time += 1
        bin = choose(table, time, bin_gaps)
        gap = bin_gaps[bin]
        bins[i], agreed[i] = bin, 1.0 if uniforms[i] < agreement[bin] else 0.0
        offload = offloads(table, bin, time)
        if offload:
            notes(table, bin, time)
            learns(table, bin, agreed[i], costs[i], time, time)
            totals[0] += max(0.0, -gap)
            totals[1] += 1.0
            totals[2] += costs[i]
            wrong_offloads[bin] += 1 if gap < 0.0 else 0
        else:
            totals[0] += max(0.0, gap)
            totals[3] += 1.0 - agreed[i]
            wrong_accepts[bin] += 1 if gap > 0.0 else 0
        if len(decisions) > 0:
            decisions[i] = offload
        if stop < len(stops) and time == stops[stop]:
            mark(marks, stop, totals[0], totals[1], totals[2], totals[3], totals[4])
            stop += 1


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
