"""Connections that keep a deadline: every step, from looking up a name to the last byte, ends at the same instant.

A timeout that starts anew with every read is none, as a remote that sends a byte now and then is never late. So each
step here gets what is left until the deadline. Names are looked up in a thread: nothing else can interrupt that.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from hinge.errors import RemoteFailed
from hinge.gate.deadline import Deadline
from hinge.gate.protocol.wire import MAX_BODY_BYTES

_FRAME_BYTES = 2**20  # of a response beside its body: headers, and the lengths of chunks


class Connection(io.RawIOBase):
    """A connection to a host, whose steps raise `TimeoutError` from the deadline on. It is a file to read from."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, deadline: Deadline) -> None:
        self.deadline = deadline
        self._socket = _connected(host, port, deadline)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:  # Python counts the whole handshake against the one timeout
                self._socket.settimeout(_left(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except BaseException:
            self._socket.close()
            raise

    def send_all(self, data: bytes) -> None:
        """Send everything."""
        view = memoryview(data)
        while view:
            self._socket.settimeout(_left(self.deadline))
            view = view[self._socket.send(view) :]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(_left(self.deadline))
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """A buffer over the connection, which outlives it; how `http.client` asks for one."""
        return io.BufferedReader(_Borrowed(self))

    def is_idle(self) -> bool:
        """Whether nothing waits to be read: neither bytes that nobody asked for, nor the end."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return not waiting.poll(0)

    def close(self) -> None:
        """End the connection."""
        super().close()
        self._socket.close()


class _Borrowed(io.RawIOBase):
    """Reads one response from a connection, and leaves it open when it is closed itself."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._room = MAX_BODY_BYTES + _FRAME_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._connection.readinto(buffer)
        self._room -= size
        if self._room < 0:  # the parser's own limit is none where a chunk says that it has -1 bytes
            raise RemoteFailed(f"the response is longer than {MAX_BODY_BYTES} bytes", "invalid")
        return size


def _connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A socket connected to the first address of the host that takes it; each gets its share of the time."""
    problem: OSError = OSError(f"{host} has no address")
    addresses = _addresses(host, port, deadline)
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            share = deadline.share(1 / (len(addresses) - tried), time.monotonic())
            connection.settimeout(_left(share))
            connection.connect(address)
            return connection
        except OSError as error:  # TimeoutError among them
            connection.close()
            problem = error
    raise problem


def _addresses(host: str, port: int, deadline: Deadline) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        pass  # a name, then
    found: SimpleQueue[list[Any] | Exception] = SimpleQueue()
    Thread(target=_look_up, args=(host, port, found), name="hinge-lookup", daemon=True).start()
    try:
        result = found.get(timeout=_left(deadline))
    except Empty:
        raise TimeoutError(f"{host} could not be looked up in time") from None
    if isinstance(result, Exception):
        raise result
    return result


def _look_up(host: str, port: int, found: SimpleQueue[list[Any] | Exception]) -> None:
    try:
        found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:  # a name may be no name at all
        found.put(error)


def _left(deadline: Deadline) -> float:
    """Seconds until then; a socket would take 0 as a wish not to wait at all."""
    left = deadline.end_s - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left
