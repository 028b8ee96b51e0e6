"""A connection to a broker, or the kind of failure that there was instead; nothing that a broker sends is too much."""

import socket
import ssl
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hinge.errors import InvalidValue
from hinge.fleet import broker as module
from hinge.fleet.broker import Broker, BrokerFailed, Connection
from tests.fleet.brokers import CONNACK_5, Amqtt, free_port, login, packet, publish, scripted
from tests.support.certificates import self_signed

pytestmark = pytest.mark.server

MOST = 2048


class Heard:
    """What came."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    def __call__(self, topic: str, payload: bytes, retained: bool) -> None:
        self.messages.append((topic, payload))


def connected(url: str, heard: Heard | None = None, client: str = "c", **settings: Any) -> Connection:
    broker = Broker("Fleet", url, **settings)
    return broker.connect(client, "a/+", ("a/will", b"gone"), MOST, heard or Heard())


def failure(url: str, **settings: Any) -> BrokerFailed:
    with pytest.raises(BrokerFailed) as failed:
        connected(url, **settings)
    assert "\n" not in str(failed.value)
    return failed.value


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("edge:1883", "must be mqtt"),
        ("http://edge", "must be mqtt"),
        ("mqtt://", "must be mqtt"),
        ("mqtt://edge:0", "must be mqtt"),
        ("mqtt://edge:70000", "must be mqtt"),
        ("mqtt://edge/cams", "must be mqtt"),
        ("mqtts://kitchen:secret@edge", "must not hold a password, .*: give it as password="),
    ],
)
def test_addresses_that_cannot_be_used(url: str, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem) as refused:
        Broker("Fleet", url)
    assert "secret" not in str(refused.value)


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="name the user"):
        Broker("Fleet", "mqtts://edge", password="secret")
    with pytest.raises(InvalidValue, match="mqtts://"):
        Broker("Fleet", "mqtt://edge", tls=ssl.create_default_context())
    with pytest.raises(InvalidValue, match=r"'5' or '3\.1\.1'"):
        Broker("Fleet", "mqtt://edge", mqtt="4")


def test_messages_come_retained_ones_too(tmp_path: Path) -> None:
    heard = Heard()
    with Amqtt(tmp_path) as server:
        with connected(server.url, mqtt="3.1.1") as connection:
            connection.publish("a/x", b"1")
            connection.settle(10)
            assert connection.acknowledged == 1
        with connected(server.url, heard, mqtt="3.1.1") as connection:
            connection.turn(0.5)
            connection.publish("a/y", b"2")
            connection.turn(0.5)
    assert {*heard.messages} == {("a/x", b"1"), ("a/y", b"2")}


def test_nobody_is_there() -> None:
    assert failure(f"mqtt://127.0.0.1:{free_port()}").kind == "unreachable"
    assert failure("mqtt://no-such-host.invalid").kind == "unreachable"


def test_who_hangs_up_is_no_broker() -> None:
    def hang_up(connection: socket.socket) -> None:
        packet(connection)

    with scripted(hang_up) as url:
        assert failure(url).kind == "protocol"


def test_who_talks_nonsense_is_no_broker() -> None:
    def nonsense(connection: socket.socket) -> None:
        packet(connection)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20)

    with scripted(nonsense) as url:
        assert failure(url).kind == "protocol"


def test_who_says_nothing_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.2)
    with scripted(lambda _: time.sleep(0.5)) as url:
        assert failure(url).kind == "protocol"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves the socket to be collected
def test_who_resets_a_tls_handshake_speaks_another_protocol() -> None:
    def reset(connection: socket.socket) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with scripted(reset) as url:
        failed = failure(url.replace("mqtt:", "mqtts:"))
        assert (failed.kind, "does this port speak TLS?" in str(failed)) == ("protocol", True)
        assert failure(f"mqtts://127.0.0.1:{free_port()}").kind == "unreachable"


@pytest.mark.parametrize("code", [134, 135])
def test_a_refused_login(code: int) -> None:
    def refuse(connection: socket.socket) -> None:
        packet(connection)
        connection.sendall(bytes([0x20, 3, 0, code, 0]))

    with scripted(refuse) as url:
        assert failure(url.replace("//", "//me@"), password="x").kind == "login"


def test_a_subscription_that_is_refused() -> None:
    def refuse(connection: socket.socket) -> None:
        packet(connection)
        connection.sendall(CONNACK_5)
        number = packet(connection)[1:3]
        connection.sendall(bytes([0x90, 4]) + number + bytes([0, 135]))
        time.sleep(0.5)

    with scripted(refuse) as url, pytest.raises(BrokerFailed, match="a/") as failed, connected(url) as connection:
        connection.turn(5)
    assert failed.value.kind == "login"


def test_a_broker_of_mqtt_311_is_asked_again_in_its_own_version() -> None:
    spoken = []

    def old(connection: socket.socket) -> None:
        first = packet(connection)
        spoken.append(first[7])  # the protocol level
        connection.sendall(bytes([0x20, 2, 0, 1]))

    def accept(connection: socket.socket) -> None:
        login(connection, 4)
        connection.sendall(publish("a/x", b"1", 4))
        time.sleep(0.4)

    heard = Heard()
    with scripted(old, accept) as url, connected(url, heard) as connection:
        connection.turn(0.3)
    assert spoken == [5]
    assert heard.messages == [("a/x", b"1")]


@pytest.mark.parametrize("version", [5, 4])
def test_a_packet_that_is_too_long_is_not_read(version: int) -> None:
    sent = []

    def flood(connection: socket.socket) -> None:
        login(connection, version)
        connection.sendall(bytes([0x30, 0xFF, 0xFF, 0xFF, 0x7F]))  # a message of 256 MiB
        for _ in range(200):
            sent.append(connection.send(bytes(65536)))

    mqtt = {5: "5", 4: "3.1.1"}[version]
    failing = pytest.raises(BrokerFailed, match="268435455 bytes")
    with scripted(flood) as url, connected(url, mqtt=mqtt) as connection, failing as failed:
        connection.turn(10)
    assert failed.value.kind == "protocol"


def test_a_flood_is_read_no_faster_than_allowed() -> None:
    ended = threading.Event()

    def flood(connection: socket.socket) -> None:
        login(connection)
        while not ended.is_set():
            connection.sendall(publish("a/x", b"1") * 1000)

    heard = Heard()
    with scripted(flood) as url, connected(url, heard) as connection:
        began = time.monotonic()
        for _ in range(4):
            connection.turn(0.1)
        took = time.monotonic() - began
        ended.set()
    assert took >= 0.4
    assert 0 < len(heard.messages) <= 4 * 0.1 * module.PER_SECOND + 4


def test_a_topic_that_is_no_text_does_no_harm() -> None:
    def garbled(connection: socket.socket) -> None:
        login(connection)
        connection.sendall(publish("a/x", b"1").replace(b"a/x", b"\xff\xff\xff") + publish("a/x", b"2"))
        time.sleep(0.4)

    heard = Heard()
    with scripted(garbled) as url, connected(url, heard) as connection:
        connection.turn(0.3)
    assert heard.messages == [("", b"1"), ("a/x", b"2")]


def test_a_broker_that_leaves() -> None:
    with scripted(login) as url, connected(url) as connection, pytest.raises(BrokerFailed) as failed:
        connection.turn(5)
    assert failed.value.kind == "unreachable"


def test_another_client_of_the_same_name() -> None:
    def take_over(connection: socket.socket) -> None:
        login(connection)
        connection.sendall(bytes([0xE0, 2, 142, 0]))
        time.sleep(0.4)

    with scripted(take_over) as url, connected(url) as connection, pytest.raises(BrokerFailed) as failed:
        connection.turn(5)
    assert failed.value.kind == "taken"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves the socket to be collected
def test_a_certificate_of_strangers(tmp_path: Path) -> None:
    self_signed(tmp_path, "broker", "stranger")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "broker.pem", tmp_path / "broker.key")

    def encrypt(connection: socket.socket) -> None:
        with server.wrap_socket(connection.dup(), server_side=True) as secured:
            login(secured)
            time.sleep(0.5)

    def trusting(name: str) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.load_verify_locations(tmp_path / f"{name}.pem")
        return context

    with scripted(encrypt) as url:
        address = url.replace("mqtt:", "mqtts:")
        assert failure(address, tls=trusting("stranger")).kind == "certificate"
        assert failure(address).kind == "certificate"
        connected(address, tls=trusting("broker")).close()
    with scripted(lambda connection: connection.sendall(b"no TLS")) as url:
        assert failure(url.replace("mqtt:", "mqtts:")).kind == "protocol"
