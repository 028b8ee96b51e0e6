"""Server-sent events: whoever listens is told what changed, and only the latest of each.

A listener that reads slowly misses what is overtaken meanwhile, so that nothing piles up for it; one that does not read
at all is dropped.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from hinge.server.receiving import Receive
from hinge.server.refusal import Headers, overloaded

Send = Callable[[Any], Awaitable[None]]

MOST_LISTENERS = 32
BEAT_S = 1.0  # a sign of life, by which both sides notice that the other is gone
STUCK_S = 10.0  # how long a listener may leave what it is sent unread
EVENTS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects events would keep them from the page
)


def event(kind: str, data: bytes) -> bytes:
    """An event as it travels; the data is one line.

    >>> event("server", b'{"models":[]}')
    b'event: server\\ndata: {"models":[]}\\n\\n'
    """
    return b"event: %s\ndata: %s\n\n" % (kind.encode("ascii"), data)


class Listener:
    """One connection, and what it has still to be told."""

    def __init__(self) -> None:
        self.ended = False
        self._pending: dict[str, bytes] = {}
        self._news = asyncio.Event()

    def tell(self, subject: str, news: bytes) -> None:
        """Tell it of something, instead of what it has not yet been told of the same."""
        self._pending[subject] = news
        self._news.set()

    def end(self) -> None:
        """Let it go."""
        self.ended = True
        self._news.set()

    async def next(self, wait_s: float) -> list[bytes]:
        """What there is to tell; nothing, if there is none for so long."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._news.wait(), wait_s)
        self._news.clear()
        news, self._pending = list(self._pending.values()), {}
        return news


class Listeners:
    """All that listen. To be used in the event loop."""

    def __init__(self, greet: Callable[[Listener], None], beat: Callable[[], bytes]) -> None:
        self._greet, self._beat = greet, beat
        self._all: set[Listener] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Listener:
        """One more, if there is room."""
        if len(self._all) >= MOST_LISTENERS:
            raise overloaded(f"{MOST_LISTENERS} pages are open")
        listener = Listener()
        self._all.add(listener)
        self._greet(listener)
        return listener

    def tell(self, subject: str, news: bytes) -> None:
        """Tell everyone."""
        for listener in self._all:
            listener.tell(subject, news)

    def end(self) -> None:
        """Let everyone go."""
        for listener in self._all:
            listener.end()

    async def serve(self, listener: Listener, id: str, receive: Receive, send: Send) -> None:
        """Send events until the listener goes, does not read, or is let go."""
        headers = (*EVENTS, (b"x-request-id", id.encode("ascii")))
        gone = asyncio.ensure_future(_gone(receive))
        gone.add_done_callback(lambda _: listener.end())
        loop = asyncio.get_running_loop()
        beat_at = loop.time()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not listener.ended:
                if loop.time() >= beat_at:
                    beat_at = loop.time() + BEAT_S
                    listener.tell("server", event("server", self._beat()))
                for news in await listener.next(beat_at - loop.time()):
                    part = {"type": "http.response.body", "body": news, "more_body": True}
                    await asyncio.wait_for(send(part), STUCK_S)
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), STUCK_S)
        except (asyncio.TimeoutError, OSError):
            pass  # nobody reads it
        finally:
            gone.cancel()
            self._all.discard(listener)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
