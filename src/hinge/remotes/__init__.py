"""Remote models: what a device asks of one, and what it gets.

Write your own: an object with `ask` and `close` (or `ask_async` and `close_async`, for `AsyncDevice`) is a remote. It
returns a `Reply` or raises one of the failures in `hinge.errors`; any other exception counts as `RemoteError`.

The device keeps the deadline, whatever the remote does: `ask` runs in a worker thread and is left behind when it is
late, `ask_async` in a task that is cancelled. A remote that always returns by the deadline may say so with a class
attribute `keeps_deadline = True`, and is then called directly, which saves the hand-over (about 50 µs). `for_threads`
and `for_event_loop` turn what a user gives a device into a remote that returns or raises by the deadline:

    a function, a model   → FunctionRemote    → InThreads
    a coroutine function  → CoroutineRemote   → InTasks      (AsyncDevice only)
    an object with `ask`  →                     InThreads
    … with `ask_async`    →                     InTasks
    … that keeps the deadline itself            as it is
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from hinge.errors import RemoteError, RemoteFailed, RemoteLate, RemoteUnreachable

T = TypeVar("T")


class Deadline(NamedTuple):
    """The instant by which an offload must have an answer, in seconds of `time.monotonic`.

    One instant for the whole offload, from connecting to the last byte: a timeout per step would start anew with each
    step, and a remote that sends one byte at a time would never be late.

    >>> deadline = Deadline.after(0.5, now=100.0)
    >>> deadline.left(now=100.125), deadline.left(now=103.0)
    (0.375, 0.0)
    """

    end_s: float

    @classmethod
    def after(cls, deadline_s: float, now: float | None = None) -> Deadline:
        """The instant `deadline_s` from now."""
        return cls((time.monotonic() if now is None else now) + deadline_s)

    def left(self, now: float | None = None) -> float:
        """Seconds until the deadline; 0 once it has expired."""
        return max(0.0, self.end_s - (time.monotonic() if now is None else now))

    def split(self, part: float, now: float | None = None) -> Deadline:
        """A deadline for one step that may take this part of the time left, so that later steps have theirs.

        >>> Deadline(end_s=8.0).split(0.5, now=4.0)
        Deadline(end_s=6.0)
        """
        start = time.monotonic() if now is None else now
        return Deadline(min(self.end_s, start + part * self.left(start)))  # rounding must not extend the whole


class Reply(NamedTuple):
    """The remote's labels, one for each sample, and how many bytes went over the network for them.

    `cost` is what each sample has cost, from 0 to 1, for a remote that knows it; else the device's price says. Nothing
    is learned from labels that are not to be compared with the local ones.
    """

    labels: Sequence[Any]
    bytes: int = 0
    cost: float | None = None
    compared: bool = True


@runtime_checkable
class Remote(Protocol):
    """A remote for `Device`: called from several threads at once."""

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, in their order; raises one of the failures in `hinge.errors`."""

    def close(self) -> None:
        """Release connections; the device calls it once, when it is closed."""


@runtime_checkable
class AsyncRemote(Protocol):
    """A remote for `AsyncDevice`: cancelled at the deadline."""

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, in their order; raises one of the failures in `hinge.errors`."""

    async def close_async(self) -> None:
        """Release connections; the device calls it once, when it is closed."""


def failure_of(error: BaseException) -> RemoteFailed:
    """An exception of a remote as one of the failures that a device knows.

    >>> failure_of(ConnectionError("unplugged"))
    RemoteUnreachable('ConnectionError: unplugged')
    """
    if isinstance(error, RemoteFailed):
        return error
    kinds = {TimeoutError: RemoteLate, OSError: RemoteUnreachable}
    failure = next((found for kind, found in kinds.items() if isinstance(error, kind)), RemoteError)
    return failure(f"{type(error).__name__}: {error}")


# -- what a user gives, as a remote that keeps the deadline -----------------------------------------------------------

Outcome = Reply | BaseException
_POLL_S = 0.001  # how often an event loop checks whether a worker thread has ended, once all of them are busy


class FunctionRemote:
    """A function from sample to label, or to another output of the device's task, as a remote.

    A model from a file is one too: it has a method `many`, from samples to scores for each; or `labelled`, for labels
    of its own.

    >>> FunctionRemote(lambda sample: sample > 3).ask([1, 5], Deadline.after(60)).labels
    [False, True]
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function, self._many = function, getattr(function, "many", None)
        self._labelled = getattr(function, "labelled", None)

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, one after another, or all at once by a model from a file."""
        if self._labelled is not None:
            return Reply(self._labelled(samples)[0])
        if self._many is not None:
            return Reply(list(self._many(samples)))
        return Reply([self._function(sample) for sample in samples])

    def close(self) -> None:
        """Nothing is kept open."""


class CoroutineRemote:
    """A coroutine function from sample to label as a remote."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]]) -> None:
        self._function = function

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, all asked for at once."""
        return Reply(await asyncio.gather(*(_in_task(self._function, sample) for sample in samples)))

    async def close_async(self) -> None:
        """Nothing is kept open."""


class InThreads:
    """Calls a remote's `ask` in a daemon thread, and leaves the call behind if it still runs at the deadline.

    At most `at_once` calls run at the same time, those left behind included; others wait for one to end.

    >>> remote = InThreads(FunctionRemote(lambda sample: sample > 3))
    >>> remote.ask([1, 5], Deadline.after(60)).labels
    [False, True]
    """

    keeps_deadline = True

    def __init__(self, remote: Remote, at_once: int = 8) -> None:
        self._remote = remote
        # A queue, not a semaphore: that is Python code, which Ctrl-C may leave with its lock held.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(at_once):
            self._permits.put(None)

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The remote's reply, or its exception; raises `RemoteLate` at the deadline."""
        outcome: SimpleQueue[Outcome] = SimpleQueue()
        try:
            self._permits.get(timeout=deadline.left())
            self._start(samples, deadline, outcome.put)
            return _result(outcome.get(timeout=deadline.left()))
        except Empty:
            raise _late() from None

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The same, while the event loop goes on."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def deliver(outcome: Outcome) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(_set, future, outcome)

        try:
            async with asyncio.timeout(deadline.left()):
                while not self._permitted():
                    await asyncio.sleep(_POLL_S)
                self._start(samples, deadline, deliver)
                outcome = await future
        except TimeoutError:
            raise _late() from None
        return _result(outcome)

    def close(self) -> None:
        self._remote.close()

    async def close_async(self) -> None:
        """Close the remote, which may block, in a thread."""
        await asyncio.to_thread(self._remote.close)

    def _permitted(self) -> bool:
        try:
            self._permits.get_nowait()
        except Empty:
            return False
        return True

    def _start(self, samples: Sequence[Any], deadline: Deadline, deliver: Callable[[Outcome], None]) -> None:
        permits = self._permits

        def call() -> None:
            try:
                outcome: Outcome = self._remote.ask(samples, deadline)
            except BaseException as error:  # SystemExit too: the caller has a local answer
                outcome = error
            permits.put(None)
            deliver(outcome)

        try:
            Thread(target=call, name="hinge-remote", daemon=True).start()
        except BaseException:  # the system has no thread left
            permits.put(None)
            raise


class InTasks:
    """Runs a remote's `ask_async` in a task; at the deadline it is cancelled, and not waited for."""

    keeps_deadline = True

    def __init__(self, remote: AsyncRemote) -> None:
        self._remote = remote

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The remote's reply, or its exception; raises `RemoteLate` at the deadline."""
        task = asyncio.ensure_future(_in_task(self._remote.ask_async, samples, deadline))
        try:
            # Unlike wait_for and timeout, wait returns also if the coroutine does not heed its cancellation.
            await asyncio.wait([task], timeout=deadline.left())
            if not task.done():
                raise _late()
            if task.cancelled():
                raise RemoteError("the remote cancelled itself")
            return _result(task.exception() or task.result())
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_discard)

    async def close_async(self) -> None:
        await self._remote.close_async()


def as_remote(owner: str, remote: Any) -> Remote:
    """What a user gives, as a remote."""
    if isinstance(remote, Remote):
        if inspect.iscoroutinefunction(remote.ask):
            raise TypeError(f"{owner}: remote has a coroutine function as ask; AsyncDevice takes it, named ask_async")
        return remote
    if callable(remote) and not _is_coroutine_function(remote):
        return FunctionRemote(remote)
    what = "a coroutine function, which AsyncDevice takes" if callable(remote) else _lacking(remote)
    raise TypeError(f"{owner}: remote must be a remote or a function from sample to label, got {what}")


def for_threads(remote: Any, at_once: int) -> Remote:
    """What a user gives a `Device`, as a remote that keeps the deadline."""
    found = as_remote("Device", remote)
    return found if getattr(found, "keeps_deadline", False) else InThreads(found, at_once)


def for_event_loop(remote: Any, at_once: int) -> AsyncRemote:
    """What a user gives an `AsyncDevice`, as a remote that keeps the deadline."""
    if isinstance(remote, AsyncRemote):
        return remote if getattr(remote, "keeps_deadline", False) else InTasks(remote)
    if isinstance(remote, Remote):
        return InThreads(remote, at_once)
    if callable(remote):
        if _is_coroutine_function(remote):
            return InTasks(CoroutineRemote(remote))
        return InThreads(FunctionRemote(remote), at_once)
    raise TypeError(f"AsyncDevice: remote must be a remote or a function from sample to label, got {_lacking(remote)}")


def _lacking(remote: Any) -> str:
    """What is no remote, with the method that would make it one, if it has the other."""
    pairs = ("ask", "close"), ("ask_async", "close_async")
    half = next((pair for pair in pairs if any(callable(getattr(remote, name, None)) for name in pair)), None)
    if half is None:
        return repr(remote)
    has, lacks = sorted(half, key=lambda name: not hasattr(remote, name))
    if hasattr(remote, lacks):
        return f"{remote!r}, which has {has} and {lacks}: AsyncDevice takes it"
    return f"{remote!r}, which has {has} but no {lacks}"


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call returns an awaitable; also of objects whose `__call__` is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _in_task(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """What it returns, in a task of its own, which a SystemExit must not reach: that would end the event loop."""
    try:
        return await function(*arguments)
    except SystemExit as error:
        raise failure_of(error) from error


def _result(outcome: Outcome) -> Reply:
    if isinstance(outcome, BaseException):
        raise failure_of(outcome) from outcome
    return outcome


def _set(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():  # it is, where the deadline came first
        future.set_result(outcome)


def _discard(task: asyncio.Future[Reply]) -> None:
    if not task.cancelled():
        task.exception()  # marks it as retrieved: what a late request ends with is not logged


def _late() -> RemoteLate:
    return RemoteLate("no answer in time")
