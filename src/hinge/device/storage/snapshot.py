"""A snapshot: a policy's `state()` as JSON, in an envelope with the CRC of the exact bytes inside it.

    {"crc32":"1a2b3c4d","content":{"hinge_snapshot":1,"generation":7,"state":{…},"began":"start","past":[[6,"start"]]}}

The envelope is the same in every version; the version is inside, so that damage cannot pass for a newer version.
Why the generation began, and its past, are left out where there is nothing to say, as they are in older folders.
"""

import json
import zlib
from typing import Any, NamedTuple

from hinge.device.storage.past import Past, read_past
from hinge.errors import InvalidState
from hinge.policies.policy import STATE_VERSION, State

VERSION = 1
_OPENING, _MIDDLE, _CLOSING = b'{"crc32":"', b'","content":', b"}\n"
_START = len(_OPENING) + 8 + len(_MIDDLE)


class Damaged(ValueError):
    """The bytes are not what was once written; the message says how, and the caller names the file."""


class Snapshot(NamedTuple):
    """What a snapshot holds."""

    state: State
    began: str | None = None  # why the generation began, if not because a journal had become long
    past: Past = ()


def snapshot_bytes(generation: int, state: State, began: str | None = None, past: Past = ()) -> bytes:
    """A state as a file has it.

    >>> snapshot_bytes(7, {"hinge_state": 1})
    b'{"crc32":"0e4baa1e","content":{"hinge_snapshot":1,"generation":7,"state":{"hinge_state":1}}}\\n'
    """
    content: dict[str, Any] = {"hinge_snapshot": VERSION, "generation": generation, "state": state}
    if began is not None:
        content["began"] = began
    if past:
        content["past"] = past
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return _OPENING + f"{zlib.crc32(body):08x}".encode() + _MIDDLE + body + _CLOSING


def read_snapshot(name: str, data: bytes, generation: int) -> Snapshot:
    """What is in a snapshot's bytes; `Damaged` if they are not whole, `InvalidState` if they are of a newer version.

    >>> read_snapshot("snapshot-00000007.json", snapshot_bytes(7, {"hinge_state": 1}), 7)
    Snapshot(state={'hinge_state': 1}, began=None, past=())
    """
    body = data[_START : -len(_CLOSING)]
    if data != _OPENING + f"{zlib.crc32(body):08x}".encode() + _MIDDLE + body + _CLOSING:
        raise Damaged("does not match its CRC")
    try:
        content: dict[str, Any] = json.loads(body)
        version, state = content["hinge_snapshot"], content["state"]
        newer = version > VERSION or state["hinge_state"] > STATE_VERSION
        held, began, past = content["generation"], content.get("began"), read_past(content.get("past", ()))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise Damaged(f"holds no state: {error!r}") from error
    if newer:
        wanted = f"this Hinge reads snapshots up to {VERSION} and states up to {STATE_VERSION}"
        raise InvalidState(f"{name}: is of version {version}, its state of {state['hinge_state']}; {wanted}")
    if held != generation:
        raise Damaged(f"is of generation {held!r}")
    return Snapshot(dict(state), began, past)
