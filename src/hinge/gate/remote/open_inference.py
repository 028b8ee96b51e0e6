"""A remote model behind the Open Inference Protocol over HTTP: Triton, KServe, MLServer, `hinge serve` and the like.

What is said to the server is written once, as generators that yield requests and are sent the responses; `ask` and
`ask_async` differ in how these travel.
"""

from __future__ import annotations

import itertools
import ssl
import time
from collections.abc import Generator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from hinge.errors import InvalidMessage, RemoteFailed
from hinge.gate.deadline import Deadline
from hinge.gate.protocol.metadata import ModelMetadata, ServerMetadata, parse_model_metadata, parse_server_metadata
from hinge.gate.protocol.open_inference import build_request, inference_path, model_name, parse_response
from hinge.gate.protocol.wire import read_json, shown
from hinge.gate.remote.asking import Reply
from hinge.gate.remote.contract import Contract, contract_of
from hinge.gate.remote.http import Ask, Http, Response

T = TypeVar("T")
Dialogue = Generator[Ask, Response, T]  # asks one thing after another, and returns what it wanted to know


class OpenInference:
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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"OpenInference: url must start with http:// or https:// and name a host, got {url!r}")
        self.url, self.model, self.version = url.rstrip("/"), model_name(model), version
        self._path = inference_path(model, version)
        self._input, self._output, self._binary = input, output, binary
        self._http = Http(self.url, {} if token is None else {"Authorization": f"Bearer {token}"}, tls)
        self._ids = itertools.count(1)
        self._known: tuple[Contract, bool] | None = None

    def __repr__(self) -> str:
        return f"OpenInference({self.url!r}, model={self.model!r})"

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, by the deadline."""
        return self._held(self._asking(samples), deadline)

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The labels of the samples, by the deadline."""
        dialogue = self._asking(samples)
        try:
            ask = next(dialogue)
            while True:
                ask = dialogue.send(await self._http.send_async(ask, deadline))
        except StopIteration as done:
            reply: Reply = done.value
            return reply

    def metadata(self, deadline_s: float = 5.0) -> tuple[ServerMetadata, ModelMetadata]:
        """What the server says of itself and of the model; raises `RemoteFailed`."""
        return self._held(self._introducing(), Deadline.after(deadline_s, time.monotonic()))

    def check(self, sample: Any = None, deadline_s: float = 5.0) -> None:
        """See that the server speaks the protocol, has the model, and takes such samples; raises `RemoteFailed`."""
        _, metadata = self.metadata(deadline_s)
        contract = contract_of(metadata, self._input, self._output)
        if sample is not None:
            contract.tensors([sample])

    def close(self) -> None:
        """End the connections that `ask` keeps open."""
        self._http.close()

    async def close_async(self) -> None:
        """End the connections that `ask_async` keeps open."""
        await self._http.close_async()

    def _held(self, dialogue: Dialogue[T], deadline: Deadline) -> T:
        try:
            ask = next(dialogue)
            while True:
                ask = dialogue.send(self._http.send(ask, deadline))
        except StopIteration as done:
            result: T = done.value
            return result

    # -- what is said -------------------------------------------------------------------------------------------------

    def _asking(self, samples: Sequence[Any]) -> Dialogue[Reply]:
        contract, binary = self._known or (yield from self._learning())
        try:
            return (yield from self._answering(contract, binary, samples))
        except (InvalidMessage, RemoteFailed) as error:
            self._known = None  # perhaps another model stands there now
            if isinstance(error, RemoteFailed):
                raise
            raise RemoteFailed(str(error), "invalid") from error

    def _answering(self, contract: Contract, binary: bool, samples: Sequence[Any]) -> Dialogue[Reply]:
        labels, moved = list[Any](), 0
        for part in [samples] if contract.batches else [[sample] for sample in samples]:
            id = str(next(self._ids))
            response = yield Ask("POST", self._path, build_request(contract.tensors(part), id=id, binary=binary))
            if response.status != 200:
                raise RemoteFailed(_complaint(response), "error")
            expected = [contract.output]
            answer = parse_response(response.headers, response.body, id=id, model=self.model, expected=expected)
            labels += contract.labels(answer.outputs, len(part))
            moved += response.bytes
        return Reply(labels, moved)

    def _learning(self) -> Dialogue[tuple[Contract, bool]]:
        server, model = yield from self._introducing()
        binary = server.binary if self._binary is None else self._binary
        self._known = contract_of(model, self._input, self._output), binary
        return self._known

    def _introducing(self) -> Dialogue[tuple[ServerMetadata, ModelMetadata]]:
        server = self._read(self._let_in((yield Ask("GET", "/v2"))), parse_server_metadata)
        response = self._let_in((yield Ask("GET", self._path.removesuffix("/infer"))))
        if response.status != 200:
            raise RemoteFailed(f"{self.url} has no model {self.model!r}: {_complaint(response)}", "invalid")
        return server, self._read(response, parse_model_metadata)

    def _let_in(self, response: Response) -> Response:
        if response.status in (401, 403):
            raise RemoteFailed(f"{self.url} refuses the token: {_complaint(response)}", "invalid")
        return response

    def _read(self, response: Response, parse: Any) -> Any:
        try:
            if response.status != 200:
                raise InvalidMessage(_complaint(response))
            return parse(response.body)
        except InvalidMessage as error:
            problem = f"{self.url} does not speak the Open Inference Protocol: {error}"
            raise RemoteFailed(problem, "invalid") from error


def _complaint(response: Response) -> str:
    """The status, and how the server explains it."""
    try:
        fields = read_json(response.body)
        problem = fields.get("error", fields.get("detail", ""))
    except InvalidMessage:
        problem = ""
    return f"HTTP {response.status}" + (f", {shown(problem, most=120)}" if problem else "")
