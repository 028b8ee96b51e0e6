"""Connections that keep a deadline: every step of an exchange ends at the same instant.

A timeout that starts anew with every read is none, as a remote that sends a byte now and then is never late. Here the
"timeouts" that the HTTP client hands down are instants of `time.monotonic`, and each step gets what is left until then.
Names are looked up in a thread, since nothing else can interrupt that.
"""

import select
import socket
import ssl
import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import httpcore2

_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class DeadlineStream(httpcore2.NetworkStream):
    """A connection whose timeouts are instants."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes, if any come by then."""
        try:
            self._socket.settimeout(_left(timeout))
            return self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout("no answer in time") from error
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send everything by then."""
        view = memoryview(buffer)
        try:
            while view:
                self._socket.settimeout(_left(timeout))
                view = view[self._socket.send(view) :]
        except TimeoutError as error:
            raise httpcore2.WriteTimeout("the request could not be sent in time") from error
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "DeadlineStream":
        """Agree on keys by then; Python counts the whole handshake against the one timeout."""
        try:
            self._socket.settimeout(_left(timeout))
            return DeadlineStream(ssl_context.wrap_socket(self._socket, server_hostname=server_hostname))
        except TimeoutError as error:
            self.close()
            raise httpcore2.ConnectTimeout("no TLS connection in time") from error
        except OSError as error:
            self.close()
            raise httpcore2.ConnectError(str(error)) from error

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        """What the pool asks of an idle connection: whether the other side has closed it."""
        if info == "is_readable":
            return _is_readable(self._socket)
        if info == "ssl_object" and isinstance(self._socket, ssl.SSLSocket):
            return self._socket
        return None


class DeadlineBackend(httpcore2.NetworkBackend):
    """Connects by an instant, whatever the number of addresses behind a name."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> DeadlineStream:
        """A connection to the first address that takes it."""
        problem: OSError = OSError(f"{host} has no address")
        try:
            for address in _addresses(host, port, timeout):
                try:
                    return DeadlineStream(_connected(address, timeout))
                except TimeoutError:
                    raise
                except OSError as error:
                    problem = error
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("no connection in time") from error
        except OSError as error:
            problem = error
        raise httpcore2.ConnectError(str(problem)) from problem


def _connected(address: Any, timeout: float | None) -> socket.socket:
    family, kind, protocol, _, target = address
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setsockopt(*_NODELAY)
        connection.settimeout(_left(timeout))
        connection.connect(target)
    except BaseException:
        connection.close()
        raise
    return connection


def _addresses(host: str, port: int, timeout: float | None) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        pass  # a name, then
    found: SimpleQueue[list[Any] | OSError] = SimpleQueue()
    Thread(target=_look_up, args=(host, port, found), name="hinge-lookup", daemon=True).start()
    try:
        result = found.get(timeout=_left(timeout))
    except Empty:
        raise TimeoutError(f"{host} could not be looked up in time") from None
    if isinstance(result, OSError):
        raise result
    return result


def _look_up(host: str, port: int, found: "SimpleQueue[list[Any] | OSError]") -> None:
    try:
        found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError as error:
        found.put(error)


def _left(timeout: float | None) -> float | None:
    """Seconds until that instant; a socket would take 0 as a wish not to wait at all."""
    if timeout is None:
        return None
    left = timeout - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _is_readable(connection: socket.socket) -> bool:
    """Whether something waits to be read: of an idle connection, bytes nobody asked for, or its end."""
    if connection.fileno() < 0:
        return True
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(0))
