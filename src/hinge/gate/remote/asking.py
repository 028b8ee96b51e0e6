"""What a device asks of a remote, and what it gets."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hinge.gate.deadline import Deadline


class Reply(NamedTuple):
    """The remote's labels, one for each sample, and how many bytes went over the network for them."""

    labels: Sequence[Any]
    bytes: int = 0


@runtime_checkable
class Remote(Protocol):
    """A remote that a `Device` can ask. It answers by the deadline or raises, `RemoteFailed` if it can say why."""

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply: ...

    def close(self) -> None: ...


@runtime_checkable
class AsyncRemote(Protocol):
    """A remote that an `AsyncDevice` can ask; it may be cancelled at the deadline."""

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply: ...

    async def close_async(self) -> None: ...
