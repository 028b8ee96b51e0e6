"""HTTP for a device: one request and its response, all of it by a deadline, with connections kept open in between."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import httpcore2

from hinge.errors import RemoteFailed
from hinge.gate.deadline import Deadline
from hinge.gate.protocol.wire import MAX_BODY_BYTES, Message
from hinge.gate.remote.sockets import DeadlineBackend

_CONNECTIONS = 64  # kept open at most, by as many threads


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
    bytes: int  # what went over the network, both ways, but for the first lines


class Http:
    """Asks one server, from any thread or from an event loop. Whatever fails raises `RemoteFailed`."""

    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        self._url, self._tls = httpcore2.URL(url), tls
        port = "" if self._url.port is None else f":{self._url.port}"
        self._headers = {"Host": self._url.host.decode() + port, "Accept": "*/*", **headers}
        self._prefix = self._url.target.rstrip(b"/")
        self._lock = Lock()
        self._pool: httpcore2.ConnectionPool | None = None
        self._async_pool: httpcore2.AsyncConnectionPool | None = None

    def send(self, ask: Ask, deadline: Deadline) -> Response:
        """Send the request, and wait for the response until the deadline."""
        with self._lock:
            if self._pool is None:
                self._pool = httpcore2.ConnectionPool(network_backend=DeadlineBackend(), **self._options())
        # For our own connections a timeout is an instant; only the pool waits for so many seconds.
        steps = dict.fromkeys(("connect", "read", "write"), deadline.end_s)
        request = self._request(ask, {**steps, "pool": deadline.left(time.monotonic())})
        with _translated():
            response = self._pool.handle_request(request)
            try:
                body = _joined(response.iter_stream())
            finally:
                response.close()
        return _response(request, response, ask, body)

    async def send_async(self, ask: Ask, deadline: Deadline) -> Response:
        """Send the request, and wait for the response until the deadline, when all of it is cancelled."""
        request = self._request(ask, {})
        with _translated():
            return await asyncio.wait_for(self._exchanged(request, ask), deadline.left(time.monotonic()))

    async def _exchanged(self, request: httpcore2.Request, ask: Ask) -> Response:
        pool = self._async_pool or httpcore2.AsyncConnectionPool(**self._options())
        self._async_pool = pool
        response = await pool.handle_async_request(request)
        try:
            body = await _joined_async(response.aiter_stream())
        finally:
            await response.aclose()
        return _response(request, response, ask, body)

    def close(self) -> None:
        """End the connections of threads."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def close_async(self) -> None:
        """End the connections of the event loop."""
        pool, self._async_pool = self._async_pool, None
        if pool is not None:
            await pool.aclose()

    def _options(self) -> dict[str, Any]:
        return {"ssl_context": self._tls, "max_connections": _CONNECTIONS, "keepalive_expiry": 60.0}

    def _request(self, ask: Ask, timeouts: dict[str, float]) -> httpcore2.Request:
        headers = {**self._headers, **ask.message.headers}
        if ask.method != "GET":
            headers["Content-Length"] = str(len(ask.message.body))
        url = httpcore2.URL(
            scheme=self._url.scheme,
            host=self._url.host,
            port=self._url.port,
            target=self._prefix + ask.path.encode("ascii"),
        )
        pairs = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        return httpcore2.Request(
            ask.method, url, headers=pairs, content=ask.message.body, extensions={"timeout": timeouts}
        )


def _joined(parts: Iterable[bytes]) -> bytes:
    body = bytearray()
    for part in parts:
        _check_size(len(body) + len(part))
        body += part
    return bytes(body)


async def _joined_async(parts: AsyncIterable[bytes]) -> bytes:
    body = bytearray()
    async for part in parts:
        _check_size(len(body) + len(part))
        body += part
    return bytes(body)


def _check_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise RemoteFailed(f"the response is longer than {MAX_BODY_BYTES} bytes", "invalid")


def _response(request: httpcore2.Request, response: httpcore2.Response, ask: Ask, body: bytes) -> Response:
    pairs = [*request.headers, *response.headers]
    moved = len(ask.message.body) + len(body) + sum(len(name) + len(value) + 4 for name, value in pairs)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
    return Response(response.status, headers, body, moved)


@contextmanager
def _translated() -> Iterator[None]:
    """What goes wrong on the way, in our own words."""
    try:
        yield
    except (httpcore2.TimeoutException, asyncio.TimeoutError, TimeoutError) as error:
        raise RemoteFailed("no answer in time", "late") from error
    except (httpcore2.RemoteProtocolError, httpcore2.LocalProtocolError) as error:
        raise RemoteFailed(f"no HTTP: {error}", "invalid") from error
    except (httpcore2.NetworkError, httpcore2.ProxyError, OSError, RuntimeError) as error:
        raise RemoteFailed(f"cannot be reached: {error}", "unreachable") from error
