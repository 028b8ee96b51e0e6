"""A device for an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from hinge.gate.answer import Answer
from hinge.gate.core import Core
from hinge.gate.offload import Judged, Offload


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

    def _prepare(self) -> None:
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
        room = asyncio.Semaphore(self._in_flight)

        async def ask(offload: Offload) -> list[Answer]:
            async with room:
                return await self._ask(offload)

        offloads = self._offloads(everything, judged)
        results = await asyncio.gather(*(ask(offload) for _, offload in offloads))
        answers = self._placed(judged, offloads, results)
        for sample, each in zip(everything, judged, strict=True):
            if each.decision.offload and not self._waits(each):
                self._ask_behind(sample, each)
        return answers

    async def close(self) -> None:
        """Finish what is under way, and let go of the remote and of the folder."""
        await asyncio.gather(*self._behind)
        await self._remote.close_async()
        self._keeper.close()

    async def __aenter__(self) -> AsyncDevice:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, offload: Offload) -> list[Answer]:
        asking = offload.begin(time.monotonic())
        while asking:
            try:
                reply = await self._remote.ask_async(offload.samples, offload.deadline)
                return offload.settle(reply, time.monotonic())
            except Exception as fault:  # whatever it is, there is a local answer
                asking = offload.again(fault, time.monotonic())
            except BaseException:  # cancelled, that is
                offload.give_up(time.monotonic())
                raise
        return offload.fall_back(time.monotonic())

    def _ask_behind(self, sample: Any, judged: Judged) -> None:
        """Ask the remote while the caller goes on; if too much is waiting already, not at all."""
        offload = self._offload([sample], [judged])
        if len(self._behind) >= 4 * self._in_flight:
            offload.give_up(time.monotonic())
            return
        task = asyncio.create_task(self._ask(offload))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
