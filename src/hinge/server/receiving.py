"""Receives a body, within limits that hold however it is sent."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hinge.oip.json import MAX_BODY_BYTES
from hinge.server.limits import FREE_PIECES, MIN_PIECE_BYTES, Limits
from hinge.server.refusal import Refusal, hung_up, overloaded, too_large

Receive = Callable[[], Awaitable[Any]]


class Hold:
    """The bodies in memory, counted by bytes and by requests."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes = 0
        self.requests = 0

    @contextmanager
    def request(self, most: int = MAX_BODY_BYTES) -> Iterator["Held"]:
        """Room for one request, until it is answered; its body may have `most` bytes."""
        if self.requests >= self.limits.requests:
            raise overloaded(f"{self.limits.requests} requests are under way")
        held = Held(self, most)
        self.requests += 1
        try:
            yield held
        finally:
            self.requests -= 1
            self.bytes -= held.bytes


class Held:
    """What one request takes up."""

    def __init__(self, hold: Hold, most: int) -> None:
        self._hold, self._most = hold, most
        self.bytes = 0

    async def receive(self, receive: Receive, declared: int | None) -> bytes:
        """The body, of which the client declared this length, or none."""
        if declared is not None:
            self._check(declared)
        end = asyncio.get_running_loop().time() + self._hold.limits.receive_s
        pieces: list[bytes] = []
        more = True
        while more:
            message = await self._before(end, receive)
            pieces.append(self._take(message))
            more = message.get("more_body", False)
            if len(pieces) > FREE_PIECES and self.bytes < len(pieces) * MIN_PIECE_BYTES:
                raise Refusal(400, "tiny pieces", "the body comes in too many pieces that are too small")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take(self, message: Any) -> bytes:
        if message["type"] != "http.request":
            raise hung_up()
        piece: bytes = message.get("body", b"")
        self._check(len(piece))
        self.bytes += len(piece)
        self._hold.bytes += len(piece)
        return piece

    def _check(self, more: int) -> None:
        if self.bytes + more > self._most:
            raise too_large(self._most)
        if self._hold.bytes + more > self._hold.limits.held_bytes:
            raise overloaded(f"{self._hold.bytes} bytes of requests are in memory")

    async def _before(self, end: float, receive: Receive) -> Any:
        """The next message. (A task of its own for it, as wait_for makes one, would cost more than the message.)"""
        task = asyncio.current_task()
        late: list[bool] = []

        def expire() -> None:
            late.append(True)
            if task is not None:
                task.cancel()

        timer = asyncio.get_running_loop().call_at(end, expire)
        try:
            return await receive()
        except asyncio.CancelledError:
            if not late:
                raise
            raise Refusal(408, "too slow", "the body did not arrive in time") from None
        finally:
            timer.cancel()
