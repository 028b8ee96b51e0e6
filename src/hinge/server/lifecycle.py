"""From the first request to the last: uvicorn's server, which finishes what is under way when it is told to end."""

import asyncio
import math
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from hinge.server.access import Tls
from hinge.server.application import Application
from hinge.server.connection import Connection
from hinge.server.limits import Limits
from hinge.server.logs import Log
from hinge.server.metrics import Metrics

KEEP_ALIVE_S = 75  # how long a connection may be idle: devices ask seldom, and connecting takes a round trip
TICKS_PER_S = 10  # of uvicorn


class Lifecycle(uvicorn.Server):
    """Serves an application on a socket, and drains it at the end. `make` is called in the event loop."""

    def __init__(
        self,
        make: Callable[[], Application],
        listener: socket.socket,
        *,
        tls: Tls | None,
        drain_s: float,
        announce: Callable[[str], object],
        **shared: Limits | Metrics | Log,
    ) -> None:
        super().__init__(_config(self._make, type("OurConnection", (Connection,), shared), tls))
        self._maker = make
        self._drain_s = drain_s
        self._announce = announce
        self.listener = listener
        host, port = listener.getsockname()[:2]
        self.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take requests."""
        await super().startup(sockets)
        try:
            self.application.start()
            self._announce(self.url)
        except BaseException:
            for server in self.servers:
                server.close()
            await self.application.close()
            raise

    async def on_tick(self, counter: int) -> bool:
        """Look after slow connections once per second."""
        if counter % TICKS_PER_S == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.sweep(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say that no more is taken, finish what is under way, and only then close."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._drain_s
        self.application.drain()
        while self.application.hold.requests and loop.time() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        if self.application.hold.requests:
            self.application.abandon()
        self.config.timeout_graceful_shutdown = max(1, math.ceil(end - loop.time()))
        await super().shutdown(sockets)
        await self.application.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on a signal, and end as a program that did what it was told: uvicorn would raise the signal again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _make(self) -> Application:
        try:
            self.application = self._maker()
        except TypeError as error:  # uvicorn would take it for a wrong factory, and exit without a word
            raise RuntimeError(f"the server cannot start: {error}") from error
        return self.application


def _config(make: Callable[[], Application], connection: type[Connection], tls: Tls | None) -> uvicorn.Config:
    mutual = tls is not None and tls.client_ca is not None
    return uvicorn.Config(
        make,
        factory=True,
        http=connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # what matters is in our own log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=tls.key if tls else None,
        ssl_ca_certs=str(tls.client_ca) if tls and mutual else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE,
    )
