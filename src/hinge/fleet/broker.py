"""A connection to an MQTT broker, by paho-mqtt: MQTT 5, and 3.1.1 where the broker knows no other.

Nothing here runs by itself: who has a connection calls `turn`, which reads what has come for a while. Everything is
bounded: the time to connect, the bytes of a packet, the messages read in a second. Every connection is a new one, and
nothing is queued between two of them.

`Link` keeps a connection: whatever ends it, it is made again, after a pause that grows.
"""

from __future__ import annotations

import logging
import random
import selectors
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Any, Self
from urllib.parse import urlsplit

from hinge._checks import shown
from hinge.errors import HingeError, InvalidValue, printable

try:
    from paho.mqtt.client import MQTT_ERR_SUCCESS, Client, MQTTMessage, MQTTv5, MQTTv311
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode
except ImportError as error:
    raise ImportError(f"fleets need paho-mqtt ({error}): pip install 'hinge-gate[fleet]'") from error

VERSIONS = {"5": MQTTv5, "3.1.1": MQTTv311}
PORTS = {"mqtt": 1883, "mqtts": 8883}
KEEPALIVE_S = 30
CONNECT_S = 5.0  # for the connection, and then for the broker's answers to the login and the subscription
PER_SECOND = 1_000  # messages that are read: who sends more waits, and the samples do not
FAILURES = {
    "unreachable": "no connection",
    "certificate": "its certificate is not trusted",
    "login": "it refuses the login, or a topic",
    "taken": "another device has the same name",
    "muted": "a counter was used in our name that leaves no later one",
    "protocol": "it does not answer as an MQTT broker does",
    "internal": "an error of our own",
}
_UNSUPPORTED, _TAKEN_OVER = 132, 142  # reason codes of MQTT 5

Take = Callable[[str, bytes, bool], None]  # topic, payload, whether it was retained


class BrokerFailed(HingeError):
    """No connection to the broker, or none any more; `kind` is one of `FAILURES`."""

    def __init__(self, kind: str, why: object) -> None:
        super().__init__(printable(f"{FAILURES[kind]}: {why}"))
        self.kind = kind


class Broker:
    """The address of a broker, and how to log in.

    >>> print(Broker("Fleet", "mqtts://kitchen@edge"))
    the broker at edge:8883
    >>> Broker("Fleet", "http://edge")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Fleet: url must be mqtt://[USER@]HOST[:PORT], or mqtts:// for TLS, got 'http://edge'
    """

    def __init__(
        self, owner: str, url: str, password: str | None = None, tls: ssl.SSLContext | None = None, mqtt: str = "5"
    ) -> None:
        if mqtt not in VERSIONS:
            raise InvalidValue(owner, "mqtt", f"must be {' or '.join(map(repr, VERSIONS))}, got {shown(mqtt)}")
        scheme, self._user, self._host, self._port = _address(owner, url)
        if password is not None and self._user is None:
            raise InvalidValue(owner, "url", f"must name the user of the password, {scheme}://USER@{self._host}")
        if tls is not None and scheme == "mqtt":
            raise InvalidValue(owner, "url", f"must begin with mqtts:// for certificates to be used, got {shown(url)}")
        self._password, self._protocol = password, VERSIONS[mqtt]
        self._tls = ssl.create_default_context() if scheme == "mqtts" and tls is None else tls

    def __str__(self) -> str:
        return f"the broker at {self._host}:{self._port}"

    def connect(
        self, client: str, topics: str | Sequence[str], will: tuple[str, bytes] | None, most: int, take: Take
    ) -> Connection:
        """Log in and subscribe to a topic or several, whose messages of so many bytes at most `take` will get.

        Raises `BrokerFailed`. A broker that does not know MQTT 5 is asked again, with 3.1.1.
        """
        try:
            return self._connect(client, topics, will, most, take)
        except _OtherProtocol:
            self._protocol = MQTTv311 if self._protocol == MQTTv5 else MQTTv5
        return self._connect(client, topics, will, most, take)

    def _connect(
        self, client: str, topics: str | Sequence[str], will: tuple[str, bytes] | None, most: int, take: Take
    ) -> Connection:
        mqtt = _Client(CallbackAPIVersion.VERSION2, client, protocol=self._protocol, reconnect_on_failure=False)
        mqtt.most, mqtt.connect_timeout = most, CONNECT_S
        mqtt.username_pw_set(self._user, self._password)
        if will is not None:
            mqtt.will_set(*will, qos=1, retain=True)
        if self._tls is not None:
            mqtt.tls_set_context(self._tls)
        limits = None
        if self._protocol == MQTTv5:
            limits = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own lack of types
            limits.MaximumPacketSize = most
        try:
            mqtt.connect(self._host, self._port, KEEPALIVE_S, properties=limits)
            return Connection(mqtt, [topics] if isinstance(topics, str) else topics, take)
        except ssl.SSLCertVerificationError as error:
            failure = BrokerFailed("certificate", error.verify_message)
        except ssl.SSLError as error:
            failure = BrokerFailed("protocol", error)
        except OSError as error:
            hung_up = isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError))
            if self._tls is not None and hung_up:  # in the handshake: it had accepted the connection
                failure = BrokerFailed("protocol", f"{error}; does this port speak TLS?")
            else:
                failure = BrokerFailed("unreachable", error)
        raise failure  # out here, so that it does not hold on to the socket


class Connection:
    """A connection to a broker, to be used by one thread."""

    def __init__(self, mqtt: _Client, topics: Sequence[str], take: Take) -> None:
        self._mqtt, self._topics, self._take = mqtt, topics, take
        self._read = self.acknowledged = 0  # messages
        self._open: dict[int, tuple[str, bool]] = {}  # published, not yet acknowledged: topic, and whether it must be
        self.refused = ""  # the last topic that was, without need
        self._failure: BrokerFailed | None = None
        self._ready = False
        self._selector = selectors.DefaultSelector()
        mqtt.on_connect, mqtt.on_subscribe, mqtt.on_disconnect = self._accepted, self._subscribed, self._disconnected
        mqtt.on_message, mqtt.on_publish = self._came, self._published
        try:
            self._until(lambda: self._ready, CONNECT_S)
            if not self._ready:
                raise _OtherProtocol("protocol", f"nothing came within {CONNECT_S:g} s of the login")
        except BaseException:
            self.close()
            raise

    def turn(self, seconds: float) -> None:
        """Read what comes, for so long; a broker that is gone raises `BrokerFailed`."""
        self._read = 0
        end, most = time.monotonic() + seconds, max(1.0, PER_SECOND * seconds)
        self._until(lambda: self._read >= most, seconds)
        time.sleep(max(0.0, end - time.monotonic()))

    def publish(self, topic: str, payload: bytes, needed: bool = True) -> None:
        """Publish a message, retained; the broker is to acknowledge it. If one that is needed is refused, we leave."""
        self._open[self._mqtt.publish(topic, payload, qos=1, retain=True).mid] = topic, needed

    def ask_again(self) -> None:
        """Have the broker send all again that it has retained."""
        self._mqtt.subscribe([(topic, 1) for topic in self._topics])

    def settle(self, seconds: float) -> None:
        """Wait until all that was published is acknowledged, so long at most."""
        self._until(lambda: not self._open, seconds)

    def close(self) -> None:
        """Leave; the broker does not publish the last will then."""
        self._selector.close()
        self._mqtt.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _until(self, done: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done() and (left := end - time.monotonic()) > 0:
            self._exchange(left)
            if self._failure is not None:
                raise self._failure

    def _exchange(self, seconds: float) -> None:
        """Wait for the socket, and do what it is ready for."""
        socket: Any = self._mqtt.socket()
        if socket is None:
            raise self._lost()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._mqtt.want_write() else 0)
        if not self._selector.get_map():
            self._selector.register(socket, events)
        self._selector.modify(socket, events)
        buffered = hasattr(socket, "pending") and socket.pending() > 0
        try:
            ready = self._selector.select(0.0 if buffered else seconds)
            results = [self._mqtt.loop_misc()]
            if buffered or any(event & selectors.EVENT_READ for _, event in ready):
                results.append(self._mqtt.loop_read())
            if self._mqtt.want_write():
                results.append(self._mqtt.loop_write())
        except Exception as error:  # paho raises what it likes on packets that it cannot read
            raise BrokerFailed("protocol", f"{type(error).__name__}: {error}") from error
        if self._failure is None and any(result != MQTT_ERR_SUCCESS for result in results):
            raise self._lost()

    def _lost(self) -> BrokerFailed:
        if self._mqtt.too_long:
            return BrokerFailed("protocol", f"a packet of {self._mqtt.too_long} bytes, and {self._mqtt.most} are read")
        if self._ready:
            return BrokerFailed("unreachable", "the connection was lost")
        return _OtherProtocol(
            "protocol", "it closed the connection at the login; is this its MQTT port, and does it want a certificate?"
        )

    # -- called by paho -----------------------------------------------------------------------------------------------

    def _accepted(self, client: Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if reason.is_failure:
            kind = _OtherProtocol if reason.value == _UNSUPPORTED else BrokerFailed
            self._failure = kind("protocol" if reason.value == _UNSUPPORTED else "login", reason)
        else:
            self.ask_again()

    def _subscribed(self, client: Client, _: Any, mid: int, reasons: list[ReasonCode], properties: Any) -> None:
        self._ready = True
        for topic, reason in zip(self._topics, reasons, strict=False):  # how many reasons, the broker says
            if reason.is_failure:
                self._failure = BrokerFailed("login", f"{reason} to read {topic}")

    def _disconnected(self, client: Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._failure = BrokerFailed("taken" if reason.value == _TAKEN_OVER else "unreachable", reason)

    def _published(self, client: Client, _: Any, mid: int, reason: ReasonCode, properties: Any) -> None:
        topic, needed = self._open.pop(mid, ("", False))
        if not reason.is_failure:
            self.acknowledged += 1
        elif needed:
            self._failure = BrokerFailed("login", f"{reason} to publish {topic}")
        else:
            self.refused = topic

    def _came(self, client: Client, _: Any, message: MQTTMessage) -> None:
        self._read += 1
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""
        self._take(topic, bytes(message.payload), message.retain)


class _OtherProtocol(BrokerFailed):
    """The broker may speak another version of MQTT."""


class _Client(Client):
    """Paho's client, with a limit on what a broker can make it read."""

    most = 0
    too_long = 0  # bytes of the packet that ended the connection

    def _sock_recv(self, bufsize: int) -> bytes:  # paho has no limit of its own; there is a test that this is one
        if bufsize > self.most:
            self.too_long = bufsize
            raise ConnectionError("the packet is too long")
        return super()._sock_recv(bufsize)


def _address(owner: str, url: str) -> tuple[str, str | None, str, int]:
    try:
        parts = urlsplit(url)
        port, right = parts.port, parts.scheme in PORTS and bool(parts.hostname)
    except ValueError:  # such as a port that is no number
        right = False
    if not right or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or port == 0:
        raise InvalidValue(owner, "url", f"must be mqtt://[USER@]HOST[:PORT], or mqtts:// for TLS, got {shown(url)}")
    if parts.password is not None:
        instead = "give it as password=, or to a command as HINGE_FLEET_PASSWORD"
        raise InvalidValue(owner, "url", f"must not hold a password, which others could see: {instead}")
    return parts.scheme, parts.username, parts.hostname, port or PORTS[parts.scheme]


# -- a connection that is kept ----------------------------------------------------------------------------------------


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
        self._refused = False  # a topic, by a broker that had let us in, and will again
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
            self._refused = self.online and failure.kind == "login"
            self.online = False
            self.failed(failure)

    def failed(self, failure: BrokerFailed) -> None:
        """Say what is wrong, and count the failure: who sees the count finds the warning in the log."""
        self.problem = f"{self.broker}: {failure}"
        self.warn(failure.kind, self.problem if self.online else f"{self.problem}; {self._without}")
        self.failures[failure.kind] += 1

    def warn(self, kind: str, what: str) -> None:
        """Log the first of each kind."""
        if kind not in self._warned:
            self._say(self.fleet, what)
        self._warned.add(kind)

    def _connected(self) -> None:
        if self.problem is not None and not self._refused:
            self._say(self.fleet, f"connected to {self.broker} again")
        if not self._refused:
            self._warned -= FAILURES.keys()
        self.online, self.problem = True, None
