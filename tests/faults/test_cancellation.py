"""A cancelled task ends, in a task group and at shutdown too, and leaves no permit taken and no decision pending."""

import asyncio
import time
from typing import Any

import pytest

from hinge import AsyncDevice
from tests.faults.setting import always


async def quick(sample: Any) -> int:
    await asyncio.sleep(0)
    return 1


@pytest.mark.parametrize("remote", [quick, lambda _: 1], ids=["coroutine", "function"])
def test_a_cancelled_loop_of_offloads_ends(remote: Any) -> None:
    async def main() -> int:
        survivors = 0
        async with always(AsyncDevice, remote) as device:
            for turn in range(100):

                async def forever() -> None:
                    while True:
                        await device.infer(1.0)

                task = asyncio.create_task(forever())
                for _ in range(turn % 13):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=0.5)
                survivors += not done
                while not task.done():  # or this program would never end
                    task.cancel()
                    await asyncio.wait([task], timeout=0.01)
            assert device.breaker.counts.under_way == 0
            assert device.policy.state()["pending"] == []
        return survivors

    survivors = asyncio.run(main())
    assert survivors == 0


def test_a_task_group_with_an_error_ends_its_offloads() -> None:
    async def main() -> None:
        async with always(AsyncDevice, quick, in_flight=1) as device:

            async def forever() -> None:
                while True:
                    await device.infer(1.0)

            async def fails() -> None:
                await asyncio.sleep(0.02)
                raise LookupError

            async def together() -> None:
                async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                    for _ in range(4):
                        group.create_task(forever())
                    group.create_task(fails())

            for _ in range(10):
                with pytest.raises(ExceptionGroup):
                    await together()

    asyncio.run(main())


def test_an_event_loop_shuts_down_amid_offloads() -> None:
    async def main() -> None:
        device = always(AsyncDevice, quick, in_flight=2)

        async def forever() -> None:
            while True:
                await device.infer(1.0)

        tasks = [asyncio.create_task(forever()) for _ in range(8)]
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in tasks)

    for _ in range(10):
        began = time.monotonic()
        asyncio.run(main())  # cancels what still runs, and waits for it
        assert time.monotonic() - began < 5
