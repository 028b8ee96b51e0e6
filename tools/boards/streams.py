"""The C and its twin: how to build the one as the other, and the samples of `stream.c`, decided by a twin."""

from collections.abc import Callable
from typing import Any

from hinge.embedded.twin import COST_UNIT, Twin

_WORD = 0xFFFFFFFF


def modes_of(twin: Twin) -> tuple[str, ...]:
    """What `hinge.h` has to be told to be the twin of this."""
    monotone = ("HINGE_MONOTONE",) if twin.table.monotone else ()
    return (*monotone, *(("HINGE_LEARNED_COST",) if twin.offload_cost is None else ()))


def hashes(twin: Twin, samples: int) -> list[int]:
    """What `stream.c` prints: a hash of the decisions, and one of all that was learned besides."""
    found = decisions_hash(twin.table, twin.functions.offloads, twin.functions.learns, samples)
    return [found, evidence_hash(twin.table, found)]


def decisions_hash(table: Any, offloads: Callable[..., bool], learns: Callable[..., None], samples: int) -> int:
    """A hash of the decisions on the first samples."""
    found, draw, bins = 2166136261, 2463534242, len(table.expiry)
    for time in range(1, samples + 1):
        draw ^= (draw << 13) & _WORD
        draw ^= draw >> 17
        draw ^= (draw << 5) & _WORD
        bin = (((draw | draw >> 8) & 0xFF) * bins) >> 8
        offload = offloads(table, bin, time)
        found = mixed(found, int(offload))
        if offload:
            agreed = (draw >> 16) * bins < (bin + 1) << 16
            cost = 18022 if draw & 0x1000 else 14746
            learns(table, bin, 1.0 if agreed else 0.0, cost / COST_UNIT, time, time)
    return found


def evidence_hash(table: Any, found: int) -> int:
    """The hash with the table mixed in."""
    for expiry, offloads, agreements in zip(table.expiry, table.offloads, table.agreements, strict=True):
        for value in (expiry, offloads, agreements):
            found = mixed(found, value)
    return found


def mixed(found: int, value: int) -> int:
    """One step of FNV-1a, by words."""
    return ((found ^ value) * 16777619) & _WORD
