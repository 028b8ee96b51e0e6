"""Requests that arrive while a model is busy are run together, each gets its own answer, and none waits for company."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from onnxruntime import RunOptions

from hinge.oip.tensors import TensorSpec
from hinge.server import models as served_models
from hinge.server.connections import Refusal
from hinge.server.models import Batcher, Model

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


def test_an_idle_model_starts_at_once() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        gate.open.set()
        for value in (1.0, 2.0):
            assert await values(batcher.run(row(value))) == [2 * value]

    assert drive(job) == ([1, 1], [1, 1])


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


def test_a_request_that_nobody_waits_for_harms_nobody() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        first = await busy(batcher, gate)
        first.cancel()
        second = batcher.run(row(2))
        gate.open.set()
        assert await values(second) == [4]

    drive(job)


def test_what_is_abandoned_is_refused() -> None:
    async def job(batcher: Batcher, gate: Gate) -> None:
        first = await busy(batcher, gate)
        second = batcher.run(row(2))
        batcher.abandon()
        with pytest.raises(Refusal, match="shutting down"):
            await second
        gate.open.set()
        assert await values(first) == [2]  # it was done in time

    drive(job)


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


def test_a_small_request_waits_for_one_slice_of_a_large_one_and_both_are_answered() -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        large = batcher.run(row(*range(10)))
        await until(lambda: steps.seen == [0])
        small = batcher.run(row(100))
        steps.steps.release(2)
        assert await values(small) == [200]
        assert not large.done()
        steps.steps.release(4)
        assert await values(large) == [2 * n for n in range(10)]

    assert stepwise(job) == [0, 100, 2, 4, 6, 8]


def test_large_and_small_requests_take_turns() -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        large = [batcher.run(row(*range(start, start + 6))) for start in (0, 10)]
        await until(lambda: steps.seen == [0])
        small = [batcher.run(row(start, start)) for start in (100, 101, 102)]
        steps.steps.release(9)
        assert [await values(answer) for answer in small] == [[200, 200], [202, 202], [204, 204]]
        assert [(await values(answer))[::5] for answer in large] == [[0, 10], [20, 30]]

    assert stepwise(job) == [0, 10, 100, 2, 101, 12, 102, 4, 14]


def test_a_large_request_that_is_cancelled_is_run_no_further() -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        large = batcher.run(row(*range(100)))
        await until(lambda: steps.seen == [0])
        large.cancel()
        await asyncio.sleep(0)
        small = batcher.run(row(-1))
        steps.steps.release(2)
        assert await values(small) == [-2]

    assert stepwise(job) == [0, -1]


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


def test_all_slices_of_a_request_are_run_on_one_model() -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        large = batcher.run(row(*range(4)))
        await until(lambda: steps.seen == [0])
        batcher.model = Model(Gate(), SPECS, (TensorSpec("y", "FP32", (-1, -1)),), True, RunOptions)
        steps.steps.release(2)
        assert await values(large) == [0, 2, 4, 6]

    assert stepwise(job) == [0, 2]


def test_a_large_request_is_refused_in_the_middle_when_it_is_abandoned() -> None:
    async def job(batcher: Batcher, steps: Steps) -> None:
        large = batcher.run(row(*range(100)))
        await until(lambda: steps.seen == [0])
        batcher.abandon()
        steps.steps.release(1)
        with pytest.raises(Refusal, match="shutting down"):
            await large
        with pytest.raises(Refusal, match="shutting down"):
            await batcher.run(row(1))

    assert stepwise(job) == [0]


# -- quick models -----------------------------------------------------------------------------------------------------


class Burning:
    """Stands in for a session that takes so much processor time for a run, and for each row of it."""

    run_s = row_s = spent_s = 0.0

    def run(self, _: Any, inputs: dict[str, Any], options: Any) -> list[Any]:
        self.spent_s += self.run_s + self.row_s * len(inputs["x"])
        return [2 * inputs["x"]]


def proven(job: Callable[[Batcher, Burning], Awaitable[None]], batch: int = 64, batchable: bool = True) -> None:
    """Let a job use a batcher whose model has been quick many times."""
    session = Burning()

    async def main() -> None:
        inputs, outputs = (TensorSpec("x", "FP32", (-1, 1)),), (TensorSpec("y", "FP32", (-1, 1)),)
        model = Model(session, inputs, outputs, batchable, RunOptions)
        batcher = Batcher(model, workers=1, batch=batch, observe=lambda _: None)
        try:
            assert not batcher.run(row(1), alone=True).done(), "nothing is known of it yet"
            for _ in range(64):
                await batcher.run(row(1), alone=True)
            await job(batcher, session)
        finally:
            batcher.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served_models, "thread_time", lambda: session.spent_s)
        asyncio.run(main())


def test_a_quick_model_answers_a_lone_request_at_once() -> None:
    async def job(batcher: Batcher, _: Burning) -> None:
        assert await values(batcher.run(row(3), alone=True)) == [6]
        assert batcher.run(row(3), alone=True).done()

    proven(job)


def test_requests_that_come_together_join_in_the_event_loop_only_if_that_is_quick() -> None:
    async def job(batcher: Batcher, session: Burning) -> None:
        assert await values(batcher.run(row(1))) == [2]
        together = [batcher.run(row(n)) for n in range(8)]
        assert not any(answer.done() for answer in together)
        await asyncio.sleep(0)
        assert [answer.result()["y"][0, 0] for answer in together] == [2 * n for n in range(8)]
        session.row_s = 0.001
        await batcher.run(row(1), alone=True)
        together = [batcher.run(row(0))]
        assert batcher.queued == 0, "it waits for no others"
        together += [batcher.run(row(n)) for n in range(1, 8)]
        await asyncio.sleep(0)
        assert not any(answer.done() for answer in together), "a thread runs them"
        assert [await values(answer) for answer in together] == [[2 * n] for n in range(8)]

    proven(job)


def test_a_batch_that_takes_long_says_nothing_against_one_row() -> None:
    async def job(batcher: Batcher, session: Burning) -> None:
        session.row_s = 0.0005
        await batcher.run(row(*range(32)))
        assert batcher.run(row(3), alone=True).done()

    proven(job)


def test_a_batch_says_nothing_for_one_row() -> None:
    async def job(batcher: Batcher, session: Burning) -> None:
        session.run_s = 0.05
        await batcher.run(row(1), alone=True)  # which shows that it is slow
        for _ in range(2000):
            await batcher.run(row(*range(64)))
        assert not batcher.run(row(3), alone=True).done()

    proven(job)


@pytest.mark.parametrize(("batch", "batchable"), [(1, True), (64, False)])
def test_many_rows_are_run_in_a_thread_where_nothing_is_joined_either(batch: int, batchable: bool) -> None:
    async def job(batcher: Batcher, _: Burning) -> None:
        assert batcher.run(row(3), alone=True).done()
        many = batcher.run(row(*range(100)), alone=True)
        assert not many.done()
        assert await values(many) == [2 * n for n in range(100)]

    proven(job, batch, batchable)


@pytest.mark.parametrize(("row_s", "quick"), [(0.0021, True), (0.05, False)])
def test_a_run_that_is_much_too_slow_sends_the_next_to_threads_and_one_that_is_a_little_does_not(
    row_s: float, quick: bool
) -> None:
    async def job(batcher: Batcher, session: Burning) -> None:
        session.row_s = row_s
        await batcher.run(row(1), alone=True)
        session.row_s = 0.0
        for _ in range(100):
            answer = batcher.run(row(1), alone=True)
            assert answer.done() == quick
            await answer

    proven(job)
