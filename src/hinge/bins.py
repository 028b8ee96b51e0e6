"""Confidence to bin: the policies learn one agreement per bin, so a confidence in [0, 1] becomes an integer.

    UniformBins    equal widths; needs no history, and is what the paper uses
    EdgeBins       between edges of your own, such as `hinge evaluate` recommends
    QuantileBins   equal shares of the samples seen before; finer where confidences crowd
    ClassBins      any of them for each class that the local model may answer

Bins are numbered upwards from 0 and a higher confidence never lands in a lower bin. A confidence that is no number from
0 to 1 raises an error; it never lands in a bin. Only the methods that take many confidences at once need numpy.
Other ways to bin derive from `Bins`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from hinge._checks import real, reals, whole
from hinge.errors import InvalidState, InvalidValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Bins(ABC):
    """Turns a confidence, and for some the local answer too, into one of `bins` bins.

    A subclass has `bins`, `bin` and `state`; two objects with the same `state()` bin alike.

    >>> class Halves(Bins):
    ...     bins = 2
    ...     def bin(self, confidence, label=None):
    ...         return int(confidence >= 0.5)
    ...     def state(self):
    ...         return {"kind": "halves"}
    >>> Halves().bin_many([0.2, 0.7])
    array([0, 1])
    """

    __slots__ = ()

    @property
    @abstractmethod
    def bins(self) -> int:
        """How many bins there are."""

    @abstractmethod
    def bin(self, confidence: float, label: object = None) -> int:
        """The bin of one confidence. `label` is the local answer; most bins ignore it."""

    def bin_many(self, confidences: ArrayLike, labels: Iterable[object] | None = None) -> NDArray[np.int64]:
        """The bins of many confidences, each the same as `bin` gives."""
        import numpy as np

        values = _checked(type(self).__name__, confidences).tolist()
        answers = [None] * len(values) if labels is None else list(labels)
        return np.array([self.bin(*each) for each in zip(values, answers, strict=True)], np.int64)

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON-able dict with a `kind` and all parameters."""

    def spans(self) -> list[tuple[str | None, float, float]]:
        """The class (None: all classes) and the range of confidences of each bin, for tables and axes.

        >>> UniformBins(2).spans()
        [(None, 0.0, 0.5), (None, 0.5, 1.0)]
        """
        edges = getattr(self, "edges", None)
        if edges is None:
            raise NotImplementedError(f"{type(self).__name__}: spans is not defined")
        return [(None, low, high) for low, high in pairwise((0.0, *edges, 1.0))]


@dataclass(frozen=True, slots=True)
class UniformBins(Bins):
    """Bins of equal width: `bin = min(floor(bins * confidence), bins - 1)`.

    The last bin is closed, so that confidence 1 belongs to it.

    >>> uniform = UniformBins(16)
    >>> uniform.bin(0.731)
    11
    >>> uniform.bin_many([0.0, 0.731, 1.0])
    array([ 0, 11, 15])
    """

    bins: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", whole("UniformBins", "bins", self.bins, 1))

    @property
    def edges(self) -> tuple[float, ...]:
        """Where bins 1, 2, ... begin, for axes and legends; `bin` itself multiplies, and does not use them.

        >>> UniformBins(4).edges
        (0.25, 0.5, 0.75)
        """
        return tuple(bin / self.bins for bin in range(1, self.bins))

    def bin(self, confidence: float, label: object = None) -> int:
        """The bin of one confidence.

        >>> UniformBins(16).bin(1.5)
        Traceback (most recent call last):
        hinge.errors.InvalidValue: UniformBins: confidence must be from 0 to 1, got 1.5
        """
        # Nearly every call passes this test; the full check costs more than the answer.
        if not (type(confidence) is float and 0.0 <= confidence <= 1.0):
            confidence = real("UniformBins", "confidence", confidence, 0, 1)
        bin = int(self.bins * confidence)
        return bin if bin < self.bins else bin - 1

    def bin_many(self, confidences: ArrayLike, labels: Iterable[object] | None = None) -> NDArray[np.int64]:
        import numpy as np

        bins: NDArray[np.int64] = (self.bins * _checked("UniformBins", confidences)).astype(np.int64)
        return np.minimum(bins, self.bins - 1)

    def state(self) -> dict[str, Any]:
        """A JSON-able dict for `restore_bins`.

        >>> UniformBins(16).state()
        {'kind': 'uniform', 'bins': 16}
        """
        return {"kind": "uniform", "bins": self.bins}


@dataclass(frozen=True, slots=True, init=False)
class EdgeBins(Bins):
    """Bins between given edges: `bin` = how many edges are <= confidence (as `bisect.bisect_right`).

    `edges` are where bins 1, 2, ... begin, strictly increasing in (0, 1]; bin 0 begins at 0. So an edge belongs to the
    bin above it, and an edge at 1 makes a bin for confidence 1 alone.

    >>> between = EdgeBins([0.5, 0.9])
    >>> [between.bin(confidence) for confidence in (0.0, 0.5, 0.7, 0.9, 1.0)]
    [0, 1, 1, 2, 2]
    >>> between.bins
    3
    """

    edges: tuple[float, ...]
    kind: ClassVar[str] = "edges"  # in a state

    def __init__(self, edges: Iterable[float]) -> None:
        object.__setattr__(self, "edges", _checked_edges(type(self).__name__, edges))

    @property
    def bins(self) -> int:
        """How many bins there are: one more than edges."""
        return len(self.edges) + 1

    def bin(self, confidence: float, label: object = None) -> int:
        """The bin of one confidence.

        >>> EdgeBins([0.5]).bin(float("nan"))
        Traceback (most recent call last):
        hinge.errors.InvalidValue: EdgeBins: confidence must be from 0 to 1, got nan
        """
        if not (type(confidence) is float and 0.0 <= confidence <= 1.0):
            confidence = real(type(self).__name__, "confidence", confidence, 0, 1)
        return bisect_right(self.edges, confidence)

    def bin_many(self, confidences: ArrayLike, labels: Iterable[object] | None = None) -> NDArray[np.int64]:
        import numpy as np

        values = _checked(type(self).__name__, confidences)
        return np.searchsorted(np.array(self.edges), values, side="right").astype(np.int64)

    def state(self) -> dict[str, Any]:
        """A JSON-able dict for `restore_bins`.

        >>> EdgeBins([0.5, 0.9]).state()
        {'kind': 'edges', 'edges': [0.5, 0.9]}
        """
        return {"kind": self.kind, "edges": list(self.edges)}


@dataclass(frozen=True, slots=True, init=False)
class QuantileBins(EdgeBins):
    """Bins that share out the samples seen before: `QuantileBins.fit(confidences, 16)`."""

    kind: ClassVar[str] = "quantile"

    @classmethod
    def fit(cls, confidences: ArrayLike, bins: int) -> QuantileBins:
        """Bins that share out `confidences` about equally.

        With the confidences sorted as x_0 <= ... <= x_(N-1), edge k is x_floor(N k / bins). Equal confidences cannot be
        told apart, so where they bunch edges coincide and are merged: the result then has fewer than `bins` bins.
        Every bin holds at least one of the confidences, and fewer than N / bins + 1 besides those equal to its lowest.

        >>> QuantileBins.fit([0.2, 0.4, 0.6, 0.7, 0.8, 0.9], bins=3)
        QuantileBins(edges=(0.6, 0.8))
        >>> QuantileBins.fit([0.3, 0.8, 1.0, 1.0, 1.0, 1.0], bins=4).bins
        3
        """
        import numpy as np

        bins = whole("QuantileBins.fit", "bins", bins, 1)
        ordered = np.sort(_checked("QuantileBins.fit", confidences)).tolist()
        if not ordered:
            raise ValueError("QuantileBins.fit: confidences must not be empty, got []")
        candidates = {ordered[len(ordered) * k // bins] for k in range(1, bins)}
        # An edge at the lowest confidence would leave bin 0 without a sample.
        return cls(sorted(edge for edge in candidates if edge > ordered[0]))


@dataclass(frozen=True, slots=True)
class ClassBins(Bins):
    """Bins for each class that the local model answers: `bin = class * within.bins + within.bin(confidence)`.

    For policies that weigh classes differently (`Isotonic(stakes=…)`), or local models that are surer of themselves in
    some classes than they should be. Classes are numbers from 0, or the names in `classes`, in their order: that of the
    labels of a `CostMatrix`, if there is one.

    >>> by_class = ClassBins(UniformBins(16), classes=["quiet", "fire"])
    >>> by_class.bin(0.731, "quiet"), by_class.bin(0.731, "fire"), by_class.bins
    (11, 27, 32)
    """

    within: UniformBins | EdgeBins
    classes: int | Sequence[str]

    def __post_init__(self) -> None:
        if not isinstance(self.within, UniformBins | EdgeBins):
            raise TypeError(f"ClassBins: within must be UniformBins, EdgeBins or QuantileBins, got {self.within!r}")
        if isinstance(self.classes, str) or not isinstance(self.classes, Sequence):
            object.__setattr__(self, "classes", whole("ClassBins", "classes", self.classes, 1))
        elif not all(isinstance(name, str) for name in self.classes):
            raise TypeError(f"ClassBins: classes must be a number or a list of names, got {list(self.classes)!r}")
        elif not self.classes or len({*self.classes}) < len(self.classes):
            raise ValueError(f"ClassBins: classes must be different names, got {list(self.classes)!r}")
        else:
            object.__setattr__(self, "classes", tuple(self.classes))

    @property
    def bins(self) -> int:
        """How many bins there are, all classes taken together."""
        return self.within.bins * (self.classes if isinstance(self.classes, int) else len(self.classes))

    def bin(self, confidence: float, label: object = None) -> int:
        return self._class(label) * self.within.bins + self.within.bin(confidence)

    def bin_many(self, confidences: ArrayLike, labels: Iterable[object] | None = None) -> NDArray[np.int64]:
        import numpy as np

        if labels is None:
            raise TypeError("ClassBins: labels must be the local answers, one for each confidence, got None")
        within = self.within.bin_many(confidences)
        answers = labels.tolist() if hasattr(labels, "tolist") else list(labels)
        known = {answer: self._class(answer) for answer in set(answers)}
        return np.array([known[answer] for answer in answers], np.int64) * self.within.bins + within

    def _class(self, label: object) -> int:
        if isinstance(self.classes, int):
            return whole("ClassBins", "label", label, 0, self.classes - 1)
        if label not in self.classes:
            raise ValueError(f"ClassBins: label must be one of the classes, got {label!r}")
        return self.classes.index(str(label))

    def spans(self) -> list[tuple[str | None, float, float]]:
        names = map(str, range(self.classes) if isinstance(self.classes, int) else self.classes)
        return [(name, low, high) for name in names for _, low, high in self.within.spans()]

    def state(self) -> dict[str, Any]:
        """A JSON-able dict for `restore_bins`.

        >>> ClassBins(UniformBins(16), 2).state()
        {'kind': 'class', 'within': {'kind': 'uniform', 'bins': 16}, 'classes': 2}
        """
        classes = self.classes if isinstance(self.classes, int) else list(self.classes)
        return {"kind": "class", "within": self.within.state(), "classes": classes}


def restore_bins(state: Mapping[str, Any]) -> Bins:
    """The bins whose `state()` this is.

    >>> restore_bins({"kind": "uniform", "bins": 16})
    UniformBins(bins=16)
    >>> restore_bins({"kind": "uniform", "bins": 0})
    Traceback (most recent call last):
    hinge.errors.InvalidState: restore_bins: UniformBins: bins must be an integer >= 1, got 0
    """
    if not isinstance(state, Mapping):
        raise InvalidState(f"restore_bins: state must be a dict, got {state!r}")
    try:
        match dict(state):
            case {"kind": "uniform", "bins": bins, **extra} if not extra:
                return UniformBins(bins)
            case {"kind": "edges", "edges": edges, **extra} if not extra:
                return EdgeBins(edges)
            case {"kind": "quantile", "edges": edges, **extra} if not extra:
                return QuantileBins(edges)
            case {"kind": "class", "within": Mapping() as within, "classes": classes, **extra} if not extra:
                return ClassBins(restore_bins(within), classes)  # type: ignore[arg-type]  # its own check says more
    except (TypeError, ValueError) as error:
        raise InvalidState(f"restore_bins: {error}") from error
    raise InvalidState(f"restore_bins: state must be of uniform, edges, quantile or class bins, got {dict(state)!r}")


def _checked_edges(owner: str, edges: Iterable[float]) -> tuple[float, ...]:
    checked = tuple(reals(owner, "edges", edges))
    for edge in checked:
        if not 0 < edge <= 1:
            raise InvalidValue(owner, "edges", f"must be > 0 and <= 1, got {edge!r}")
    for below, above in pairwise(checked):
        if below >= above:
            raise InvalidValue(owner, "edges", f"must be strictly increasing, got {above!r} after {below!r}")
    return checked


def _checked(owner: str, confidences: ArrayLike) -> NDArray[np.float64]:
    """`confidences` as a 1-D array of numbers from 0 to 1, or an error that names the first bad position."""
    import numpy as np

    try:
        array = np.asarray(confidences)
    except ValueError:  # lists of different lengths
        array = np.fromiter(confidences, dtype=object)  # type: ignore[arg-type]  # only a sequence gets here
    if array.ndim != 1:
        raise ValueError(f"{owner}: confidences must be 1-D, got {confidences!r}")
    if array.dtype.kind not in "fiu":  # one by one, as numpy turns the numbers beside a text into texts
        given: Any = confidences
        array = np.array([real(owner, f"confidence at position {k}", value, 0, 1) for k, value in enumerate(given)])
    values = array.astype(np.float64, copy=False)
    outside = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if outside.size:
        real(owner, f"confidence at position {outside[0]}", array[outside[0]].item(), 0, 1)
    return values
