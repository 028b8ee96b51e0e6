"""A recorded stream: for every sample what the local and the remote model said, and how sure the local one was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge.bins import ClassBins
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.errors import InvalidTrace
from hinge.traces.columns import NEEDED, OPTIONAL, Floats, Labels, check_names, fractions, kind, labels
from hinge.traces.logits import columns_from_scores

Bools = NDArray[np.bool_]
_COLUMNS = (*NEEDED, *OPTIONAL)


class Bins(Protocol):
    """Confidences to bins; `UniformBins` and `QuantileBins` are such."""

    def bin_many(self, confidences: ArrayLike, /) -> NDArray[np.int64]: ...


class Table(Protocol):
    """Columns by name."""

    def __getitem__(self, column: str, /) -> Any: ...


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Trace:
    """A recorded stream, one row per sample; it is checked when made, and cannot be changed.

    `confidence` is the local model's, `local` and `remote` are the two answers, `label` is the truth and `cost` what an
    offload cost or would have cost, from 0 to 1; the last two may be None. Answers and truth are integers or text.
    `about` says where the trace comes from: data, models, accuracies, date, script.

    >>> trace = Trace([0.9, 0.4, 0.7], ["cat", "dog", "cat"], ["cat", "cat", "cat"], label=["cat", "cat", "dog"])
    >>> trace.agreed
    array([ True, False,  True])
    >>> len(trace), round(trace.agreement, 3), trace.remote_accuracy is None
    (3, 0.667, False)
    >>> Trace([0.9, 1.4], [1, 2], [1, 1])
    Traceback (most recent call last):
    hinge.errors.InvalidTrace: Trace: confidence in row 1 must be from 0 to 1, got 1.4
    """

    confidence: Floats
    local: Labels
    remote: Labels
    label: Labels | None
    cost: Floats | None
    name: str
    about: Mapping[str, str]

    def __init__(
        self,
        confidence: ArrayLike,
        local: ArrayLike,
        remote: ArrayLike,
        label: ArrayLike | None = None,
        cost: ArrayLike | None = None,
        name: str = "",
        about: Mapping[str, str] | None = None,
    ) -> None:
        self._set("confidence", fractions("confidence", confidence))
        self._set("local", labels("local", local))
        self._set("remote", labels("remote", remote))
        self._set("label", None if label is None else labels("label", label))
        self._set("cost", None if cost is None else fractions("cost", cost))
        self._set("name", _checked_name(name))
        self._set("about", MappingProxyType(_checked_about({} if about is None else about)))
        self._check_lengths()
        self._check_kinds()

    @classmethod
    def from_scores(
        cls,
        local_logits: ArrayLike,
        remote_logits: ArrayLike,
        labels: ArrayLike | None = None,
        measure: ConfidenceMeasure = max_softmax,
        cost: ArrayLike | None = None,
        *,
        name: str = "",
        about: Mapping[str, str] | None = None,
    ) -> Trace:
        """A trace from both models' scores (samples x classes): answers are their largest, confidence is `measure`.

        >>> trace = Trace.from_scores([[2.0, 1.0, 0.0], [0.0, 0.1, 0.0]], [[5.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
        >>> trace.confidence.round(4), trace.local, trace.remote
        (array([0.6652, 0.3559]), array([0, 1]), array([0, 2]))
        """
        columns = columns_from_scores(local_logits, remote_logits, labels, measure)
        return cls(**columns, cost=cost, name=name, about=about)

    @classmethod
    def from_frame(
        cls,
        frame: Table,
        *,
        measure: ConfidenceMeasure = max_softmax,
        name: str = "",
        about: Mapping[str, str] | None = None,
    ) -> Trace:
        """A trace from a pandas or polars frame, or a dict, with columns confidence, local, remote[, label][, cost].

        In place of confidence, local and remote it may have local_logits and remote_logits, a list in every row. Any
        other column is an error: a misspelt one would otherwise be lost without a word.

        >>> Trace.from_frame({"confidence": [0.9, 0.4], "local": [3, 1], "remote": [3, 2]}).agreed
        array([ True, False])
        """
        names: Any = getattr(frame, "columns", frame)
        return trace_from_table("Trace.from_frame", list(names), frame, measure=measure, name=name, about=about)

    @property
    def agreed(self) -> Bools:
        """Where the local answer is the remote's."""
        return _equal(self.local, self.remote)

    @property
    def local_right(self) -> Bools | None:
        """Where the local answer is the truth; None where the truth was not recorded."""
        return None if self.label is None else _equal(self.local, self.label)

    @property
    def remote_right(self) -> Bools | None:
        """Where the remote answer is the truth; None where the truth was not recorded."""
        return None if self.label is None else _equal(self.remote, self.label)

    @property
    def agreement(self) -> float:
        """The share of samples on which both models agree."""
        return float(self.agreed.mean())

    @property
    def local_accuracy(self) -> float | None:
        """The share of samples on which the local model is right, if the truth is known."""
        return None if self.local_right is None else float(self.local_right.mean())

    @property
    def remote_accuracy(self) -> float | None:
        """The share of samples on which the remote model is right, if the truth is known."""
        return None if self.remote_right is None else float(self.remote_right.mean())

    @property
    def mean_offload_cost(self) -> float | None:
        """What an offload cost on average, if that was recorded."""
        return None if self.cost is None else float(self.cost.mean())

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns that there are, by name."""
        named = ((column, getattr(self, column)) for column in _COLUMNS)
        return {column: values for column, values in named if values is not None}

    def bins_by(self, bins: Bins | ClassBins) -> NDArray[np.int64]:
        """The bin of every sample.

        >>> from hinge import UniformBins
        >>> Trace([0.9, 0.4], [3, 1], [3, 2]).bins_by(UniformBins(16))
        array([14,  6])
        """
        if isinstance(bins, ClassBins):
            return bins.bin_many(self.confidence, self.local)
        return bins.bin_many(self.confidence)

    def __len__(self) -> int:
        return len(self.confidence)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        mine, its = self.columns, other.columns
        same = mine.keys() == its.keys() and all(np.array_equal(mine[column], its[column]) for column in mine)
        return same and self.name == other.name and self.about == other.about

    __hash__ = None  # type: ignore[assignment]  # compared by content, as lists are

    def __repr__(self) -> str:
        size = f"{len(self)} sample{'s' * (len(self) != 1)}"
        return f"<Trace {self.name!r}: {size}, {', '.join(self.columns)}, agreement {self.agreement:.3f}>"

    def __reduce__(self) -> tuple[type[Trace], tuple[object, ...]]:
        # Through the constructor, as numpy forgets when pickling that an array is read-only.
        return Trace, (*(getattr(self, column) for column in _COLUMNS), self.name, dict(self.about))

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

    def _check_lengths(self) -> None:
        if not len(self):
            raise InvalidTrace("Trace: there must be at least one sample")
        for column, values in self.columns.items():
            if len(values) != len(self):
                raise InvalidTrace(f"Trace: {column} has {len(values)} rows where confidence has {len(self)}")

    def _check_kinds(self) -> None:
        for column in ("remote", "label"):
            values = getattr(self, column)
            if values is not None and kind(values) != kind(self.local):
                raise InvalidTrace(f"Trace: {column} holds {kind(values)} where local holds {kind(self.local)}")


def trace_from_table(where: str, names: Sequence[str], table: Table, **more: Any) -> Trace:
    """The trace whose columns, or whose models' logits, are in the table; `more` as `Trace.from_scores` takes it."""
    if "confidence" not in names and "local_logits" in names:
        check_names(where, names, ("local_logits", "remote_logits"), ("label", "labels", "cost"))
        truth = [name for name in names if name in ("label", "labels")]
        if len(truth) > 1:
            raise InvalidTrace(f"{where}: columns 'label' and 'labels' are the same thing; give one")
        more["labels"] = table[truth[0]] if truth else None
        more["cost"] = table["cost"] if "cost" in names else None
        return Trace.from_scores(table["local_logits"], table["remote_logits"], **more)
    check_names(where, names, NEEDED, OPTIONAL)
    more.pop("measure", None)  # the confidence is measured already
    return Trace(**{name: table[name] for name in names if name in _COLUMNS}, **more)


def _equal(one: Labels, other: Labels) -> Bools:
    equal: Bools = one == other
    return equal


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"Trace: name must be text, got {name!r}")
    return name


def _checked_about(about: object) -> dict[str, str]:
    if not isinstance(about, Mapping):
        raise TypeError(f"Trace: about must be a mapping of text to text, got {about!r}")
    for key, value in about.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"Trace: about must be a mapping of text to text, got {key!r}: {value!r}")
    return dict(about)
