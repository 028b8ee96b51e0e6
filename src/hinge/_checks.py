"""Checks on arguments, so that every error reads the same: `HILCB: alpha must be > 0, got -1`.

Each check takes who asks, the parameter's name and the value, and returns the value in its plain Python type. The wrong
kind of value raises `InvalidType` (also a `TypeError`), a value out of range `InvalidValue` (also a `ValueError`).
`did_you_mean` ends the message about an unknown name; `shown` is a value from outside as a message may quote it.
"""

import difflib
import math
from collections.abc import Iterable
from numbers import Real
from operator import index

from hinge.errors import InvalidType, InvalidValue


def whole(owner: str, name: str, value: object, low: int, high: int | None = None) -> int:
    """An integer from `low` to `high` (both included).

    >>> whole("UniformBins", "bins", 0, 1)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: UniformBins: bins must be an integer >= 1, got 0
    """
    if type(value) is not int:  # bool and numpy's integers among the rest
        value = _index(owner, name, value, low, high)
    if value < low or (high is not None and value > high):
        raise InvalidValue(owner, name, f"must be {_integers(low, high)}, got {value!r}")
    return value


def real(owner: str, name: str, value: object, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number from `low` to `high` (both included).

    >>> real("HILCB", "offload_cost", 1.5, 0, 1)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: HILCB: offload_cost must be from 0 to 1, got 1.5
    """
    number = value if type(value) is float else _number(owner, name, value)
    if not low <= number <= high or math.isinf(number):
        raise InvalidValue(owner, name, f"must be {_range(low, high)}, got {value!r}")
    return number


def reals(owner: str, name: str, values: object, low: float = -math.inf, high: float = math.inf) -> list[float]:
    """Finite numbers from `low` to `high`, in a list.

    >>> reals("Problem", "agreement", [0.5, 1.2], 0, 1)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Problem: agreement[1] must be from 0 to 1, got 1.2
    """
    if isinstance(values, str) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise InvalidType(owner, name, f"must be a sequence of numbers, got {values!r}")
    return [real(owner, f"{name}[{k}]", value, low, high) for k, value in enumerate(values)]


def share(owner: str, name: str, value: object) -> float:
    """A number from 0 to 1; quick for floats, as it is asked for every offload."""
    return value if type(value) is float and 0.0 <= value <= 1.0 else real(owner, name, value, 0, 1)


def agreement(owner: str, name: str, value: object) -> float:
    """How far two answers agree, from 0 to 1; Python's and numpy's True and False are 1 and 0.

    >>> agreement("Count", "agreement", 3 == 3), agreement("Count", "agreement", 0.25)
    (1.0, 0.25)
    """
    return float(bool(value)) if type(value).__name__ in ("bool", "bool_") else share(owner, name, value)


def positive(owner: str, name: str, value: object, high: float = math.inf) -> float:
    """A finite number above zero, `high` at most.

    >>> positive("HILCB", "alpha", -1)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: HILCB: alpha must be > 0, got -1
    """
    number = _number(owner, name, value)
    if number > high or number == math.inf:
        most = "a finite number" if number == math.inf else f"at most {high:.0f}"
        raise InvalidValue(owner, name, f"must be {most}, got {value!r}")
    if not number > 0:
        raise InvalidValue(owner, name, f"must be > 0, got {value!r}")
    return number


def seconds(owner: str, name: str, value: object) -> float:
    """A time that can be waited for: above zero, and at most a million seconds, 11 days, as no system takes any longer.

    >>> seconds("Device", "deadline_s", 1e10)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Device: deadline_s must be at most 1000000, got 10000000000.0
    """
    return positive(owner, name, value, 1e6)


def truth(owner: str, name: str, value: object) -> bool:
    """True or False, and nothing that merely counts as one of them.

    >>> truth("HILCB", "offload_unseen", "no")
    Traceback (most recent call last):
    hinge.errors.InvalidType: HILCB: offload_unseen must be True or False, got 'no'
    """
    if not isinstance(value, bool):
        raise InvalidType(owner, name, f"must be True or False, got {value!r}")
    return value


def _index(owner: str, name: str, value: object, low: int, high: int | None) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)  # type: ignore[arg-type]  # index() is the check: it refuses what is no integer
    except TypeError:
        raise InvalidType(owner, name, f"must be {_integers(low, high)}, got {value!r}") from None


def _integers(low: int, high: int | None) -> str:
    return f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"


def _number(owner: str, name: str, value: object) -> float:
    # A numpy scalar of any kind is a Real or has __float__ and a dtype; text and sequences have neither.
    if isinstance(value, bool) or not (isinstance(value, Real) or hasattr(value, "dtype")):
        raise InvalidType(owner, name, f"must be a number, got {value!r}")
    if getattr(getattr(value, "dtype", None), "kind", "f") in "bcSU":  # numpy's own bool, complex and text
        raise InvalidType(owner, name, f"must be a number, got {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]  # an array of several numbers is refused here
    except OverflowError:  # an integer beyond every float
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # a Real can be compared
    except (TypeError, ValueError):
        raise InvalidType(owner, name, f"must be a number, got {value!r}") from None


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "a finite number"
    if math.isinf(high):
        return f">= {low:g}"
    return f"from {low:g} to {high:g}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name.

    >>> did_you_mean("lable", ["label", "cost"])
    "; did you mean 'label'?"
    >>> did_you_mean("weather", ["label", "cost"])
    '; there are cost, label'
    """
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known) or 'none'}"


def shown(value: object, most: int = 36) -> str:
    """A value from outside for an error message: text in quotes, at most so many characters; of a list only its kind.

    >>> print(shown("FP32"), shown([1, 2, 3]), shown(10**50, most=12))
    'FP32' a list 10000000000…
    """
    if not isinstance(value, (str, int, float, type(None))):
        return kind(value)
    if isinstance(value, int) and value.bit_length() > 1024:
        return "an integer of more than 300 digits"  # Python refuses to write very long ones
    text = "null" if value is None else repr(value[:most] if isinstance(value, str) else value)
    return text if len(text) <= most else text[: most - 1] + "…"


_KINDS = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "an integer", float: "a number"}


def kind(value: object) -> str:
    """What JSON calls such a value."""
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)
