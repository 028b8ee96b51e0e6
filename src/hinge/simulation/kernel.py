"""The loops of the simulator: decide; if offloaded, learn; add to the sums. Compiled by numba where it is installed.

`player` makes a loop around a policy's functions (see `hinge.policies.policy`). `loop` compiles it,
or leaves it as Python. Both give the same bits: numba compiles the functions that the policy objects call, and may not
reorder arithmetic. Compiled loops are cached on disk under a name that holds a digest of all the code they contain.
"""

import hashlib
import marshal
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any, NamedTuple, cast

import numpy as np

from hinge.ledger import RIGHT, SUMS, accept, offload
from hinge.policies.policy import Functions
from hinge.simulation.sources import Samples

Loop = Callable[..., None]


class Told(NamedTuple):
    """What a policy learns about accepted samples, too, and whether it knows the cost of each before it decides."""

    cost: bool
    agreement: bool
    beforehand: bool


class Book(NamedTuple):
    """Where a loop writes. `decisions` has no room where they are not wanted."""

    sums: Any  # as in `hinge.ledger`
    stops: Any  # the times at which the sums are copied to `marks`
    marks: Any
    wrong_accepts: Any  # by bin
    wrong_offloads: Any
    decisions: Any  # of the samples at hand


def player(functions: Functions) -> Loop:
    """The loop for a policy with these functions."""
    offloads, notes, learns, accepts, expects = functions

    def play(table: Any, time: int, samples: Samples, told: Told, book: Book) -> None:
        """Run the policy over the samples that follow those up to `time`."""
        columns: Any = samples  # those that it lacks are empty here, not None
        bins, agreed, costs, gaps, local_right, remote_right = columns
        sums, stops, _, wrong_accepts, wrong_offloads, decisions = book
        has_truth, records = len(local_right) > 0, len(decisions) > 0
        start, stop = 0, first_after(stops, time)
        while start < len(bins):
            end = len(bins) if stop == len(stops) else min(len(bins), start + stops[stop] - time)
            for i in range(start, end):
                time += 1
                bin, gap = bins[i], gaps[i]
                if told.beforehand:
                    expects(table, costs[i])
                offloaded = offloads(table, bin, time)
                if offloaded:
                    notes(table, bin, time)
                    learns(table, bin, agreed[i], costs[i], time, time)
                    offload(sums, costs[i], gap)
                    if gap < 0.0:
                        wrong_offloads[bin] += 1
                else:
                    accepts(table, bin, time)
                    if told.agreement:
                        learns(table, bin, agreed[i], costs[i], time, time)
                    elif told.cost:
                        learns(table, bin, 1.0, costs[i], time, time)
                    accept(sums, agreed[i], gap)
                    if gap > 0.0:
                        wrong_accepts[bin] += 1
                if has_truth:
                    sums[RIGHT] += remote_right[i] if offloaded else local_right[i]
                if records:
                    decisions[i] = offloaded
            if stop < len(stops) and time == stops[stop]:
                mark(book, stop)
                stop += 1
            start = end

    return play


def first_after(stops: Any, time: int) -> int:
    """The position of the first stop that is still to come."""
    stop = 0
    while stop < len(stops) and stops[stop] <= time:
        stop += 1
    return stop


def mark(book: Book, stop: int) -> None:
    """Copy the sums."""
    for position in range(SUMS):
        book.marks[stop, position] = book.sums[position]


def numba_installed() -> bool:
    """Whether the extra `sim` is there."""
    return find_spec("numba") is not None


MANY = 20_000  # samples, above which loops are compiled
_compiling = threading.Lock()  # numba's registry: a thread must not compile what another has only begun to register
_compiled = set[Functions]()  # for which this process has compiled the loop


def pays(samples: int, functions: Functions | None = None) -> bool:
    """Whether to play so many samples by a compiled loop: if they are many, or this process has compiled it already.

    Measured in processes of their own, in CPU seconds, with 16 bins: compiling takes HILCB 1.2, Isotonic 1.8, Sentinel
    8.5 and a budget around Sentinel 8.8 s, once, and reading the outcome from disk 0.3 s, with numba's import. Python
    plays `MANY` samples of any of these policies in 0.1 s. A first run of a little more than `MANY` samples would be
    sooner done in Python. But where they are that many there will be more: `hinge evaluate` plays a log in 20 orders
    and at 20 prices. Of 800 rows it takes 4 s and compiles nothing; of 2 500 rows it takes 27 s the first time, and 2 s
    from then on, where Python would take 9 s each time.
    """
    return numba_installed() and (samples > MANY or functions in _compiled)


def loop(functions: Functions, machine_code: bool) -> Loop:
    """The loop around a policy's functions, compiled or not; the same one for the same functions."""
    with _compiling:
        if machine_code:
            _compiled.add(functions)
        return _loop(functions, machine_code)


@cache
def _loop(functions: Functions, machine_code: bool) -> Loop:
    made = player(functions)
    return compiled(made) if machine_code else made


def compiled(made: Any) -> Loop:
    """A loop as machine code, cached on disk if a folder for it can be written."""
    import numba

    contained = list(_contained(made, {}))
    for function in contained[1:]:
        _register(function)
    made.__qualname__ = f"{made.__name__}_{digest(contained)}"
    # Nothing is allocated in there, so references need no counting: it would double the time of a decision.
    options: dict[str, Any] = {"nogil": True, "_nrt": False}
    machine: Any = numba.njit(**options)(made)
    with suppress(RuntimeError):  # numba finds no folder, as in a read-only container: every process compiles anew
        machine.enable_caching()
    return cast(Loop, machine)


@cache
def _register(function: FunctionType) -> None:
    """Let compiled code call a function."""
    from numba.extending import register_jitable

    # Only compiled code calls it: what would let Python and C do so takes time to compile.
    register_jitable(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


def _contained(function: FunctionType, found: dict[FunctionType, None]) -> Iterator[FunctionType]:
    """The function and all Python functions that it calls, in a fixed order."""
    found[function] = None
    yield function
    for _, value in _names(function):
        if isinstance(value, FunctionType) and value not in found:
            yield from _contained(value, found)


def _names(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function takes from its closure and from its module, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells)
    names = function.__code__.co_names
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


def digest(functions: list[FunctionType]) -> str:
    """Changes whenever the code of one of the functions does, or its module, or a number that it takes from outside.

    So it does with the modules of the records that a function is annotated to take: what numba keeps names them, and
    could not be read again once one has moved.
    """
    result = hashlib.sha256()
    for function in functions:
        result.update(f"{function.__module__}.{function.__qualname__}".encode())
        result.update(repr([kind for kind in function.__annotations__.values() if isinstance(kind, type)]).encode())
        result.update(marshal.dumps((_without_lines(function.__code__), repr(function.__defaults__))))
        for name, value in _names(function):
            if isinstance(value, int | float | tuple):
                result.update(f"{name}={value!r}".encode())
    return result.hexdigest()[:16]


def _without_lines(code: CodeType) -> Any:
    constants = tuple(_without_lines(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def machine_table(table: Any) -> Any:
    """A copy of a policy's table with numpy arrays in place of its columns, as compiled code takes it."""
    if hasattr(table, "_fields"):
        return type(table)(*map(machine_table, table))
    return np.array(table) if isinstance(table, array | list) else table
