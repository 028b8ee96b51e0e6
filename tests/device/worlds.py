"""A world for a device: samples are numbers, the local model is right in some of them, the remote always."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from hinge import Answer, AsyncDevice, Device, Gate, Policy
from hinge.models import RecordedModel
from hinge.policies import Probation
from hinge.remotes import Deadline, Reply
from hinge.traces import Trace, load_trace

TRACE = load_trace("synthetic-cifar10")
LOCAL = RecordedModel(TRACE)
REMOTE = TRACE.remote.tolist()


def true_label(sample: int) -> Any:
    """What the remote says of a row."""
    return REMOTE[sample % len(REMOTE)]


def policy(**settings: Any) -> Policy:
    return Probation(**{"bins": 16, "offload_cost": 0.5, **settings})


def measured() -> Gate:
    """Such a gate, which is not told the price."""
    return Gate(bins=16)


class Scripted:
    """A remote that follows a script: for each request a reply, an error to raise, or None for the truth."""

    def __init__(self, script: Iterable[Reply | Exception | None] = (), rest: Reply | Exception | None = None) -> None:
        self._script, self._rest = iter(script), rest
        self.asked: list[list[int]] = []
        self.closed = False

    def turn(self, rest: Reply | Exception | None) -> None:
        """Answer in that way from now on."""
        self._rest = rest

    def ask(self, samples: Sequence[int], deadline: Deadline) -> Reply:
        self.asked.append(list(samples))
        step = next(self._script, self._rest)
        if isinstance(step, Exception):
            raise step
        return Reply([true_label(sample) for sample in samples], 100 * len(samples)) if step is None else step

    async def ask_async(self, samples: Sequence[int], deadline: Deadline) -> Reply:
        await asyncio.sleep(0)
        return self.ask(samples, deadline)

    def close(self) -> None:
        self.closed = True

    async def close_async(self) -> None:
        self.closed = True


class InLoop:
    """An `AsyncDevice` with the face of a `Device`, so that one test holds for both."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._device = AsyncDevice(*arguments, **settings)

    def infer(self, sample: Any) -> Answer:
        return self._loop.run_until_complete(self._device.infer(sample))

    def infer_many(self, samples: Iterable[Any], **settings: Any) -> list[Answer]:
        return self._loop.run_until_complete(self._device.infer_many(samples, **settings))

    def close(self) -> None:
        self._loop.run_until_complete(self._device.close())
        self._loop.close()

    def __enter__(self) -> InLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


# A busy machine must not matter, where time is not what a test is about.
KINDS: list[Any] = [partial(Device, deadline_s=30), partial(InLoop, deadline_s=30)]


def recorded(trace: Trace, rows: int) -> list[int]:
    """The numbers of the first rows, again and again."""
    return [row % len(trace) for row in range(rows)]
