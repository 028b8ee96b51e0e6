"""A connection to a broker that is kept: whatever ends it, it is made again, after a pause that grows."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from threading import Event

from hinge.fleet.broker import FAILURES, Broker, BrokerFailed, Connection

log = logging.getLogger("hinge")

PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # before the next attempt to connect


class Link:
    """Whether there is a connection, how often there was none, and why there is none at present."""

    def __init__(
        self, fleet: str, broker: Broker, without: str, say: Callable[[str, str], object] | None = None
    ) -> None:
        self.fleet, self.broker = fleet, broker
        self._without = without  # what happens while there is no connection
        self._say = say or partial(log.warning, "fleet %s: %s")
        self.online = False
        self.failures = dict.fromkeys(FAILURES, 0)
        self.problem: str | None = None
        self._warned = set[str]()  # of which failures and reasons

    def keep(
        self,
        ended: Event,
        connect: Callable[[], Connection],
        use: Callable[[Connection], None],
        wait: Callable[[float], object],
    ) -> None:
        """Connect and use the connection until that ends by itself; `wait` before another attempt."""
        pause = 0.0
        while not ended.is_set():
            try:
                wait(pause * random.uniform(0.5, 1.5))  # not all at once after the broker was away
                with connect() as connection:
                    self._connected()
                    use(connection)
                self.online = False
                return
            except BrokerFailed as error:
                failure = error
            except Exception as error:
                failure = BrokerFailed("internal", f"{type(error).__name__}: {error}")
            lost = self.online and failure.kind == "unreachable"
            pause = PAUSE_S if lost else min(max(2 * pause, PAUSE_S), LONGEST_PAUSE_S)
            self.online = False
            self.failed(failure)

    def failed(self, failure: BrokerFailed) -> None:
        """Count a failure, and say why nothing is shared."""
        self.failures[failure.kind] += 1
        self.problem = f"{self.broker}: {failure}"
        self.warn(failure.kind, f"{self.problem}; {self._without}")

    def warn(self, kind: str, what: str) -> None:
        """Log the first of each kind."""
        if kind not in self._warned:
            self._say(self.fleet, what)
        self._warned.add(kind)

    def _connected(self) -> None:
        if self.problem is not None:
            self._say(self.fleet, f"connected to {self.broker} again")
        self.online, self.problem = True, None
        self._warned -= FAILURES.keys()
