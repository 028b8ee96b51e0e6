"""A recorded stream: for every sample the answers of the local and the remote model, and the local one's confidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge.bins import Bins
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.errors import InvalidTrace
from hinge.traces.columns import (
    ANSWERS,
    BESIDE,
    Bools,
    Floats,
    Labels,
    fractions,
    from_scores,
    frozen,
    kind,
    labels,
    scores,
)

if TYPE_CHECKING:
    from hinge.traces.files import Table


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
    hinge.traces.columns.InvalidValueIn: Trace: confidence in row 1 must be from 0 to 1, got 1.4
    >>> Trace([0.9, 0.4], agreed=[1.0, 0.25]).agreement
    0.625
    """

    confidence: Floats = field(init=False)
    local: Any = field(init=False)  # `Labels`; None if only agreement was recorded: use `answers` to require labels
    remote: Any = field(init=False)
    label: Labels | None = field(init=False)
    cost: Floats | None = field(init=False)
    agreed: NDArray[Any] = field(init=False)  # how far local agrees with remote: True and False, or numbers from 0 to 1
    local_right: NDArray[Any] | None = field(init=False)  # how far either is right; None without the truth
    remote_right: NDArray[Any] | None = field(init=False)
    name: str = field(init=False)
    about: Mapping[str, str] = field(init=False)
    _columns: Mapping[str, NDArray[Any]] = field(init=False)

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
        if agreed is None and (local is None or remote is None):
            raise InvalidTrace("Trace: local and remote must be given, the answers, or agreed, how far these agree")
        if (local_right is None) != (remote_right is None):
            raise InvalidTrace("Trace: local_right and remote_right must be given together")
        if not isinstance(name, str):
            raise TypeError(f"Trace: name must be text, got {name!r}")
        known = _checked_about({} if about is None else about)
        found = {
            "confidence": fractions("confidence", confidence),
            "local": None if local is None else labels("local", local),
            "remote": None if remote is None else labels("remote", remote),
            "label": None if label is None else labels("label", label, gaps=True),
            "cost": None if cost is None else fractions("cost", cost),
            "agreed": None if agreed is None else fractions("agreed", agreed),
        }
        if local_right is not None and not known.get("truth", "").startswith("none"):
            found |= _rights(local_right, remote_right)
        columns = {column: values for column, values in found.items() if values is not None}
        _check_alike(columns)
        derived = {"agreed": _equal(found["local"], found["remote"])}
        derived |= {"local_right": _equal(found["local"], found["label"])}
        derived |= {"remote_right": _equal(found["remote"], found["label"])}
        fields: dict[str, Any] = {
            **found,
            **{column: values for column, values in derived.items() if column not in columns},
        }
        fields |= {"name": name, "about": MappingProxyType(known), "_columns": columns}
        for attribute, value in fields.items():
            object.__setattr__(self, attribute, value)

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
        """Make a trace from both models' scores (samples x classes): answers are the largest, confidence is `measure`.

        Where the local model gives probabilities in all rows, their logarithms are taken for its scores.

        >>> trace = Trace.from_scores([[2.0, 1.0, 0.0], [0.0, 0.1, 0.0]], [[5.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
        >>> trace.confidence.round(4), trace.local, trace.remote
        (array([0.6652, 0.3559]), array([0, 1]), array([0, 2]))
        >>> Trace.from_scores([[0.7, 0.2, 0.1]], [[1.0, 0.0, 0.0]]).confidence.round(4)
        array([0.7])
        """
        local, remote = scores("local_logits", local_logits), scores("remote_logits", remote_logits)
        columns = from_scores({"local": local, "remote": remote, "label": labels}, measure)
        return cls(**columns, cost=cost, name=name, about=about)

    @classmethod
    def from_frame(
        cls,
        frame: Table,
        *,
        columns: Mapping[str, str] | None = None,
        measure: ConfidenceMeasure = max_softmax,
        name: str = "",
        about: Mapping[str, str] | None = None,
    ) -> Trace:
        """Make a trace from a frame or a dict with columns confidence, local, remote[, label][, cost].

        `columns` says what they are called in the frame, where that is something else. `local` and `remote` may hold a
        list of scores or probabilities in every row: the answer is the largest, and the confidence `measure`. A column
        time orders the rows. Others are ignored, unless they look like a misspelt one, which is an error.

        >>> frame = {"score": [0.9, 0.4], "Local": [3, 1], "remote": [3, 2]}
        >>> Trace.from_frame(frame, columns={"confidence": "score"}).agreed
        array([ True, False])
        """
        from hinge.traces.files import frame_columns  # which makes traces

        found: dict[str, Any] = frame_columns("Trace.from_frame", frame, columns, measure)
        found = {column: values for column, values in found.items() if column not in BESIDE}
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
        return dict(self._columns)

    def bins_by(self, bins: Bins) -> NDArray[np.int64]:
        """Return the bin of every sample.

        >>> from hinge import UniformBins
        >>> Trace([0.9, 0.4], [3, 1], [3, 2]).bins_by(UniformBins(16))
        array([14,  6])
        """
        return bins.bin_many(self.confidence)

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


def _rights(local_right: Any, remote_right: Any) -> dict[str, Any]:
    """How far both are right, as it was given: known of both, or of neither."""
    local, remote = (
        fractions(column, values, gaps=True)
        for column, values in (("local_right", local_right), ("remote_right", remote_right))
    )
    if len(local) != len(remote):
        raise InvalidTrace(f"Trace: remote_right has {len(remote)} rows where local_right has {len(local)}")
    gaps = np.isnan(local) | np.isnan(remote)
    if gaps.all():
        return {}
    both = (("local_right", local), ("remote_right", remote))
    return {column: frozen(np.where(gaps, np.nan, values)) for column, values in both}


def _check_alike(columns: Mapping[str, NDArray[Any]]) -> None:
    """Check that all columns have as many rows, and that answers are all integers or all text."""
    rows = len(columns["confidence"])
    for column, values in columns.items():
        if len(values) != rows:
            raise InvalidTrace(f"Trace: {column} has {len(values)} rows where confidence has {rows}")
    if not rows:
        raise InvalidTrace("Trace: there must be at least one sample")
    kinds = {column: kind(columns[column]) for column in ANSWERS if column in columns}
    first = next(iter(kinds), "")
    for column, found in kinds.items():
        if found != kinds[first]:
            differ = f"{column} holds {found} where {first} holds {kinds[first]}"
            raise InvalidTrace(f"Trace: {differ}: number the classes in all, or name them in all")


def _equal(one: Labels | None, other: Labels | None) -> Bools | Floats | None:
    if one is None or other is None:
        return None
    if other.dtype.kind != "O":
        return frozen(one == other)
    known, equal = np.array([label is not None for label in other]), np.full(len(one), np.nan)
    equal[known] = one[known] == other[known]
    return frozen(equal)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")


def _checked_about(about: object) -> dict[str, str]:
    if not isinstance(about, Mapping):
        raise TypeError(f"Trace: about must be a mapping of text to text, got {about!r}")
    for key, value in about.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"Trace: about must be a mapping of text to text, got {key!r}: {value!r}")
    return dict(about)
