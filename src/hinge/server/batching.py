"""Runs a model in threads of its own, and joins the requests that arrive while all of them are busy.

Nobody waits for company: a request that finds a thread free starts at once. Those that find none queue up, and the next
thread takes all of them that fit together. If a joined run fails, its requests are run one by one, so that each is
answered for itself.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias

from hinge.server.model import Model, Tensors, run_options
from hinge.server.refusal import ending

Form = tuple[tuple[str, tuple[int, ...]], ...]
Outcome = Tensors | Exception


@dataclass(frozen=True, eq=False)
class _Job:
    inputs: Tensors
    rows: int  # 0: runs alone
    form: Form  # names and shapes of what makes a row; those of the same form can be joined
    answer: "asyncio.Future[Tensors]"


Inbox: TypeAlias = "SimpleQueue[tuple[Model, list[_Job]] | None]"


class Batcher:
    """The queue before a model. All but the running itself happens in the event loop that it was made in."""

    def __init__(self, model: Model, *, workers: int, batch: int, observe: Callable[[float], None]) -> None:
        self.model = model
        self._batch = batch
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Job] = deque()
        self._inboxes: list[Inbox] = [SimpleQueue() for _ in range(workers)]
        self._idle = list(self._inboxes)  # a stack: the thread that ran last has the model in its caches
        self._options = run_options()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._serve, args=(inbox,), name="model", daemon=True) for inbox in self._inboxes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def run(self, inputs: Tensors) -> "asyncio.Future[Tensors]":
        """The outputs, when they are there."""
        rows = self.model.rows(inputs) if self._batch > 1 else 0
        form = tuple((name, tensor.shape[1:]) for name, tensor in inputs.items()) if rows else ()
        job = _Job(inputs, rows, form, self._loop.create_future())
        self._waiting.append(job)
        self._start()
        return job.answer

    def abandon(self) -> None:
        """Refuse whoever still waits, and end what is being run."""
        self._ending = True
        self._options.terminate = True
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(ending())

    def close(self) -> None:
        """End the threads. (A program that ends while one of them is in the middle of a run would crash.)"""
        self.abandon()
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _start(self) -> None:
        while self._idle and self._waiting:
            self._idle.pop().put((self.model, self._next()))

    def _next(self) -> list[_Job]:
        """The first in the queue, and those behind it that can be run with it."""
        jobs = [self._waiting.popleft()]
        first, rows = jobs[0], jobs[0].rows
        if first.rows and self._waiting:
            left: deque[_Job] = deque()
            for job in self._waiting:
                if job.form == first.form and rows + job.rows <= self._batch:
                    jobs.append(job)
                    rows += job.rows
                else:
                    left.append(job)
            self._waiting = left
        self._observe(max(rows, 1))
        return jobs

    def _serve(self, inbox: Inbox) -> None:
        while (work := inbox.get()) is not None:
            model, jobs = work
            outcomes = _run(model, jobs, self._batch, self._options)
            try:
                self._loop.call_soon_threadsafe(self._finish, inbox, jobs, outcomes)
            except RuntimeError:  # the loop was closed without waiting for us
                return
            del work, jobs, outcomes  # an idle thread holds on to nothing

    def _finish(self, inbox: Inbox, jobs: list[_Job], outcomes: list[Outcome]) -> None:
        self._idle.append(inbox)
        self._start()
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.answer.done():  # cancelled: nobody waits for it any more
                continue
            if isinstance(outcome, Exception):
                job.answer.set_exception(ending() if self._ending else outcome)
            else:
                job.answer.set_result(outcome)


def _run(model: Model, jobs: list[_Job], batch: int, options: Any) -> list[Outcome]:
    if len(jobs) > 1:
        try:
            return list(model.run_together([job.inputs for job in jobs], [job.rows for job in jobs], options))
        except Exception:  # whichever of them it was, the others must not suffer
            return [_attempt(model, job, batch, options) for job in jobs]
    return [_attempt(model, jobs[0], batch, options)]


def _attempt(model: Model, job: _Job, batch: int, options: Any) -> Outcome:
    try:
        return model.run(job.inputs, batch if job.rows else sys.maxsize, options)
    except Exception as error:
        return error
