"""Where runs run: on threads of this machine, or on a cluster."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from hinge.arguments import whole

Result = TypeVar("Result")


class Executor(Protocol):
    """Runs tasks, and hands out their results in order."""

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """The result of each task."""


class Threads:
    """Threads of this machine: compiled loops let go of Python's lock, so that threads beat processes."""

    def __init__(self, count: int | None = None) -> None:
        self.count = whole("Threads", "count", count, 1) if count is not None else _cores()

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """Results in order; leaving early drops the tasks that have not begun."""
        pool = ThreadPoolExecutor(self.count)
        try:
            yield from pool.map(lambda task: task(), tasks)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class Ray:
    """The workers of a Ray cluster (extra `ray`); the one that is already connected, or one started here."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        """Results in order; leaving early cancels what is still running."""
        import ray

        started = not ray.is_initialized()
        if started:
            ray.init(**self.options)
        waiting: list[Any] = []
        try:
            remote = ray.remote(_call)
            waiting += [remote.remote(task) for task in tasks]
            for reference in waiting:
                yield ray.get(reference)
        finally:
            for reference in waiting:
                ray.cancel(reference)
            if started:
                ray.shutdown()


def _cores() -> int:
    """The cores this process may use; only Linux says which of them are its own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _call(task: Callable[[], Result]) -> Result:
    return task()
