"""How the demo ends and how it refuses: in one line, and with nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest

from hinge.cli.demo import edge
from hinge.errors import HingeError
from tests.cli.test_cli import Captured, refusal

WAIT_S = 30


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "demo.html"


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test starts bears its mark, so that no other test's processes are taken for its own."""
    monkeypatch.setenv("HINGE_TEST", uuid4().hex)


def servers() -> set[int]:
    """The processes that serve and bear the mark."""
    mark = f"HINGE_TEST={os.environ['HINGE_TEST']}".encode()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"serve" in words and mark in (process / "environ").read_bytes():
                found.add(int(process.name))
    return found


class Started:
    """The command in a process of its own."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hinge", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        self.lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.put(line)
        self.lines.put("")

    def await_line(self, part: str) -> str:
        while part not in (line := self.lines.get(timeout=WAIT_S)):
            assert line, "it ended"
        return line

    def end(self, kind: signal.Signals) -> tuple[int, str]:
        """Its exit code and what it printed."""
        self.process.send_signal(kind)
        assert self.process.stdout is not None
        printed = self.process.stdout.read()
        return self.process.wait(WAIT_S), printed


@pytest.fixture
def started(out: Path, tmp_path: Path) -> Iterator[Any]:
    processes: list[Started] = []

    def start(*arguments: str, **variables: str) -> Started:
        processes.append(Started("--out", str(out), *arguments, **variables))
        return processes[-1]

    yield start
    for each in processes:
        each.process.terminate()  # so that it takes its server along
        each.process.wait(WAIT_S)
        for stream in (each.process.stdout, each.process.stderr):
            assert stream is not None
            stream.close()


def test_interrupted_within_the_run_it_says_what_was_done(started: Any, out: Path) -> None:
    process = started("--samples", "1000000")
    process.await_line("per second")
    assert len(servers()) == 1
    code, printed = process.end(signal.SIGINT)
    assert code == 130
    assert "isotonic (live)" in printed
    assert "No report was written" in process.await_line("Interrupted")
    assert not out.exists()
    assert not servers()


@pytest.mark.parametrize(("kind", "expected"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_page_is_opened_and_stays_until_it_is_ended(
    kind: signal.Signals, expected: int, started: Any, out: Path, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    process = started("--page", "--samples", "20", BROWSER=f"{browser} %s")
    line = process.await_line("stays at")
    url = line.split()[-3]
    assert opened.read_text().strip() == url
    with urllib.request.urlopen(url + "metrics", timeout=WAIT_S) as answer:
        assert 'device="demo"' in answer.read().decode(), "it has reported"
    assert out.exists()
    code, printed = process.end(kind)
    assert code == expected
    assert "20 images" in printed
    assert not servers()


def test_a_port_that_is_taken_is_one_line(capsys: Captured, out: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        problem = refusal(capsys, "demo", "--out", str(out), "--port", str(port))
    assert f"127.0.0.1:{port}" in problem
    assert "in use" in problem


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--samples", "0"], "--samples must be"),
        (["--offload-cost", "2"], "--offload-cost must be"),
        (["--port", "70000"], "--port must be"),
        (["--out", "nowhere/demo.html"], "nowhere/demo.html"),
    ],
)
def test_refusals_come_before_the_server(arguments: list[str], problem: str, capsys: Captured) -> None:
    assert problem in refusal(capsys, "demo", *arguments)


def test_a_missing_extra_is_named_with_its_remedy(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    problem = refusal(capsys, "demo")
    assert "needs plotly" in problem
    assert "pip install 'hinge-gate[cli,device,server,report]'" in problem


def test_a_server_that_never_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "_START_S", 0.0)
    with pytest.raises(HingeError, match="did not start in"), edge.edge_server(0):
        pass
    assert not servers()
