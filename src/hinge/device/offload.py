"""One request to the remote, for one sample or for a batch, from admission to the answers.

    admit     the breaker lets the attempt pass, and one of `in_flight` permits is free by the deadline
    ask       the remote replies, or fails; a connection that failed is tried once more
    settle    the labels are checked, and compared with the local ones; breaker, policy and status learn the outcome
    answer    the remote's labels, or the local ones if it failed

`Offloader.ask` does this in a thread, `Offloader.ask_async` in an event loop: the two differ in how they wait. All that
they decide is in the methods below them, which do no I/O.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from hinge._checks import agreement, real, share
from hinge.costs import OffloadPrice
from hinge.device.answer import Answer
from hinge.device.breaker import Attempt, Breaker
from hinge.device.locked import LockedGate
from hinge.device.status import StatusTracker
from hinge.errors import (
    BreakerOpen,
    InvalidDecision,
    PolicyFailed,
    QueueTimeout,
    RemoteFailed,
    RemoteInvalid,
    RemoteLate,
    RemoteRefused,
    RemoteUnreachable,
    TaskFailed,
)
from hinge.policies.policy import Decision
from hinge.remotes.remote import AsyncRemote, Deadline, Remote, Reply, failure_of
from hinge.tasks import Task
from hinge.tasks.task import checked_answer, kind_of


class Judged(NamedTuple):
    """A sample's local answer, and what the policy decided."""

    label: Any
    confidence: float
    group: int
    decision: Decision
    failure: PolicyFailed | None = None  # that it did not decide


class Offload:
    """The state of one offload."""

    __slots__ = ("attempt", "attempts", "began", "deadline", "ended", "failure", "judged", "may_retry")

    def __init__(self, judged: Sequence[Judged], began: float, deadline: Deadline) -> None:
        self.judged, self.began, self.deadline = judged, began, deadline
        self.attempt: Attempt | None = None  # in flight
        self.attempts = 0
        self.failure: RemoteFailed | None = None
        self.may_retry = False
        self.ended = False  # answered, or cancelled


class Offloader:
    """Asks a device's remote on the device's terms. Thread-safe."""

    def __init__(
        self,
        *,
        store: LockedGate,
        status: StatusTracker,
        breaker: Breaker,
        price: OffloadPrice,
        task: Task,
        deadline_s: float,
        in_flight: int,
    ) -> None:
        self._store, self._status, self._price = store, status, price
        self._breaker = breaker
        self._task, self._deadline_s, self._in_flight = task, deadline_s, in_flight
        # A queue, not a semaphore: that is Python code, which Ctrl-C may leave with its lock held.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(in_flight):
            self._permits.put(None)
        self._permits_of: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def drain(self) -> None:
        """Wait for the requests that threads have in flight, a deadline at most."""
        end, free = time.monotonic() + self._deadline_s, 0
        with suppress(Empty):
            while free < self._in_flight:
                self._permits.get(timeout=max(0.0, end - time.monotonic()))
                free += 1
        for _ in range(free):
            self._permits.put(None)

    async def drain_async(self) -> None:
        permits, free = self._permits_here(), 0
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deadline_s):
                while free < self._in_flight:
                    await permits.acquire()
                    free += 1
        for _ in range(free):
            permits.release()

    # -- waiting for the remote ---------------------------------------------------------------------------------------

    def ask(self, remote: Remote, samples: Sequence[Any], judged: Sequence[Judged]) -> list[Answer]:
        """Ask the remote from a thread; one answer for each sample, by the deadline."""
        began = time.monotonic()
        if self._breaker.opened_at is not None and (refusal := self._breaker.refuse(began)):
            return self._local_answers(judged, BreakerOpen(refusal, self._status.last_failure))
        offload = Offload(judged, began, Deadline(began + self._deadline_s))
        try:
            try:
                self._permits.get(timeout=self._deadline_s)
            except Empty:
                return self._fall_back(offload, QueueTimeout("no request slot was free by the deadline (in_flight)"))
            try:
                while self._admitted(offload):
                    try:
                        return self._settled(offload, remote.ask(samples, offload.deadline))
                    except Exception as error:  # of any kind: there is a local answer
                        self._failed(offload, error)
                return self._fall_back(offload)
            finally:
                self._permits.put(None)
        finally:
            if not offload.ended:  # it was interrupted
                self._cancel(offload)

    async def ask_async(
        self, remote: AsyncRemote, samples: Sequence[Any], judged: Sequence[Judged], deadline: Deadline | None = None
    ) -> list[Answer]:
        """Ask the remote from an event loop, as `ask` does; by an earlier deadline, if one is given."""
        began = time.monotonic()
        latest = Deadline(began + self._deadline_s)
        deadline = latest if deadline is None else min(latest, deadline)
        if self._breaker.opened_at is not None and (refusal := self._breaker.refuse(began)):
            return self._local_answers(judged, BreakerOpen(refusal, self._status.last_failure))
        offload = Offload(judged, began, deadline)
        try:
            permits = self._permits_here()
            try:
                left_s = offload.deadline.left(began)
                async with asyncio.timeout(left_s):  # unlike wait_for, never swallows a cancellation
                    await permits.acquire()
            except TimeoutError:
                return self._fall_back(offload, QueueTimeout("no request slot was free by the deadline (in_flight)"))
            try:
                while self._admitted(offload):
                    try:
                        return self._settled(offload, await remote.ask_async(samples, offload.deadline))
                    except Exception as error:  # of any kind: there is a local answer
                        self._failed(offload, error)
                return self._fall_back(offload)
            finally:
                permits.release()
        finally:
            if not offload.ended:  # the task was cancelled
                self._cancel(offload)

    def cancel(self, judged: Sequence[Judged]) -> None:
        """Count an offload as dropped before it began."""
        self._cancel(Offload(judged, 0.0, Deadline(0.0)))

    def _permits_here(self) -> asyncio.Semaphore:
        """The permits of the running event loop; what was in flight in a loop that ended, ended with it."""
        loop = asyncio.get_running_loop()
        if loop not in self._permits_of:
            self._permits_of[loop] = asyncio.Semaphore(self._in_flight)
        return self._permits_of[loop]

    # -- admission and retries ----------------------------------------------------------------------------------------

    def _admitted(self, offload: Offload) -> bool:
        """Whether the remote may be asked, for the first time or again; once more at most, if it was unreachable."""
        now = time.monotonic()
        if offload.attempts and not self._may_retry(offload, now):
            return False
        offload.attempt = self._breaker.begin(now, self._is_brief(offload.deadline, now))
        if offload.attempt is None:
            if not offload.attempts:
                offload.failure = BreakerOpen(self._breaker.situation(now), self._status.last_failure)
            return False
        offload.attempts += 1
        return True

    def _is_brief(self, deadline: Deadline, now: float) -> bool:
        """Whether so little time is left, as the caller wants it or after queueing, that a good remote may be late.

        One that takes t ≤ d of its deadline d answers the first attempts of a burst; those in the queue begin when
        others end, at k t, and are late only where d - k t < t, so that less than d/2 was left for them.
        """
        return deadline.end_s - now < self._deadline_s / 2

    def _may_retry(self, offload: Offload, now: float) -> bool:
        """Whether to try again: once, if a connection failed. What was late or answered would be so again."""
        unreachable = offload.may_retry and offload.attempts == 1 and isinstance(offload.failure, RemoteUnreachable)
        return unreachable and now < offload.deadline.end_s

    def _failed(self, offload: Offload, error: Exception) -> None:
        offload.failure = failure_of(error)
        attempt, offload.attempt = offload.attempt, None
        offload.may_retry = attempt is not None  # None: the reply was good, and what failed since is not the remote's
        if attempt is None:
            return
        if isinstance(offload.failure, RemoteRefused | TaskFailed):  # which say nothing about the next sample
            self._breaker.released(attempt, time.monotonic())
        elif isinstance(offload.failure, RemoteLate):
            self._breaker.timed_out(attempt, time.monotonic())
        else:
            self._breaker.failed(attempt, time.monotonic())

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _settled(self, offload: Offload, reply: Reply) -> list[Answer]:
        """Check the reply, learn from it, and answer with it; a bad one raises `RemoteFailed`, and teaches nothing."""
        now = time.monotonic()
        if now >= offload.deadline.end_s:
            raise RemoteLate("no answer in time")
        labels = checked_reply(reply, len(offload.judged), self._task)
        agreed = self._agreements(offload, labels) if reply.compared else [None] * len(labels)
        sent, told = _checked_bytes(reply.bytes), None if reply.cost is None else _checked_cost(reply.cost)
        if offload.attempt is not None:
            self._breaker.succeeded(offload.attempt, now)
            offload.attempt = None
        paid = self._paid(offload, sent, now) if told is None else told
        offload.ended = True
        if paid is None or not reply.compared:
            for each in offload.judged:
                self._forget(each.decision, paid or 0.0)
        else:
            for judged, agrees in zip(offload.judged, agreed, strict=True):
                if judged.decision.offload:
                    self._learn(judged.decision, agrees, paid)
        cost, store = paid or 0.0, self._store
        self._status.answered([each.confidence for each in offload.judged], agreed, paid)
        return [
            Answer(
                label=label,
                source="remote",
                confidence=each.confidence,
                group=each.group,
                decision=each.decision,
                local=each.label,
                explains=store.explain,
                offloaded=True,
                cost=cost,
                agreed=agrees,
                audit=not each.decision.offload,
            )
            for label, agrees, each in zip(labels, agreed, offload.judged, strict=True)
        ]

    def _fall_back(self, offload: Offload, failure: RemoteFailed | None = None) -> list[Answer]:
        cost = (self._paid(offload, 0, time.monotonic()) or 0.0) if offload.attempts else 0.0
        offload.ended = True
        failure = failure or offload.failure or RemoteLate("no answer in time")
        return self._local_answers(offload.judged, failure, offload.attempts > 0, cost)

    def _local_answers(
        self, judged: Sequence[Judged], failure: RemoteFailed, asked: bool = False, cost: float = 0.0
    ) -> list[Answer]:
        self._status.fell_back(failure, len(judged), cost)
        for each in judged:
            self._forget(each.decision, cost)
        return [
            Answer(
                label=each.label,
                source="local",
                confidence=each.confidence,
                group=each.group,
                decision=each.decision,
                local=each.label,
                explains=self._store.explain,
                offloaded=asked,
                cost=cost,
                failure=failure,
            )
            for each in judged
        ]

    def undecided(self, judged: Judged) -> Answer:
        """The local answer to a sample for which the policy failed."""
        return self._local_answers([judged], judged.failure or PolicyFailed())[0]

    def _cancel(self, offload: Offload) -> None:
        """End an offload without answers; the remote is not to blame, and nothing is learned."""
        offload.ended = True
        if offload.attempt is not None:
            self._breaker.released(offload.attempt, time.monotonic())
            offload.attempt = None
        self._status.dropped(len(offload.judged))
        for each in offload.judged:
            self._forget(each.decision)

    # -- the policy, whose errors must not cost the answer -----------------------------------------------------------

    def _learn(self, decision: Decision, agreed: float | None, cost: float) -> None:
        try:
            self._store.learn(decision, agreed, cost)
        except InvalidDecision:  # the policy dropped it since: too many came after it
            pass
        except Exception as error:
            self._status.policy_failed("learn", error)

    def _forget(self, decision: Decision, cost: float = 0.0) -> None:
        if decision.offload:
            try:
                self._store.forget(decision, cost)
            except InvalidDecision:  # the policy dropped it before
                pass
            except Exception as error:
                self._status.policy_failed("forget", error)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _agreements(self, offload: Offload, labels: list[Any]) -> Sequence[float | None]:
        try:
            found = [
                self._task.agreement(each.label, label) for each, label in zip(offload.judged, labels, strict=True)
            ]
        except ValueError as error:
            ours = type(self._task).__module__.startswith("hinge.")
            raise RemoteInvalid(error if ours else _raised(self._task, "agreement", error)) from error
        except Exception as error:
            raise TaskFailed(_raised(self._task, "agreement", error)) from error
        try:
            return [agreement(type(self._task).__name__, "agreement", value) for value in found]
        except (TypeError, ValueError) as error:
            raise TaskFailed(error) from error

    def _paid(self, offload: Offload, size_bytes: float, now: float) -> float | None:
        """What each sample pays: it waits for the whole time, and shares bytes and calls with the others.

        If the price fails, what the gate was told; None, if that is measured.
        """
        latency_ms, samples = 1000 * (now - offload.began), len(offload.judged)
        try:
            cost = self._price.cost(
                latency_ms=latency_ms, size_bytes=size_bytes / samples, calls=offload.attempts / samples
            )
            return share("price", "cost", cost)
        except Exception as error:  # a price that fails must not cost the answer
            self._status.alarm("the price of an offload cannot be told", f"{type(error).__name__}: {error}")
            return None if self._store.gate.price is not None else self._store.gate.offload_price


def checked_reply(reply: Reply, samples: int, task: Task) -> list[Any]:
    """The answers of a reply, one for each sample."""
    if not isinstance(reply, Reply):
        raise RemoteInvalid(f"the remote's ask must return a Reply([label, …]), got {kind_of(reply)}")
    labels = list(reply.labels)
    if len(labels) != samples:
        raise RemoteInvalid(f"{len(labels)} labels for {samples} samples")
    try:
        return [checked_answer(task, label) for label in labels]
    except (TypeError, ValueError) as error:
        raise RemoteInvalid(error) from None
    except TaskFailed:
        raise
    except Exception as error:
        raise TaskFailed(_raised(task, "answer", error)) from error


def _raised(owner: object, method: str, error: Exception) -> str:
    return f"{type(owner).__name__}.{method} raised {type(error).__name__}: {error}"


def _checked_cost(cost: Any) -> float:
    try:
        return share("the remote's Reply", "cost", cost)
    except (TypeError, ValueError) as error:
        raise RemoteInvalid(error) from None


def _checked_bytes(size: Any) -> float:
    if type(size) is int and size >= 0:
        return size
    try:
        return real("the remote's Reply", "bytes", size, 0)
    except (TypeError, ValueError) as error:
        raise RemoteInvalid(error) from None
