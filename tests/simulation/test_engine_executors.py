"""Executors: threads, and the logic of the Ray executor on a stand-in (tests/ray has the real one)."""

import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hinge import HILCB, Policy, Thompson
from hinge.simulation import Ray, Run, Threads, simulate
from hinge.simulation.sources import BimodalCosts, Synthetic

SOURCE = Synthetic([0.1, 0.4, 0.7, 0.9], BimodalCosts())
POLICIES: list[Policy] = [HILCB(4, offload_cost=0.5), Thompson(4)]


class FakeRay(ModuleType):
    """As much of Ray as the executor uses; tasks run when their result is asked for, from a pickled copy."""

    def __init__(self, connected: bool = False) -> None:
        super().__init__("ray")
        self.connected = connected
        self.options: dict[str, Any] | None = None
        self.calls: list[Callable[[], Any]] = []
        self.got: list[int] = []
        self.cancelled: list[int] = []

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, **options: Any) -> None:
        self.connected, self.options = True, options

    def shutdown(self) -> None:
        self.connected = False

    def remote(self, function: Callable[..., Any]) -> Any:
        fake = self

        class Remote:
            def remote(self, *arguments: Any) -> int:
                assert fake.connected, "a task was sent before Ray was there"
                sent = pickle.loads(pickle.dumps((function, arguments)))
                fake.calls.append(lambda: sent[0](*sent[1]))
                return len(fake.calls) - 1

        return Remote()

    def get(self, reference: int) -> Any:
        assert self.connected, "a result was asked for after Ray was shut down"
        self.got.append(reference)
        return self.calls[reference]()

    def cancel(self, reference: int, **_: Any) -> None:
        assert self.connected, "a task was cancelled after Ray was shut down"
        self.cancelled.append(reference)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    yield ray
    assert not ray.connected, "Ray was started and not shut down"


def broken() -> int:
    return 1 // 0


def bits(run: Run) -> list[bytes]:
    return [np.asarray(getattr(run, field.name)).tobytes() for field in fields(Run)]


def test_ray_and_threads_give_the_same_bits_in_the_same_order(fake: FakeRay) -> None:
    threads = simulate(POLICIES, SOURCE, 20_000, runs=4, record_decisions=True, executor=Threads(2))
    ray = simulate(POLICIES, SOURCE, 20_000, runs=4, record_decisions=True, executor=Ray(num_cpus=2))
    for name in threads:
        assert list(map(bits, ray[name].runs)) == list(map(bits, threads[name].runs))
    assert fake.options == {"num_cpus": 2}
    assert fake.got == [0, 1, 2, 3]
    assert ray.complete


def test_a_cluster_that_was_there_is_used_and_stays(fake: FakeRay) -> None:
    fake.connected = True
    simulate(POLICIES, SOURCE, 100, runs=2, executor=Ray(num_cpus=2))
    assert fake.connected
    assert fake.options is None
    fake.shutdown()


def test_an_interrupt_cancels_what_is_left_and_keeps_what_is_done(fake: FakeRay) -> None:
    def report(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    results = simulate(POLICIES, SOURCE, 100, runs=6, executor=Ray(), progress=report)
    assert not results.complete
    assert len(results["hi-lcb"].runs) == 2
    assert {2, 3, 4, 5} <= set(fake.cancelled)


def test_an_interrupt_while_waiting_keeps_what_is_done(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(reference: int) -> Any:
        if reference == 3:
            raise KeyboardInterrupt
        return FakeRay.get(fake, reference)

    monkeypatch.setattr(fake, "get", get)
    results = simulate(POLICIES, SOURCE, 100, runs=6, executor=Ray())
    assert not results.complete
    assert len(results["hi-lcb"].runs) == 3


def test_an_error_in_a_task_ends_what_was_started(fake: FakeRay) -> None:
    with pytest.raises(ZeroDivisionError):
        list(Ray().map([broken, broken]))
    assert fake.got == [0]


def test_a_task_that_cannot_be_sent_leaves_no_ray_behind(fake: FakeRay) -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        list(Ray().map([lambda: 1]))


def test_without_ray_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="ray"):
        simulate(POLICIES, SOURCE, 100, executor=Ray())


def test_threads_hand_out_results_in_order() -> None:
    assert list(Threads(2).map([lambda number=number: number for number in range(100)])) == list(range(100))  # type: ignore[misc]


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(Threads(2).map([lambda: 1 // 0]))


def test_threads_need_no_call_that_only_linux_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    assert Threads().count >= 1
