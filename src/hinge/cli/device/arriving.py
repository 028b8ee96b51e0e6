"""Whether a remote can answer at all: found out at the start, or when one that was away has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hinge.cli import show
from hinge.device.status import Status
from hinge.errors import RemoteFailed, RemoteInvalid

_AWAY = ("unreachable", "late")
_MISFIT = ("invalid", "refused")  # what a server that is there says to a device that it does not fit


@dataclass(frozen=True)
class Fit:
    """What a remote must have: the model, room for such samples, and as many classes as the local one."""

    remote: Any
    url: str
    example: Any
    classes: int | None  # None: nobody knows

    def check(self) -> None:
        """Raise `RemoteFailed`, in words that begin with where the remote is."""
        try:
            classes = self.remote.check(self.example)
            if None not in (classes, self.classes) and classes != self.classes:
                found = f"model {self.remote.model!r} has {classes} classes, the local model {self.classes}"
                raise RemoteInvalid(found)
        except RemoteFailed as error:
            named = str(error).startswith((self.url.rstrip("/"), urlsplit(self.url).netloc))
            raise type(error)(str(error) if named else f"{self.url}: {error}") from error


class Arrival:
    """A remote that may be away, and is checked when it comes as it would have been at the start."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._here = False  # and was found to fit
        self._seen = 0  # replies of it, of whatever kind, when it was checked last

    def begin(self) -> None:
        """Refuse a remote that could never answer; one that is away may come, and is only mentioned."""
        try:
            self._fit.check()
            self._here = True
        except RemoteFailed as error:
            if error.kind not in _AWAY:
                raise
            show.warn(f"{error}; answering locally until it comes")

    @property
    def is_awaited(self) -> bool:
        """Whether the remote is still to be checked."""
        return not self._here

    def look(self, status: Status) -> None:
        """Check the remote, if something has been seen of it since the last time."""
        seen = status.answered_by_remote + sum(status.fell_back.get(kind, 0) for kind in _MISFIT)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._fit.check()
            self._here = True
        except RemoteFailed as error:
            if error.kind == "invalid":
                raise
