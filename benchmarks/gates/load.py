"""Load for a server: many connections, each with one request under way, from one thread that does nothing else.

The requests are made beforehand and the responses only counted, so that the load takes little of the machine that it
shares with the server.
"""

import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PATIENCE_S = 30.0


@dataclass
class Client:
    """A connection with one request under way."""

    connection: socket.socket
    began: float = 0.0
    received: bytearray = field(default_factory=bytearray)
    size: int | None = None  # of the whole response, once its headers are there

    def ask(self, request: bytes) -> None:
        self.received.clear()
        self.size = None
        self.began = time.perf_counter()
        self.connection.sendall(request)

    def read(self) -> bool:
        """Whether the response is complete; raises if it is no success."""
        part = self.connection.recv(2**16)
        if not part:
            raise ConnectionError("the server hung up")
        self.received += part
        if self.size is None and (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.received[:end]).lower()
            if not head.startswith(b"http/1.1 200"):
                raise ConnectionError(f"the server answers {head.splitlines()[0]!r}")
            length = next(line for line in head.splitlines() if line.startswith(b"content-length:"))
            self.size = end + 4 + int(length.split(b":")[1])
        return self.size is not None and len(self.received) >= self.size


def http_request(url: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """The whole request, as it goes over the network."""
    sent = {"Host": urlsplit(url).netloc, **headers, "Content-Length": str(len(body))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def seconds_each(url: str, request: bytes, connections: int, requests: int) -> list[float]:
    """How long each of so many requests took, the first to finish first; and, last, how long all of them took."""
    parts = urlsplit(url)
    waiting, clients, times = select.epoll(), dict[int, Client](), list[float]()
    began = time.perf_counter()
    try:
        for _ in range(connections):
            connection = socket.create_connection((str(parts.hostname), parts.port or 80), PATIENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting.register(connection, select.EPOLLIN)
            client = clients[connection.fileno()] = Client(connection)
            client.ask(request)
        while len(times) < requests:
            events = waiting.poll(PATIENCE_S)
            if not events:
                raise TimeoutError(f"no response in {PATIENCE_S:g} s")
            for handle, _ in events:
                if (client := clients[handle]).read():
                    times.append(time.perf_counter() - client.began)
                    client.ask(request)
    finally:
        waiting.close()
        for client in clients.values():
            client.connection.close()
    return [*times, time.perf_counter() - began]
