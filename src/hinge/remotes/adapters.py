"""What a user gives a device, as a remote that returns or raises by the deadline.

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
from threading import RLock
from typing import Any, TypeVar

from hinge.errors import CallsLeftBehind, RemoteError
from hinge.remotes.calls import Start, in_thread, late, wait, wait_async
from hinge.remotes.remote import AsyncRemote, Deadline, Remote, Reply, failure_of

MAX_LEFT_BEHIND = 64  # calls that run on after their deadline
_WAIT_S, _PART = 1.0, 0.1  # until one more thread is started then, at least, and of the time that this has lasted

T = TypeVar("T")


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

    Where `MAX_LEFT_BEHIND` calls have not returned, others fail at once; but one more thread is started each time that
    this has lasted a tenth longer. So threads grow with the logarithm of an outage at most, and a remote that is
    back is found, though no call of the outage ever returns.

    >>> remote = InThreads(FunctionRemote(lambda sample: sample > 3))
    >>> remote.ask([1, 5], Deadline.after(60)).labels
    [False, True]
    """

    keeps_deadline = True

    def __init__(self, remote: Remote) -> None:
        self._remote, self._lock = remote, RLock()
        self._left_behind, self._full_since, self._next_start = 0, 0.0, 0.0

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """Return the remote's reply, or raise its exception; raises `RemoteLate` at the deadline."""
        reply: Reply = wait(self._call(samples, deadline), deadline)
        return reply

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The same, while the event loop goes on."""
        reply: Reply = await wait_async(self._call(samples, deadline), deadline)
        return reply

    def close(self) -> None:
        """Close the remote."""
        self._remote.close()

    async def close_async(self) -> None:
        """Close the remote, which may block, in a thread."""
        await asyncio.to_thread(self._remote.close)

    def _call(self, samples: Sequence[Any], deadline: Deadline) -> Start:
        self._admit()
        ended = left_behind = False

        def ask() -> Reply:
            nonlocal ended
            try:
                return self._remote.ask(samples, deadline)
            except BaseException as error:  # SystemExit too: the caller has a local answer
                raise failure_of(error) from error
            finally:
                with self._lock:
                    ended = True
                    self._left_behind -= left_behind

        def leave_behind() -> None:
            nonlocal left_behind
            with self._lock:
                if not ended:
                    left_behind = True
                    self._left_behind += 1
                    if self._left_behind == MAX_LEFT_BEHIND:
                        self._full_since = time.monotonic()
                        self._next_start = self._full_since + _WAIT_S

        return in_thread(ask, "hinge-remote", leave_behind)

    def _admit(self) -> None:
        """Refuse to start one more thread where too many have not returned, unless one is due."""
        now = time.monotonic()
        with self._lock:
            if self._left_behind < MAX_LEFT_BEHIND:
                return
            if now < self._next_start:
                told = "calls of the remote have not returned, long after their deadline; give it a timeout of its own"
                raise CallsLeftBehind(f"{self._left_behind} {told}")
            self._next_start = now + max(_WAIT_S, _PART * (now - self._full_since))


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
                raise late()
            if task.cancelled():
                raise RemoteError("the remote cancelled itself")
            if error := task.exception():
                raise failure_of(error) from error
            return task.result()
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


def for_threads(remote: Any) -> Remote:
    """What a user gives a `Device`, as a remote that keeps the deadline."""
    found = as_remote("Device", remote)
    return found if getattr(found, "keeps_deadline", False) else InThreads(found)


def for_event_loop(remote: Any) -> AsyncRemote:
    """What a user gives an `AsyncDevice`, as a remote that keeps the deadline."""
    if isinstance(remote, AsyncRemote):
        return remote if getattr(remote, "keeps_deadline", False) else InTasks(remote)
    if isinstance(remote, Remote):
        return InThreads(remote)
    if callable(remote):
        if _is_coroutine_function(remote):
            return InTasks(CoroutineRemote(remote))
        return InThreads(FunctionRemote(remote))
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


def _discard(task: asyncio.Future[Reply]) -> None:
    if not task.cancelled():
        task.exception()  # marks it as retrieved: what a late request ends with is not logged
