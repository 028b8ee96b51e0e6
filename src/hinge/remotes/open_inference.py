"""How samples become the tensors that a remote model takes, and how the tensors that it gives become labels.

A model behind the Open Inference Protocol, whichever way its messages travel.

What is said to the server is written once, as generators that yield requests and are sent the responses; `ask` and
`ask_async` differ in how these travel.

A remote model behind the Open Inference Protocol over HTTP: Triton, KServe, MLServer, `hinge serve` and the like.
"""

from __future__ import annotations

import itertools
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import numpy as np

from hinge.errors import InvalidMessage, RemoteError, RemoteFailed, RemoteInvalid, RemoteRefused
from hinge.oip.json import check_token, model_name, read_json, shown
from hinge.oip.messages import (
    ModelMetadata,
    ServerMetadata,
    build_request,
    inference_path,
    parse_model_metadata,
    parse_response,
    parse_server_metadata,
)
from hinge.oip.tensors import Tensor, TensorSpec, cast, dtype_of
from hinge.remotes import Deadline, Reply
from hinge.remotes.http import Ask, Http, Response


@dataclass(frozen=True)
class Contract:
    """What the remote's model takes and gives, as far as it says so."""

    inputs: tuple[TensorSpec, ...]
    output: TensorSpec | str

    @property
    def batches(self) -> bool:
        """Whether one request may hold many samples."""
        return all(spec.shape[:1] == (-1,) for spec in self.inputs)

    @property
    def classes(self) -> int | None:
        """How many classes the model scores, if it says so.

        >>> Contract((), TensorSpec("scores", "FP32", (-1, 10))).classes
        10
        """
        if isinstance(self.output, str) or not self.output.datatype.startswith("FP"):
            return None
        sizes = [size for size in self.output.shape if size != 1]
        return sizes[-1] if sizes and sizes[-1] > 1 and max(sizes[:-1], default=-1) == -1 else None

    def tensors(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """The samples as the model's inputs, along a first axis where the model has one for them.

        A sample is an array, or where the model has several inputs a mapping from their names to arrays.

        >>> contract = Contract((TensorSpec("x", "FP32", (-1, 2)),), "y")
        >>> contract.tensors([[1, 2], [3, 4]])["x"].tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        >>> contract.tensors([[1, 2, 3]])
        Traceback (most recent call last):
        hinge.errors.RemoteInvalid: tensor 'x': shape must be [-1, 2], got [1, 3]
        """
        try:
            return {spec.name: self._tensor(spec, samples) for spec in self.inputs}
        except (InvalidMessage, KeyError, TypeError, ValueError) as error:
            raise RemoteInvalid(str(error)) from error

    def _tensor(self, spec: TensorSpec, samples: Sequence[Any]) -> Tensor:
        values = [_value(spec, sample, len(self.inputs)) for sample in samples]
        alone = len(values) == 1 and len(spec.shape) == values[0].ndim  # the model has no axis for samples
        tensor: Tensor = values[0] if alone else np.stack(values)
        dtype = dtype_of(spec.datatype)
        if tensor.dtype != dtype and dtype.kind != "O":
            tensor = cast(f"tensor {spec.name!r}", tensor, dtype)
        spec.check(tensor)
        return tensor

    def labels(self, outputs: Mapping[str, Tensor], samples: int) -> list[Any]:
        """The label of each sample: the class that scores highest, or the number or name that the model itself gives.

        >>> Contract((), "y").labels({"y": np.array([[0.1, 0.9], [0.7, 0.3]])}, 2)
        [1, 0]
        >>> Contract((), "y").labels({"y": np.array([[0.1, np.nan]])}, 1)
        Traceback (most recent call last):
        hinge.errors.RemoteInvalid: the scores are not finite
        """
        name = self.output if isinstance(self.output, str) else self.output.name
        tensor = outputs[name] if name in outputs else next(iter(outputs.values()))
        rows = tensor.reshape(1, -1) if samples == 1 and tensor.ndim < 2 else tensor
        if len(rows) != samples or rows.ndim > 2:
            raise RemoteInvalid(f"{samples} samples have an output of shape {list(tensor.shape)}")
        if rows.dtype.kind != "f":
            return _named(rows)
        if rows.ndim != 2 or rows.shape[1] < 2:
            raise RemoteInvalid(f"scores of shape {list(tensor.shape)} have no classes")
        if not np.isfinite(rows).all():
            raise RemoteInvalid("the scores are not finite")
        labels: list[Any] = rows.argmax(axis=1).tolist()
        return labels


def contract_of(metadata: ModelMetadata, input: str | None, output: str | None) -> Contract:
    """What a model takes and gives, by its metadata; names that it does not tell must be given."""
    inputs = tuple(spec for spec in metadata.inputs if input in (None, spec.name))
    if not inputs:
        known = ", ".join(repr(spec.name) for spec in metadata.inputs) or "none"
        raise RemoteInvalid(f"model {metadata.name!r} has no input {input!r}; it tells of {known}")
    specs = [spec for spec in metadata.outputs if output in (None, spec.name)]
    if not specs and (output is None or metadata.outputs):
        known = ", ".join(repr(spec.name) for spec in metadata.outputs) or "none"
        raise RemoteInvalid(f"model {metadata.name!r} has no output {output!r}; it tells of {known}")
    return Contract(inputs, specs[0] if specs else str(output))


def _value(spec: TensorSpec, sample: Any, inputs: int) -> Tensor:
    if isinstance(sample, Mapping):
        return np.asarray(sample[spec.name])
    if inputs != 1:
        raise TypeError(f"the model has {inputs} inputs, so a sample must be a mapping from their names")
    return np.asarray(sample)


def _named(rows: Tensor) -> list[Any]:
    if rows.ndim == 2 and rows.shape[1] != 1:
        raise RemoteInvalid(f"an output of shape {list(rows.shape)} is no label for each sample")
    labels = rows.ravel().tolist()
    return [label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in labels]


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
            raise error if isinstance(error, RemoteFailed) else RemoteInvalid(str(error)) from error
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


_REFUSED = {400, 413, 415, 422}  # statuses by which a server refuses this sample, and not the client or all of them


class OpenInference(ServedModel):
    """A model on a server; what it takes and gives, and whether it knows binary tensors, is asked of it once.

    `token` is sent as a bearer token; `tls` is a context with your own certificates, where the system's are not enough.
    `input` and `output` choose among several. `binary` says whether tensors go as binary data; None: if the server
    lists that extension.

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
        self.url, self._path, self._binary = _checked_url(url), inference_path(model, version), binary
        self._has_token = token is not None
        headers = {} if token is None else {"Authorization": f"Bearer {check_token('OpenInference', token)}"}
        self._http = Http(self.url, headers, tls)
        super().__init__(self._http, model, version, input, output)

    def __repr__(self) -> str:
        return f"OpenInference({self.url!r}, model={self.model!r})"

    def _introducing(self) -> Dialogue[tuple[ServerMetadata, ModelMetadata]]:
        server = self._server  # kept, so that a slow one need not tell it all in one deadline
        if server is None:
            server = self._server = self._read(self._let_in((yield Ask("GET", "/v2"))), parse_server_metadata)
        response = self._let_in((yield Ask("GET", self._path.removesuffix("/infer"))))
        if response.status != 200:
            raise _final(response)(f"{self.url} has no model {self.model!r}: {_complaint(response)}")
        return server, self._read(response, parse_model_metadata)

    def _inferring(
        self, contract: Contract, server: ServerMetadata, tensors: Mapping[str, Tensor], id: str
    ) -> Dialogue[tuple[Mapping[str, Tensor], int]]:
        binary = server.binary if self._binary is None else self._binary
        response = yield Ask("POST", self._path, build_request(tensors, id=id, binary=binary))
        if response.status != 200:
            raise (RemoteRefused if response.status in _REFUSED else RemoteError)(_complaint(response))
        expected = [contract.output]
        answer = parse_response(response.headers, response.body, id=id, model=self.model, expected=expected)
        return answer.outputs, response.bytes

    def _let_in(self, response: Response) -> Response:
        if response.status in (401, 403) and not self._has_token:
            raise RemoteInvalid(f"{self.url} wants a token: --token-file or HINGE_TOKEN, in Python token=…")
        if response.status in (401, 403):
            raise RemoteInvalid(f"{self.url} refuses the token: {_complaint(response)}")
        return response

    def _read(self, response: Response, parse: Any) -> Any:
        try:
            if response.status != 200:
                raise InvalidMessage(_complaint(response))
            return parse(response.body)
        except InvalidMessage as error:
            problem = f"{self.url} does not speak the Open Inference Protocol: {error}"
            raise _final(response)(problem) from error


def _checked_url(url: str) -> str:
    """The address of a server, perhaps below a path; nothing in it may be taken for another part of a request."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"OpenInference: url must start with http:// or https:// and name a host, got {url!r}")
    if parts.query or parts.fragment or parts.username is not None or not re.fullmatch(r"[!-~]+", url):
        raise ValueError(f"OpenInference: url must have no spaces, query, fragment, user or password, got {url!r}")
    return url.rstrip("/")


def _final(response: Response) -> type[RemoteFailed]:
    """The kind of failure: a server that is about to start, or a proxy before it, may say another thing soon."""
    return RemoteError if response.status >= 500 else RemoteInvalid


def _complaint(response: Response) -> str:
    """The status, and how the server explains it."""
    try:
        fields = read_json(response.body)
        problem = fields.get("error", fields.get("detail", ""))
    except InvalidMessage:
        problem = ""
    return f"HTTP {response.status}" + (f", {shown(problem, most=120)}" if problem else "")
