"""What a wrong answer and an offload cost, as numbers in [0, 1] where 1 is the dearest wrong answer.

A wrong answer (the remote's answer is taken as right) costs 1 less how far it agrees (`hinge.tasks`), or

    CostMatrix     each mistake has its own price

An offload, priced in one unit of your choosing (money, milliseconds, joules) and divided by what a wrong answer costs:

    FixedCost      the same cost every time
    MeasuredCost   a price list for the call, its time and its bytes
    ForecastCost   another price, forecast before the offload from recent latencies and the sample's bytes

A gate without a told price learns it from these costs: `hinge.price`.

`shifted_cost` is what an offload costs beside an agreement, where true labels show how often the remote is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hinge._checks import positive, real, whole
from hinge.errors import InvalidValue

SURE = 10.0  # disagreements, all settled in the remote's favour, that are believed before the first true label


def shifted_cost(offload_cost: float, disagreement: float = 0.0, gain: float = 0.0) -> float:
    """γ′ = γ / κ, 1 at most: the offload cost that makes accepting right against the truth (docs/price.md).

    κ is what the remote's answers save, by the truth, for each disagreement with them. Of labelled samples,
    `disagreement` is the sum of what local answers cost by the remote's, and `gain` the sum of what they cost more than
    the remote's by the truth: where all mistakes cost the same, the number of disagreements, and in how many more of
    them remote is right than local. With a prior of `SURE` disagreements at κ = 1, the estimate is

        κ = (SURE + gain) / (SURE + disagreement)

    and where κ <= γ nothing is worth an offload.

    >>> shifted_cost(0.3), shifted_cost(0.3, disagreement=90, gain=50), shifted_cost(0.3, disagreement=90, gain=10)
    (0.3, 0.5, 1.0)
    """
    advantage = (SURE + gain) / (SURE + disagreement)
    return 1.0 if advantage <= offload_cost else offload_cost / advantage


class WrongCost(Protocol):
    """What a local answer costs, given the remote's."""

    def wrong(self, local: object, remote: object) -> float:
        """From 0, where the answers are equal, to 1, the dearest mistake."""

    def agreed(self, local: object, remote: object) -> float:
        """`1 - wrong`, as `Policy.learn` takes it."""


class OffloadPrice(Protocol):
    """What one offload costs, given what was measured of it."""

    def cost(self, *, latency_ms: float = 0.0, size_bytes: float = 0.0, calls: float = 1.0) -> float:
        """From 0 to 1, the dearest mistake; bytes and calls are a sample's share of those of its request."""


class Forecast(OffloadPrice, Protocol):
    """An offload cost that can be told beforehand, from the sample, the radio, the battery; None: not this time."""

    def forecast(self, sample: Any) -> float | None:
        """What offloading the sample will cost, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class CostMatrix:
    """Each mistake has its own price: `wrong = prices[local][remote] / worst`, `worst` the dearest price.

    Rows are the local answer, columns the remote's. Prices are >= 0 in any unit, and 0 on the diagonal. Answers are
    class indices, or names where `labels` lists one per class.

    >>> alarm = CostMatrix([[0, 40], [2, 0]], labels=["quiet", "fire"])
    >>> alarm.wrong("quiet", "fire"), alarm.wrong("fire", "quiet"), alarm.worst
    (1.0, 0.05, 40.0)
    >>> alarm.agreed("fire", "quiet")
    0.95
    """

    prices: Sequence[Sequence[float]]
    labels: Sequence[str] | None = None
    worst: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        prices = _checked_prices(self.prices)
        worst = max(map(max, prices))
        if worst == 0:
            raise ValueError("CostMatrix: prices must hold at least one price > 0, got only 0")
        object.__setattr__(self, "prices", prices)
        object.__setattr__(self, "labels", _checked_labels(self.labels, len(prices)))
        object.__setattr__(self, "worst", worst)

    def wrong(self, local: object, remote: object) -> float:
        """The price of answering `local` where `remote` is right, in [0, 1].

        >>> CostMatrix([[0, 1], [1, 0]]).wrong(0, 2)
        Traceback (most recent call last):
        hinge.errors.InvalidValue: CostMatrix: remote must be an integer from 0 to 1, got 2
        """
        return self.prices[self._class("local", local)][self._class("remote", remote)] / self.worst

    def agreed(self, local: object, remote: object) -> float:
        """`1 - wrong`, as `Policy.learn` takes it where mistakes have different prices."""
        return 1.0 - self.wrong(local, remote)

    def _class(self, name: str, answer: object) -> int:
        if self.labels is None:
            return whole("CostMatrix", name, answer, 0, len(self.prices) - 1)
        if not isinstance(answer, str):
            raise TypeError(f"CostMatrix: {name} must be one of the labels, got {answer!r}")
        if answer not in self.labels:
            raise ValueError(f"CostMatrix: {name} must be one of the labels, got {answer!r}")
        return self.labels.index(answer)


@dataclass(frozen=True, slots=True)
class FixedCost:
    """Every offload costs the same.

    >>> FixedCost(0.5).cost(latency_ms=84)
    0.5
    """

    offload_cost: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "offload_cost", real("FixedCost", "offload_cost", self.offload_cost, 0, 1))

    def cost(self, *, latency_ms: float = 0.0, size_bytes: float = 0.0, calls: float = 1.0) -> float:
        """The offload cost; measures are checked as `MeasuredCost` does, so that the two can be exchanged."""
        _checked_measures("FixedCost", latency_ms, size_bytes, calls)
        return self.offload_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCost:
    """A price list in one unit, and its map to [0, 1].

        amount = per_call * calls + per_ms * latency_ms + per_byte * size_bytes
        cost   = min(cap, amount / wrong_answer)

    `wrong_answer` is what a wrong answer costs in the same unit: the most you would pay to avoid one. `calls` is 1 but
    for samples that travel together, of which each pays its share, and for those that were sent twice.

    >>> price = MeasuredCost(wrong_answer=0.20, per_ms=0.001, per_byte=1e-7, unit="€")
    >>> round(price.amount(latency_ms=84, size_bytes=12_000), 6), round(price.cost(latency_ms=84, size_bytes=12_000), 6)
    (0.0852, 0.426)
    >>> price.explain(latency_ms=84, size_bytes=12_000)
    '0.084 € for 84 ms + 0.0012 € for 12,000 bytes = 0.0852 €, 0.426 of a wrong answer'

    In milliseconds: an answer may come 250 ms later if that keeps it from being wrong. In joules: a radio that takes
    0.25 J to wake, 0.5 W while it listens and 1 µJ for a byte has `per_call=0.25, per_ms=0.0005, per_byte=1e-6`.

    >>> MeasuredCost(wrong_answer=250, per_ms=1, unit="ms").cost(latency_ms=50)
    0.2
    """

    wrong_answer: float
    per_call: float = 0.0
    per_ms: float = 0.0
    per_byte: float = 0.0
    cap: float = 1.0
    unit: str = "€"

    def __post_init__(self) -> None:
        object.__setattr__(self, "wrong_answer", positive("MeasuredCost", "wrong_answer", self.wrong_answer))
        for name in ("per_call", "per_ms", "per_byte"):
            object.__setattr__(self, name, real("MeasuredCost", name, getattr(self, name), 0))
        cap = positive("MeasuredCost", "cap", self.cap)
        object.__setattr__(self, "cap", real("MeasuredCost", "cap", cap, 0, 1))
        if not isinstance(self.unit, str):
            raise TypeError(f"MeasuredCost: unit must be a text, got {self.unit!r}")
        if self.per_call == self.per_ms == self.per_byte == 0.0:
            problem = "must be > 0, got only 0; FixedCost(0) is free"
            raise InvalidValue("MeasuredCost", "per_call, per_ms or per_byte", problem)

    def amount(self, *, latency_ms: float = 0.0, size_bytes: float = 0.0, calls: float = 1.0) -> float:
        """What one offload costs, in the unit."""
        return sum(self._amounts(latency_ms, size_bytes, calls))

    def cost(self, *, latency_ms: float = 0.0, size_bytes: float = 0.0, calls: float = 1.0) -> float:
        """What one offload costs, in [0, cap]."""
        amount = self.amount(latency_ms=latency_ms, size_bytes=size_bytes, calls=calls)
        return min(self.cap, amount / self.wrong_answer)

    def explain(self, *, latency_ms: float = 0.0, size_bytes: float = 0.0, calls: float = 1.0) -> str:
        """One sentence: each price paid, their sum, and its share of a wrong answer."""
        amounts = self._amounts(latency_ms, size_bytes, calls)
        causes = ("the call", f"{latency_ms:.4g} ms", f"{size_bytes:,.0f} bytes")
        paid = [f"{x:.4g} {self.unit} for {cause}" for x, cause in zip(amounts, causes, strict=True) if x > 0]
        total = sum(amounts)
        share = total / self.wrong_answer
        capped = f", capped at {self.cap:g}" if share > self.cap else ""
        return f"{' + '.join(paid) or 'nothing'} = {total:.4g} {self.unit}, {share:.3g} of a wrong answer{capped}"

    def _amounts(self, latency_ms: float, size_bytes: float, calls: float) -> list[float]:
        *measures, calls = _checked_measures("MeasuredCost", latency_ms, size_bytes, calls)
        prices = (self.per_call, self.per_ms, self.per_byte)
        return [price * measure for price, measure in zip(prices, (calls, *measures), strict=True)]


def sample_bytes(sample: Any) -> float:
    """The size of an array, of bytes or of a text; 0 for what has none.

    >>> sample_bytes(b"1234"), sample_bytes(memoryview(bytes(8))), sample_bytes(3.0)
    (4, 8, 0)
    """
    size: float = getattr(sample, "nbytes", len(sample) if isinstance(sample, bytes | bytearray | str) else 0)
    return size


class ForecastCost:
    """Another price, which is also asked beforehand: `forecast = price.cost(latency_ms=l, size_bytes=size(sample))`.

    l is a running mean of the latencies that were priced, failures' included, in which the last has weight `weight`;
    there is no forecast before the first. `size` is how many bytes offloading a sample takes.

    >>> price = ForecastCost(MeasuredCost(wrong_answer=250, per_ms=1, per_byte=0.01, unit="ms"))
    >>> price.forecast(bytes(5000)), price.cost(latency_ms=50, size_bytes=5200), price.forecast(bytes(10_000))
    (None, 0.408, 0.6)
    """

    def __init__(
        self, price: OffloadPrice, *, size: Callable[[Any], float] = sample_bytes, weight: float = 0.2
    ) -> None:
        self.price, self.size = price, size
        self.weight = real("ForecastCost", "weight", weight, 0, 1)
        self._latency_ms: float | None = None

    def cost(self, *, latency_ms: float = 0.0, size_bytes: float = 0.0, calls: float = 1.0) -> float:
        """What the price says."""
        cost = self.price.cost(latency_ms=latency_ms, size_bytes=size_bytes, calls=calls)
        before = latency_ms if self._latency_ms is None else self._latency_ms
        self._latency_ms = before + self.weight * (latency_ms - before)
        return cost

    def forecast(self, sample: Any) -> float | None:
        """What offloading this sample would cost, if it took as long as others of late."""
        if self._latency_ms is None:
            return None
        return self.price.cost(latency_ms=self._latency_ms, size_bytes=self.size(sample))


def _checked_measures(owner: str, latency_ms: float, size_bytes: float, calls: float) -> list[float]:
    measures = {"latency_ms": latency_ms, "size_bytes": size_bytes, "calls": calls}
    return [
        measure if type(measure) is float and 0.0 <= measure < math.inf else real(owner, name, measure, 0)
        for name, measure in measures.items()
    ]


def _checked_prices(prices: Iterable[Iterable[float]]) -> tuple[tuple[float, ...], ...]:
    plain = prices.tolist() if hasattr(prices, "tolist") else prices  # arrays, without needing numpy here
    if not _is_list(plain) or not all(map(_is_list, plain)):
        raise TypeError(f"CostMatrix: prices must be a list of rows, got {prices!r}")
    rows = [list(row) for row in plain]
    for local, row in enumerate(rows):
        if len(row) != len(rows):
            raise ValueError(f"CostMatrix: prices must be square, got {len(row)} prices in row {local} of {len(rows)}")
    checked = tuple(
        tuple(real("CostMatrix", f"prices[{local}][{remote}]", price, 0) for remote, price in enumerate(row))
        for local, row in enumerate(rows)
    )
    if not checked:
        raise ValueError("CostMatrix: prices must not be empty, got []")
    for k, free in enumerate(checked[k][k] for k in range(len(checked))):
        if free != 0:
            raise ValueError(f"CostMatrix: prices[{k}][{k}] must be 0, as the right answer is free, got {free!r}")
    return checked


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _checked_labels(labels: Sequence[str] | None, classes: int) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if not _is_list(labels) or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"CostMatrix: labels must be a list of names, got {labels!r}")
    if len(set(labels)) != len(labels) or len(labels) != classes:
        raise ValueError(f"CostMatrix: labels must be {classes} different names, got {list(labels)!r}")
    return tuple(labels)
