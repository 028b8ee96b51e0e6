"""A device for an event loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from hinge.device.answer import Answer
from hinge.device.device import BaseDevice, Part
from hinge.device.offload import Judged
from hinge.device.store import Store
from hinge.gate import Gate
from hinge.models import digest_of_local
from hinge.remotes import Deadline
from hinge.remotes.adapters import for_event_loop

INLINE_S = 0.002  # a local model that takes longer runs in a worker thread: handing over takes 0.1 to 0.2 ms
_WEIGHT = 0.2  # of the last call, in the running mean of how long the local model takes

T = TypeVar("T")


class AsyncDevice(BaseDevice):
    """A `Device` whose `infer` and `infer_many` are awaited; it takes the same parameters.

    The local model runs in the event loop if it is quick, and in worker threads if it takes more than two milliseconds:
    else it would delay every other task, and make remotes late that are not.

    >>> async def main():
    ...     local, remote = lambda sample: [0.0, sample], lambda sample: int(sample > 1)
    ...     async with AsyncDevice(local, remote, offload_cost=0.5) as device:
    ...         return await device.infer(3.0)
    >>> asyncio.run(main())
    Answer(label=1, source='remote', confidence=0.9526, offloaded=True, cost=0.5)
    """

    _remote: Any
    _local_s: float | None = None  # how long the local model takes for one sample
    _workers: ThreadPoolExecutor | None = None

    def _keeping_the_deadline(self, remote: Any) -> Any:
        return for_event_loop(remote)

    def _store_in(self, folder: str | Path, gate: Gate) -> Store:
        # No disk is waited for in the event loop.
        return Store(folder, gate, background=True, local=digest_of_local(self._local))

    async def infer(self, sample: Any, deadline: Deadline | None = None) -> Answer:
        """The answer to one sample; by an earlier deadline than the device's own, if one is given."""
        if self._closed or self._process != self._made_in:
            raise self._unusable()
        label, confidence = await self._run_local(self._local.answer, sample, 1)
        group = self._group(confidence)
        try:
            decision = self._store.decide(confidence, None if self._forecast is None else self._expected_cost(sample))
        except Exception as error:  # of any kind: there is a local answer
            return self._undecided(label, confidence, group, error)
        if not decision.offload and self._shadow != "remote":
            return self._accept(label, confidence, group, decision)
        judged = Judged(label, confidence, group, decision)
        if self._shadow == "local":
            self._ask_in_background(sample, judged)
            return self._accepted(judged)
        return (await self._offloader.ask_async(self._remote, [sample], [judged], deadline))[0]

    async def infer_many(
        self, samples: Iterable[Any], *, together: bool = False, deadline: Deadline | None = None
    ) -> list[Answer]:
        """The answers to many samples, in their order and in rounds, as `Device.infer_many` gives them."""
        if self._closed or self._process != self._made_in:
            raise self._unusable()
        everything, answers = list(samples), list[Answer]()
        found = await self._run_local(self._local.answer_many, everything, len(everything))
        for part, judged in self._rounds(everything, found, together):
            requests = self._parts(part, judged)
            answers += self._merged(judged, requests, await self._ask_all(requests, deadline))
            for sample, each in zip(part, judged, strict=True):
                if each.decision.offload and not self._waits(each):
                    self._ask_in_background(sample, each)
        return answers

    async def close(self) -> None:
        """Wait for requests in flight, a deadline at most, then close the remote and the state."""
        self._closed = True
        if self._process != self._made_in:
            return  # all that there is to close belongs to the process that made it
        try:
            await asyncio.gather(*self._tasks_here(), return_exceptions=True)
            await self._offloader.drain_async()
        finally:  # also where who closes it waits no longer
            if self._workers is not None:
                self._workers.shutdown(wait=False)
            await asyncio.to_thread(self._store.close)  # which waits for the disk
            await self._remote.close_async()

    async def __aenter__(self) -> AsyncDevice:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run_local(self, function: Callable[[Any], T], argument: Any, samples: int) -> T:
        """Run the local model here, or in a worker thread if it is expected to take long, or its time is not known."""
        if self._local_s is not None and self._local_s * samples < INLINE_S:
            return self._timed(function, argument, samples)
        if self._workers is None:
            self._workers = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="hinge-local")
        try:
            loop = asyncio.get_running_loop()
            waiting = loop.run_in_executor(self._workers, self._timed, function, argument, samples)
        except RuntimeError:  # the system has no thread left
            return self._timed(function, argument, samples)
        return await waiting

    def _timed(self, function: Callable[[Any], T], argument: Any, samples: int) -> T:
        began = time.perf_counter()
        result = function(argument)
        took_s = (time.perf_counter() - began) / max(1, samples)
        self._local_s = took_s if self._local_s is None else self._local_s + _WEIGHT * (took_s - self._local_s)
        return result

    async def _ask_all(self, parts: list[Part], deadline: Deadline | None) -> list[list[Answer]]:
        turns = asyncio.Semaphore(self._in_flight)  # the deadline of each begins with its turn
        begun = set[int]()

        async def ask(number: int, part: Part) -> list[Answer]:
            async with turns:
                begun.add(number)
                return await self._offloader.ask_async(self._remote, part[1], part[2], deadline)

        tasks = [asyncio.create_task(ask(*each)) for each in enumerate(parts)]
        try:
            return await asyncio.gather(*tasks)
        finally:  # cancelled, there are parts that have not begun
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for number, (_, _, judged) in enumerate(parts):
                if number not in begun:
                    self._offloader.cancel(judged)

    def _ask_in_background(self, sample: Any, judged: Judged) -> None:
        """Ask the remote while the caller goes on; not at all, if too much is waiting already."""
        if len(self._tasks_here()) >= 4 * self._in_flight:
            self._offloader.cancel([judged])
            return

        async def ask() -> None:
            self._status.answered_behind(await self._offloader.ask_async(self._remote, [sample], [judged]))

        task = asyncio.create_task(ask())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _tasks_here(self) -> list[asyncio.Task[None]]:
        """The background tasks of the running event loop; those of a loop that ended, ended with it."""
        loop = asyncio.get_running_loop()
        self._background = {task for task in self._background if task.get_loop() is loop}
        return list(self._background)
