"""Recorded streams: what a trace and a log are, both in files; and the traces that come with Hinge.

The latter are all npz files in the folder `data`, each under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files as resources
from typing import TYPE_CHECKING, cast

from hinge._checks import did_you_mean
from hinge.errors import UnknownName
from hinge.traces.files import read_log, read_recorded, read_stream, read_trace, write_trace
from hinge.traces.log import Log
from hinge.traces.trace import Trace

if TYPE_CHECKING:
    from importlib.abc import Traversable  # moved in Python 3.11, and gone from here in 3.14

__all__ = [
    "Log",
    "Trace",
    "describe",
    "load_trace",
    "read_log",
    "read_recorded",
    "read_stream",
    "read_trace",
    "trace_names",
    "write_trace",
]

_SUFFIX = ".npz"


def trace_names() -> list[str]:
    """The names of all shipped traces.

    >>> "synthetic-cifar10" in trace_names()
    True
    """
    return sorted(_shipped())


def load_trace(name: str) -> Trace:
    """The shipped trace of that name.

    >>> load_trace("synthetic-cifar10")
    <Trace 'synthetic-cifar10': 10000 samples, confidence, local, remote, label, agreement 0...>
    >>> load_trace("synthetic-cifra10")
    Traceback (most recent call last):
    hinge.errors.UnknownName: no trace is called 'synthetic-cifra10'; did you mean 'synthetic-cifar10'?
    """
    shipped = _shipped()
    if name not in shipped:
        file = "; read_trace reads a file" if "." in name or "/" in name else ""
        raise UnknownName(f"no trace is called {name!r}{did_you_mean(name, shipped)}{file}")
    with shipped[name].open("rb") as stream:
        return cast(Trace, read_stream(shipped[name].name, stream))  # every row of these is answered


def describe(name: str) -> Mapping[str, str]:
    """Where the shipped trace of that name comes from.

    >>> describe("synthetic-cifar10")["kind"]
    'synthetic: drawn from formulas; no image was seen and no model was run'
    """
    return load_trace(name).about


def _shipped() -> dict[str, Traversable]:
    folder = resources("hinge.traces") / "data"
    return {file.name.removesuffix(_SUFFIX): file for file in folder.iterdir() if file.name.endswith(_SUFFIX)}
