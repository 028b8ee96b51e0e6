"""A recorded stream: for every sample the answers of the local and the remote model, and the local one's confidence.

    confidence, cost          numbers from 0 to 1, kept as float64
    local, remote, label      integers (kept as int64) or text, in all three the same
    agreed                    how far local agrees with remote, from 0 to 1: in place of the two answers, or beside them
    local_right, remote_right how far either is right, likewise: in place of the label

The truth may be missing in rows: then `label` is None there, and `local_right` and `remote_right` are NaN.

A trace is made from columns, from a frame, or from the scores of both models. Rows count from 0. A column that fails
its check raises `InvalidTrace`, which names the column and the first bad row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from numbers import Integral
from reprlib import repr as brief
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import did_you_mean, real, shown
from hinge.bins import Bins
from hinge.confidence import ConfidenceMeasure, confidences, max_softmax
from hinge.errors import InvalidTrace

Floats = NDArray[np.float64]
Labels = NDArray[Any]  # int64 or str_

NEEDED = ("confidence", "local", "remote")
OPTIONAL = ("label", "cost", "agreed", "local_right", "remote_right")
FRACTIONS = ("confidence", "cost", "agreed", "local_right", "remote_right")
BESIDE = ("audit", "bin", "time")  # columns of a file or frame that are about its rows
_ALSO = {"truth": "label", "labels": "label", "timestamp": "time", "agreement": "agreed"}  # other names of columns
LONGEST_LABEL = 256  # an array of text is as wide as its longest entry, so one endless label would fill the memory
INTEGERS = np.iinfo(np.int64)
_SHOWN = 80  # characters of a header that need not be ours


def check_names(where: str, names: Sequence[str], needed: Collection[str], optional: Collection[str]) -> None:
    """Check that all needed columns are there, each once. Others are ignored, unless they look like a misspelt one: a
    trace with a column `lable` must not pass for one without labels.

    >>> check_names("log.csv", ["confidence", "local", "remote", "lable"], NEEDED, OPTIONAL)
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: log.csv: unknown column 'lable'; did you mean 'label'?
    """
    known, counts = [*needed, *optional], Counter(names)
    if "agreed" in counts:
        needed = ("confidence", "agreed")
    absent = [column for column in known if column not in counts]
    for name in names:
        if name not in known and get_close_matches(name.lower(), absent, cutoff=0.75):
            raise InvalidTrace(f"{where}: unknown column {shown(name)}{did_you_mean(name.lower(), absent)}")
        if name in known and counts[name] > 1:
            raise InvalidTrace(f"{where}: column {name!r} comes twice")
    for name in needed:
        if name not in names:
            others = [str(other) for other in names if other not in known]
            found = repr(", ".join(map(str, names)))[1:-1]
            found = found if len(found) <= _SHOWN else found[:_SHOWN] + "…"
            shared = [other for other in others if len(other) > 2 and (other.lower() in name or name in other.lower())]
            close = shared or get_close_matches(name, others, n=1)
            guess = f" (is it {brief(close[0])}?)" if close else ""
            missing = f"{where}: column {name!r} is missing{guess}"
            raise InvalidTrace(f"{missing}; needed are {', '.join(needed)}, found are {found}")


def renamed(where: str, names: Sequence[Any], columns: Mapping[str, str] | None = None) -> list[str]:
    """The names of a table's columns, ours for those that are ours: as `columns` says, else by name in any case.

    `label` beside `truth` or `source` is the answer that was given, as in what `hinge device --json` prints; and
    `agreement` beside `agreed` or `source` is that of the bin.

    >>> renamed("log.csv", ["Confidence", "pred", "label", "truth"], {"local": "pred"})
    ['confidence', 'local', '', 'label']
    """
    known, given = (*NEEDED, *OPTIONAL, *BESIDE), dict(columns or {})
    for ours, theirs in given.items():
        if ours not in known:
            raise InvalidTrace(f"{where}: no column of a trace is called {shown(ours)}{did_you_mean(ours, known)}")
        if theirs not in names:
            near = did_you_mean(theirs, [str(name) for name in names])
            raise InvalidTrace(f"{where}: there is no column {shown(theirs)} to take for {ours}{near}")
    texts = [str(name).strip().lower() for name in names]
    theirs_to_ours, there = {theirs: ours for ours, theirs in given.items()}, set(names)
    answer = "label" not in given and ("truth" in texts or "source" in texts)
    if answer:
        there.discard("label")
    of_bin = "agreed" in texts or "source" in texts
    result = []
    for name, text in zip(names, texts, strict=True):
        ours = _ALSO.get(text, text)
        if name in theirs_to_ours:
            result.append(theirs_to_ours[name])
        elif ours in given or (text == "label" and answer) or (text == "agreement" and of_bin):
            result.append("")  # another column is taken for it
        else:
            result.append(ours if ours in known and (name == ours or ours not in there) else str(name))
    return result


def fractions(column: str, values: ArrayLike, gaps: bool = False) -> Floats:
    """Numbers from 0 to 1, one per row; with `gaps` they may be missing, and are NaN there.

    >>> fractions("confidence", [0.5, float("nan")])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace: confidence in row 1 must be from 0 to 1, got nan
    """
    array = one_dimensional(column, values)
    if gaps and array.dtype.kind == "O":
        array = np.asarray(values := [np.nan if value is None else value for value in array.tolist()])
    if array.dtype.kind == "b" and column not in ("confidence", "cost"):
        return _frozen(array.astype(np.float64))
    if array.dtype.kind not in "fiu":  # one by one, as numpy turns the numbers beside a text into texts
        given: Any = values
        return _frozen(np.array([_fraction(column, row, value) for row, value in enumerate(given)], np.float64))
    numbers = np.array(array, np.float64)
    outside = np.flatnonzero(~((numbers >= 0) & (numbers <= 1) | (gaps & np.isnan(numbers))))
    if outside.size:
        _fraction(column, int(outside[0]), numbers[outside[0]].item())
    return _frozen(numbers)


def checked_labels(column: str, values: ArrayLike) -> Labels:
    """Integers or texts, one per row.

    >>> checked_labels("local", ["cat", None])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace: local in row 1 must be text as in row 0, got None
    """
    array = one_dimensional(column, values)
    if not array.size:
        return _frozen(np.empty(0, np.int64))
    if array.dtype.kind in "iu":
        return _frozen(np.array(array, np.int64) if array.dtype != np.uint64 else _integers(column, array.tolist()))
    if array.dtype.kind == "U" and isinstance(values, np.ndarray):
        return _frozen(_texts(column, array.tolist()))
    if array.dtype.kind == "f" and hasattr(values, "dtype"):
        # Frames turn integers into floats where one is missing, and other programs all of them.
        odd = (array != np.floor(array)) | (np.abs(array) >= 2**53)  # where floats are not one apart
        if odd.any():
            row = odd.argmax()
            raise InvalidTrace(f"Trace: {column} in row {row} must be an integer or text, got {array[row]}")
        return _frozen(array.astype(np.int64))
    # From a list one by one, as numpy turns the numbers beside a text into texts.
    given: Any = array.tolist() if isinstance(values, np.ndarray) else values
    return _frozen(_of_one_kind(column, list(given)))


def known_labels(column: str, values: Any) -> Labels | None:
    """Labels that may be missing in rows, which hold None then; None if all are missing.

    >>> known_labels("label", ["cat", None, ""]), known_labels("label", [3.0, float("nan")])
    (array(['cat', None, None], dtype=object), array([3, None], dtype=object))
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return checked_labels(column, values)
    known, found = answered(one_dimensional(column, values) if isinstance(values, list | tuple) else values)
    if known.all():
        return checked_labels(column, values)
    if not known.any():
        return None
    filled: Any = [found[0]] * len(known)  # so that errors name the row
    for row, value in zip(np.flatnonzero(known).tolist(), found, strict=True):
        filled[row] = value
    labels = checked_labels(column, filled).astype(object)
    labels[~known] = None
    return _frozen(labels)


def answered(values: Any) -> tuple[Bools, Any]:
    """Which rows of a column hold an answer, and those answers; None, NaN, NA and empty text are none.

    Whole numbers that a frame turned into floats, where others are missing, are whole again.

    >>> answered([3.0, float("nan")])
    (array([ True, False]), array([3]))
    """
    if hasattr(values, "isna"):  # pandas
        known = ~np.asarray(values.isna())
    elif hasattr(values, "is_null"):  # polars
        known = ~np.asarray(values.is_null())
    else:
        known = np.array([value is not None for value in values], np.bool_)
    rows = np.flatnonzero(known)
    array = np.asarray(values) if hasattr(values, "dtype") else np.asarray(values, object)
    found: list[Any] = array[rows].tolist()
    real = np.array([value == value and value != "" for value in found], np.bool_)  # NaN is not itself
    known[rows[~real]] = False
    answers = [value for value, is_one in zip(found, real, strict=True) if is_one]
    if answers and all(isinstance(value, float) and value.is_integer() for value in answers):
        return known, np.array(answers, np.int64)
    return known, answers


def kind(array: Labels) -> str:
    """What a checked column of labels holds, in words."""
    if array.dtype.kind == "O":
        return "text" if any(isinstance(label, str) for label in array) else "integers"
    return "integers" if array.dtype.kind == "i" else "text"


def label_problem(text: str) -> str | None:
    """Why a text cannot be a label; nothing where it can.

    Neither numpy nor every csv module keeps a NUL, and half a surrogate pair cannot be written to any file.
    """
    if not text:
        return "is empty"
    if len(text) > LONGEST_LABEL:
        return f"is longer than {LONGEST_LABEL} characters"
    return "is not Unicode text" if re.search("[\0\ud800-\udfff]", text) else None


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
    return _texts(column, values) if kinds[0] == "text" else _integers(column, values)


def _kind_of(value: object) -> str | None:
    if isinstance(value, str):
        return "text"
    return "an integer" if isinstance(value, Integral) and not isinstance(value, bool) else None


def _integers(column: str, values: Iterable[Any]) -> NDArray[np.int64]:
    for row, value in enumerate(values):
        if not INTEGERS.min <= value <= INTEGERS.max:
            raise InvalidTrace(f"Trace: {column} in row {row} must fit into 64 bits, got {brief(value)}")
    return np.array(values, np.int64)


_OWNER = "Trace.from_scores"


def columns_from_scores(
    local_logits: ArrayLike, remote_logits: ArrayLike, labels: Any, measure: ConfidenceMeasure
) -> dict[str, Any]:
    """Confidence and both answers, and the truth if it is given.

    >>> from hinge.confidence import max_softmax
    >>> columns_from_scores([[0.0, 1.0]], [[float("nan"), 1.0]], None, max_softmax)
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace.from_scores: remote_logits must be finite, got nan in row 0, class 0
    """
    local, remote = _scores("local_logits", local_logits), _scores("remote_logits", remote_logits)
    if local.shape != remote.shape:
        raise InvalidTrace(f"{_OWNER}: local_logits has shape {local.shape} and remote_logits {remote.shape}")
    if not callable(measure):
        raise TypeError(f"{_OWNER}: measure must be a confidence measure, got {measure!r}")
    return {
        "confidence": confidences(measure, local),
        "local": local.argmax(axis=1),
        "remote": remote.argmax(axis=1),
        "label": None if labels is None else _truth(labels, classes=local.shape[1]),
    }


def _scores(name: str, values: ArrayLike) -> NDArray[Any]:
    array = _rows(name, values)
    if array.ndim != 2 or array.shape[1] < 2 or not len(array):
        raise InvalidTrace(f"{_OWNER}: {name} must be samples x classes, at least 1 x 2, got shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise InvalidTrace(f"{_OWNER}: {name} must be numbers, got {brief(array.tolist()[0][0])}")
    infinite = np.argwhere(~np.isfinite(array))
    if infinite.size:
        row, column = infinite[0]
        raise InvalidTrace(f"{_OWNER}: {name} must be finite, got {array[row, column]} in row {row}, class {column}")
    return array


def holds_scores(values: Any) -> bool:
    """Whether a column has a list of scores in every row, and not an answer."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return True
    first = next((value for value in values if value is not None), None)
    return hasattr(first, "__len__") and not isinstance(first, str)


def _holds_labels(values: Any) -> bool:
    """Whether all values that there are can be labels of one kind."""
    known = [value for value in values if value is not None]
    kinds = {_kind_of(value) for value in known}
    if len(kinds) != 1 or None in kinds:
        return False
    return kinds == {"an integer"} or not any(map(label_problem, set(known)))


def _rows(name: str, values: Any) -> NDArray[Any]:
    """An array of rows also from a frame's column of lists, which numpy takes for a column of objects."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.fromiter(values, dtype=object)
    if array.ndim != 1 or array.dtype.kind != "O":
        return array
    rows = [_row(name, k, row) for k, row in enumerate(array)]
    for k, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InvalidTrace(f"{_OWNER}: {name} has {len(row)} classes in row {k} and {len(rows[0])} in row 0")
    return np.array(rows)


def _row(name: str, k: int, row: object) -> NDArray[np.float64]:
    try:
        scores = np.asarray(row, np.float64)
    except (TypeError, ValueError):
        scores = np.empty(0)
    if scores.ndim != 1 or isinstance(row, str) or not scores.size:
        raise InvalidTrace(f"{_OWNER}: {name} must be a list of numbers in every row, got {brief(row)} in row {k}")
    return scores


def _truth(labels: Any, classes: int) -> NDArray[Any] | None:
    truth = known_labels("labels", labels)
    if truth is None:
        return None
    if kind(truth) != "integers":
        raise InvalidTrace(f"{_OWNER}: labels must be integers from 0 to {classes - 1}, got text")
    outside = [row for row, label in enumerate(truth.tolist()) if label is not None and not 0 <= label < classes]
    if outside:
        row = outside[0]
        raise InvalidTrace(f"{_OWNER}: labels must be from 0 to {classes - 1}, got {truth[row]} in row {row}")
    return truth


Bools = NDArray[np.bool_]
_COLUMNS = (*NEEDED, *OPTIONAL)
_ANSWERS = ("local", "remote", "label")
_TRUTHS = ("label", "local_right", "remote_right")  # may be missing in rows


class Frame(Protocol):
    """Columns by name."""

    def __getitem__(self, column: str, /) -> Any: ...


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Trace:
    """A recorded stream, one row per sample; it is checked when made, and cannot be changed.

    `confidence` is the local model's, `local` and `remote` are the two answers, `label` is the truth and `cost` what an
    offload cost or would have cost, from 0 to 1; the last two may be None. Answers and truth are integers or text.
    `about` says where the trace comes from: data, models, accuracies, date, script.

    Of tasks whose answers are no labels (`hinge.tasks`), `agreed` says how far the answers agree, and `local_right` and
    `remote_right` how far they are right, each from 0 to 1; answers and truth may then be None. Where `about["truth"]`
    begins with "none", the remote was taken for the truth: that is agreement, and these two are left out. The truth may
    be missing in rows (None, NaN or empty text): accuracies are then those of the other rows, `labelled` of them.

    >>> trace = Trace([0.9, 0.4, 0.7], ["cat", "dog", "cat"], ["cat", "cat", "cat"], label=["cat", "cat", "dog"])
    >>> trace.agreed
    array([ True, False,  True])
    >>> len(trace), round(trace.agreement, 3), trace.remote_accuracy is None
    (3, 0.667, False)
    >>> Trace([0.9, 1.4], [1, 2], [1, 1])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace: confidence in row 1 must be from 0 to 1, got 1.4
    >>> Trace([0.9, 0.4], agreed=[1.0, 0.25]).agreement
    0.625
    """

    confidence: Floats
    local: Any  # `Labels`; or None, which few have to think of: `answers` refuses it
    remote: Any
    label: Labels | None
    cost: Floats | None
    agreed: NDArray[Any]  # how far the local answer agrees with the remote's: True and False, or numbers from 0 to 1
    local_right: NDArray[Any] | None  # how far either is right; None where the truth was not recorded
    remote_right: NDArray[Any] | None
    name: str
    about: Mapping[str, str]

    def __init__(
        self,
        confidence: ArrayLike,
        local: ArrayLike | None = None,
        remote: ArrayLike | None = None,
        label: Any = None,
        cost: ArrayLike | None = None,
        name: str = "",
        about: Mapping[str, str] | None = None,
        *,
        agreed: ArrayLike | None = None,
        local_right: Any = None,
        remote_right: Any = None,
    ) -> None:
        if local is not None and remote is not None:  # what follows from them follows anew
            agreed = _unless_derived(agreed)
            local_right, remote_right = (_unless_derived(each, label) for each in (local_right, remote_right))
        known = _checked_about({} if about is None else about)
        if known.get("truth", "").startswith("none"):  # the remote was taken for it
            local_right = remote_right = None
        given = {"confidence": confidence, "local": local, "remote": remote, "label": label, "cost": cost}
        given |= {"agreed": agreed, "local_right": local_right, "remote_right": remote_right}
        if agreed is None and (local is None or remote is None):
            raise InvalidTrace("Trace: local and remote must be given, the answers, or agreed, how far these agree")
        if (local_right is None) != (remote_right is None):
            raise InvalidTrace("Trace: local_right and remote_right must be given together")
        for column, values in given.items():
            check: Any = fractions if column in FRACTIONS else checked_labels
            if column in _TRUTHS:
                check = known_labels if column == "label" else partial(fractions, gaps=True)
            self._set(column, None if values is None else check(column, values))
        if not isinstance(name, str):
            raise TypeError(f"Trace: name must be text, got {name!r}")
        self._set("name", name)
        self._set("about", MappingProxyType(known))
        if not len(self):
            raise InvalidTrace("Trace: there must be at least one sample")
        for column, values in ((name, getattr(self, name)) for name in given if getattr(self, name) is not None):
            if len(values) != len(self):
                raise InvalidTrace(f"Trace: {column} has {len(values)} rows where confidence has {len(self)}")
            if column in _ANSWERS and self.local is not None and kind(values) != kind(self.local):
                differ = f"{column} holds {kind(values)} where local holds {kind(self.local)}"
                raise InvalidTrace(f"Trace: {differ}: number the classes in all, or name them in all")
        if agreed is None:
            self._set("agreed", _equal(self.local, self.remote))
        if local_right is None:
            self._set("local_right", _equal(self.local, self.label))
            self._set("remote_right", _equal(self.remote, self.label))
        else:
            self._set_rights(local_right, remote_right)

    def _set_rights(self, local_right: Any, remote_right: Any) -> None:
        """How far both are right, as it was given: known of both, or of neither."""
        given = zip(_TRUTHS[1:], (local_right, remote_right), strict=True)
        both = [fractions(name, values, gaps=True) for name, values in given]
        gaps = np.isnan(both[0]) | np.isnan(both[1])
        for name, values in zip(_TRUTHS[1:], both, strict=True):
            self._set(name, None if gaps.all() else _frozen(np.where(gaps, np.nan, values)))

    @classmethod
    def from_scores(
        cls,
        local_logits: ArrayLike,
        remote_logits: ArrayLike,
        labels: Any = None,
        measure: ConfidenceMeasure = max_softmax,
        cost: ArrayLike | None = None,
        *,
        name: str = "",
        about: Mapping[str, str] | None = None,
    ) -> Trace:
        """A trace from both models' scores (samples x classes): answers are their largest, confidence is `measure`.

        Where the local model gives probabilities in all rows, their logarithms are taken for its scores.

        >>> trace = Trace.from_scores([[2.0, 1.0, 0.0], [0.0, 0.1, 0.0]], [[5.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
        >>> trace.confidence.round(4), trace.local, trace.remote
        (array([0.6652, 0.3559]), array([0, 1]), array([0, 2]))
        >>> Trace.from_scores([[0.7, 0.2, 0.1]], [[1.0, 0.0, 0.0]]).confidence.round(4)
        array([0.7])
        """
        columns = columns_from_scores(local_logits, remote_logits, labels, measure)
        return cls(**columns, cost=cost, name=name, about=about)

    @classmethod
    def from_frame(
        cls,
        frame: Frame,
        *,
        columns: Mapping[str, str] | None = None,
        measure: ConfidenceMeasure = max_softmax,
        name: str = "",
        about: Mapping[str, str] | None = None,
    ) -> Trace:
        """A trace from a pandas or polars frame, or a dict, with columns confidence, local, remote[, label][, cost].

        `columns` says what they are called in the frame, where that is something else. `local` and `remote` may hold a
        list of scores or probabilities in every row: the answer is the largest, and the confidence `measure`. A column
        time orders the rows. Others are ignored, unless they look like a misspelt one, which is an error.

        >>> frame = {"score": [0.9, 0.4], "Local": [3, 1], "remote": [3, 2]}
        >>> Trace.from_frame(frame, columns={"confidence": "score"}).agreed
        array([ True, False])
        """
        names: Any = getattr(frame, "columns", frame)
        found = standard_columns("Trace.from_frame", list(names), frame, columns, measure)
        for column in ("audit", "bin"):
            found.pop(column, None)
        return cls(**found, name=name, about=about)

    @property
    def answers(self) -> tuple[Labels, Labels]:
        """The local and the remote answers; raises `InvalidTrace` where they were not recorded.

        >>> Trace([0.9], agreed=[0.5], name="boxes").answers
        Traceback (most recent call last):
        hinge.errors.InvalidTrace: the trace 'boxes' holds how far the answers agree, and not the answers: it can be ...
        """
        if self.local is None or self.remote is None:
            missing = f"the trace {self.name!r:.50} holds how far the answers agree, and not the answers"
            raise InvalidTrace(f"{missing}: it can be evaluated, but not answered from")
        return self.local, self.remote

    @property
    def agreement(self) -> float:
        """The share of samples on which both models agree; the mean agreement, where it is a number."""
        return float(self.agreed.mean())

    @property
    def local_accuracy(self) -> float | None:
        """The share of samples on which the local model is right, if the truth is known."""
        return None if self.local_right is None else float(np.nanmean(self.local_right))

    @property
    def remote_accuracy(self) -> float | None:
        """The share of samples on which the remote model is right, if the truth is known."""
        return None if self.remote_right is None else float(np.nanmean(self.remote_right))

    @property
    def labelled(self) -> int:
        """In how many of the samples the truth is known.

        >>> Trace([0.9, 0.4], ["cat", "dog"], ["cat", "cat"], label=["cat", None]).labelled
        1
        """
        return int(self.labelled_rows.sum())

    @property
    def labelled_rows(self) -> Bools:
        """Which they are."""
        right = self.local_right
        return np.zeros(len(self), np.bool_) if right is None else ~np.isnan(right.astype(np.float64))

    @property
    def mean_offload_cost(self) -> float | None:
        """What an offload cost on average, if that was recorded."""
        return None if self.cost is None else float(self.cost.mean())

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns that were recorded, by name; not those that follow from the answers."""
        named = ((column, getattr(self, column)) for column in _COLUMNS)
        found = {column: values for column, values in named if values is not None and values.dtype.kind != "b"}
        pairs = (("local_right", self.local), ("remote_right", self.remote))
        for column, answers in pairs if self.local is not None else ():  # else a task has judged them
            follows = _equal(answers, self.label)  # with gaps it is no boolean
            if follows is not None and column in found and _same(found[column], follows):
                del found[column]
        return found

    def bins_by(self, bins: Bins) -> NDArray[np.int64]:
        """The bin of every sample.

        >>> from hinge import UniformBins
        >>> Trace([0.9, 0.4], [3, 1], [3, 2]).bins_by(UniformBins(16))
        array([14,  6])
        """
        return bins.bin_many(self.confidence, self.local)

    def __len__(self) -> int:
        return len(self.confidence)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        mine, its = self.columns, other.columns
        same = mine.keys() == its.keys() and all(_same(mine[column], its[column]) for column in mine)
        return same and self.name == other.name and self.about == other.about

    def __repr__(self) -> str:
        size = f"{len(self)} sample{'s' * (len(self) != 1)}"
        return f"<Trace {self.name!r}: {size}, {', '.join(self.columns)}, agreement {self.agreement:.3f}>"

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        # Through the constructor, as numpy forgets when pickling that an array is read-only.
        return partial(Trace, **self.columns, name=self.name, about=dict(self.about)), ()

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)


def standard_columns(
    where: str,
    names: Sequence[Any],
    table: Frame,
    columns: Mapping[str, str] | None = None,
    measure: ConfidenceMeasure = max_softmax,
) -> dict[str, Any]:
    """The columns of a trace, or of a log, that are in a table: under our names, answers for scores, in order of time.

    >>> table = {"Time": [2, 1], "local": [[0.1, 0.9], [0.8, 0.2]], "remote": [1, 0]}
    >>> {name: np.round(values, 3).tolist() for name, values in standard_columns("log", list(table), table).items()}
    {'local': [0, 1], 'remote': [0, 1], 'confidence': [0.8, 0.9]}
    """
    if "confidence" not in names and "local_logits" in names:
        return _columns_of_logits(where, names, table, measure)
    ours = renamed(where, names, columns)
    scored = "local" in ours and "confidence" not in ours and holds_scores(table[names[ours.index("local")]])
    check_names(where, ours, NEEDED[scored:], (*OPTIONAL, *NEEDED[:scored]))
    found = {name: table[theirs] for name, theirs in zip(ours, names, strict=True) if name in (*_COLUMNS, *BESIDE)}
    if "agreed" in found:  # outputs that are no labels may stand beside it
        found = {name: values for name, values in found.items() if name not in _ANSWERS or _holds_labels(values)}
    for name in ("local", "remote"):
        if name in found and holds_scores(found[name]):
            rows = list(found[name])
            scores = _scores(name, [row for row in rows if row is not None])
            largest = iter(scores.argmax(axis=1).tolist())
            found[name] = [None if row is None else next(largest) for row in rows]
            if name == "local" and scored:
                found["confidence"] = confidences(measure, scores)
    order = _order(where, found.pop("time", None))
    if order is not None:
        for name, values in found.items():
            found[name] = [values[row] for row in order] if isinstance(values, list) else np.asarray(values)[order]
    return found


def _columns_of_logits(where: str, names: Sequence[str], table: Frame, measure: ConfidenceMeasure) -> dict[str, Any]:
    check_names(where, names, ("local_logits", "remote_logits"), ("label", "labels", "cost"))
    given = {name: table[name] for name in ("label", "labels", "cost") if name in names}
    if {"label", "labels"} <= given.keys():
        raise InvalidTrace(f"{where}: columns 'label' and 'labels' are the same thing; give one")
    labels = given.get("label", given.get("labels"))
    found = columns_from_scores(table["local_logits"], table["remote_logits"], labels, measure)
    return {**found, "cost": given.get("cost")}


def _order(where: str, times: Any) -> list[int] | None:
    """The rows in order of time, which is numbers, dates or ISO 8601; None where they are in order already.

    Rows at the beginning without a time stay there: they were logged before times were.
    """
    if times is None:
        return None
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


def _equal(one: Labels | None, other: Labels | None) -> Bools | None:
    if one is None or other is None:
        return None
    if other.dtype.kind != "O":
        return _frozen(one == other)
    known, equal = np.array([label is not None for label in other]), np.full(len(one), np.nan)
    equal[known] = one[known] == other[known]
    return _frozen(equal)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")


def _unless_derived(values: Any, label: Any = None) -> Any:
    """What was given, and not found by `_equal`: `dataclasses.replace` passes that on. By a label with gaps that has
    NaN."""
    derived = isinstance(values, np.ndarray) and not values.flags.writeable
    if derived and values.dtype.kind != "b":
        derived = label is not None and values.dtype.kind == "f" and bool(np.isnan(values).any())
    return None if derived else values


def _checked_about(about: object) -> dict[str, str]:
    if not isinstance(about, Mapping):
        raise TypeError(f"Trace: about must be a mapping of text to text, got {about!r}")
    for key, value in about.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"Trace: about must be a mapping of text to text, got {key!r}: {value!r}")
    return dict(about)
