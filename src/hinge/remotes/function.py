"""Functions and remotes of the user's own, asked so that the deadline holds whatever they do.

`for_threads` and `for_event_loop` turn what a user gives a device into a remote that returns or raises by the deadline:

    a function, a model   → FunctionRemote    → InThreads
    a coroutine function  → CoroutineRemote   → InTasks      (AsyncDevice only)
    an object with `ask`  →                     InThreads
    … with `ask_async`    →                     InTasks
    … that keeps the deadline itself            as it is
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from hinge._fork import renew_after_fork
from hinge.errors import RemoteError, RemoteLate
from hinge.remotes import AsyncRemote, Deadline, Remote, Reply, failure_of

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
        return Reply(await asyncio.gather(*(self._function(sample) for sample in samples)))

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
        self._remote, self._at_once = remote, at_once
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The threads of the parent's calls do not exist in a child."""
        # A queue, not a semaphore: that is Python code, which Ctrl-C may leave with its lock held.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(self._at_once):
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
        task = asyncio.ensure_future(self._remote.ask_async(samples, deadline))
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
    what = "a coroutine function, which AsyncDevice takes" if callable(remote) else repr(remote)
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
    raise TypeError(f"AsyncDevice: remote must be a remote or a function from sample to label, got {remote!r}")


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call returns an awaitable; also of objects whose `__call__` is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


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
