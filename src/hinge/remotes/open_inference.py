"""A remote model behind the Open Inference Protocol: Triton, KServe, MLServer, `hinge serve` and the like.

    Signature       what the model takes and gives: samples to tensors, tensors to labels
    ServedModel     asks a server for metadata and inferences, over any transport
    OpenInference   over HTTP
"""

from __future__ import annotations

import math
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from hinge._checks import shown
from hinge.confidence import class_scores
from hinge.errors import InvalidMessage, RemoteError, RemoteFailed, RemoteInvalid, RemoteRefused
from hinge.oip import messages
from hinge.oip.messages import ModelMetadata, ServerMetadata
from hinge.oip.tensors import MAX_BODY_BYTES, Tensor, TensorSpec, cast, dtype_of
from hinge.remotes import Deadline, Reply
from hinge.remotes.http import HttpClient, Request, Response, bearer, check_url, error_of

_ANY_SIZE = 2**15  # taken for an axis of which the metadata says no size
_NUMBER_BYTES = 32  # of a number as JSON, at most, with what separates it from the next
_TEXT_BYTES = 1024  # of an element of type BYTES
_FRAME_BYTES = 2**16  # of a reply beside its tensors

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


class Transport(Protocol):
    """Sends one request to one server and returns its response by the deadline, or raises `RemoteFailed`."""

    def send(self, request: Any, deadline: Deadline) -> Any: ...

    async def send_async(self, request: Any, deadline: Deadline) -> Any: ...

    def close(self) -> None: ...

    async def close_async(self) -> None: ...


Steps = Generator[Any, Any, T]  # yields requests, is sent their responses, and returns what they come to


class ServedModel(ABC):
    """A model on a server. Its signature is asked for once, and again after a reply that cannot be used.

    Requests and responses are built and read here and in subclasses, without I/O; `ask` and `ask_async` send them.
    """

    keeps_deadline = True

    _protocol: Any = messages  # how its messages are parsed

    def __init__(
        self, transport: Transport, where: str, model: str, version: str, input: str | None, output: str | None
    ) -> None:
        self.model, self.version = messages.model_name(model), version and messages.model_name(version, "model version")
        self._transport, self._where, self._input, self._output = transport, where, input, output
        self._server: ServerMetadata | None = None  # kept, so that a slow server need not tell all in one deadline
        self._known: Known | None = None

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, by the deadline."""
        with self._forgetting():
            return self._sent(self._inference(samples), deadline)

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The same for an event loop."""
        with self._forgetting():
            return await self._sent_async(self._inference(samples), deadline)

    def metadata(self, deadline_s: float = 5.0) -> tuple[ServerMetadata, ModelMetadata]:
        """What the server says of itself and of the model; raises `RemoteFailed`."""
        self._server = None
        return self._sent(self._introduction(), Deadline.after(deadline_s))

    def check(self, sample: Any = None, deadline_s: float = 5.0) -> int | None:
        """Check that the server speaks the protocol, has the model, and takes such samples; raises `RemoteFailed`.

        Returns how many classes the model has, if it says so.
        """
        self._server = None
        signature = self._sent(self._knowledge(), Deadline.after(deadline_s)).signature
        if sample is not None:
            signature.tensors([sample])
        return signature.classes

    def close(self) -> None:
        """Close the connections that `ask` keeps open."""
        self._transport.close()

    async def close_async(self) -> None:
        """Close the connections that `ask_async` keeps open."""
        await self._transport.close_async()

    # -- requests, and what their responses are read as ----------------------------------------------------------------

    def _introduction(self) -> Steps[tuple[ServerMetadata, ModelMetadata]]:
        server = self._server  # another thread may forget it meanwhile
        if server is None:
            response = yield self._server_question()
            server = self._server = self._read(response, self._protocol.parse_server_metadata)
        response = yield self._model_question()
        if complaint := self._complaint(response):
            raise self._failure(response)(f"{self._where} has no model {self.model!r}: {complaint}")
        return server, self._read(response, self._protocol.parse_model_metadata)

    def _knowledge(self) -> Steps[Known]:
        server, model = yield from self._introduction()
        self._known = known = Known(server.binary, signature_of(model, self._input, self._output))
        return known

    def _inference(self, samples: Sequence[Any]) -> Steps[Reply]:
        known = self._known or (yield from self._knowledge())
        labels, moved = list[Any](), 0
        for part in known.signature.parts(samples):
            id = os.urandom(8).hex()  # which a server cannot guess, nor another device or a forked process have
            response = yield self._question(known, part, id)
            found, size = self._answer(known, response, id, len(part))
            labels += found
            moved += size
        return Reply(labels, moved)

    def _sent(self, steps: Steps[T], deadline: Deadline) -> T:
        """What the steps come to, whose requests are sent."""
        try:
            request = next(steps)
            while True:
                request = steps.send(self._transport.send(request, deadline))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _sent_async(self, steps: Steps[T], deadline: Deadline) -> T:
        try:
            request = next(steps)
            while True:
                request = steps.send(await self._transport.send_async(request, deadline))
        except StopIteration as end:
            result: T = end.value
            return result

    def _read(self, response: Any, parse: Callable[[bytes], T]) -> T:
        problem = f"{self._where} does not speak the Open Inference Protocol"
        if complaint := self._complaint(response):
            raise self._failure(response)(f"{problem}, or not to us: {complaint}")
        try:
            return parse(response.body)
        except InvalidMessage as error:
            raise self._failure(response)(f"{problem}: {error}") from error

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget what is known of the server after a response that does not fit it: another model may run there now."""
        try:
            yield
        except (RemoteInvalid, RemoteRefused):
            self._known = self._server = None
            raise
        except InvalidMessage as error:
            self._known = self._server = None
            raise RemoteInvalid(error) from error

    @abstractmethod
    def _server_question(self) -> Any:
        """The request for the server's metadata."""

    @abstractmethod
    def _model_question(self) -> Any:
        """The request for the model's metadata."""

    @abstractmethod
    def _complaint(self, response: Any) -> str:
        """What a server says is wrong; empty if nothing is."""

    def _failure(self, response: Any) -> type[RemoteFailed]:
        """The kind of failure that such a response to a request for metadata is."""
        return RemoteInvalid

    @abstractmethod
    def _question(self, known: Known, samples: Sequence[Any], id: str) -> Any:
        """The request for one inference."""

    @abstractmethod
    def _answer(self, known: Known, response: Any, id: str, samples: int) -> tuple[list[Any], int]:
        """The labels in a response, and how many bytes were on the network for it."""


_REFUSED = {400, 413, 415, 422}  # statuses by which a server refuses this sample, and not the client or all of them


class OpenInference(ServedModel):
    """A model on a server; its signature, and whether the server takes binary tensors, is asked for once.

    `url` is `http://host:port` or `https://…`. `token` is sent
    as a bearer token; `tls` is a context with your own certificates, where the system's are not enough. `input` and
    `output` choose among several. `binary` says whether tensors go as binary data; None: if the server lists that
    extension.

    >>> OpenInference("http://localhost:8080", model="fashion")
    OpenInference('http://localhost:8080', model='fashion')
    """

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
        self.url, self._binary = check_url("OpenInference", url), binary
        self._path = messages.inference_path(model, version)
        self._has_token = token is not None
        self._http = HttpClient(self.url, bearer("OpenInference", token), tls)
        super().__init__(self._http, self.url, model, version, input, output)

    def __repr__(self) -> str:
        return f"OpenInference({self.url!r}, model={self.model!r})"

    def _server_question(self) -> Request:
        return Request("GET", "/v2")

    def _model_question(self) -> Request:
        return Request("GET", self._path.removesuffix("/infer"))

    def _question(self, known: Known, samples: Sequence[Any], id: str) -> Request:
        binary = known.binary if self._binary is None else self._binary
        message = messages.build_request(known.signature.tensors(samples), id=id, binary=binary)
        return Request("POST", self._path, message, known.signature.reply_bytes(len(samples)))

    def _answer(self, known: Known, response: Response, id: str, samples: int) -> tuple[list[Any], int]:
        return known.signature.labels(self._outputs(known, response, id), samples), response.bytes

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
        try:
            return super()._read(response, parse)
        except RemoteFailed:  # likewise
            return super()._read(self._http.hidden(response), parse)

    def _complaint(self, response: Response) -> str:
        if response.status in (401, 403) and not self._has_token:
            raise RemoteInvalid(f"{self.url} wants a token: --token-file or HINGE_TOKEN, in Python token=…")
        if response.status in (401, 403):
            raise RemoteInvalid(f"{self.url} refuses the token: {_complaint(response)}")
        return "" if response.status == 200 else _complaint(response)

    def _failure(self, response: Response) -> type[RemoteFailed]:
        """A server that is about to start, or a proxy before it, may answer otherwise soon."""
        return RemoteError if response.status >= 500 else RemoteInvalid


def _complaint(response: Response) -> str:
    moved = 300 <= response.status < 400  # which may name an address that is not for everybody
    problem = "" if moved else messages.parse_error(response.body)
    return f"HTTP {response.status}" + (f", {shown(problem, most=120)}" if problem else "")
