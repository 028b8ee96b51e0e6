"""A gateway for the Open Inference Protocol: a server of a model whose answers pass a gate.

    request → local model, in a file or on a server → scores → gate ──accept──→ the local outputs
                                                                └─offload→ the remote's, or the local ones if it fails

To clients it is the local model. Each row of a request is a sample, and those of one request are decided together.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from starlette.types import Receive

from hinge._checks import positive
from hinge.confidence import class_scores
from hinge.device.answer import Answer
from hinge.device.async_device import AsyncDevice
from hinge.errors import InvalidMessage, InvalidModel, RemoteFailed, RemoteInvalid, RemoteLate, RemoteRefused
from hinge.gate import Gate
from hinge.gateway.application import IN_FLIGHT, GatedApp, because
from hinge.oip.messages import InferenceRequest, Message, ModelMetadata, build_model_metadata
from hinge.oip.tensors import Tensor, TensorSpec
from hinge.policies.policy import Policy
from hinge.remotes import Deadline, Reply
from hinge.remotes.http import Response
from hinge.remotes.open_inference import Known, OpenInference
from hinge.server.app import App, Exchange
from hinge.server.batching import Tensors
from hinge.server.connections import Listener
from hinge.server.limits import Refusal
from hinge.server.models import VERSION, Model, Place, Service
from hinge.server.observability import Metrics
from hinge.server.server import BaseServer

INTRODUCE_S = 5.0  # for a server to say what its model takes and gives


class Row:
    """A sample: one row of a request, its scores, and the outputs of the remote."""

    __slots__ = ("inputs", "outputs", "scores")

    def __init__(self, inputs: Tensors) -> None:
        self.inputs = inputs
        self.scores: Tensor | None = None
        self.outputs: Tensors = {}


class ServedRows(OpenInference):
    """A model on a server, whose answers are a label and a row of each output."""

    def _answer(self, known: Known, response: Response, id: str, samples: int) -> tuple[list[Any], int]:
        outputs = self._outputs(known, response, id)
        if any(len(tensor) != samples for tensor in outputs.values()):
            raise RemoteInvalid("the outputs do not have a row for each sample")
        rows = [{name: tensor[row] for name, tensor in outputs.items()} for row in range(samples)]
        return list(zip(known.signature.labels(outputs, samples), rows, strict=True)), response.bytes


class _Remote:
    """The remote as a device asks it; its outputs stay with the samples, and must be such as the local model's."""

    keeps_deadline = True

    def __init__(self, server: ServedRows, outputs: Sequence[TensorSpec]) -> None:
        self._server, self._outputs = server, outputs

    async def ask_async(self, samples: Sequence[Row], deadline: Deadline) -> Reply:
        reply = await self._server.ask_async([row.inputs for row in samples], deadline)
        for row, (_, outputs) in zip(samples, reply.labels, strict=True):
            try:
                for spec in self._outputs:
                    spec.check(outputs[spec.name][np.newaxis])
            except (KeyError, InvalidMessage) as error:
                raise RemoteInvalid(f"its outputs are not such as the local model's: {error}") from None
            row.outputs = outputs
        return Reply([label for label, _ in reply.labels], reply.bytes)

    async def close_async(self) -> None:
        await self._server.close_async()


class _Forwarded:
    """A local model on a server, in the place of a `Service` with one that is loaded."""

    def __init__(self, server: ServedRows, metadata: ModelMetadata, deadline_s: float) -> None:
        self.name, self.server, self._metadata, self._deadline_s = server.model, server, metadata, deadline_s
        self.inputs, self.outputs = metadata.inputs, metadata.outputs
        self.output_names = tuple(spec.name for spec in metadata.outputs)
        self.model = self.batcher = self

    def metadata(self) -> Message:
        known = self._metadata
        return build_model_metadata(ModelMetadata(self.name, known.platform, known.inputs, known.outputs, (VERSION,)))

    def run(self, inputs: Tensors) -> asyncio.Future[Tensors]:
        return asyncio.ensure_future(self._run(inputs))

    async def _run(self, inputs: Tensors) -> Tensors:
        rows = rows_of(inputs)
        try:
            reply = await self.server.ask_async([row.inputs for row in rows], Deadline.after(self._deadline_s))
        except RemoteRefused as error:
            raise InvalidMessage(str(error)) from None
        return {name: np.stack([outputs[name] for _, outputs in reply.labels]) for name in self.output_names}

    def abandon(self) -> None:
        """Those that are in flight end by their deadline."""

    close = abandon


class InferenceGateway(BaseServer):
    """Serves a local model, in an ONNX file (PATH or NAME=PATH) or on a server, whose answers pass a gate.

    Requests have `deadline_s` in all, of which the local model may take half, or less where the client says so.
    `output` names the scores; without it the first output of real numbers. `device` has settings of the `AsyncDevice`,
    such as `state` or `shadow`; the rest are those of every server, such as `port` and `token`.
    """

    def __init__(
        self,
        local: str | Path | ServedRows,
        remote: ServedRows,
        gate: Gate | Policy,
        *,
        output: str | None = None,
        deadline_s: float = 1.0,
        device: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._local = local if isinstance(local, ServedRows) else Place.parse(local)
        self._remote, self._gate, self._output, self._device = remote, gate, output, dict(device or {})
        self.deadline_s = positive("InferenceGateway", "deadline_s", deadline_s)

    def load(self) -> None:
        """Load the local model, or ask its server what it is; the remote's, if that is away."""
        if isinstance(self._local, Place):
            self._model: Model | ModelMetadata = Model.load(self._local.path)
        else:
            try:
                self._model = _metadata(self._local)
            except RemoteFailed:
                self._model = _metadata(self._remote)
        if not all(spec.shape[:1] == (-1,) for spec in (*self._model.inputs, *self._model.outputs)):
            raise InvalidModel("a gateway needs a model whose first axis takes any number of samples")
        named = [spec.name for spec in self._model.outputs if spec.datatype[:2] == "FP" or spec.name == self._output]
        self.scores = named[0] if self._output is None and named else self._output or ""
        if self.scores not in named:
            raise InvalidModel(f"the local model has no output {self.scores!r} of scores")

    def make_app(self, metrics: Metrics, listener: Listener) -> App:
        """The application, with its device."""
        remote = _Remote(self._remote, self._model.outputs)
        settings = {"deadline_s": self.deadline_s, "in_flight": IN_FLIGHT, **self._device}
        device = AsyncDevice(lambda row: row.scores, remote, self._gate, **settings)
        local, model = self._local, self._model
        service: Service | _Forwarded
        if isinstance(local, Place) and isinstance(model, Model):
            service = Service(local, model, workers=os.cpu_count() or 1, limits=self.limits, metrics=metrics)
        else:
            service = _Forwarded(local, model, self.deadline_s)  # type: ignore[arg-type]  # both of a server
        return InferenceApp(self, service, device, remote, metrics, listener)

    async def watch(self, app: App, metrics: Metrics) -> None:
        """Keep the page up to date."""
        if isinstance(app, GatedApp):
            await app.keep_page()


class InferenceApp(GatedApp):
    """Answers inferences by a device."""

    def __init__(
        self,
        gateway: InferenceGateway,
        service: Any,
        device: AsyncDevice,
        remote: _Remote,
        metrics: Metrics,
        listener: Listener,
    ) -> None:
        super().__init__(gateway, {service.name: service}, device, metrics=metrics, listener=listener)
        self._gateway, self._remote = gateway, remote

    async def close(self) -> None:
        """Close the device, then the connections to the local server, if there are any."""
        await super().close()
        for service in self.services.values():
            if isinstance(service, _Forwarded):
                await service.server.close_async()

    async def _infer(self, exchange: Exchange, service: Service, receive: Receive) -> Message:
        message = await super()._infer(exchange, service, receive)
        return Message({**message.headers, **exchange.notes}, message.body)

    async def _run(self, service: Service, exchange: Exchange, request: InferenceRequest) -> Tensors:
        most_s = self._gateway.deadline_s
        deadline = exchange.deadline(most_s if request.timeout_s is None else min(most_s, request.timeout_s))
        rows = rows_of(request.inputs)
        try:
            async with asyncio.timeout(deadline.split(0.5).left()):
                local = await super()._run(service, exchange, request)
            for row, scores in zip(rows, class_scores(local[self._gateway.scores], len(rows)), strict=True):
                row.scores = scores
            deciding = self.device.infer_many(rows, together=True, deadline=deadline)
            answers = await self.until_gone(exchange, deciding)
        except (Refusal, TimeoutError, ValueError) as error:  # ValueError: of scores that are none
            if isinstance(error, Refusal) and error.status != 500:
                raise
            problem = "late" if isinstance(error, TimeoutError) else str(error)
            return await self._remote_alone(rows, f"the local model failed ({problem})", exchange, deadline)
        exchange.notes = self.gated(answers) if answers else {}
        return _joined(local, rows, answers)

    async def _remote_alone(self, rows: list[Row], problem: str, exchange: Exchange, deadline: Deadline) -> Tensors:
        self._log.write("warning", "not gated", id=exchange.id.decode(), problem=problem)
        try:
            await self.until_gone(exchange, self._remote.ask_async(rows, deadline))
        except RemoteFailed as failure:
            status = 400 if isinstance(failure, RemoteRefused) else 504 if isinstance(failure, RemoteLate) else 502
            raise Refusal(status, failure.kind, f"no answer: {problem}, the remote failed ({failure})") from None
        exchange.notes = because("remote", f"Not gated: {problem}.")
        return {name: np.stack([row.outputs[name] for row in rows]) for name in rows[0].outputs}


def _metadata(server: ServedRows) -> ModelMetadata:
    try:
        return server.metadata(INTRODUCE_S)[1]
    finally:
        server.close()


def rows_of(inputs: Tensors) -> list[Row]:
    """The rows of a request."""
    sizes = {len(tensor) for tensor in inputs.values()}
    if len(sizes) != 1:
        raise Refusal(400, "invalid", "the inputs must have the same number of rows")
    return [Row({name: tensor[row] for name, tensor in inputs.items()}) for row in range(sizes.pop())]


def _joined(local: Tensors, rows: Sequence[Row], answers: Sequence[Answer]) -> Tensors:
    """The outputs: of each row those of whoever answered."""
    outputs = {name: np.array(tensor) for name, tensor in local.items()}
    for number, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        if answer.source == "remote":
            for name, tensor in outputs.items():
                tensor[number] = row.outputs[name]
    return outputs
