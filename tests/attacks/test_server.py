"""Attacks on the server from outside, each named for the promise that it must not break."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from onnx import TensorProto, helper

import hinge
from hinge.errors import InvalidMessage
from hinge.oip.messages import build_request, parse_request
from hinge.server import Limits, Server, Tls, connections
from hinge.server import models as served_models
from tests.server import models
from tests.server.clients import HOST, ask, connect, images, infer, send_raw
from tests.server.processes import WAIT_S, memory_kib, processor_s, serving

pytestmark = pytest.mark.server

MIB = 1024  # KiB
Record = Callable[[str, object], None]  # pytest's record_property: figures for docs/attacks.md
ONES = build_request({"x": np.ones((1, 3), np.float32)})


def health_s(url: str) -> float:
    """How long a health check takes."""
    start = time.monotonic()
    assert ask(url, "/v2/health/ready").status == 200
    return time.monotonic() - start


def metric(url: str, name: str) -> float:
    lines = ask(url, "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def wait_until(url: str, name: str, least: float) -> None:
    end = time.monotonic() + WAIT_S
    while metric(url, name) < least:
        assert time.monotonic() < end, f"{name} is below {least}"
        time.sleep(0.05)


# -- connections -------------------------------------------------------------------------------------------------------


def test_h1_a_client_that_pipelines_much_is_let_go() -> None:
    request = f"GET /v2/health/live HTTP/1.1\r\n{HOST}\r\n".encode()
    with Server(["fashion-local"], log_level="error") as server:
        for count, answered in ((10, 10), (300, 16)):
            with connect(server.url) as client:
                client.sendall(request * count)
                received = b""
                with suppress(ConnectionResetError):
                    while received.count(b"HTTP/1.1 200") < min(count, 20) and (more := client.recv(2**16)):
                        received += more
            found = received.count(b"HTTP/1.1 200")
            assert found == answered if count == answered else found <= answered
        assert ask(server.url, "/v2/health/live").status == 200


@pytest.mark.slow
def test_h1_pipelined_requests_take_neither_memory_nor_the_health_check(record_property: Record) -> None:
    """40 connections with 200 kB of requests each: it was 16 MiB for each of them, and a minute."""
    requests = f"GET /v2/health/live HTTP/1.1\r\n{HOST}\r\n".encode()
    requests *= 200_000 // len(requests)
    with serving("fashion-local", "--log-level", "error") as (process, url), ExitStack() as stack:
        ask(url, "/v2")
        before = memory_kib(process, "VmRSS")
        clients = [stack.enter_context(connect(url)) for _ in range(40)]
        for client in clients:
            client.setblocking(False)
            with suppress(BlockingIOError):  # the server need not take all of it
                client.send(requests)
        waited = max(health_s(url) for _ in range(5))
        grown = memory_kib(process, "VmHWM") - before
        record_property("MiB taken by 40 clients", grown // MIB)
        record_property("seconds for a health check", round(waited, 1))
        assert waited < 5
        assert grown < 40 * MIB


def test_h1_tiny_chunks_leave_turns_to_others() -> None:
    chunks = b"1\r\n[\r\n" * 5000
    head = f"POST /v2/models/fashion-local/infer HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n".encode()
    with Server(["fashion-local"], log_level="error") as server:
        reply = send_raw(server.url, head, *[chunks] * 20)
        assert (reply.status, reply.json) == (400, {"error": "the body comes in chunks that are too small"})


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder, openssl = tmp_path_factory.mktemp("certificate"), shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj"]
    command += ["/CN=server", "-days", "3650", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return Tls(cert, key)


def secure_get(url: str, tls: Tls) -> bytes:
    context = ssl.create_default_context(cafile=tls.cert)
    context.check_hostname = False
    with connect(url) as plain, context.wrap_socket(plain) as secure:
        secure.sendall(f"GET /v2/health/live HTTP/1.1\r\n{HOST}\r\n".encode())
        return secure.recv(100)


def test_m7_handshakes_that_never_begin_are_connections_and_make_room(tls: Tls) -> None:
    limits = Limits(connections=8)
    with Server(["fashion-local"], tls=tls, limits=limits, log_level="error") as server, ExitStack() as stack:
        stalled = [stack.enter_context(connect(server.url)) for _ in range(40)]
        assert secure_get(server.url, tls).startswith(b"HTTP/1.1 200")
        for client in stalled[:30]:  # closed long before a handshake's time is over
            client.settimeout(WAIT_S)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""


def test_m7_a_handshake_has_a_time_limit(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_S", 0.2)
    with Server(["fashion-local"], tls=tls, log_level="error") as server, connect(server.url) as stalled:
        stalled.settimeout(WAIT_S)
        with suppress(ConnectionResetError):
            assert stalled.recv(1) == b""
        assert secure_get(server.url, tls).startswith(b"HTTP/1.1 200")


@contextmanager
def few_descriptors(soft: int, hard: int) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A server whose process may open only so many files."""
    code = "import resource, sys; from hinge.cli.app import run; "
    code += f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", "fashion-local", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1].decode()
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


@pytest.mark.parametrize(("soft", "hard"), [(200, 4096), (200, 200)])
def test_m7_few_descriptors_lock_nobody_out(soft: int, hard: int, record_property: Record) -> None:
    """Idle clients beyond what the process may open: the soft limit is raised, or fewer are taken, and it is logged."""
    with few_descriptors(soft, hard) as (process, url), ExitStack() as stack:
        for _ in range(250):
            stack.enter_context(connect(url))
        try:
            health = ask(url, "/v2/health/ready").status
        except OSError as error:
            health = -(error.errno or 1)
        record_property("a health check amid 250 idle clients", health)
        assert health == 200
        assert infer(url, "fashion-local", images()).status == 200
        process.terminate()
        assert process.wait(timeout=WAIT_S) == 0
        assert process.stderr is not None
        events = [json.loads(line)["event"] for line in process.stderr.read().splitlines()]
        assert ("few descriptors" in events) == (hard == 200)
        assert ("idle connections closed to make room" in events) == (hard == 200)


def test_l1_idle_connections_lock_nobody_out() -> None:
    limits = Limits(connections=16)
    with Server(["fashion-local"], limits=limits, log_level="error") as server, ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(connect(server.url))
        assert infer(server.url, "fashion-local", images()).status == 200


def test_l1_slow_bodies_lock_nobody_out(record_property: Record) -> None:
    """Where the limit of requests is reached, the body that has been arriving longest makes room."""
    head = f"POST /v2/models/fashion-local/infer HTTP/1.1\r\n{HOST}Content-Length: 1000\r\n\r\n{{".encode()
    limits = Limits(requests=16)
    with Server(["fashion-local"], limits=limits, log_level="error") as server, ExitStack() as stack:
        slow = [stack.enter_context(connect(server.url)) for _ in range(16)]
        for client in slow:
            client.sendall(head)
        began = time.monotonic()
        while (status := infer(server.url, "fashion-local", images()).status) != 200:
            assert status == 503
            if time.monotonic() - began > 10:
                break
            time.sleep(0.1)
        record_property("seconds locked out", round(time.monotonic() - began, 1))
        assert status == 200
        slow[0].settimeout(WAIT_S)
        assert slow[0].recv(2**12).startswith(b"HTTP/1.1 503")
        assert [infer(server.url, "fashion-local", images()).status for _ in range(20)] == [200] * 20


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_m4_a_log_that_is_not_read_stops_nothing(record_property: Record) -> None:
    with serving("fashion-local", "--log-level", "info") as (process, url):  # nothing reads its standard error
        place = urlsplit(url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=10)
        answered = 0
        with suppress(TimeoutError):
            for _ in range(6000):
                connection.request("GET", "/" + "x" * 300)
                reply = connection.getresponse()
                answered += (reply.status, bool(reply.read())) == (404, True)
        connection.close()
        record_property("of 6000 requests answered", answered)
        assert answered == 6000
        assert infer(url, "fashion-local", images()).status == 200
        assert metric(url, "hinge_log_lines_dropped") > 0
        process.terminate()
        assert process.wait(timeout=WAIT_S) == 0


# -- models ------------------------------------------------------------------------------------------------------------


def greedy(path: Path, elements: int) -> Path:
    """A model of the signature of `models.scaling` that takes four bytes of memory for each of so many elements."""
    sides = [models.tensor(name, TensorProto.FLOAT, "batch", 3) for name in "xy"]
    size = helper.make_tensor("size", TensorProto.INT64, [1], [elements])
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], end=1),
        helper.make_node("Mul", ["rows", "size"], ["many"]),  # known only when it runs
        helper.make_node("ConstantOfShape", ["many"], ["zeros"]),
        helper.make_node("ReduceMax", ["zeros"], ["zero"], keepdims=0),
        helper.make_node("Add", ["x", "zero"], ["y"]),
    ]
    return models.save(path, nodes, sides[:1], sides[1:], initializer=[size])


def endless(path: Path) -> Path:
    """A model of that signature that runs for years: a loop of 2**50 additions of nothing."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["on"]), helper.make_node("Identity", ["before"], ["after"])],
        "body",
        [
            models.tensor("number", TensorProto.INT64),
            models.tensor("going", TensorProto.BOOL),
            models.tensor("before", TensorProto.FLOAT, "batch", 3),
        ],
        [models.tensor("on", TensorProto.BOOL), models.tensor("after", TensorProto.FLOAT, "batch", 3)],
    )
    sides = [models.tensor(name, TensorProto.FLOAT, "batch", 3) for name in "xy"]
    times = helper.make_tensor("times", TensorProto.INT64, [], [2**50])
    loop = helper.make_node("Loop", ["times", "", "x"], ["y"], body=body)
    return models.save(path, [loop], sides[:1], sides[1:], initializer=[times])


def put(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


@pytest.mark.slow
def test_m10_a_model_that_takes_gigabytes_replaces_nothing(tmp_path: Path, record_property: Record) -> None:
    path = models.scaling(tmp_path / "m.onnx", 2.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Server([path], watch_s=0.02, log_level="error") as server:
        put(path, greedy(tmp_path / "greedy", 2**29).read_bytes())
        end = time.monotonic() + WAIT_S
        tried = ("hinge_model_loads_total", "hinge_model_load_failures_total")
        while sum(metric(server.url, name) for name in tried) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        record_property("greedy models taken", int(metric(server.url, "hinge_model_loads_total")) - 1)
        wait_until(server.url, "hinge_model_load_failures_total", 1)
        assert infer(server.url, "m", ONES).json["outputs"][0]["data"] == [2.0] * 3
        put(path, greedy(tmp_path / "modest", 2**10).read_bytes())
        wait_until(server.url, "hinge_model_loads_total", 2)
        assert infer(server.url, "m", ONES).json["outputs"][0]["data"] == [1.0] * 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 * MIB


@pytest.mark.slow
def test_m10_a_model_that_never_ends_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(served_models, "TRIAL_S", 3.0)
    path = models.scaling(tmp_path / "m.onnx", 2.0)
    with Server([path], watch_s=0.02, log_level="error") as server:
        put(path, endless(tmp_path / "endless").read_bytes())
        wait_until(server.url, "hinge_model_load_failures_total", 1)
        assert infer(server.url, "m", ONES).json["outputs"][0]["data"] == [2.0] * 3
    assert "it was not loaded and run once in 3 s" in capsys.readouterr().err


def children(process: int) -> list[str]:
    return [child for path in Path(f"/proc/{process}/task").glob("*/children") for child in path.read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_m10_signals_end_a_server_that_tries_a_model(tmp_path: Path, number: signal.Signals) -> None:
    path = models.scaling(tmp_path / "m.onnx", 2.0)
    with serving(str(path), "--watch", "--log-level", "error") as (process, url):
        assert infer(url, "m", ONES).status == 200
        put(path, endless(tmp_path / "endless").read_bytes())
        end = time.monotonic() + WAIT_S
        while not (found := children(process.pid)):
            assert time.monotonic() < end, "no process tries it"
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(timeout=WAIT_S) == 0
        assert not any(Path(f"/proc/{child}").exists() for child in found)


# -- requests ----------------------------------------------------------------------------------------------------------


def test_l10_long_integers_are_refused_for_little_processor_time() -> None:
    """In 100 ms: reading them took 320."""
    data = b",".join([b"9" * 4000] * 4000)
    body = b'{"inputs":[{"name":"x","shape":[4000],"datatype":"UINT64","data":[%s]}]}' % data
    start = time.thread_time()
    with pytest.raises(InvalidMessage, match="more than 64 characters"):
        parse_request({}, body)
    assert time.thread_time() - start < 0.1


@pytest.mark.slow
def test_l10_costly_bodies_are_refused_for_little_processor_time(record_property: Record) -> None:
    """Each in 50 ms beyond what it takes to receive as many bytes that nobody reads. (All of it was 321 ms.)"""
    digits, texts = b",".join([b"9" * 4000] * 4000), b",".join([b'"a"'] * 10**6)
    bodies = [
        b'{"inputs":[{"name":"image","shape":[1,28,28],"datatype":"UINT8","data":[%s]}]}' % digits,
        b'{"inputs":[{"name":"image","shape":[1000000],"datatype":"BYTES","data":[%s]}]}' % texts,
    ]
    statuses = list[int]()
    with serving("fashion-local", "--log-level", "error") as (process, url):

        def attack(body: bytes) -> None:
            statuses.append(ask(url, "/v2/models/fashion-local/infer", "POST", body).status)

        def spent_s(body: bytes) -> float:
            before = processor_s(process)
            threads = [threading.Thread(target=attack, args=(body,)) for _ in range(12)]
            for thread in threads:
                thread.start()
            health_s(url)
            for thread in threads:
                thread.join()
            return processor_s(process) - before

        for body in bodies:
            # The least of three: who shares the processor's caches only adds to it.
            received, least = (min(spent_s(each) for _ in range(3)) for each in (b"x" * len(body), body))
            record_property("ms of processor for one", round(least / 12 * 1000))
            assert least - received < 12 * 0.05
    assert set(statuses) <= {400, 503}
    assert 400 in statuses


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_l15_another_site_cannot_have_a_browser_ask(kind: str) -> None:
    message = images()
    with Server(["fashion-local"], log_level="error") as server:
        headers = {"Origin": "https://evil.example", **({"Content-Type": kind} if kind else {})}
        assert ask(server.url, "/v2/models/fashion-local/infer", "POST", message.body, headers).status == 415
        allowed = {**headers, "Content-Type": "application/json"}  # for which a browser asks first, and is refused
        assert ask(server.url, "/v2/models/fashion-local/infer", "POST", message.body, allowed).status == 200
        assert ask(server.url, "/v2/models/fashion-local/infer", "OPTIONS", b"", allowed).status == 405
        assert ask(server.url, "/v2/models/fashion-local/infer", "POST", message.body).status == 200


@pytest.mark.parametrize("coding", ["gzip, chunked", "chunked, gzip", "gzip", "chunked, chunked", "xchunked"])
def test_l15_only_chunks_are_a_transfer_coding(coding: str) -> None:
    with Server(["fashion-local"], log_level="error") as server:
        head = f"POST /v2/models/fashion-local/infer HTTP/1.1\r\n{HOST}Transfer-Encoding: {coding}\r\n\r\n0\r\n\r\n"
        with connect(server.url) as connection:
            connection.sendall(head.encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_s4_nothing_is_unpickled() -> None:
    package = Path(hinge.__file__).parent
    loads = re.compile(r"^\s*(import pickle|from pickle import)|pickle\.loads?\(|allow_pickle=True", re.MULTILINE)
    assert [path for path in package.rglob("*.py") if loads.search(path.read_text("utf-8"))] == []


def test_s4_the_server_brings_no_package_that_it_does_not_use() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    server = [requirement.split(">=")[0] for requirement in project["optional-dependencies"]["server"]]
    assert "uvicorn" in server  # not uvicorn[standard], which has websockets, watchfiles, dotenv and PyYAML
    assert not {"websockets", "watchfiles", "python-dotenv", "pyyaml"} & set(server)
