"""An HTTP/1.1 client whose requests end by a deadline, one for threads and event loops; and the addresses and bearer
tokens of servers.

Every step of a request, from the DNS lookup to the last byte, gets what is left of one deadline. The protocol is h11's,
which does no I/O, so threads and event loops share all of it; `_SocketStream` and `_LoopStream` move the bytes.

Not httpcore's pool, which is built the same way: it takes bytes that follow a response for the next one, and skips any
number of interim (1xx) responses without returning to the event loop, and neither can be changed from outside.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  # getaddrinfo loads it, and caches a failure if no descriptor is left just then
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakSet

from hinge._checks import shown
from hinge.errors import InvalidType, InvalidValue

try:
    import h11
except ImportError:  # said when a client is made: `from hinge import *` needs no extra
    h11 = None  # type: ignore[assignment]  # no module

from hinge._fork import renew_after_fork
from hinge.errors import RemoteError, RemoteInvalid, RemoteLate, RemoteUnreachable
from hinge.oip.messages import Message
from hinge.remotes import Deadline

TIMEOUT_HEADER = "X-Envoy-Expected-Rq-Timeout-Ms"  # Envoy's, by which a proxy tells a server how long it will wait
MAX_HEAD_BYTES = 2**16  # of a response
_MAX_INTERIM = 16  # responses with a status of 1xx before the final one
_MAX_CHUNKS = 2048  # of a body: each costs some 15 µs, however short it is
_MAX_IDLE = 64  # connections kept open
_READ_BYTES = 2**16


class Request(NamedTuple):
    """What to send, and the longest body that the response may have."""

    method: str
    path: str
    message: Message = Message({}, b"")
    limit: int = 2**20


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes
    bytes: int  # on the network, both ways


class Overloaded(RemoteError):
    """HTTP 429 or 503: the server takes no more for now, and may say for how many seconds."""

    def __init__(self, response: Response, complaint: str) -> None:
        super().__init__(complaint)
        told = response.headers.get("retry-after", "")
        self.status = response.status
        self.retry_after_s = int(told) if told.isdecimal() and len(told) < 7 else None


def error_of(response: Response, complaint: str) -> RemoteError:
    """The failure that an error of a server is.

    >>> error_of(Response(429, {"retry-after": "7"}, b"", 0), "HTTP 429").retry_after_s
    7
    """
    return Overloaded(response, complaint) if response.status in (429, 503) else RemoteError(complaint)


class HttpClient:
    """Sends requests to one server, from any thread or event loop. Failures are subclasses of `RemoteFailed`.

    A server may quote the token in what it says is wrong, which others read: there it is replaced by `***`. A server
    may also close a connection that is kept open just when it is used again. So a request on such a connection is sent
    once more, on a new one and by the same deadline, if the connection ends before any byte of the response has come:
    that is the rule by which HTTP clients repeat requests. An inference may be repeated: it changes nothing.

    Thread-safe. A forked child starts with connections of its own.
    """

    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None) -> None:
        if h11 is None:
            raise ImportError("a remote over HTTP needs h11: pip install 'hinge-gate[device]'")
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Host": parts.netloc, "Accept": "*/*", **headers}
        self._secret = _Secret(headers.get("Authorization", "").rpartition(" ")[2])
        self._address = _Address(str(parts.hostname), parts.port or (443 if secure else 80))
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the parent's connections. Closing those of its event loop would change the loop's own selector."""
        self._closed = False
        self._idle: list[_Connection[_SocketStream]] = []  # list.append and list.pop are thread-safe
        self._idle_of: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Connection[_LoopStream]]]
        self._idle_of = WeakKeyDictionary()
        self._closed_in: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

    # -- from threads -------------------------------------------------------------------------------------------------

    def send(self, request: Request, deadline: Deadline) -> Response:
        """Send the request and return the response; raises `RemoteLate` at the deadline."""
        connection = _reusable(self._idle)
        with self._failures():
            while True:
                reused = connection is not None
                if connection is None:
                    connection = _Connection(_SocketStream(self._address, self._tls, deadline))
                try:
                    connection.stream.write(connection.start(self._events(request, deadline), request.limit), deadline)
                    response = None
                    while response is None:
                        response = connection.receive(connection.stream.read(deadline))
                    break
                except BaseException as error:
                    connection.stream.close()
                    if not (reused and connection.ended_by(error)):
                        raise
                    connection = None
        if connection.may_be_reused() and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
            if self._closed:  # by another thread, meanwhile
                self.close()
        else:
            connection.stream.close()
        return self.safe(response)

    def close(self) -> None:
        """Close the idle connections of threads, and keep no others open."""
        self._closed = True
        while self._idle:
            self._idle.pop().stream.close()

    # -- from an event loop -------------------------------------------------------------------------------------------

    async def send_async(self, request: Request, deadline: Deadline) -> Response:
        """The same for an event loop: cancelled at the deadline."""
        loop = asyncio.get_running_loop()
        idle = self._idle_of.setdefault(loop, [])
        connection = _reusable(idle)
        with self._failures():
            async with asyncio.timeout(deadline.left()):
                while True:
                    reused = connection is not None
                    if connection is None:
                        connection = _Connection(await _LoopStream.connected(self._address, self._tls, deadline))
                    try:
                        connection.stream.write(connection.start(self._events(request, deadline), request.limit))
                        response = None
                        while response is None:
                            response = connection.receive(await connection.stream.read())
                        break
                    except BaseException as error:
                        connection.stream.close()
                        if not (reused and connection.ended_by(error)):
                            raise
                        connection = None
        if connection.may_be_reused() and len(idle) < _MAX_IDLE and loop not in self._closed_in:
            idle.append(connection)
        else:
            connection.stream.close()
        return self.safe(response)

    @asynccontextmanager
    async def stream_async(
        self, request: Request, deadline: Deadline, stall_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """The response without its body, and the body piece by piece; each has `stall_s` to come after the last.

        The deadline is for connecting, always anew: a network that is down is noticed then, and not by silence, as a
        response may take as long as it likes.
        """
        with self._failures():
            async with asyncio.timeout(deadline.left()):
                stream = await _LoopStream.connected(self._address, self._tls, deadline)
        connection, whole = _Connection(stream), False

        async def more() -> None:
            nonlocal whole
            with self._failures():
                async with asyncio.timeout(stall_s):
                    whole = connection.receive(await stream.read()) is not None

        async def pieces() -> AsyncIterator[bytes]:
            while True:
                if piece := connection.piece():
                    yield piece
                if whole:
                    return
                await more()

        try:
            stream.write(connection.start(self._events(request), request.limit))
            while (head := connection.head()) is None:
                await more()
            yield head, pieces()
        finally:
            stream.close()

    async def close_async(self) -> None:
        """Close the idle connections of the running event loop, and keep no others open in it."""
        loop = asyncio.get_running_loop()
        self._closed_in.add(loop)
        for connection in self._idle_of.pop(loop, []):
            connection.stream.close()

    def safe(self, response: Response) -> Response:
        """The response; without the token, if it is an error, in whose text a server may quote it."""
        return response if response.status < 300 else self.hidden(response)

    def hidden(self, response: Response) -> Response:
        """The response without the token."""
        return response._replace(body=self._secret.hidden(response.body))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn exceptions of sockets and of the protocol into failures of the remote."""
        try:
            yield
        except TimeoutError as error:  # concurrent.futures' and asyncio's are the same
            raise RemoteLate("no answer in time") from error
        except ssl.CertificateError as error:  # also a ValueError
            problem = f"its certificate is not trusted: {error.verify_message}"
            raise RemoteInvalid(f"{problem} (--ca names who signed it, in Python tls=…)") from error
        except (h11.ProtocolError, ValueError) as error:  # which may quote what came
            problem = self._secret.hidden(str(error).encode()).decode()
            if isinstance(error, UnicodeError):  # of a name that is none
                raise RemoteUnreachable(f"cannot be reached: {problem}") from error
            raise RemoteInvalid(f"no HTTP: {problem}") from error
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread is left for the lookup
            raise RemoteUnreachable(f"cannot be reached: {error}") from error

    def _events(self, request: Request, deadline: Deadline | None = None) -> list[Any]:
        body = request.message.body
        headers = {**self._headers, **request.message.headers}
        if deadline is not None:  # always as many digits: what a request weighs must not depend on the clock
            headers[TIMEOUT_HEADER] = f"{min(9_999_999, int(1000 * _left(deadline))):07d}"
        if request.method != "GET":
            headers["Content-Length"] = str(len(body))
        head = h11.Request(method=request.method, target=self._prefix + request.path, headers=list(headers.items()))
        return [head, h11.Data(data=body), h11.EndOfMessage()] if body else [head, h11.EndOfMessage()]


class _Stream(Protocol):
    def is_idle(self) -> bool: ...

    def close(self) -> None: ...


Stream = TypeVar("Stream", bound=_Stream)


class _Connection(Generic[Stream]):
    """One connection: h11's state of it, the response that is being received, and the stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)

    def start(self, events: list[Any], limit: int) -> bytes:
        """Begin an exchange: the request's bytes, in one piece, so that it travels as one."""
        self._limit, self._body = limit, bytearray()
        self._head: h11.Response | None = None
        self._received, self._interim, self._chunks = 0, 0, 0
        request = b"".join(self._protocol.send(event) or b"" for event in events)
        self._sent = len(request)
        return request

    def receive(self, data: bytes) -> Response | None:
        """Take what was read (empty: the server closed the connection); the response, once it is whole."""
        if not data and not self._received:
            raise ConnectionError("the server closed the connection without a response")
        self._received += len(data)
        self._protocol.receive_data(data)
        while (event := self._protocol.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                self._body += event.data
                self._chunks += event.chunk_start
                if self._chunks > _MAX_CHUNKS:
                    raise RemoteInvalid(f"the response is in more than {_MAX_CHUNKS} chunks")
                self._check_size(len(self._body))
            elif isinstance(event, h11.Response):
                self._head = event
                lengths = [value for name, value in event.headers if name == b"content-length"]
                self._check_size(int(lengths[0]) if lengths else 0)
            elif isinstance(event, h11.InformationalResponse):
                self._interim += 1
                if self._interim > _MAX_INTERIM or event.status_code == 101:
                    raise RemoteInvalid(f"{self._interim} interim responses, the last with status {event.status_code}")
            else:
                return self._response(bytes(self._body))
        return None

    def ended_by(self, error: BaseException) -> bool:
        """Whether the connection ended before any byte of the response has come."""
        return not self._received and isinstance(error, OSError) and not isinstance(error, TimeoutError)

    def head(self) -> Response | None:
        """The response as far as its headers, once they are here."""
        return None if self._head is None else self._response(b"")

    def piece(self) -> bytes:
        """What has come of the body since the last piece; the limits hold for each piece."""
        piece, self._body, self._chunks = bytes(self._body), bytearray(), 0
        return piece

    def may_be_reused(self) -> bool:
        """Whether another request may follow; not if more was sent than the response, which would answer it."""
        states = {self._protocol.our_state, self._protocol.their_state}
        if states != {h11.DONE} or self._protocol.trailing_data[0]:
            return False
        self._protocol.start_next_cycle()
        return True

    def _response(self, body: bytes) -> Response:
        if self._head is None:
            raise ConnectionError("the server closed the connection without a response")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._head.headers}
        return Response(self._head.status_code, headers, body, self._sent + self._received)

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise RemoteInvalid(f"the response is longer than {self._limit} bytes")


def _reusable(idle: list[_Connection[Stream]]) -> _Connection[Stream] | None:
    """An idle connection on which nothing has arrived since, neither surplus bytes nor its end."""
    while idle:
        try:
            connection = idle.pop()
        except IndexError:  # another thread took the last
            break
        if connection.stream.is_idle():
            return connection
        connection.stream.close()
    return None


class _SocketStream:
    """A blocking socket; every call raises `TimeoutError` at the deadline."""

    def __init__(self, address: _Address, tls: ssl.SSLContext | None, deadline: Deadline) -> None:
        with _closed_on_error(self._connected(address, deadline)) as self._socket:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:  # the timeout holds for the whole handshake
                self._socket.settimeout(_left(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)

    @staticmethod
    def _connected(address: _Address, deadline: Deadline) -> socket.socket:
        found = address.numeric or address.lookup().result(_left(deadline))
        problem: OSError = OSError(f"{address.host} has no address")
        for tried, (family, kind, protocol, _, target) in enumerate(found):
            try:
                with _closed_on_error(socket.socket(family, kind, protocol)) as connection:
                    connection.settimeout(_left(deadline.split(1 / (len(found) - tried))))
                    connection.connect(target)
                    return connection
            except OSError as error:  # TimeoutError included
                problem = error
        raise problem

    def write(self, data: bytes, deadline: Deadline) -> None:
        view = memoryview(data)
        while view:
            self._socket.settimeout(_left(deadline))
            view = view[self._socket.send(view) :]

    def read(self, deadline: Deadline) -> bytes:
        """What has arrived, waiting for it; empty at the end."""
        self._socket.settimeout(_left(deadline))
        return self._socket.recv(_READ_BYTES)

    def is_idle(self) -> bool:
        """Whether there is nothing to read, not even the end. Works with TLS and needs no `poll`."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self._socket.close()


class _LoopStream(asyncio.Protocol):
    """A connection of an event loop."""

    @classmethod
    async def connected(cls, address: _Address, tls: ssl.SSLContext | None, deadline: Deadline) -> _LoopStream:
        """Connect, to the first address that answers."""
        loop = asyncio.get_running_loop()
        found = address.numeric or await asyncio.wrap_future(address.lookup())
        problem: OSError = OSError(f"{address.host} has no address")
        for tried, (family, kind, protocol, _, target) in enumerate(found):
            try:
                with _closed_on_error(socket.socket(family, kind, protocol)) as connection:
                    connection.setblocking(False)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    async with asyncio.timeout(deadline.split(1 / (len(found) - tried)).left()):
                        await loop.sock_connect(connection, target)
                    host = None if tls is None else address.host
                    _, stream = await loop.create_connection(cls, sock=connection, ssl=tls, server_hostname=host)
                    return stream
            except OSError as error:  # TimeoutError included
                problem = error
        raise problem

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._ended = False
        self._problem: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > _READ_BYTES:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._problem = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def write(self, data: bytes) -> None:
        """Send everything, in the background: it is in memory anyway, and dropped if the request is cancelled."""
        self._transport.write(data)

    async def read(self) -> bytes:
        while not self._buffer and not self._ended:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self._problem is not None and not self._buffer:
            raise self._problem
        data, self._buffer = bytes(self._buffer), bytearray()
        if not self._ended:
            self._transport.resume_reading()
        return data

    def is_idle(self) -> bool:
        return not (self._buffer or self._ended or self._transport.is_closing())

    def close(self) -> None:
        self._transport.abort()


class _Address:
    """Host and port. A name is looked up in a daemon thread, as nothing else can interrupt that; one at a time."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        try:
            flags = socket.AI_NUMERICHOST
            self.numeric: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        except (OSError, UnicodeError):
            self.numeric = []  # a name, to be looked up for every connection
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The parent's thread does not exist in a child."""
        self._lock = Lock()
        self._pending: Future[list[Any]] | None = None

    def lookup(self) -> Future[list[Any]]:
        """The addresses, once they are known: if a lookup is under way, its outcome."""
        with self._lock:
            if self._pending is None or self._pending.done():
                pending: Future[list[Any]] = Future()
                Thread(target=self._look_up, args=(pending,), name="hinge-lookup", daemon=True).start()
                self._pending = pending
            # Each caller gets a future of its own: an event loop that gives up cancels what it waits for.
            own: Future[list[Any]] = Future()
            self._pending.add_done_callback(lambda done: _copy_outcome(done, own))
            return own

    def _look_up(self, pending: Future[list[Any]]) -> None:
        try:
            pending.set_result(socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
        except Exception as error:  # UnicodeError too: not every text can be a name
            pending.set_exception(error)


def _copy_outcome(done: Future[list[Any]], own: Future[list[Any]]) -> None:
    if own.set_running_or_notify_cancel():
        if error := done.exception():
            own.set_exception(error)
        else:
            own.set_result(done.result())


@contextmanager
def _closed_on_error(connection: socket.socket) -> Iterator[socket.socket]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _left(deadline: Deadline) -> float:
    """Seconds until the deadline; a socket would take 0 for "do not block"."""
    left = deadline.end_s - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Secret:
    """A token, and how it is found in a text: as it is, or as JSON may escape it.

    >>> _Secret("a/b").hidden(b'{"wrong key": "Bearer a\\\\/b or a\\\\u002Fb"}')
    b'{"wrong key": "Bearer *** or ***"}'
    """

    def __init__(self, token: str) -> None:
        self._found: re.Pattern[bytes] | None = None
        if token:
            escaped = "".join(rf"(?:\\?{re.escape(char)}|\\u00(?i:{ord(char):02x}))" for char in token)
            self._found = re.compile(escaped.encode("ascii", "replace"))

    def hidden(self, text: bytes) -> bytes:
        return text if self._found is None else self._found.sub(b"***", text)


# -- addresses and tokens ---------------------------------------------------------------------------------------------

MAX_TOKEN = 4096  # characters


def check_url(owner: str, url: str) -> str:
    """The address of a server, perhaps below a path, without a slash at its end.

    >>> check_url("OpenInference", "http://edge:8080/")
    'http://edge:8080'
    >>> check_url("OpenInference", "edge:8080")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: OpenInference: url must start with http:// or https:// and name a host, got 'edge:8080'
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        valid = False
    if not valid:
        problem = f"must start with http:// or https:// and name a host, got {shown(without_password(url), 100)}"
        raise InvalidValue(owner, "url", problem)
    # Nothing in it may be taken for another part of a request.
    if parts.query or parts.fragment or parts.username is not None or not re.fullmatch(r"[!-~]+", url):
        problem = f"must have no spaces, query, fragment, user or password, got {shown(without_password(url), 100)}"
        raise InvalidValue(owner, "url", problem)
    return url.rstrip("/")


def without_password(url: str) -> str:
    """An address that may be shown: what stands before the host may be a password.

    >>> without_password("http://me:secret@edge:8080"), without_password("http://edge")
    ('http://***@edge:8080', 'http://edge')
    """
    return re.sub(r"^([a-z]+://)?.*@", r"\1***@", str(url), flags=re.DOTALL | re.IGNORECASE)


def read_token(path: Path | None, variable: str = "HINGE_TOKEN", *, least: int = 1) -> str | None:
    """The token in a file, or else in the environment, if there is one; never from the command line, which others see.

    >>> read_token(None, "NO_SUCH_TOKEN") is None
    True
    """
    if path is None:
        token = os.environ.get(variable)
        return None if token is None else check_token(variable, token.strip(), least=least)
    with path.open("rb") as file:
        content = file.read(2 * MAX_TOKEN)  # what is longer is refused, however long it is
    return check_token(str(path), content.decode("utf-8", "replace").strip(), least=least)


def check_token(owner: str, token: object, *, least: int = 1) -> str:
    """The token, if it can stand in a header and has at least so many characters; it is never shown.

    >>> check_token("OpenInference", "secret")
    'secret'
    >>> check_token("OpenInference", "secret\\n")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: OpenInference: token must be printable ASCII without spaces
    >>> check_token("hinge serve", "secret", least=16)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: hinge serve: token must be printable ASCII without spaces, at least 16 characters
    """
    if not isinstance(token, str):
        raise InvalidType(owner, "token", f"must be text, got {type(token).__name__}")
    if not re.fullmatch(r"[!-~]+", token) or not least <= len(token) <= MAX_TOKEN:
        enough = f", at least {least} characters" if least > 1 else ""
        raise InvalidValue(owner, "token", f"must be printable ASCII without spaces{enough}")
    return token


def bearer(owner: str, token: object) -> dict[str, str]:
    """The header that shows a token; without one, none.

    >>> bearer("OpenInference", "secret"), bearer("OpenInference", None)
    ({'Authorization': 'Bearer secret'}, {})
    """
    return {} if token is None else {"Authorization": f"Bearer {check_token(owner, token)}"}
