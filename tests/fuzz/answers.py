"""HTTP as a device reads it: raw bytes from a server that answers every inference with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from hinge.errors import RemoteFailed
from hinge.oip import messages as oip
from hinge.oip.tensors import TensorSpec
from hinge.remotes import Deadline
from hinge.remotes.open_inference import OpenInference
from tests.fuzz.subjects import Subject
from tests.support.loopback import Connection, Loopback, http_response

INPUTS, OUTPUTS = (TensorSpec("sample", "FP32", (-1, 2)),), (TensorSpec("scores", "FP32", (-1, 3)),)
SAMPLE = np.zeros(2, np.float32)
ID = "0" * 16  # of every request
_PAGES = {
    "/v2": oip.build_server_metadata(oip.ServerMetadata("s", "1", ("binary_tensor_data",))),
    "/v2/models/m": oip.build_model_metadata(oip.ModelMetadata("m", "", INPUTS, OUTPUTS)),
}


class Saying(Loopback):
    """Answers an inference with these bytes, and hangs up."""

    said = b""

    async def _serve(self, connection: Connection) -> None:
        while (request := await connection.read()) is not None:
            method, path, _ = request.start.split(" ")
            if method == "POST":
                await connection.send(self.said)
                return
            await connection.send(http_response(200, _PAGES[path]).raw)


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


@contextmanager
def http_subject() -> Iterator[Subject]:
    """What a device reads of a server's answers."""
    with Saying() as server, mock.patch("os.urandom", return_value=bytes.fromhex(ID)):  # of which an id is made
        remote = OpenInference(server.url, model="m")

        def feed(data: bytes) -> object:
            server.said = data
            return remote.ask([SAMPLE], Deadline.after(60)).labels

        yield Subject(_seeds(), feed, (RemoteFailed,), 0.05)
        remote.close()
