"""Changes that a person should hear of: what has changed, from what to what, and since when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, pstdev
from time import time

from hinge.budget import REFUSED
from hinge.gate import Gate
from hinge.price import ALARMS, COUNT, SUM

PRICE, AGREEMENT, SHARE = (
    "the price of an offload has changed",
    "agreement with the remote has changed",
    "the share of offloads has changed",
)
WINDOW = 500  # samples
WINDOWS, APART = 20, 24  # of the usual share; from one alarm to the next
LEAST, ERRORS = 0.1, 5.0  # of a window's share from the usual one: in points, and in standard errors
_SLOW, _FAST = 1 / 500, 1 / 30  # the weight of an offload in the usual agreement, and in that of late


@dataclass(frozen=True, slots=True)
class Change:
    """What has changed: from what, to what, and since when."""

    what: str
    before: float
    now: float
    since: float  # Unix time

    def __str__(self) -> str:
        return f"from {self.before:.3g} to {self.now:.3g}"


class OffloadShare:
    """Watches the share of samples that a gate wants to offload, in windows of `WINDOW` samples.

    It has changed if two windows in a row are off the mean of the `WINDOWS` before them, on the same side, by more than
    `LEAST` and by more than `ERRORS` standard errors of a window. The first windows of a gate, in which it learns most,
    are of no account.

    >>> share = OffloadShare()
    >>> [share.add(part) for part in [1.0, 0.8, 0.5, 0.4] + 30 * [0.2] + [0.9]] == 35 * [None]
    True
    >>> share.add(0.9)
    (0.2, 0.9)
    """

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=WINDOWS + 2)
        self._windows, self._quiet_until = 0, WINDOWS

    def add(self, share: float) -> tuple[float, float] | None:
        """Add a window; return the usual share and the present one, if it has changed."""
        self._shares.append(share)
        self._windows += 1
        if len(self._shares) < WINDOWS + 2 or self._windows <= self._quiet_until:
            return None
        *usual, one, two = self._shares
        mean = fmean(usual)
        error = max(sqrt(mean * (1.0 - mean) / WINDOW), pstdev(usual))
        off = max(LEAST, ERRORS * error)
        if min(one, two) > mean + off or max(one, two) < mean - off:
            self._quiet_until = self._windows + APART
            return mean, (one + two) / 2.0
        return None


class ChangeWatch:
    """Looks at a gate after each offload, and returns what has changed since the last look."""

    def __init__(self, gate: Gate) -> None:
        self._share = OffloadShare()
        self._window = gate.policy.time  # when the present one began
        self._offloads = 0  # in it
        self._refused = self._refusals(gate)
        self._price, self._prices = self._mean_price(gate)
        self._falls = sum(gate.policy.alarms.values())
        self._usual = self._late = 1.0  # agreement of what is offloaded
        self._compared = 0

    def compared(self, agreed: float) -> None:
        """Take note of how far local agreed in an offload."""
        self._compared += 1
        self._usual += max(_SLOW, 1.0 / self._compared) * (agreed - self._usual)
        self._late += max(_FAST, 1.0 / self._compared) * (agreed - self._late)

    def offloaded(self, gate: Gate, samples: int) -> list[Change]:
        """Count so many offloads, and return what has changed."""
        found, now = self._windows(gate), time()
        self._offloads += samples
        price, prices = self._mean_price(gate)
        if prices > self._prices:
            found.append(Change(PRICE, self._price, price, now))
        self._price, self._prices = price, prices
        falls = sum(gate.policy.alarms.values())
        if falls > self._falls:
            found.append(Change(AGREEMENT, self._usual, self._late, now))
        self._falls = falls
        return found

    def _windows(self, gate: Gate) -> list[Change]:
        """Close the windows that have passed; offloads in all but the first of them are none."""
        found, seconds = list[Change](), time()
        while gate.policy.time - self._window >= WINDOW:
            refused = self._refusals(gate)
            share = min(1.0, (self._offloads + refused - self._refused) / WINDOW)
            self._window, self._offloads, self._refused = self._window + WINDOW, 0, refused
            changed = self._share.add(share)
            if changed is not None:
                found.append(Change(SHARE, *changed, seconds))
        return found

    @staticmethod
    def _refusals(gate: Gate) -> float:
        return 0.0 if gate.budget is None else gate.budget.sums[REFUSED]

    @staticmethod
    def _mean_price(gate: Gate) -> tuple[float, float]:
        """The mean of what offloads cost since the price was found changed, and how often it was."""
        if gate.price is None:
            return 0.0, 0.0
        sums = gate.price.sums
        return sums[SUM] / max(1.0, sums[COUNT]), sums[ALARMS]
