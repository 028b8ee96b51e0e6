"""Regression: a number.

    output        {"value": …, "low": …, "high": …}, a value and its interval; or the value alone, taken for sure
    answer        the value
    confidence    1 / (1 + half the width of the interval / tolerance): 1/2 where half of it is the tolerance
    agreement     1 where the values differ by the tolerance at most, else 0
"""

from __future__ import annotations

from typing import Any

from hinge._checks import positive, real
from hinge.tasks.task import parsed


class Regression:
    """A number, right if it is off by `tolerance` at most.

    >>> task = Regression(tolerance=0.5)
    >>> task.answer({"value": 21.5, "low": 21, "high": 22}), task.confidence({"value": 21.5, "low": 21, "high": 22})
    (21.5, 0.5)
    >>> task.agreement(21.5, 21.9), task.agreement(21.5, 22.5)
    (1.0, 0.0)
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = positive("Regression", "tolerance", tolerance)

    def answer(self, output: Any) -> float:
        """The value.

        >>> Regression(1).answer(float("nan"))
        Traceback (most recent call last):
        hinge.errors.InvalidValue: Regression: value must be a finite number, got nan
        """
        found = parsed("Regression", output)
        return real("Regression", "value", found.get("value") if isinstance(found, dict) else found)

    def confidence(self, output: Any) -> float:
        """By the width of the interval."""
        found, value = parsed("Regression", output), self.answer(output)
        if not isinstance(found, dict):
            return 1.0
        low, high = (real("Regression", end, found.get(end, value)) for end in ("low", "high"))
        if not low <= high:
            raise ValueError(f"Regression: low must be high at most, got {low} and {high}")
        return 1.0 / (1.0 + (high - low) / 2 / self.tolerance)

    def agreement(self, local: float, remote: float) -> float:
        """1 within the tolerance, else 0."""
        return float(abs(local - remote) <= self.tolerance)
