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
News = Callable[[], bytes]  # an event, written when it is sent: nothing is kept for who has still to be told

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
        self._pending: dict[str, News] = {}
        self._news = asyncio.Event()

    def tell(self, subject: str, news: News) -> None:
        """Tell it of something, instead of what it has not yet been told of the same."""
        self._pending[subject] = news
        self._news.set()

    def end(self) -> None:
        """Let it go."""
        self.ended = True
        self._news.set()

    async def next(self, wait_s: float) -> bytes | None:
        """What it has waited for longest; None, if there is nothing for so long."""
        if not self._pending:
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_s)
        for subject in self._pending:
            return self._pending.pop(subject)()
        return None


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

    def tell(self, subject: str, news: News) -> None:
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
                    listener.tell("server", lambda: event("server", self._beat()))
                news = await listener.next(beat_at - loop.time())
                if news is not None:
                    part = {"type": "http.response.body", "body": news, "more_body": True}
                    await asyncio.wait_for(send(part), STUCK_S)
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), STUCK_S)
        except (TimeoutError, OSError):
            pass  # nobody reads it
        finally:
            gone.cancel()
            self._all.discard(listener)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
