"""A remote model behind the Open Inference Protocol over HTTP: Triton, KServe, MLServer, `hinge serve` and the like."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hinge.errors import InvalidMessage, RemoteFailed
from hinge.gate.protocol.metadata import ModelMetadata, ServerMetadata, parse_model_metadata, parse_server_metadata
from hinge.gate.protocol.open_inference import build_request, inference_path, parse_response
from hinge.gate.protocol.tensors import Tensor
from hinge.gate.protocol.wire import read_json, shown
from hinge.gate.remote.contract import Contract
from hinge.gate.remote.http import Ask, Http, Response
from hinge.gate.remote.served import Dialogue, ServedModel


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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"OpenInference: url must start with http:// or https:// and name a host, got {url!r}")
        self.url, self._path, self._binary = url.rstrip("/"), inference_path(model, version), binary
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = Http(self.url, headers, tls)
        super().__init__(self._http, model, version, input, output)

    def __repr__(self) -> str:
        return f"OpenInference({self.url!r}, model={self.model!r})"

    def _introducing(self) -> Dialogue[tuple[ServerMetadata, ModelMetadata]]:
        server = self._read(self._let_in((yield Ask("GET", "/v2"))), parse_server_metadata)
        response = self._let_in((yield Ask("GET", self._path.removesuffix("/infer"))))
        if response.status != 200:
            raise RemoteFailed(f"{self.url} has no model {self.model!r}: {_complaint(response)}", "invalid")
        return server, self._read(response, parse_model_metadata)

    def _inferring(
        self, contract: Contract, server: ServerMetadata, tensors: Mapping[str, Tensor], id: str
    ) -> Dialogue[tuple[Mapping[str, Tensor], int]]:
        binary = server.binary if self._binary is None else self._binary
        response = yield Ask("POST", self._path, build_request(tensors, id=id, binary=binary))
        if response.status != 200:
            raise RemoteFailed(_complaint(response), "error")
        expected = [contract.output]
        answer = parse_response(response.headers, response.body, id=id, model=self.model, expected=expected)
        return answer.outputs, response.bytes

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
