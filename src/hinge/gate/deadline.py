"""When an answer must be there: one instant for the whole of an offload, from connecting to the last byte.

A timeout for each step starts anew with each of them, so their sum is anyone's guess, and a remote that sends a byte
now and then is never late. An instant is handed from step to step, and each asks what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from hinge.arguments import positive, real


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant, in seconds of the clock that `now` comes from (`time.monotonic`).

    >>> deadline = Deadline.after(0.5, now=100.0)
    >>> deadline.left(now=100.125), deadline.expired(now=100.125)
    (0.375, False)
    >>> deadline.left(now=103.0), deadline.expired(now=103.0)
    (0.0, True)
    """

    end_s: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "end_s", real("Deadline", "end_s", self.end_s))

    @classmethod
    def after(cls, deadline_s: float, now: float) -> Deadline:
        """The instant `deadline_s` from now."""
        return cls(real("Deadline", "now", now) + positive("Deadline", "deadline_s", deadline_s))

    def left(self, now: float) -> float:
        """Seconds until then; 0 from then on, which is when it has expired."""
        return max(0.0, self.end_s - real("Deadline", "now", now))

    def expired(self, now: float) -> bool:
        """Whether the instant has come."""
        return self.left(now) == 0.0

    def share(self, part: float, now: float) -> Deadline:
        """A deadline for one step, which may take this part of what is left, so that the next have their time too.

        >>> Deadline(end_s=8.0).share(0.5, now=4.0)
        Deadline(end_s=6.0)
        """
        part = real("Deadline", "part", part, 0, 1)
        return Deadline(min(self.end_s, now + part * self.left(now)))  # rounding must not end it after the whole
