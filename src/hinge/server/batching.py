"""Runs a model in threads, and joins the requests that arrive while all threads are busy into batches.

A request that finds a thread free starts at once. Those that find none are queued, and the next free thread runs all of
them that fit into one batch. If a batch fails, its requests are run one by one, so that each is answered for itself.

A request with more rows than a batch is run in slices; between two slices, queued requests have a turn. A request that
is cancelled leaves the queue, or is terminated where it runs.

A model that has proved quick is run in the event loop: to hand a request to a thread and back takes longer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from time import thread_time
from typing import TYPE_CHECKING, Any, TypeAlias

from hinge.oip.tensors import Tensor
from hinge.server.connections import shutting_down

if TYPE_CHECKING:
    from hinge.server.models import Model

QUICK_S = 0.002  # of processor time, for a run in the event loop: others wait for it
QUICK_RUNS = 16  # that must have been quick before, and a hundred times as many after one that was not

Tensors = Mapping[str, Tensor]
Form = tuple[tuple[str, tuple[int, ...]], ...]
Outcome = Tensors | Exception | None  # None: there is more of it to run


@dataclass(eq=False, slots=True)
class _Job:
    inputs: Tensors
    rows: int  # 0: neither joined nor sliced
    form: Form  # names and shapes of what makes a row; jobs of the same form can be joined
    answer: asyncio.Future[Tensors]
    model: Model | None = None  # the one that has begun with it: all slices are run on the same
    parts: list[Tensors] = field(default_factory=list)  # outputs of the slices that were run


@dataclass(eq=False, slots=True)
class _Turn:
    """What a thread is given: jobs to be run together, or one, of which it runs slices until others are queued."""

    model: Model
    jobs: list[_Job]
    options: Any


Inbox: TypeAlias = "SimpleQueue[_Turn | None]"


class Batcher:
    """The queue before a model. Only the runs happen in threads; all else in the event loop that it was made in."""

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
        self._closing = False
        self._quick = 0  # runs since one that was not quick
        self._soon = False  # whether the event loop will run what is queued
        self._threads = [
            threading.Thread(target=self._serve, args=(inbox,), name="model", daemon=True) for inbox in self._inboxes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """How many requests wait that have not begun."""
        return len(self._waiting)

    def replace(self, model: Model) -> None:
        """Run the next requests on another model."""
        self.model, self._quick = model, 0

    def run(self, inputs: Tensors) -> asyncio.Future[Tensors]:
        """The outputs, in a future that may be cancelled."""
        sizes = {tensor.shape[0] for tensor in inputs.values()} if self.model.batchable and self._batch > 1 else ()
        rows = next(iter(sizes)) if len(sizes) == 1 else 0
        form = tuple((name, tensor.shape[1:]) for name, tensor in inputs.items()) if rows else ()
        job = _Job(inputs, rows, form, self._loop.create_future())
        if self._closing:
            job.answer.set_exception(shutting_down())
            return job.answer
        job.answer.add_done_callback(partial(self._drop, job))
        self._waiting.append(job)
        if self._quick < QUICK_RUNS or rows > 1 or self._turns or not self.model.same_rows:
            self._start()
        elif not self._soon:  # those that arrive in the same turn of the event loop join it
            self._soon = True
            self._loop.call_soon(self._run_here)
        return job.answer

    def abandon(self) -> None:
        """Refuse what is queued, and terminate what is running."""
        self._closing = True
        for turn in self._turns:
            turn.options.terminate = True
        waiting = [*self._waiting, *self._begun]
        self._waiting.clear()
        self._begun.clear()
        for job in waiting:
            if not job.answer.done():
                job.answer.set_exception(shutting_down())

    def close(self) -> None:
        """Stop the threads. (A process that ends while one of them is in the middle of a run would crash.)"""
        self.abandon()
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _drop(self, job: _Job, answer: asyncio.Future[Tensors]) -> None:
        """Remove a job that was cancelled."""
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

    def _run_here(self) -> None:
        """Run what is queued in the event loop, unless some of it may take long or a thread is running the model."""
        self._soon = False
        while self._waiting and not self._turns and self._quick >= QUICK_RUNS and self._waiting[0].rows <= 1:
            turn = self._next()
            self._deliver(turn, self._outcomes(turn))
        self._start()

    def _next(self) -> _Turn:
        """Queued jobs, and large ones that have begun, take turns."""
        begun = bool(self._begun) and (self._begun_next or not self._waiting)
        first = (self._begun if begun else self._waiting).popleft()
        self._begun_next = not self._is_large(first)
        first.model = first.model or self.model
        return _Turn(first.model, [first, *self._joinable(first)], first.model.run_options())

    def _joinable(self, first: _Job) -> list[_Job]:
        """The jobs of the queue that can be run together with the first; they leave the queue."""
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
        if outcomes[0] is None and not self._closing and not turn.jobs[0].answer.done():
            self._begun.append(turn.jobs[0])
        self._start()
        self._deliver(turn, outcomes)

    def _deliver(self, turn: _Turn, outcomes: list[Outcome]) -> None:
        for job, outcome in zip(turn.jobs, outcomes, strict=True):
            if job.answer.done():  # cancelled
                continue
            if self._closing and (outcome is None or isinstance(outcome, Exception)):
                job.answer.set_exception(shutting_down())
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
            except RuntimeError:  # the loop was closed without waiting for this thread
                return
            del turn, outcomes  # an idle thread keeps no tensors

    def _outcomes(self, turn: _Turn) -> list[Outcome]:
        start = thread_time()
        outcomes = self._run_turn(turn)
        quick = thread_time() - start < QUICK_S
        self._quick = min(self._quick + 1, QUICK_RUNS) if quick else -100 * QUICK_RUNS
        return outcomes

    def _run_turn(self, turn: _Turn) -> list[Outcome]:
        if len(turn.jobs) > 1:
            rows = [job.rows for job in turn.jobs]
            self._observe(sum(rows))
            try:
                return list(turn.model.run_together([job.inputs for job in turn.jobs], rows, turn.options))
            except Exception:  # one of them may be at fault: the others are run without it
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
        """Run slices of a large job until it is done or cancelled, or others are queued."""
        while True:
            start = len(job.parts) * self._batch
            end = min(start + self._batch, job.rows)
            self._observe(end - start)
            part = {name: tensor[start:end] for name, tensor in job.inputs.items()}
            job.parts.append(turn.model.run(part, turn.options))
            if end == job.rows:
                return turn.model.joined(job.parts, job.rows)
            if self._waiting or self._begun or self._closing or job.answer.done():
                return None
