"""What became of the samples of a device, and a line in the log when something changes that somebody should know."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from threading import Lock

from hinge.device.resilience import Breaker, Counts
from hinge.device.storage.memory import Keeper
from hinge.errors import RemoteFailed

log = logging.getLogger("hinge")

QUIET = 1_000  # samples without it, until an alarm is a new one: a budget is spent and free again all the time


@dataclass(frozen=True)
class Status:
    """A device at one instant."""

    samples: int  # decided since the device was made
    answered_by_remote: int
    agreed: float  # in how many of these answers local agreed; a mistake may count in part, by its price
    fell_back: dict[str, int]  # answered locally as the remote failed, by the kind of failure
    dropped: int  # offloads of which nobody waited for the end: cancelled, or too many at once in the shadow of local
    offload_cost: float  # what asking has cost, whether or not an answer came
    last_fault: str | None  # how the remote failed last
    breaker: str  # closed, open or probing
    attempts: Counts
    on_disk: bool  # whether the policy is kept in a folder
    not_durable: str | None  # why what is learned now may be lost, though there is a folder
    alarms: dict[str, int]  # what needs a person, and how often that began; what returns within `QUIET` never ended


class Tally:
    """Counts what happens to offloads. Accepted samples are counted by the policy's clock, and cost nothing here."""

    def __init__(self, keeper: Keeper, breaker: Breaker) -> None:
        self._keeper, self._breaker = keeper, breaker
        self._began = keeper.policy.time
        self._lock = Lock()
        self._remote, self._dropped, self._agreed, self._cost = 0, 0, 0.0, 0.0
        self._fell_back: Counter[str] = Counter()
        self._alarms: Counter[str] = Counter()
        self._last_alarm: dict[str, int] = {}
        self.last_fault: str | None = None
        self._changes = sum(keeper.policy.alarms.values())
        self._is_open = False

    def answered(self, samples: int, agreed: float, cost: float) -> None:
        """The remote answered so many samples, each at that cost; local agreed in some of them."""
        with self._lock:
            self._remote += samples
            self._agreed += agreed
            self._cost += samples * cost
        self._watch()

    def fell_back(self, fault: RemoteFailed, samples: int, cost: float) -> None:
        """So many samples got their local answer, as the remote failed in that way; each paid for asking."""
        kind = fault.kind
        with self._lock:
            self._fell_back[kind] += samples
            self._cost += samples * cost
            if kind != "breaker":  # that only says that others were there before
                self.last_fault = str(fault)
        self._watch()

    def dropped(self, samples: int) -> None:
        """Nobody waits for the offload of so many samples any more."""
        with self._lock:
            self._dropped += samples

    def _watch(self) -> None:
        exhausted, changes = self._keeper.look(lambda policy: (policy.exhausted, sum(policy.alarms.values())))
        with self._lock:
            changed, self._changes = changes > self._changes, changes
            is_open = self._breaker.opened_at is not None
            turned, self._is_open = is_open != self._is_open, is_open
        self._alarm("the breaker opened", is_open, self.last_fault, news=turned)
        if turned and not is_open:
            log.warning("the remote answers again")
        self._alarm("the offload budget is exhausted", exhausted)
        self._alarm("what is learned is not durable", self._keeper.reason is not None, self._keeper.reason)
        self._alarm("the policy found the world changed, and forgot what it knew", changed)

    def _alarm(self, what: str, holds: bool, why: str | None = None, news: bool = False) -> None:
        """Count and log it, once for as long as it comes back within `QUIET` samples; log it also if it is news."""
        if not holds:
            return
        now = self._keeper.policy.time
        with self._lock:
            last, self._last_alarm[what] = self._last_alarm.get(what, -QUIET), now
            new = now - last >= QUIET
            self._alarms[what] += new
        if new or news:
            log.warning("%s", what if why is None else f"{what}: {why}")

    def status(self) -> Status:
        """How things stand."""
        with self._lock:
            return Status(
                samples=self._keeper.policy.time - self._began,
                answered_by_remote=self._remote,
                agreed=self._agreed,
                fell_back=dict(self._fell_back),
                dropped=self._dropped,
                offload_cost=self._cost,
                last_fault=self.last_fault,
                breaker=self._breaker.state,
                attempts=self._breaker.counts,
                on_disk=self._keeper.on_disk,
                not_durable=self._keeper.reason,
                alarms=dict(self._alarms),
            )
