"""Probation transcribed from the formulas in its description, for decisions to be compared with.

Nothing is shared with the package. A licence is its length and how much of it was used; the samples of a record and
those since the last offload are counted for themselves; evidence is found anew whenever it is asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import exp, expm1, log, sqrt

LONGEST = 2**52


def kl(p: float, q: float) -> float:
    """p ln(p/q) + (1-p) ln((1-p)/(1-q))"""
    return (p * log(p / q) if p else 0.0) + ((1.0 - p) * log((1.0 - p) / (1.0 - q)) if p < 1.0 else 0.0)


def page(total: float, agreed: float, alternative: float, usual: float) -> float:
    """Page's sum of the log-likelihood ratio of two predictions of one more offload."""
    ratio = agreed * log(alternative / usual) + (1.0 - agreed) * log((1.0 - alternative) / (1.0 - usual))
    return max(0.0, total + ratio)


@dataclass
class Bin:
    """The record of a bin, and its licence."""

    n: float = 0.0
    a: float = 0.0
    m: float = 0.0  # samples since the record began
    licence: int = 0  # how many samples were granted
    used: int = 0  # of these
    since: int = 0  # samples accepted since the licence was granted, by it or not
    w: float = 0.0
    testified: float = 0.0  # the mean A/N of those that testified in favour; 0: nobody did

    def forget(self) -> None:
        for field in fields(self):
            setattr(self, field.name, field.default)


class LiteralProbation:
    """The three constants, and every rule by itself."""

    def __init__(self, bins: int, offload_cost: float) -> None:
        self.bins = [Bin() for _ in range(bins)]
        self.price = self.cut_at = offload_cost
        self.time = self.begun = 0
        self.v = self.m = 0.0
        self.learned = 0

    def decide(self, bin: int, told: float | None = None) -> bool:
        self.time += 1
        one = self.bins[bin]
        if told is None:
            offload = one.used >= one.licence
        else:
            offload = one.since >= self.granted(bin, one.m - one.since, told)[0]
        if offload:
            self.ask(bin)
        else:
            one.m += 1
            one.since += 1
            one.used += told is None
        return offload

    def ask(self, bin: int) -> None:
        """An audit grants the last licence again."""
        self.bins[bin].used = self.bins[bin].since = 0

    def look(self) -> None:
        """A sample that is offloaded for another reason than an audit."""
        self.time += 1

    def learn(self, bin: int, agreed: float) -> str:
        """Write to the record; returns whose records were dropped before, "all", "bin" or nobody's."""
        one, q = self.bins[bin], self.break_even(self.price)
        p = (one.a + 0.5) / (one.n + 1.0)
        self.learned += 1
        one.w = page(one.w, agreed, q, p)
        self.v = page(self.v, agreed, 0.75 * p, p)
        if one.testified:
            self.m = page(self.m, agreed, q, one.testified)
        dropped = ""
        if self.v > 3.0 + log(self.learned):
            dropped = "all"
            for each in self.bins:
                each.forget()
            self.v = self.m = 0.0
            self.begun, self.learned = self.time - 1, 1
        elif one.w > 3.0 + log(one.n + 1.0):
            dropped = "bin"
            one.n = one.a = one.m = one.w = 0.0
        one.n += 1.0
        one.a += agreed
        one.m += 1.0
        one.licence, one.testified = self.granted(bin, one.m, self.price)
        one.used = one.since = 0
        return dropped

    def granted(self, bin: int, m: float, price: float) -> tuple[int, float]:
        """The length of a licence at a price, and the mean that was testified for it."""
        one, q = self.bins[bin], self.break_even(price)
        if price >= 1.0:
            return LONGEST, 0.0
        testimony = list(self.testimony(bin, q))
        if one.a < q * one.n or not testimony:
            return 0, 0.0
        loudest, number, agreements = max(testimony, key=lambda each: each[0])
        samples = exp(-one.w) * min(
            number * expm1(min(loudest, 40.0)) - m,
            20.0 * sqrt((1.0 - q) * (self.time - self.begun)) / q,
            20.0 * (1.0 + one.n) * exp(min(self.evidence(one.n, one.a, q) - self.m, 40.0)),
        )
        return (max(1, int(samples)), (agreements + 0.5) / (number + 1.0)) if samples > 0.0 else (0, 0.0)

    def testimony(self, bin: int, q: float) -> Iterator[tuple[float, float, float]]:
        """E, N and A of the bins j … i, for each j from i down, where they speak for accepting."""
        number = agreements = 0.0
        for below in reversed(self.bins[: bin + 1]):
            number, agreements = number + below.n, agreements + below.a
            evidence = self.evidence(number, agreements, q)
            if evidence > 0.0:
                yield evidence, number, agreements

    def reprice(self, price: float, extra: float = 0.0) -> None:
        self.price = price + extra
        if abs(price - self.cut_at) > 0.02 * price:
            self.cut_at = price
            for number, one in enumerate(self.bins):
                if one.licence > one.used:
                    most, one.testified = self.granted(number, one.m, self.price)
                    one.licence = min(one.licence, one.used + most)

    @staticmethod
    def evidence(n: float, a: float, q: float) -> float:
        p = (a + 0.5) / (n + 1.0)
        return (n + 1.0) * kl(p, q) if a > q * n and p > q else 0.0

    @staticmethod
    def break_even(price: float) -> float:
        return 1.0 - min(max(price, 1e-6), 1.0 - 1e-6)
