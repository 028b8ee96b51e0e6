"""Brokers for the tests of fleets: amqtt, mosquitto, and one that says what a test wants."""

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from getpass import getuser
from pathlib import Path
from typing import Self

import pytest

WAIT_S = 20.0
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="not installed: mosquitto")
needs_clients = pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="not installed: mosquitto-clients")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(done: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Return once it is so; a test that waits in vain fails."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


class Server:
    """A broker on a free port, which is started, killed and started again as a test wants."""

    port: int
    command: list[str]

    def __init__(self, folder: Path) -> None:
        self.log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)
        wait_for(self._answers)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        return False

    def stop(self, kind: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(kind)
            self._process.wait(WAIT_S)
            self._process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Amqtt(Server):
    """A broker from PyPI, which speaks MQTT 3.1.1; it keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.command = [sys.executable, str(Path(__file__).with_name("amqtt_server.py")), str(self.port)]
        super().__init__(folder)


class Mosquitto(Server):
    """Mosquitto, which keeps what it has been told in a folder."""

    def __init__(self, folder: Path, *settings: str, bind: str = "127.0.0.1") -> None:
        self.port, self.data = free_port(), folder / "data"
        config = folder / "mosquitto.conf"
        listener = [f"listener {self.port} {bind}", "persistence true", f"persistence_location {self.data}/"]
        config.write_text("\n".join([*listener, *settings, f"user {getuser()}", ""]))
        self.command = [str(MOSQUITTO), "-c", str(config)]
        super().__init__(folder)

    def start(self) -> None:
        self.data.mkdir(exist_ok=True)
        super().start()

    def wipe(self) -> None:
        shutil.rmtree(self.data)


CONNACK_5, CONNACK_3 = bytes([0x20, 3, 0, 0, 0]), bytes([0x20, 2, 0, 0])


@contextmanager
def scripted(*replies: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does one of these with each connection, in order, and the last with all others."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            number = 0
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.settimeout(WAIT_S)
                    replies[min(number, len(replies) - 1)](connection)
                number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)


def packet(connection: socket.socket) -> bytes:
    """The next packet of a client, of less than 128 or 16 384 bytes."""
    kind = connection.recv(1)
    if not kind:
        raise ConnectionError("the client is gone")
    length = shift = 0
    while True:
        byte = connection.recv(1)[0]
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return kind + body


def login(connection: socket.socket, version: int = 5) -> None:
    """Accept whoever logs in, and the subscription that follows."""
    packet(connection)
    connection.sendall(CONNACK_5 if version == 5 else CONNACK_3)
    number = packet(connection)[1:3]
    connection.sendall(bytes([0x90, 4]) + number + b"\0\1" if version == 5 else bytes([0x90, 3]) + number + b"\1")


def publish(topic: str, payload: bytes, version: int = 5) -> bytes:
    """A message at QoS 0."""
    body = len(topic).to_bytes(2, "big") + topic.encode() + (b"\0" if version == 5 else b"") + payload
    length, size = b"", len(body)
    while True:
        size, low = divmod(size, 128)
        length += bytes([low | (128 if size else 0)])
        if not size:
            return b"\x30" + length + body
