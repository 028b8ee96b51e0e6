"""Runs the application: in the foreground until a signal comes, or in a thread for as long as a block lasts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime  # Python 3.10 has two of them
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from hinge._checks import real, whole
from hinge.server.access import Tls, check_token, listen
from hinge.server.application import Application
from hinge.server.lifecycle import Lifecycle
from hinge.server.limits import Limits
from hinge.server.logs import Log
from hinge.server.metrics import Metrics
from hinge.server.model import Model
from hinge.server.reports import Reports
from hinge.server.service import Service, parse_places
from hinge.server.watching import Watcher

START_S = 30.0


@dataclass
class Server:
    """Serves models over HTTP; see `docs/server.md`.

    >>> from urllib.request import urlopen
    >>> with Server(["fashion-local"]) as server:
    ...     with urlopen(server.url + "/v2/models/fashion-local/ready") as answer:
    ...         answer.read()
    b'{"name":"fashion-local","ready":true}'
    """

    models: Sequence[str | Path]  # each NAME=PATH, PATH, or a shipped model's name
    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    insecure: bool = False
    limits: Limits = field(default_factory=Limits)
    threads: int | None = None  # of one run of a model
    workers: int | None = None  # runs of a model at the same time; None: one per core
    watch_s: float | None = None  # how often to look for changed files; None: never
    drain_s: float = 10.0
    log_level: str = "warning"

    def __post_init__(self) -> None:
        self.places = parse_places(self.models)
        self.log = Log(self.log_level)
        self.metrics = Metrics()
        self.reports = Reports(self.metrics.requests)
        self.metrics.registry.register(self.reports)
        self._check()
        self.loaded = {place: Model.load(place.path, self.threads) for place in self.places}
        for place in self.places:
            self.metrics.loaded(place.name, well=True)
        self._running: Lifecycle | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where a server that runs is reached."""
        if self._running is None:
            raise RuntimeError("Server: it does not run yet")
        return self._running.url

    def run(self, announce: Callable[[str], object] = str) -> None:
        """Serve until SIGTERM or SIGINT comes; `announce` is called with the address once requests are taken."""
        running = self._running = self._prepared(announce)
        _serve(running)

    def __enter__(self) -> Server:
        """Serve in a thread; what keeps it from starting is raised here."""
        started: Future[str] = Future()
        running = self._running = self._prepared(started.set_result)

        def serve() -> None:
            try:
                _serve(running)
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

        self._thread = threading.Thread(target=serve, name="hinge-server", daemon=True)
        self._thread.start()
        try:
            started.result(START_S)
        except NotInTime:
            running.should_exit = True
            raise RuntimeError("Server: it did not start in time") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop."""
        if self._running is not None and self._thread is not None:
            self._running.should_exit = True
            self._thread.join(self.drain_s + 10)

    def _check(self) -> None:
        whole("Server", "port", self.port, 0, 65535)
        real("Server", "drain_s", self.drain_s, 0, 3600)
        for name, low in (("threads", 0), ("workers", 1)):
            if getattr(self, name) is not None:
                whole("Server", name, getattr(self, name), low, 1024)
        if self.watch_s is not None:
            real("Server", "watch_s", self.watch_s, 0.01, 3600)
        if self.token is not None:
            check_token(self.token)

    def _prepared(self, announce: Callable[[str], object]) -> Lifecycle:
        mutual = self.tls is not None and self.tls.client_ca is not None
        guarded = self.insecure or mutual or self.token is not None
        listener = listen(self.host, self.port, guarded=guarded)
        return Lifecycle(
            self._application,
            listener,
            tls=self.tls,
            drain_s=self.drain_s,
            announce=announce,
            limits=self.limits,
            metrics=self.metrics,
            log=self.log,
        )

    def _application(self) -> Application:
        workers = self.workers or os.cpu_count() or 1
        services = {
            place.name: Service(place, model, workers=workers, limits=self.limits, metrics=self.metrics)
            for place, model in self.loaded.items()
        }
        watcher = None
        if self.watch_s is not None:
            watcher = Watcher(services.values(), self.watch_s, self.threads, self.metrics, self.log)
        return Application(
            services,
            token=self.token,
            insecure=self.insecure,
            limits=self.limits,
            metrics=self.metrics,
            log=self.log,
            reports=self.reports,
            watcher=watcher,
        )


def _serve(running: Lifecycle) -> None:
    try:
        running.run(sockets=[running.listener])
    finally:
        running.listener.close()  # uvicorn leaves it open if it does not get as far as serving
