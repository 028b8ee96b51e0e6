"""The server's ASGI application: access, routes, inference, and errors as JSON.

Starlette routes all requests but inferences, whose paths are looked up in a table: matching patterns would cost more
than all else that happens to a request here.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from hinge import __version__
from hinge.device.metrics import SAFE
from hinge.errors import InvalidMessage, printable
from hinge.oip import messages
from hinge.oip.messages import InferenceRequest, Message, ServerMetadata
from hinge.oip.tensors import MAX_BODY_BYTES
from hinge.remotes import Deadline
from hinge.server.connections import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    Admission,
    Body,
    ClientConnection,
    Listener,
    Refusal,
    is_loopback,
    shutting_down,
)
from hinge.server.live import MAX_REPORT_BYTES, Reports, read_report
from hinge.server.models import VERSION, Service, Tensors
from hinge.server.observability import Metrics
from hinge.server.openapi import OPERATIONS, PAGE, Operation, content_type, describe

if TYPE_CHECKING:
    from hinge.server.server import BaseServer

LARGE_JSON_BYTES = 32 * 2**10  # reading or writing more would keep other requests waiting for milliseconds
IN_TIME = 0.95  # of the time that a client waits: an answer at the very end of it would come too late
LARGE_BYTES = 4 * 2**20  # of binary data
FLOW_BYTES = 2**16  # beyond which uvicorn stops reading from a connection
DISCARDED_BYTES = 8 * 2**10  # of a body that is not read, which uvicorn may read and discard
REPORTS = 16  # of devices, received at the same time

METADATA = ServerMetadata("hinge", __version__, ("binary_tensor_data",))

T = TypeVar("T")

_WANTED = {
    b"authorization", b"content-encoding", b"content-length", b"content-type", b"host", b"origin", b"transfer-encoding",
    b"inference-header-content-length", b"x-request-id", b"x-envoy-expected-rq-timeout-ms",
}  # fmt: skip  # several to a line
_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_SENT = (b"application/json", b"application/octet-stream")  # types of a request


class Exchange:
    """One request and its answer: the headers that matter, and what the log and the metrics say of it."""

    def __init__(self, scope: Scope, send: Send, connection: ClientConnection) -> None:
        self.path: str = scope["path"]
        self.connection = connection
        self.headers: dict[bytes, bytes] = {}
        self.ambiguous = False  # a header that matters is there twice
        for name, value in scope["headers"]:
            if name in _WANTED:
                self.ambiguous = self.ambiguous or name in self.headers
                self.headers[name] = value
        given = self.headers.get(b"x-request-id")  # kept if it may stand in a log
        self.id = given if given and _ID.fullmatch(given) else connection.request_id
        self.model = ""  # the one it concerns, once it is found among those that are served
        self.body: Body | None = None
        self.status = self.bytes_out = 0
        self.problem = ""
        self.notes: dict[str, str] = {}  # headers for the answer to an inference
        self._send = send

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id)]
        else:
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send all of the answer. (Starlette's `Response` takes 10 µs more.)"""
        self.status, self.bytes_out = status, len(body)
        raw = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        raw += [(b"content-length", b"%d" % len(body)), (b"x-request-id", self.id)]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
        await self._send({"type": "http.response.body", "body": body})

    def cut_off(self, refusal: Refusal) -> None:
        """The answer has begun and does not end: what the log and the metrics say is not the status that was sent."""
        self.status, self.problem = refusal.status, f"cut off: {refusal}"

    def check_body(self) -> None:
        """Refuse bodies whose headers can be read in two ways, and compressed ones, which grow when they are read."""
        headers = self.headers
        if self.ambiguous:
            raise Refusal(400, "invalid", "a header is there twice")
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise Refusal(400, "invalid", "the body has two lengths: Transfer-Encoding and Content-Length")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal(415, "compressed", "compressed bodies are not taken")

    @property
    def content_type(self) -> bytes:
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()

    @property
    def declared(self) -> int | None:
        """The length of the body, as the client declares it."""
        length = self.headers.get(b"content-length")
        return None if length is None or not length.isdigit() else int(length[:20])

    def deadline(self, most_s: float) -> Deadline:
        """When the answer must leave: `most_s` after the request has come, or earlier where the client waits less."""
        told = self.headers.get(b"x-envoy-expected-rq-timeout-ms", b"")
        left_s = IN_TIME * int(told) / 1000 if told.isdigit() and len(told) < 10 else most_s
        return Deadline.after(min(most_s, left_s), self.body.completed_s if self.body else None)

    @property
    def complete(self) -> bool:
        """Whether all of the request has come, or as good as all."""
        if self.body is not None:
            return self.body.complete
        return b"transfer-encoding" not in self.headers and (self.declared or 0) <= DISCARDED_BYTES


class App:
    """Answers requests for the models that are served."""

    operations: ClassVar[Sequence[Operation]] = OPERATIONS
    body_bytes = MAX_BODY_BYTES  # of a request to a model

    def __init__(
        self,
        server: BaseServer,
        services: Mapping[str, Service],
        metrics: Metrics,
        listener: Listener,
    ) -> None:
        self.services = services
        self.draining = False
        limits, receive_s = server.limits, server.limits.receive_s
        self.inferences = Admission(
            requests=limits.requests, held_bytes=limits.held_bytes, body_bytes=self.body_bytes, receive_s=receive_s
        )
        self._reporting = Admission(
            requests=REPORTS, held_bytes=REPORTS * MAX_REPORT_BYTES, body_bytes=MAX_REPORT_BYTES, receive_s=receive_s
        )
        self._token = token = server.token
        self._checks_host = token is None and not server.insecure
        self._metrics, self._log, self._listener = metrics, server.log, listener
        self._reports = Reports(metrics.requests)
        metrics.registry.register(self._reports)
        self._large = asyncio.Lock()  # one large message at a time, or reading them could take all memory
        self._openapi = msgspec.json.encode(describe(sorted(services), guarded=token is not None))
        self._paths = {
            f"/v2/models/{name}{version}/infer": service
            for name, service in services.items()
            for version in ("", f"/versions/{VERSION}")
        }
        self._open = {operation.path for operation in self.operations if operation.open}
        routes = [Route(each.path, getattr(self, each.handler), methods=[each.method]) for each in self.operations]
        self._router: ASGIApp = Router(routes, redirect_slashes=False)
        metrics.watch(lambda: self.inferences.requests, lambda: len(listener.open), lambda: server.log.dropped)

    def drain(self) -> None:
        """Admit no more inferences, and end the event streams."""
        self.draining = True
        self._reports.end_pages()

    def abandon(self) -> None:
        for service in self.services.values():
            service.batcher.abandon()

    async def close(self) -> None:
        """Stop the threads that run models."""
        for service in self.services.values():
            service.batcher.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = perf_counter()
        exchange = Exchange(scope, send, self._listener.begin(scope["client"]))
        try:
            self._check_access(scope, exchange)
            service = self._paths.get(exchange.path)
            if service is not None and scope["method"] == "POST":
                message = await self._infer(exchange, service, receive)
                await exchange.answer(200, message.headers, message.body)
            else:
                scope["app"], scope["hinge.exchange"] = self, exchange
                await self._router(scope, receive, exchange.send)
        except asyncio.CancelledError:
            if not self.draining:
                raise
            if exchange.status:
                exchange.cut_off(shutting_down())
                raise
            await self._refuse(exchange, shutting_down())  # the time to finish it is over
        except Exception as error:
            refusal = self._refusal(exchange, error)
            if exchange.status:
                exchange.cut_off(refusal)
            else:
                await self._refuse(exchange, refusal)
        finally:
            exchange.connection.end(exchange.complete)
            self._account(exchange, perf_counter() - start)

    async def _refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        exchange.problem = str(refusal)
        headers = {"content-type": "application/json", **dict(refusal.headers)}
        await exchange.answer(refusal.status, headers, self.error_body(refusal))

    def error_body(self, refusal: Refusal) -> bytes:
        return refusal.body

    def _refusal(self, exchange: Exchange, error: Exception) -> Refusal:
        """What a client is told of an error; internals stay in the log."""
        if isinstance(error, InvalidMessage):
            error = Refusal(400, "invalid", str(error))
        elif isinstance(error, HTTPException):
            error = _not_routed(error)
        if not isinstance(error, Refusal):
            problem = f"{type(error).__name__}: {error}"
            self._log.write("error", "failed", id=exchange.id.decode(), model=exchange.model, problem=problem)
            return Refusal(500, "failed", "the server could not do this; its log says why")
        self._metrics.refused(error.reason)
        return error

    def _account(self, exchange: Exchange, seconds: float) -> None:
        status = exchange.status or 499
        self._metrics.answered(exchange.model, status, seconds)
        level = "info" if status < 400 else "warning"
        if self._log.writes(level):
            self._log.write(
                level,
                "request",
                id=exchange.id.decode(),
                model=exchange.model,
                status=status,
                ms=round(1000 * seconds, 3),
                bytes_in=exchange.body.bytes if exchange.body else 0,
                bytes_out=exchange.bytes_out,
                **({"path": printable(exchange.path), "error": printable(exchange.problem)} if status >= 400 else {}),
            )

    # -- access --------------------------------------------------------------------------------------------------------

    def _check_access(self, scope: Scope, exchange: Exchange) -> None:
        headers = scope["headers"]
        if len(headers) > MAX_HEADERS or (
            exchange.connection.received > MAX_HEAD_BYTES
            and len(scope["raw_path"]) + sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES
        ):
            raise Refusal(431, "too large", "the headers are too large")
        if self._checks_host:
            host = exchange.headers.get(b"host")
            if host is not None and not _is_here(host, (scope.get("server") or ("",))[0]):
                raise Refusal(421, "host", "the Host header must name this machine, such as 127.0.0.1 or localhost")
        if self._token is not None and exchange.path not in self._open:
            self._check_token(exchange.headers.get(b"authorization", b""))

    def _check_token(self, authorization: bytes) -> None:
        """Compare in constant time: how long that takes says nothing of where they differ."""
        scheme, _, shown = authorization.partition(b" ")
        same = hmac.compare_digest(shown.strip(), (self._token or "").encode("ascii"))
        if not same or scheme.lower() != b"bearer":
            tried = scheme.lower() == b"bearer" and bool(shown)
            problem = "the token is wrong" if tried else "a token is needed: Authorization: Bearer <token>"
            raise Refusal(401, "unauthorised", problem, (("www-authenticate", "Bearer"),))

    # -- the operations that Starlette routes --------------------------------------------------------------------------

    async def server(self, _: Request) -> Response:
        return _response(messages.build_server_metadata(METADATA))

    async def live(self, _: Request) -> Response:
        return _json({"live": True})

    async def ready(self, _: Request) -> Response:
        return _json({"ready": not self.draining}, 503 if self.draining else 200)

    async def model(self, request: Request) -> Response:
        return _response(self._service(request).metadata())

    async def model_ready(self, request: Request) -> Response:
        return _json({"name": self._service(request).name, "ready": True})

    async def infer(self, request: Request) -> Response:
        """An inference by a path that is not in the table."""
        return _response(await self._infer(request.scope["hinge.exchange"], self._service(request), request.receive))

    async def metrics(self, _: Request) -> Response:
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4")

    async def openapi(self, _: Request) -> Response:
        return Response(self._openapi, media_type="application/json")

    async def page(self, request: Request) -> Response:
        """A file of the live page, which may load nothing but its own files."""
        name = PAGE[request.scope["path"]]
        return Response(_page_file(name), headers=SAFE, media_type=content_type(name))

    async def events(self, request: Request) -> ASGIApp:
        if self.draining:
            raise shutting_down()
        return Response(media_type="text/event-stream") if request.method == "HEAD" else self._reports.open_page()

    async def report(self, request: Request) -> Response:
        exchange: Exchange = request.scope["hinge.exchange"]
        exchange.check_body()
        if exchange.content_type != b"application/json":  # a browser sends other types for any page, without asking
            raise Refusal(415, "no JSON", "the content type must be application/json")
        name = messages.model_name(request.path_params["device"], "device")
        if self.draining:
            raise shutting_down()
        with self._reporting.request() as exchange.body:
            body = await exchange.body.receive(request.receive, exchange.declared, lambda: exchange.connection.received)
            if len(body) <= LARGE_JSON_BYTES:
                figures = read_report(name, body)
            else:
                figures = await asyncio.to_thread(read_report, name, body)
            self._reports.put(name, figures, request.client.host if request.client else "")
        return _json({"device": name})

    def _service(self, request: Request) -> Service:
        service = self.services.get(request.path_params["model"])
        if service is None:
            raise Refusal(404, "unknown", "there is no model of that name")
        request.scope["hinge.exchange"].model = service.name
        if request.path_params.get("version", VERSION) != VERSION:
            raise Refusal(404, "unknown", f"the model has only version {VERSION}")
        return service

    # -- inference -----------------------------------------------------------------------------------------------------

    async def _infer(self, exchange: Exchange, service: Service, receive: Receive) -> Message:
        exchange.model = service.name
        self._check_message(exchange)
        declared, reading = exchange.declared, None
        with self.inferences.request() as exchange.body:
            body = await exchange.body.receive(receive, declared, lambda: exchange.connection.received)
            if len(body) > FLOW_BYTES:  # uvicorn has stopped reading; a client that hangs up is noticed if it goes on
                reading = asyncio.ensure_future(receive())
            try:
                request = await self._read(service, exchange, body)
                del body
                for name in request.outputs:
                    if name not in service.model.output_names:
                        raise InvalidMessage(f"the model has no output {name!r}")
                outputs = await self._run(service, exchange, request)
                size = sum([tensor.nbytes for tensor in outputs.values()])
                build = partial(messages.build_response, request, outputs, model=service.name, version=VERSION)
                return build() if size <= LARGE_JSON_BYTES else await self._in_thread(exchange, build)
            finally:
                if reading is not None:
                    reading.cancel()

    def _check_message(self, exchange: Exchange) -> None:
        exchange.check_body()
        # A page of another site may have a browser send text or a form unasked, but neither JSON nor binary data.
        # Without an Origin no browser sends it, and clients such as tritonclient's name no type.
        if b"origin" in exchange.headers and exchange.content_type not in _SENT:
            raise Refusal(415, "no JSON", "the content type must be application/json or application/octet-stream")
        if self.draining:
            raise shutting_down()

    async def _read(self, service: Service, exchange: Exchange, body: bytes) -> InferenceRequest:
        length = exchange.headers.get(b"inference-header-content-length")
        headers = {} if length is None else {"Inference-Header-Content-Length": length.decode("latin-1")}
        in_json = int(length) if length and length.isdigit() and len(length) < 10 else len(body)  # as it is declared
        read = partial(messages.parse_request, headers, body, expected=service.model.inputs)
        if in_json <= LARGE_JSON_BYTES and len(body) <= LARGE_BYTES:
            return read()
        return await self._in_thread(exchange, read)

    async def _in_thread(self, exchange: Exchange, work: Callable[[], T]) -> T:
        async with self._large:
            exchange.connection.check()
            return await asyncio.to_thread(work)

    async def _run(self, service: Service, exchange: Exchange, request: InferenceRequest) -> Tensors:
        try:
            alone = self.inferences.requests == 1 and not self._listener.arriving
            result = service.batcher.run(request.inputs, alone)
            exchange.connection.cancels(result)
            return await result
        except Refusal:
            raise
        except asyncio.CancelledError:
            exchange.connection.check()
            raise
        except Exception as error:
            # What the runtime says may show what the model is made of, so it stays in the log.
            problem = f"{type(error).__name__}: {error}"[:500]
            self._log.write("error", "model failed", id=exchange.id.decode(), model=service.name, problem=problem)
            if isinstance(error, InvalidMessage):
                raise Refusal(400, "model failed", "the model does not take these inputs") from None
            raise Refusal(500, "model failed", "the model failed on these inputs") from None


def _response(message: Message) -> Response:
    return Response(message.body, headers=message.headers)


def _json(fields: Mapping[str, object], status: int = 200) -> Response:
    return Response(msgspec.json.encode(fields), status, media_type="application/json")


def _not_routed(error: HTTPException) -> Refusal:
    """Starlette's refusal of a path or a method, as ours."""
    if error.status_code != 405:
        return Refusal(404, "unknown", "there is nothing at this path")
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    return Refusal(405, "method", f"this path takes {allowed}", (("allow", allowed),))


@cache
def _page_file(name: str) -> bytes:
    return Path(__file__).with_name("page").joinpath(name).read_bytes()


@lru_cache(maxsize=64)
def _is_here(header: bytes, bound: str) -> bool:
    """Whether a Host header names this machine, if that is where the server is bound to.

    A page elsewhere can have its own name resolve to this machine (DNS rebinding).
    """
    if not is_loopback(bound):
        return True
    host = header.decode("latin-1").strip().lower()
    name, colon, port = host.rpartition(":")
    host = (name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host).strip("[]")
    return host in ("127.0.0.1", "::1", "localhost", bound)
