"""Connections: accepts them, counts them, and bounds what each may take up before a request reaches the application.

uvicorn parses HTTP, and leaves to others TLS handshakes that never end, connections beyond a limit, requests that
arrive too slowly, headers that are too large and answers that are not read. These limits are kept here, through
asyncio's public interfaces alone: uvicorn calls the event loop's `create_server`, which `EventLoop` answers with a
`Listener`, and each `Connection` is an asyncio protocol that passes bytes on to uvicorn's own.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl as tls
import time
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from hinge.errors import printable
from hinge.server.limits import MAX_HEAD_BYTES, Refusal, disconnected
from hinge.server.observability import Log, Metrics

try:
    import resource

    from uvloop import Loop as _Loop
except ImportError:  # Windows has neither
    resource = None  # type: ignore[assignment]  # a module, or None
    from asyncio import SelectorEventLoop as _Loop  # type: ignore[assignment]  # either is an event loop

READ_BYTES = 16 * 2**10  # of one connection in a turn of the event loop: tiny chunks cost up to 2 µs a byte
MAX_PIPELINED = 16  # requests in what is read at once: 400 clients with hundreds each would take every turn
HANDSHAKE_S = 10.0  # for a TLS handshake
STUCK_S = 30.0  # for a client to read an answer that is waiting
LINGER_S = 1.0  # in which a refused client may go on sending; closed at once, it would see a reset, not the answer
SWEEP_S = 0.25
REFUSED = 64  # refused clients that may linger at the same time
SPARE_FILES = 128  # descriptors for everything but connections

_PROCESS = secrets.token_hex(4).encode("ascii")
_COUNT = count(1)


def new_id() -> bytes:
    """An id that no other request has, by which an answer and its line in the log are found."""
    return b"%s-%x" % (_PROCESS, next(_COUNT))


class Connection(asyncio.BufferedProtocol):
    """One client's connection. `begin` and `end` enclose each of its requests."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._inner: asyncio.Protocol | None = None
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
        self._active = True
        self._since = None
        self.request_id = new_id()
        self._listener.idle.pop(self, None)

    def end(self, complete: bool) -> None:
        """The request is answered. If some of its body has not come, that is discarded and the connection closed."""
        self._active = False
        self._awaited = None  # and with it the result
        self.received = 0
        if not self.gone:
            self._listener.idle[self] = None
            if not complete:
                self._discard()

    def check(self) -> None:
        """Raise a refusal if the client has hung up."""
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
        if self._discarding or self._inner is None or self._transport is None:
            return
        self.received += nbytes
        self._in_read = 0
        if not self._active and self._since is None:
            self._since = asyncio.get_running_loop().time()
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
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self._inner is not None:
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
        """Close without an answer."""
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
        self._listener.idle.pop(self, None)
        if self._address and self._listener.by_address.get(self._address) is self:
            del self._listener.by_address[self._address]
        if self._awaited is not None:
            self._awaited.cancel()


class _Transport:
    """A transport as uvicorn sees it, whose reading can also be paused for one turn of the event loop.

    The head and the body of an answer, which uvicorn writes one after the other, are sent together: two calls of the
    system, and two wakes of the client, would take 30 µs more.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._wanted, self._waiting = True, False
        self._unsent: list[bytes] = []
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if data:
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
        self._wanted = False
        self._set()

    def resume_reading(self) -> None:
        self._wanted = True
        self._set()

    def pause_for_others(self) -> None:
        self._waiting = True
        self._set()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._waiting = False
        self._set()

    def _set(self) -> None:
        reading = self._wanted and not self._waiting
        if not self._transport.is_closing() and reading != self._transport.is_reading():
            (self._transport.resume_reading if reading else self._transport.pause_reading)()


class Listener:
    """Accepts connections, TLS handshakes included, up to a limit. At the limit, one that is idle makes room."""

    def __init__(self, *, limit: int, receive_s: float, metrics: Metrics, log: Log) -> None:
        self.limit = file_limited(limit, log)
        self._receive_s = receive_s
        self._metrics, self._log = metrics, log
        self._said: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._refused: set[socket.socket] = set()
        self.open: set[Connection] = set()
        self.idle: dict[Connection, None] = {}  # those without a request, the longest idle first
        self.by_address: dict[tuple[str, int], Connection] = {}
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

    def begin(self, address: tuple[str, int] | None) -> Connection:
        """The connection on which a client begins a request; a new one, of no consequence, where there is none."""
        connection = (self.by_address.get(address) if address else None) or Connection(self)
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
        """Wait until none is accepted any more."""
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
        connection = Connection(self)
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
        """Log an event, once a second at most."""
        now = time.monotonic()
        if now - self._said.get(event, -1.0) >= 1.0:
            self._said[event] = now
            self._log.write("warning", event, **fields)


class EventLoop(_Loop):
    """An event loop whose servers are `Listener`s."""

    listener: Listener

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, ssl: Any = None, **__: Any) -> Any:
        return self.listener.start(protocol_factory, sock, ssl)


def file_limited(connections: int, log: Log) -> int:
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
