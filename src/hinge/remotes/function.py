"""Any function as a remote: sample → label."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Any

from hinge.errors import RemoteError, RemoteLate, RemoteUnreachable
from hinge.remotes import Deadline, Remote, Reply

Outcome = list[Any] | BaseException
_PATIENCE_S = 0.001  # between two looks whether a call has ended, where all that may run at once do


class Called:
    """Asks a function, each time in a thread of its own: one that is still running at the deadline is left behind.

    No more than `at_once` run at the same time, those left behind among them; others wait for one to end.

    >>> called = Called(lambda sample: sample > 3)
    >>> called.ask([1, 5], Deadline.after(60, now=time.monotonic())).labels
    [False, True]
    """

    def __init__(self, function: Callable[[Any], Any], at_once: int = 8) -> None:
        self._function = function
        self._room = BoundedSemaphore(at_once)
        self._is_async = is_coroutine_function(function)

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, one after another."""
        outcome: SimpleQueue[Outcome] = SimpleQueue()
        if not self._room.acquire(timeout=deadline.left(time.monotonic())):
            raise _late()
        self._start(samples, outcome.put)
        try:
            return _reply(outcome.get(timeout=deadline.left(time.monotonic())))
        except Empty:
            raise _late() from None

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, without keeping the event loop waiting."""
        left = deadline.left(time.monotonic())
        try:
            if self._is_async:
                return await asyncio.wait_for(_gathered(self._function, samples), left)
            return _reply(await asyncio.wait_for(self._started(samples), left))
        except TimeoutError:
            raise _late() from None

    def close(self) -> None:
        """Nothing is kept open."""

    async def close_async(self) -> None:
        """Nothing is kept open."""

    def _start(self, samples: Sequence[Any], tell: Callable[[Outcome], None]) -> None:
        try:
            Thread(target=self._call, args=(samples, tell), name="hinge-remote", daemon=True).start()
        except BaseException:  # there are too many threads
            self._room.release()
            raise

    async def _started(self, samples: Sequence[Any]) -> Outcome:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def tell(outcome: Outcome) -> None:
            with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
                loop.call_soon_threadsafe(_set, future, outcome)

        while not self._room.acquire(blocking=False):
            await asyncio.sleep(_PATIENCE_S)
        self._start(samples, tell)
        return await future

    def _call(self, samples: Sequence[Any], tell: Callable[[Outcome], None]) -> None:
        try:
            outcome: Outcome = [self._function(sample) for sample in samples]
        except BaseException as error:  # whatever it is, the device has a local answer
            outcome = error
        self._room.release()
        tell(outcome)


class InThreads:
    """A remote that waits, for an event loop, which does not."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, asked for in another thread."""
        return await asyncio.to_thread(self._remote.ask, samples, deadline)

    async def close_async(self) -> None:
        """Let go of the remote."""
        await asyncio.to_thread(self._remote.close)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call gives something to be awaited, be it of a function or of an object that is called like one."""
    called = type(function).__call__ if callable(function) else None
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def _gathered(function: Callable[[Any], Awaitable[Any]], samples: Sequence[Any]) -> Reply:
    return Reply(await asyncio.gather(*(function(sample) for sample in samples)))


def _reply(outcome: Outcome) -> Reply:
    if isinstance(outcome, BaseException):
        failure = RemoteUnreachable if isinstance(outcome, OSError) else RemoteError
        raise failure(f"{type(outcome).__name__}: {outcome}") from outcome
    return Reply(outcome)


def _set(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():  # it is, where the deadline came first
        future.set_result(outcome)


def _late() -> RemoteLate:
    return RemoteLate("no answer in time")
