"""The server's ASGI application: access, limits, inference, and errors as JSON."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from hinge import __version__
from hinge._checks import positive, whole
from hinge.errors import HingeError, InvalidMessage, printable
from hinge.oip import messages
from hinge.oip.messages import InferenceRequest, Message, ServerMetadata
from hinge.oip.tensors import MAX_BODY_BYTES
from hinge.server.batch import Batcher
from hinge.server.models import VERSION, Model, Tensors, describe
from hinge.server.observability import Metrics

if TYPE_CHECKING:
    from hinge.server.server import BaseServer

LARGE_BYTES = 32 * 2**10  # reading or writing more would keep other requests waiting for milliseconds
OPEN = ("/v2/health/live", "/v2/health/ready")  # need no token
METADATA = ServerMetadata("hinge", __version__, ("binary_tensor_data",))

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SENT = ("application/json", "application/octet-stream")  # types of a request


class Refusal(HingeError):
    """A request that is refused: an HTTP status, what the client is told, and the reason as the metrics' label.

    The text is for strangers: it holds nothing of the server's files, models or code.
    """

    def __init__(self, status: int, reason: str, problem: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem)
        self.status, self.reason, self.headers = status, reason, dict(headers or {})


def overloaded(problem: str) -> Refusal:
    """Return the refusal of a server that has too much to do; the client may retry in a second."""
    return Refusal(503, "overloaded", problem, {"retry-after": "1"})


def shutting_down() -> Refusal:
    """Return the refusal of a server that is draining."""
    return overloaded("the server is shutting down")


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may send; beyond them they are refused.

    >>> Limits(requests=0)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Limits: requests must be an integer >= 1, got 0
    """

    requests: int = 256  # inferences received, waiting or running
    connections: int = 1024
    held_bytes: int = 4 * MAX_BODY_BYTES  # bodies in memory, all together
    receive_s: float = 30.0  # for a body to arrive
    batch: int = 64  # rows that a model is given at once; 1: requests are never joined

    def __post_init__(self) -> None:
        for name in ("requests", "connections", "held_bytes", "batch"):
            whole("Limits", name, getattr(self, name), 1)
        positive("Limits", "receive_s", self.receive_s)


class Exchange:
    """One request and its answer: what the log and the metrics say of it."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.path: str = scope["path"]
        self.headers = Headers(scope=scope)
        given = self.headers.get("x-request-id", "")  # kept if it may stand in a log
        self.id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        self.model = ""  # the one it concerns, once it is found among those that are served
        self.began_s = self.received_s = monotonic()  # and when its body was there
        self.status = self.bytes_in = self.bytes_out = 0
        self.problem = ""
        self.notes: dict[str, str] = {}  # headers for the answer to an inference
        self._send = send

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode("ascii"))]
        else:
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)


def exchange_of(request: Request) -> Exchange:
    """Return what is kept of the request."""
    exchange: Exchange = request.scope["hinge.exchange"]
    return exchange


class Service:
    """A model under its name, with its queue."""

    def __init__(self, name: str, model: Model, *, workers: int, limits: Limits, metrics: Metrics) -> None:
        self.name, self.model = name, model
        observe = metrics.watch_model(name, lambda: self.batcher.queued)
        self.batcher = Batcher(model, workers=workers, batch=limits.batch, observe=observe)

    def metadata(self) -> Message:
        return describe(self.name, self.model)


class App:
    """Answers requests for the models that are served."""

    body_bytes = MAX_BODY_BYTES  # of a request to a model

    def __init__(self, server: BaseServer, services: Mapping[str, Service], metrics: Metrics) -> None:
        self.services, self.limits = services, server.limits
        self.draining = False
        self._token, self._checks_host = server.token, not server.guarded
        self._metrics, self._log = metrics, server.log
        self._inferences: set[asyncio.Task[Any]] = set()  # in flight
        self._held = 0  # bytes of their bodies
        self._large = asyncio.Lock()  # one large message at a time, or reading them could take all memory
        self._router: ASGIApp = Router(self.routes(), redirect_slashes=False)
        metrics.watch(lambda: self.in_flight)

    def routes(self) -> list[Route]:
        """Return what is served at which path."""
        models = [f"/v2/models/{{model}}{version}" for version in ("", "/versions/{version}")]
        return [
            *(Route(f"{model}/infer", self.infer, methods=["POST"]) for model in models),
            *(Route(model, self.model) for model in models),
            *(Route(f"{model}/ready", self.model_ready) for model in models),
            *(Route(path, self.server) for path in ("/v2", "/v2/")),
            *self.own_routes(),
        ]

    def own_routes(self) -> list[Route]:
        """Return what a server of any kind has."""
        return [
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.ready),
            Route("/metrics", self.metrics),
        ]

    @property
    def in_flight(self) -> int:
        """How many inferences are received, waiting or running."""
        return len(self._inferences)

    def abandon(self) -> None:
        """Refuse the inferences in flight."""
        for task in self._inferences:
            task.cancel()

    async def close(self) -> None:
        """Stop the threads that run models."""
        for service in self.services.values():
            service.batcher.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send)
        scope["app"], scope["hinge.exchange"] = self, exchange
        try:
            self._check_access(exchange)
            await self._router(scope, receive, exchange.send)
        except asyncio.CancelledError:
            if not self.draining:
                raise
            await self._refuse(exchange, shutting_down(), scope, receive)  # the time to finish it is over
        except Exception as error:
            await self._refuse(exchange, self._refusal(exchange, error), scope, receive)
        finally:
            self._account(exchange)

    async def _refuse(self, exchange: Exchange, refusal: Refusal, scope: Scope, receive: Receive) -> None:
        if exchange.status:  # the answer has begun, and does not end
            exchange.status, exchange.problem = refusal.status, f"cut off: {refusal}"
            return
        exchange.problem = str(refusal)
        response = Response(self.error_body(refusal), refusal.status, refusal.headers, "application/json")
        await response(scope, receive, exchange.send)

    def error_body(self, refusal: Refusal) -> bytes:
        return msgspec.json.encode({"error": str(refusal)})

    def _refusal(self, exchange: Exchange, error: Exception) -> Refusal:
        """What a client is told of an error; internals stay in the log."""
        if isinstance(error, InvalidMessage):
            error = Refusal(400, "invalid", str(error))
        elif isinstance(error, HTTPException):
            error = _not_routed(error)
        if not isinstance(error, Refusal):
            problem = f"{type(error).__name__}: {error}"
            self._log.write("error", "failed", id=exchange.id, model=exchange.model, problem=problem)
            return Refusal(500, "failed", "the server could not do this; its log says why")
        self._metrics.refused(error.reason)
        return error

    def _account(self, exchange: Exchange) -> None:
        status, seconds = exchange.status or 499, monotonic() - exchange.began_s
        self._metrics.answered(exchange.model, status, seconds)
        level = "info" if status < 400 else "warning"
        if self._log.writes(level):
            wrong = {"path": printable(exchange.path), "error": printable(exchange.problem)} if status >= 400 else {}
            self._log.write(
                level,
                "request",
                id=exchange.id,
                model=exchange.model,
                status=status,
                ms=round(1000 * seconds, 3),
                bytes_in=exchange.bytes_in,
                bytes_out=exchange.bytes_out,
                **wrong,
            )

    def _check_access(self, exchange: Exchange) -> None:
        # A page elsewhere can have its own name resolve to this machine (DNS rebinding).
        if self._checks_host and not _names_this_machine(exchange.headers.get("host", "localhost")):
            raise Refusal(421, "host", "the Host header must name this machine, such as 127.0.0.1 or localhost")
        if self._token is None or exchange.path in OPEN:
            return
        scheme, _, shown = exchange.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(shown.strip().encode("latin-1"), self._token.encode("ascii"))
        if not same or scheme.lower() != "bearer":
            tried = scheme.lower() == "bearer" and shown
            problem = "the token is wrong" if tried else "a token is needed: Authorization: Bearer <token>"
            raise Refusal(401, "unauthorised", problem, {"www-authenticate": "Bearer"})

    # -- requests -----------------------------------------------------------------------------------------------------

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

    async def metrics(self, _: Request) -> Response:
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4")

    async def infer(self, request: Request) -> Response:
        service, exchange = self._service(request), exchange_of(request)
        async with self.admitted(request) as body:
            inference = await self._read(service, exchange, body)
            del body
            for name in inference.outputs:
                if name not in service.model.output_names:
                    raise InvalidMessage(f"the model has no output {name!r}")
            outputs = await until_gone(request, self.run(service, exchange, inference))
            build = partial(messages.build_response, inference, outputs, model=service.name, version=VERSION)
            message = await self.read_large(sum(tensor.nbytes for tensor in outputs.values()), build)
        return Response(message.body, headers={**message.headers, **exchange.notes})

    def _service(self, request: Request) -> Service:
        service = self.services.get(request.path_params["model"])
        if service is None:
            raise Refusal(404, "unknown", "there is no model of that name")
        exchange_of(request).model = service.name
        if request.path_params.get("version", VERSION) != VERSION:
            raise Refusal(404, "unknown", f"the model has only version {VERSION}")
        return service

    @asynccontextmanager
    async def admitted(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body of a request, which counts against the limits until the block is left."""
        exchange, task = exchange_of(request), cast("asyncio.Task[Any]", asyncio.current_task())
        headers = exchange.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "compressed", "compressed bodies are not taken")
        # A page of another site may have a browser send text or a form unasked, but neither JSON nor binary data.
        # Without an Origin no browser sends it, and clients such as tritonclient's name no type.
        if "origin" in headers and headers.get("content-type", "").partition(";")[0].strip().lower() not in _SENT:
            raise Refusal(415, "no JSON", "the content type must be application/json or application/octet-stream")
        if self.draining:
            raise shutting_down()
        if self.in_flight >= self.limits.requests:
            raise overloaded(f"{self.limits.requests} requests are in flight")
        self._inferences.add(task)
        try:
            yield await self._receive(request, exchange)
        finally:
            self._inferences.discard(task)
            self._held -= exchange.bytes_in

    async def _receive(self, request: Request, exchange: Exchange) -> bytes:
        length, body = exchange.headers.get("content-length", ""), bytearray()
        self._check_size(exchange, int(length[:20]) if length.isdigit() else 0)
        try:
            async with asyncio.timeout(self.limits.receive_s):
                while True:
                    message = await request.receive()
                    if message["type"] != "http.request":
                        raise disconnected()
                    piece = message.get("body", b"")
                    self._check_size(exchange, len(piece))
                    self._held += len(piece)
                    exchange.bytes_in += len(piece)
                    body += piece
                    if not message.get("more_body", False):
                        exchange.received_s = monotonic()
                        return bytes(body)
        except TimeoutError:
            raise Refusal(408, "too slow", "the body did not arrive in time") from None

    def _check_size(self, exchange: Exchange, more: int) -> None:
        """Refuse so many more bytes of a body, if they are too many."""
        if exchange.bytes_in + more > self.body_bytes:
            raise Refusal(413, "too large", f"a body may have {self.body_bytes} bytes")
        if self._held + more > self.limits.held_bytes:
            raise overloaded(f"{self._held} bytes of requests are in memory")

    async def _read(self, service: Service, exchange: Exchange, body: bytes) -> InferenceRequest:
        length = exchange.headers.get("inference-header-content-length")
        headers = {} if length is None else {"Inference-Header-Content-Length": length}
        read = partial(messages.parse_request, headers, body, expected=service.model.inputs)
        return await self.read_large(len(body), read)

    async def read_large(self, size: int, work: Callable[[], T]) -> T:
        """Read or write a message of so many bytes, beside the event loop if they are many."""
        if size <= LARGE_BYTES:
            return work()
        async with self._large:
            return await asyncio.to_thread(work)

    async def run(self, service: Service, exchange: Exchange, request: InferenceRequest) -> Tensors:
        """Return the outputs of the model."""
        try:
            return await service.batcher.run(request.inputs)
        except Exception as error:
            # What the runtime says may show what the model is made of, so it stays in the log.
            problem = f"{type(error).__name__}: {error}"[:500]
            self._log.write("error", "model failed", id=exchange.id, model=service.name, problem=problem)
            if isinstance(error, InvalidMessage):
                raise Refusal(400, "model failed", "the model does not take these inputs") from None
            raise Refusal(500, "model failed", "the model failed on these inputs") from None


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a request whose body is there; it is cancelled if the client hangs up."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())  # nothing else is left to receive
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise disconnected()
        return working.result()
    finally:
        gone.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))


def disconnected() -> Refusal:
    """Return the refusal of a client that has hung up; its status is for the log."""
    return Refusal(499, "disconnected", "the client closed the connection")


def _response(message: Message) -> Response:
    return Response(message.body, headers=message.headers)


def _json(fields: Mapping[str, object], status: int = 200) -> Response:
    return Response(msgspec.json.encode(fields), status, media_type="application/json")


def _not_routed(error: HTTPException) -> Refusal:
    """Starlette's refusal of a path or a method, as ours."""
    if error.status_code != 405:
        return Refusal(404, "unknown", "there is nothing at this path")
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    return Refusal(405, "method", f"this path takes {allowed}", {"allow": allowed})


@lru_cache(maxsize=64)
def _names_this_machine(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in ("127.0.0.1", "::1", "localhost")
    except ValueError:
        return False
