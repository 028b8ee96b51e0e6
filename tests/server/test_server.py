"""The command `serve`: what it says, how it refuses, and how it ends."""

import ctypes
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

from hinge.cli.app import run
from hinge.fashion import local_model
from hinge.server import Server
from hinge.server.models import parse_places
from tests.server import models
from tests.server.clients import HOST, ask, connect, images, infer, read_reply, wait_for
from tests.server.processes import WAIT_S, running, serving
from tests.support.chat_server import ChatStandIn

Captured = pytest.CaptureFixture[str]
TOKEN = "0123456789abcdef"
DRAIN_S = 9.0  # less than a server waits for requests in flight


def refusal(capsys: Captured, *arguments: str) -> str:
    """The one line with which the command fails, leaving standard output empty."""
    assert run(["serve", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("hinge: ")
    return captured.err.strip()


def ended(process: "subprocess.Popen[str]") -> int:
    return process.wait(timeout=WAIT_S)


def begin_request(connection: socket.socket) -> bytes:
    """Send all of a request but its last byte, which is returned."""
    body = images().body
    head = f"POST /v2/models/fashion-local/infer HTTP/1.1\r\n{HOST}Content-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body[:-1])
    return body[-1:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_finishes_what_is_under_way_and_ends_well(number: signal.Signals) -> None:
    with serving("fashion-local") as (process, url), connect(url) as connection:
        last = begin_request(connection)
        wait_for(url, "hinge_in_flight_requests 1.0")
        process.send_signal(number)
        wait_until_draining(url)
        assert ask(url, "/v2/health/live").status == 200
        assert infer(url, "fashion-local", images()).status == 503
        connection.sendall(last)
        assert read_reply(connection).status == 200
        assert ended(process) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's threads as files")
def test_signals_that_another_thread_receives_count_too() -> None:
    """As the kernel may choose, where the main thread has just been stopped and continued."""
    with serving("fashion-local") as (process, url), connect(url) as connection:
        begin_request(connection)
        wait_for(url, "hinge_in_flight_requests 1.0")
        signal_another_thread(process)
        wait_until_draining(url)
        signal_another_thread(process)
        assert process.wait(DRAIN_S) == 0


def signal_another_thread(process: "subprocess.Popen[str]") -> None:
    threads = {int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()}
    other = max(threads - {process.pid})
    assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGTERM) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_waiting_for_a_body(number: signal.Signals) -> None:
    with serving("fashion-local") as (process, url), connect(url) as connection:
        begin_request(connection)
        wait_for(url, "hinge_in_flight_requests 1.0")
        end_by_two(process, number, url)
        assert read_reply(connection).status == 503


@pytest.mark.parametrize("stream", [False, True], ids=["gated", "stream"])
def test_a_second_signal_ends_the_waiting_of_a_gateway(stream: bool) -> None:
    """For a local server that does not answer, and for a stream without end."""
    body = json.dumps({"messages": [{"role": "user", "content": "yes or no?"}], "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\n{HOST}Content-Type: application/json\r\n"
    with ChatStandIn() as local, ChatStandIn() as remote:
        local.go_on.clear()
        local.behaviour = "answer" if stream else "stall"
        settings = ["--local", local.base_url, "--remote", remote.base_url, "--task", "options:yes,no"]
        times = ["--otherwise", "local", "--deadline-s", "100"]
        with running("gateway", *settings, *times) as (process, url), connect(url) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert local.asked.wait(WAIT_S)
            end_by_two(process, signal.SIGTERM, url.removesuffix("/v1"))
        local.go_on.set()


def end_by_two(process: "subprocess.Popen[str]", number: signal.Signals, url: str) -> None:
    """Two signals, the second once the first is heeded."""
    process.send_signal(number)
    wait_until_draining(url)
    process.send_signal(number)
    assert process.wait(DRAIN_S) == 0


def wait_until_draining(url: str) -> None:
    end = time.monotonic() + WAIT_S
    while ask(url, "/v2/health/ready").status != 503:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_ends_well_in_the_middle_of_a_run() -> None:
    many = images(np.zeros((4_000, 28, 28), np.uint8), binary=True)  # seconds of work, and soon sent
    with serving("fashion") as (process, url), ThreadPoolExecutor() as pool:
        replies = [pool.submit(infer, url, "fashion", many) for _ in range(3)]
        wait_for(url, "hinge_in_flight_requests 3.0")
        end_by_two(process, signal.SIGTERM, url)
        assert {reply.result().status for reply in replies} == {503}


def test_a_server_with_nothing_in_flight_ends_within_a_second() -> None:
    """Whoever connects meanwhile; the least of three, as others may have the processor."""
    assert min(seconds_to_end() for _ in range(3)) < 1


def seconds_to_end() -> float:
    with serving("fashion-local", "--log-level", "error") as (process, url), ExitStack() as stack:
        over = threading.Event()

        def keep_connecting() -> None:
            with suppress(OSError):
                while not over.wait(0.002):
                    stack.enter_context(connect(url))

        thread = threading.Thread(target=keep_connecting)
        thread.start()
        time.sleep(0.1)
        start = time.monotonic()
        process.terminate()
        assert ended(process) == 0
        took = time.monotonic() - start
        over.set()
        thread.join()
    return took


def test_it_says_where_it_serves_what(tmp_path: Path) -> None:
    path, token = models.scaling(tmp_path / "m.onnx", 2.0), tmp_path / "token"
    token.write_text(TOKEN)
    with serving("fashion-local", str(path), f"n={path}", "--token-file", str(token)) as (_, url):
        assert url.startswith("http://127.0.0.1:")
        shown = {"Authorization": f"Bearer {TOKEN}"}
        for name in ("fashion-local", "m", "n"):
            assert ask(url, f"/v2/models/{name}", headers=shown).json["name"] == name
        assert ask(url, "/v2").status == 401


def test_a_port_in_use_is_one_line(capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refusal(capsys, "fashion-local", "--port", str(port)) == (
            f"hinge: 127.0.0.1:{port}: Address already in use"
        )


def test_models_that_cannot_be_served_are_one_line(capsys: Captured, tmp_path: Path) -> None:
    assert refusal(capsys, "missing.onnx") == "hinge: missing.onnx: there is no such file"
    assert refusal(capsys, "fashoin") == "hinge: there is no model 'fashoin'; did you mean 'fashion'?"
    assert refusal(capsys, f"a/b={local_model()}").endswith("there is no such file")
    assert "NAME=PATH" in refusal(capsys, f"a b={local_model()}")
    assert "different names, got 'fashion-local' twice" in refusal(capsys, "fashion-local", str(local_model()))
    (tmp_path / "m.onnx").write_bytes(b"no model")
    assert "the model cannot be run" in refusal(capsys, str(tmp_path / "m.onnx"))
    assert "ONNX models are served; a device runs this one itself" in refusal(capsys, str(tmp_path / "m.tflite"))
    constant = models.save(tmp_path / "c.onnx", [], [], [])
    assert refusal(capsys, str(constant))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--host", "0.0.0.0"], "lets others in"),
        (["--host", "no such host"], "--host must be an address"),
        (["--tls-cert", "a.pem"], "--tls-cert and --tls-key go together"),
        (["--client-ca", "a.pem"], "--client-ca needs"),
        (["--tls-cert", "a.pem", "--tls-key", "b.pem"], "a.pem: No such file"),
        (["--token-file", "missing"], "missing: No such file"),
        (["--port", "70000"], "--port must be <= 65535"),
        (["--max-batch", "0"], "--max-batch must be >= 1"),
        (["--threads", "-1"], "--threads must be >= 0"),
        (["--log-level", "loud"], "--log-level must be one of"),
    ],
)
def test_options_that_make_no_sense_are_one_line(capsys: Captured, arguments: list[str], problem: str) -> None:
    assert problem in refusal(capsys, "fashion-local", *arguments)


def test_names_come_from_where_they_should() -> None:
    places = parse_places(["fashion", "x=models/a.onnx", "models/b.onnx", Path("c.onnx")])
    assert [place.name for place in places] == ["fashion", "x", "b", "c"]
    assert [str(place.path) for place in places[1:]] == ["models/a.onnx", "models/b.onnx", "c.onnx"]
    with pytest.raises(ValueError, match="must be one model at least"):
        parse_places([])


# -- starting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreground", [False, True])
def test_an_error_at_the_start_is_raised_at_once_and_the_listener_is_closed(
    foreground: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(Server, "make_app", fail)
    server, start = Server(["fashion-local"]), time.monotonic()
    with pytest.raises(OSError, match="no more threads"):
        server.run() if foreground else server.start()
    assert time.monotonic() - start < 5
    with pytest.raises(ConnectionRefusedError):
        connect(server.url)
    monkeypatch.undo()
    with server:
        assert ask(server.url, "/v2/health/ready").status == 200


def test_a_server_that_runs_is_not_started_again() -> None:
    server = Server(["fashion-local"])
    for _ in range(2):
        with server:
            with pytest.raises(RuntimeError, match="runs already; close it"):
                server.start()
            assert ask(server.url, "/v2/health/ready").status == 200
