"""Executors: threads, and one of the user's own."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from hinge import HILCB, Policy, Thompson
from hinge.simulation import Run, Threads, simulate
from hinge.simulation.sources import BimodalPrice, Synthetic

SOURCE = Synthetic([0.1, 0.4, 0.7, 0.9], BimodalPrice())
POLICIES: list[Policy] = [HILCB(4, offload_cost=0.5), Thompson(4)]


def bits(run: Run) -> list[bytes]:
    return [np.asarray(getattr(run, field.name)).tobytes() for field in fields(Run)]


class Pickled:
    """An executor of the user's own: every task runs from a pickled copy, as on another machine."""

    def map(self, tasks: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        for task in tasks:
            yield pickle.loads(pickle.dumps(task))()


def test_an_executor_of_ones_own_gives_the_same_bits_as_threads() -> None:
    threads, pickled = (
        simulate(POLICIES, SOURCE, 20_000, runs=4, record_decisions=True, executor=executor)
        for executor in (Threads(2), Pickled())
    )
    for name in threads:
        assert list(map(bits, pickled[name].runs)) == list(map(bits, threads[name].runs))
    assert pickled.complete


def test_threads_hand_out_results_in_order() -> None:
    assert list(Threads(2).map([lambda number=number: number for number in range(100)])) == list(range(100))  # type: ignore[misc]  # mypy infers no type


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(Threads(2).map([lambda: 1 // 0]))


def test_threads_need_no_call_that_only_linux_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    assert Threads().count >= 1
