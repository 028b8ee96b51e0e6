"""A remote model behind the Open Inference Protocol: Triton, KServe, MLServer, `hinge serve` and the like."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hinge._checks import shown
from hinge.confidence import class_scores
from hinge.errors import InvalidMessage, RemoteError, RemoteFailed, RemoteInvalid, RemoteRefused
from hinge.oip import messages
from hinge.oip.messages import ModelMetadata, ServerMetadata
from hinge.oip.tensors import MAX_BODY_BYTES, Tensor, TensorSpec, cast, dtype_of
from hinge.remotes.address import bearer, check_url
from hinge.remotes.calls import LOOP
from hinge.remotes.http import HttpClient, Request, Response, error_of
from hinge.remotes.remote import Deadline, Reply

_ANY_SIZE = 2**15  # taken for an axis of which the metadata says no size
_NUMBER_BYTES = 32  # of a number as JSON, at most, with what separates it from the next
_TEXT_BYTES = 1024  # of an element of type BYTES
_FRAME_BYTES = 2**16  # of a reply beside its tensors
_CLOSE_S = 1.0  # for connections to close
_REFUSED = {400, 413, 415, 422}  # statuses by which a server refuses this sample, and not the client or all of them

T = TypeVar("T")


@dataclass(frozen=True)
class Signature:
    """What the remote's model takes and gives, as far as it says so."""

    inputs: tuple[TensorSpec, ...]
    output: TensorSpec | str  # the one with the labels or scores; a name, where the metadata has no outputs
    outputs: tuple[TensorSpec, ...] = ()

    @cached_property
    def batches(self) -> bool:
        """Whether one request may hold many samples."""
        return all(spec.shape[:1] == (-1,) for spec in self.inputs)

    @cached_property
    def _dtypes(self) -> dict[str, np.dtype[Any]]:
        return {spec.datatype: dtype_of(spec.datatype) for spec in self.inputs}

    @property
    def classes(self) -> int | None:
        """How many classes the model scores, if it says so.

        >>> Signature((), TensorSpec("scores", "FP32", (-1, 10))).classes
        10
        """
        if isinstance(self.output, str) or not self.output.datatype.startswith("FP"):
            return None
        sizes = [size for size in self.output.shape if size != 1]
        return sizes[-1] if sizes and sizes[-1] > 1 and max(sizes[:-1], default=-1) == -1 else None

    def parts(self, samples: Sequence[Any]) -> list[Sequence[Any]]:
        """The samples of each request."""
        return [samples] if self.batches else [[sample] for sample in samples]

    def reply_bytes(self, samples: int) -> int:
        """How long a reply may be: reading one that holds far more than the answer would take past the deadline.

        >>> Signature((), "y", (TensorSpec("y", "FP32", (-1, 1000)),)).reply_bytes(1)
        97536
        """
        outputs = self.outputs or (TensorSpec("any", "FP64", (-1, -1)),)
        return min(MAX_BODY_BYTES, _FRAME_BYTES + sum(_reply_bytes(spec, samples) for spec in outputs))

    def tensors(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """The samples as the model's inputs, along a first axis where the model has one for them.

        A sample is an array, or where the model has several inputs a mapping from their names to arrays.

        >>> signature = Signature((TensorSpec("x", "FP32", (-1, 2)),), "y")
        >>> signature.tensors([[1, 2], [3, 4]])["x"].tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        >>> signature.tensors([[1, 2, 3]])
        Traceback (most recent call last):
        hinge.errors.RemoteRefused: tensor 'x': shape must be [-1, 2], got [1, 3]
        """
        try:
            return {spec.name: self._tensor(spec, samples) for spec in self.inputs}
        except KeyError as error:
            raise RemoteRefused(f"the sample has no input {error}") from error
        except (InvalidMessage, TypeError, ValueError) as error:
            raise RemoteRefused(str(error)) from error  # the sample is wrong, not the remote

    def _tensor(self, spec: TensorSpec, samples: Sequence[Any]) -> Tensor:
        values = [_value(spec, sample, len(self.inputs)) for sample in samples]
        alone = len(values) == 1 and len(spec.shape) == values[0].ndim  # the model has no axis for samples
        tensor: Tensor = values[0] if alone else np.stack(values)
        dtype = self._dtypes[spec.datatype]
        if tensor.dtype != dtype and dtype.kind != "O":
            tensor = cast(f"tensor {spec.name!r}", tensor, dtype)
        if tensor.dtype != dtype or not _fits(tensor.shape, spec.shape):
            spec.check(tensor)  # says what is wrong
        return tensor

    def labels(self, outputs: Mapping[str, Tensor], samples: int) -> list[Any]:
        """The label of each sample: the class that scores highest, or the number or name that the model itself gives.

        >>> Signature((), "y").labels({"y": np.array([[0.1, 0.9], [0.7, 0.3]])}, 2)
        [1, 0]
        >>> Signature((), "y").labels({"y": np.array([[0.1, np.nan]])}, 1)
        Traceback (most recent call last):
        hinge.errors.RemoteInvalid: the scores are not finite
        """
        name = self.output if isinstance(self.output, str) else self.output.name
        tensor = outputs[name] if name in outputs else next(iter(outputs.values()))
        rows = tensor.reshape(1, -1) if samples == 1 and tensor.ndim < 2 else tensor
        if len(rows) != samples:
            raise RemoteInvalid(f"{samples} samples have an output of shape {list(tensor.shape)}")
        if rows.dtype.kind != "f":
            return _named(rows)
        if not np.isfinite(rows).all():
            raise RemoteInvalid("the scores are not finite")
        try:
            labels: list[Any] = class_scores(rows, samples).argmax(axis=1).tolist()
        except ValueError as error:
            raise RemoteInvalid(error) from None
        return labels


def signature_of(metadata: ModelMetadata, input: str | None, output: str | None) -> Signature:
    """What a model takes and gives, by its metadata; names that it does not tell must be given."""
    inputs = tuple(spec for spec in metadata.inputs if input in (None, spec.name))
    if not inputs:
        known = ", ".join(repr(spec.name) for spec in metadata.inputs) or "none"
        raise RemoteInvalid(f"model {metadata.name!r} has no input {input!r}; it tells of {known}")
    specs = [spec for spec in metadata.outputs if output in (None, spec.name)]
    if not specs and (output is None or metadata.outputs):
        known = ", ".join(repr(spec.name) for spec in metadata.outputs) or "none"
        raise RemoteInvalid(f"model {metadata.name!r} has no output {output!r}; it tells of {known}")
    return Signature(inputs, specs[0] if specs else str(output), metadata.outputs)


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (-1, size) for want, size in zip(wanted, shape, strict=True))


def _reply_bytes(spec: TensorSpec, samples: int) -> int:
    first, *rest = spec.shape or (1,)
    elements = (samples if first == -1 else first) * math.prod(_ANY_SIZE if size == -1 else size for size in rest)
    return elements * (_TEXT_BYTES if spec.datatype == "BYTES" else _NUMBER_BYTES)


def _value(spec: TensorSpec, sample: Any, inputs: int) -> Tensor:
    if isinstance(sample, Mapping):
        return np.asarray(sample[spec.name])
    if inputs != 1:
        raise TypeError(f"the model has {inputs} inputs, so a sample must be a mapping from their names")
    return np.asarray(sample)


def _named(rows: Tensor) -> list[Any]:
    if rows.size != len(rows):
        raise RemoteInvalid(f"an output of shape {list(rows.shape)} is no label for each sample")
    labels = rows.ravel().tolist()
    return [label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in labels]


class Known(NamedTuple):
    """What is known of a server and its model."""

    binary: bool  # whether the server takes tensors as binary data
    signature: Signature


class OpenInference:
    """A model on a server; what it takes is asked for once, and again after a reply that cannot be used.

    `url` is `http://host:port` or `https://…`. `token` is sent as a bearer token; `tls` is a context with your own
    certificates, where the system's are not enough. `input` and `output` choose among several. `binary` says whether
    tensors go as binary data; None: if the server lists that extension.

    >>> OpenInference("http://localhost:8080", model="fashion")
    OpenInference('http://localhost:8080', model='fashion')
    """

    keeps_deadline = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: str = "",
        input: str | None = None,
        output: str | None = None,
        binary: bool | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url, self.model = check_url("OpenInference", url), messages.model_name(model)
        self._path = messages.inference_path(model, version)
        self._input, self._output, self._binary = input, output, binary
        self._has_token = token is not None
        self._http = HttpClient(self.url, bearer("OpenInference", token), tls)
        self._server: ServerMetadata | None = None  # kept, so that a slow server need not tell all in one deadline
        self._known: Known | None = None

    def __repr__(self) -> str:
        return f"OpenInference({self.url!r}, model={self.model!r})"

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """Return the labels of the samples, by the deadline."""
        return LOOP.run(self.infer, samples, deadline, deadline=deadline)

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The same for an event loop."""
        return await LOOP.run_async(self.infer, samples, deadline, deadline=deadline)

    def metadata(self, deadline_s: float = 5.0) -> tuple[ServerMetadata, ModelMetadata]:
        """Return what the server says of itself and of the model; raises `RemoteFailed`."""
        self._server, deadline = None, Deadline.after(deadline_s)
        return LOOP.run(self._introduction, deadline, deadline=deadline)

    def check(self, sample: Any = None, deadline_s: float = 5.0) -> int | None:
        """Check that the server speaks the protocol, has the model, and takes such samples; raises `RemoteFailed`.

        Returns how many classes the model has, if it says so.
        """
        self._server, deadline = None, Deadline.after(deadline_s)
        signature = LOOP.run(self._knowledge, deadline, deadline=deadline).signature
        if sample is not None:
            signature.tensors([sample])
        return signature.classes

    def close(self) -> None:
        """Close the connections that `ask` and `ask_async` keep open."""
        LOOP.run(self.end, deadline=Deadline.after(_CLOSE_S))

    async def close_async(self) -> None:
        """The same for an event loop."""
        await LOOP.run_async(self.end, deadline=Deadline.after(_CLOSE_S))

    # -- in the event loop that asks ----------------------------------------------------------------------------------

    async def infer(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """Ask in this event loop, for whom has one to itself: `ask` and `ask_async` share another."""
        try:
            known = self._known or await self._knowledge(deadline)
            labels, moved = list[Any](), 0
            for part in known.signature.parts(samples):
                id = os.urandom(8).hex()  # which a server cannot guess, nor another device have
                response = await self._http.send(self._question(known, part, id), deadline)
                labels += self._labels(known, self._outputs(known, response, id), len(part))
                moved += response.bytes
            return Reply(labels, moved)
        except (RemoteInvalid, RemoteRefused, InvalidMessage) as error:
            self._known = self._server = None  # another model may run there now
            if isinstance(error, InvalidMessage):
                raise RemoteInvalid(error) from error
            raise

    async def end(self) -> None:
        """Close the connections that `infer` keeps open."""
        await self._http.close()

    async def _introduction(self, deadline: Deadline) -> tuple[ServerMetadata, ModelMetadata]:
        if self._server is None:
            response = await self._http.send(Request("GET", "/v2"), deadline)
            self._server = self._read(response, messages.parse_server_metadata)
        server = self._server
        response = await self._http.send(Request("GET", self._path.removesuffix("/infer")), deadline)
        if complaint := self._complaint(response):
            raise _failure(response)(f"{self.url} has no model {self.model!r}: {complaint}")
        return server, self._read(response, messages.parse_model_metadata)

    async def _knowledge(self, deadline: Deadline) -> Known:
        server, model = await self._introduction(deadline)
        self._known = known = Known(server.binary, signature_of(model, self._input, self._output))
        return known

    # -- requests, and what their responses are read as ---------------------------------------------------------------

    def _question(self, known: Known, samples: Sequence[Any], id: str) -> Request:
        binary = known.binary if self._binary is None else self._binary
        message = messages.build_request(known.signature.tensors(samples), id=id, binary=binary)
        return Request("POST", self._path, message, known.signature.reply_bytes(len(samples)))

    def _labels(self, known: Known, outputs: Mapping[str, Tensor], samples: int) -> list[Any]:
        return known.signature.labels(outputs, samples)

    def _outputs(self, known: Known, response: Response, id: str) -> Mapping[str, Tensor]:
        if response.status != 200:
            complaint = _complaint(response)
            raise RemoteRefused(complaint) if response.status in _REFUSED else error_of(response, complaint)
        settings: dict[str, Any] = {"id": id, "model": self.model, "expected": [known.signature.output]}
        try:
            return messages.parse_response(response.headers, response.body, **settings).outputs
        except InvalidMessage:  # which quotes it
            return messages.parse_response(response.headers, self._http.hidden(response).body, **settings).outputs

    def _read(self, response: Response, parse: Callable[[bytes], T]) -> T:
        problem = f"{self.url} does not speak the Open Inference Protocol"
        if complaint := self._complaint(response):
            raise _failure(response)(f"{problem}, or not to us: {complaint}")
        try:
            return parse(response.body)
        except InvalidMessage:
            pass
        try:
            return parse(self._http.hidden(response).body)
        except InvalidMessage as error:  # which quotes it
            raise RemoteInvalid(f"{problem}: {error}") from error

    def _complaint(self, response: Response) -> str:
        """What a server says is wrong; empty if nothing is."""
        if response.status in (401, 403) and not self._has_token:
            raise RemoteInvalid(f"{self.url} wants a token: --token-file or HINGE_TOKEN, in Python token=…")
        if response.status in (401, 403):
            raise RemoteInvalid(f"{self.url} refuses the token: {_complaint(response)}")
        return "" if response.status == 200 else _complaint(response)


def _failure(response: Response) -> type[RemoteFailed]:
    """The kind of failure that an error in place of metadata is: a server that is about to start, or a proxy before it,
    may answer otherwise soon.
    """
    return RemoteError if response.status >= 500 else RemoteInvalid


def _complaint(response: Response) -> str:
    moved = 300 <= response.status < 400  # which may name an address that is not for everybody
    problem = "" if moved else messages.parse_error(response.body)
    return f"HTTP {response.status}" + (f", {shown(problem, most=120)}" if problem else "")
