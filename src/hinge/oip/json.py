"""What every message is made of: headers, strict JSON, and limits that hold before anything is allocated.

JSON as Python reads it is too generous for what a stranger sends: it knows NaN, takes the last of two equal keys, and
recurses as deep as the text does. Here none of that gets through, and an error shows only a few characters of the data.

Tokens that a client shows a server, in a header of their own.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hinge.errors import InvalidMessage

MAX_BODY_BYTES = 64 * 2**20
MAX_DEPTH = 40  # numpy's 32 dimensions, inside a tensor, inside a list, inside a message
MAX_JSON_BYTES = 16 * 2**20  # large tensors are for binary data; reading JSON costs far more time and memory
MAX_MARKS = 2**22  # quotes, commas, brackets, … in JSON: a bound on how many values it can hold
MAX_KEYS = 2**14  # objects and their keys, of which a message with the most tensors has some thousand
MAX_TEXT = 256  # characters in a name or an id

_KINDS = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "an integer", float: "a number"}
_QUOTE = ord('"')
_AT_ONCE = 2**14  # marks looked at together, so that looking takes little memory
_NO_MARKS = bytes(set(range(256)) - set(b'"[]{},:\\'))
_STEPS = np.zeros(256, np.int8)  # how much deeper each character leads
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_IN_OBJECTS = np.zeros(256, np.bool_)
_IN_OBJECTS[list(b"{:")] = True


@dataclass(frozen=True)
class Message:
    """What goes over HTTP: the headers that the format needs, and the body."""

    headers: Mapping[str, str]
    body: bytes


def json_message(fields: Mapping[str, object]) -> Message:
    """A message of JSON alone. KServe refuses it without its content type.

    >>> json_message({"error": "no such model"})
    Message(headers={'Content-Type': 'application/json'}, body=b'{"error":"no such model"}')
    """
    return Message({"Content-Type": "application/json"}, limited(write_json(fields)))


def limited(body: bytes) -> bytes:
    """The body, unless it is larger than any message may be."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidMessage(f"a message may have {MAX_BODY_BYTES} bytes, got {len(body)}")
    return body


def write_json(fields: Mapping[str, object]) -> bytes:
    """The fields as compact JSON, which is ASCII throughout."""
    return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode("ascii")


def read_json(text: bytes) -> dict[str, object]:
    """The fields of a JSON object.

    >>> read_json(b'{"id": "42"}')
    {'id': '42'}
    >>> read_json(b'{"data": [NaN]}')
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: JSON: NaN is not a number in JSON
    """
    _check_size(text)
    try:
        value = _DECODER.decode(text.decode("utf-8"))
    except InvalidMessage:
        raise
    except UnicodeDecodeError as error:
        problem = f"no UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        problem = f"broken at character {error.pos}"
    except ValueError:  # Python refuses to read integers of thousands of digits
        problem = "a number has too many digits"
    else:
        return mapping("message", value)
    raise InvalidMessage(f"JSON: {problem}")  # out here, so that the error does not hold on to the text


def _check_size(text: bytes) -> None:
    """Refuse JSON that is too long, too deep or holds too many values, without reading it.

    Brackets count only outside of strings, which end at every second quote once escaped ones are gone. Where the text
    is no JSON, the reader stops at the first fault; up to there, the depth found here is the true one.
    """
    if len(text) > MAX_JSON_BYTES:
        raise InvalidMessage(f"JSON: {len(text)} bytes, more than {MAX_JSON_BYTES}")
    opened = text.count(b"{")
    if text.count(b"[") + opened <= MAX_DEPTH and text.count(b":") + opened <= MAX_KEYS and len(text) <= MAX_MARKS:
        return  # nearly every message ends here: so few of them cannot be too many, wherever they stand
    marks = text.translate(None, _NO_MARKS)
    if len(marks) > MAX_MARKS:
        raise InvalidMessage(f"JSON: {len(marks)} quotes, brackets and the like, more than {MAX_MARKS}")
    if b"\\" in marks:
        marks = text.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_MARKS)
    quotes = depth = keys = 0
    for start in range(0, len(marks), _AT_ONCE):
        part = np.frombuffer(marks[start : start + _AT_ONCE], np.uint8)
        counts = np.cumsum(part == _QUOTE, dtype=np.int32) + quotes
        outside = counts % 2 == 0
        depths = np.cumsum(_STEPS[part] * outside, dtype=np.int32) + depth
        quotes, depth, keys = int(counts[-1]), int(depths[-1]), keys + int((_IN_OBJECTS[part] & outside).sum())
        if depths.max() > MAX_DEPTH:
            raise InvalidMessage(f"JSON: nested more than {MAX_DEPTH} deep")
        if keys > MAX_KEYS:
            raise InvalidMessage(f"JSON: objects and their keys are more than {MAX_KEYS}")


def _refuse_constant(literal: str) -> object:
    raise InvalidMessage(f"JSON: {literal} is not a number in JSON")


def _fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise InvalidMessage("JSON: an object has the same key twice")
    return fields


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_fields)


def shown(value: object, most: int = 36) -> str:
    """At most so many characters of the value; of a list or an object only what it is.

    >>> print(shown("FP32"), shown([1, 2, 3]), shown(10**50, most=12))
    'FP32' a list 10000000000…
    """
    if not isinstance(value, (str, int, float, type(None))):
        return kind(value)
    text = "null" if value is None else repr(value[:most] if isinstance(value, str) else value)
    return text if len(text) <= most else text[: most - 1] + "…"


def kind(value: object) -> str:
    """What JSON calls such a value."""
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


def mapping(owner: str, value: object) -> dict[str, object]:
    """The value, if it is an object of JSON."""
    if not isinstance(value, dict):
        raise InvalidMessage(f"{owner} must be an object, got {kind(value)}")
    return value


def listing(owner: str, value: object, most: int) -> list[object]:
    """The value, if it is a list of no more than so many."""
    if not isinstance(value, list):
        raise InvalidMessage(f"{owner} must be a list, got {kind(value)}")
    if len(value) > most:
        raise InvalidMessage(f"{owner} may be {most} at most, got {len(value)}")
    return value


def text(owner: str, value: object, empty: bool = False) -> str:
    """The value, if it is text that may stand in a log: short, printable, and not empty unless it may be."""
    if not isinstance(value, str) or not (value or empty) or len(value) > MAX_TEXT or not value.isprintable():
        raise InvalidMessage(f"{owner} must be 1 to {MAX_TEXT} printable characters, got {shown(value)}")
    return value


def optional_text(owner: str, fields: Mapping[str, object], key: str) -> str:
    """The text under the key; empty where it is absent or null, as KServe writes what it does not have."""
    value = fields.get(key)
    return "" if value is None else text(f"{owner}: {key}", value, empty=True)


def parameters(owner: str, fields: Mapping[str, object]) -> dict[str, object]:
    """The parameters of a message or of a tensor in it; unknown ones may be among them."""
    value = fields.get("parameters")
    return {} if value is None else mapping(f"{owner}: parameters", value)


def flag(fields: Mapping[str, object], key: str, default: bool) -> bool:
    """The truth value under the key, or the default where it is absent or null."""
    value = fields.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidMessage(f"{key} must be true or false, got {shown(value)}")
    return default if value is None else value


def model_name(value: object, owner: str = "model name") -> str:
    """The value, if it may name a model (or a version of one): nothing that a path or an address could be made of.

    >>> model_name("resnet-50.v2")
    'resnet-50.v2'
    >>> model_name("../secrets")
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: model name must be 1 to 64 of A-Z a-z 0-9 _ . - and more than dots, got '../secrets'
    """
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", value) or not value.strip("."):
        raise InvalidMessage(
            f"{owner} must be 1 to 64 of A-Z a-z 0-9 _ . - and more than dots, got {shown(value)}"
        )
    return value


MAX_TOKEN = 4096  # characters


def read_token(path: Path | None, variable: str = "HINGE_TOKEN") -> str | None:
    """The token in a file, or else in the environment, if there is one; never from the command line, which others see.

    >>> read_token(None, "NO_SUCH_TOKEN") is None
    True
    """
    if path is None:
        token = os.environ.get(variable)
        return None if token is None else check_token(variable, token.strip())
    with path.open("rb") as file:
        content = file.read(2 * MAX_TOKEN)  # what is longer is refused, however long it is
    return check_token(str(path), content.decode("utf-8", "replace").strip())


def check_token(owner: str, token: object) -> str:
    """The token, if it can stand in a header: printable characters of ASCII, no spaces, no ends of lines.

    >>> check_token("OpenInference", "secret")
    'secret'
    >>> check_token("OpenInference", "secret\\n")
    Traceback (most recent call last):
    ValueError: OpenInference: token must be printable ASCII without spaces
    """
    if not isinstance(token, str):
        raise TypeError(f"{owner}: token must be text, got {type(token).__name__}")
    if not re.fullmatch(r"[!-~]+", token) or len(token) > MAX_TOKEN:
        raise ValueError(f"{owner}: token must be printable ASCII without spaces")  # and it is not shown
    return token
