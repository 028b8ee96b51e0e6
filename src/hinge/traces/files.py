"""Traces on disk, by the end of the file's name.

    .csv        readable anywhere; keeps the columns bit by bit, but neither name nor provenance
    .npz        compact; keeps everything
    .parquet    for data frames; keeps everything; needs `hinge[parquet]`
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, NamedTuple

from hinge.names import did_you_mean
from hinge.traces.csv_format import read_csv, write_csv
from hinge.traces.npz_format import read_npz, write_npz
from hinge.traces.parquet_format import read_parquet, write_parquet
from hinge.traces.trace import Trace


class _Format(NamedTuple):
    read: Callable[[str, IO[bytes]], Trace]
    write: Callable[[Trace, IO[bytes]], None]


_FORMATS = {
    ".csv": _Format(read_csv, write_csv),
    ".npz": _Format(read_npz, write_npz),
    ".parquet": _Format(read_parquet, write_parquet),
}


def read_trace(path: str | PathLike[str]) -> Trace:
    """The trace in a file; one that is damaged raises `InvalidTrace`, which says where.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "log.csv")
    >>> _ = path.write_text("confidence,local,remote\\n0.93,cat,cat\\n0.41,dog,cat\\n")
    >>> read_trace(path)
    <Trace 'log': 2 samples, confidence, local, remote, agreement 0.500>
    """
    format = _format("read_trace", path)
    with open(path, "rb") as stream:
        return format.read(os.fspath(path), stream)


def write_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Writes the trace to a file, whole or not at all: a write that fails leaves an old file as it was.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "log.npz")
    >>> trace = Trace([0.93, 0.41], [3, 5], [3, 3], name="log", about={"date": "2026-01-31"})
    >>> write_trace(trace, path)
    >>> read_trace(path) == trace
    True
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"write_trace: trace must be a Trace, got {trace!r}")
    format = _format("write_trace", path)
    with replacing(path) as stream:
        format.write(trace, stream)


def _format(owner: str, path: str | PathLike[str]) -> _Format:
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(f"{owner}: {path}: no format of traces ends in {suffix!r}{did_you_mean(suffix, _FORMATS)}")
    return _FORMATS[suffix]


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file beside the old one, which takes its place once all is written and on disk."""
    target = os.path.realpath(path)  # replace what a link points at, not the link
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe is written to, never replaced
        with open(target, "wb") as stream:
            yield stream
        return
    part = os.path.join(os.path.dirname(target), f".hinge-{secrets.token_hex(8)}.part")
    try:
        stream = open(part, "xb")  # noqa: SIM115  # closed before it is renamed, which Windows asks for
    except OSError as error:
        error.filename = os.fspath(path)  # the name that the caller knows
        raise
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if os.path.exists(target):
            shutil.copymode(target, part)  # what was private stays so
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
