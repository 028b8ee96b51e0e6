"""Serves the live page: an ASGI application over a device of the same process, on uvicorn in a thread."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, Self

import msgspec

from hinge.device.device import BaseDevice
from hinge.device.metrics import HOST, SAFE
from hinge.device.page.snapshot import Snapshots

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise ImportError(f"the live page needs the extra 'page' ({error}): pip install 'hinge-gate[page]'") from error

EVERY_S = 0.5  # between two snapshots
LOOK_S = 0.1  # between two looks for a newer one
POINTS = 300  # of the course over time
MAX_CLIENTS = 64
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


class LivePage:
    """Shows a device at `port` of this machine, 0 for any that is free, while a `with` block runs.

    Snapshots are taken in a thread of the page's own, so that no answer waits for one.

    >>> from urllib.request import urlopen
    >>> from hinge import Device
    >>> device = Device(lambda sample: [0.0, sample], lambda sample: 1, offload_cost=0.5)
    >>> with LivePage(device) as page:
    ...     page.saw(device.infer(3.0), truth=1)
    ...     urlopen(page.url).status
    200
    """

    def __init__(self, device: BaseDevice, port: int = 0) -> None:
        snapshots = Snapshots(device)
        self.saw, self.compare, self._take = snapshots.saw, snapshots.compare, snapshots.take
        self._points: list[list[float | None]] = []
        self._event = b""  # the last
        files = [path for path in Path(__file__).parent.iterdir() if path.suffix in _TYPES]
        routes = [Route("/" if path.stem == "index" else f"/{path.name}", _file(path)) for path in files]
        app = Starlette(
            routes=[*routes, Route("/events", self._events)],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],  # no name of a stranger
            lifespan=self._watching,
        )
        config = uvicorn.Config(
            app,
            limit_concurrency=MAX_CLIENTS,
            timeout_graceful_shutdown=1,
            log_config=None,
            log_level="critical",
            access_log=False,
        )
        self._server = uvicorn.Server(config)
        try:
            self._socket = socket.create_server((HOST, port))
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), f"{HOST}:{port}") from None
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}/"
        sockets = {"sockets": [self._socket]}
        self._thread = Thread(target=self._server.run, kwargs=sockets, name="hinge-page", daemon=True)

    def start(self) -> Self:
        """Let people look."""
        self._thread.start()
        return self

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up on those who look."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    # -- in the thread ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _watching(self, _: Starlette) -> AsyncIterator[None]:
        watch = asyncio.create_task(self._watch())
        yield
        watch.cancel()

    async def _watch(self) -> None:
        while True:
            with suppress(Exception):  # of a user's policy; the page says that it hears nothing
                self._event = self._draw()
            await asyncio.sleep(EVERY_S)

    def _draw(self) -> bytes:
        """Take a snapshot, add it to the course, and return all of it as a server-sent event."""
        shown = self._take()
        self._points = extended(self._points, point_of(shown))
        return b"data: %s\n\n" % msgspec.json.encode({**shown, "points": self._points})

    async def _events(self, _: Request) -> Response:
        headers = {**SAFE, "Cache-Control": "no-store"}
        return StreamingResponse(self._news(), headers=headers, media_type="text/event-stream")

    async def _news(self) -> AsyncIterator[bytes]:
        """Yield the latest event whenever there is a new one: who reads slowly misses what is overtaken."""
        yield b"retry: 500\n\n"
        sent = b""
        while not self._server.should_exit:
            if self._event is not sent:
                sent = self._event
                yield sent
            await asyncio.sleep(LOOK_S)


def point_of(shown: dict[str, Any]) -> list[float | None]:
    """Return what the page draws over time: its own figures, then three of each policy that is compared.

    >>> status = {"samples": 3, "answered_by_remote": 1, "fell_back": {"late": 1}, "offload_cost": 0.1 + 0.2}
    >>> point_of({"status": status, "cost_per_sample": 1 / 3, "regret": None, "compare": []})
    [3, 2, 0.3, 0.333333, None]
    """
    status = shown["status"]
    offloads = status["answered_by_remote"] + sum(status["fell_back"].values())
    numbers = [status["samples"], offloads, status["offload_cost"], shown["cost_per_sample"], shown["regret"]]
    for row in shown["compare"]:
        numbers += [row["offload_fraction"], row["cost_per_sample"], row["regret"]]
    return [_rounded(number) for number in numbers]


def extended(points: list[list[float | None]], point: list[float | None]) -> list[list[float | None]]:
    """Return the course with one point more; what is long ago has larger steps.

    >>> extended([[1], [2]], [2]), len(extended([[n] for n in range(POINTS)], [POINTS]))
    ([[1], [2]], 151)
    """
    before = points[:-1] if points and points[-1][0] == point[0] else points  # nothing happened since
    course = [*before, point]
    return [*course[:-1:2], point] if len(course) > POINTS else course


def _rounded(number: float | None) -> float | None:
    """Six digits are more than a chart can show."""
    return number if number is None or isinstance(number, int) or not math.isfinite(number) else float(f"{number:.6g}")


def _file(path: Path) -> Any:
    content, kind = path.read_bytes(), _TYPES[path.suffix]

    async def answer(_: Request) -> Response:
        return Response(content, headers=SAFE, media_type=kind)

    return answer
