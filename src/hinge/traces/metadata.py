"""A trace's name and provenance as one JSON text, for the formats that can hold one."""

import json
from collections.abc import Sequence
from typing import Any

from hinge.errors import InvalidTrace
from hinge.traces.trace import Table, Trace, trace_from_table


def packed(trace: Trace) -> str:
    """Name and provenance, as JSON.

    >>> packed(Trace([0.5], [1], [2], name="log", about={"date": "2026-01-31"}))
    '{"name": "log", "about": {"date": "2026-01-31"}}'
    """
    return json.dumps({"name": trace.name, "about": dict(trace.about)})


def trace_in_file(where: str, names: Sequence[str], table: Table, metadata: str | None, otherwise: str) -> Trace:
    """The trace that a file holds; it is called `otherwise` if the file has no metadata, as one made elsewhere."""
    more = {"name": otherwise} if metadata is None else _unpacked(where, metadata)
    try:
        return trace_from_table(where, names, table, **more)
    except (TypeError, ValueError) as error:
        named = str(error).startswith(where)
        raise InvalidTrace(str(error) if named else f"{where}: {error}") from error


def _unpacked(where: str, metadata: str) -> dict[str, Any]:
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        raise InvalidTrace(f"{where}: the metadata is not JSON") from None
    if not isinstance(found, dict) or found.keys() != {"name", "about"}:
        raise InvalidTrace(f"{where}: the metadata must have 'name' and 'about', nothing else")
    return found
