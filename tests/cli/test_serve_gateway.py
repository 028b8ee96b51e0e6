"""The command `gateway`: what it refuses, and a gateway in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hinge.server import Server, Tls
from tests.support.certificates import self_signed
from tests.support.chat_server import ChatStandIn, dead_url
from tests.support.commands import Captured, refusal

SERVERS = ["--local", "http://127.0.0.1:1/v1", "--remote", "http://127.0.0.1:2/v1"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (SERVERS[:2], "--remote must be given"),
        (["--local", "here", "--remote", "http://there/v1"], "--local: url must start with http:// or https://"),
        ([*SERVERS, "--task", "options:yes"], "must name two options or more"),
        ([*SERVERS, "--task", "labels"], "--task labels: must be 'number', 'json', 'text' or 'options:A,B,C'"),
        ([*SERVERS, "--deadline-s", "0"], "--deadline-s must be > 0"),
        ([*SERVERS, "--offload-cost", "2"], "--offload-cost must be from 0 to 1"),
        ([*SERVERS[:2], "--remote", "grpc://me:secret@edge:8001"], "url must start with http:// or https://"),
        ([*SERVERS, "--host", "0.0.0.0", "--port", "0"], "--host must be local, as 0.0.0.0 lets others in"),
        ([*SERVERS[:2], "--remote", "https://there/v1", "--ca", "ca.pem"], "ca.pem"),
        ([*SERVERS, "--protocol", "oip", "--task", "text"], "--task, --confidence and --otherwise are for chats"),
        ([*SERVERS, "--protocol", "oip", "--remote-model", "m"], "--local-model and --remote-model must name"),
        (["--protocol", "oip", "--local", "none.onnx", *SERVERS[2:], "--remote-model", "m"], "none.onnx"),
        (["--protocol", "oip", "--local", "small.onnx", *SERVERS[2:]], "--remote-model must name the model on"),
    ],
)
def test_what_cannot_work_is_refused(options: list[str], problem: str, capsys: Captured) -> None:
    assert problem in refusal(capsys, "gateway", *options)


@pytest.mark.server
def test_a_gateway_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the-key\n")
    with ChatStandIn("42") as local, dead_url() as remote:
        servers = ["--local", local.base_url, "--remote", remote, "--local-key-file", str(tmp_path / "key")]
        gate = ["--task", "number", "--local-model", "small", "--budget", "0.5", "--state", str(tmp_path / "state")]
        command = [sys.executable, "-m", "hinge", "gateway", *servers, *gate, "--port", "0"]
        environment = {**os.environ, "HINGE_REMOTE_KEY": "another"}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **pipes, env=environment, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            base_url = process.stdout.readline().split()[-1]
            body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "6 times 7?"}]}).encode()
            asked = Request(f"{base_url}/chat/completions", body, {"content-type": "application/json"})
            for _ in range(20):  # until the breaker opens
                with urlopen(asked, timeout=30) as response:
                    assert json.loads(response.read())["choices"][0]["message"]["content"] == "42"
                    assert response.headers["hinge-answered-by"] == "local"
            process.send_signal(signal.SIGTERM)
            events = [json.loads(line) for line in process.stderr]  # all of them, alarms too
            assert process.wait(30) == 0
        assert any("--remote does not answer yet" in each["problem"] for each in events if each["event"] == "away")
        assert "the breaker opened" in next(each["problem"] for each in events if each["event"] == "alarm")
        assert (local.requests[0]["model"], local.keys) == ("small", ["Bearer the-key"] * 21)
        assert (tmp_path / "state").is_dir()


@pytest.mark.server
def test_a_server_that_speaks_no_chat_is_told_from_one_that_is_away() -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other, dead_url() as dead:
        Thread(target=other.serve_forever, daemon=True).start()
        servers = ["--local", f"http://127.0.0.1:{other.server_port}", "--remote", dead]
        command = [sys.executable, "-m", "hinge", "gateway", *servers, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert "Serving at" in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            problems = [json.loads(line).get("problem", "") for line in process.communicate(timeout=30)[1].splitlines()]
        other.shutdown()
    local, remote = (next(each for each in problems if name in each) for name in ("--local", "--remote"))
    assert "--local answers, but not as it should: HTTP 404" in local
    assert "HTTP 404; the base URL of such a server mostly ends in /v1, or is it --protocol oip?" in local
    assert "--protocol oip" not in remote


def announced(*options: str) -> tuple[str, list[str]]:
    """The address of a gateway in a process of its own, which is ended at once, and the problems that it has logged."""
    command = [sys.executable, "-m", "hinge", "gateway", *options, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        lines = process.communicate(timeout=30)[1].splitlines()
    return line, [json.loads(line)["problem"] for line in lines if '"problem"' in line]


@pytest.mark.server
def test_a_server_without_the_model_is_named_at_the_start() -> None:
    with ChatStandIn("small") as local, ChatStandIn("large") as remote:
        servers = ["--local", local.base_url, "--remote", remote.base_url, "--local-model", "small"]
        line, problems = announced(*servers, "--remote-model", "larger")
    assert "Serving at" in line
    assert problems == ["--remote answers, but not as it should: it lists no model 'larger'"]


@pytest.mark.server
def test_certificates_are_for_a_local_server_too(tmp_path: Path) -> None:
    folder = self_signed(tmp_path, "edge")
    pem, tls = str(folder / "edge.pem"), Tls(folder / "edge.pem", folder / "edge.key")
    with Server(["fashion", "fashion-local"], tls=tls, log_level="error") as edge, dead_url() as dead:
        url = edge.url.replace("127.0.0.1", "localhost")
        servers = ["--protocol", "oip", "--local", url, "--local-model", "fashion-local", "--remote", dead[:-3]]
        line, problems = announced(*servers, "--remote-model", "fashion", "--ca", pem)
    assert "Serving at" in line
    assert [problem.split(" ")[0] for problem in problems] == ["--remote"]
