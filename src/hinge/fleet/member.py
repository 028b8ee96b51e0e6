"""A device's membership in a fleet, over an MQTT broker: it tells what it has seen, and borrows from the others.

A thread of its own connects, reads, pools and publishes. No sample waits for it: it holds the lock of the policy for as
long as it takes to copy the sums of a few bins. It looks at the policy every `every_s`, and publishes once own offloads
have grown by `GROWTH`, so that messages grow like log T, and when the device is closed. The messages are retained, so
that nobody else has to be there.

Whatever the broker does, the device goes on, alone if need be. After each connection everything is read again, and what
the broker lacks of our own is published again: one that was wiped is as good as a new one.

*The counter* of our messages is the policy's clock, which the state folder keeps; and larger than any that the broker
still has of us, which matters to a device without a folder. A counter that leaves no later one is none of ours: what
was said with it is withdrawn everywhere, by an empty message, before we say what we have seen.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from hinge._checks import positive, real
from hinge._fork import renew_after_fork
from hinge.errors import InvalidType, InvalidValue
from hinge.fleet import messages
from hinge.fleet.broker import Broker, BrokerFailed, Connection, Link
from hinge.fleet.budget import Account
from hinge.fleet.messages import Dropped, Peers, Presence, Statement
from hinge.fleet.pooling import Verdict, pool
from hinge.gate import Gate
from hinge.policies.policy import Policy
from hinge.policies.shared_budget import SharedBudget

GROWTH = 1.2  # of own offloads, from one message to the next
LISTEN_S = 2.0  # for what the broker has retained of us, before we publish
CLOSE_S = 2.0  # for the broker to acknowledge the last messages
POOLING = 0.05  # the share of a thread's time, at most, that pooling takes from the samples: one runs at a time
STATUS_S, WATCHED_S = 3600.0, 60.0  # between two messages of our status; the latter, where Home Assistant shows it

T = TypeVar("T")


class Store(Protocol):
    """Where the policy of a device is."""

    on_disk: bool

    def locked(self, function: Callable[[Policy], T]) -> T: ...
    def update(self, function: Callable[[Policy], None]) -> None: ...
    def sync(self) -> bool: ...


class Budget(NamedTuple):
    """A device's account in the budget of its fleet."""

    price: float  # λ: what an offload costs beyond its cost
    credits: float  # offloads that it may make
    ceded: int  # to other devices, so far
    received: float  # from them


class _Own(NamedTuple):
    """What the device has seen itself, at one instant."""

    samples: int
    learned: int
    alarms: int
    offloads: list[float]
    agreements: list[float]
    price: float | None
    budget: Budget | None
    statement: Statement | None


@dataclass(frozen=True)
class Membership:
    """A device in its fleet, at one instant."""

    online: bool
    devices: int  # others of which there is evidence
    regions: int  # others, each of which stands for its devices
    verdicts: dict[str, Verdict]  # what was made of each of them when their evidence was last pooled
    sent: int  # messages that the broker has acknowledged
    received: int  # messages that were counted
    dropped: dict[str, int]  # messages that were not, by reason (`hinge.fleet.messages.REASONS`)
    failures: dict[str, int]  # how often there was no connection, by kind (`hinge.fleet.broker.FAILURES`)
    problem: str | None  # why nothing is shared at present
    budget: Budget | None = None  # of a fleet that has one

    @property
    def kin(self) -> int:
        """Others that are believed."""
        return sum(verdict is Verdict.KIN for verdict in self.verdicts.values())

    def figures(self) -> dict[str, int]:
        """The counts, for a summary."""
        counts = {
            "other devices": self.devices,
            "other regions": self.regions,
            "believed": self.kin,
            "messages sent": self.sent,
            "messages received": self.received,
            "messages dropped": sum(self.dropped.values()),
        }
        if self.budget is not None:
            counts |= {"credits ceded": self.budget.ceded, "credits received": int(self.budget.received)}
        return counts


class Fleet:
    """A fleet to join, given to a `Device` as `fleet=`: devices with the same two models, and an MQTT broker.

    >>> from hinge import Device, Gate
    >>> fleet = Fleet("mqtt://127.0.0.1:9", name="cams", device="kitchen")  # nobody is there, which does no harm
    >>> with Device(lambda sample: [0.0, sample], lambda sample: 1, Gate(offload_cost=0.5), fleet=fleet) as device:
    ...     device.infer(3.0).source
    'remote'

    `url` is mqtt://[USER@]HOST[:PORT], or mqtts:// for TLS, with `tls` in place of the system's certificates. No two
    devices may have the same `device`. A device with a `region` listens to the devices of its region, and to what the
    hubs of the other regions have pooled. `models` says which two models these are, where devices with others have the
    same `name`. `mqtt` is the version to begin with: "3.1.1" saves some seconds with brokers that know no other and do
    not say so. `home_assistant` publishes discovery messages, by which the device's figures appear there. `budget` is
    the share of samples that the devices may offload, together: with 0.05 one may offload more, as others offload less.
    """

    def __init__(
        self,
        url: str,
        name: str,
        device: str,
        *,
        region: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        models: str = "",
        mqtt: str = "5",
        home_assistant: bool = False,
        budget: float | None = None,
        every_s: float = 0.5,
    ) -> None:
        self.name = messages.fleet_name("Fleet", name, region)
        self.device = messages.checked_name("Fleet", "device", device)
        self._topic = messages.topic(self.name, device, "evidence")
        self._status_topic = messages.topic(self.name, device, "status")
        self._parent = None if region is None else name
        self._region_topic = None if region is None else messages.topic(name, region, "evidence")
        self._left_topic = None if region is None else messages.topic(name, device, "evidence")  # of before it had one
        self._link = Link(self.name, Broker("Fleet", url, password, tls, mqtt), "this device goes on alone")
        self._models, self._home_assistant = models, home_assistant
        self._budget = None if budget is None else real("Fleet", "budget", budget, 0, 1)
        self._every_s = positive("Fleet", "every_s", every_s)
        self._joined = False
        self._thread: Thread | None = None
        self._ended = Event()
        self._sent = self._received = 0
        self._verdicts: dict[str, Verdict] = {}
        self._counter = 0  # the largest of our own
        self._told: _Own | None = None  # what the broker has of us
        self._foreign = False  # what the broker has in our name is none of ours
        self._published = deque[bytes](maxlen=16)  # our last messages, which come back to us
        self._pooled: tuple[Any, ...] = ()  # of what the policy was lent the last
        self._pool_after = 0.0
        renew_after_fork(self)

    def admit(self, gate: Gate) -> None:
        """Refuse a gate that cannot join, and put its policy into the budget of the fleet, if there is one.

        The `Device` calls this before it opens its state.
        """
        if self._joined:
            raise InvalidValue("Fleet", "fleet", "must be one for each device, got one that was joined before")
        policy, wanted = gate.policy, "must be one that can"
        try:
            _borrow_nothing(policy)
        except TypeError:
            problem = f"{wanted} decide with what others have seen, as 'sentinel' can, got {policy.unlimited.name!r}"
            raise InvalidType("Fleet", "policy", problem) from None
        if self._budget is None or (isinstance(policy, SharedBudget) and policy.offloads == self._budget):
            return  # in the latter case, it is in one since an earlier device had the gate
        if not policy.takes_cost:
            problem = f"{wanted} be told a cost, as 'sentinel' can, for a budget, got {policy.unlimited.name!r}"
            raise InvalidType("Fleet", "policy", problem)
        gate.policy = SharedBudget(policy, self._budget)

    def join(self, store: Store, gate: Gate) -> None:
        """Share what the policy of a store learns, from now on; the `Device` calls this."""
        store.locked(_borrow_nothing)
        bins = gate.policy.bins
        self._joined, self._store, self._gate = True, store, messages.identity(gate, self._models)
        self._peers = Peers(self.name, self._gate, bins)
        self._regions = Peers(self._parent or self.name, self._gate, bins)  # stays empty where there are none
        policy = gate.policy
        self._account = Account(self.device, policy) if isinstance(policy, SharedBudget) else None
        self._own = self._look_at_own()
        self._thread = Thread(target=self._run, name="hinge-fleet", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell what was not told yet, and leave; returns soon also where the broker does not answer."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(2 * CLOSE_S)

    def after_fork(self) -> None:
        """The thread and the connection are the parent's."""
        if self._thread is not None:
            self._thread, self._link.online = None, False
            self._link.problem = "this process is a fork of the one that joined: it shares nothing"

    @property
    def membership(self) -> Membership:
        """How the device fares in its fleet."""
        return Membership(
            online=self._link.online,
            devices=len(self._peers),
            regions=len(self._regions),
            verdicts=self._verdicts,
            sent=self._sent,
            received=self._received,
            dropped={reason: count + self._regions.dropped[reason] for reason, count in self._peers.dropped.items()},
            failures=dict(self._link.failures),
            problem=self._link.problem,
            budget=self._own.budget,
        )

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        will = self._status_topic, messages.build_presence(Presence(messages.VERSION, self.device, online=False))
        client = f"hinge-{self.name}-{self.device}-{secrets.token_hex(4)}"  # two of one name must meet
        topics = [messages.subscription(fleet) for fleet in (self.name, self._parent) if fleet is not None]
        most = messages.longest(self._peers.bins) + 512  # bytes, with room for topic and properties

        def connect() -> Connection:
            self._told = None
            if self._account is not None:
                self._account.told = None
            return self._link.broker.connect(client, topics, will, most, self._take)

        self._link.keep(self._ended, connect, self._share, self._go_on_alone)

    def _share(self, connection: Connection) -> None:
        """Read and publish until the device is closed."""
        self._say_status(connection)
        shown = not self._home_assistant
        since, sent = time.monotonic(), self._sent
        for peers in (self._peers, self._regions):
            peers.begin(since)
        while not self._ended.is_set():
            connection.turn(self._every_s)
            now = time.monotonic()
            listened = now - since > LISTEN_S
            for peers in (self._peers, self._regions):
                if peers.asks(now):
                    connection.ask_again()
            self._look(listened)
            self._cede()
            if self._due(listened):
                self._say_evidence(connection)
            if listened and not shown:  # after the evidence: some brokers hang up where a topic is refused
                self._show(connection)
                shown = True
            if connection.refused:
                what = f"{self._link.broker} refuses {connection.refused}: Home Assistant does not show this device"
                self._link.warn("Home Assistant", what)
            if now - self._said > (WATCHED_S if self._home_assistant else STATUS_S):
                self._say_status(connection)
            self._sent = sent + connection.acknowledged
        self._look()
        if self._due(True, closing=True):
            self._say_evidence(connection)
        self._say_status(connection, online=False)
        connection.settle(CLOSE_S)
        self._sent = sent + connection.acknowledged

    def _show(self, connection: Connection) -> None:
        """Tell Home Assistant of the device; whether the broker takes that is not needed for the fleet."""
        for topic, payload in messages.discovery(self.name, self.device):
            connection.publish(topic, payload, needed=False)

    def _due(self, listened: bool, closing: bool = False) -> bool:
        """Whether there is something to tell: own offloads have grown by GROWTH, or were dropped in an alarm."""
        own, told, account = self._own, self._told, self._account
        if told is None:
            return listened and own.learned > 0
        if own.alarms != told.alarms or own.learned > told.learned * (1.0 if closing else GROWTH):
            return True
        if account is None or own.statement is None or told.samples > own.samples:  # of an earlier life
            return False
        return account.due(own.statement, own.samples)

    def _cede(self) -> None:
        """Cede to those that lack credits what we have to spare; the next message says so."""
        own, account = self._own, self._account
        if account is None or own.statement is None or self._told is None or self._told.samples > own.samples:
            return
        others = self._statements()
        gifts = account.gifts(own.statement, own.samples, others)
        if gifts:
            self._store.update(lambda policy: cast(SharedBudget, policy).cede(gifts))
            account.ceded(gifts, others)
            self._own = self._look_at_own()

    def _statements(self) -> dict[str, Statement]:
        return {each.device: each.budget for each in self._peers if each.budget is not None}

    def _say_evidence(self, connection: Connection) -> None:
        own = self._own
        if self._account is not None:
            if self._store.on_disk and not self._store.sync():  # what is ceded must not be held again after a crash
                return
            self._account.told = own.statement
        self._counter = max(own.samples, self._counter + 1)
        seen = own.samples, own.offloads, own.agreements
        message = messages.build_evidence(self.device, self._gate, self._counter, *seen, own.statement)
        if self._foreign:  # whoever has heard that would find ours older
            connection.publish(self._topic, b"")
            self._foreign = False
        connection.publish(self._topic, message)
        self._published.append(message)
        self._told = own

    def _say_status(self, connection: Connection, online: bool = True) -> None:
        own, self._said = self._own, time.monotonic()
        seen = sum(own.offloads)
        agreement = min(1.0, round(sum(own.agreements) / seen, 4)) if seen else None
        presence = Presence(messages.VERSION, self.device, online, own.samples, own.learned, agreement, own.price)
        connection.publish(self._status_topic, messages.build_presence(presence))

    def _take(self, name: str, payload: bytes, retained: bool) -> None:
        try:
            if name == self._topic:
                self._heard_own(payload, retained)
            elif name == self._region_topic or name.endswith("/status"):
                pass  # own evidence among others'; what we have not asked for, and amqtt sends anyway
            elif name == self._left_topic:
                self._link.warn("left over", f"{name} is not counted: this device is in a region; clear old topics")
            elif name.split("/")[2:3] == [self._parent]:
                self._received += self._regions.take(name, payload, retained) is not None
            elif (said := self._peers.take(name, payload, retained)) is not None:
                self._received += 1
                if self._account is not None and said.budget is not None:
                    self._account.hear(said.device, said.budget)
        except Dropped as drop:
            self._link.warn(drop.reason, f"a message is not counted: {drop}")

    def _heard_own(self, payload: bytes, retained: bool) -> None:
        """What the broker has of us: our last message, or that of an earlier life, or nothing any more."""
        if not retained and payload in self._published:
            return
        try:
            said = messages.parse_evidence(self._topic, payload, self.name, self._gate, self._peers.bins)
        except Dropped:  # deleted, or by another gate: nothing that stands for ours
            self._told, self._foreign = None, bool(payload)
            return
        if said.counter > messages.MOST_COUNTER:
            self._told, self._foreign = None, True
            self._link.failed(BrokerFailed("muted", f"{said.counter} as {self.device!r}; it is withdrawn"))
            return
        own = self._own
        if not retained:
            what = f"it publishes as {self.device!r}, too, and each overwrites what the other has told"
            self._link.failed(BrokerFailed("taken", what))
        elif own.samples < said.samples:  # of an earlier life, without a folder: it stands until we have seen as much
            self._told = own._replace(learned=int(sum(said.offloads)), samples=said.samples)
        else:
            known = messages.build_evidence(self.device, self._gate, 0, 0, said.offloads, said.agreements)
            ours = messages.build_evidence(self.device, self._gate, 0, 0, own.offloads, own.agreements)
            self._told = own if known == ours else None
        self._counter = max(self._counter, said.counter)

    def _go_on_alone(self, seconds: float) -> None:
        """Until the next attempt to connect. What own offloads refute is not believed then, either."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._ended.wait(self._every_s):
            self._look()

    def _look(self, listened: bool = False) -> None:
        """See what was learned, and lend the policy what the others know, if either has changed.

        What was ceded to us counts once all others were `listened` to: how much of it may be true depends on how many
        they are.
        """
        if self._account is not None and self._own.budget is not None:
            said = (self._own.samples, self._statements().values())
            heard = self._account.heard(*said) if listened else (0.0, 0.0, 0)
            apply = self._store.update if heard[0] > self._own.budget.received else self._store.locked  # saved if new
            apply(lambda policy: cast(SharedBudget, policy).hear(*heard))
        own = self._own = self._look_at_own()
        versions = self._peers.version, self._regions.version
        state, began = (*versions, int(2 * own.learned**0.5), own.alarms), time.monotonic()
        if not any(versions) or state == self._pooled or began < self._pool_after:
            return
        # Each level by itself: beside devices, a region would count for no more than one of them.
        pools = [pool((own.offloads, own.agreements), peers.sums()) for peers in (self._peers, self._regions)]
        offloads = [sum(both) for both in zip(*(each.offloads for each in pools), strict=True)]
        agreements = [sum(both) for both in zip(*(each.agreements for each in pools), strict=True)]
        devices = sum(each.devices for each in pools)
        self._store.locked(lambda policy: policy.unlimited.borrow(offloads, agreements, devices))
        above = {f"{self._parent}/{region}": verdict for region, verdict in pools[1].verdicts.items()}
        self._verdicts = pools[0].verdicts | above
        now = time.monotonic()
        self._pooled, self._pool_after = state, now + (now - began) / POOLING

    def _look_at_own(self) -> _Own:
        return self._store.locked(lambda policy: _own(policy, self._account))


def _borrow_nothing(policy: Policy) -> None:
    policy.unlimited.borrow([0.0] * policy.bins, [0.0] * policy.bins, 0)


def _own(policy: Policy, account: Account | None) -> _Own:
    evidence, inside = policy.own_evidence(), policy.unlimited
    price = None if inside.price_column is None else inside.price_column[0]
    budget = statement = None
    if account is not None and isinstance(policy, SharedBudget):
        budget = Budget(policy.price, policy.balance, policy.ceded, policy.received)
        price, statement = policy.price_with_cost, account.statement(policy)
    return _Own(
        samples=policy.time,
        learned=policy.learned,
        alarms=sum(policy.alarms.values()),
        offloads=evidence["offloads"],
        agreements=evidence["agreements"],
        price=None if price is None or inside.offload_cost is None else min(1.0, round(price, 4)),
        budget=budget,
        statement=statement,
    )
