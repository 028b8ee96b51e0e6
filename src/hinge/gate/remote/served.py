"""A model behind the Open Inference Protocol, whichever way its messages travel.

What is said to the server is written once, as generators that yield requests and are sent the responses; `ask` and
`ask_async` differ in how these travel.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from hinge.errors import InvalidMessage, RemoteFailed
from hinge.gate.deadline import Deadline
from hinge.gate.protocol.metadata import ModelMetadata, ServerMetadata
from hinge.gate.protocol.tensors import Tensor
from hinge.gate.protocol.wire import model_name
from hinge.gate.remote.asking import Reply
from hinge.gate.remote.contract import Contract, contract_of

T = TypeVar("T")
Dialogue = Generator[Any, Any, T]  # asks one thing after another, and returns what it wanted to know


class Transport(Protocol):
    """Sends one request to one server and brings its response, by the deadline; what fails raises `RemoteFailed`."""

    def send(self, ask: Any, deadline: Deadline) -> Any: ...

    async def send_async(self, ask: Any, deadline: Deadline) -> Any: ...

    def close(self) -> None: ...

    async def close_async(self) -> None: ...


class ServedModel(ABC):
    """A model on a server; what it takes and gives is asked of it once, and again after a reply that makes no sense."""

    def __init__(
        self, transport: Transport, model: str, version: str, input: str | None, output: str | None
    ) -> None:
        self.model, self.version = model_name(model), version and model_name(version, "model version")
        self._transport, self._input, self._output = transport, input, output
        self._ids = itertools.count(1)
        self._server: ServerMetadata | None = None
        self._known: tuple[Contract, ServerMetadata] | None = None

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, by the deadline."""
        return self._held(self._asking(samples), deadline)

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, by the deadline."""
        dialogue = self._asking(samples)
        try:
            ask = next(dialogue)
            while True:
                ask = dialogue.send(await self._transport.send_async(ask, deadline))
        except StopIteration as done:
            reply: Reply = done.value
            return reply

    def metadata(self, deadline_s: float = 5.0) -> tuple[ServerMetadata, ModelMetadata]:
        """What the server says of itself and of the model; raises `RemoteFailed`."""
        self._server = None
        return self._held(self._introducing(), Deadline.after(deadline_s, time.monotonic()))

    def check(self, sample: Any = None, deadline_s: float = 5.0) -> int | None:
        """See that the server speaks the protocol, has the model, and takes such samples; raises `RemoteFailed`.

        Returns how many classes the model has, if it says so.
        """
        self._server = None
        contract, _ = self._held(self._learning(), Deadline.after(deadline_s, time.monotonic()))
        if sample is not None:
            contract.tensors([sample])
        return contract.classes

    def close(self) -> None:
        """End the connections that `ask` keeps open."""
        self._transport.close()

    async def close_async(self) -> None:
        """End the connections that `ask_async` keeps open."""
        await self._transport.close_async()

    def _held(self, dialogue: Dialogue[T], deadline: Deadline) -> T:
        try:
            ask = next(dialogue)
            while True:
                ask = dialogue.send(self._transport.send(ask, deadline))
        except StopIteration as done:
            result: T = done.value
            return result

    def _asking(self, samples: Sequence[Any]) -> Dialogue[Reply]:
        contract, server = self._known or (yield from self._learning())
        labels, moved = list[Any](), 0
        try:
            for part in [samples] if contract.batches else [[sample] for sample in samples]:
                tensors, id = contract.tensors(part), str(next(self._ids))
                outputs, bytes = yield from self._inferring(contract, server, tensors, id)
                labels += contract.labels(outputs, len(part))
                moved += bytes
        except (InvalidMessage, RemoteFailed) as error:
            if not isinstance(error, RemoteFailed) or error.kind in ("invalid", "refused"):
                self._known = self._server = None  # perhaps another model stands there now
            raise error if isinstance(error, RemoteFailed) else RemoteFailed(str(error), "invalid") from error
        return Reply(labels, moved)

    def _learning(self) -> Dialogue[tuple[Contract, ServerMetadata]]:
        server, model = yield from self._introducing()
        self._known = contract_of(model, self._input, self._output), server
        return self._known

    @abstractmethod
    def _introducing(self) -> Dialogue[tuple[ServerMetadata, ModelMetadata]]:
        """Ask what the server and the model are."""

    @abstractmethod
    def _inferring(
        self, contract: Contract, server: ServerMetadata, tensors: Mapping[str, Tensor], id: str
    ) -> Dialogue[tuple[Mapping[str, Tensor], int]]:
        """Ask for one inference: its outputs, and how many bytes travelled."""
