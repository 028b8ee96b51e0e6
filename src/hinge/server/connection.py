"""One connection: uvicorn's, with limits on what comes before a request reaches the application.

uvicorn leaves the size of headers, the time they take, the number of chunks, and clients that never read to others.
"""

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from hinge.oip.messages import build_error
from hinge.server.call import AT_ONCE
from hinge.server.client import CLIENT, Client
from hinge.server.limits import MAX_CHUNKS, MAX_HEAD_BYTES, MAX_HEADERS, Limits
from hinge.server.logs import Log, printable
from hinge.server.metrics import Metrics
from hinge.server.refusal import Headers
from hinge.server.tracing import new_id

STUCK_S = 30.0  # how long a client may leave an answer unread
LINGER_S = 1.0  # how long one that was refused may go on sending


class _Excess(Exception):
    """A request is larger than any may be; the parser turns it into an answer of 400."""


class Connection(HttpToolsProtocol):
    """A connection that is refused, or closed, when its client oversteps a limit."""

    limits: Limits
    metrics: Metrics
    log: Log

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._since: float | None = None  # when the request began that is not here in full yet
        self._head_bytes = self._head_read = self._chunks = self._unread = 0
        self._in_head = self._refused = False
        self._unread_since = 0.0
        self._client = Client()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "overloaded", "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._client.leave()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._since is None and (self.cycle is None or self.cycle.response_complete):
            self._since = self.loop.time()
        super().data_received(data)
        if self._in_head:
            self._head_read += len(data)
            if self._head_read > 2 * MAX_HEAD_BYTES:  # one header that does not end is never counted below
                self._refuse(431, "too large", "the headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._head_read = self._chunks = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_head(len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._check_head(self._head_bytes + len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        send = partial(self._send, self.cycle)
        self.scope["extensions"] = {AT_ONCE: {"send": send}, CLIENT: {"client": self._client}}

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            raise _Excess

    def on_message_complete(self) -> None:
        self._since = None
        super().on_message_complete()
        if not self.pipeline:  # a connection that is not read from does not tell when its client hangs up
            self.flow.resume_reading()

    def _send(self, cycle: RequestResponseCycle, status: int, headers: Headers, body: bytes) -> bool:
        """Write a whole answer at once; in two parts it would take two system calls, and wake the client twice."""
        if cycle.response_started or cycle.disconnected or self.flow.write_paused:
            return False
        cycle.response_started = True
        lines = [b"%s: %s\r\n" % header for header in headers]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def send_400_response(self, msg: str) -> None:
        if self._in_head and self._oversized():
            self._refuse(431, "too large", "the headers are too large")
        elif self._chunks > MAX_CHUNKS:
            self._refuse(400, "tiny pieces", f"a body may come in {MAX_CHUNKS} chunks")
        else:
            self._refuse(400, "no HTTP", "the request is not HTTP")

    def sweep(self, now: float) -> None:
        """Close the connection if its client takes too long to send a request, or to read an answer."""
        if self._since is not None and now - self._since > self.limits.receive_s + 1:  # the body has its own limit
            self._refuse(408, "too slow", "the request did not arrive in time")
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread or not unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > STUCK_S:
            self.transport.abort()

    def _check_head(self, size: int) -> None:
        self._head_bytes = size
        if self._oversized():
            raise _Excess

    def _oversized(self) -> bool:
        return self._head_bytes > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS

    def _refuse(self, status: int, reason: str, problem: str) -> None:
        self._since = None
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self.metrics.refused(reason)
        id = new_id()
        path = printable(bytes(getattr(self, "url", b"")).decode("latin-1"))  # there is none before the first request
        self.log.write("warning", "refused", id=id, status=status, reason=reason, path=path, error=problem)
        if self._may_answer():
            body = build_error(problem).body
            head = b"content-type: application/json\r\nx-request-id: %s\r\nconnection: close\r\n" % id.encode()
            length = b"content-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + length + body)
        self._end()

    def _may_answer(self) -> bool:
        """Whether what is written now would reach the client as the answer to the request that is refused."""
        return self.cycle is None or self.cycle.more_body != self.cycle.response_complete

    def _end(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:  # an earlier request, to which the answer is under way: close behind it
                cycle.keep_alive = False
                return
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.can_write_eof():
            # Closed with bytes unread, the connection would be reset, and the answer lost on its way.
            self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()
