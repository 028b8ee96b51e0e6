"""Ending a run from outside: between two samples, never within one, so that what was decided is also written down."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Stopping:
    """Notes Ctrl-C and a request to terminate while its block runs; `stopped_by` is the signal, if one came.

    >>> with Stopping() as stopping:
    ...     for number in stopping.until_stopped(range(10)):
    ...         if number == 2:
    ...             signal.raise_signal(signal.SIGINT)
    >>> number, stopping.stopped_by
    (2, 2)
    """

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        self._waiting = False
        self._before: dict[int, Any] = {}

    def until_stopped(self, items: Iterable[T]) -> Iterator[T]:
        """The items until a signal comes, which also ends the wait for the next."""
        source = iter(items)
        try:
            while True:
                self._waiting = True
                if self.stopped_by is not None:
                    return
                item = next(source)
                self._waiting = False
                yield item
        except (StopIteration, KeyboardInterrupt):
            return
        finally:
            self._waiting = False

    def __enter__(self) -> Stopping:
        self._before = {kind: signal.signal(kind, self._stop) for kind in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for kind, handler in self._before.items():
            signal.signal(kind, handler)

    def _stop(self, kind: int, frame: FrameType | None) -> None:
        again, self.stopped_by = self.stopped_by is not None, kind
        if self._waiting or again:  # whoever asks twice will not wait
            self._waiting = False
            raise KeyboardInterrupt
