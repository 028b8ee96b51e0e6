"""Confidence to bin: the policies learn one agreement per bin, so a confidence in [0, 1] becomes an integer.

    UniformBins    equal widths; needs no history, and is what the paper uses
    EdgeBins       between edges of your own
    FittedBins     fit themselves while samples arrive: what a gate has unless told otherwise

Bins are numbered upwards from 0 and a higher confidence never lands in a lower bin. A confidence that is no number from
0 to 1 raises an error; it never lands in a bin. Only the methods that take many confidences at once need numpy.
Other ways to bin derive from `Bins`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from hinge._checks import real, reals, whole
from hinge.cells import CELL_EDGES, CELLS, cells_state, make_cells, restore_cells
from hinge.errors import InvalidState, InvalidValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Bins(ABC):
    """Turns a confidence into one of `bins` bins.

    A subclass has `bins`, `bin` and `state`; two objects with the same `state()` bin alike.

    >>> class Halves(Bins):
    ...     bins = 2
    ...     def bin(self, confidence):
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
    def bin(self, confidence: float) -> int:
        """The bin of one confidence."""

    def bin_many(self, confidences: ArrayLike) -> NDArray[np.int64]:
        """The bins of many confidences, each the same as `bin` gives."""
        import numpy as np

        return np.array([self.bin(value) for value in _checked(type(self).__name__, confidences).tolist()], np.int64)

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON-able dict with a `kind` and all parameters."""

    def spans(self) -> list[tuple[float, float]]:
        """Return the range of confidences of each bin, for tables and axes.

        >>> UniformBins(2).spans()
        [(0.0, 0.5), (0.5, 1.0)]
        """
        edges = getattr(self, "edges", None)
        if edges is None:
            raise NotImplementedError(f"{type(self).__name__}: spans is not defined")  # of a user's own bins
        return list(pairwise((0.0, *edges, 1.0)))


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

    def bin(self, confidence: float) -> int:
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

    def bin_many(self, confidences: ArrayLike) -> NDArray[np.int64]:
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

    def bin(self, confidence: float) -> int:
        """The bin of one confidence.

        >>> EdgeBins([0.5]).bin(float("nan"))
        Traceback (most recent call last):
        hinge.errors.InvalidValue: EdgeBins: confidence must be from 0 to 1, got nan
        """
        if not (type(confidence) is float and 0.0 <= confidence <= 1.0):
            confidence = real(type(self).__name__, "confidence", confidence, 0, 1)
        return bisect_right(self.edges, confidence)

    def bin_many(self, confidences: ArrayLike) -> NDArray[np.int64]:
        import numpy as np

        values = _checked(type(self).__name__, confidences)
        return np.searchsorted(np.array(self.edges), values, side="right").astype(np.int64)

    def state(self) -> dict[str, Any]:
        """A JSON-able dict for `restore_bins`.

        >>> EdgeBins([0.5, 0.9]).state()
        {'kind': 'edges', 'edges': [0.5, 0.9]}
        """
        return {"kind": self.kind, "edges": list(self.edges)}


class FittedBins(Bins):
    """At most 16 bins that fit themselves to what arrives; see `hinge.cells`.

    A gate counts arrivals and offloads in it, and forms the bins anew now and then.

    >>> fitted = FittedBins()
    >>> fitted.bin(0.5), fitted.bin(0.99), len(fitted.edges)
    (8, 15, 15)
    """

    __slots__ = ("cells",)
    bins = 16

    def __init__(self) -> None:
        self.cells = make_cells(self.bins)

    @property
    def edges(self) -> tuple[float, ...]:
        """Where one bin ends and the next begins, at present."""
        group = self.cells.group
        return tuple(CELL_EDGES[cell - 1] for cell in range(1, CELLS) if group[cell] != group[cell - 1])

    def cell(self, confidence: float) -> int:
        """Return the cell of a confidence."""
        if not (type(confidence) is float and 0.0 <= confidence <= 1.0):
            confidence = real("FittedBins", "confidence", confidence, 0, 1)
        return bisect_right(CELL_EDGES, confidence)

    def cell_many(self, confidences: ArrayLike) -> NDArray[np.int64]:
        """Return the cells of many confidences."""
        import numpy as np

        return np.searchsorted(np.array(CELL_EDGES), _checked("FittedBins", confidences), side="right").astype(np.int64)

    def bin(self, confidence: float) -> int:
        return self.cells.group[self.cell(confidence)]

    def bin_many(self, confidences: ArrayLike) -> NDArray[np.int64]:
        import numpy as np

        return np.array(self.cells.group, np.int64)[self.cell_many(confidences)]

    def fresh(self) -> FittedBins:
        """Return such bins before their first sample."""
        return FittedBins()

    def state(self) -> dict[str, Any]:
        """A JSON-able dict for `restore_bins`; it names only cells in use.

        >>> FittedBins().state()["kind"]
        'fitted'
        """
        return {"kind": "fitted", **cells_state(self.cells)}

    def __repr__(self) -> str:
        return "FittedBins()"


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
            case {"kind": "fitted", **held}:
                fitted = FittedBins()
                restore_cells(fitted.cells, held)
                return fitted
    except (TypeError, ValueError) as error:
        raise InvalidState(f"restore_bins: {error}") from error
    raise InvalidState(f"restore_bins: state must be of uniform, edges or fitted bins, got {dict(state)!r}")


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
