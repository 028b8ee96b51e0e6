"""A remote model behind the Open Inference Protocol over HTTP: Triton, KServe, MLServer, `hinge serve` and the like."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hinge.errors import InvalidMessage, RemoteFailed
from hinge.gate.protocol.metadata import ModelMetadata, ServerMetadata, parse_model_metadata, parse_server_metadata
from hinge.gate.protocol.open_inference import build_request, inference_path, parse_response
from hinge.gate.protocol.tensors import Tensor
from hinge.gate.protocol.token import check_token
from hinge.gate.protocol.wire import read_json, shown
from hinge.gate.remote.contract import Contract
from hinge.gate.remote.http import Ask, Http, Response
from hinge.gate.remote.served import Dialogue, ServedModel

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
            raise RemoteFailed(f"{self.url} has no model {self.model!r}: {_complaint(response)}", _final(response))
        return server, self._read(response, parse_model_metadata)

    def _inferring(
        self, contract: Contract, server: ServerMetadata, tensors: Mapping[str, Tensor], id: str
    ) -> Dialogue[tuple[Mapping[str, Tensor], int]]:
        binary = server.binary if self._binary is None else self._binary
        response = yield Ask("POST", self._path, build_request(tensors, id=id, binary=binary))
        if response.status != 200:
            raise RemoteFailed(_complaint(response), "refused" if response.status in _REFUSED else "error")
        expected = [contract.output]
        answer = parse_response(response.headers, response.body, id=id, model=self.model, expected=expected)
        return answer.outputs, response.bytes

    def _let_in(self, response: Response) -> Response:
        if response.status in (401, 403) and not self._has_token:
            raise RemoteFailed(f"{self.url} wants a token: --token-file or HINGE_TOKEN, in Python token=…", "invalid")
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
            raise RemoteFailed(problem, _final(response)) from error


def _checked_url(url: str) -> str:
    """The address of a server, perhaps below a path; nothing in it may be taken for another part of a request."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"OpenInference: url must start with http:// or https:// and name a host, got {url!r}")
    if parts.query or parts.fragment or parts.username is not None or not re.fullmatch(r"[!-~]+", url):
        raise ValueError(f"OpenInference: url must have no spaces, query, fragment, user or password, got {url!r}")
    return url.rstrip("/")


def _final(response: Response) -> str:
    """The kind of failure: a server that is about to start, or a proxy before it, may say another thing soon."""
    return "error" if response.status >= 500 else "invalid"


def _complaint(response: Response) -> str:
    """The status, and how the server explains it."""
    try:
        fields = read_json(response.body)
        problem = fields.get("error", fields.get("detail", ""))
    except InvalidMessage:
        problem = ""
    return f"HTTP {response.status}" + (f", {shown(problem, most=120)}" if problem else "")
