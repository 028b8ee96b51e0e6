"""A device for an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from hinge.device.answer import Answer
from hinge.device.device import Core
from hinge.device.offload import Judged, Offload
from hinge.remotes import AsyncRemote, Deadline, Remote
from hinge.remotes.function import Called, InThreads


class AsyncDevice(Core):
    """A `Device` whose `infer` and `infer_many` are awaited; it takes the same parameters.

    The local model runs in the event loop itself, as it takes less time than handing it to a thread would.

    >>> from hinge import Isotonic
    >>> async def main():
    ...     policy = Isotonic(bins=16, offload_cost=0.5)
    ...     async with AsyncDevice(lambda sample: [0.0, sample], lambda sample: int(sample > 1), policy) as device:
    ...         return await device.infer(3.0)
    >>> asyncio.run(main())
    Answer(label=1, source='remote', confidence=0.9526, bin=15, offloaded=True, cost=0.5)
    """

    def _asked(self, remote: Any) -> Any:
        if isinstance(remote, AsyncRemote):
            return remote
        if isinstance(remote, Remote):
            return InThreads(remote)
        if callable(remote):
            return Called(remote, self._in_flight)
        raise TypeError(f"AsyncDevice: remote must be a remote or a function from sample to label, got {remote!r}")

    def _prepare(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Semaphore(self._in_flight)
        self._behind: set[asyncio.Task[list[Answer]]] = set()

    async def infer(self, sample: Any) -> Answer:
        """The answer to one sample."""
        judged = self._judge(sample)
        if self._waits(judged):
            return (await self._ask(self._offload([sample], [judged])))[0]
        if judged.decision.offload:
            self._ask_behind(sample, judged)
        return self._accepted(judged)

    async def infer_many(self, samples: Iterable[Any]) -> list[Answer]:
        """The answers to many samples, which are decided together: none of them learns from another."""
        everything = list(samples)
        judged = self._judge_many(everything)
        offloads = self._offloads(everything, judged)
        turns = asyncio.Semaphore(self._in_flight)  # the time of each begins with its turn

        async def ask(offload: Offload) -> list[Answer]:
            async with turns:
                return await self._ask(offload)

        try:
            results = await asyncio.gather(*(ask(offload) for _, offload in offloads))
        finally:  # cancelled, there are some that have not begun
            for _, offload in offloads:
                offload.give_up(time.monotonic())
        answers = self._placed(judged, offloads, results)
        for sample, each in zip(everything, judged, strict=True):
            if each.decision.offload and not self._waits(each):
                self._ask_behind(sample, each)
        return answers

    async def close(self) -> None:
        """Finish what is under way, and let go of the remote and of the folder."""
        self._closed = True
        try:
            await asyncio.gather(*self._behind, return_exceptions=True)
            await self._remote.close_async()
        finally:
            self._keeper.close()

    async def __aenter__(self) -> AsyncDevice:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, offload: Offload) -> list[Answer]:
        deadline = offload.start(time.monotonic())
        room = self._room_here()
        try:
            try:
                await asyncio.wait_for(room.acquire(), deadline.left(time.monotonic()))
            except TimeoutError:
                return offload.fall_back(time.monotonic())
            try:
                return await self._ask_now(offload, deadline)
            finally:
                room.release()
        finally:
            offload.give_up(time.monotonic())  # if it was cancelled

    async def _ask_now(self, offload: Offload, deadline: Deadline) -> list[Answer]:
        asking = offload.begin(time.monotonic())
        while asking:
            try:
                return offload.settle(await self._remote.ask_async(offload.samples, deadline), time.monotonic())
            except Exception as fault:  # whatever it is, there is a local answer
                asking = offload.again(fault, time.monotonic())
        return offload.fall_back(time.monotonic())

    def _room_here(self) -> asyncio.Semaphore:
        """Room for requests in the event loop that runs; one that is over took its requests with it."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._room, self._behind = loop, asyncio.Semaphore(self._in_flight), set()
        return self._room

    def _ask_behind(self, sample: Any, judged: Judged) -> None:
        """Ask the remote while the caller goes on; if too much is waiting already, not at all."""
        offload = self._offload([sample], [judged])
        self._room_here()
        if len(self._behind) >= 4 * self._in_flight:
            offload.give_up(time.monotonic())
            return
        task = asyncio.create_task(self._ask(offload))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
