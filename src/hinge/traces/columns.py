"""The columns of a trace: what they are called in a table, and what they may hold.

    confidence, cost          numbers from 0 to 1, kept as float64
    local, remote, label      integers (kept as int64) or text, in all three the same; or scores
    agreed                    how far local agrees with remote, from 0 to 1: in place of the two answers, or beside them
    local_right, remote_right how far either is right, likewise: in place of the label

Rows count from 0. A column that fails its check raises `InvalidValueIn`, which names the column and the first bad row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from numbers import Integral, Real
from reprlib import repr as brief
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import did_you_mean, shown
from hinge.confidence import ConfidenceMeasure, confidences
from hinge.errors import InvalidTrace

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Labels = NDArray[Any]  # int64, str_, or objects where some are None

NEEDED = ("confidence", "local", "remote")
OPTIONAL = ("label", "cost", "agreed", "local_right", "remote_right")
ANSWERS = ("local", "remote", "label")
BESIDE = ("audit", "bin", "time")  # columns of a table that are about its rows
_KNOWN = (*NEEDED, *OPTIONAL, *BESIDE)
_ALSO = {
    "truth": "label", "labels": "label", "timestamp": "time", "agreement": "agreed",
    "local_logits": "local", "remote_logits": "remote",
}  # fmt: skip  # several to a line
MAX_LABEL = 256  # characters: an array of text is as wide as its longest entry
_AT_ONCE = 2**16  # rows of text that are objects of Python at a time
MAX_SHOWN = 80  # characters of a header that need not be ours


class InvalidValueIn(InvalidTrace):
    """A value in a column makes no sense."""

    column, row, problem = "", 0, ""

    @classmethod
    def at(cls, column: str, row: int, problem: str) -> InvalidValueIn:
        """Make one that names the column and the row."""
        error = cls(f"Trace: {column} in row {row} {problem}")
        error.column, error.row, error.problem = column, row, problem
        return error


# -- names ------------------------------------------------------------------------------------------------------------


def named(where: str, names: Sequence[Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what our columns are called in a table: as `columns` says, else by name in any case.

    `label` beside `truth` or `source` is the answer that was given, as in what `hinge device --json` prints; and
    `agreement` beside `source` is that of the bin. Others are ignored, unless they look like a misspelt one: a trace
    with a column `lable` must not pass for one without labels.

    >>> named("log.csv", ["Confidence", "pred", "remote", "label", "truth"], {"local": "pred"})
    {'local': 'pred', 'confidence': 'Confidence', 'remote': 'remote', 'label': 'truth'}
    >>> named("log.csv", ["confidence", "local", "remote", "lable"])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: log.csv: unknown column 'lable'; did you mean 'label'?
    """
    found = dict(columns or {})
    for ours, theirs in found.items():
        if ours not in _KNOWN:
            raise InvalidTrace(f"{where}: no column of a trace is called {shown(ours)}{did_you_mean(ours, _KNOWN)}")
        if theirs not in names:
            near = did_you_mean(theirs, [str(name) for name in names])
            raise InvalidTrace(f"{where}: there is no column {shown(theirs)} to take for {ours}{near}")
        if list(names).count(theirs) > 1:
            raise InvalidTrace(f"{where}: column {theirs!r} comes twice")
    texts: dict[str, Any] = {}
    for name in names:
        text = str(name).strip().lower()
        if text in texts and text in (*_KNOWN, *_ALSO) and text not in found:
            other = texts[text]
            twice = f"column {name!r} comes twice" if other == name else f"columns {other!r} and {name!r} are the same"
            raise InvalidTrace(f"{where}: {twice}")
        if name not in found.values():
            texts[text] = name
    by_device = "source" in texts
    if by_device or "truth" in texts:
        texts.pop("label", None)
    if by_device:
        texts.pop("agreement", None)
    for text, name in texts.items():  # the exact name goes before another
        if text in _KNOWN:
            found.setdefault(text, name)
    for text, name in texts.items():
        found.setdefault(_ALSO.get(text, ""), name)
    found.pop("", None)
    absent = [column for column in (*NEEDED, *OPTIONAL) if column not in found]
    for name in (str(name) for name in names if name not in found.values()):
        text = name.strip().lower()
        if text not in (*_KNOWN, *_ALSO) and get_close_matches(text, absent, cutoff=0.75):
            raise InvalidTrace(f"{where}: unknown column {shown(name)}{did_you_mean(text, absent)}")
    needed = ("confidence",) if "agreed" in found else NEEDED["local" in found :]  # which may hold scores
    for name in needed:
        check_there(where, name, found, names)
    return found


def check_there(where: str, name: str, found: Collection[str], names: Sequence[Any]) -> None:
    """Check that a column that is needed was found among the names of a table.

    >>> check_there("log.csv", "confidence", ["local", "remote"], ["conf", "local", "remote"])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: log.csv: column 'confidence' is missing (is it 'conf'?); needed are confidence, ...
    """
    if name in found:
        return
    listed = repr(", ".join(map(str, names)))[1:-1]
    listed = listed if len(listed) <= MAX_SHOWN else listed[:MAX_SHOWN] + "…"
    others = [str(other) for other in names if str(other).lower() not in _KNOWN]
    shared = [other for other in others if len(other) > 2 and (other.lower() in name or name in other.lower())]
    close = shared or get_close_matches(name, others, n=1)
    guess = f" (is it {brief(close[0])}?)" if close else ""
    needed = ("confidence", "agreed") if "agreed" in found else NEEDED
    missing = f"{where}: column {name!r} is missing{guess}"
    raise InvalidTrace(f"{missing}; needed are {', '.join(needed)}, found are {listed}")


# -- values -----------------------------------------------------------------------------------------------------------


def fractions(column: str, values: ArrayLike, gaps: bool = False) -> Floats:
    """Return numbers from 0 to 1, one per row; with `gaps` some may be None or NaN, and are NaN then.

    >>> fractions("confidence", [0.5, float("nan")])
    Traceback (most recent call last):
    hinge.traces.columns.InvalidValueIn: Trace: confidence in row 1 must be from 0 to 1, got nan
    """
    array = _array(column, values)
    if array.dtype.kind not in "fiu" and not (array.dtype.kind == "b" and column not in ("confidence", "cost")):
        array = np.array([_number(column, row, value, gaps) for row, value in enumerate(array.tolist())], np.float64)
    numbers = np.array(array, np.float64)
    outside = ~((numbers >= 0) & (numbers <= 1) | (gaps & np.isnan(numbers)))
    if outside.any():
        row = int(outside.argmax())
        raise InvalidValueIn.at(column, row, f"must be from 0 to 1, got {numbers[row]}")
    return frozen(numbers)


def labels(column: str, values: ArrayLike, gaps: bool = False) -> Labels | None:
    """Return integers or texts, one per row; with `gaps` some may be None, NaN or empty, and are None then.

    If all of them are missing, so is the column.

    >>> labels("local", ["cat", None])
    Traceback (most recent call last):
    hinge.traces.columns.InvalidValueIn: Trace: local in row 1 is missing
    >>> labels("label", ["cat", None, ""], gaps=True), labels("label", [3.0, float("nan")], gaps=True)
    (array(['cat', None, None], dtype=object), array([3, None], dtype=object))
    """
    array = _array(column, values)
    known = are_known(array)
    if not known.all() and not gaps:
        raise InvalidValueIn.at(column, int(known.argmin()), "is missing")
    rows = np.flatnonzero(known)
    found = _of_one_kind(column, array[known], rows)
    if known.all():
        return frozen(found)
    if not known.any():
        return None
    result = np.full(len(array), None, object)
    result[known] = found
    return frozen(result)


def are_known(array: NDArray[Any]) -> Bools:
    """Say which rows hold a value: None, NaN and empty text are none."""
    if array.dtype.kind in "iub":
        return np.ones(len(array), np.bool_)
    if array.dtype.kind in "fU":
        return np.asarray(array == array if array.dtype.kind == "f" else array != "")
    return np.array([value is not None and value == value and value != "" for value in array.tolist()], np.bool_)


def kind(array: Labels) -> str:
    """Say in words what a column of labels holds."""
    if array.dtype.kind == "O":
        return "text" if any(isinstance(label, str) for label in array) else "integers"
    return "integers" if array.dtype.kind == "i" else "text"


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, which nobody can change any more."""
    array.setflags(write=False)
    return array


def _array(column: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise InvalidTrace(f"Trace: {column} must have one value per row, got {brief(values)}") from None
    if array.ndim != 1:
        raise InvalidTrace(f"Trace: {column} must have one value per row, got shape {array.shape}")
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        return np.fromiter(values, object, len(array))  # type: ignore[arg-type]  # numpy turns numbers beside text into text
    return array


def _number(column: str, row: int, value: Any, gaps: bool) -> float:
    if gaps and value is None:
        return np.nan
    if not isinstance(value, Real) or (isinstance(value, bool) and column in ("confidence", "cost")):
        raise InvalidValueIn.at(column, row, f"must be a number, got {brief(value)}")
    return float(value)


def _of_one_kind(column: str, array: NDArray[Any], rows: NDArray[np.intp]) -> Labels:
    if array.dtype.kind == "i":
        return np.array(array, np.int64)
    kinds: list[str | None]
    distinct: set[Any]
    if array.dtype.kind == "U":
        parts = (array[start : start + _AT_ONCE].tolist() for start in range(0, len(array), _AT_ONCE))
        kinds, distinct = ["text"], {text for part in parts for text in part}
    else:
        kinds, distinct = [_kind(value) for value in array], set(array.tolist())
    odd = next((place for place, found in enumerate(kinds) if found is None or found != kinds[0]), None)
    if odd is not None:
        wanted = "an integer or text" if None in (kinds[0], kinds[odd]) else f"{kinds[0]} as in row {rows[0]}"
        raise InvalidValueIn.at(
            column, int(rows[odd]), f"must be {wanted}, got {brief(array[odd : odd + 1].tolist()[0])}"
        )
    text = kinds[:1] == ["text"]
    problems = {
        value: problem for value in distinct if (problem := (_problem_of_text if text else _problem_of_number)(value))
    }
    if problems:
        place, value = next((place, value) for place, value in enumerate(array.tolist()) if value in problems)
        raise InvalidValueIn.at(column, int(rows[place]), f"{problems[value]}, got {brief(value)}")
    return array.astype(f"U{max(map(len, distinct), default=1)}" if text else np.int64)


def _kind(value: object) -> str | None:
    if isinstance(value, str):
        return "text"
    if isinstance(value, float | np.floating):  # into which frames turn integers where one is missing
        return "an integer" if float(value).is_integer() and abs(float(value)) < 2**53 else None
    return "an integer" if isinstance(value, Integral) and not isinstance(value, bool) else None


def _problem_of_number(number: float) -> str | None:
    return None if -(2**63) <= number < 2**63 else "must fit into 64 bits"


def _problem_of_text(text: str) -> str | None:
    """Say why a text cannot be a label: numpy keeps no NUL at its end, and half a surrogate pair is in no file."""
    if len(text) > MAX_LABEL:
        return f"is longer than {MAX_LABEL} characters"
    return "is not Unicode text" if re.search("[\0\ud800-\udfff]", text) else None


# -- scores -----------------------------------------------------------------------------------------------------------


def scores(column: str, values: Any) -> NDArray[Any]:
    """Return an array of samples x classes, from such an array or from a list of scores in every row.

    >>> scores("local_logits", [[0.0, 1.0], [1.0]])
    Traceback (most recent call last):
    hinge.traces.columns.InvalidValueIn: Trace: local_logits in row 1 must be 2 finite numbers, got [1.0]
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu" and values.ndim == 2:
        array = values
    else:
        rows = [_row(row) for row in values]
        classes = next((len(row) for row in rows if len(row) > 1), 2)
        bad = next((k for k, row in enumerate(rows) if len(row) != classes), None)
        if bad is not None:
            raise InvalidValueIn.at(column, bad, f"must be {classes} finite numbers, got {brief(values[bad])}")
        array = np.array(rows)
    if array.ndim != 2 or array.shape[1] < 2 or not len(array):
        raise InvalidTrace(f"Trace: {column} must be samples x classes, at least 1 x 2, got shape {array.shape}")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        bad = int(finite.argmin())
        raise InvalidValueIn.at(
            column, bad, f"must be {array.shape[1]} finite numbers, got {brief(array[bad].tolist())}"
        )
    return array


def _row(row: Any) -> NDArray[np.float64]:
    try:
        found = np.asarray(row, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)
    return found if found.ndim == 1 else np.empty(0)


def _holds_scores(values: Any) -> bool:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return True
    first = next((value for value in values if value is not None), None)
    return hasattr(first, "__len__") and not isinstance(first, str)


def from_scores(found: Mapping[str, Any], measure: ConfidenceMeasure) -> dict[str, Any]:
    """Return the columns with answers in place of scores, and with confidences if there are none.

    >>> from hinge.confidence import max_softmax
    >>> from_scores({"local": [[0.1, 0.9], [0.8, 0.2]], "remote": [1, 0]}, max_softmax)
    {'local': array([1, 0]), 'remote': [1, 0], 'confidence': array([0.9, 0.8])}
    """
    columns, classes = dict(found), None
    if "agreed" in columns:  # lists are outputs then, and no scores
        return columns
    for name in ("local", "remote"):
        rows = columns.get(name)
        if rows is None or not _holds_scores(rows):
            continue
        known = [place for place, row in enumerate(rows) if row is not None]
        outputs = scores(name, rows if len(known) == len(rows) else [rows[place] for place in known])
        if classes not in (None, outputs.shape[1]):
            raise InvalidTrace(f"Trace: remote has scores of {outputs.shape[1]} classes, and local of {classes}")
        classes = outputs.shape[1]
        columns[name] = answers = (
            np.full(len(rows), None, object) if len(known) < len(rows) else np.empty(len(rows), int)
        )
        answers[known] = outputs.argmax(axis=1)
        if name == "local" and "confidence" not in columns:
            if not callable(measure):
                raise TypeError(f"Trace: measure must be a confidence measure, got {measure!r}")
            columns["confidence"] = confidences(measure, outputs)
    if classes is None or columns.get("label") is None:
        return columns
    truth = labels("label", columns["label"], gaps=True)
    for row, label in enumerate([] if truth is None else truth.tolist()):
        if label is not None and (isinstance(label, str) or not 0 <= label < classes):
            raise InvalidValueIn.at("label", row, f"must be a class from 0 to {classes - 1}, got {label!r}")
    return columns


# -- tables -----------------------------------------------------------------------------------------------------------


def of_table(
    where: str, names: Sequence[Any], found: Mapping[str, Any], measure: ConfidenceMeasure
) -> dict[str, NDArray[Any]]:
    """Return the columns of a trace or log, checked, in order of time.

    >>> from hinge.confidence import max_softmax
    >>> table = {"time": [2, 1], "confidence": [0.9, 0.5], "local": [1, 0], "remote": [None, 0]}
    >>> {name: values.tolist() for name, values in of_table("log", [*table], table, max_softmax).items()}
    {'confidence': [0.5, 0.9], 'local': [0, 1], 'remote': [0, None]}
    """
    columns = from_scores(found, measure)
    check_there(where, "confidence", columns, names)
    time = columns.pop("time", None)
    for name in list(columns):
        if name in BESIDE:
            columns[name] = _objects(columns[name])
        elif name in ANSWERS:
            try:
                checked = labels(name, columns[name], gaps=name != "local")
            except InvalidTrace:
                if "agreed" not in columns:
                    raise
                checked = None  # outputs that are no labels may stand beside it
            if checked is None and (name == "label" or "agreed" in columns):
                del columns[name]
            else:
                columns[name] = np.full(len(columns[name]), None, object) if checked is None else checked
        else:
            columns[name] = fractions(name, columns[name], gaps=name != "confidence")
    order = None if time is None else _order(where, time)
    return columns if order is None else {name: values[order] for name, values in columns.items()}


def _objects(values: Any) -> NDArray[Any]:
    return values if isinstance(values, np.ndarray) else np.fromiter(values, object, len(values))


def _order(where: str, times: Any) -> list[int] | None:
    """The rows in order of time, which is numbers, dates or ISO 8601; None where they are in order already.

    Rows at the beginning without a time stay there: they were logged before times were.
    """
    try:
        moments = [_moment(time) for time in (times.tolist() if isinstance(times, np.ndarray) else times)]
        first = next((row for row, moment in enumerate(moments) if moment is not None), 0)
        if any(moment is None or moment != moment for moment in moments[first:]):  # NaN and NaT are not themselves
            raise ValueError("one is missing")
        order = [*range(first), *sorted(range(first, len(moments)), key=moments.__getitem__)]
    except (TypeError, ValueError) as error:
        raise InvalidTrace(f"{where}: column time must be all numbers or all dates, as in ISO 8601 ({error})") from None
    return None if order == list(range(len(moments))) else order


def _moment(time: Any) -> Any:
    if not isinstance(time, str):
        return time
    try:
        return float(time)
    except ValueError:
        return datetime.fromisoformat(time)
