"""A real server of the Open Inference Protocol on 127.0.0.1, small and fast, in a thread of its own.

    with OipServer(answer=lambda inputs: {"scores": inputs["sample"]}) as server:
        …  # server.url, server.inferences

Here is also what it shares with the proxy of `tests/support/chaos.py`: HTTP/1.1 as far as both need it, and listening.
"""

import asyncio
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from hinge.errors import InvalidMessage
from hinge.oip.messages import (
    InferenceRequest,
    Message,
    ModelMetadata,
    ServerMetadata,
    build_model_metadata,
    build_response,
    build_server_metadata,
    inference_path,
    json_message,
    parse_request,
)
from hinge.oip.tensors import Tensor, TensorSpec

Model: TypeAlias = Callable[[dict[str, Tensor]], dict[str, Tensor]]
Result = TypeVar("Result")
Listening = TypeVar("Listening", bound="Loopback")

WAIT_S = 10.0  # nothing here takes as long; whatever does is broken
_AT_ONCE = 2**18  # bytes read together
_END = b"\r\n\r\n"


class Http(NamedTuple):
    """A request or a response."""

    start: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def raw(self) -> bytes:
        """What goes over the wire, also where the headers do not fit the body."""
        lines = [self.start, *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\r\n".join(lines).encode("latin-1") + _END + self.body

    @property
    def last(self) -> bool:
        """Whether the connection is to be closed after this."""
        return self.headers.get("connection", "").lower() == "close"


def http_response(status: int, message: Message) -> Http:
    """The message as a response."""
    headers = {name.lower(): value for name, value in message.headers.items()}
    return Http(f"HTTP/1.1 {status} -", headers | {"content-length": str(len(message.body))}, message.body)


class Connection:
    """One end of a TCP connection, for one task of an event loop."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = end
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()

    async def read(self) -> Http | None:
        """The next message; None if the other end hangs up before it is whole."""
        while (end := self._buffer.find(_END)) < 0:
            if not await self._more():
                return None
        start, headers = _parse_head(self._buffer[:end].decode("latin-1"))
        begin = end + len(_END)
        end = begin + int(headers.get("content-length", 0))
        while len(self._buffer) < end:
            if not await self._more():
                return None
        body = bytes(self._buffer[begin:end])
        del self._buffer[:end]
        return Http(start, headers, body)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def drain(self) -> None:
        """Read until the other end hangs up."""
        while await self._more():
            self._buffer.clear()

    def close(self) -> None:
        self.socket.close()

    @property
    def closed(self) -> bool:
        return self.socket.fileno() < 0

    async def _more(self) -> int:
        data = await self._loop.sock_recv(self.socket, _AT_ONCE)
        self._buffer += data
        return len(data)


def _parse_head(head: str) -> tuple[str, dict[str, str]]:
    start, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if "transfer-encoding" in headers:
        raise ValueError("loopback: bodies in chunks are not supported")
    return start, headers


class Loopback(ABC):
    """Listens on a port of 127.0.0.1 from an event loop in a thread of its own; leaving the block ends all of it."""

    def __init__(self) -> None:
        self.url = ""
        self.address = ("127.0.0.1", 0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: socket.socket | None = None
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self.accepted = 0  # connections so far
        self._problems: list[BaseException] = []

    @abstractmethod
    async def _serve(self, connection: Connection) -> None:
        """Serve one connection; it is closed afterwards."""

    def __enter__(self: Listening) -> Listening:
        self._reserved = _bound(("127.0.0.1", 0))  # so that the port is nobody else's while we do not listen
        self.address = self._reserved.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(self).__name__, daemon=True)
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._loop is not None
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()  # raises if the thread still runs
        self._reserved.close()
        self._loop = None
        if self._problems and kind is None:
            raise self._problems[0]

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        return len(self._connections)

    def hang_up(self) -> None:
        """Close all connections, and go on listening."""
        self._call(self._hang_up())

    async def _hang_up(self) -> None:
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _open(self) -> None:
        if self._listener is None:
            self._listener = _bound(self.address)
            self._listener.setblocking(False)
            self._listener.listen(128)
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def _shut(self) -> None:
        """Listen no more, and close what is open."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._hang_up()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # whoever it was has gone
            connection = Connection(listener.accept()[0])
            self.accepted += 1
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._connections[task] = connection
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()  # not in the task, which does nothing if it is cancelled too soon
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, OSError):  # hanging up is anyone's right
            self._problems.append(problem)


def _bound(address: tuple[str, int]) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(address)
    return bound


class OipServer(Loopback):
    """Serves a function of named tensors as a model.

    `inputs` may be empty: then any are taken. Without `binary` a request that has or wants binary data gets 422.
    """

    def __init__(
        self,
        answer: Model,
        *,
        inputs: Sequence[TensorSpec] = (TensorSpec("sample", "FP32", (-1, -1)),),
        outputs: Sequence[TensorSpec] = (TensorSpec("scores", "FP32", (-1, -1)),),
        model: str = "remote",
        binary: bool = False,
    ) -> None:
        super().__init__()
        self.answer = answer
        self.binary = binary
        self.inferences = 0  # requests for one that came, whatever became of them
        self._model = model
        self._inputs = tuple(inputs)
        self._pages = {
            "/v2": build_server_metadata(ServerMetadata("loopback", "1", ("binary_tensor_data",) if binary else ())),
            "/v2/health/live": json_message({"live": True}),
            "/v2/health/ready": json_message({"ready": True}),
            f"/v2/models/{model}": build_model_metadata(ModelMetadata(model, "", self._inputs, tuple(outputs))),
            f"/v2/models/{model}/ready": json_message({"name": model, "ready": True}),
        }

    @staticmethod
    def of_labels(labels: Sequence[int], classes: int, *, model: str = "remote", binary: bool = False) -> "OipServer":
        """Serves recorded labels: a sample is its place in the recording, its scores are 1 for the label and else 0."""
        one_hot = np.eye(classes, dtype=np.float32)[np.asarray(labels)]
        return OipServer(
            lambda inputs: {"scores": one_hot[inputs["sample"][:, 0]]},
            inputs=[TensorSpec("sample", "INT64", (-1, 1))],
            outputs=[TensorSpec("scores", "FP32", (-1, classes))],
            model=model,
            binary=binary,
        )

    async def _serve(self, connection: Connection) -> None:
        while (request := await connection.read()) is not None:
            await connection.send(self._respond(request).raw)
            if request.last:
                return

    def _respond(self, request: Http) -> Http:
        method, path, _ = request.start.split(" ")
        if (method, path) == ("POST", inference_path(self._model)):
            return self._infer(request)
        if method == "GET" and path.rstrip("/") in self._pages:
            return http_response(200, self._pages[path.rstrip("/")])
        return http_response(404, json_message({"error": "no such page"}))

    def _infer(self, request: Http) -> Http:
        self.inferences += 1
        try:
            asked = parse_request(request.headers, request.body, expected=self._inputs)
        except InvalidMessage as error:
            return http_response(400, json_message({"error": str(error)}))
        if not self.binary and ("inference-header-content-length" in request.headers or _wants_binary(asked)):
            return http_response(422, json_message({"error": "binary data is not supported"}))
        try:
            return http_response(200, build_response(asked, self.answer(dict(asked.inputs)), model=self._model))
        except Exception as error:  # as servers do
            return http_response(500, json_message({"error": f"{type(error).__name__}: {error}"}))


def _wants_binary(request: InferenceRequest) -> bool:
    return request.binary or any(request.outputs.values())
