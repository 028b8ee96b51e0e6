"""Clients that hang up, or ask for much, do not keep the others waiting."""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from hinge.oip.messages import Message, parse_request
from hinge.server import Server
from tests.server.clients import ask, connect, images, infer, read_reply, send_raw, wait_for

ROWS = 20_000  # many seconds of work
SOON_S = 5.0


@pytest.fixture
def url() -> Iterator[str]:
    with Server(["fashion"], workers=1, threads=1, drain_s=0, log_level="error") as server:
        yield server.url


LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v2/models/fashion/infer HTTP/1.1\r\n"
CHUNKED = POST + b"Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


def request(message: Message) -> bytes:
    headers = {"Host": "localhost", "Content-Length": str(len(message.body)), **message.headers}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return POST + f"{''.join(lines)}\r\n".encode() + message.body


def send(connection: socket.socket, message: Message) -> None:
    connection.sendall(request(message))


def many() -> Message:
    return images(np.zeros((ROWS, 28, 28), np.uint8), binary=True)


def rows_run(url: str) -> float:
    page = ask(url, "/metrics").body.decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("hinge_batch_rows_sum"))


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_hangs_up_leaves_nothing_to_do(url: str, reset: bool) -> None:
    connections = [connect(url) for _ in range(2)]
    for connection in connections:
        send(connection, many())
    wait_for(url, "hinge_in_flight_requests 2.0")
    for connection in connections:
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    start = time.monotonic()
    wait_for(url, "hinge_in_flight_requests 0.0")
    assert infer(url, "fashion", images()).status == 200
    assert time.monotonic() - start < SOON_S
    done = rows_run(url)
    time.sleep(0.3)
    assert rows_run(url) == done < ROWS
    assert 'hinge_requests_total{code="499",model="fashion"} 2.0' in ask(url, "/metrics").body.decode()


def test_a_small_request_waits_for_a_slice_of_the_large_ones(url: str) -> None:
    with connect(url) as one, connect(url) as other:
        for connection in (one, other):
            send(connection, many())
        wait_for(url, "hinge_in_flight_requests 2.0")
        start = time.monotonic()
        assert infer(url, "fashion", images()).status == 200
        assert time.monotonic() - start < SOON_S
        assert rows_run(url) < ROWS


def test_a_client_that_asks_again_on_the_same_connection_is_answered_in_order(url: str) -> None:
    with connect(url) as connection:
        for id in ("first", "second", "third"):
            send(connection, images(np.zeros((100, 28, 28), np.uint8), id=id))
        assert [read_reply(connection).json["id"] for _ in range(3)] == ["first", "second", "third"]


@pytest.mark.parametrize(("held", "between"), [(b"\r\n\r\n", b""), (b"\nupgrade:XXXXX", LIVE)])
@pytest.mark.parametrize("first", [0, 200, 500])
def test_pipelined_requests_are_answered_in_order_whatever_is_in_them(
    url: str, held: bytes, between: bytes, first: int
) -> None:
    image = np.frombuffer(held * (784 // len(held)), np.uint8).reshape(1, 28, 28)
    ids = [f"n{number:02}" for number in range(7 if between else 12)]
    stream = between.join([request(images(image, binary=True, id=id)) for id in ids])
    with connect(url) as connection:
        connection.sendall(stream[:first])
        time.sleep(0.01)
        connection.sendall(stream[first:])
        received = b""
        while received.count(b'"id"') < len(ids):
            more = connection.recv(65536)
            assert more, received
            received += more
    assert re.findall(r'"id":"(n[0-9]+)"', received.decode("latin-1")) == ids


def test_trailers_without_end_are_refused(url: str) -> None:
    with connect(url) as connection:
        connection.sendall(CHUNKED)
        wait_for(url, "hinge_in_flight_requests 1.0")
        connection.sendall(b"0\r\n" + b"X: y\r\n" * 20_000)
        reply = read_reply(connection)
    assert reply.status == 400


def test_a_chunk_that_cannot_be_parsed_is_refused(url: str) -> None:
    assert send_raw(url, CHUNKED, b"no size\r\n").status == 400


@pytest.mark.parametrize("headers", [b"", b"Host: localhost\r\n" * 2, b"Host: h\r\nTransfer-Encoding: gzip\r\n"])
def test_headers_that_others_may_read_in_another_way_are_refused(url: str, headers: bytes) -> None:
    assert send_raw(url, POST + headers + b"\r\n").status == 400


TRAILERS = CHUNKED + b"0\r\nOrigin: there\r\nZ: z\r\n\r\n"
UPGRADE = POST + b"Host: localhost\r\nConnection: Upgrade\r\nUPGRADE: h2c\r\nContent-Length: %d\r\n\r\n" % len(LIVE)


def problems(connection: socket.socket, count: int) -> list[str]:
    """What is wrong with so many requests, as the answers say."""
    received = b""
    while received.count(b"HTTP/1.1") < count or not received.endswith(b"}"):
        more = connection.recv(65536)
        assert more, received
        received += more
    return re.findall(r'{"(?:error":"(.*?)"|live)', received.decode())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "wanted"),
    [
        (LIVE + TRAILERS + LIVE, ["", "JSON: Object missing required field `inputs`", ""]),
        (LIVE + UPGRADE + LIVE + LIVE, ["", "JSON: malformed: invalid character (byte 0)", ""]),
    ],
)
def test_requests_are_the_same_wherever_they_are_split(url: str, stream: bytes, wanted: list[str]) -> None:
    """llhttp takes trailers for headers, and the body of a request to upgrade for another request."""
    for at in range(len(stream)):
        with connect(url) as connection:
            connection.sendall(stream[:at])
            time.sleep(0.002)
            connection.sendall(stream[at:])
            assert problems(connection, len(wanted)) == wanted, at


def test_a_client_may_ask_to_upgrade(url: str) -> None:
    """As Java's does in each request."""
    sent = request(images()).replace(b"\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n", 1)
    assert send_raw(url, sent).status == 200


def test_nothing_that_follows_a_close_is_done(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    with connect(url) as connection:
        connection.sendall(LIVE[:-2] + b"Connection: close\r\n\r\n" + LIVE + request(images()))
        assert read_reply(connection).status == 200
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert rows_run(url) == 0
    assert capfd.readouterr().err == ""


def test_what_a_refused_client_still_sends_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.server.connections.LINGER_S", 10.0)
    body = bytes(2**25)
    with connect(url) as connection:
        head = f"POST /v2/models/other/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert read_reply(connection).status == 404


def test_a_large_body_is_followed_by_another_request(url: str) -> None:
    with connect(url) as connection:
        for count in (300, 2, 300):
            send(connection, images(np.zeros((count, 28, 28), np.uint8), binary=True))
            assert read_reply(connection).status == 200


def long_json(length: int | None) -> tuple[bytes, dict[str, str]]:
    """Much JSON, with or without the header that says how much of the body it is."""
    tensor = {"name": "image", "shape": [500, 28, 28], "datatype": "UINT8", "data": [0] * 392_000}
    body = json.dumps({"inputs": [tensor]})
    return body.encode(), {} if length is None else {"Inference-Header-Content-Length": str(len(body) + length)}


@pytest.mark.parametrize("length", [None, 0, -1, 1])
def test_much_json_is_read_beside_the_loop_whatever_its_header_says(
    url: str, length: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[str] = []

    def reading(*arguments: Any, **options: Any) -> Any:
        readers.append(threading.current_thread().name)
        return parse_request(*arguments, **options)

    monkeypatch.setattr("hinge.oip.messages.parse_request", reading)
    body, headers = long_json(length)
    status = ask(url, "/v2/models/fashion/infer", "POST", body, headers).status
    assert status == (200 if length in (None, 0) else 400)
    assert readers != ["hinge-server"], "the thread of the event loop"


def test_binary_data_with_little_json_is_read_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a thread costs more than this takes")

    monkeypatch.setattr(asyncio, "to_thread", refuse)
    assert infer(url, "fashion", images(np.zeros((60, 28, 28), np.uint8), binary=True)).status == 200
