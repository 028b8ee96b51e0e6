"""What happened to a policy since its last snapshot: an append-only log of fixed-size records, each with a CRC.

    header   magic, version, size of a record, generation, CRC                                    28 bytes
    record   kind, offload, bin, decision's time, clock, agreed, cost, its number, CRC            48 bytes

A record's CRC starts from that of the header and covers the record's number, so that bytes from another journal, or
from another place in this one, are as bad as any other damage. Nothing is used beyond the first bad record.
"""

import math
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from hinge.device.storage.disk import Disk
from hinge.errors import InvalidState

VERSION = 1
MAGIC = b"HINGEJNL"
DECIDED, LEARNED, CLOCK, FORGOTTEN = 1, 2, 3, 4  # decided; feedback learned; samples accepted; no feedback will come

_HEADER = struct.Struct("<8sHHIQ")
_RECORD = struct.Struct("<BBxxIQQddI")
_CRC = struct.Struct("<I")
HEADER_SIZE, RECORD_SIZE = _HEADER.size + _CRC.size, _RECORD.size + _CRC.size


class Record(NamedTuple):
    """One thing that changed a policy; `clock` is the policy's time when it did."""

    kind: int
    offload: bool
    bin: int
    time: int
    clock: int
    agreed: float | None
    cost: float | None


class Contents(NamedTuple):
    """What a journal holds up to its first bad byte."""

    records: list[Record]
    trouble: str | None  # what is wrong with the rest, in words
    damaged: bool  # whether that is more than an end cut short by a crash


def header(generation: int) -> bytes:
    """How the journal of a generation begins.

    >>> len(header(7)) == HEADER_SIZE
    True
    """
    begin = _HEADER.pack(MAGIC, VERSION, RECORD_SIZE, 0, generation)
    return begin + _CRC.pack(zlib.crc32(begin))


class Journal:
    """A journal that is written."""

    def __init__(self, disk: Disk, path: Path, generation: int) -> None:
        self._disk, self.path = disk, path
        self._seed = zlib.crc32(header(generation))
        self._count = 0
        self._handle = disk.open(path)

    def begin(self, generation: int) -> None:
        """Write and sync the header of a new file."""
        self._disk.write(self._handle, header(generation))
        self.sync()

    def append(
        self, kind: int, offload: bool, bin: int, time: int, clock: int, agreed: float | None, cost: float | None
    ) -> None:
        """Write one record, unsynced; raises `OSError`, after which the journal must not be written any more."""
        told = math.nan if agreed is None else agreed
        paid = math.nan if cost is None else cost
        body = _RECORD.pack(kind, offload, bin, time, clock, told, paid, self._count)
        self._disk.write(self._handle, body + _CRC.pack(zlib.crc32(body, self._seed)))
        self._count += 1

    def sync(self) -> None:
        self._disk.sync(self._handle)

    def close(self) -> None:
        self._disk.close(self._handle)


def read_journal(name: str, data: bytes, generation: int) -> Contents:
    """The records in a journal's bytes, up to the first bad one.

    >>> read_journal("journal-00000007.log", header(7) + bytes(5), 7).trouble
    'ends in 5 bytes of an unfinished record'
    >>> read_journal("journal-00000007.log", header(8), 7).trouble
    'has a damaged header'
    """
    begin = data[:HEADER_SIZE]
    if len(begin) < HEADER_SIZE or zlib.crc32(begin[:-4]) != _CRC.unpack(begin[-4:])[0] or begin[:8] != MAGIC:
        return Contents([], "has a damaged header", True)
    version = _HEADER.unpack(begin[:-4])[1]
    if version > VERSION:
        raise InvalidState(f"{name}: is of version {version}; this Hinge reads up to {VERSION}")
    if begin != header(generation):
        return Contents([], "has a damaged header", True)
    seed, records = zlib.crc32(begin), list[Record]()
    whole = (len(data) - HEADER_SIZE) // RECORD_SIZE
    for number in range(whole):
        record = _record(data, number, seed)
        if record is None:
            later = sum(_record(data, after, seed) is not None for after in range(number + 1, whole))
            trouble = f"is damaged at record {number}; {later} whole records after it were not used"
            return Contents(records, trouble, True)
        records.append(record)
    rest = (len(data) - HEADER_SIZE) % RECORD_SIZE
    return Contents(records, f"ends in {rest} bytes of an unfinished record" if rest else None, False)


def _record(data: bytes, number: int, seed: int) -> Record | None:
    start = HEADER_SIZE + number * RECORD_SIZE
    body, crc = data[start : start + _RECORD.size], data[start + _RECORD.size : start + RECORD_SIZE]
    if zlib.crc32(body, seed) != _CRC.unpack(crc)[0]:
        return None
    kind, offload, bin, time, clock, agreed, cost, written_as = _RECORD.unpack(body)
    if written_as != number or kind not in (DECIDED, LEARNED, CLOCK, FORGOTTEN):
        return None
    told = None if math.isnan(agreed) else agreed
    return Record(kind, bool(offload), bin, time, clock, told, None if math.isnan(cost) else cost)
