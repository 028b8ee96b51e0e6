"""R12: the deadline holds for remotes of the user's own, and a slow local model delays no other answer."""

import asyncio
import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from hinge import AsyncDevice, FixedCost, Gate
from hinge.device import async_device
from hinge.policies import AlwaysRemote
from hinge.remotes import Deadline, Reply
from tests.device.worlds import KINDS, InLoop, policy
from tests.faults.setting import always


class Sleeping:
    """A user's remote that heeds no deadline."""

    def ask(self, samples: Any, deadline: Deadline) -> Reply:
        time.sleep(1.5)
        return Reply([0] * len(samples))

    def close(self) -> None:
        """Nothing is kept open."""


class Stubborn:
    """The same for an event loop: it heeds no cancellation either."""

    async def ask_async(self, samples: Any, deadline: Deadline) -> Reply:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return Reply([0] * len(samples))

    async def close_async(self) -> None:
        """Nothing is kept open."""


@pytest.mark.parametrize(
    ("kind", "remote"),
    [(KINDS[0], Sleeping()), (KINDS[1], Sleeping()), (KINDS[1], Stubborn())],
    ids=["threads", "event loop", "a coroutine that heeds no cancellation"],
)
def test_r12_the_deadline_holds_for_a_users_remote_that_does_not_keep_it(kind: Any, remote: Any) -> None:
    with always(kind, remote, deadline_s=0.1) as device:
        began = time.monotonic()
        answer = device.infer(1.0)
        assert time.monotonic() - began < 1.0
        assert (answer.source, answer.fault) == ("local", "no answer in time")
        began = time.monotonic()
        assert {answer.source for answer in device.infer_many([1.0] * 3)} == {"local"}
        assert time.monotonic() - began < 1.0


def test_r12_a_slow_local_model_delays_no_other_answer() -> None:
    def slow(sample: float) -> list[float]:
        time.sleep(0.05)
        return [0.0, sample]

    async def healthy(sample: float) -> int:
        await asyncio.sleep(0.005)
        return 1

    async def main() -> None:
        gate = Gate(AlwaysRemote(bins=16))
        late, over = list[float](), asyncio.Event()

        async def tick() -> None:
            while not over.is_set():
                began = time.monotonic()
                await asyncio.sleep(0.005)
                late.append(time.monotonic() - began - 0.005)

        async with AsyncDevice(slow, healthy, gate, price=FixedCost(0.5), deadline_s=0.2) as device:
            ticking = asyncio.create_task(tick())
            for _ in range(3):
                answers = await asyncio.gather(*(device.infer(1.0) for _ in range(20)))
                assert {answer.source for answer in answers} == {"remote"}
            over.set()
            await ticking
            assert device.status.breaker == "closed"
        assert sorted(late)[len(late) // 2] < 0.04, "the event loop ran beside the local model"

    asyncio.run(main())


def test_r12_a_quick_local_model_runs_in_the_event_loop() -> None:
    threads = set[int]()

    def local(sample: float) -> list[float]:
        threads.add(threading.get_ident())
        return [0.0, sample]

    with InLoop(local, lambda _: 1, policy(), deadline_s=30) as device:
        for _ in range(50):
            device.infer(3.0)
        threads.clear()
        device.infer(3.0)
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize(("took_s", "here"), [(0.0015, True), (0.0025, False)])
def test_r12_a_local_model_of_up_to_two_milliseconds_is_not_handed_over(
    took_s: float, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, clock = set[int](), itertools.count(0.0, took_s)
    monkeypatch.setattr(async_device, "time", SimpleNamespace(perf_counter=lambda: next(clock)))

    def local(sample: float) -> list[float]:
        threads.add(threading.get_ident())
        return [0.0, sample]

    with InLoop(local, lambda _: 1, policy(), deadline_s=30) as device:
        device.infer(3.0)  # the first is timed in a worker thread
        threads.clear()
        device.infer(3.0)
    assert (threads == {threading.get_ident()}) == here
