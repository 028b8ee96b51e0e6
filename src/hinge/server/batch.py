"""The queue before a model: requests that find it busy are run together.

A request that finds a thread free starts at once. Those that find none are queued, and the next free thread runs all of
them that fit into one batch. If a batch fails, its requests are run one by one, so that each is answered for itself. A
request with more rows than a batch is run in slices. One that is cancelled leaves the queue, or is terminated where it
runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from hinge.server.models import Model, Tensors

Form = tuple[tuple[str, tuple[int, ...]], ...]
Outcome = Tensors | Exception


@dataclass(eq=False, slots=True)
class _Job:
    inputs: Tensors
    rows: int  # 0: neither joined nor sliced
    form: Form  # names and shapes of what makes a row; jobs of the same form can be joined
    answer: asyncio.Future[Tensors]


@dataclass(eq=False, slots=True)
class _Turn:
    """Jobs that a thread runs together."""

    jobs: list[_Job]
    options: Any


class Batcher:
    """The queue before a model. Only the runs happen in threads; all else in the event loop that it is used in."""

    def __init__(self, model: Model, *, workers: int, batch: int, observe: Callable[[float], None]) -> None:
        self._model, self._workers, self._batch, self._observe = model, workers, batch, observe
        self._waiting: deque[_Job] = deque()
        self._turns: set[_Turn] = set()  # what runs
        self._pool = ThreadPoolExecutor(workers, "model")

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def run(self, inputs: Tensors) -> asyncio.Future[Tensors]:
        """The outputs, in a future that may be cancelled."""
        sizes = {tensor.shape[0] for tensor in inputs.values()} if self._model.batchable and self._batch > 1 else set()
        rows = sizes.pop() if len(sizes) == 1 else 0
        form = tuple((name, tensor.shape[1:]) for name, tensor in inputs.items()) if rows else ()
        job = _Job(inputs, rows, form, asyncio.get_running_loop().create_future())
        job.answer.add_done_callback(partial(self._drop, job))
        self._waiting.append(job)
        self._start()
        return job.answer

    def close(self) -> None:
        """Cancel what is queued, terminate what is running, and stop the threads."""
        for job in [*self._waiting, *(job for turn in self._turns for job in turn.jobs)]:
            job.answer.cancel()
        for turn in self._turns:
            turn.options.terminate = True
        self._pool.shutdown(cancel_futures=True)

    def _drop(self, job: _Job, answer: asyncio.Future[Tensors]) -> None:
        if answer.cancelled() and job in self._waiting:
            self._waiting.remove(job)
        for turn in self._turns:
            if answer.cancelled() and job in turn.jobs and all(each.answer.done() for each in turn.jobs):
                turn.options.terminate = True

    def _start(self) -> None:
        while self._waiting and len(self._turns) < self._workers:
            turn = _Turn(self._next(), self._model.run_options())
            self._turns.add(turn)
            running = asyncio.get_running_loop().run_in_executor(self._pool, self._outcomes, turn)
            running.add_done_callback(partial(self._finish, turn))

    def _next(self) -> list[_Job]:
        """The first job of the queue, and those that can be run together with it."""
        first = self._waiting.popleft()
        jobs, rows, left = [first], first.rows, deque[_Job]()
        for job in self._waiting:
            if first.rows and job.form == first.form and rows + job.rows <= self._batch:
                jobs.append(job)
                rows += job.rows
            else:
                left.append(job)
        self._waiting = left
        return jobs

    def _finish(self, turn: _Turn, running: asyncio.Future[list[Outcome]]) -> None:
        self._turns.discard(turn)
        if running.cancelled():
            return
        self._start()
        for job, outcome in zip(turn.jobs, running.result(), strict=True):
            if job.answer.done():  # cancelled
                continue
            if isinstance(outcome, Exception):
                job.answer.set_exception(outcome)
            else:
                job.answer.set_result(outcome)

    # -- in the threads -----------------------------------------------------------------------------------------------

    def _outcomes(self, turn: _Turn) -> list[Outcome]:
        if len(turn.jobs) > 1:
            rows = [job.rows for job in turn.jobs]
            self._observe(sum(rows))
            try:
                return list(self._model.run_together([job.inputs for job in turn.jobs], rows, turn.options))
            except Exception:  # one of them may be at fault: the others are run without it
                pass
        return [self._outcome(job, turn.options) for job in turn.jobs]

    def _outcome(self, job: _Job, options: Any) -> Outcome:
        try:
            if job.rows <= self._batch:
                self._observe(max(job.rows, 1))
                return self._model.run(job.inputs, options)
            parts = []
            for start in range(0, job.rows, self._batch):
                if options.terminate:
                    raise InterruptedError("nobody waits for it")
                part = {name: tensor[start : start + self._batch] for name, tensor in job.inputs.items()}
                self._observe(min(self._batch, job.rows - start))
                parts.append(self._model.run(part, options))
            return self._model.joined(parts, job.rows)
        except Exception as error:
            return error
