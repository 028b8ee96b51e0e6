"""Connections that keep a deadline: every step, from looking up a name to the last byte, ends at the same instant.

A timeout that starts anew with every read is none, as a remote that sends a byte now and then is never late. So each
step here gets what is left until the deadline. Names are looked up in a thread: nothing else can interrupt that.

HTTP for a device: one request and its response, all of it by a deadline, with connections kept open in between.

Threads use connections of ours and the parser of Python's `http.client`, whose own connections know no deadline. Event
loops use httpcore2, and cancel what is late.
"""

from __future__ import annotations

import asyncio
import io
import select
import socket
import ssl
import time
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse, IncompleteRead
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from hinge.errors import RemoteInvalid, RemoteLate, RemoteUnreachable
from hinge.oip.json import MAX_BODY_BYTES, Message
from hinge.remotes import Deadline

if TYPE_CHECKING:
    import httpcore2


_FRAME_BYTES = 2**20  # of a response beside its body: headers, and the lengths of chunks


class Connection(io.RawIOBase):
    """A connection to a host, whose steps raise `TimeoutError` from the deadline on. It is a file to read from."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, deadline: Deadline) -> None:
        self.deadline = deadline
        self._socket = _connected(host, port, deadline)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:  # Python counts the whole handshake against the one timeout
                self._socket.settimeout(_left(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except BaseException:
            self._socket.close()
            raise

    def send_all(self, data: bytes) -> None:
        """Send everything."""
        view = memoryview(data)
        while view:
            self._socket.settimeout(_left(self.deadline))
            view = view[self._socket.send(view) :]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(_left(self.deadline))
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """A buffer over the connection, which outlives it; how `http.client` asks for one."""
        return io.BufferedReader(_Borrowed(self))

    def is_idle(self) -> bool:
        """Whether nothing waits to be read: neither bytes that nobody asked for, nor the end."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return not waiting.poll(0)

    def close(self) -> None:
        """End the connection."""
        super().close()
        self._socket.close()


class _Borrowed(io.RawIOBase):
    """Reads one response from a connection, and leaves it open when it is closed itself."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._room = MAX_BODY_BYTES + _FRAME_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._connection.readinto(buffer)
        self._room -= size
        if self._room < 0:  # the parser's own limit is none where a chunk says that it has -1 bytes
            raise RemoteInvalid(f"the response is longer than {MAX_BODY_BYTES} bytes")
        return size


def _connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A socket connected to the first address of the host that takes it; each gets its share of the time."""
    problem: OSError = OSError(f"{host} has no address")
    addresses = _addresses(host, port, deadline)
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            share = deadline.share(1 / (len(addresses) - tried), time.monotonic())
            connection.settimeout(_left(share))
            connection.connect(address)
            return connection
        except OSError as error:  # TimeoutError among them
            connection.close()
            problem = error
    raise problem


def _addresses(host: str, port: int, deadline: Deadline) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        pass  # a name, then
    found: SimpleQueue[list[Any] | Exception] = SimpleQueue()
    Thread(target=_look_up, args=(host, port, found), name="hinge-lookup", daemon=True).start()
    try:
        result = found.get(timeout=_left(deadline))
    except Empty:
        raise TimeoutError(f"{host} could not be looked up in time") from None
    if isinstance(result, Exception):
        raise result
    return result


def _look_up(host: str, port: int, found: SimpleQueue[list[Any] | Exception]) -> None:
    try:
        found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:  # a name may be no name at all
        found.put(error)


def _left(deadline: Deadline) -> float:
    """Seconds until then; a socket would take 0 as a wish not to wait at all."""
    left = deadline.end_s - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


_CONNECTIONS = 64  # kept open at most


class Ask(NamedTuple):
    """What is to go over HTTP."""

    method: str
    path: str
    message: Message = Message({}, b"")


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    bytes: int  # what went over the network, both ways, but for the first line of the response


class Http:
    """Asks one server, from any thread or from an event loop. What fails on the way raises `RemoteFailed`."""

    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host, self._port = str(parts.hostname), parts.port or (443 if self._secure else 80)
        self._tls = (tls or ssl.create_default_context()) if self._secure else None
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Host": parts.netloc, "Accept": "*/*", **headers}
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._closed = False
        self._pool: httpcore2.AsyncConnectionPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the pool

    # -- from threads -------------------------------------------------------------------------------------------------

    def send(self, ask: Ask, deadline: Deadline) -> Response:
        """Send the request, and wait for the response until the deadline."""
        request = self._written(ask)
        with _translated():
            connection = self._connection(deadline)
            try:
                connection.send_all(request)
                response = HTTPResponse(connection, method=ask.method)  # type: ignore[arg-type]  # all it needs of one
                try:
                    response.begin()
                    _check_size(response.length or 0)
                    body = response.read(MAX_BODY_BYTES + 1)
                finally:
                    response.close()
                _check_body(body, response.length)
                if not response.will_close:
                    self._keep(connection)
                return _response(response.status, response.getheaders(), body, len(request))
            except BaseException:
                connection.close()
                raise

    def _connection(self, deadline: Deadline) -> Connection:
        """One that was kept, if it is still good, or a new one."""
        while (connection := self._kept()) is not None:
            if connection.is_idle():
                connection.deadline = deadline
                return connection
            connection.close()
        return Connection(self._host, self._port, self._tls, deadline)

    def _kept(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """End the connections of threads."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    # -- from an event loop -------------------------------------------------------------------------------------------

    async def send_async(self, ask: Ask, deadline: Deadline) -> Response:
        """Send the request, and wait for the response until the deadline, when all of it is cancelled."""
        with _translated():
            return await asyncio.wait_for(self._exchanged(ask), deadline.left(time.monotonic()))

    async def _exchanged(self, ask: Ask) -> Response:
        import httpcore2

        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:  # connections end with the event loop that they are of
            self._loop = loop
            self._pool = httpcore2.AsyncConnectionPool(ssl_context=self._tls, max_connections=_CONNECTIONS)
        headers = self._headers_of(ask)
        pairs = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        target = (self._prefix + ask.path).encode("ascii")
        scheme, host = b"https" if self._secure else b"http", self._host.encode("idna")
        url = httpcore2.URL(scheme=scheme, host=host, port=self._port, target=target)
        request = httpcore2.Request(ask.method, url, headers=pairs, content=ask.message.body)
        try:
            response = await self._pool.handle_async_request(request)
            try:
                _check_size(_told_length(response.headers))
                body = await _joined(response.aiter_stream())
            finally:
                await response.aclose()
        except httpcore2.TimeoutException as error:
            raise TimeoutError from error
        except (httpcore2.RemoteProtocolError, httpcore2.LocalProtocolError) as error:
            gone = str(error).startswith("Server disconnected")  # before a response began, which is no broken one
            raise (ConnectionError if gone else HTTPException)(str(error)) from error
        except (httpcore2.NetworkError, httpcore2.ProxyError) as error:
            raise OSError(str(error)) from error
        found = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
        return _response(response.status, found, body, len(self._written(ask)))

    async def close_async(self) -> None:
        """End the connections of the event loop."""
        pool, self._pool = self._pool, None
        if pool is not None and self._loop is asyncio.get_running_loop():
            await pool.aclose()

    # -- both ---------------------------------------------------------------------------------------------------------

    def _headers_of(self, ask: Ask) -> dict[str, str]:
        length = {} if ask.method == "GET" else {"Content-Length": str(len(ask.message.body))}
        return {**self._headers, **ask.message.headers, **length}

    def _written(self, ask: Ask) -> bytes:
        """The request as one piece, so that it travels as one."""
        lines = [f"{ask.method} {self._prefix}{ask.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._headers_of(ask).items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + ask.message.body


async def _joined(parts: AsyncIterable[bytes]) -> bytes:
    body = bytearray()
    async for part in parts:
        body += part
        _check_size(len(body))
    return bytes(body)


def _told_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The length that a response says it has, which the parser has found to be a number; 0 if it does not say."""
    return next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)


def _check_size(length: int) -> None:
    if length > MAX_BODY_BYTES:
        raise RemoteInvalid(f"the response is longer than {MAX_BODY_BYTES} bytes")


def _check_body(body: bytes, missing: int | None) -> None:
    _check_size(len(body))
    if missing:
        raise IncompleteRead(bytes(body[:0]), missing)


def _response(status: int, headers: list[tuple[str, str]], body: bytes, sent: int) -> Response:
    received = len(body) + sum(len(name) + len(value) + 4 for name, value in headers)
    return Response(status, dict(headers), body, sent + received)


@contextmanager
def _translated() -> Iterator[None]:
    """What goes wrong on the way, in our own words."""
    try:
        yield
    except TimeoutError as error:
        raise RemoteLate("no answer in time") from error
    except ConnectionError as error:  # of which http.client has kinds that are also its own
        raise RemoteUnreachable(f"cannot be reached: {error}") from error
    except (HTTPException, ValueError) as error:
        raise RemoteInvalid(f"no HTTP: {type(error).__name__} {error}".rstrip()) from error
    except (OSError, RuntimeError) as error:
        raise RemoteUnreachable(f"cannot be reached: {error}") from error
