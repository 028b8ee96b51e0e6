"""Clients that hang up, or ask for much, do not keep the others waiting."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hinge.oip.messages import Message, parse_request
from hinge.server import Server
from tests.server.clients import ask, connect, images, infer, read_reply, wait_for

ROWS = 20_000  # many seconds of work
SOON_S = 5.0


@pytest.fixture
def url() -> Iterator[str]:
    with Server(["fashion"], workers=1, threads=1, drain_s=0, log_level="error") as server:
        yield server.url


def send(connection: socket.socket, message: Message, path: str = "/v2/models/fashion/infer") -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in message.headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(message.body)}\r\n{lines}\r\n"
    connection.sendall(head.encode() + message.body)


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
