"""A remote model behind the Open Inference Protocol over gRPC: Triton, KServe, MLServer and the like.

Messages travel as bytes, so that a damaged one is ours to refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

from hinge._checks import shown
from hinge._fork import renew_after_fork
from hinge.errors import InvalidValue, RemoteError, RemoteInvalid, RemoteLate, RemoteRefused, RemoteUnreachable
from hinge.oip.tensors import MAX_BODY_BYTES
from hinge.remotes import Deadline
from hinge.remotes.http import check_token
from hinge.remotes.open_inference import Known, ServedModel

try:
    import grpc
    import grpc.aio

    from hinge.oip import grpc as messages
except ImportError as error:
    raise ImportError(f"gRPC needs grpcio and protobuf ({error}): pip install 'hinge-gate[grpc]'") from error


_OPTIONS = [
    ("grpc.max_send_message_length", MAX_BODY_BYTES),
    ("grpc.max_receive_message_length", MAX_BODY_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),  # the breaker keeps a dead server from being pestered; what this
    ("grpc.max_reconnect_backoff_ms", 1000),  # would add is a wait after the server is back
    ("grpc.min_reconnect_backoff_ms", 5000),  # in spite of its name, how long one attempt to connect may take
    ("grpc.keepalive_time_ms", 60_000),  # together: a connection on which nothing was acknowledged for so long
    ("grpc.keepalive_timeout_ms", 5000),  # is given up, where TCP alone would try for a quarter of an hour
    ("grpc.enable_retries", 0),  # a device has its own
    ("grpc.enable_http_proxy", 0),  # as over HTTP
]


class OpenInferenceGrpc(ServedModel):
    """A model on a server; its signature is asked for once.

    `target` is the server's host and port. `token` is sent as a bearer token; with `credentials`, from
    `grpc.ssl_channel_credentials`, the connection is encrypted. `input` and `output` choose among several.

    >>> OpenInferenceGrpc("localhost:8001", model="fashion")
    OpenInferenceGrpc('localhost:8001', model='fashion')
    """

    _protocol = messages

    def __init__(
        self,
        target: str,
        model: str,
        *,
        version: str = "",
        input: str | None = None,
        output: str | None = None,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        if not target or target.startswith(("http:", "https:")):
            raise InvalidValue("OpenInferenceGrpc", "target", f"must be host:port, got {target!r}")
        self.target = target
        super().__init__(_Channel(target, token, credentials), target, model, version, input, output)

    def __repr__(self) -> str:
        return f"OpenInferenceGrpc({self.target!r}, model={self.model!r})"

    def _server_question(self) -> _Request:
        return _Request("ServerMetadata")

    def _model_question(self) -> _Request:
        return _Request("ModelMetadata", messages.build_model_request(self.model, self.version))

    def _complaint(self, response: _Response) -> str:
        return response.complaint

    def _question(self, known: Known, samples: Sequence[Any], id: str) -> _Request:
        tensors = known.signature.tensors(samples)
        return _Request("ModelInfer", messages.build_request(tensors, model=self.model, version=self.version, id=id))

    def _answer(self, known: Known, response: _Response, id: str, samples: int) -> tuple[list[Any], int]:
        if response.complaint:
            raise (RemoteRefused if response.refused else RemoteError)(response.complaint)
        limit = known.signature.reply_bytes(samples)
        if len(response.body) > limit:  # before it is parsed: the channel's own limit is that of any message
            raise RemoteInvalid(f"a message is too large: {len(response.body)} bytes, at most {limit} expected")
        answer = messages.parse_response(response.body, id=id, model=self.model, expected=[known.signature.output])
        return known.signature.labels(answer.outputs, samples), response.sent + len(response.body)


class _Request(NamedTuple):
    """A method and its message."""

    method: str
    message: bytes = b""


class _Response(NamedTuple):
    """What came back: a message, or an error of the server's."""

    body: bytes
    sent: int = 0  # bytes of the request
    complaint: str = ""
    refused: bool = False  # whether it is about this message, and not about all of them


class _Channel:
    """Calls one server, from any thread or event loop. Requests that do not reach it in time raise `RemoteFailed`."""

    def __init__(self, target: str, token: str | None, credentials: grpc.ChannelCredentials | None) -> None:
        self._target, self._credentials = target, credentials
        header = None if token is None else check_token("OpenInferenceGrpc", token)
        self._metadata = None if token is None else [("authorization", f"Bearer {header}")]
        self._lock = Lock()
        self._channel: grpc.Channel | None = None
        self._async_channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the channel
        self._forked = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        """gRPC's own threads are not in the child, and it cannot start them anew once it was used in the parent."""
        self._lock = Lock()
        self._forked = self._forked or self._channel is not None or self._async_channel is not None

    def send(self, request: _Request, deadline: Deadline) -> _Response:
        self._check_process()
        with self._lock:
            channel = self._channel = self._channel or self._opened(grpc)
        try:
            return _Response(self._call(channel, request, deadline), len(request.message))
        except (grpc.RpcError, ValueError) as error:  # ValueError: another thread closed the channel
            return _complaint(error)

    async def send_async(self, request: _Request, deadline: Deadline) -> _Response:
        self._check_process()
        loop = asyncio.get_running_loop()
        if self._async_channel is None or self._loop is not loop:  # a channel ends with the event loop that it is of
            self._loop, self._async_channel = loop, self._opened(grpc.aio)
        channel = self._async_channel
        try:
            return _Response(await self._call(channel, request, deadline), len(request.message))
        except (grpc.RpcError, grpc.aio.UsageError) as error:
            return _complaint(error)

    def close(self) -> None:
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None and not self._forked:
            channel.close()

    async def close_async(self) -> None:
        channel, self._async_channel = self._async_channel, None
        if channel is not None and not self._forked:
            await channel.close()

    def _check_process(self) -> None:
        if self._forked:
            raise RemoteUnreachable("gRPC was used before this process was forked; make the remote in the child")

    def _opened(self, kind: Any) -> Any:
        if self._credentials is None:
            return kind.insecure_channel(self._target, _OPTIONS)
        return kind.secure_channel(self._target, self._credentials, _OPTIONS)

    def _call(self, channel: Any, request: _Request, deadline: Deadline) -> Any:
        method = channel.unary_unary(f"/{messages.SERVICE}/{request.method}")
        return method(request.message, timeout=deadline.left(), metadata=self._metadata, wait_for_ready=False)


def _complaint(error: Exception) -> _Response:
    """The server's error; raises `RemoteFailed` if it could not be reached, or its answer not be received."""
    if not isinstance(error, grpc.RpcError):
        raise RemoteUnreachable(f"cannot be reached: {error}") from error
    code, details = error.code(), shown(error.details() or "", most=120)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        raise RemoteLate("no answer in time") from error
    if code is grpc.StatusCode.UNAVAILABLE:
        raise RemoteUnreachable(f"cannot be reached: {details}") from error
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:  # sent again, it would be again
        raise RemoteInvalid(f"a message is too large: {details}") from error
    refused = code is grpc.StatusCode.INVALID_ARGUMENT
    return _Response(b"", complaint=f"gRPC {code.name}, {details}", refused=refused)
