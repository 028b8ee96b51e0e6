"""Loads a model again when its file has changed. Whatever is wrong with the new file, the old model goes on."""

import asyncio
from collections.abc import Iterable

from hinge.errors import InvalidModel
from hinge.server.logs import Log
from hinge.server.metrics import Metrics
from hinge.server.model import Model, mark
from hinge.server.service import Service


class Watcher:
    """Looks at the files of models, and replaces those that changed and then stayed the same for one look."""

    def __init__(
        self, services: Iterable[Service], interval_s: float, threads: int | None, metrics: Metrics, log: Log
    ) -> None:
        self._services = tuple(services)
        self._interval_s = interval_s
        self._threads = threads
        self._metrics = metrics
        self._log = log
        self._tried = {service.name: service.model.mark for service in self._services}
        self._seen = dict(self._tried)

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(self._interval_s)
            for service in self._services:
                await self.look(service)

    async def look(self, service: Service) -> None:
        """Look at one file."""
        found = await asyncio.to_thread(mark, service.place.path)
        still = found == self._seen[service.name]  # else somebody may be writing it
        self._seen[service.name] = found
        if still and found != self._tried[service.name]:
            self._tried[service.name] = found
            await self._reload(service)

    async def _reload(self, service: Service) -> None:
        try:
            service.replace(await asyncio.to_thread(Model.load, service.place.path, self._threads))
        except Exception as error:  # no file may end the watch
            self._metrics.loaded(service.name, well=False)
            problem = str(error) if isinstance(error, InvalidModel) else type(error).__name__
            self._log.write("error", "model not replaced", model=service.name, problem=problem)
        else:
            self._metrics.loaded(service.name, well=True)
            self._log.write("info", "model replaced", model=service.name)
