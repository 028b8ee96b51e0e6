"""The server as a whole: its settings, who may reach it, and its life from loading models to draining requests.

uvicorn runs in a thread of its own, so that signals never wait for it. What it cannot limit is for a proxy in front.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import uvicorn

from hinge._checks import real, whole
from hinge.errors import InvalidValue
from hinge.remotes.address import check_token
from hinge.server.app import App, Limits, Service
from hinge.server.models import Model, Place, parse_places
from hinge.server.observability import EventLog, Metrics

MIN_TOKEN = 16  # characters of a token
START_S = 30.0
KEEP_ALIVE_S = 75  # for which a connection may be idle: devices ask seldom, and connecting takes a round trip
MAX_HEAD_BYTES = 16 * 2**10  # of a request's address and headers
_LOOK_S = 0.5
_LEAVE_S = 0.2  # for connections to be closed, once all requests are answered
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


@dataclass(frozen=True)
class Tls:
    """The files of a server that speaks TLS; with `client_ca`, clients need a certificate, too (mutual TLS)."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        def passphrase() -> str:  # else OpenSSL asks for it on the terminal, each time that the key is loaded
            raise InvalidValue("TLS", "key", f"{self.key} has a passphrase; give one without")

        for path in filter(None, (self.cert, self.key, self.client_ca)):
            Path(path).open("rb").close()
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.cert, self.key, passphrase)
            context.load_verify_locations(self.client_ca or self.cert)
        except ssl.SSLError as error:
            raise InvalidValue("TLS", "key", f"must fit the certificate: {error.reason or error}") from None


def listen(host: str, port: int, *, guarded: bool) -> socket.socket:
    """A socket that listens at that address; one that others can reach only if clients are authenticated.

    >>> listen("0.0.0.0", 0, guarded=False)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Server: host must be local, as 0.0.0.0 lets others in: give --token-file, ...
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
    except (OSError, UnicodeError):
        raise InvalidValue("Server", "host", f"must be an address, and there is no {host!r}") from None
    except OverflowError:
        raise InvalidValue("Server", "port", f"must be from 0 to 65535, got {port}") from None
    if not guarded and not ipaddress.ip_address(address[0]).is_loopback:
        ways = "give --token-file, HINGE_TOKEN or --client-ca, or accept it with --insecure"
        raise InvalidValue("Server", "host", f"must be local, as {host} lets others in: {ways}")
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return listener


class BaseServer(ABC):
    """Serves an application over HTTP, in the foreground with `run`, or in a thread from `start` to `close`.

    As a context manager it starts and closes.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
        limits: Limits | None = None,
        drain_s: float = 10.0,
        log_level: str = "warning",
    ) -> None:
        self._host, self._port = host, whole("Server", "port", port, 0, 65535)
        self.token = None if token is None else check_token("Server", token, least=MIN_TOKEN)
        self.tls = tls
        self.guarded = insecure or token is not None or (tls is not None and tls.client_ca is not None)
        self.limits = limits or Limits()
        self.drain_s = real("Server", "drain_s", drain_s, 0, 3600)
        self.log = EventLog(log_level)
        self._run: _Run | None = None

    @abstractmethod
    def make_app(self, metrics: Metrics) -> App:
        """Return the application. Called in the server's event loop."""

    def load(self) -> None:  # noqa: B027  # there need not be anything
        """Prepare what has to be there before the server starts, and may fail."""

    @property
    def url(self) -> str:
        """The address of a server that was started."""
        if self._run is None:
            raise RuntimeError("Server: it was not started")
        return self._run.url

    def start(self) -> None:
        """Serve in a thread; returns once requests are taken."""
        self._start()

    def _start(self) -> _Run:
        if self._run is not None and self._run.thread.is_alive():
            raise RuntimeError("Server: it runs already; close it before it is started again")
        self.load()
        self._run = _Run(self, listen(self._host, self._port, guarded=self.guarded))
        self._run.start()
        return self._run

    def close(self) -> None:
        """Drain: refuse new inferences, finish those in flight, and stop."""
        if self._run is not None:
            self._run.stop()
            self._run.join()

    def run(self, announce: Callable[[str], object] = str) -> None:
        """Serve until SIGTERM, SIGINT or SIGHUP, then drain. `announce` is called with the address.

        A second signal ends the draining. A server that cannot end in time ends the process, with status 1.
        """
        with self.log.taking_alarms():
            run = self._start()
            in_main = threading.current_thread() is threading.main_thread()
            before = {number: signal.signal(number, lambda *_: run.stop()) for number in SIGNALS if in_main}
            try:
                announce(run.url)
                while run.thread.is_alive() and not run.stops:
                    run.thread.join(_LOOK_S)  # a signal that the kernel gave to another thread is handled here
            finally:
                if not run.stops:  # an error
                    run.stop()
                if not run.join():
                    os._exit(1)
                for number, handler in before.items():
                    signal.signal(number, handler)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Server(BaseServer):
    """Serves models over HTTP; see `docs/server.md`.

    >>> from urllib.request import urlopen
    >>> with Server(["fashion-local"]) as server:
    ...     with urlopen(server.url + "/v2/models/fashion-local/ready") as answer:
    ...         answer.read()
    b'{"name":"fashion-local","ready":true}'

    Each of `models` is NAME=PATH, PATH, or the name of a shipped model. `threads` are those of one run of a model,
    `workers` its runs at the same time, one per core by default. The other settings are those of every server: `host`,
    `port` (0 takes any that is free), `token`, `tls`, `insecure`, `limits`, `drain_s` and `log_level`.
    """

    def __init__(
        self,
        models: Sequence[str | Path],
        *,
        threads: int | None = None,
        workers: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.places = parse_places(models)
        self._models: dict[Place, Model] = {}
        self._threads = None if threads is None else whole("Server", "threads", threads, 0, 1024)
        self._workers = None if workers is None else whole("Server", "workers", workers, 1, 1024)

    def __repr__(self) -> str:
        return f"Server({[place.name for place in self.places]}, host={self._host!r}, port={self._port})"

    def load(self) -> None:
        self._models = {place: Model.load(place.path, self._threads) for place in self.places}

    def make_app(self, metrics: Metrics) -> App:
        workers = self._workers or os.cpu_count() or 1
        services = {
            place.name: Service(place.name, model, workers=workers, limits=self.limits, metrics=metrics)
            for place, model in self._models.items()
        }
        return App(self, services, metrics)


class _Run:
    """A server that runs: uvicorn in a thread."""

    def __init__(self, server: BaseServer, listener: socket.socket) -> None:
        self._server, self._socket = server, listener
        host, port = listener.getsockname()[:2]
        self.url = f"{'https' if server.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        self.stops = 0
        self._started: Future[None] = Future()
        self.thread = threading.Thread(target=self._main, name="hinge-server", daemon=True)

    def start(self) -> None:
        """Return once requests are taken; raise what keeps the server from starting."""
        self.thread.start()
        try:
            self._started.result(START_S)
        except Exception:
            self.stop()
            self.join()
            raise

    def stop(self) -> None:
        """Begin to drain; the second time, stop draining. Safe in any thread and in a signal handler."""
        self.stops += 1

    def join(self) -> bool:
        """Wait until the server has stopped; False if it does not."""
        end = time.monotonic() + self._server.drain_s + 10
        while self.thread.is_alive() and time.monotonic() < end:
            self.thread.join(_LOOK_S)  # so that a signal is handled, whichever thread the kernel gave it to
        return not self.thread.is_alive()

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
                runner.run(self._serve())
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        finally:
            self._socket.close()

    async def _serve(self) -> None:
        server, log = self._server, self._server.log
        app = server.make_app(Metrics())
        http = uvicorn.Server(_config(app, server))
        serving = asyncio.create_task(http.serve(sockets=[self._socket]))
        try:
            while not http.started and not serving.done():
                await asyncio.sleep(0.001)
            log.write("info", "started", models=sorted(app.services))
            self._started.set_result(None)
            while not self.stops and not serving.done():
                await asyncio.sleep(0.05)
            log.write("info", "ending", in_flight=app.in_flight)
            app.draining = True
            await _drained(app, lambda: self.stops > 1, server.drain_s)
            app.abandon()
            await _drained(app, lambda: False, _LEAVE_S)
            http.should_exit = True
            await serving
        finally:
            unanswered = app.in_flight
            await app.close()
            log.write("info", "ended", unanswered=unanswered)


async def _drained(app: App, hurried: Callable[[], bool], most_s: float) -> None:
    """Wait until no inference is in flight, for so long at most."""
    end = time.monotonic() + most_s
    while app.in_flight and not hurried() and time.monotonic() < end:
        await asyncio.sleep(0.01)


def _config(app: App, server: BaseServer) -> uvicorn.Config:
    tls = server.tls
    mutual = tls is not None and tls.client_ca is not None
    return uvicorn.Config(
        app,
        http="h11",  # which parses the next request on a connection only when the last one is answered
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        limit_concurrency=server.limits.connections,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LEAVE_S,  # type: ignore[arg-type]  # parts of a second do as well
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # what matters is in our own log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=tls.key if tls else None,
        ssl_ca_certs=str(tls.client_ca) if tls and mutual else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE,
    )
