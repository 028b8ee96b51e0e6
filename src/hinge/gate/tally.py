"""What became of the samples of a device, and a line in the log when something changes that somebody should know."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from threading import Lock

from hinge.gate.breaker import Breaker, Counts
from hinge.gate.storage.memory import Keeper

log = logging.getLogger("hinge")

QUIET = 1_000  # samples without it, until an alarm is a new one: a budget is spent and free again all the time


@dataclass(frozen=True)
class Status:
    """A device at one instant."""

    samples: int  # decided since the device was made; each is accepted, answered by the remote, fell back, or waits
    answered_by_remote: int
    agreed: float  # in how many of these answers local agreed; a mistake may count in part, by its price
    fell_back: dict[str, int]  # answered locally as the remote failed, by the kind of failure
    offload_cost: float  # the sum over the answers of the remote
    breaker: str  # closed, open or probing
    attempts: Counts
    not_durable: str | None  # why what is learned now may be lost; None: it is safe on disk
    alarms: dict[str, int]  # what needs a person, and how often that began; what returns within `QUIET` never ended


class Tally:
    """Counts what happens to offloads. Accepted samples are counted by the policy's clock, and cost nothing here."""

    def __init__(self, keeper: Keeper, breaker: Breaker) -> None:
        self._keeper, self._breaker = keeper, breaker
        self._began = keeper.policy.time
        self._lock = Lock()
        self._remote, self._agreed, self._cost = 0, 0.0, 0.0
        self._fell_back: Counter[str] = Counter()
        self._alarms: Counter[str] = Counter()
        self._last_alarm: dict[str, int] = {}
        self._changes = sum(keeper.policy.alarms.values())

    def answered(self, samples: int, agreed: float, cost: float) -> None:
        """The remote answered so many samples, each at that cost; local agreed in some of them."""
        with self._lock:
            self._remote += samples
            self._agreed += agreed
            self._cost += samples * cost
        self._watch()

    def fell_back(self, kind: str, samples: int) -> None:
        """So many samples got their local answer, as the remote failed in that way."""
        with self._lock:
            self._fell_back[kind] += samples
        self._watch()

    def _watch(self) -> None:
        self._alarm("the breaker opened", self._breaker.opened_at is not None)
        self._alarm("the offload budget is exhausted", self._keeper.policy.exhausted)
        self._alarm("what is learned is not durable", self._durability() is not None)
        changes = sum(self._keeper.policy.alarms.values())
        self._alarm("the policy found the world changed, and forgot what it knew", changes > self._changes)
        self._changes = changes

    def _alarm(self, what: str, holds: bool) -> None:
        """Count and log it, once for as long as it comes back within `QUIET` samples."""
        if not holds:
            return
        now = self._keeper.policy.time
        with self._lock:
            last, self._last_alarm[what] = self._last_alarm.get(what, -QUIET), now
            new = now - last >= QUIET
            self._alarms[what] += new
        if new:
            log.warning("%s", what)

    def _durability(self) -> str | None:
        """Why a policy that should be on disk is not; one that lives in memory is where it should be."""
        return self._keeper.reason if hasattr(self._keeper, "durable") else None

    def status(self) -> Status:
        """How things stand."""
        with self._lock:
            return Status(
                samples=self._keeper.policy.time - self._began,
                answered_by_remote=self._remote,
                agreed=self._agreed,
                fell_back=dict(self._fell_back),
                offload_cost=self._cost,
                breaker=self._breaker.state,
                attempts=self._breaker.counts,
                not_durable=self._keeper.reason,
                alarms=dict(self._alarms),
            )
