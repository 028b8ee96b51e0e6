"""Connections, and limits on what clients may take up: the refusals, the requests admitted, and the connections.

uvicorn parses HTTP, and leaves to others TLS handshakes that never end, connections beyond a limit, requests that
arrive too slowly, headers that are too large and answers that are not read. uvicorn calls the event loop's
`create_server`, which `EventLoop` answers with a `Listener`; a `ClientConnection` passes bytes on to uvicorn's own.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import secrets
import socket
import ssl as tls
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, cast

import h11
import msgspec
from starlette.types import Message, Receive

from hinge._checks import positive, whole
from hinge.errors import HingeError, printable
from hinge.oip.tensors import MAX_BODY_BYTES
from hinge.server.observability import EventLog, Metrics

try:
    import resource

    from uvloop import Loop as _Loop
except ImportError:  # Windows has neither
    resource = None  # type: ignore[assignment]  # a module, or None
    from asyncio import SelectorEventLoop as _Loop  # type: ignore[assignment]  # either is an event loop

MAX_HEAD_BYTES = 16 * 2**10  # of a request's address and headers
MAX_HEADERS = 100
FREE_PIECES = 64  # pieces in which a body may arrive, however small they are
MIN_PIECE_BYTES = 256  # beyond those, how large they must be on average
PATIENCE_S = 1.0  # for a body to arrive, before it must make room where a limit is reached
FREE_FRAMING_BYTES = 2 * MAX_HEAD_BYTES  # of headers and chunk sizes; beyond, a body must be at least as large as they
READ_BYTES = 16 * 2**10  # of one connection in a turn of the event loop: tiny chunks cost up to 2 µs a byte
MAX_PIPELINED = 16  # requests in what is read at once: 400 clients with hundreds each would take every turn
HANDSHAKE_S = 10.0  # for a TLS handshake
STUCK_S = 30.0  # for a client to read an answer that is waiting
LINGER_S = 1.0  # in which a refused client may go on sending; closed at once, it would see a reset, not the answer
SWEEP_S = 0.25
REFUSED = 64  # refused clients that may linger at the same time
SPARE_FILES = 128  # descriptors for everything but connections

Headers = tuple[tuple[str, str], ...]


class Refusal(HingeError):
    """A request that is refused: an HTTP status, what the client is told, and the reason as the metrics' label.

    The text is for strangers: it holds nothing of the server's files, models or code.
    """

    def __init__(self, status: int, reason: str, problem: str, headers: Headers = ()) -> None:
        super().__init__(problem)
        self.status = status
        self.reason = reason
        self.headers = headers

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": str(self)})

    def http(self, id: str) -> bytes:
        """The whole answer, for a connection on which no request has begun.

        >>> Refusal(408, "too slow", "too slow").http("1").splitlines()[0]
        b'HTTP/1.1 408 Request Timeout'
        """
        body = self.body
        headers = {"content-type": "application/json", "content-length": str(len(body)), "x-request-id": id}
        headers |= {"connection": "close", **dict(self.headers)}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        return f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}\r\n{''.join(lines)}\r\n".encode() + body


def overloaded(problem: str) -> Refusal:
    """The server has too much to do; the client may retry in a second."""
    return Refusal(503, "overloaded", problem, (("retry-after", "1"),))


def shutting_down() -> Refusal:
    """The server is draining."""
    return overloaded("the server is shutting down")


def disconnected() -> Refusal:
    """The client has hung up; the status is for the log."""
    return Refusal(499, "disconnected", "the client closed the connection")


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
    receive_s: float = 30.0  # for a request to arrive, from its first byte to its last
    batch: int = 64  # rows that a model is given at once; 1: requests are never joined

    def __post_init__(self) -> None:
        for name in ("requests", "connections", "held_bytes", "batch"):
            whole("Limits", name, getattr(self, name), 1)
        positive("Limits", "receive_s", self.receive_s)


class Admission:
    """The requests in flight and the bytes of their bodies, counted against limits.

    At a limit, the body that has been arriving longest makes room, if it has had `PATIENCE_S`: clients that send slowly
    cannot keep others out for longer.
    """

    def __init__(self, *, requests: int, held_bytes: int, body_bytes: int, receive_s: float) -> None:
        self.requests = self.bytes = 0
        self.receive_s = receive_s
        self._max_requests, self._max_bytes, self._max_body = requests, held_bytes, body_bytes
        self.arriving: dict[Body, None] = {}  # the oldest first

    def request(self) -> Body:
        """Admit one request, until its body's context is left."""
        if self.requests >= self._max_requests and not self._make_room(None):
            raise overloaded(f"{self._max_requests} requests are in flight")
        return Body(self)

    def check(self, body: Body, more: int) -> None:
        """Refuse so many more bytes of a body, if they are too many."""
        if body.bytes + more > self._max_body:
            raise Refusal(413, "too large", f"a body may have {self._max_body} bytes")
        while self.bytes + more > self._max_bytes:
            if not self._make_room(body):
                raise overloaded(f"{self.bytes} bytes of requests are in memory")

    def _make_room(self, newcomer: Body | None) -> bool:
        oldest = next((body for body in self.arriving if body is not newcomer), None)
        return oldest is not None and oldest.make_room()


class Body:
    """The body of an admitted request."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.bytes = 0
        self.complete = False
        self.completed_s: float | None = None  # when it was, in seconds of `time.monotonic`
        self._since = asyncio.get_running_loop().time()
        self._timeout = asyncio.timeout(admission.receive_s)
        self._counted = self._slow = False

    def __enter__(self) -> Body:
        self._admission.requests += 1
        self._counted = True
        return self

    def leave(self, *_: object) -> None:
        """Hold nothing any more, be it answered or not."""
        self._admission.arriving.pop(self, None)
        if self._counted:
            self._counted = False
            self._admission.requests -= 1
            self._admission.bytes -= self.bytes

    __exit__ = leave

    def make_room(self) -> bool:
        """End the wait for the rest of it, unless it has only begun; whether that was so."""
        now = asyncio.get_running_loop().time()
        if now - self._since < PATIENCE_S:
            return False
        self.leave()
        self._slow = True
        self._timeout.reschedule(now)
        return True

    async def receive(self, receive: Receive, declared: int | None, received: Callable[[], int]) -> bytes:
        """All of it. `declared` is its Content-Length; `received` gives the bytes that came, framing included."""
        self._admission.check(self, declared or 0)
        pieces: list[bytes] = []
        self._admission.arriving[self] = None
        try:
            async with self._timeout:
                while not self.complete:
                    pieces.append(self._piece(await receive()))
                    if len(pieces) > FREE_PIECES and self.bytes < len(pieces) * MIN_PIECE_BYTES:
                        raise Refusal(400, "tiny pieces", "the body comes in too many pieces that are too small")
                    if not self.complete and received() > 2 * self.bytes + FREE_FRAMING_BYTES:
                        raise Refusal(400, "tiny pieces", "the body comes in chunks that are too small")
        except TimeoutError:
            if self._slow:
                raise overloaded("the body arrives too slowly while others wait") from None
            raise Refusal(408, "too slow", "the body did not arrive in time") from None
        finally:
            self._admission.arriving.pop(self, None)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, message: Message) -> bytes:
        if message["type"] != "http.request":
            raise disconnected()
        piece: bytes = message.get("body", b"")
        self._admission.check(self, len(piece))
        if self._counted:  # else it has made room, and its time is over
            self._admission.bytes += len(piece)
            self.bytes += len(piece)
        self.complete = not message.get("more_body", False)
        self.completed_s = time.monotonic() if self.complete else None
        return piece


# -- connections -------------------------------------------------------------------------------------------------------


_PROCESS = secrets.token_hex(4).encode("ascii")
_COUNT = count(1)


def new_id() -> bytes:
    """An id that no other request has, by which an answer and its line in the log are found."""
    return b"%s-%x" % (_PROCESS, next(_COUNT))


class ClientConnection(asyncio.BufferedProtocol):
    """One client's connection. `begin` and `end` enclose each of its requests."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._inner = asyncio.Protocol()  # uvicorn's, once there is a connection
        self._transport: _Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._awaited: asyncio.Future[Any] | None = None
        self._address: tuple[str, int] | None = None
        self._since: float | None = None  # when the request began that has not arrived yet
        self._unread, self._unread_since = 0, 0.0
        self._active = self._discarding = False
        self._in_read = 0  # requests that came with the last bytes
        self.request_id = b""
        self.received = 0  # bytes of the current request, headers included
        self.gone = False

    # -- for the application ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A request's headers have arrived."""
        self._in_read += 1
        if self._in_read > MAX_PIPELINED and self._transport is not None:
            self._listener.refused(0, "pipelined", f"more than {MAX_PIPELINED} requests were pipelined")
            self._transport.abort()
        self._active, self._since, self.request_id = True, None, new_id()
        self._listener.idle.pop(self, None)
        self._listener.arriving.discard(self)

    def end(self, complete: bool) -> None:
        """The request is answered. If some of its body has not come, that is discarded and the connection closed."""
        self._active = False
        self._awaited = None  # and with it the result
        parser: h11.Connection | None = getattr(self._inner, "conn", None)
        self.received = 0 if parser is None else len(parser.trailing_data[0])
        if self.received:  # a pipelined request has begun; where it is complete, `begin` follows
            self._since = asyncio.get_running_loop().time()
        if not self.gone:
            self._listener.idle[self] = None
            if not complete:
                self._discard()

    def check(self) -> None:
        if self.gone:
            raise disconnected()

    def cancels(self, result: asyncio.Future[Any]) -> None:
        """Cancel a result if the client hangs up, or has."""
        self._awaited = result
        if self.gone:
            result.cancel()

    # -- the asyncio protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._opening = _Transport(cast(asyncio.Transport, transport)), None
        self._since = asyncio.get_running_loop().time()
        peer = transport.get_extra_info("peername")
        self._address = (str(peer[0]), int(peer[1])) if peer else None
        if self._address:
            self._listener.by_address[self._address] = self
        self._inner = self._listener.protocol()
        self._inner.connection_made(cast(asyncio.Transport, self._transport))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._listener.buffer  # shared: it is read before anything else runs

    def buffer_updated(self, nbytes: int) -> None:
        if self._discarding or self._transport is None:
            return
        self.received += nbytes
        self._in_read = 0
        if not self._active:
            self._listener.arriving.add(self)
            self._since = self._since or asyncio.get_running_loop().time()
        self._inner.data_received(bytes(memoryview(self._listener.buffer)[:nbytes]))
        if nbytes == READ_BYTES:  # there may be more: others have a turn first
            self._transport.pause_for_others()
        if self._active:
            return
        if self._transport.is_closing():  # uvicorn has answered 400
            self._listener.refused(400, "no HTTP", "the request is not HTTP")
        elif self.received > MAX_HEAD_BYTES:  # once the request has begun, if its headers are complete
            asyncio.get_running_loop().call_soon(self._check_head)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._inner.connection_lost(exc)

    # -- for the listener ----------------------------------------------------------------------------------------------

    async def open(self, client: socket.socket, context: tls.SSLContext | None) -> None:
        """Make a connection of an accepted socket, TLS handshake included."""
        timeout = None if context is None else HANDSHAKE_S
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self, client, ssl=context, ssl_handshake_timeout=timeout)
        except asyncio.CancelledError:
            self._forget()
            client.close()
            raise
        except OSError:  # no TLS, not in time, or gone
            self._forget()
            client.close()
            if context is not None:
                self._listener.refused(0, "handshake", "the TLS handshake failed or took too long")

    def start(self, client: socket.socket, context: tls.SSLContext | None) -> None:
        self._opening = asyncio.get_running_loop().create_task(self.open(client, context))

    def abort(self) -> None:
        self._forget()
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    def sweep(self, now: float, receive_s: float) -> None:
        """Refuse a request that takes too long to arrive; close a connection whose answer is not read."""
        if self._transport is None:
            return
        if self._since is not None and now - self._since > receive_s:
            self._refuse(Refusal(408, "too slow", "the request did not arrive in time"))
        unread = self._transport.get_write_buffer_size()
        if unread != self._unread or not unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > STUCK_S:
            self._transport.abort()

    # ----------------------------------------------------------------------------------------------------------------

    def _check_head(self) -> None:
        if not self._active and self.received > MAX_HEAD_BYTES:
            self._refuse(Refusal(431, "too large", "the headers are too large"))

    def _refuse(self, refusal: Refusal) -> None:
        if self._transport is None or self._discarding or self._transport.is_closing():
            return
        id = self._listener.refused(refusal.status, refusal.reason, str(refusal))
        self._transport.write(refusal.http(id))
        self._discard()

    def _discard(self) -> None:
        """Ignore what is still sent, and close soon."""
        self._discarding, self._since = True, None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.linger()

    def _forget(self) -> None:
        self.gone = True
        self._since = None
        self._listener.open.discard(self)
        self._listener.arriving.discard(self)
        self._listener.idle.pop(self, None)
        if self._address and self._listener.by_address.get(self._address) is self:
            del self._listener.by_address[self._address]
        if self._awaited is not None:
            self._awaited.cancel()


class _Transport:
    """A transport as uvicorn sees it, whose reading can also be paused for one turn of the event loop.

    The head and the body of an answer are sent together, as two calls of the system would take 30 µs more, and at its
    end, for which uvicorn writes nothing: what it does after that can wait.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._wanted, self._waiting = True, False
        self._unsent: list[bytes] = []
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not data:
            self.flush()
            return
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unsent.append(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def linger(self) -> None:
        """Send no more, and close soon."""
        self.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)

    def flush(self) -> None:
        if self._unsent:
            self._transport.write(b"".join(self._unsent))
            self._unsent.clear()

    def pause_reading(self) -> None:
        self._set(wanted=False, waiting=self._waiting)

    def resume_reading(self) -> None:
        self._set(wanted=True, waiting=self._waiting)

    def pause_for_others(self) -> None:
        self._set(wanted=self._wanted, waiting=True)
        asyncio.get_running_loop().call_soon(lambda: self._set(wanted=self._wanted, waiting=False))

    def _set(self, wanted: bool, waiting: bool) -> None:
        self._wanted, self._waiting = wanted, waiting
        reading = wanted and not waiting
        if not self._transport.is_closing() and reading != self._transport.is_reading():
            (self._transport.resume_reading if reading else self._transport.pause_reading)()


class Listener:
    """Accepts connections, TLS handshakes included, up to a limit. At the limit, one that is idle makes room."""

    def __init__(self, *, limit: int, receive_s: float, metrics: Metrics, log: EventLog) -> None:
        self.limit = file_limited(limit, log)
        self._receive_s = receive_s
        self._metrics, self._log = metrics, log
        self._said: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._refused: set[socket.socket] = set()
        self.open: set[ClientConnection] = set()
        self.arriving: set[ClientConnection] = set()  # those with a part of a request that has not begun
        self.idle: dict[ClientConnection, None] = {}  # those without a request, the longest idle first
        self.by_address: dict[tuple[str, int], ClientConnection] = {}
        self.buffer = bytearray(READ_BYTES)
        self.started = asyncio.Event()

    def start(
        self, protocol: Callable[[], asyncio.Protocol], listener: socket.socket, context: tls.SSLContext | None
    ) -> Listener:
        """Accept from now on; `protocol` makes the HTTP server's side of a connection."""
        self.protocol = protocol
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._accept(listener, context)), loop.create_task(self._sweep())]
        self.started.set()
        return self

    def begin(self, address: tuple[str, int] | None) -> ClientConnection:
        """The connection on which a client begins a request; a new one, of no consequence, where there is none."""
        connection = (self.by_address.get(address) if address else None) or ClientConnection(self)
        connection.begin()
        return connection

    def refused(self, status: int, reason: str, problem: str) -> str:
        """Count and log a refusal that the application does not see; returns its id."""
        id = new_id().decode()
        self._metrics.refused(reason)
        self._log.write("warning", "refused", id=id, status=status, reason=reason, error=problem)
        return id

    def close(self) -> None:
        """Accept no more, and end the handshakes."""
        for task in self._tasks:
            task.cancel()
        for connection in list(self.open):
            if connection not in self.by_address.values():
                connection.abort()
        for client in list(self._refused):
            self._let_go(client)

    async def wait_closed(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, listener: socket.socket, context: tls.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:  # no more descriptors, or the client has gone
                self._say("connection not accepted", problem=printable(str(error)))
                await asyncio.sleep(0.1)
                continue
            self._admit(client, context)
            await asyncio.sleep(0)

    def _admit(self, client: socket.socket, context: tls.SSLContext | None) -> None:
        client.setblocking(False)
        if len(self.open) >= self.limit:
            longest = next(iter(self.idle), None)
            if longest is None:
                self._turn_away(client, context is None)
                return
            longest.abort()
            self._metrics.refused("idle")
            self._say("idle connections closed to make room", connections=self.limit)
        connection = ClientConnection(self)
        self.open.add(connection)
        self.idle[connection] = None
        connection.start(client, context)

    def _turn_away(self, client: socket.socket, plain: bool) -> None:
        """Answer 503, where that is possible before a TLS handshake."""
        self._metrics.refused("connections")
        self._say("too many connections", connections=self.limit)
        try:
            if plain and len(self._refused) < REFUSED:
                refusal = Refusal(503, "connections", "too many connections", (("retry-after", "1"),))
                client.send(refusal.http(new_id().decode()))
                client.shutdown(socket.SHUT_WR)
                self._refused.add(client)
                asyncio.get_running_loop().call_later(LINGER_S, self._let_go, client)
                return
        except OSError:
            pass
        client.close()

    def _let_go(self, client: socket.socket) -> None:
        self._refused.discard(client)
        client.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            for connection in list(self.open):
                connection.sweep(now, self._receive_s)

    def _say(self, event: str, **fields: object) -> None:
        now = time.monotonic()
        if now - self._said.get(event, -1.0) >= 1.0:
            self._said[event] = now
            self._log.write("warning", event, **fields)


@lru_cache(maxsize=64)
def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class EventLoop(_Loop):
    """An event loop whose servers are `Listener`s."""

    listener: Listener

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, ssl: Any = None, **__: Any) -> Any:
        return self.listener.start(protocol_factory, sock, ssl)


def file_limited(connections: int, log: EventLog) -> int:
    """So many connections, or fewer if the process may not open as many files; its soft limit is raised first."""
    if resource is None:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            connections = max(1, soft - SPARE_FILES)
            log.write("warning", "few descriptors", descriptors=soft, connections=connections)
    return connections
