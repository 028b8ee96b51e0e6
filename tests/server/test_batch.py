"""Requests that arrive while a model is busy are run together, each gets its own answer, and none waits for company."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from onnxruntime import RunOptions

from hinge.oip.tensors import TensorSpec
from hinge.server.batch import Batcher
from hinge.server.models import Model

SPECS = (TensorSpec("x", "FP32", (-1, -1)),)
WAIT_S = 20.0
Job = Callable[[Batcher, "Gate"], Awaitable[None]]


class Gate:
    """Stands in for a session: doubles its input once it is let through, and fails on negative numbers."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.runs: list[int] = []

    def run(self, _: Any, inputs: dict[str, Any], options: Any) -> list[Any]:
        self.runs.append(len(inputs["x"]))
        self.entered.set()
        assert self.open.wait(WAIT_S)
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return [2 * inputs["x"]]


def drive(job: Job, *, batch: int = 8, workers: int = 1, batchable: bool = True) -> tuple[list[int], list[float]]:
    """Let a job use a batcher; returns the rows of each run, and those that were observed."""
    gate, observed = Gate(), list[float]()

    async def main() -> None:
        model = Model(gate, SPECS, (TensorSpec("y", "FP32", (-1, -1)),), batchable, RunOptions)
        batcher = Batcher(model, workers=workers, batch=batch, observe=observed.append)
        try:
            await asyncio.wait_for(job(batcher, gate), WAIT_S)
        finally:
            gate.open.set()
            batcher.close()

    asyncio.run(main())
    return gate.runs, observed


async def busy(batcher: Batcher, gate: Gate) -> "asyncio.Future[Any]":
    """A first request, which keeps the model busy until the gate is opened."""
    first = batcher.run(row(1))
    await asyncio.to_thread(gate.entered.wait, WAIT_S)
    return first


def row(*values: float, width: int = 1) -> dict[str, Any]:
    return {"x": np.repeat(np.array(values, np.float32)[:, None], width, axis=1)}


async def values(answer: "asyncio.Future[Any]") -> Any:
    return (await answer)["y"][:, 0].tolist()


def test_requests_that_wait_are_run_together_and_parted_rightly() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        first = await busy(batcher, gate)
        others = [batcher.run(row(10)), batcher.run(row(20, 21)), batcher.run(row(30))]
        assert batcher.queued == 3
        gate.open.set()
        assert [await values(answer) for answer in (first, *others)] == [[2], [20], [40, 42], [60]]

    assert drive(job) == ([1, 4], [1, 4])


def test_a_batch_has_no_more_rows_than_it_may() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        await busy(batcher, gate)
        answers = [batcher.run(row(n, n)) for n in range(5)]
        gate.open.set()
        assert [await values(answer) for answer in answers] == [[2 * n, 2 * n] for n in range(5)]

    assert drive(job, batch=4)[0] == [1, 4, 4, 2]


def test_a_request_with_more_rows_than_a_batch_is_run_in_parts() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        gate.open.set()
        assert await values(batcher.run(row(*range(10)))) == [2 * n for n in range(10)]

    assert drive(job, batch=4)[0] == [4, 4, 2]


def test_only_rows_of_one_shape_are_joined_and_order_is_kept() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        await busy(batcher, gate)
        answers = [batcher.run(row(n, width=1 + n % 2)) for n in range(4)]
        gate.open.set()
        assert [await values(answer) for answer in answers] == [[0], [2], [4], [6]]

    assert drive(job)[0] == [1, 2, 2]


def test_a_poisoned_request_fails_alone() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        await busy(batcher, gate)
        answers = [batcher.run(row(value)) for value in (1, -1, 3)]
        gate.open.set()
        assert await values(answers[0]) == [2]
        with pytest.raises(ValueError, match="negative"):
            await answers[1]
        assert await values(answers[2]) == [6]

    assert drive(job)[0] == [1, 3, 1, 1, 1]


@pytest.mark.parametrize(("batch", "batchable"), [(1, True), (8, False)])
def test_requests_run_alone_where_they_must(batch: int, batchable: bool) -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        await busy(batcher, gate)
        answers = [batcher.run(row(n, n)) for n in range(3)]
        gate.open.set()
        assert [await values(answer) for answer in answers] == [[2 * n, 2 * n] for n in range(3)]

    assert drive(job, batch=batch, batchable=batchable)[0] == [1, 2, 2, 2]


def test_workers_run_at_the_same_time() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        await busy(batcher, gate)
        gate.entered.clear()
        second = batcher.run(row(2))
        assert await asyncio.to_thread(gate.entered.wait, WAIT_S)
        assert batcher.queued == 0
        gate.open.set()
        assert await values(second) == [4]

    assert drive(job, workers=2)[0] == [1, 1]


# -- large requests, and those that nobody waits for ------------------------------------------------------------------


class Steps(Gate):
    """Lets one run through at a time, and remembers what each was of."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []
        self.steps = threading.Semaphore(0)
        self.options: list[Any] = []

    def run(self, _: Any, inputs: dict[str, Any], options: Any) -> list[Any]:
        self.seen.append(float(inputs["x"][0, 0]))
        self.options.append(options)
        self.entered.set()
        assert self.steps.acquire(timeout=WAIT_S)
        return [2 * inputs["x"]]


async def until(condition: Callable[[], bool]) -> None:
    end = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.001)


def stepwise(job: Callable[[Batcher, Steps], Awaitable[None]], *, batchable: bool = True) -> list[float]:
    """Let a job use a batcher of one thread; returns the first number of each run."""
    steps = Steps()

    async def main() -> None:
        model = Model(steps, SPECS, (TensorSpec("y", "FP32", (-1, -1)),), batchable, RunOptions)
        batcher = Batcher(model, workers=1, batch=2, observe=lambda _: None)
        try:
            await asyncio.wait_for(job(batcher, steps), WAIT_S)
        finally:
            steps.steps.release(1000)
            batcher.close()

    asyncio.run(main())
    return steps.seen


def test_what_is_cancelled_while_it_waits_is_never_run_and_not_kept() -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        first = batcher.run(row(1))
        await until(lambda: steps.seen == [1])
        waiting = [batcher.run(row(n, n)) for n in (2, 3)]
        assert batcher.queued == 2
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert batcher.queued == 1
        steps.steps.release(2)
        assert [await values(first), await values(waiting[1])] == [[2], [6, 6]]

    assert stepwise(job) == [1, 3]


@pytest.mark.parametrize("batchable", [True, False])
def test_a_run_is_ended_once_nobody_waits_for_it(batchable: bool) -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        first = batcher.run(row(1, 2, 3))
        await until(lambda: steps.seen == [1])
        assert not steps.options[0].terminate
        first.cancel()
        await asyncio.sleep(0)
        assert steps.options[0].terminate
        second = batcher.run(row(5))
        steps.steps.release(2)
        assert await values(second) == [10]
        assert not steps.options[1].terminate

    assert stepwise(job, batchable=batchable) == [1, 5]


def test_a_batcher_that_is_closed_cancels_what_waits_and_ends_what_runs() -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        running = batcher.run(row(*range(100)))
        await until(lambda: steps.seen == [0])
        waiting = batcher.run(row(1))
        steps.steps.release(1000)
        batcher.close()
        await asyncio.wait((running, waiting))
        assert running.cancelled()
        assert waiting.cancelled()

    seen = stepwise(job)
    assert 1 not in seen
