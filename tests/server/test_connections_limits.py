"""S2: what a client can send, claim or withhold costs the server little, and is answered quickly."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

from hinge.oip.messages import build_request
from hinge.oip.tensors import MAX_BODY_BYTES
from hinge.server import Limits, Server, connections
from tests.server import models
from tests.server.clients import HOST, Reply, ask, connect, images, infer, read_reply, send_raw, wait_for
from tests.server.processes import memory_kib, serving

PATH = b"POST /v2/models/fashion-local/infer HTTP/1.1\r\nHost: localhost\r\n"
CAP_KIB = MAX_BODY_BYTES // 1024


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Server(["fashion-local"], log_level="error") as server:
        yield server.url


def posted(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    return PATH + f"Content-Length: {len(body)}\r\n{lines}\r\n".encode() + body


def claim(shape: list[int], datatype: str = "UINT8", **more: object) -> bytes:
    return json.dumps({"inputs": [{"name": "image", "shape": shape, "datatype": datatype, **more}]}).encode()


def huge_shape(chance: random.Random) -> bytes:
    return posted(claim([chance.choice([2**20, 2**40, 2**63, 2**200]), 28, 28], data=[1, 2, 3]))


def huge_binary_shape(chance: random.Random) -> bytes:
    body = claim([2 ** chance.randrange(10, 26), 28, 28], parameters={"binary_data_size": 4}) + bytes(4)
    return posted(body, f"Inference-Header-Content-Length: {len(body) - 4}")


def huge_binary_size(chance: random.Random) -> bytes:
    body = claim([1, 28, 28], parameters={"binary_data_size": 2 ** chance.randrange(20, 70)})
    return posted(body, f"Inference-Header-Content-Length: {len(body)}")


def deep_json(chance: random.Random) -> bytes:
    depth = chance.randrange(50, 50_000)
    return posted(b'{"inputs":' + b"[" * depth + b"]" * depth + b"}")


def deep_objects(chance: random.Random) -> bytes:
    depth = chance.randrange(50, 10_000)
    return posted(b'{"a":' * depth + b"1" + b"}" * depth)


def many_chunks(_: random.Random) -> bytes:
    return PATH + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 2**14


def lying_length(chance: random.Random) -> bytes:
    return PATH + b"Content-Length: %d\r\n\r\n{}" % chance.randrange(MAX_BODY_BYTES + 1, 2**62)


def endless_length(_: random.Random) -> bytes:
    return PATH + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n{}"


def two_lengths(_: random.Random) -> bytes:
    return PATH + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"


def length_and_chunks(_: random.Random) -> bytes:
    return PATH + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


def huge_chunk(_: random.Random) -> bytes:
    return PATH + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n"


def huge_header(chance: random.Random) -> bytes:
    return PATH + b"X: " + b"x" * chance.randrange(40_000, 200_000)


def many_headers(chance: random.Random) -> bytes:
    return PATH + b"X: y\r\n" * chance.randrange(101, 5000) + b"\r\n"


def compressed(_: random.Random) -> bytes:
    return posted(b"\x1f\x8b" + bytes(100), "Content-Encoding: gzip")


def many_inputs(chance: random.Random) -> bytes:
    one = {"name": "x", "shape": [1], "datatype": "UINT8", "data": [1]}
    return posted(json.dumps({"inputs": [one] * chance.randrange(65, 2000)}).encode())


def large_json(_: random.Random) -> bytes:
    return posted(b'{"inputs":[' + b"1," * 200_000 + b"1]}")


def long_number(chance: random.Random) -> bytes:
    return posted(b'{"id":' + b"9" * chance.randrange(5000, 50_000) + b"}")


def bad_json_length(chance: random.Random) -> bytes:
    length = chance.choice(["-1", "1e9", "99999999999", "3, 3", "²"])
    return PATH + f"Inference-Header-Content-Length: {length}\r\nContent-Length: 2\r\n\r\n{{}}".encode("latin-1")


BOMBS: tuple[Callable[[random.Random], bytes], ...] = (
    huge_shape, huge_binary_shape, huge_binary_size, deep_json, deep_objects, many_chunks, lying_length,
    endless_length, two_lengths, length_and_chunks, huge_header, many_headers, compressed, many_inputs,
    large_json, long_number, bad_json_length,
)  # fmt: skip  # several to a line


NO_HTTP = (endless_length, two_lengths)  # which uvicorn refuses by itself, with a text


@pytest.mark.parametrize("bomb", BOMBS)
def test_s2_a_bomb_is_refused(url: str, bomb: Callable[[random.Random], bytes]) -> None:
    reply = send_raw(url, bomb(random.Random(1)))
    assert 400 <= reply.status < 500
    if bomb in NO_HTTP:
        assert (reply.status, reply.body) == (400, b"Invalid HTTP request received.")
        wait_for(url, 'hinge_refused_total{reason="no HTTP"}')
    else:
        assert set(reply.json) == {"error"}
        assert reply.headers["x-request-id"]


def test_s2_a_thousand_bombs_leave_memory_within_one_cap() -> None:
    chance = random.Random(2026)
    with serving("fashion-local", "--log-level", "error") as (process, url):
        assert infer(url, "fashion-local", images()).status == 200
        before = memory_kib(process, "VmRSS")
        for number in range(1000):
            reply = send_raw(url, BOMBS[number % len(BOMBS)](chance))
            assert 400 <= reply.status < 500
        assert memory_kib(process, "VmHWM") - before < CAP_KIB
        assert infer(url, "fashion-local", images()).status == 200


def test_s2_a_body_over_the_cap_is_refused_while_it_is_sent(url: str) -> None:
    chunk = b"%x\r\n%s\r\n" % (2**20, bytes(2**20))
    pieces = [PATH + b"Transfer-Encoding: chunked\r\n\r\n", *([chunk] * 66), b"0\r\n\r\n"]
    assert send_raw(url, *pieces).status == 413


def test_s2_a_declared_length_over_the_cap_is_refused_before_it_is_sent(url: str) -> None:
    reply = send_raw(url, PATH + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
    assert (reply.status, reply.json) == (413, {"error": f"a body may have {MAX_BODY_BYTES} bytes"})


def test_s2_the_largest_body_is_received(url: str) -> None:
    reply = infer(url, "fashion-local", type(images())({}, bytes(MAX_BODY_BYTES)))
    assert reply.status == 400
    assert "JSON" in reply.json["error"]


def drip(connection: socket.socket, done: threading.Event) -> None:
    """Send bytes one by one, each in a packet of its own."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while not done.wait(0.001):
            connection.sendall(b" ")
    except OSError:
        pass


def dripped(url: str) -> Reply:
    done = threading.Event()
    with connect(url) as connection:
        connection.sendall(PATH + b"Content-Length: 1000000\r\n\r\n")
        thread = threading.Thread(target=drip, args=(connection, done))
        thread.start()
        try:
            return read_reply(connection)
        finally:
            done.set()
            thread.join()


def test_s2_a_body_in_tiny_pieces_is_refused(url: str) -> None:
    assert dripped(url).json == {"error": "the body comes in too many pieces that are too small"}


def test_s2_slow_requests_are_ended() -> None:
    with Server(["fashion-local"], limits=Limits(receive_s=0.2), log_level="error") as server:
        assert send_raw(server.url, PATH + b"Content-Length: 10\r\n\r\n{").status == 408  # the body stops
        assert send_raw(server.url, huge_chunk(random.Random(1))).status == 408  # a chunk does not end
        assert send_raw(server.url, PATH + b"Content-Le").status == 408  # the headers stop
        assert send_raw(server.url, b"").status == 408  # nothing comes
        assert infer(server.url, "fashion-local", images()).status == 200


@pytest.mark.parametrize("complete", [1, 2])
def test_s2_a_pipelined_request_that_stops_in_its_headers_is_ended(complete: int) -> None:
    live = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n"
    with (
        Server(["fashion-local"], limits=Limits(receive_s=0.2), log_level="error") as server,
        connect(server.url) as connection,
    ):
        connection.sendall((live + b"\r\n") * complete + live)
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
        assert [line[4:7] for line in answers.split(b"HTTP/")] == [b""] + [b"200"] * complete + [b"408"]


def test_s2_an_idle_connection_is_not_slow() -> None:
    live = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        Server(["fashion-local"], limits=Limits(receive_s=0.2), log_level="error") as server,
        connect(server.url) as connection,
    ):
        for pause_s in (3 * connections.SWEEP_S, 0):
            connection.sendall(live)
            assert read_reply(connection).status == 200
            time.sleep(pause_s)


def test_s2_requests_beyond_the_limit_are_told_to_come_back() -> None:
    limits = Limits(requests=1)
    with Server(["fashion-local"], limits=limits, log_level="error") as server, connect(server.url) as first:
        body = images().body
        first.sendall(posted(body)[:-1])
        wait_for(server.url, "hinge_in_flight_requests 1.0")
        reply = infer(server.url, "fashion-local", images())
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        first.sendall(body[-1:])
        assert read_reply(first).status == 200
        assert infer(server.url, "fashion-local", images()).status == 200


def test_s2_bytes_beyond_the_limit_are_told_to_come_back() -> None:
    with Server(["fashion-local"], limits=Limits(held_bytes=1000), log_level="error") as server:
        reply = infer(server.url, "fashion-local", images())
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        chunk = b"7d0\r\n" + bytes(2000) + b"\r\n0\r\n\r\n"
        assert send_raw(server.url, PATH + b"Transfer-Encoding: chunked\r\n\r\n" + chunk).status == 503
        assert infer(server.url, "fashion-local", images(binary=True)).status == 200


def test_s2_connections_beyond_the_limit_are_refused() -> None:
    limits = Limits(connections=2)
    with Server(["fashion-local"], limits=limits, log_level="error") as server, ExitStack() as stack:
        first = stack.enter_context(connect(server.url))
        first.sendall(posted(images().body)[:-1])
        wait_for(server.url, "hinge_in_flight_requests 1.0")
        end = time.monotonic() + 20
        while (reply := ask(server.url, "/v2")).status != 503:  # one whose request has not begun makes room
            assert time.monotonic() < end
            stack.enter_context(connect(server.url)).sendall(posted(images().body)[:-1])
            time.sleep(0.05)
        assert (reply.headers["retry-after"], reply.json) == ("1", {"error": "too many connections"})
        stack.close()
        while ask(server.url, "/v2").status != 200:  # until the server has noticed that they are gone
            assert time.monotonic() < end


def test_s2_an_idle_connection_makes_room_for_another() -> None:
    request = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    limits = Limits(connections=2)
    with (
        Server(["fashion-local"], limits=limits, log_level="error") as server,
        connect(server.url) as silent,
        connect(server.url) as idle,
    ):
        idle.sendall(request)
        assert read_reply(idle).status == 200
        assert ask(server.url, "/v2").status == 200
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b"", "the one that is idle longest"
        idle.sendall(request)
        assert read_reply(idle).status == 200


def test_s2_a_pipelined_request_does_not_take_the_answer_of_another(url: str) -> None:
    with connect(url) as connection:
        connection.sendall(posted(images().body) + b"garbage garbage\r\n\r\n")
        received = b""
        while more := connection.recv(65536):
            received += more
    assert received.startswith(b"HTTP/1.1 200")
    assert received.count(b"HTTP/1.1 ") <= 2


def test_s2_a_client_that_reads_no_answers_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STUCK_S", 0.1)
    words = build_request({"x": np.array(["x" * 2**10] * 2**15, object)}, binary=True)  # more than a socket holds
    head = "".join(f"{name}: {value}\r\n" for name, value in words.headers.items())
    head = f"POST /v2/models/echo/infer HTTP/1.1\r\n{HOST}Content-Length: {len(words.body)}\r\n{head}\r\n"
    with Server([models.echoing(tmp_path / "echo.onnx")], log_level="error") as server, connect(server.url) as client:
        client.sendall(head.encode() + words.body)
        wait_for(server.url, 'hinge_requests_total{code="200",model="echo"} 1.0')
        wait_for(server.url, "hinge_connections 1.0")  # that of the metrics themselves


def test_s2_many_rows_are_run_in_parts(url: str) -> None:
    rows = np.zeros((3000, 28, 28), np.uint8)
    assert infer(url, "fashion-local", images(rows, binary=True)).status == 200
