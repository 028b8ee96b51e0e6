"""Clients for the tests, some of them ill-mannered."""

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hinge.oip.messages import Message, build_request
from hinge.oip.tensors import Tensor

TIMEOUT_S = 20.0
HOST = "Host: localhost\r\n"
IMAGE = np.arange(784, dtype=np.uint32).astype(np.uint8).reshape(1, 28, 28)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]  # names in small letters
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, path: str, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
    """A request as any client sends it."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body=body or None, headers=dict(headers or {}))
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, named, answer.read())
    finally:
        connection.close()


def infer(url: str, model: str, message: Message, headers: Mapping[str, str] | None = None) -> Reply:
    """Send a request to a model."""
    return ask(url, f"/v2/models/{model}/infer", "POST", message.body, {**message.headers, **(headers or {})})


def images(tensor: Tensor = IMAGE, **options: Any) -> Message:
    """A request for the fashion models."""
    return build_request({"image": tensor}, **options)


def connect(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname, place.port or 80), timeout=TIMEOUT_S)


def read_reply(connection: socket.socket) -> Reply:
    """One answer, read from a socket."""
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("closed without an answer")
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Reply(int(lines[0].split()[1]), headers, body)


def send_raw(url: str, *pieces: bytes) -> Reply:
    """Send these bytes, whatever they are, and read one answer."""
    with connect(url) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we were still sending
        return read_reply(connection)


def wait_for(url: str, line: str) -> None:
    """Wait until the metrics have that line."""
    end = time.monotonic() + TIMEOUT_S
    while line not in ask(url, "/metrics").body.decode():
        assert time.monotonic() < end
        time.sleep(0.01)
