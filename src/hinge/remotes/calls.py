"""Calls that run elsewhere, in a thread of their own or in the event loop of all HTTP remotes, and are waited for.

A call is started by a function that is told where to deliver the outcome, and returns how to cancel it. `wait` waits
in a thread, `wait_async` in an event loop; both raise `RemoteLate` at the deadline, whatever becomes of the call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar
from weakref import finalize

from hinge.errors import RemoteLate
from hinge.remotes.remote import Deadline

T = TypeVar("T")
Deliver = Callable[[Any], None]
Start = Callable[[Deliver], Callable[[], object]]

_END_S = 0.5  # for connections to close when the program ends


def wait(start: Start, deadline: Deadline) -> Any:
    """Return what the call returns, or raise its exception."""
    outcome: SimpleQueue[Any] = SimpleQueue()  # no Condition: that is Python code, which Ctrl-C may leave locked
    cancel = start(outcome.put)
    try:
        found = outcome.get(timeout=deadline.left())
    except Empty:
        cancel()
        raise late() from None
    except BaseException:
        cancel()
        raise
    return _result(found)


async def wait_async(start: Start, deadline: Deadline) -> Any:
    """Return what the call returns, or raise its exception, while the event loop goes on."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def deliver(outcome: Any) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(_set, future, outcome)

    cancel = start(deliver)
    try:
        async with asyncio.timeout(deadline.left()):
            found = await future
    except TimeoutError:
        cancel()
        raise late() from None
    except BaseException:
        cancel()
        raise
    return _result(found)


def late() -> RemoteLate:
    """Return the failure of whatever has no outcome by its deadline."""
    return RemoteLate("no answer in time")


def in_thread(function: Callable[[], Any], name: str, on_cancel: Callable[[], object] = lambda: None) -> Start:
    """Start a function in a daemon thread; a cancelled one is left behind."""

    def start(deliver: Deliver) -> Callable[[], object]:
        def call() -> None:
            try:
                outcome = function()
            except BaseException as error:  # SystemExit too: the caller has a local answer
                outcome = error
            deliver(outcome)

        Thread(target=call, name=name, daemon=True).start()
        return on_cancel

    return start


class LoopThread:
    """An event loop in a daemon thread of its own, which starts with the first call."""

    def __init__(self) -> None:
        self._lock, self._process = Lock(), 0

    def run(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, deadline: Deadline) -> T:
        """Run a coroutine function in the loop, and return what it returns."""
        result: T = wait(self._starter(function, arguments), deadline)
        return result

    async def run_async(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, deadline: Deadline
    ) -> T:
        """The same from another event loop."""
        result: T = await wait_async(self._starter(function, arguments), deadline)
        return result

    def _starter(self, function: Callable[..., Coroutine[Any, Any, Any]], arguments: tuple[Any, ...]) -> Start:
        loop = self._running()

        def start(deliver: Deliver) -> Callable[[], object]:
            tasks: list[asyncio.Task[None]] = []

            async def call() -> None:
                try:
                    outcome = await function(*arguments)
                except BaseException as error:  # SystemExit too: the loop is everybody's
                    outcome = error
                deliver(outcome)

            loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(call())))
            return lambda: loop.call_soon_threadsafe(lambda: tasks[0].cancel())

        return start

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():  # the threads of a parent are not in a child
            with self._lock:
                if self._process != os.getpid():
                    self._loop = asyncio.new_event_loop()
                    Thread(target=self._loop.run_forever, name="hinge-http", daemon=True).start()
                    finalize(self, _end, self._loop, os.getpid())
                    self._process = os.getpid()
        return self._loop


LOOP = LoopThread()


def _end(loop: asyncio.AbstractEventLoop, process: int) -> None:
    """Let connections close that were left to the end of the program."""

    async def settle() -> None:
        await asyncio.wait(asyncio.all_tasks(), timeout=_END_S / 2)

    if process == os.getpid():
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(settle(), loop).result(_END_S)


def _result(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _set(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():  # it is, where the deadline came first
        future.set_result(outcome)
