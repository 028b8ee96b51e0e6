"""Shapes of JSON: each checks a value that a stranger sent, and describes itself for OpenAPI."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hinge.errors import InvalidMessage
from hinge.oip.json import MAX_TEXT, listing, mapping, shown, text

Json = dict[str, Any]

MOST = 10**12  # the largest number; a chart of larger ones could not tell neighbours apart


class Shape(Protocol):
    """What a value must look like."""

    def check(self, owner: str, value: object) -> None:
        """Raise `InvalidMessage`, in the name of the owner, if the value looks otherwise."""

    def schema(self) -> Json:
        """The same as JSON Schema."""


@dataclass(frozen=True)
class Number:
    """A finite number within bounds, and perhaps without a fraction.

    >>> Number(0, 1).check("confidence", 1.5)
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: confidence must be a number from 0 to 1, got 1.5
    """

    low: float = -MOST
    high: float = MOST
    whole: bool = False

    def check(self, owner: str, value: object) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise InvalidMessage(f"{owner} must be a number from {self.low:g} to {self.high:g}, got {shown(value)}")
        if self.whole and not math.modf(value)[0] == 0.0:
            raise InvalidMessage(f"{owner} must be an integer, got {shown(value)}")

    def schema(self) -> Json:
        return {"type": "integer" if self.whole else "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Text:
    """Printable text that is not empty, of a length up to `most`; of a pattern, if there is one.

    >>> Text(4).check("policy", "hi-lcb")
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: policy must be of at most 4 characters
    """

    most: int = MAX_TEXT
    pattern: str | None = None

    def check(self, owner: str, value: object) -> None:
        if self.pattern is None:
            if len(text(owner, value)) > self.most:
                raise InvalidMessage(f"{owner} must be of at most {self.most} characters")
        elif not isinstance(value, str) or len(value) > self.most or not re.fullmatch(self.pattern, value):
            raise InvalidMessage(f"{owner} must be like {self.pattern}, of at most {self.most} characters")

    def schema(self) -> Json:
        pattern = {} if self.pattern is None else {"pattern": f"^{self.pattern}$"}
        return {"type": "string", "minLength": 1, "maxLength": self.most, **pattern}


@dataclass(frozen=True)
class Truth:
    """True or false."""

    def check(self, owner: str, value: object) -> None:
        if not isinstance(value, bool):
            raise InvalidMessage(f"{owner} must be true or false, got {shown(value)}")

    def schema(self) -> Json:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Maybe:
    """A value of some shape, or null."""

    of: Shape

    def check(self, owner: str, value: object) -> None:
        if value is not None:
            self.of.check(owner, value)

    def schema(self) -> Json:
        return {"anyOf": [self.of.schema(), {"type": "null"}]}


@dataclass(frozen=True)
class Many:
    """A list of values of one shape."""

    of: Shape
    most: int

    def check(self, owner: str, value: object) -> None:
        for place, each in enumerate(listing(owner, value, self.most)):
            self.of.check(f"{owner}[{place}]", each)

    def schema(self) -> Json:
        return {"type": "array", "maxItems": self.most, "items": self.of.schema()}


@dataclass(frozen=True)
class Counts:
    """How often each of a few things happened, by their names."""

    most: int = 16

    def check(self, owner: str, value: object) -> None:
        fields = mapping(owner, value)
        if len(fields) > self.most:
            raise InvalidMessage(f"{owner} may be {self.most} at most, got {len(fields)}")
        for name, count in fields.items():
            text(f"a name in {owner}", name)
            COUNT.check(owner, count)

    def schema(self) -> Json:
        return {"type": "object", "maxProperties": self.most, "additionalProperties": COUNT.schema()}


class Record:
    """An object with exactly these fields."""

    def __init__(self, fields: Mapping[str, Shape]) -> None:
        self._fields = dict(fields)

    def check(self, owner: str, value: object) -> None:
        """Check each field; one too many is as bad as one too few."""
        found = mapping(owner, value)
        wrong = sorted(found.keys() ^ self._fields.keys())
        if wrong:
            problem = "is unknown" if wrong[0] in found else "is missing"
            raise InvalidMessage(f"{owner}: {shown(wrong[0])} {problem}")
        for name, shape in self._fields.items():
            shape.check(f"{owner}: {name}", found[name])

    def schema(self) -> Json:
        """All of them are required."""
        properties = {name: shape.schema() for name, shape in self._fields.items()}
        return {
            "type": "object",
            "required": list(properties),
            "properties": properties,
            "additionalProperties": False,
        }


COUNT = Number(0, whole=True)
