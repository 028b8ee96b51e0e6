"""What a user gives as a remote: what it lacks, and that what ends in a task of an event loop ends nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from hinge.errors import RemoteError
from hinge.remotes import Deadline, Reply
from hinge.remotes.adapters import for_event_loop, for_threads


class AskOnly:
    def ask(self, samples: Any, deadline: Any) -> Any: ...


class AskAsyncOnly:
    async def ask_async(self, samples: Any, deadline: Any) -> Any: ...


class ForEventLoops(AskAsyncOnly):
    async def close_async(self) -> None: ...


@pytest.mark.parametrize(
    ("made", "remote", "problem"),
    [
        (for_threads, AskOnly(), "Device: remote must be a remote or a function .* which has ask but no close$"),
        (for_event_loop, AskOnly(), "AsyncDevice: remote must be .* which has ask but no close$"),
        (for_event_loop, AskAsyncOnly(), "AsyncDevice: remote must be .* which has ask_async but no close_async$"),
        (for_threads, ForEventLoops(), "which has ask_async and close_async: AsyncDevice takes it"),
        (for_event_loop, 3, "got 3$"),
    ],
)
def test_a_remote_that_lacks_a_method_is_told_which(made: Any, remote: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        made(remote)


class Leaving:
    """A remote that wants the whole program to end."""

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        raise SystemExit(3)

    async def close_async(self) -> None:
        """Nothing to close."""


async def leave(sample: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize("given", [Leaving(), leave], ids=["remote", "coroutine function"])
def test_a_remote_that_exits_fails_and_the_event_loop_goes_on(given: Any) -> None:
    async def main() -> str:
        remote = for_event_loop(given)
        with pytest.raises(RemoteError, match="SystemExit: 3"):
            await remote.ask_async([1, 2], Deadline.after(30))
        await remote.close_async()
        return "went on"

    assert asyncio.run(main()) == "went on"
