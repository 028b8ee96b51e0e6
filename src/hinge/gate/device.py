"""A device that waits for its remote in the thread that asks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore, Lock
from typing import Any

from hinge.gate.answer import Answer
from hinge.gate.core import Core
from hinge.gate.offload import Judged, Offload
from hinge.gate.remote.asking import Remote
from hinge.gate.remote.calling import Called, is_coroutine_function


class Device(Core):
    """A local model, a policy and a remote: answers every sample, and asks the remote where that is worth its cost.

    >>> from hinge import Isotonic
    >>> device = Device(local=lambda sample: [0.0, sample], remote=lambda sample: int(sample > 1),
    ...                 policy=Isotonic(bins=16, offload_cost=0.5))
    >>> device.infer(3.0)
    Answer(label=1, source='remote', confidence=0.9526, bin=15, offloaded=True, cost=0.5)
    >>> [answer.source for answer in device.infer_many([3.0] * 20)][-1], device.infer(3.0).source
    ('remote', 'local')
    >>> print(device.explain(3.0))
    Bin 15 is accepted: local agreed in 21 of 21 offloads; checked again in 16466999 samples.
    >>> device.close()

    `local` is a function from sample to scores, or has `answer` and `answer_many` (see `LocalModel`). `remote` is an
    `OpenInference`, or a function from sample to label, or has `ask` and `close` (see `Remote`). Whatever the remote
    does, every sample gets one answer, by `deadline_s` after it was offloaded: the local one, if the remote fails.

    `confidence` and `bins` say how scores become a bin, `labels` names the classes. An offload costs what the policy
    was told, or what `price` makes of its measures (with `radio`, of its energy too); a mistake costs what `wrong`
    says. `state` is a folder in which the policy survives. In `shadow`, answers come always from "local" (the remote is
    asked behind the caller's back) or always from "remote", and the policy learns as it would have decided.
    `breaker` and `retries` keep a failing remote from being pestered. `infer_many` asks for `batch` samples in one
    request. No more than `in_flight` requests are under way at once, whoever makes them; others wait for their turn.
    """

    def _asked(self, remote: Any) -> Any:
        if isinstance(remote, Remote):
            return remote
        if callable(remote) and not is_coroutine_function(remote):
            return Called(remote, self._in_flight)
        what = "a coroutine function, which AsyncDevice takes" if callable(remote) else repr(remote)
        raise TypeError(f"Device: remote must be a remote or a function from sample to label, got {what}")

    def _prepare(self) -> None:
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._room = BoundedSemaphore(self._in_flight)
        self._behind = BoundedSemaphore(4 * self._in_flight)

    def infer(self, sample: Any) -> Answer:
        """The answer to one sample."""
        judged = self._judge(sample)
        if self._waits(judged):
            return self._ask(self._offload([sample], [judged]))[0]
        if judged.decision.offload:
            self._ask_behind(sample, judged)
        return self._accepted(judged)

    def infer_many(self, samples: Iterable[Any]) -> list[Answer]:
        """The answers to many samples, which are decided together: none of them learns from another."""
        everything = list(samples)
        judged = self._judge_many(everything)
        offloads = self._offloads(everything, judged)
        answers = self._placed(judged, offloads, self._ask_all([offload for _, offload in offloads]))
        for sample, each in zip(everything, judged, strict=True):
            if each.decision.offload and not self._waits(each):
                self._ask_behind(sample, each)
        return answers

    def close(self) -> None:
        """Finish what is under way, and let go of the remote and of the folder."""
        self._closed = True
        try:
            if self._pool is not None:
                self._pool.shutdown()
            self._remote.close()
        finally:
            self._keeper.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask_all(self, offloads: list[Offload]) -> list[list[Answer]]:
        if len(offloads) < 2:
            return [self._ask(offload) for offload in offloads]
        asked = [self._threads().submit(self._ask, offload) for offload in offloads]
        try:
            return [future.result() for future in asked]
        finally:  # interrupted, there are some that have not begun
            for future, offload in zip(asked, offloads, strict=True):
                if future.cancel():
                    offload.give_up(time.monotonic())

    def _ask(self, offload: Offload) -> list[Answer]:
        deadline = offload.start(time.monotonic())
        if not self._room.acquire(timeout=deadline.left(time.monotonic())):
            return offload.fall_back(time.monotonic())
        try:
            asking = offload.begin(time.monotonic())
            while asking:
                try:
                    return offload.settle(self._remote.ask(offload.samples, deadline), time.monotonic())
                except Exception as fault:  # whatever it is, there is a local answer
                    asking = offload.again(fault, time.monotonic())
            return offload.fall_back(time.monotonic())
        finally:
            self._room.release()
            offload.give_up(time.monotonic())  # if it was interrupted

    def _ask_behind(self, sample: Any, judged: Judged) -> None:
        """Ask the remote while the caller goes on; if too much is waiting already, not at all."""
        offload = self._offload([sample], [judged])
        if not self._behind.acquire(blocking=False):
            offload.give_up(time.monotonic())
            return
        asked = self._threads().submit(self._ask, offload)
        asked.add_done_callback(lambda _: self._behind.release())

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._in_flight, thread_name_prefix="hinge-device")
            return self._pool
