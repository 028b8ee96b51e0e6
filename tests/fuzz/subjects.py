"""What is fuzzed: parsers with examples of what they read, and the errors that they may raise."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from hinge import Gate, OnnxModel, OpenVINOModel
from hinge.cli.app import run
from hinge.device.store import parse
from hinge.errors import HingeError, InvalidMessage, InvalidModel, InvalidState, InvalidTrace, RemoteFailed
from hinge.gate import restore
from hinge.oip import messages as oip
from hinge.oip.tensors import TensorSpec, from_bytes, from_json, to_bytes
from hinge.remotes import Deadline
from hinge.remotes.open_inference import OpenInference
from hinge.traces import Trace, read_stream, write_trace
from tests.device.streams import GATES, play
from tests.models.test_models import dense_onnx
from tests.oip.test_messages import NUMPY
from tests.server.models import scaling
from tests.support.loopback import Connection, Loopback, http_response

Errors = tuple[type[Exception], ...]
LENGTH = "Inference-Header-Content-Length"


class Unfit(Exception):
    """The input does not get as far as the parser, and does not count."""


class Subject(NamedTuple):
    """A parser; `share` of all inputs go to it. What it has read, or None where it refuses without an error."""

    seeds: list[bytes]
    feed: Callable[[bytes], object]
    errors: Errors
    share: float


def _json(data: bytes) -> Any:
    """For parsers of what was JSON before they see it."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unfit from error


# -- messages: a first line holds the length of the JSON part, where there is one -------------------------------------


def _packed(message: oip.Message) -> bytes:
    return message.headers.get(LENGTH, "").encode() + b"\n" + message.body


def _unpacked(data: bytes) -> tuple[dict[str, str], bytes]:
    length, _, body = data.partition(b"\n")
    return ({LENGTH: length.decode("latin-1")} if length else {}), body


def _tensors() -> list[dict[str, Any]]:
    many: dict[str, Any] = {f"t{n}": np.arange(6).reshape(2, 3).astype(t) for n, t in enumerate(NUMPY.values())}
    many["text"] = np.array([b"ab", b"", b'\\"['], object)
    return [many, {"x": many["t10"]}, {"text": many["text"]}, {"x": many["t0"], "y": many["t3"]}]


def request_subject() -> Subject:
    seeds = [
        _packed(oip.build_request(few, id="42", outputs=["x"] if "x" in few else [], binary=binary))
        for few in _tensors()
        for binary in (False, True)
    ]

    def feed(data: bytes) -> object:
        request = oip.parse_request(*_unpacked(data))
        again = oip.build_request(request.inputs, id=request.id, outputs=request.outputs, binary=True)
        copy = oip.parse_request(again.headers, again.body)
        for name, tensor in request.inputs.items():
            np.testing.assert_array_equal(copy.inputs[name], tensor, strict=True)
        return request

    return Subject(seeds, feed, (InvalidMessage,), 0.25)


def response_subject() -> Subject:
    seeds = [
        _packed(oip.build_response(oip.InferenceRequest({}, id="42", binary=binary), few, model="m", version="1"))
        for few in _tensors()
        for binary in (False, True)
    ]
    return Subject(seeds, lambda data: oip.parse_response(*_unpacked(data), id="42"), (InvalidMessage,), 0.25)


def metadata_subject() -> Subject:
    spec = TensorSpec("x", "FP32", (-1, 3))
    model = oip.ModelMetadata("m", "onnx", (spec,), (spec,), ("1",))
    server = oip.ServerMetadata("triton", "2.5", ("binary_tensor_data",))
    seeds = [oip.build_model_metadata(model).body, oip.build_server_metadata(server).body]

    def feed(data: bytes) -> object:
        return oip.parse_model_metadata(data) if b"inputs" in data else oip.parse_server_metadata(data)

    return Subject(seeds, feed, (InvalidMessage,), 0.08)


def tensor_subject() -> Subject:
    """A tensor's data: the first byte chooses its type, the next three its shape."""
    types = list(NUMPY)
    arrays = [np.arange(6).reshape(1, 2, 3).astype(numpy) for numpy in NUMPY.values()]
    strings = np.array([b"ab", b"", b"cd"], object).reshape(1, 3, 1)
    seeds = [bytes([number, 1, 2, 3]) + to_bytes("t", array) for number, array in enumerate(arrays)]
    seeds += [bytes([200, 1, 3, 1]) + to_bytes("t", strings)]
    seeds += [bytes([number, 1, 2, 3]) + b"[0,1,1,0,1,1]" for number in range(len(types))]
    seeds += [bytes([3, 1, 2, 3]) + b"[[[0,1,1],[0,1,1]]]", bytes([200, 1, 2, 1]) + b'["a","b"]']

    def feed(data: bytes) -> object:
        head = data[:4].ljust(4, b"\0")
        datatype = "BYTES" if head[0] >= 200 else types[head[0] % len(types)]
        if data[4:5] == b"[":
            return from_json("t", data[4:], datatype, tuple(head[1:]))
        return from_bytes("t", memoryview(data[4:]), datatype, tuple(head[1:]))

    return Subject(seeds, feed, (InvalidMessage,), 0.13)


# -- what a device keeps ----------------------------------------------------------------------------------------------


def _gates() -> list[Gate]:
    """Gates that have learned, and whose bins have been formed anew if they fit themselves."""
    gates = [make() for make in GATES.values()]
    for gate in gates:
        list(play(gate, 200))
    return gates


def row_subject() -> Subject:
    """The row of a database whose CRC is right, whatever it holds, as a device goes on from it."""
    seeds = [json.dumps({"local": None, "gate": gate.state()}).encode() for gate in _gates()]
    return Subject(seeds, lambda data: Gate.restore(parse(Path("folder"), data).gate), (InvalidState,), 0.12)


def state_subject() -> Subject:
    """A state, as it is merged or restored: of a gate, or of a policy alone."""
    gates = _gates()
    seeds = [json.dumps(state).encode() for gate in gates for state in (gate.state(), gate.policy.state())]

    def feed(data: bytes) -> object:
        return restore(_json(data)).state()

    return Subject(seeds, feed, (HingeError,), 0.14)


# -- models -----------------------------------------------------------------------------------------------------------


def _loaded(model: Callable[[Path], object], share: float) -> Subject:
    """Small models, through a file. LiteRT's reader is left out: damaged files crash it, as docs/device.md says."""
    path = Path(mkdtemp(), "m.onnx")
    seeds = [scaling(path, 2.0).read_bytes(), dense_onnx(path, -1).read_bytes()]

    def feed(data: bytes) -> object:
        path.write_bytes(data)
        return model(path)

    return Subject(seeds, feed, (InvalidModel,), share)


def onnx_subject() -> Subject:
    return _loaded(OnnxModel, 0.1)


def openvino_subject() -> Subject:
    return _loaded(OpenVINOModel, 0.0005)


# -- files: traces and settings ---------------------------------------------------------------------------------------


def _trace_subject(suffix: str) -> Subject:
    path, seeds = Path(mkdtemp(), f"log{suffix}"), []
    columns: dict[str, Any] = {"confidence": [0.5, 0.25, 1.0], "local": [1, 2, 3], "remote": [1, 2, 4]}
    more = {"local": ["a", "b", "c"], "remote": ["a", "b", "é"], "label": ["a", "b", "b"], "cost": [0, 0.5, 1]}
    for each in (columns, {**columns, **more}):
        write_trace(Trace(**each, name="log", about={"date": "2026-01-31"}), path)
        seeds.append(path.read_bytes())
    if suffix == ".npz":
        np.savez(path, local_logits=np.eye(3), remote_logits=np.eye(3), labels=np.arange(3))
        seeds.append(path.read_bytes())
    return Subject(seeds, lambda data: read_stream(f"log{suffix}", BytesIO(data)), (InvalidTrace,), 0.02)


def csv_subject() -> Subject:
    return _trace_subject(".csv")


def jsonl_subject() -> Subject:
    answer = {"confidence": 0.5, "local": "a", "remote": "b", "cost": 0.5, "time": 3, "audit": True, "truth": "a"}
    rows = [answer, {**answer, "remote": None, "time": 2}, {"summary": {}}]
    scores = [{"local": [0.1, 0.9], "remote": [3.0, 1.0]}, {"local": [0.5, 0.5], "remote": None}]
    seeds = ["\n".join(map(json.dumps, each)).encode() for each in (rows, rows[:1], scores)]
    return Subject(seeds, lambda data: read_stream("log.jsonl", BytesIO(data)), (InvalidTrace,), 0.02)


def npz_subject() -> Subject:
    return _trace_subject(".npz")


def parquet_subject() -> Subject:
    return _trace_subject(".parquet")


class _Refused(Exception):
    """The command line ends with its one line of error."""


def toml_subject() -> Subject:
    """A file of settings, as `hinge serve` reads it; the server is not started."""
    path = Path(mkdtemp(), "hinge.toml")
    seeds = [b'[serve]\nmodels = ["fashion-local"]\nport = 8080\nlog_level = "info"\n']

    def feed(data: bytes) -> object:
        path.write_bytes(data)
        errors = StringIO()
        with mock.patch("hinge.server.Server"), redirect_stdout(StringIO()), redirect_stderr(errors):
            code = run(["serve", "--config", str(path)])
        if code == 2 and errors.getvalue().count("\n") == 1:
            raise _Refused(errors.getvalue())
        assert code == 0, errors.getvalue()
        return True

    return Subject(seeds, feed, (_Refused,), 0.0045)


# -- HTTP, as a device reads it: raw bytes from a server that answers every inference with them ------------------------


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
