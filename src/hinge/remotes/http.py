"""An HTTP client whose requests end by a deadline, on aiohttp. It asks one server, from one event loop.

A device's remotes are asked in the loop of `hinge.remotes.calls.LOOP`, a gateway's in its own.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  # getaddrinfo loads it, and caches a failure if no descriptor is left just then
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import finalize

try:
    import aiohttp
except ImportError:  # said when a client is made: `from hinge import *` needs no extra
    aiohttp = None  # type: ignore[assignment]  # no module

from hinge.errors import RemoteError, RemoteInvalid, RemoteLate, RemoteUnreachable
from hinge.oip.messages import Message
from hinge.remotes.calls import in_thread, wait_async
from hinge.remotes.remote import Deadline

TIMEOUT_HEADER = "X-Envoy-Expected-Rq-Timeout-Ms"  # Envoy's, by which a proxy tells a server how long it will wait
_NEXT_ADDRESS_S = 0.05  # until the next address of a name is tried beside the first: deadlines are often 0.2 s
_PIECE_BYTES = 2**18  # sent at once
_LINE_BYTES = 32  # the first line of a head, and the empty one at its end
_LOOKUP_S = 3600.0  # a lookup that hangs is shared by all requests, and by none once it returns
_opened: ContextVar[list[Any]] = ContextVar("opened")  # addresses to which a request has opened connections


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
    """Return the failure that an error of a server is.

    >>> error_of(Response(429, {"retry-after": "7"}, b"", 0), "HTTP 429").retry_after_s
    7
    """
    return Overloaded(response, complaint) if response.status in (429, 503) else RemoteError(complaint)


class HttpClient:
    """Sends requests to one server. Failures are subclasses of `RemoteFailed`.

    A server may quote the token in what it says is wrong, which others read: there it is replaced by `***`. A server
    may also close a connection that is kept open just when it is used again. So a request on such a connection is sent
    once more, by the same deadline, if the connection ends before any byte of the response has come: that is the rule
    by which HTTP clients repeat requests. An inference may be repeated: it changes nothing.

    It belongs to the event loop of its first request until it is closed.
    """

    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None) -> None:
        if aiohttp is None:
            raise ImportError("a remote over HTTP needs aiohttp: pip install 'hinge-gate[device]'")
        self._url, self._tls = url.rstrip("/"), tls or True
        self._headers = {"Accept": "*/*", **headers}
        self._secret = _Secret(headers.get("Authorization", "").rpartition(" ")[2])
        self._process = os.getpid()
        self._kept: aiohttp.ClientSession | None = None  # whose connections are used again
        self._fresh: aiohttp.ClientSession | None = None  # whose are not

    async def send(self, request: Request, deadline: Deadline) -> Response:
        """Send the request and return the response; raises `RemoteLate` at the deadline."""
        self._check_process()
        if self._kept is None:
            self._kept = self._session()
        headers = request.message.headers | _told(deadline)
        with self._failures():
            async with asyncio.timeout(deadline.left()):
                for _ in range(2):
                    try:
                        async with self._asked(self._kept, request, headers) as answer:
                            return self.safe(await _read(answer, request))
                    except aiohttp.ClientConnectorError:
                        raise
                    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                        begun = not isinstance(getattr(error, "message", ""), str)  # a part of the head has come
                        if begun or _opened.get():
                            raise
                raise RemoteUnreachable("two connections ended without a response")

    @asynccontextmanager
    async def stream(
        self, request: Request, deadline: Deadline, stall_s: float
    ) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """Give the response without its body, and the body piece by piece; each has `stall_s` to come after the last.

        The deadline is for connecting, always anew: a network that is down is noticed then, and not by silence, as a
        response may take as long as it likes.
        """
        self._check_process()
        if self._fresh is None:
            self._fresh = self._session(force_close=True)
        timeout = aiohttp.ClientTimeout(connect=max(deadline.left(), 1e-3), sock_read=stall_s)

        async def pieces(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
            with self._failures():
                async for piece in content.iter_any():
                    yield piece

        with self._failures():
            async with self._asked(self._fresh, request, request.message.headers, timeout=timeout) as answer:
                yield _response(answer, b"", 0), pieces(answer.content)

    async def close(self) -> None:
        """Close all connections; the next request, of any event loop, opens others."""
        sessions, self._kept, self._fresh = (self._kept, self._fresh), None, None
        for session in filter(None, sessions):
            await session.close()

    def safe(self, response: Response) -> Response:
        """Return the response; without the token, if it is an error, in whose text a server may quote it."""
        return response if response.status < 300 else self.hidden(response)

    def hidden(self, response: Response) -> Response:
        """Return the response without the token."""
        return response._replace(body=self._secret.hidden(response.body))

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise RemoteError("it was made before this process was forked; make it in the child")

    def _session(self, **options: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=self._tls,
            resolver=_Resolver(),
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
            socket_factory=_open,
            **options,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(),  # none but our own
        )
        finalize(self, _abandon, asyncio.get_running_loop(), session, os.getpid())
        return session

    def _asked(self, session: aiohttp.ClientSession, request: Request, headers: dict[str, str], **options: Any) -> Any:
        _opened.set([])
        url, body = self._url + request.path, request.message.body
        data: Any = body or None
        if len(body) > _PIECE_BYTES:
            headers, data = headers | {"Content-Length": str(len(body))}, _pieces(body)
        return session.request(request.method, url, data=data, headers=headers, allow_redirects=False, **options)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn exceptions of sockets and of the protocol into failures of the remote."""
        try:
            yield
        except TimeoutError as error:  # aiohttp's are, too
            raise RemoteLate("no answer in time") from error
        except aiohttp.ClientConnectorCertificateError as error:
            problem = f"its certificate is not trusted: {getattr(error.certificate_error, 'verify_message', error)}"
            raise RemoteInvalid(f"{problem} (--ca names who signed it, in Python tls=…)") from error
        except aiohttp.ServerDisconnectedError as error:
            raise RemoteUnreachable("the server closed the connection without a response") from error
        except (OSError, aiohttp.ClientConnectionError, UnicodeError, aiohttp.InvalidURL) as error:
            cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            raise RemoteUnreachable(f"cannot be reached: {cause}") from error  # InvalidURL: a name that is none
        except (aiohttp.ClientError, ValueError) as error:  # which may quote what came, and the request
            problem = self._secret.hidden(str(getattr(error, "message", error)).encode()).decode()
            raise RemoteInvalid(f"no HTTP: {problem}") from None


class _Resolver(aiohttp.abc.AbstractResolver if aiohttp else object):  # type: ignore[misc]  # no module
    """Looks names up in daemon threads: one that hangs keeps neither an event loop nor a program from ending."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        lookup = in_thread(lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM), "hinge-lookup")
        found = await wait_async(lookup, Deadline.after(_LOOKUP_S))
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            {"hostname": host, "host": target[0], "port": target[1], "family": kind, "proto": proto, "flags": numeric}
            for kind, _, proto, _, target in found
        ]

    async def close(self) -> None:
        """Nothing is kept open."""


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """A large body as it is sent, so that nothing else in the event loop waits for it."""
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]


def _open(address: Any) -> socket.socket:
    _opened.get().append(address)
    return socket.socket(*address[:3])


async def _read(answer: aiohttp.ClientResponse, request: Request) -> Response:
    body = bytearray()
    if (answer.content_length or 0) <= request.limit:
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > request.limit:
                break
        else:
            heads = _head_bytes(answer.request_info.headers) + _head_bytes(answer.headers)
            return _response(answer, bytes(body), heads + len(request.message.body) + len(body))
    raise RemoteInvalid(f"the response is longer than {request.limit} bytes")


def _response(answer: aiohttp.ClientResponse, body: bytes, moved: int) -> Response:
    return Response(answer.status, {name.lower(): value for name, value in answer.headers.items()}, body, moved)


def _head_bytes(headers: Mapping[str, str]) -> int:
    """How long a head is, but for its first line, which is about as long as any other."""
    return _LINE_BYTES + 4 * len(headers) + len("".join([*headers, *headers.values()]))


def _told(deadline: Deadline) -> dict[str, str]:
    """The deadline as a header: always as many digits, as what a request weighs must not depend on the clock."""
    return {TIMEOUT_HEADER: f"{min(9_999_999, int(1000 * deadline.left())):07d}"}


def _abandon(loop: asyncio.AbstractEventLoop, session: aiohttp.ClientSession, process: int) -> None:
    """Close what nobody has closed."""
    if not session.closed and process == os.getpid():
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(lambda: loop.create_task(session.close()))


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
