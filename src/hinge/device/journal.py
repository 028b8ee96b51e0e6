"""Reads state folders of Hinge 0.1, so that they open once and are converted; nothing here writes.

Such a folder holds generations of two files: `snapshot-NNNNNNNN.json`, a policy's state in an envelope with a CRC, and
`journal-NNNNNNNN.log`, what happened after it: a header and records of fixed size, each with a CRC.

The records are applied to the snapshot as they are. Where this version of a policy decides otherwise than was decided,
the recorded decision counts: what was learned from it is never dropped.
"""

import json
import math
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hinge.errors import HingeError, InvalidDecision, InvalidState, UnknownName
from hinge.policies.policy import STATE_VERSION, Decision, Policy, State, restore

NEWEST = 1  # the only version of snapshots and journals that was ever written
_NAME = re.compile(r"snapshot-(\d{8,})\.json")
_OPENING, _MIDDLE, _CLOSING = b'{"crc32":"', b'","content":', b"}\n"
_BODY = len(_OPENING) + 8 + len(_MIDDLE)
_MAGIC = b"HINGEJNL"
_HEADER = struct.Struct("<8sHHIQ")  # magic, version, size of a record, nothing, generation
_RECORD = struct.Struct("<BBxxIQQddI")  # kind, offload, bin, decision's time, clock, agreed, cost, its number
_CRC = struct.Struct("<I")
_DECIDED, _LEARNED, _CLOCK, _FORGOTTEN = 1, 2, 3, 4


class NewerVersion(InvalidState):
    """Written by a later version of Hinge: refused, and left alone."""


class _Record(NamedTuple):
    kind: int
    offload: bool
    bin: int
    time: int
    clock: int
    agreed: float | None
    cost: float | None


def old_files(folder: Path) -> list[Path]:
    """The files of the old form in a folder."""
    return sorted([*folder.glob("snapshot-*.json"), *folder.glob("journal-*.log")])


def read_old(folder: Path) -> tuple[State | None, list[str]]:
    """The newest state that is whole, after its journal, and a sentence for everything that was not as it should be."""
    notes: list[str] = []
    matches = [match for path in folder.glob("snapshot-*.json") if (match := _NAME.fullmatch(path.name))]
    for generation in sorted((int(match[1]) for match in matches), reverse=True):
        name = f"snapshot-{generation:08d}.json"
        try:
            policy = restore(read_snapshot(name, (folder / name).read_bytes()))
        except UnknownName as error:
            raise InvalidState(f"{folder / name}: {error}; import the module that defines it first") from error
        except NewerVersion:
            raise
        except (HingeError, TypeError, ValueError, ArithmeticError, LookupError, OSError) as error:
            notes.append(f"{name} {error}: what it held and what followed it is lost.")
            continue
        path = folder / f"journal-{generation:08d}.log"
        with suppress(FileNotFoundError):
            policy = _followed(policy, path, generation, notes)
        return policy.state(), notes
    return None, notes


def read_snapshot(name: str, data: bytes) -> State:
    """The state in a snapshot's bytes; `ValueError` if they are damaged, `InvalidState` if of a newer version."""
    body = data[_BODY : -len(_CLOSING)]
    if data != _OPENING + f"{zlib.crc32(body):08x}".encode() + _MIDDLE + body + _CLOSING:
        raise ValueError("does not match its CRC")
    try:
        content: dict[str, Any] = json.loads(body)
        version, state = content["hinge_snapshot"], content["state"]
        newer = version > NEWEST or state["hinge_state"] > STATE_VERSION
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"holds no state: {error!r}") from error
    if newer:
        raise NewerVersion(f"{name}: is of a newer version than this Hinge reads; it was left alone")
    return dict(state)


def read_journal(name: str, data: bytes, generation: int) -> Iterator[_Record]:
    """The records of a journal, up to the first bad one; `ValueError` there, unless the journal is just cut short."""
    begin = data[: _HEADER.size + _CRC.size]
    if len(begin) < _HEADER.size + _CRC.size or zlib.crc32(begin[:-4]) != _CRC.unpack(begin[-4:])[0]:
        raise ValueError("has a damaged header")
    magic, version, size, _, held = _HEADER.unpack(begin[:-4])
    if magic == _MAGIC and version > NEWEST:
        raise NewerVersion(f"{name}: is of version {version}; this Hinge reads up to {NEWEST}, and left it alone")
    if (magic, size, held) != (_MAGIC, _RECORD.size + _CRC.size, generation):
        raise ValueError("has a damaged header")
    seed = zlib.crc32(begin)
    for number in range((len(data) - len(begin)) // size):
        start = len(begin) + number * size
        body, crc = data[start : start + _RECORD.size], data[start + _RECORD.size : start + size]
        kind, offload, bin, time, clock, agreed, cost, written_as = _RECORD.unpack(body)
        if zlib.crc32(body, seed) != _CRC.unpack(crc)[0] or written_as != number or not _DECIDED <= kind <= _FORGOTTEN:
            raise ValueError(f"is damaged at record {number}")
        told = None if math.isnan(agreed) else agreed
        yield _Record(kind, bool(offload), bin, time, clock, told, None if math.isnan(cost) else cost)


def _followed(policy: Policy, path: Path, generation: int, notes: list[str]) -> Policy:
    """The policy after the records of its journal, as far as they are good."""
    try:
        for record in read_journal(path.name, path.read_bytes(), generation):
            policy = apply(policy, record)
    except NewerVersion:
        raise
    except (HingeError, TypeError, ValueError, ArithmeticError) as error:
        notes.append(f"{path.name} {error}: what was learned from there on is lost.")
    return policy


def apply(policy: Policy, record: _Record) -> Policy:
    """The policy after one record: the same object, unless it decides otherwise now."""
    if record.kind == _DECIDED:
        policy.time = max(policy.time, record.time - 1)
        decision = policy.decide(record.bin)
        if record.offload and not decision.offload:
            return _awaiting(policy, record)
        if decision.offload and not record.offload:
            policy.forget(decision)
        return policy
    policy.time = max(policy.time, record.clock)
    decided = Decision(record.offload, record.bin, record.time, policy.id)
    if record.kind == _FORGOTTEN:
        with suppress(InvalidDecision):
            policy.forget(decided)
    elif record.kind == _LEARNED:
        try:
            policy.learn(decided, record.agreed, record.cost)
        except InvalidDecision:
            policy = _awaiting(policy, record)
            policy.learn(decided, record.agreed, record.cost)
    return policy


def _awaiting(policy: Policy, record: _Record) -> Policy:
    """The policy, with the recorded decision waiting for feedback."""
    state = policy.state()
    waiting = [each for each in state["pending"] if each[0] != record.time]
    return restore({**state, "pending": [*waiting, [record.time, record.bin, record.offload]]})
