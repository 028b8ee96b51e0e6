"""HTTP as a device reads it: raw bytes in place of a server, without a network."""

import asyncio
import io
from typing import Any
from unittest import mock

import numpy as np

from hinge.errors import RemoteFailed
from hinge.oip import messages as oip
from hinge.oip.tensors import TensorSpec
from hinge.remotes import Deadline
from hinge.remotes.open_inference import Known, OpenInference, Signature
from tests.fuzz.subjects import Subject

SCORES = TensorSpec("scores", "FP32", (-1, 3))
SIGNATURE = Signature((TensorSpec("sample", "FP32", (-1, 2)),), SCORES, (SCORES,))
SAMPLE = np.zeros(2, np.float32)
ID = "0" * 16  # of every request
_RANDOM = "os.urandom"  # of which an id is made
_STREAM, _LOOP_STREAM = "hinge.remotes.http._SocketStream", "hinge.remotes.http._LoopStream"


class Answering:
    """A connection that has everything said already, in place of a socket or of asyncio's transport."""

    def __init__(self, said: bytes) -> None:
        self._said = io.BytesIO(said)

    def write(self, data: bytes, deadline: Deadline | None = None) -> None:
        """Nobody listens."""

    def read(self, deadline: Deadline | None = None) -> bytes:
        return self._said.read(2**16)

    def is_idle(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


class AnsweringLoop(Answering):
    """The same for an event loop."""

    async def read(self, deadline: Deadline | None = None) -> bytes:  # type: ignore[override]  # awaited, as it is used
        return super().read()


def _raw(head: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {head}\r\n\r\n".encode() + body


def _seeds() -> list[bytes]:
    seeds = []
    for binary in (False, True):
        request = oip.InferenceRequest({}, id=ID, binary=binary)
        message = oip.build_response(request, {"scores": np.array([[0.1, 0.7, 0.2]], np.float32)}, model="m")
        headers = [f"{name}: {value}" for name, value in message.headers.items()]
        body, size = message.body, len(message.body)
        half = size // 2
        chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (half, body[:half], size - half, body[half:])
        seeds.append(_raw("\r\n".join(["200 OK", *headers, f"Content-Length: {size}"]), body))
        seeds.append(_raw("\r\n".join(["200 OK", *headers, "Transfer-Encoding: chunked"]), chunks))
        seeds.append(_raw("\r\n".join(["200 OK", *headers, "Connection: close"]), body))
        seeds.append(_raw("100 Continue", seeds[-3]))
    error = oip.json_message({"error": "no such model"}).body
    return [*seeds, _raw(f"404 Not Found\r\nContent-Length: {len(error)}", error)]


KNOWN = Known(True, SIGNATURE)


def _remote() -> OpenInference:
    return OpenInference("http://127.0.0.1:1", model="m")


def http_subject() -> Subject:
    """What threads read."""
    remote = _remote()

    def feed(data: bytes) -> object:
        remote._known = KNOWN
        with mock.patch(_RANDOM, return_value=bytes.fromhex(ID)), mock.patch(_STREAM, return_value=Answering(data)):
            return remote.ask([SAMPLE], Deadline.after(60)).labels

    return Subject(_seeds(), feed, (RemoteFailed,), 0.09)


def loop_subject(loop: asyncio.AbstractEventLoop) -> Subject:
    """What an event loop reads."""
    remote = _remote()

    def feed(data: bytes) -> object:
        async def connected(*_: Any) -> Any:
            return AnsweringLoop(data)

        remote._known = KNOWN
        with mock.patch(_RANDOM, return_value=bytes.fromhex(ID)), mock.patch(f"{_LOOP_STREAM}.connected", connected):
            return loop.run_until_complete(remote.ask_async([SAMPLE], Deadline.after(60))).labels

    return Subject(_seeds(), feed, (RemoteFailed,), 0.03)
