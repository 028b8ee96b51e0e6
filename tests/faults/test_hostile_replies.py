"""R1, R2, S3: replies made to cost time or memory, to be taken for others, or to reach the operator's terminal."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hinge import Breaker, OpenInference
from hinge.errors import RemoteInvalid
from hinge.oip.tensors import TensorSpec
from hinge.remotes import Deadline
from hinge.remotes.calls import LOOP
from hinge.remotes.http import HttpClient, Request
from tests.faults.setting import always, each_kind
from tests.support.loopback import Connection, Http, Loopback, OipServer

LATE_S = 1.0  # over the deadline: far more than any machine needs, and less than what is waited for takes
SCORES = TensorSpec("scores", "FP32", (-1, 3))
SAMPLE = np.zeros(3, np.float32)


class Lying(OipServer):
    """Answers inferences with what `lie` makes of the honest response."""

    def __init__(self, lie: Callable[[Http], bytes], **options: Any) -> None:
        super().__init__(lambda _: {"scores": np.eye(3, dtype=np.float32)[:1]}, outputs=[SCORES], **options)
        self._lie = lie

    async def _serve(self, connection: Any) -> None:
        while (request := await connection.read()) is not None:
            response = self._respond(request)
            await connection.send(self._lie(response) if request.start.startswith("POST") else response.raw)


def padded(response: Http) -> bytes:
    """The same, with 8 MiB of numbers that nobody asked for."""
    extra = b',{"name":"more","shape":[1000000],"datatype":"FP64","data":[' + b"0.1234567," * 838_860 + b"0]}]}"
    body = response.body.removesuffix(b"]}") + extra
    return response._replace(body=body, headers={**response.headers, "content-length": str(len(body))}).raw


@each_kind
def test_a_reply_far_larger_than_the_answer_is_refused_unread_and_in_time(kind: Any) -> None:
    with Lying(padded) as server, always(kind, OpenInference(server.url, "remote"), deadline_s=0.2) as device:
        device.infer(SAMPLE)  # the metadata
        took, answers = list[float](), list[Any]()
        for _ in range(3):
            began = time.monotonic()
            answers.append(device.infer(SAMPLE))
            took.append(time.monotonic() - began)
        assert max(took) < 0.2 + LATE_S / 4
        assert {answer.source for answer in answers} == {"local"}
        answer = answers[-1]
        assert isinstance(answer.failure, RemoteInvalid)
        assert "longer than" in str(answer.fault)


@each_kind
@pytest.mark.parametrize("start", ["HTTP/1.1 500 \x1b]0;owned\x07\x1b[2J", "HTTP/1.1 \x1b[2J" + "x" * 60_000])
def test_a_status_line_reaches_nobody_raw_or_at_length(kind: Any, start: str, caplog: pytest.LogCaptureFixture) -> None:
    with Lying(lambda response: response._replace(start=start).raw) as server:
        breaker = Breaker(failures=2, interval_s=60)
        remote = OpenInference(server.url, "remote")
        with always(kind, remote, deadline_s=10, breaker=breaker) as device:
            answers = [device.infer(SAMPLE) for _ in range(6)]
            shown = [str(answer.as_dict()) + answer.reason + repr(answer) for answer in answers]
            shown += [str(device.status), *(record.message for record in caplog.records)]
    assert {answer.source for answer in answers} == {"local"}
    assert all(text.isprintable() for text in shown)
    assert max(len(str(answer.fault)) for answer in answers) < 400


@each_kind
@pytest.mark.parametrize("label", ["\x1b]0;owned\x07", "cat\n", "x" * 60_000, "\u202egnp.exe"], ids=range(4))
def test_a_label_that_is_no_plain_text_is_no_answer(kind: Any, label: str) -> None:
    with always(kind, lambda _: label, deadline_s=10) as device:
        answer = device.infer(1.0)
        assert answer.source == "local"
        assert str(answer.fault).isprintable()
        assert len(str(answer.fault)) < 400
        assert device.policy.learned == 0


@each_kind
def test_an_exception_of_a_remote_is_escaped_and_cut(kind: Any) -> None:
    def fails(_: Any) -> int:
        raise ValueError("\x1b[2J" + "x" * 60_000)

    with always(kind, fails, deadline_s=10) as device:
        fault = str(device.infer(1.0).fault)
        assert fault.startswith("ValueError: \\x1b[2Jx")
        assert len(fault) < 400


@contextmanager
def flooding(flood: bytes) -> Iterator[str]:
    """A server that describes a model, and then floods whoever asks it."""

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(2**16):
                    if not data.startswith(b"POST"):
                        path = data.split(b" ")[1].decode().rstrip("/")
                        connection.sendall(pages[path])
                        continue
                    while not over.is_set():
                        connection.sendall(flood)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with OipServer(lambda _: {"scores": np.eye(3, dtype=np.float32)[:1]}, outputs=[SCORES]) as honest:
        gets = {page: Http(f"GET {page} HTTP/1.1", {}, b"") for page in ("/v2", "/v2/models/remote")}
        pages = {page: honest._respond(request).raw for page, request in gets.items()}
    over, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))
    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(10)


@each_kind
@pytest.mark.parametrize("status", [100, 103])
def test_an_interim_response_is_not_the_final_one(kind: Any, status: int) -> None:
    interim = b"HTTP/1.1 %d -\r\nLink: </style>\r\n\r\n" % status
    lying = Lying(lambda response: interim + response.raw)
    with lying as server, always(kind, OpenInference(server.url, "remote"), deadline_s=10) as device:
        assert [device.infer(SAMPLE).source for _ in range(5)] == ["remote"] * 5


@each_kind
def test_a_body_in_endless_tiny_chunks_is_left_in_time(kind: Any) -> None:
    head = b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = flooding(head + b"1\r\n0\r\n" * 20_000)
    with chunks as url, always(kind, OpenInference(url, "remote"), deadline_s=0.3, batch=1) as device:
        device.infer(SAMPLE)
        began = time.monotonic()
        assert {answer.source for answer in device.infer_many([SAMPLE] * 8)} == {"local"}
        assert time.monotonic() - began < 0.3 + LATE_S


@each_kind
def test_an_answer_sent_in_advance_answers_nothing(kind: Any) -> None:
    """Each response is followed by another, with the label 2 and an id that a counter would have next."""
    number = [1]

    def twice(response: Http) -> bytes:
        number[0] += 1
        guess = response.body.replace(b"1.0,0.0,0.0", b"0.0,0.0,1.0")
        guess = re.sub(rb'"id":"[^"]*"', b'"id":"%d"' % number[0], guess)
        return response.raw + Http(response.start, {"content-length": str(len(guess))}, guess).raw

    with Lying(twice) as server, always(kind, OpenInference(server.url, "remote"), deadline_s=10) as device:
        answers = [device.infer(SAMPLE) for _ in range(40)]
    assert {(answer.label, answer.source) for answer in answers} == {(0, "remote")}


def test_ids_are_random() -> None:
    ids = set[str]()

    class Noting(OipServer):
        def _infer(self, request: Any) -> Any:
            ids.update(re.findall(r'"id":"([^"]*)"', request.body.decode("latin-1")))
            return super()._infer(request)

    with Noting(lambda _: {"scores": np.eye(3, dtype=np.float32)[:1]}, outputs=[SCORES]) as server:
        for _ in range(2):  # two devices
            remote = OpenInference(server.url, "remote")
            for _ in range(20):
                remote.ask([SAMPLE], Deadline.after(10, now=time.monotonic()))
            remote.close()
    assert len(ids) == 40
    assert all(len(id) >= 16 for id in ids)


# -- responses that never end, whatever they say about their length ----------------------------------------------------


LIMIT = 2**21
UNREAD = 2**23  # that may lie in the buffers of both ends


class Endless(Loopback):
    """Zeros follow what was said, for ever."""

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self._said, self.given = said, 0

    async def _serve(self, connection: Connection) -> None:
        await connection.read()
        await connection.send(self._said)
        while True:
            await connection.send(bytes(2**16))
            self.given += 2**16


@pytest.mark.parametrize(
    ("head", "most"),
    [
        (b"Content-Length: 100000000000", 0),  # it need not even be begun
        (b"Connection: close", LIMIT),
        (b"Transfer-Encoding: chunked\r\n\r\n-1", 0),
        (b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff", LIMIT),
        (b"Transfer-Encoding: chunked\r\n\r\n", 0),
        (b"Content-Length: -1", 0),
    ],
)
def test_r9_an_endless_response_is_left_at_the_limit(head: bytes, most: int) -> None:
    deadline = Deadline.after(60)
    with Endless(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n") as server:
        client = HttpClient(server.url, {})
        with pytest.raises(RemoteInvalid):
            LOOP.run(client.send, Request("GET", "/v2", limit=LIMIT), deadline, deadline=deadline)
        assert server.given <= most + UNREAD
        LOOP.run(client.close, deadline=deadline)
