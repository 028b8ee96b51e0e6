"""What keeps a failing remote from being asked too often: a circuit breaker, and a budget for retries.

**The breaker** stops asking a failing remote, and finds out soon when it is back.

    closed    attempts are made; `failures` of them failed in a row open the breaker
    open      none is made, until `interval_s` after the last one began; then the next sample is the probe
    probing   the probe is in flight, and nothing else; success closes the breaker, failure leaves it open

Failures that take their time need one more rule, or a remote that swallows requests would be sent many before the
first of them has failed. So attempts are made on trust: since the last success no more than `at_once` may have begun,
nor more than `failures` once one has failed. Hence, however long a failure takes, an outage costs no more than

    max(failures, at_once)  attempts to notice, and one more per `interval_s` from then on,

that is, with the defaults, 10 in 60 s. Once the remote is back and the breaker open, the first sample that comes
`interval_s` later, if none before, is answered by it. Outcomes count in the order in which they come. An attempt
without outcome counts as failed after `interval_s`; a deadline for attempts should therefore be shorter.

An attempt may be *brief*: its caller is in a hurry, or it has waited long for its turn, and so little of its time is
left that the best of remotes may be late. A brief attempt that timed out is released, as if it had not been made, with
two limits. Where nothing was answered for `interval_s` since the first of them, they count as failures, too: a remote
that is away must not be asked for ever because all are in a hurry. And an open breaker lets one brief probe pass in
`interval_s`; if that times out, the next attempt that is not brief is a probe at once.

**The retry budget** is a token bucket, filled by attempts and not by time: every first attempt pays `share` of a token
in, every retry takes one out, and the bucket holds `reserve` tokens, with which it starts. Hence in any stretch of time

    retries <= share × first attempts + reserve

and what was saved up longer ago than the last `reserve / share` attempts (50, with the defaults) counts for nothing.

Neither has a clock. `now` is in seconds, from one that never goes back (`time.monotonic`), and is not checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import RLock
from typing import Literal, NamedTuple

from hinge._checks import positive, real, whole

_new = tuple.__new__  # makes a Situation in half the time of Situation(…), for every offload of an outage
_TOKEN = 1_000_000  # tokens are counted in millionths: ten times 0.1 is less than 1 in floats


class RetryBudget:
    """Decides whether a failed attempt may be made again. Thread-safe.

    `share`: of the first attempts, in millionths at the finest. `reserve`: retries at hand when few attempts were made;
    0 means none at all, ever. A retry must be admitted by the breaker as any attempt.

    >>> budget = RetryBudget(share=0.1, reserve=2)
    >>> [budget.retry() for _ in range(3)]
    [True, True, False]
    >>> for _ in range(10):
    ...     budget.attempted()
    >>> budget.retry(), budget.retry()
    (True, False)
    """

    def __init__(self, share: float = 0.1, reserve: int = 5) -> None:
        self.share = real("RetryBudget", "share", share, 0, 1)
        self.reserve = whole("RetryBudget", "reserve", reserve, 0)
        self._lock = RLock()  # a signal handler may ask, too
        self._pays = round(self.share * _TOKEN)
        self._holds = self._level = self.reserve * _TOKEN

    def attempted(self) -> None:
        """A first attempt is made. Retries are not reported here: they would earn further ones."""
        with self._lock:
            self._level = min(self._level + self._pays, self._holds)

    def retry(self) -> bool:
        """Whether one retry may be made; if so, it is paid for."""
        with self._lock:
            if self._level < _TOKEN:
                return False
            self._level -= _TOKEN
            return True

    @property
    def left(self) -> int:
        """How many retries could be made at once."""
        return self._level // _TOKEN


@dataclass(frozen=True, eq=False, slots=True)  # each is equal to itself alone, so that no breaker takes another's
class Attempt:
    """Permission to ask the remote once, to be handed back with the outcome."""

    number: int
    epoch: int  # how often the breaker had opened and closed: an outcome from an earlier epoch moves nothing
    probe: bool
    began: float
    brief: bool = False  # with so little time that to time out says nothing of the remote


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
    on_trust: int  # attempts begun since the last success
    admits: bool  # whether an attempt would be admitted now
    seconds: float  # until the next probe, if open; since the probe began, if probing
    name: str  # of whom the breaker watches

    def __str__(self) -> str:
        if self.state == "closed":
            return self._closed()
        failed = f"The {self.name} has failed {_times(self.failed)}"
        if self.admits:
            return f"{failed}; the next sample tries it."
        if self.state == "probing":
            return f"{failed}; a try is under way since {self.seconds:.1f} s."
        return f"{failed}; next try in {self.seconds:.1f} s."

    def _closed(self) -> str:
        if not self.admits:
            since = f"since the {self.name} last answered"
            return f"{self.on_trust} attempts were made {since}; the next waits for an outcome."
        if self.failed == 0:
            return f"The {self.name} may be asked; no attempt has failed since it last answered."
        failed = f"it has failed {_times(self.failed)} in a row and is left alone after {self.failures}"
        return f"The {self.name} may be asked; {failed}."


class Breaker:
    """Decides whether the remote may be asked, from how the last attempts went. Thread-safe.

    `at_once`: how many attempts may begin without a success since; None: as many as `failures`. Raise it where more
    samples than that are offloaded at the same instant, and an outage may cost as many. `name`: who is asked, in words.

    >>> breaker = Breaker(failures=5, interval_s=10)
    >>> for second in range(5):
    ...     attempt = breaker.begin(now=second)        # None: do not ask the remote
    ...     breaker.failed(attempt, now=second + 0.2)
    >>> breaker.state, breaker.begin(now=10.8)
    ('open', None)
    >>> breaker.explain(now=10.8)
    'The remote has failed 5 times; next try in 3.2 s.'
    >>> probe = breaker.begin(now=14)
    >>> breaker.state, breaker.begin(now=14)
    ('probing', None)
    >>> breaker.succeeded(probe, now=14.1)
    >>> breaker.state, breaker.counts.attempts, breaker.counts.refused
    ('closed', 6, 2)
    """

    def __init__(
        self, failures: int = 5, interval_s: float = 10.0, at_once: int | None = None, name: str = "remote"
    ) -> None:
        self.failures = whole("Breaker", "failures", failures, 1)
        self.interval_s = positive("Breaker", "interval_s", interval_s)
        self.at_once = self.failures if at_once is None else whole("Breaker", "at_once", at_once, self.failures)
        self._name = name
        self._counted = dict.fromkeys(Counts.__slots__, 0)
        self._lock = RLock()  # a signal handler may ask, too
        self._under_way: dict[Attempt, None] = {}  # in the order they began, which is that of giving them up
        self._epoch = 0
        self.opened_at: float | None = None  # whatever probes have failed since; None while closed
        self._probe: Attempt | None = None
        self._last_began = -math.inf
        self._next_probe = self._next_brief_probe = math.inf
        self._hurried_since: float | None = None  # when the first brief attempt began that timed out since a success
        self.failed_in_a_row = 0  # attempts, since the last success
        self._on_trust = 0  # begun since the last success, without those released
        self._last_trusted = self._counted["attempts"]  # the number of the last attempt before that success

    def refuse(self, now: float, brief: bool = False) -> Situation | None:
        """If the breaker is open and no probe is due, the situation, and the refusal is counted; else None.

        For whoever finds `opened_at` set: quicker than to prepare for an attempt, and be refused by `begin`.
        """
        with self._lock:
            next_probe = self._next_brief_probe if brief else self._next_probe
            if self.opened_at is None or now >= next_probe:
                return None
            self._counted["refused"] += 1
            if self._probe is not None:
                return self._situation(now)
            failed, on_trust, seconds = self.failed_in_a_row, self._on_trust, next_probe - now
            return _new(Situation, ("open", self.failures, failed, on_trust, False, seconds, self._name))

    def begin(self, now: float, brief: bool = False) -> Attempt | None:
        """Permission to ask the remote, or None.

        Report the outcome by `succeeded`, `failed`, `timed_out` or `released`. `brief`: it has little time.
        """
        with self._lock:
            self._give_up(now)
            if not self._allows(now, brief):
                self._counted["refused"] += 1
                return None
            self._counted["attempts"] += 1
            attempt = Attempt(self._counted["attempts"], self._epoch, self.opened_at is not None, now, brief)
            self._under_way[attempt] = None
            self._last_began = max(self._last_began, now)  # threads may come in with their times out of order
            if attempt.probe:
                self._probe = attempt
                self._next_probe = self._next_brief_probe = now + self.interval_s
            else:
                self._on_trust += 1
            return attempt

    def succeeded(self, attempt: Attempt, now: float) -> None:
        """The remote answered, and in time."""
        with self._lock:
            if self._ends(attempt, now, "succeeded"):
                if attempt.probe:
                    self.opened_at, self._probe, self._epoch = None, None, self._epoch + 1
                self.failed_in_a_row = self._on_trust = 0
                self._hurried_since = None
                self._last_trusted = self._counted["attempts"]

    def failed(self, attempt: Attempt, now: float) -> None:
        """The remote did not answer, or not in time, or nothing that can be used."""
        with self._lock:
            if self._ends(attempt, now, "failed"):
                self._fail(attempt, now)

    def timed_out(self, attempt: Attempt, now: float) -> None:
        """The remote did not answer in time: a failure, unless the attempt was brief."""
        with self._lock:
            excused = self._excuses(attempt, now)
            if not self._ends(attempt, now, "released" if excused else "failed"):
                return
            if not excused:
                self._fail(attempt, now)
                return
            if self._hurried_since is None and attempt.number > self._last_trusted:
                self._hurried_since = attempt.began
            self._release(attempt)

    def released(self, attempt: Attempt, now: float) -> None:
        """Nothing is known of the remote, which was not asked after all; another sample may take the place."""
        with self._lock:
            if self._ends(attempt, now, "released"):
                self._release(attempt)

    @property
    def state(self) -> Literal["closed", "open", "probing"]:
        """As of the last attempt begun or reported."""
        with self._lock:
            if self.opened_at is None:
                return "closed"
            return "open" if self._probe is None else "probing"

    @property
    def counts(self) -> Counts:
        """What became of all attempts, at one instant."""
        with self._lock:
            return Counts(**(self._counted | {"under_way": len(self._under_way)}))

    def situation(self, now: float, brief: bool = False) -> Situation:
        """How things stand, for an attempt that is brief or not."""
        with self._lock:
            return self._situation(now, brief)

    def explain(self, now: float) -> str:
        """How things stand, in one sentence."""
        return str(self.situation(now))

    def _situation(self, now: float, brief: bool = False) -> Situation:
        failed = self.failures, self.failed_in_a_row, self._on_trust
        if self.opened_at is None:
            return Situation("closed", *failed, self._allows(now, brief), 0.0, self._name)
        next_probe = self._next_brief_probe if brief else self._next_probe
        due = now >= next_probe  # also where a probe is in flight, which begin() then counts as failed
        if self._probe is None:
            return Situation("open", *failed, due, max(0.0, next_probe - now), self._name)
        return Situation("probing", *failed, due, max(0.0, now - self._probe.began), self._name)

    def _allows(self, now: float, brief: bool) -> bool:
        if self.opened_at is not None:
            return self._probe is None and now >= (self._next_brief_probe if brief else self._next_probe)
        return self._on_trust < (self.failures if self.failed_in_a_row else self.at_once)

    def _excuses(self, attempt: Attempt, now: float) -> bool:
        """Whether an attempt may time out without having failed."""
        if not isinstance(attempt, Attempt) or not attempt.brief:
            return False
        return attempt.probe or self._hurried_since is None or now < self._hurried_since + self.interval_s

    def _release(self, attempt: Attempt) -> None:
        if attempt.probe:
            self._probe, self._next_probe = None, attempt.began
            if not attempt.brief:
                self._next_brief_probe = attempt.began
        elif attempt.number > self._last_trusted:
            self._on_trust -= 1

    def _ends(self, attempt: Attempt, now: float, outcome: str) -> bool:
        """Count the outcome, if it is the attempt's first; say whether it may move the breaker."""
        if not isinstance(attempt, Attempt):
            raise TypeError(f"Breaker: attempt must be what begin() gave, got {attempt!r}")
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

    def _fail(self, attempt: Attempt, now: float) -> None:
        self.failed_in_a_row += 1
        if attempt.probe:
            self._probe = None  # when the next is due was settled when this one began
        elif self.failed_in_a_row >= self.failures:
            self.opened_at, self._epoch = now, self._epoch + 1
            # Not from now: the remote may have been back since the last attempt began.
            self._next_probe = self._next_brief_probe = self._last_began + self.interval_s
            self._counted["opened"] += 1


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
