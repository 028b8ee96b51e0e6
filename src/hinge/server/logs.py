"""Logs for programs: one JSON object per line."""

import json
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
MAX_TEXT = 200  # characters of what a client sent


def printable(text: str) -> str:
    """What a client sent, as far as it may stand in a log: neither long nor able to move a terminal's cursor.

    >>> printable("/v2\\x1b[2J")
    '/v2?[2J'
    """
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_TEXT])


class Log:
    """Writes events at or above a level, each as one line.

    >>> Log("info", sys.stdout).write("info", "loaded", model="fashion")  # doctest: +ELLIPSIS
    {"time": "...Z", "level": "info", "event": "loaded", "model": "fashion"}
    """

    def __init__(self, level: str, file: TextIO | None = None) -> None:
        if level not in LEVELS:
            raise ValueError(f"log level must be one of {', '.join(LEVELS)}, got {level!r}")
        self._lowest = LEVELS.index(level)
        self._file = file

    def writes(self, level: str) -> bool:
        """Whether events of that level are written."""
        return LEVELS.index(level) >= self._lowest

    def write(self, level: str, event: str, **fields: object) -> None:
        """Write an event, if its level is high enough."""
        if not self.writes(level):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": now, "level": level, "event": event, **fields})
        file = self._file or sys.stderr
        with suppress(OSError, ValueError):  # requests are answered even where nobody reads the log any more
            file.write(line + "\n")  # at once, so that lines of several threads do not mix
            file.flush()
