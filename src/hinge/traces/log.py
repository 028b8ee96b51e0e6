"""A production log: the remote's answer is known where the sample was offloaded, and nowhere else.

What was not asked is not made up. The offloaded samples are a `Trace` of their own, which is checked as any other; of
the rest, confidence and, where it was recorded, the local answer are known. `hinge.traces.files` reads logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge.bins import Bins, EdgeBins, FittedBins
from hinge.errors import InvalidTrace
from hinge.traces.columns import Bools, Floats, InvalidValueIn, are_known, fractions, labels
from hinge.traces.trace import Trace

MAX_NUMBERED = 1024  # bins of a device that keep their numbers: of more, those without samples would cost too much


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Log:
    """A recorded stream in which the remote answered some samples only: `remote` is None for the others.

    `offloaded` says which it answered, and `offloads` is the trace of those; `cost` counts where the remote answered.
    `audit` marks those that only checked an answer which would have been accepted, where that is known. `agreed`, how
    far the answers agree, stands in place of the answers or beside them, as in a `Trace`, and has the same gaps. `bin`
    is the bin in which a device decided on each sample; None where that is not known, or the column is something else.

    >>> log = Log([0.4, 0.9, 0.7], ["dog", "cat", "cat"], remote=["cat", None, "cat"])
    >>> log
    <Log '': 3 samples, 2 of them offloaded, 1 of which agreed>
    >>> log.offloads.agreed
    array([False,  True])
    """

    confidence: Floats
    local: Any  # `Labels`, or None
    offloaded: Bools
    offloads: Trace
    audit: Bools | None
    bin: NDArray[np.int64] | None
    name: str

    def __init__(
        self,
        confidence: ArrayLike,
        local: ArrayLike | None = None,
        remote: Any = None,
        cost: ArrayLike | None = None,
        audit: ArrayLike | None = None,
        name: str = "",
        *,
        agreed: Any = None,
        bin: ArrayLike | None = None,
    ) -> None:
        if agreed is None and (local is None or remote is None):
            raise InvalidTrace("Log: local and remote must be given, the answers, or agreed, how far these agree")
        confidences = fractions("confidence", confidence)
        locals_ = None if local is None else labels("local", local)
        agreements = None if agreed is None else fractions("agreed", agreed, gaps=True)
        answers = None if remote is None else labels("remote", remote, gaps=True)
        told = agreements if answers is None else answers
        if told is None:
            raise InvalidTrace("Log: the remote answered none of the samples, so nothing is known about it")
        known = are_known(told)
        paid = None if cost is None else fractions("cost", cost, gaps=True)
        checks, places = (None if each is None else np.asarray(each) for each in (audit, bin))
        for each in (confidences, locals_, agreements, paid, checks, places):
            if each is not None and each.shape != known.shape:
                columns = "confidence, local, remote, agreed, cost, audit and bin"
                raise InvalidTrace(f"Log: {columns} must have one value per row each")
        if agreements is not None and not np.array_equal(known, are_known(agreements)):
            raise InvalidTrace("Log: remote and agreed must be missing in the same rows")
        if not known.any():
            raise InvalidTrace("Log: the remote answered none of the samples, so nothing is known about it")
        if paid is not None and (unpaid := known & np.isnan(paid)).any():
            raise InvalidValueIn.at("cost", int(unpaid.argmax()), "must be a number where the remote answered")
        parts = {"local": locals_, "remote": answers, "cost": paid, "agreed": agreements}
        asked: dict[str, Any] = {column: values[known] for column, values in parts.items() if values is not None}
        trace = Trace(confidences[known], **asked, name=name)
        flags = None if checks is None else _flags(checks) & known
        numbers = None if places is None else _places(places)
        fields = (confidences, locals_, known, trace, flags, numbers, trace.name)
        for field, value in zip(Log.__dataclass_fields__, fields, strict=True):
            object.__setattr__(self, field, value)

    def bins_by(self, bins: Bins) -> NDArray[np.int64]:
        return bins.bin_many(self.confidence)

    def mixed(self, bins: Bins) -> list[int]:
        """Those of the bins with samples that a device decided on in several of its own.

        What it offloaded of them stands for no others: it asked more about some.

        >>> Log([0.4, 0.9, 0.7], agreed=[1, None, 0], bin=[0, 9, 9]).mixed(EdgeBins([0.8]))
        [0]
        """
        if self.bin is None:
            return []
        where = self.bins_by(bins)
        first = np.full(bins.bins, -1)
        first[where] = self.bin
        return sorted(set(where[first[where] != self.bin].tolist()))

    def unmixed(self, usual: Bins) -> Bins:
        """The usual bins; or, if they mix samples, such as part them as the device's did, if confidence alone did.

        They are numbered as the device's: where bins of it have no samples, there are as many, somewhere in between.

        >>> Log([0.5, 0.9, 0.75], agreed=[1, None, 0], bin=[0, 2, 2]).unmixed(EdgeBins([0.8]))
        EdgeBins(edges=(0.625, 0.75))
        """
        if self.bin is None or not self.mixed(usual):
            return usual
        order = np.lexsort((self.bin, self.confidence))
        confidence, bins = self.confidence[order], self.bin[order]
        numbered = bins[-1] < MAX_NUMBERED
        steps = np.diff(bins, prepend=0 if numbered else bins[0])
        above = np.flatnonzero(steps)  # where a bin begins
        below = np.concatenate([[0.0], confidence])[above]
        if (steps < 0).any() or (confidence[above] <= below).any():
            return self._formed_anew(confidence, bins) or usual
        counts = steps[above] if numbered else np.ones_like(above)
        parts = zip(below, confidence[above], counts, strict=True)
        return EdgeBins([edge for low, high, count in parts for edge in np.linspace(low, high, count + 1)[1:].tolist()])

    def _formed_anew(self, confidence: Floats, bins: NDArray[np.int64]) -> Bins | None:
        """Return bins that fitted themselves, each as long as it was one; None if these are none."""
        forming = bins // FittedBins.bins
        order = np.argsort(forming, kind="stable")  # by confidence within each
        together, steps = np.diff(forming[order]) == 0, np.diff(bins[order])
        alike = np.diff(confidence[order]) == 0
        if forming.max() == 0 or (together & ((steps < 0) | (alike & (steps > 0)))).any():
            return None
        return DecidedBins(self.confidence, self.bin)

    def __len__(self) -> int:
        return len(self.confidence)

    def __repr__(self) -> str:
        agreed = f"{len(self.offloads)} of them offloaded, {self.offloads.agreed.sum():.6g} of which agreed"
        return f"<Log {self.name!r}: {len(self)} sample{'s' * (len(self) != 1)}, {agreed}>"


class DecidedBins(Bins):
    """The bins in which a device decided on the samples of a log, and no others; the surest is the last.

    >>> bins = DecidedBins(np.array([0.9, 0.2, 0.8]), np.array([31, 0, 31]))
    >>> bins.bin_many([0.9, 0.2, 0.8]), bins.spans()
    (array([1, 0, 1]), [(0.2, 0.2), (0.8, 0.9)])
    """

    def __init__(self, confidence: Floats, bin: Any) -> None:
        _, where, counts = np.unique(bin, return_inverse=True, return_counts=True)
        order = np.argsort(np.bincount(where, confidence) / counts, kind="stable")
        self._where = np.argsort(order)[where]
        self._spans = [
            (float(part.min()), float(part.max()))
            for part in (confidence[self._where == each] for each in range(len(order)))
        ]

    @property
    def bins(self) -> int:
        return len(self._spans)

    def bin(self, confidence: float) -> int:
        raise NotImplementedError("DecidedBins: only the samples of its log have a bin")

    def bin_many(self, confidences: ArrayLike) -> NDArray[np.int64]:
        return self._where

    def spans(self) -> list[tuple[float, float]]:
        return list(self._spans)

    def state(self) -> dict[str, Any]:
        return {"kind": "decided", "bins": self.bins}


def _places(values: NDArray[Any]) -> NDArray[np.int64] | None:
    """Whole numbers from 0 on; None: these are something else.

    >>> _places(np.array(["3", "0"], object)), _places(np.array(["left", None], object))
    (array([3, 0]), None)
    """
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return None
    are_whole = np.isfinite(numbers) & (numbers >= 0.0) & (numbers == np.floor(numbers)) & (numbers < 2**31)
    return numbers.astype(np.int64) if are_whole.all() else None


def _flags(values: NDArray[Any]) -> Bools:
    """Yes or no, also in words; a value that is missing means no.

    >>> _flags(np.array([True, None, "no", "TRUE", float("nan"), 1], object))
    array([ True, False, False,  True, False,  True])
    """
    return np.isin(np.char.lower(values.astype(np.str_)), ("true", "yes", "1", "1.0"))
