"""Columns of a trace: which there are, and what may stand in them.

    confidence, cost        numbers from 0 to 1, kept as float64
    local, remote, label    integers (kept as int64) or text, in all three the same

Rows count from 0. A column that fails its check raises `InvalidTrace`, naming the column and the first bad row.
"""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral
from reprlib import repr as brief
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge.arguments import real
from hinge.errors import InvalidTrace
from hinge.names import did_you_mean

Floats = NDArray[np.float64]
Labels = NDArray[Any]  # int64 or str_

NEEDED = ("confidence", "local", "remote")
OPTIONAL = ("label", "cost")
LONGEST_LABEL = 256  # an array of text is as wide as its longest entry, so one endless label would fill the memory
INTEGERS = np.iinfo(np.int64)
_SHOWN = 80  # characters of a header that need not be ours


def check_names(where: str, names: Sequence[str], needed: Collection[str], optional: Collection[str]) -> None:
    """All that is needed, each once. Other columns are ignored, unless they look like a slip of the pen: a misspelt
    `label` must not pass for a trace without one.

    >>> check_names("log.csv", ["confidence", "local", "remote", "lable"], NEEDED, OPTIONAL)
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: log.csv: unknown column 'lable'; did you mean 'label'?
    """
    known = [*needed, *optional]
    for name in names:
        absent = [column for column in known if column not in names]
        if name not in known and get_close_matches(name.lower(), absent, cutoff=0.75):
            raise InvalidTrace(f"{where}: unknown column {name!r}{did_you_mean(name.lower(), absent)}")
        if name in known and names.count(name) > 1:
            raise InvalidTrace(f"{where}: column {name!r} comes twice")
    for name in needed:
        if name not in names:
            others = [str(other) for other in names if other not in known]
            found = repr(", ".join(map(str, names)))[1:-1]
            found = found if len(found) <= _SHOWN else found[:_SHOWN] + "…"
            missing = f"{where}: column {name!r} is missing{_likely(name, others)}"
            raise InvalidTrace(f"{missing}; needed are {', '.join(needed)}, found are {found}")


def _likely(name: str, others: Sequence[str]) -> str:
    """A guess at what a column is called where it has another name."""
    shared = [other for other in others if len(other) > 2 and (other.lower() in name or name in other.lower())]
    close = shared or get_close_matches(name, others, n=1)
    return f" (is it {brief(close[0])}?)" if close else ""


def fractions(column: str, values: ArrayLike) -> Floats:
    """Numbers from 0 to 1, one per row.

    >>> fractions("confidence", [0.5, float("nan")])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace: confidence in row 1 must be from 0 to 1, got nan
    """
    array = one_dimensional(column, values)
    if array.dtype.kind not in "fiu":  # one by one, as numpy turns the numbers beside a text into texts
        given: Any = values
        return _frozen(np.array([_fraction(column, row, value) for row, value in enumerate(given)], np.float64))
    numbers = np.array(array, np.float64)
    outside = np.flatnonzero(~((numbers >= 0) & (numbers <= 1)))
    if outside.size:
        _fraction(column, int(outside[0]), numbers[outside[0]].item())
    return _frozen(numbers)


def labels(column: str, values: ArrayLike) -> Labels:
    """Integers or texts, one per row.

    >>> labels("local", ["cat", None])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace: local in row 1 must be text as in row 0, got None
    """
    array = one_dimensional(column, values)
    if not array.size:
        return _frozen(np.empty(0, np.int64))
    if array.dtype.kind in "iu":
        return _frozen(_integers(column, array))
    if array.dtype.kind == "U" and isinstance(values, np.ndarray):
        return _frozen(_texts(column, array.tolist()))
    if array.dtype.kind == "f" and hasattr(values, "dtype"):
        # Frames turn integers into floats where one is missing, so that one is to blame.
        row = np.isnan(array).argmax()
        raise InvalidTrace(f"Trace: {column} in row {row} must be an integer or text, got {array[row]}")
    # From a list one by one, as numpy turns the numbers beside a text into texts.
    given: Any = array.tolist() if isinstance(values, np.ndarray) else values
    return _frozen(_of_one_kind(column, list(given)))


def kind(array: Labels) -> str:
    """What a checked column of labels holds, in words."""
    return "integers" if array.dtype.kind == "i" else "text"


def label_problem(text: str) -> str | None:
    """Why a text cannot be a label; nothing where it can.

    Neither numpy nor every csv module keeps a NUL, and half a surrogate pair cannot be written to any file.
    """
    if not text:
        return "is empty"
    if len(text) > LONGEST_LABEL:
        return f"is longer than {LONGEST_LABEL} characters"
    if "\0" in text or not _is_unicode(text):
        return "is not Unicode text"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_dimensional(column: str, values: ArrayLike) -> NDArray[Any]:
    """`values` as an array of one value per row."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise InvalidTrace(f"Trace: {column} must have one value per row, got {brief(values)}") from None
    if array.ndim != 1:
        raise InvalidTrace(f"Trace: {column} must have one value per row, got shape {array.shape}")
    return array


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _fraction(column: str, row: int, value: object) -> float:
    try:
        return real("Trace", f"{column} in row {row}", value, 0, 1)
    except (TypeError, ValueError) as error:
        raise InvalidTrace(str(error)) from None


def _integers(column: str, array: NDArray[Any]) -> NDArray[np.int64]:
    beyond = np.flatnonzero(array > INTEGERS.max)
    if beyond.size:
        raise InvalidTrace(f"Trace: {column} in row {beyond[0]} must fit into 64 bits, got {array[beyond[0]]}")
    return np.array(array, np.int64)


def _texts(column: str, texts: Sequence[str]) -> NDArray[np.str_]:
    bad = {text for text in set(texts) if label_problem(text)}
    if bad:
        row, text = next((row, text) for row, text in enumerate(texts) if text in bad)
        raise InvalidTrace(f"Trace: {column} in row {row} {label_problem(text)}, got {brief(text)}")
    return np.array(texts, np.str_)


def _of_one_kind(column: str, values: list[Any]) -> Labels:
    """Labels from Python objects, as frames and lists give them."""
    kinds = [_kind_of(value) for value in values]
    for row, found in enumerate(kinds):
        if found is None or found != kinds[0]:
            wanted = "an integer or text" if kinds[0] is None else f"{kinds[0]} as in row 0"
            raise InvalidTrace(f"Trace: {column} in row {row} must be {wanted}, got {brief(values[row])}")
    if kinds[0] == "text":
        return _texts(column, values)
    return _from_integers(column, values)


def _kind_of(value: object) -> str | None:
    if isinstance(value, str):
        return "text"
    return "an integer" if isinstance(value, Integral) and not isinstance(value, bool) else None


def _from_integers(column: str, values: Iterable[Any]) -> NDArray[np.int64]:
    for row, value in enumerate(values):
        if not INTEGERS.min <= value <= INTEGERS.max:
            raise InvalidTrace(f"Trace: {column} in row {row} must fit into 64 bits, got {brief(value)}")
    return np.array(values, np.int64)
