"""A hub: it reads what all devices of a fleet publish, and says who is there, who is like whom, and who is doubted.

Without a region it only looks. With one it also publishes what the devices of the region have pooled, as one message in
the name of the region, so that devices elsewhere read one message in place of hundreds. Nothing comes back to who said
it: devices leave out the message of their own region, and a hub reads no other's.

A thread connects, reads and pools; `view` is what it has found, and is replaced as a whole.
"""

from __future__ import annotations

import math
import secrets
import ssl
import time
from collections import Counter, deque
from collections.abc import Iterator
from threading import Event, Thread
from typing import Self

from msgspec import Struct

from hinge._checks import shown
from hinge.fleet import messages
from hinge.fleet.broker import Broker, BrokerFailed, Connection, Link
from hinge.fleet.member import CLOSE_S, GROWTH, STATUS_S
from hinge.fleet.messages import Dropped, Evidence, Peers, Presence
from hinge.fleet.pooling import Kinship, Pool, kinship
from hinge.policies.policy import MOST_SAMPLES

MOST_BINS = 1024
TURN_S = 0.25
QUIET_S, GATHER_S = 1.0, 15.0  # what is retained has come when nothing more does for so long, or it took too long
POOLING = 0.25  # the share of its time, at most, in which the hub pools


VERDICTS = {
    "kin": "like the largest group of the fleet",
    "unlike": "its evidence contradicts that of the largest group",
    "other gate": "other bins, another confidence measure, policy or models than most",
    "silent": "it has learned nothing yet",
    "new": "not judged yet",
}


class SeenDevice(Struct, frozen=True):
    """A device, as the hub sees it."""

    device: str
    online: bool | None  # None: it has not said, or the broker is away
    samples: int
    offloads: int
    agreement: float | None
    price: float | None
    verdict: str  # of VERDICTS
    group: int | None  # of those in the view; 0 is the largest
    why: str | None  # it is not believed
    evidence: Evidence | None
    status: Presence | None


class Totals(Struct, frozen=True):
    """The fleet as a whole."""

    devices: int
    online: int
    samples: int
    offloads: int
    verdicts: dict[str, int]


class FleetView(Struct, frozen=True):
    """A fleet at one instant."""

    fleet: str
    region: str | None
    online: bool
    problem: str | None
    gate: str | None  # that of most devices
    totals: Totals
    offloads: list[float]  # what the largest group of kin has pooled, by bin
    agreements: list[float]
    groups: list[list[str]]
    devices: list[SeenDevice]
    received: int
    published: int
    dropped: dict[str, int]
    failures: dict[str, int]


class Hub:
    """Looks at a fleet while its `with` block runs; with a `region`, also speaks for it.

    >>> with Hub("mqtt://127.0.0.1:9", name="cams") as hub:  # nobody is there
    ...     hub.gather(0.1)
    ...     hub.view.totals.devices
    False
    0
    """

    def __init__(
        self,
        url: str,
        name: str,
        region: str | None = None,
        *,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        mqtt: str = "5",
    ) -> None:
        self.fleet, self.region = messages.fleet_name("Hub", name, region), region
        self._link = Link(self.fleet, Broker("Hub", url, password, tls, mqtt), "the hub tries again")
        kinds = ("evidence", "status")
        self._own = None if region is None else [messages.topic(name, region, kind) for kind in kinds]
        self._parent = name
        self._peers = Peers(self.fleet, None, MOST_BINS)
        self._statuses: dict[str, Presence] = {}
        self._received = self._published = self._counter = 0
        self._told = 0.0  # offloads in what was published last
        self._foreign = False  # what the broker has in the region's name is none of ours
        self._said = deque[bytes](maxlen=16)  # our last messages, which come back to us
        self._kinship, self._gate = Kinship([], Pool([], [], {}), {}), ("", 0)
        self._pooled, self._pool_after, self._heard_at = -1, 0.0, 0.0
        self._gathered, self._ended = Event(), Event()
        self._thread = Thread(target=self._run, name="hinge-hub", daemon=True)
        self.view = self._look()

    def gather(self, seconds: float) -> bool:
        """Wait until what the broker has retained is known, so long at most; whether it is."""
        return self._gathered.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave; a region's hub says so, and what it has not told yet."""
        self._ended.set()
        self._thread.join(2 * CLOSE_S)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        client, will = f"hinge-hub-{self.fleet}-{secrets.token_hex(4)}", None
        topics = [messages.observation(self.fleet)]
        if self._own is not None and self.region is not None:
            topics.append(self._own[0])
            will = self._own[1], messages.build_presence(Presence(messages.VERSION, self.region, online=False))

        def connect() -> Connection:
            self._told, self._heard_at = 0.0, time.monotonic()
            return self._link.broker.connect(client, topics, will, messages.longest(MOST_BINS) + 512, self._take)

        self._link.keep(self._ended, connect, self._listen, self._wait)
        self.view = self._look()

    def _wait(self, seconds: float) -> None:
        self.view = self._look()
        self._ended.wait(seconds)

    def _listen(self, connection: Connection) -> None:
        """Read, pool and, for a region, publish, until the hub is closed."""
        began, said, published = time.monotonic(), -math.inf, self._published
        self._peers.begin(began)
        while not self._ended.is_set():
            connection.turn(TURN_S)
            now = time.monotonic()
            if self._peers.asks(now):
                connection.ask_again()
            if now - self._heard_at > QUIET_S or now - began > GATHER_S or self._gathered.is_set():
                self._pool(now)
                self.view = self._look()
                self._gathered.set()
                self._speak(connection, GROWTH)
                if now - said > STATUS_S:
                    self._say_status(connection, online=True)
                    said = now
            self._published = published + connection.acknowledged
        self._speak(connection, 1.0)
        self._say_status(connection, online=False)
        connection.settle(CLOSE_S)

    def _take(self, name: str, payload: bytes, retained: bool) -> None:
        self._heard_at = time.monotonic()
        try:
            if self._own is not None and name == self._own[0]:
                self._heard_own(name, payload, retained)
            elif name.endswith("/evidence"):
                self._received += self._peers.take(name, payload, retained) is not None
            elif name.endswith("/status"):
                self._take_status(name, payload)
        except Dropped as drop:
            self._link.warn(drop.reason, f"a message is not counted: {drop}")

    def _take_status(self, name: str, payload: bytes) -> None:
        try:
            device = messages.source(name, self.fleet, "status")
            if not payload:
                self._statuses.pop(device, None)
            elif device in self._statuses or len(self._statuses) < messages.MOST_DEVICES:
                self._statuses[device] = messages.parse_presence(name, payload, self.fleet)
            else:
                raise Dropped("crowd", f"{shown(device)}, and {messages.MOST_DEVICES} others are known")
        except Dropped as drop:
            self._peers.dropped[drop.reason] += 1
            raise

    def _heard_own(self, name: str, payload: bytes, retained: bool) -> None:
        if not payload or (not retained and payload in self._said):
            return
        said = messages.parse_evidence(name, payload, self._parent, None, MOST_BINS)
        if said.counter > messages.MOST_COUNTER:
            self._told, self._foreign = 0.0, True
            self._link.failed(BrokerFailed("muted", f"{said.counter} as {self.region!r}; it is withdrawn"))
            return
        self._counter = max(self._counter, said.counter)
        if not retained:
            what = f"another hub publishes for {self.region!r}, too, and each overwrites what the other has told"
            self._link.failed(BrokerFailed("taken", what))

    # -- what is made of it -------------------------------------------------------------------------------------------

    def _pool(self, now: float) -> None:
        """Judge all devices anew, if something has changed."""
        if self._peers.version == self._pooled or now < self._pool_after:
            return
        self._pooled = self._peers.version
        gates = Counter((each.gate, len(each.offloads)) for each in self._peers)
        self._gate = max(gates, key=lambda gate: (gates[gate], gate), default=("", 0))
        said = {each.device: (each.offloads, each.agreements) for each in self._peers if self._fits(each)}
        self._kinship = kinship(said, self._gate[1])
        self._pool_after = now + (time.monotonic() - now) / POOLING

    def _fits(self, evidence: Evidence) -> bool:
        return (evidence.gate, len(evidence.offloads)) == self._gate

    def _look(self) -> FleetView:
        found, devices = self._kinship, list(self._devices())
        verdicts = Counter(each.verdict for each in devices)
        return FleetView(
            fleet=self.fleet,
            region=self.region,
            online=self._link.online,
            problem=self._link.problem,
            gate=self._gate[0] or None,
            totals=Totals(
                devices=len(devices),
                online=sum(each.online is True for each in devices),
                samples=sum(each.samples for each in devices),
                offloads=sum(each.offloads for each in devices),
                verdicts={verdict: verdicts[verdict] for verdict in VERDICTS},
            ),
            offloads=found.pooled.offloads,
            agreements=found.pooled.agreements,
            groups=found.groups,
            devices=devices,
            received=self._received,
            published=self._published,
            dropped=dict(self._peers.dropped),
            failures=dict(self._link.failures),
        )

    def _devices(self) -> Iterator[SeenDevice]:
        places = {name: place for place, group in enumerate(self._kinship.groups) for name in group}
        said = {each.device: each for each in self._peers}
        for name in sorted(said.keys() | self._statuses.keys()):
            evidence, status, group = said.get(name), self._statuses.get(name), places.get(name)
            seen, agreed = (0.0, 0.0) if evidence is None else (sum(evidence.offloads), sum(evidence.agreements))
            verdict, why = self._judge(name, evidence, group)
            yield SeenDevice(
                device=name,
                online=status.online if status is not None and self._link.online else None,
                samples=max(0 if each is None else each.samples for each in (evidence, status)),
                offloads=max(round(seen), 0 if status is None else status.offloads),
                agreement=agreed / seen if seen else None,
                price=None if status is None else status.price,
                verdict=verdict,
                group=group,
                why=why,
                evidence=evidence,
                status=status,
            )

    def _judge(self, name: str, evidence: Evidence | None, group: int | None) -> tuple[str, str | None]:
        """What is made of a device, and why it is not believed."""
        if evidence is None or not any(evidence.offloads):
            return "silent", None
        if not self._fits(evidence):
            return "other gate", f"its gate is {evidence.gate} of {len(evidence.offloads)} bins, that of most another"
        if group == 0:
            return "kin", None
        if name in self._kinship.doubts:
            return "unlike", str(self._kinship.doubts[name] or "it is like no other device")
        return "new", None

    # -- for a region -------------------------------------------------------------------------------------------------

    def _speak(self, connection: Connection, growth: float) -> None:
        """Publish what the region has pooled, once it has grown, or shrunk, by a factor."""
        pooled, seen = self._kinship.pooled, sum(self._kinship.pooled.offloads)
        same = self._told / growth <= seen <= self._told * growth
        if self._own is None or self.region is None or same or not seen:
            return
        samples = sum(each.samples for each in self.view.devices if each.verdict == "kin")
        samples = min(MOST_SAMPLES, max(samples, math.ceil(seen)))  # a device that is gone leaves its evidence first
        self._counter = max(self._counter + 1, int(time.time()))  # a hub has no state but the clock's
        sums = pooled.offloads, pooled.agreements
        said = messages.build_evidence(self.region, self._gate[0], self._counter, samples, *sums)
        if self._foreign:  # whoever has heard that would find ours older
            connection.publish(self._own[0], b"")
            self._foreign = False
        connection.publish(self._own[0], said)
        self._said.append(said)
        self._told = seen

    def _say_status(self, connection: Connection, online: bool) -> None:
        if self._own is None or self.region is None:
            return
        seen, agreed = sum(self.view.offloads), sum(self.view.agreements)
        samples, offloads = (min(MOST_SAMPLES, each) for each in (self.view.totals.samples, round(seen)))
        agreement = min(1.0, round(agreed / seen, 4)) if seen else None
        presence = Presence(messages.VERSION, self.region, online, samples, offloads, agreement)
        connection.publish(self._own[1], messages.build_presence(presence))
