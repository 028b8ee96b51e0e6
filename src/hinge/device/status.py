"""What became of a device's samples: counts, alarms, and a line in the log `hinge` when an alarm begins."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Literal

from hinge.device.alarms import Change, ChangeWatch
from hinge.device.answer import Answer
from hinge.device.breaker import Breaker, Counts
from hinge.device.locked import LockedGate
from hinge.errors import BreakerOpen, CallsLeftBehind, PolicyFailed, QueueTimeout, RemoteFailed

log = logging.getLogger("hinge")

QUIET = 1_000  # samples without it, until an alarm is a new one: a budget is spent and free again all the time
FIRST = 10  # answers that cost nothing, after which there is something wrong
_PART = 0.25  # of the agreements that confidences promise: honest models keep more than that, however weak
NEARLY_ALL = 0.9  # of the samples: where the remote answered fewer, it was asked where local is least sure
_SURE = math.log(100)  # that a model keeps less: one in a hundred that keep as much is wrongly accused, ever
_COUNTS = ("answered_by_remote", "compared", "dropped", "local_failed")  # of a `Status`
_SUMS = ("agreed", "offload_cost")
_OPENED, _NOT_DURABLE = "the breaker opened", "what is learned is not durable"  # whose end is seen at once


@dataclass(frozen=True)
class Status:
    """A device at one instant."""

    samples: int  # decided since the device was made
    answered_by_remote: int
    compared: int  # of these answers, those that could be: what is cut off cannot
    agreed: float  # in how many of them local agreed; a mistake may count in part, by its price
    fell_back: dict[str, int]  # answered locally as the remote failed, by the kind of failure
    dropped: int  # offloads that were cancelled, or too many at once in the shadow of local
    local_failed: int  # answered by the remote alone, as the local model failed: not among the samples
    offload_cost: float  # what asking has cost, whether or not an answer came
    last_fault: str | None  # how the remote failed last
    breaker: Literal["closed", "open", "probing"]
    attempts: Counts
    on_disk: bool  # whether the policy is kept in a folder
    not_durable: str | None  # why what is learned now may be lost, though there is a folder
    alarms: dict[str, int]  # what needs a person, and how often that began; what returns within `QUIET` never ended
    alarm_times: dict[str, tuple[float, float | None]]  # Unix times: last began, was seen last; None while it lasts
    alarm_reasons: dict[str, str]  # why, where it is known, as it was told last
    behind: dict[int, tuple[int, float]] = field(default_factory=dict)  # in shadow of local, by group: compared, agreed


def hardly_any(agreed: float, promised: float) -> bool:
    """Whether so few agreements, where confidences sum to `promised`, are evidence that classes or samples differ.

    Let local agree, whatever came before, at least with a quarter of the probability c that its confidence says. With x
    from 0 to 1 how far it agreed, exp(¾ c/4 - x log 4) has then a mean of 1 at most: 4^-x ≤ 1 - ¾ x, as it is convex.
    So the product over all answers is a supermartingale that starts at 1, and by Ville's inequality ever reaches 100
    with a probability of 1/100 at most. It grows where local agrees in less than 0.135 of what its confidences promise,
    fastest for 1/16; never to agree is an alarm after 25 promised agreements.

    >>> hardly_any(0, 24), hardly_any(0, 25), hardly_any(12, 100), hardly_any(13, 200)
    (False, True, False, True)
    """
    return (1.0 - _PART) * _PART * promised - math.log(1.0 / _PART) * agreed >= _SURE


class StatusTracker:
    """Counts the outcomes of offloads. Accepted samples are counted by the policy's clock alone. Thread-safe."""

    def __init__(self, store: LockedGate, breaker: Breaker) -> None:
        self._store, self._breaker = store, breaker
        self._began = store.policy.time
        self._counted: dict[str, Any] = dict.fromkeys(_COUNTS, 0) | dict.fromkeys(_SUMS, 0.0)
        self._promised = 0.0  # agreements, by the confidences of what the remote answered
        self._behind: dict[int, tuple[int, float]] = {}
        self._fell_back: Counter[str] = Counter()
        self._alarms: Counter[str] = Counter()
        self._alarm_seen: dict[str, tuple[float, float, int]] = {}  # began and last seen: Unix times; sample
        self._alarm_reasons: dict[str, str] = {}
        self.last_failure: RemoteFailed | None = None  # of the remote itself, and not that it was not asked
        self._watched = ChangeWatch(store.gate)
        self._is_open = False
        self._lock = RLock()  # a signal handler may ask, too

    def answered(self, confidences: Sequence[float], agreed: Sequence[float | None], cost: float | None) -> None:
        """The remote answered samples of these confidences, each at that cost, if known; local agreed if comparable."""
        counted = self._counted
        with self._lock:
            counted["answered_by_remote"] += len(confidences)
            counted["offload_cost"] += len(confidences) * (cost or 0.0)
            for confidence, agrees in zip(confidences, agreed, strict=True):
                if agrees is not None:
                    counted["compared"] += 1
                    counted["agreed"] += agrees
                    self._promised += confidence
                    self._watched.compared(agrees)
            few = hardly_any(counted["agreed"], self._promised)
            hardly_agrees = few and (counted["agreed"] == 0.0 or self._sees_all())
            is_free = cost == 0.0 and counted["offload_cost"] == 0.0 and counted["answered_by_remote"] >= FIRST
        self._watch(len(confidences))
        if hardly_agrees:
            self.alarm(
                "local hardly ever agrees with remote",
                f"in {counted['agreed']:.4g} of {counted['compared']} answers, though its confidences promised "
                f"{self._promised:.0f}; are the classes the same on both sides, in the same order "
                "(Classification([...]), --labels), and the samples as each expects?",
            )
        if is_free and (self._store.gate.price is not None or self._store.policy.learns_cost):
            self.alarm(
                "offloads cost nothing",
                f"the price was 0 in all {counted['answered_by_remote']} answers, so everything will be offloaded; "
                "does it charge for what this remote has? The bytes of a function are not known",
            )

    def _sees_all(self) -> bool:
        """Whether nearly all samples were compared: what a policy accepts, as local agrees there, is not seen."""
        return bool(self._counted["compared"] >= NEARLY_ALL * (self._store.policy.time - self._began))

    def fell_back(self, failure: RemoteFailed, samples: int, cost: float) -> None:
        """So many samples got their local answer, as the remote failed; each paid for asking."""
        if type(failure) is BreakerOpen:  # which cost nothing, and changes nothing else
            with self._lock:
                self._fell_back["breaker"] += samples
            self._warn()
            return
        with self._lock:
            self._fell_back[failure.kind] += samples
            self._counted["offload_cost"] += samples * cost
            if not isinstance(failure, QueueTimeout | PolicyFailed):  # which are not the remote's
                self.last_failure = failure
        if isinstance(failure, CallsLeftBehind):
            self.alarm("calls of the remote do not return", str(failure))
        self._watch(samples)

    def answered_behind(self, answers: Sequence[Answer]) -> None:
        """What came of asking behind the caller: answers that nobody gets, but that can be compared."""
        with self._lock:
            for answer in answers:
                if answer.agreed is not None:
                    compared, agreed = self._behind.get(answer.group, (0, 0.0))
                    self._behind[answer.group] = compared + 1, agreed + answer.agreed

    def dropped(self, samples: int) -> None:
        with self._lock:
            self._counted["dropped"] += samples

    def local_failed(self, samples: int, problem: str | None) -> None:
        """The remote answered so many samples that have no local answer; a problem needs a person."""
        with self._lock:
            self._counted["local_failed"] += samples
        if problem is not None:
            self.alarm("the local model failed, and the remote answered in its place", problem)

    def policy_failed(self, method: str, error: Exception) -> PolicyFailed:
        """The policy raised what no policy may; returned as a failure that names both."""
        name = type(self._store.policy).__name__
        failure = PolicyFailed(f"{name}.{method} raised {type(error).__name__}: {error}")
        self.alarm("the policy failed", str(failure))
        return failure

    def _watch(self, offloads: int) -> None:
        changes: list[Change] = []
        with self._lock:
            try:
                changes = self._store.locked(lambda gate: self._watched.offloaded(gate, offloads))
            except Exception as error:
                self.policy_failed("alarms", error)
            is_open = self._breaker.opened_at is not None
            turned, self._is_open = is_open != self._is_open, is_open
        if is_open:
            self.alarm(_OPENED, str(self.last_failure), news=turned)
        elif turned:
            log.warning("the remote answers again")
        self._warn()
        if (problem := self._store.problem) is not None:
            self.alarm(_NOT_DURABLE, problem)
        for change in changes:
            self.alarm(change.what, str(change), news=True)

    def _warn(self) -> None:
        try:
            warning = self._store.warning()
        except Exception as error:
            self.policy_failed("warning", error)
            return
        if warning is not None:
            self.alarm(warning)

    def alarm(self, what: str, why: str | None = None, news: bool = False) -> None:
        """Count and log it, once for as long as it comes back within `QUIET` samples; log it also if it is news."""
        now, sample = time.time(), self._store.policy.time
        with self._lock:
            began, _, last = self._alarm_seen.get(what, (now, now, -QUIET))
            new = sample - last >= QUIET
            self._alarm_seen[what] = (now if new else began, now, sample)
            self._alarms[what] += new
            if why is not None:
                self._alarm_reasons[what] = why
        if new or news:
            log.warning("%s", what if why is None else f"{what}: {why}")

    def status(self) -> Status:
        with self._lock:
            return Status(
                samples=self._store.policy.time - self._began + self._fell_back[PolicyFailed.kind],
                **self._counted,
                fell_back=dict(self._fell_back),
                last_fault=None if self.last_failure is None else str(self.last_failure),
                breaker=self._breaker.state,
                attempts=self._breaker.counts,
                on_disk=self._store.on_disk,
                not_durable=self._store.problem,
                alarms=dict(self._alarms),
                alarm_reasons=dict(self._alarm_reasons),
                alarm_times={what: (seen[0], self._over(what, *seen[1:])) for what, seen in self._alarm_seen.items()},
                behind=dict(self._behind),
            )

    def _over(self, what: str, last: float, sample: int) -> float | None:
        lasts = {_OPENED: self._breaker.opened_at is not None, _NOT_DURABLE: self._store.problem is not None}
        return None if lasts.get(what, self._store.policy.time - sample < QUIET) else last
