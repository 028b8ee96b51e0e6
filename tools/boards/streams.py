"""The C and its twin: how to build the one as the other, and the samples of `stream.c`, decided by it."""

import struct
from typing import Any

from hinge.embedded.twin import COST_UNIT, SentinelTwin, Twin
from hinge.policies.policy import Functions

_WORD = 0xFFFFFFFF


def modes_of(twin: Twin) -> tuple[str, ...]:
    """What `hinge.h` has to be told to be the twin of this."""
    if isinstance(twin, SentinelTwin):
        return ("HINGE_SENTINEL",)
    monotone = ("HINGE_MONOTONE",) if twin.table.monotone else ()
    return (*monotone, *(("HINGE_LEARNED_COST",) if twin.offload_cost is None else ()))


def hashes(twin: Twin, samples: int) -> list[int]:
    """What `stream.c` prints: a hash of the decisions, and one of all that was learned besides."""
    found = decisions_hash(twin.table, twin.functions, samples)
    return [found, evidence_hash(twin, found)]


def decisions_hash(table: Any, functions: Functions, samples: int) -> int:
    """A hash of the decisions on the first samples."""
    found, draw, bins = 2166136261, 2463534242, len(table.offloads)
    for time in range(1, samples + 1):
        draw ^= (draw << 13) & _WORD
        draw ^= draw >> 17
        draw ^= (draw << 5) & _WORD
        bin = (((draw | draw >> 8) & 0xFF) * bins) >> 8
        offload = functions.offloads(table, bin, time)
        found = mixed(found, int(offload))
        if offload:
            functions.notes(table, bin, time)
            agreed = (draw >> 16) * bins < (bin + 1) << (16 - (time >> 12 & 1))
            cost = 18022 if draw & 0x1000 else 14746
            functions.learns(table, bin, 1.0 if agreed else 0.0, cost / COST_UNIT, time, time)
        else:
            functions.accepts(table, bin, time)
    return found


def evidence_hash(twin: Twin, found: int) -> int:
    """The hash with the table mixed in."""
    table = twin.table
    if isinstance(twin, SentinelTwin):
        columns = [table.left, table.granted, table.arrivals, map(int, table.offloads), map(int, table.agreements)]
        for column in (table.evidence, table.suspicion, table.rising):
            columns += zip(*(struct.unpack("<2I", struct.pack("<d", value)) for value in column), strict=True)
    else:
        columns = [table.expiry, table.offloads, table.agreements]
    for row in zip(*columns, strict=True):
        for value in row:
            found = mixed(found, value)
    return found


def mixed(found: int, value: int) -> int:
    """One step of FNV-1a, by words."""
    return ((found ^ value) * 16777619) & _WORD
