"""The circuit breaker: it stops asking a failing remote, and finds out soon when it is back.

    closed    attempts are made; `failures` of them failed in a row open the breaker
    open      none is made, until `interval_s` after the last one began; then the next sample is the probe
    probing   the probe is in flight, and nothing else; success closes the breaker, failure leaves it open

Slow failures need another rule: a hanging remote would receive many requests before the first times out. So once an
attempt has failed, no more than `failures` may have begun since the last success. Hence, however long a failure takes,
an outage costs `failures` attempts, or as many as were in flight when the first failed if those are more, and one more
per `interval_s` from then on: 10 in 60 s, with the defaults. Once the remote is back and the breaker open, the first
sample that comes `interval_s` later, if none before, is answered by it. Outcomes count in the order in which they come.
An attempt without outcome counts as failed after `interval_s`; a deadline for attempts should therefore be shorter.

An attempt may be *brief*: its caller is in a hurry, or it has waited long for its turn, and so little of its time is
left that the best of remotes may be late. A brief attempt that timed out is released, as if it had not been made, for
`interval_s` from the first of them since a success: a remote that is away must not be asked for ever because all are in
a hurry.

The breaker has no clock. `now` is in seconds, from one that never goes back (`time.monotonic`), and is not checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import RLock
from typing import Literal, NamedTuple

from hinge._checks import positive, whole


@dataclass(frozen=True, eq=False, slots=True)  # each is equal to itself alone, so that no breaker takes another's
class Attempt:
    """Permission to ask the remote once, to be handed back with the outcome."""

    number: int
    began: float
    probe: bool
    brief: bool  # with so little time that to time out says nothing of the remote
    epoch: int  # how often the breaker had opened and closed: an outcome from an earlier epoch moves nothing


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of all attempts so far: `attempts` is the sum of the five that follow it."""

    attempts: int
    succeeded: int
    failed: int
    unanswered: int  # given up, as no outcome came within `interval_s`
    released: int  # not made after all, refused, or brief and timed out
    under_way: int
    refused: int  # asked for, and not allowed
    late: int  # outcomes of attempts that had one, or were given up: ignored
    opened: int  # how often the breaker opened


class Situation(NamedTuple):
    """A breaker at one instant; as text, one sentence. Cheap to make: during an outage every offload has one."""

    state: Literal["closed", "open", "probing"]
    failures: int  # the breaker's parameter
    failed: int  # in a row
    admits: bool  # whether an attempt would be admitted now
    seconds: float  # until the next probe, if open; since the probe began, if probing
    name: str  # of whom the breaker watches

    def __str__(self) -> str:
        times = "once" if self.failed == 1 else f"{self.failed} times"
        if self.state == "closed" and not self.admits:
            return f"The {self.name} has failed {times} in a row; the next sample waits for what is in flight."
        if self.state == "closed" and not self.failed:
            return f"The {self.name} may be asked; no attempt has failed since it last answered."
        if self.state == "closed":
            left = f"it has failed {times} in a row and is left alone after {self.failures}"
            return f"The {self.name} may be asked; {left}."
        if self.admits:
            return f"The {self.name} has failed {times}; the next sample tries it."
        if self.state == "probing":
            return f"The {self.name} has failed {times}; a try is under way since {self.seconds:.1f} s."
        return f"The {self.name} has failed {times}; next try in {self.seconds:.1f} s."


class Breaker:
    """Decides whether the remote may be asked, from how the last attempts went. Thread-safe.

    `name`: who is asked, in words.

    >>> breaker = Breaker(failures=5, interval_s=10)
    >>> for second in range(5):
    ...     attempt = breaker.begin(now=second)        # None: do not ask the remote
    ...     breaker.failed(attempt, now=second + 0.2)
    >>> breaker.state, breaker.begin(now=10.8)
    ('open', None)
    >>> str(breaker.situation(now=10.8))
    'The remote has failed 5 times; next try in 3.2 s.'
    >>> probe = breaker.begin(now=14)
    >>> breaker.state, breaker.begin(now=14)
    ('probing', None)
    >>> breaker.succeeded(probe, now=14.1)
    >>> breaker.state, breaker.counts.attempts, breaker.counts.refused
    ('closed', 6, 2)
    """

    def __init__(self, failures: int = 5, interval_s: float = 10.0, name: str = "remote") -> None:
        self.failures = whole("Breaker", "failures", failures, 1)
        self.interval_s = positive("Breaker", "interval_s", interval_s)
        self._name = name
        self._counted = dict.fromkeys(Counts.__slots__, 0)
        self._lock = RLock()  # a signal handler may ask, too
        self._under_way: dict[Attempt, None] = {}  # in the order they began, which is that of giving them up
        self._epoch = 0
        self.opened_at: float | None = None  # whatever probes have failed since; None while closed
        self._probe: Attempt | None = None
        self._last_began = -math.inf
        self._next_probe = math.inf
        self._hurried_since: float | None = None  # when a brief attempt first timed out since the last success
        self.failed_in_a_row = 0  # attempts, since the last success
        self._since = self._last_before = 0  # attempts begun since then, without those released; the last before it

    def refuse(self, now: float) -> Situation | None:
        """Count a refusal and return why, if the breaker is open and no probe is due; else return None.

        The fast path while the breaker is open: quicker than to prepare for an attempt, and be refused by `begin`.
        """
        with self._lock:
            if self.opened_at is None or now >= self._next_probe:
                return None
            self._counted["refused"] += 1
            return self._situation(now)

    def begin(self, now: float, brief: bool = False) -> Attempt | None:
        """Permission to ask the remote, or None.

        Report the outcome by `succeeded`, `failed`, `timed_out` or `released`. `brief`: it has little time.
        """
        with self._lock:
            self._give_up(now)
            if not self._admits(now):
                self._counted["refused"] += 1
                return None
            self._counted["attempts"] += 1
            attempt = Attempt(self._counted["attempts"], now, self.opened_at is not None, brief, self._epoch)
            self._under_way[attempt] = None
            self._last_began = max(self._last_began, now)  # threads may come in with their times out of order
            self._since += 1
            if attempt.probe:
                self._probe, self._next_probe = attempt, now + self.interval_s
            return attempt

    def succeeded(self, attempt: Attempt, now: float) -> None:
        """The remote answered, and in time."""
        with self._lock:
            if self._ends(attempt, now, "succeeded"):
                if attempt.probe:
                    self.opened_at, self._probe, self._epoch = None, None, self._epoch + 1
                self.failed_in_a_row, self._hurried_since = 0, None
                self._since, self._last_before = 0, self._counted["attempts"]

    def failed(self, attempt: Attempt, now: float) -> None:
        """The remote did not answer, or not in time, or nothing that can be used."""
        with self._lock:
            if self._ends(attempt, now, "failed"):
                self._fail(attempt, now)

    def timed_out(self, attempt: Attempt, now: float) -> None:
        """The remote did not answer in time: a failure, unless the attempt was brief."""
        if not attempt.brief or attempt.probe:
            self.failed(attempt, now)
            return
        with self._lock:
            since = now if self._hurried_since is None else self._hurried_since
            excused = now < since + self.interval_s
            if self._ends(attempt, now, "released" if excused else "failed"):
                self._hurried_since = since
                (self._release if excused else self._fail)(attempt, now)

    def released(self, attempt: Attempt, now: float) -> None:
        """Free the place of an attempt that tells nothing of the remote; another sample may take it."""
        with self._lock:
            if self._ends(attempt, now, "released"):
                self._release(attempt, now)

    @property
    def state(self) -> Literal["closed", "open", "probing"]:
        """Whether it is closed, open or probing, as of the last attempt begun or reported."""
        with self._lock:
            return self._state

    @property
    def _state(self) -> Literal["closed", "open", "probing"]:
        if self.opened_at is None:
            return "closed"
        return "open" if self._probe is None else "probing"

    @property
    def counts(self) -> Counts:
        """What became of all attempts, at one instant."""
        with self._lock:
            return Counts(**(self._counted | {"under_way": len(self._under_way)}))

    def situation(self, now: float) -> Situation:
        """How things stand; as text, in one sentence."""
        with self._lock:
            return self._situation(now)

    def _situation(self, now: float) -> Situation:
        state, admits, seconds = self._state, self._admits(now), 0.0
        if self._probe is not None:
            seconds, admits = now - self._probe.began, now >= self._next_probe  # begin() then gives the probe up
        elif state == "open":
            seconds = self._next_probe - now
        return Situation(state, self.failures, self.failed_in_a_row, admits, max(0.0, seconds), self._name)

    def _admits(self, now: float) -> bool:
        if self.opened_at is not None:
            return self._probe is None and now >= self._next_probe
        return self.failed_in_a_row == 0 or self._since < self.failures

    def _ends(self, attempt: Attempt, now: float, outcome: str) -> bool:
        """Count the outcome, if it is the attempt's first; say whether it may move the breaker."""
        self._give_up(now)
        if attempt not in self._under_way:
            self._counted["late"] += 1
            return False
        del self._under_way[attempt]
        self._counted[outcome] += 1
        return attempt.epoch == self._epoch

    def _give_up(self, now: float) -> None:
        while self._under_way:
            oldest = next(iter(self._under_way))
            if now < oldest.began + self.interval_s:
                return
            del self._under_way[oldest]
            self._counted["unanswered"] += 1
            if oldest.epoch == self._epoch:
                self._fail(oldest, now)

    def _release(self, attempt: Attempt, now: float) -> None:
        if attempt.probe:
            self._probe, self._next_probe = None, attempt.began
        self._since -= attempt.number > self._last_before

    def _fail(self, attempt: Attempt, now: float) -> None:
        self.failed_in_a_row += 1
        if attempt.probe:
            self._probe = None  # when the next is due was settled when this one began
        elif self.failed_in_a_row >= self.failures:
            self.opened_at, self._epoch = now, self._epoch + 1
            self._next_probe = self._last_began + self.interval_s  # not from now: it may have been back since
            self._counted["opened"] += 1
