"""A gateway for the Open Inference Protocol: a server of a model whose answers pass a gate.

    request → local model, in a file or on a server → scores → gate ──accept──→ the local outputs
                                                                └─offload→ the remote's, or the local ones if it fails

To clients it is the local model. Each row of a request is a sample, and those of one request are decided together.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hinge.confidence import class_scores
from hinge.device.answer import Source
from hinge.device.async_device import AsyncDevice
from hinge.errors import (
    InvalidMessage,
    InvalidModel,
    RemoteError,
    RemoteFailed,
    RemoteInvalid,
    RemoteLate,
    RemoteRefused,
)
from hinge.gate import Gate
from hinge.gateway.gateway import START_S, GatedApp, Gateway, Unanswered, deadline_of, unanswered
from hinge.oip.messages import InferenceRequest, Message, ModelMetadata, build_model_metadata
from hinge.oip.tensors import Tensor, TensorSpec
from hinge.policies.policy import Policy
from hinge.remotes import Deadline, Reply
from hinge.remotes.open_inference import Known, OpenInference
from hinge.server.app import App, Exchange, Refusal, Service
from hinge.server.models import VERSION, Model, Place, Tensors
from hinge.server.observability import Metrics


@dataclass(slots=True, eq=False)
class InferenceRow:
    """A sample: one row of a request, its scores, and the outputs of both models as they come."""

    inputs: Tensors
    scores: Tensor | None = None
    local: Tensors = field(default_factory=dict)
    remote: Tensors = field(default_factory=dict)


class ServedRows(OpenInference):
    """A model on a server whose answers are a label and a row of each output."""

    def _labels(self, known: Known, outputs: Tensors, samples: int) -> list[Any]:
        if any(len(tensor) != samples for tensor in outputs.values()):
            raise RemoteInvalid("the outputs do not have a row for each sample")
        rows = [{name: tensor[row] for name, tensor in outputs.items()} for row in range(samples)]
        return list(zip(super()._labels(known, outputs, samples), rows, strict=True))


class _RemoteRows:
    """The remote as a device asks it; its outputs stay with the samples, and must be such as the local model's."""

    keeps_deadline = True

    def __init__(self, server: ServedRows, outputs: Sequence[TensorSpec]) -> None:
        self._server, self._outputs = server, outputs

    async def ask_async(self, samples: Sequence[InferenceRow], deadline: Deadline) -> Reply:
        reply = await self._server.infer([row.inputs for row in samples], deadline)
        for row, (_, outputs) in zip(samples, reply.labels, strict=True):
            try:
                for spec in self._outputs:
                    spec.check(outputs[spec.name][np.newaxis])
                    if row.local and outputs[spec.name].shape != row.local[spec.name].shape:
                        raise InvalidMessage(f"tensor {spec.name!r} has another shape")
            except (KeyError, InvalidMessage) as error:
                raise RemoteInvalid(f"its outputs are not such as the local model's: {error}") from None
            row.remote = outputs
        return Reply([label for label, _ in reply.labels], reply.bytes)

    async def close_async(self) -> None:
        await self._server.end()


class _Forwarded:
    """A local model on a server, in the place of a `Service` with one that is loaded."""

    def __init__(self, server: ServedRows, metadata: ModelMetadata) -> None:
        self.name, self.known, self._server = server.model, metadata, server
        self.inputs, self.outputs = metadata.inputs, metadata.outputs
        self.output_names = tuple(spec.name for spec in metadata.outputs)
        self.model = self.batcher = self

    def metadata(self) -> Message:
        return build_model_metadata(replace(self.known, name=self.name, versions=(VERSION,)))

    def close(self) -> None:
        """Those that are in flight end by their deadline."""

    async def ask(self, rows: Sequence[InferenceRow], deadline: Deadline) -> Tensors:
        """The outputs, by the deadline, which the server is told; raises `RemoteFailed`."""
        reply = await self._server.infer([row.inputs for row in rows], deadline)
        return _stacked([outputs for _, outputs in reply.labels])

    async def close_async(self) -> None:
        await self._server.end()


class InferenceGateway(Gateway):
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
        **settings: Any,
    ) -> None:
        super().__init__(gate, deadline_s=deadline_s, **settings)
        self._local = local if isinstance(local, ServedRows) else Place.parse(local)
        self._remote, self._output = remote, output

    def load(self) -> None:
        """Load the local model, or ask its server what it is, or the remote if that is away; see if both fit."""
        theirs = self._metadata("remote", self._remote)
        model: Model | ModelMetadata | None
        if isinstance(self._local, Place):
            model = Model.load(self._local.path)
        else:
            model = self._metadata("local", self._local) or theirs
        if model is None:
            raise self.away["local"]
        if not all(spec.shape[:1] == (-1,) for spec in (*model.inputs, *model.outputs)):
            raise InvalidModel("a gateway needs a model whose first axis takes any number of samples")
        scores = [
            spec.name for spec in model.outputs if spec.datatype[:2] == "FP" and self._output in (None, spec.name)
        ]
        if not scores:
            raise InvalidModel(f"the local model has no output {self._output or 'of scores'!r}")
        given = {(spec.name, spec.datatype) for spec in theirs.outputs} if theirs and theirs.outputs else None
        missing = [spec.name for spec in model.outputs if given and (spec.name, spec.datatype) not in given]
        if missing:
            raise InvalidModel(f"the remote model has no output {missing[0]!r} such as the local model's")
        self._model, self.scores = model, scores[0]

    def _metadata(self, name: str, server: ServedRows) -> ModelMetadata | None:
        try:
            return server.metadata(START_S)[1]
        except RemoteFailed as failure:
            self.away[name] = failure
            return None
        finally:
            server.close()

    def make_app(self, metrics: Metrics) -> App:
        remote = _RemoteRows(self._remote, self._model.outputs)
        local, model = self._local, self._model
        service: Service | _Forwarded
        if isinstance(local, Place) and isinstance(model, Model):
            service = Service(local.name, model, workers=os.cpu_count() or 1, limits=self.limits, metrics=metrics)
        else:
            service = _Forwarded(local, model)  # type: ignore[arg-type]  # both of a server
        return InferenceApp(self, service, self.make_device(lambda row: row.scores, remote), remote, metrics)


class InferenceApp(GatedApp):
    """Answers inferences by a device."""

    def __init__(
        self,
        gateway: InferenceGateway,
        service: Any,
        device: AsyncDevice,
        remote: _RemoteRows,
        metrics: Metrics,
    ) -> None:
        super().__init__(gateway, {service.name: service}, device, metrics)
        self._gateway, self._remote = gateway, remote

    async def close(self) -> None:
        await super().close()
        for service in self.services.values():
            if isinstance(service, _Forwarded):
                await service.close_async()

    async def run(self, service: Service, exchange: Exchange, request: InferenceRequest) -> Tensors:
        most_s = self._gateway.deadline_s
        deadline = deadline_of(exchange, most_s if request.timeout_s is None else min(most_s, request.timeout_s))
        rows = rows_of(request.inputs)
        if not rows:
            if isinstance(service, _Forwarded):
                raise Refusal(400, "invalid", "the inputs have no rows")
            return await super().run(service, exchange, request)

        async def gated(half: Deadline) -> tuple[Tensors, dict[str, str]]:
            try:
                with self.asking_local(half):
                    await self._ask_local(service, rows, exchange, request, half)
                answers = await self.device.infer_many(rows, together=True, deadline=deadline)
            except ValueError as error:  # of scores that are none
                raise RemoteInvalid(error) from None
            pairs = zip(rows, answers, strict=True)
            outputs = _stacked([row.remote if answer.source == "remote" else row.local for row, answer in pairs])
            return outputs, self.gated(answers)

        async def ask_remote(left: Deadline) -> Tensors:
            await self._remote.ask_async(rows, left)
            return _stacked([row.remote for row in rows])

        async def ask_local(left: Deadline) -> Tensors:
            await self._ask_local(service, rows, exchange, request, left)
            return _stacked([row.local for row in rows])

        try:
            outputs, exchange.notes = await self.answer(
                exchange, deadline, gated=gated, remote=ask_remote, local=ask_local, samples=len(rows)
            )
        except Unanswered as error:
            failures = error.failures
            refused = any(isinstance(each, RemoteRefused) for each in failures.values())
            status, headers = (400, {}) if refused else unanswered(failures.values())
            kind = failures["remote"].kind
            raise Refusal(status, kind, f"no answer: {self.told(failures)}", headers) from None
        return outputs

    def told(self, failures: Mapping[Source, RemoteFailed]) -> str:
        """What went wrong with each model."""
        return ", ".join(f"the {name} model failed ({each})" for name, each in failures.items())

    async def _ask_local(
        self, service: Any, rows: list[InferenceRow], exchange: Exchange, request: InferenceRequest, deadline: Deadline
    ) -> None:
        """Give each row its local outputs and its scores; a model that fails raises `RemoteFailed`."""
        try:
            if isinstance(service, _Forwarded):  # its failures are those of a server, which may be told
                local = await service.ask(rows, deadline)
            else:
                async with asyncio.timeout(deadline.left()):
                    local = await super().run(service, exchange, request)
            scores = class_scores(local[self._gateway.scores], len(rows))
        except TimeoutError:
            raise RemoteLate("no answer in time") from None
        except KeyError as error:
            raise RemoteInvalid(f"there is no output {error}") from None
        except ValueError as error:
            raise RemoteInvalid(error) from None
        except Refusal as error:
            if error.status != 500:
                raise
            raise RemoteError(error) from None
        for number, row in enumerate(rows):
            row.scores, row.local = scores[number], {name: tensor[number] for name, tensor in local.items()}


def rows_of(inputs: Tensors) -> list[InferenceRow]:
    """The rows of a request."""
    sizes = {len(tensor) for tensor in inputs.values()}
    if len(sizes) != 1:
        raise Refusal(400, "invalid", "the inputs must have the same number of rows")
    return [InferenceRow({name: tensor[row] for name, tensor in inputs.items()}) for row in range(sizes.pop())]


def _stacked(rows: Sequence[Tensors]) -> Tensors:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
