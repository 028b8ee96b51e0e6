"""The contract of a remote: a deadline, a reply, and what asks for one by the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hinge.errors import RemoteError, RemoteFailed, RemoteLate, RemoteUnreachable


class Deadline(NamedTuple):
    """The instant by which an offload must have an answer, in seconds of `time.monotonic`.

    One instant for the whole offload, from connecting to the last byte: a timeout per step would start anew with each
    step, and a remote that sends one byte at a time would never be late.

    >>> deadline = Deadline.after(0.5, now=100.0)
    >>> deadline.left(now=100.125), deadline.left(now=103.0)
    (0.375, 0.0)
    """

    end_s: float

    @classmethod
    def after(cls, deadline_s: float, now: float | None = None) -> Deadline:
        """The instant `deadline_s` from now."""
        return cls((time.monotonic() if now is None else now) + deadline_s)

    def left(self, now: float | None = None) -> float:
        """Seconds until the deadline; 0 once it has expired."""
        return max(0.0, self.end_s - (time.monotonic() if now is None else now))

    def split(self, part: float, now: float | None = None) -> Deadline:
        """A deadline for one step that may take this part of the time left, so that later steps have theirs.

        >>> Deadline(end_s=8.0).split(0.5, now=4.0)
        Deadline(end_s=6.0)
        """
        start = time.monotonic() if now is None else now
        return Deadline(min(self.end_s, start + part * self.left(start)))  # rounding must not extend the whole


class Reply(NamedTuple):
    """The remote's labels, one for each sample, and how many bytes went over the network for them.

    `cost` is what each sample has cost, from 0 to 1, for a remote that knows it; else the device's price says. Nothing
    is learned from labels that are not to be compared with the local ones.
    """

    labels: Sequence[Any]
    bytes: int = 0
    cost: float | None = None
    compared: bool = True


@runtime_checkable
class Remote(Protocol):
    """A remote for `Device`: called from several threads at once."""

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, in their order; raises one of the failures in `hinge.errors`."""

    def close(self) -> None:
        """Release connections; the device calls it once, when it is closed."""


@runtime_checkable
class AsyncRemote(Protocol):
    """A remote for `AsyncDevice`: cancelled at the deadline."""

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, in their order; raises one of the failures in `hinge.errors`."""

    async def close_async(self) -> None:
        """Release connections; the device calls it once, when it is closed."""


def failure_of(error: BaseException) -> RemoteFailed:
    """An exception of a remote as one of the failures that a device knows.

    >>> failure_of(ConnectionError("unplugged"))
    RemoteUnreachable('ConnectionError: unplugged')
    """
    if isinstance(error, RemoteFailed):
        return error
    kinds = {TimeoutError: RemoteLate, OSError: RemoteUnreachable}
    failure = next((found for kind, found in kinds.items() if isinstance(error, kind)), RemoteError)
    return failure(f"{type(error).__name__}: {error}")
