"""HTTP as a device reads it: raw bytes in place of a server, without a network."""

import asyncio
import io
import time
from typing import Any

import httpcore2
import numpy as np

from hinge.errors import RemoteFailed
from hinge.oip import messages as oip
from hinge.oip.tensors import TensorSpec
from hinge.remotes import Deadline
from hinge.remotes.http import _Borrowed
from hinge.remotes.open_inference import Contract, OpenInference
from tests.fuzz.subjects import Subject

SCORES = TensorSpec("scores", "FP32", (-1, 3))
CONTRACT = Contract((TensorSpec("sample", "FP32", (-1, 2)),), SCORES)
SAMPLE = np.zeros(2, np.float32)


class Answering:
    """A connection that has everything said already."""

    def __init__(self, said: bytes) -> None:
        self._said = io.BytesIO(said)

    def send_all(self, data: bytes) -> None:
        """Nobody listens."""

    def readinto(self, buffer: Any) -> int:
        return self._said.readinto(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        connection: Any = self
        return io.BufferedReader(_Borrowed(connection))

    def close(self) -> None:
        """Nothing is open."""


def _raw(head: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {head}\r\n\r\n".encode() + body


def _seeds() -> list[bytes]:
    seeds = []
    for binary in (False, True):
        request = oip.InferenceRequest({}, id="1", binary=binary)
        message = oip.build_response(request, {"scores": np.array([[0.1, 0.7, 0.2]], np.float32)}, model="m")
        headers = [f"{name}: {value}" for name, value in message.headers.items()]
        body, size = message.body, len(message.body)
        half = size // 2
        chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (half, body[:half], size - half, body[half:])
        seeds.append(_raw("\r\n".join(["200 OK", *headers, f"Content-Length: {size}"]), body))
        seeds.append(_raw("\r\n".join(["200 OK", *headers, "Transfer-Encoding: chunked"]), chunks))
        seeds.append(_raw("\r\n".join(["200 OK", *headers, "Connection: close"]), body))
        seeds.append(_raw("100 Continue", seeds[-3]))
    error = oip.build_error("no such model").body
    return [*seeds, _raw(f"404 Not Found\r\nContent-Length: {len(error)}", error)]


SERVER = oip.ServerMetadata("s", "1", ("binary_tensor_data",))


def _remote() -> OpenInference:
    remote = OpenInference("http://127.0.0.1:1", model="m")
    remote._ids = iter(lambda: 1, 0)  # type: ignore[assignment]  # every request is the first
    return remote


def http_subject() -> Subject:
    """What threads read."""
    remote = _remote()
    http: Any = remote._http

    def feed(data: bytes) -> object:
        http._connection = lambda _: Answering(data)
        remote._known = CONTRACT, SERVER
        http._idle.clear()
        return remote.ask([SAMPLE], Deadline.after(60, now=time.monotonic())).labels

    return Subject(_seeds(), feed, (RemoteFailed,), 0.09)


class Backend(httpcore2.AsyncNetworkBackend):
    """Connects to somebody who has said everything already."""

    said = b""

    async def connect_tcp(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        return httpcore2.AsyncMockStream([self.said])


def loop_subject(loop: asyncio.AbstractEventLoop) -> Subject:
    """What an event loop reads."""
    remote, backend = _remote(), Backend()

    async def ask() -> object:
        pool = httpcore2.AsyncConnectionPool(network_backend=backend)
        remote._known, remote._http._pool = (CONTRACT, SERVER), pool
        try:
            return (await remote.ask_async([SAMPLE], Deadline.after(60, now=time.monotonic()))).labels
        finally:
            await pool.aclose()

    def feed(data: bytes) -> object:
        backend.said = data
        return loop.run_until_complete(ask())

    return Subject(_seeds(), feed, (RemoteFailed,), 0.03)
