"""Runs a model in threads of its own, and joins the requests that arrive while all of them are busy.

Nobody waits for company: a request that finds a thread free starts at once. Those that find none queue up, and the next
thread takes all of them that fit together. If a joined run fails, its requests are run one by one, so that each is
answered for itself.

Nor does anybody wait for all of a large request: it is run in slices, and between two of them whoever came meanwhile
has a turn. What nobody waits for any more is taken out of the queue, and ended where it runs.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from hinge.server.model import Model, Tensors, run_options
from hinge.server.refusal import ending

Form = tuple[tuple[str, tuple[int, ...]], ...]
Outcome = Tensors | Exception | None  # None: there is more of it to run


@dataclass(eq=False)
class _Job:
    inputs: Tensors
    rows: int  # 0: neither joined nor sliced
    form: Form  # names and shapes of what makes a row; those of the same form can be joined
    answer: "asyncio.Future[Tensors]"
    model: Model | None = None  # the one that has begun with it; all slices are run on the same
    parts: list[Tensors] = field(default_factory=list)  # outputs of the slices that were run


@dataclass(eq=False)
class _Turn:
    """What a thread is given: jobs to be run together, or one, of which it runs slices until somebody waits."""

    model: Model
    jobs: list[_Job]
    options: Any = field(default_factory=run_options)


Inbox: TypeAlias = "SimpleQueue[_Turn | None]"


class Batcher:
    """The queue before a model. All but the running itself happens in the event loop that it was made in."""

    def __init__(self, model: Model, *, workers: int, batch: int, observe: Callable[[float], None]) -> None:
        self.model = model
        self._batch = batch
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Job] = deque()
        self._begun: deque[_Job] = deque()  # large ones, of which slices are left
        self._begun_next = False
        self._turns: set[_Turn] = set()  # what runs
        self._inboxes: list[Inbox] = [SimpleQueue() for _ in range(workers)]
        self._idle = list(self._inboxes)  # a stack: the thread that ran last has the model in its caches
        self._ending = False
        self._threads = [
            threading.Thread(target=self._serve, args=(inbox,), name="model", daemon=True) for inbox in self._inboxes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """How many requests wait that have not begun."""
        return len(self._waiting)

    def run(self, inputs: Tensors) -> "asyncio.Future[Tensors]":
        """The outputs, when they are there; who wants them no more cancels."""
        rows = self.model.rows(inputs) if self._batch > 1 else 0
        form = tuple((name, tensor.shape[1:]) for name, tensor in inputs.items()) if rows else ()
        job = _Job(inputs, rows, form, self._loop.create_future())
        if self._ending:
            job.answer.set_exception(ending())
            return job.answer
        job.answer.add_done_callback(partial(self._drop, job))
        self._waiting.append(job)
        self._start()
        return job.answer

    def abandon(self) -> None:
        """Refuse whoever still waits, and end what is being run."""
        self._ending = True
        for turn in self._turns:
            turn.options.terminate = True
        waiting = [*self._waiting, *self._begun]
        self._waiting.clear()
        self._begun.clear()
        for job in waiting:
            if not job.answer.done():
                job.answer.set_exception(ending())

    def close(self) -> None:
        """End the threads. (A program that ends while one of them is in the middle of a run would crash.)"""
        self.abandon()
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _drop(self, job: _Job, answer: "asyncio.Future[Tensors]") -> None:
        """Waste no time and no memory on a request that was cancelled."""
        if not answer.cancelled():
            return
        for queue in (self._waiting, self._begun):
            if job in queue:
                queue.remove(job)
        for turn in self._turns:
            if job in turn.jobs and all(each.answer.done() for each in turn.jobs):
                turn.options.terminate = True

    # -- turns --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        while self._idle and (self._waiting or self._begun):
            turn = self._next()
            self._turns.add(turn)
            self._idle.pop().put(turn)

    def _next(self) -> _Turn:
        """Those who have not begun, and the large ones that have, take turns: neither waits for all of the other."""
        begun = bool(self._begun) and (self._begun_next or not self._waiting)
        first = (self._begun if begun else self._waiting).popleft()
        self._begun_next = not self._is_large(first)
        first.model = first.model or self.model
        return _Turn(first.model, [first, *self._company(first)])

    def _company(self, first: _Job) -> list[_Job]:
        """Those in the queue that can be run together with the first."""
        rows, jobs = first.rows, list[_Job]()
        if first.rows and not self._is_large(first) and self._waiting:
            left: deque[_Job] = deque()
            for job in self._waiting:
                if job.form == first.form and rows + job.rows <= self._batch:
                    jobs.append(job)
                    rows += job.rows
                else:
                    left.append(job)
            self._waiting = left
        return jobs

    def _is_large(self, job: _Job) -> bool:
        return job.rows > self._batch

    def _finish(self, inbox: Inbox, turn: _Turn, outcomes: list[Outcome]) -> None:
        self._turns.discard(turn)
        self._idle.append(inbox)
        if outcomes[0] is None and not self._ending and not turn.jobs[0].answer.done():
            self._begun.append(turn.jobs[0])
        self._start()
        for job, outcome in zip(turn.jobs, outcomes, strict=True):
            if job.answer.done():  # cancelled: nobody waits for it any more
                continue
            if self._ending and not isinstance(outcome, dict):
                job.answer.set_exception(ending())
            elif isinstance(outcome, Exception):
                job.answer.set_exception(outcome)
            elif outcome is not None:
                job.answer.set_result(outcome)

    # -- in the threads -----------------------------------------------------------------------------------------------

    def _serve(self, inbox: Inbox) -> None:
        while (turn := inbox.get()) is not None:
            outcomes = self._outcomes(turn)
            try:
                self._loop.call_soon_threadsafe(self._finish, inbox, turn, outcomes)
            except RuntimeError:  # the loop was closed without waiting for us
                return
            del turn, outcomes  # an idle thread holds on to nothing

    def _outcomes(self, turn: _Turn) -> list[Outcome]:
        if len(turn.jobs) > 1:
            rows = [job.rows for job in turn.jobs]
            self._observe(sum(rows))
            try:
                return list(turn.model.run_together([job.inputs for job in turn.jobs], rows, turn.options))
            except Exception:  # whichever of them it was, the others must not suffer
                return [self._outcome(turn, job) for job in turn.jobs]
        if not self._is_large(turn.jobs[0]):
            self._observe(max(turn.jobs[0].rows, 1))
        return [self._outcome(turn, turn.jobs[0])]

    def _outcome(self, turn: _Turn, job: _Job) -> Outcome:
        try:
            return self._slices(turn, job) if self._is_large(job) else turn.model.run(job.inputs, turn.options)
        except Exception as error:
            return error

    def _slices(self, turn: _Turn, job: _Job) -> Tensors | None:
        """Run slices of a large request until all are run, or somebody waits for the thread, or nobody for them."""
        while True:
            start = len(job.parts) * self._batch
            end = min(start + self._batch, job.rows)
            self._observe(end - start)
            part = {name: tensor[start:end] for name, tensor in job.inputs.items()}
            job.parts.append(turn.model.run(part, turn.options))
            if end == job.rows:
                return turn.model.joined(job.parts, job.rows)
            if self._waiting or self._begun or self._ending or job.answer.done():
                return None
