"""The loops of the simulator: decide; if offloaded, learn; add to the sums. Compiled by numba where it is installed.

`player` makes a loop around the functions of a policy and of what else its gate does. `loop` compiles it, or leaves it
as Python. Both give the same bits: numba compiles the functions that the policy objects call, and may not
reorder arithmetic. The loop takes the same steps as `Gate.decide` and `Gate.learn`: change them together. Compiled
loops are cached on disk under a name that holds a digest of all the code they contain.
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

from hinge.budget import catch_up, charge, extra_price
from hinge.cells import DUE, form_bins, write_record
from hinge.ledger import RIGHT, SUMS, accept, offload
from hinge.policies.policy import Functions, add_cells, set_price
from hinge.price import LOOK, MEAN, pay
from hinge.simulation.sources import Samples

Loop = Callable[..., None]


class Told(NamedTuple):
    """What a policy is told about accepted samples, too, and whether a price is told for each sample."""

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


class Parts(NamedTuple):
    """The tables of a gate: of its policy, its cells, its price and its budget; empty where it has none."""

    policy: Any
    cells: Any
    price: Any
    budget: Any


class Features(NamedTuple):
    """What a gate does beyond asking its policy; what it does not do is not compiled."""

    fitted: bool = False
    measured: bool = False
    budgeted: bool = False
    told: bool = False


def player(functions: Functions, features: Features) -> Loop:
    """Return the loop for a gate whose policy has these functions."""
    offloads, learns, accepts, asks, passes, given_at, given_reprices, given_regroups, _ = functions
    offloads_at: Any = given_at or offloads
    reprices: Any = given_reprices or set_price
    regroups: Any = given_regroups or add_cells
    fitted, measured, budgeted, by_price = features
    repriced = given_reprices is not None and (measured or budgeted)

    def play(parts: Parts, time: int, samples: Samples, told: Told, book: Book) -> None:
        """Run the gate over the samples that follow those up to `time`."""
        table, cells, price, budget = parts
        columns: Any = samples  # those that it lacks are empty here, not None; `places` are cells, if bins are fitted
        bins, agreed, costs, gaps, local_right, remote_right, places = columns
        sums, stops, _, wrong_accepts, wrong_offloads, decisions = book
        has_truth, records = len(local_right) > 0, len(decisions) > 0
        start, stop = 0, first_after(stops, time)
        while start < len(bins):
            end = len(bins) if stop == len(stops) else min(len(bins), start + stops[stop] - time)
            for i in range(start, end):
                time += 1
                bin, gap = bins[i], gaps[i]
                if fitted:
                    cells.samples[places[i]] += 1.0
                    bin = cells.group[places[i]]
                if budgeted:
                    catch_up(budget, time)
                    now = costs[i] if by_price else price.sums[MEAN]
                    wanted = offloads_at(table, bin, time, min(1.0, now + extra_price(budget)))
                    offloaded = (wanted or (measured and time > price.sums[LOOK])) and charge(budget)
                    if offloaded and wanted:
                        asks(table, bin, time)
                    elif not offloaded:
                        passes(table, bin, time)
                elif by_price:
                    offloaded = offloads_at(table, bin, time, costs[i])
                    if offloaded:
                        asks(table, bin, time)
                    else:
                        passes(table, bin, time)
                else:
                    wanted = offloads(table, bin, time)
                    offloaded = wanted or (measured and time > price.sums[LOOK])
                    if wanted:
                        asks(table, bin, time)
                    elif not offloaded:
                        accepts(table, bin, time)
                if offloaded:
                    outcome = learns(table, bin, agreed[i], costs[i], time, time)
                    if fitted:
                        write_record(cells, places[i], agreed[i], outcome)
                        if time >= cells.due[DUE]:
                            form_bins(cells, table, 1.0 - price.sums[MEAN], time)
                            regroups(table, cells, time)
                    if measured:
                        pay(price, costs[i], time)
                    if repriced:
                        reprices(table, price.sums[MEAN], extra_price(budget) if budgeted else 0.0, time)
                    offload(sums, costs[i], gap)
                    if gap < 0.0:
                        wrong_offloads[bins[i]] += 1
                else:
                    if told.agreement:
                        learns(table, bin, agreed[i], costs[i], time, time)
                    elif told.cost:
                        learns(table, bin, 1.0, costs[i], time, time)
                    accept(sums, agreed[i], gap)
                    if gap > 0.0:
                        wrong_accepts[bins[i]] += 1
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


MANY = 200_000  # samples, above which loops are compiled: that takes as long as running so many as Python
_compiling = threading.Lock()  # numba's registry: a thread must not compile what another has only begun to register
_compiled = set[tuple[Functions, Features]]()  # for which this process has compiled the loop


def pays(samples: int, functions: Functions | None = None, features: Features | None = None) -> bool:
    """Return whether to play so many samples by a compiled loop: if they are many, or it is compiled already."""
    return numba_installed() and (samples > MANY or (functions, features) in _compiled)


def loop(functions: Functions, features: Features, machine_code: bool) -> Loop:
    """The loop around a policy's functions, compiled or not; the same one for the same functions."""
    with _compiling:
        if machine_code:
            _compiled.add((functions, features))
        return _loop(functions, features, machine_code)


@cache
def _loop(functions: Functions, features: Features, machine_code: bool) -> Loop:
    made = player(functions, features)
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
