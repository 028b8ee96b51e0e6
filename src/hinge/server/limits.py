"""Limits on what clients may take up, and the refusals with which those are answered that exceed them."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.types import Message, Receive

from hinge._checks import positive, whole
from hinge.errors import HingeError
from hinge.oip.tensors import MAX_BODY_BYTES

MAX_HEAD_BYTES = 16 * 2**10  # of a request's address and headers
MAX_HEADERS = 100
FREE_PIECES = 64  # pieces in which a body may arrive, however small they are
MIN_PIECE_BYTES = 256  # beyond those, how large they must be on average
PATIENCE_S = 1.0  # for a body to arrive, before it must make room where a limit is reached
FREE_FRAMING_BYTES = 2 * MAX_HEAD_BYTES  # of headers and chunk sizes; beyond, a body must be at least as large as they

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
        """The error as JSON."""
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
        self._since = asyncio.get_running_loop().time()
        self._timeout = asyncio.timeout(admission.receive_s)
        self._counted = self._slow = False

    def __enter__(self) -> Body:
        self._admission.requests += 1
        self._counted = True
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._admission.arriving.pop(self, None)
        if self._counted:
            self._counted = False
            self._admission.requests -= 1
            self._admission.bytes -= self.bytes

    def make_room(self) -> bool:
        """End the wait for the rest of it, unless it has only begun; whether that was so."""
        now = asyncio.get_running_loop().time()
        if now - self._since < PATIENCE_S:
            return False
        self._leave()
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
        return piece
