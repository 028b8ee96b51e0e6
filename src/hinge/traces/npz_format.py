"""Traces as npz: one compressed array per column, and `metadata` for name and provenance.

Also reads what `numpy.savez` makes of two models' saved outputs: local_logits, remote_logits and, if known, labels.
Nothing is ever unpickled.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidTrace
from hinge.traces.metadata import packed, trace_in_file
from hinge.traces.trace import Trace

_METADATA = "metadata"
_SMALL = (np.uint8, np.int8, np.uint16, np.int16, np.int32)


def read_npz(where: str, stream: IO[bytes]) -> Trace:
    """The trace in an npz file; `where` stands at the front of errors."""
    arrays = _Arrays(where, stream)
    metadata = str(arrays[_METADATA]) if _METADATA in arrays.names else None
    names = [name for name in arrays.names if name != _METADATA]
    return trace_in_file(where, names, arrays, metadata, Path(where).stem)


def write_npz(trace: Trace, stream: IO[bytes]) -> None:
    """The trace as npz, labels in as few bytes as they need."""
    arrays: dict[str, Any] = {name: _small(values) for name, values in trace.columns.items()}
    arrays[_METADATA] = np.array(packed(trace))
    np.savez_compressed(stream, **arrays)


def _small(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind == "i":
        low, high = values.min(), values.max()
        for small in _SMALL:
            if np.iinfo(small).min <= low and high <= np.iinfo(small).max:
                return values.astype(small)
    return values


class _Arrays:
    """The arrays of an npz file, whose every defect is an `InvalidTrace`."""

    def __init__(self, where: str, stream: IO[bytes]) -> None:
        self._where = where
        content = io.BytesIO(stream.read())  # so that whatever fails from here on is the file's fault, not the disk's
        try:
            self._arrays: Any = np.load(content, allow_pickle=False)
            if isinstance(self._arrays, np.ndarray):
                raise ValueError("it is a single array")
            self.names: Sequence[str] = list(self._arrays.files)
        except Exception as error:
            raise self._damaged("it", error) from error

    def __getitem__(self, name: str, /) -> NDArray[Any]:
        try:
            array: NDArray[Any] = self._arrays[name]
        except Exception as error:
            raise self._damaged(f"array {name}", error) from error
        return array

    def _damaged(self, what: str, error: Exception) -> InvalidTrace:
        # Broken bytes surface anywhere in numpy, zipfile and zlib, with an error of any class.
        return InvalidTrace(f"{self._where}: {what} cannot be read as npz ({error or type(error).__name__})")
