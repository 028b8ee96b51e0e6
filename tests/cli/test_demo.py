"""The demo: a real server process, the figures of the simulator, a table and a report."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from hinge import OnnxModel, UniformBins, fashion, load_trace, max_softmax
from hinge.cli.app import run
from hinge.cli.demo import BESIDE, LIVE, edge_server
from hinge.errors import HingeError
from tests.support.commands import Captured, refusal

WAIT_S = 30

pytestmark = [pytest.mark.server, pytest.mark.slow]  # each demo starts a server and streams images

SAME = ("offload_fraction", "accuracy", "cost_per_sample", "true_accuracy")


class Links(HTMLParser):
    """What a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "demo.html"


def demo(capsys: Captured, out: Path, *arguments: str) -> Any:
    """What a demo prints for programs."""
    assert run(["demo", "--out", str(out), "--json", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_the_trace_was_recorded_from_these_images_in_this_order() -> None:
    trace, (images, labels) = load_trace("fashion"), fashion.labelled_images()
    assert trace.label is not None
    assert np.array_equal(trace.label, labels)
    local, remote = OnnxModel(fashion.local_model()), OnnxModel(fashion.remote_model())
    scores = [local(image) for image in images]
    assert np.mean([int(each.argmax()) for each in scores] == trace.local) > 0.999, "other processors round otherwise"
    bins = UniformBins(16)
    assert np.mean([bins.bin(max_softmax(each)) for each in scores] == trace.bins_by(bins)) > 0.99
    some = slice(None, None, 40)
    assert np.mean(remote.many(images[some]).argmax(axis=1) == trace.remote[some]) > 0.99


def test_all_images_cost_what_evaluate_says(capsys: Captured, out: Path) -> None:
    found = demo(capsys, out)
    price = ["--offload-cost", str(found["offload_cost"])]
    assert run(["evaluate", "fashion", "--policies", ",".join(BESIDE), "--runs", "1", "--json", *price]) == 0
    expected = {each["policy"]: each for each in json.loads(capsys.readouterr().out)["policies"]}
    assert (found["samples"], found["complete"], found["faults"]) == (10_000, True, {})
    assert found["trade"]["headline"]["offload_cost"] == found["offload_cost"], "the price is chosen by the rule"
    answers = found["remote_answers"]
    assert answers["not_as_recorded"] <= 0.01 * answers["checked"]
    assert [each["policy"] for each in found["policies"]] == list(BESIDE)
    as_recorded = answers["not_as_recorded"] == found["bins_not_as_recorded"] == 0
    for each in found["policies"]:  # on other processors, which round otherwise, the device decides nearly so
        within = 1e-9 if as_recorded or each["policy"] != LIVE else 0.2
        known = expected[each["policy"]]
        assert {key: each[key] for key in SAME} == pytest.approx({key: known[key] for key in SAME}, rel=within)
        assert each["offloads"] == round(10_000 * each["offload_fraction"])
        assert each["latency_ms"] > 0
        assert each["latency_estimated"] == (each["policy"] != LIVE)
    live = next(each for each in found["policies"] if each["policy"] == LIVE)
    assert answers["checked"] == live["offloads"]


def test_after_the_last_image_comes_the_first(capsys: Captured, out: Path) -> None:
    found = demo(capsys, out, "--samples", "10002", "--offload-cost", "0.9")
    assert (found["samples"], found["complete"]) == (10_002, True)


# -- what people see --------------------------------------------------------------------------------------------------


def test_the_table_and_the_report(capsys: Captured, out: Path) -> None:
    assert run(["demo", "--samples", "600", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for text in ("600 images", "local only", "remote only", "oracle", "probation (live)", "≈", "0 not as recorded"):
        assert text in printed
    assert "local alone is cheaper" in printed
    assert str(out) in printed.replace("\n", "")
    page = out.read_text("utf-8")
    assert page.count("* plotly.js v") == 1
    assert "local alone is cheaper" in page
    for text in ('id="trade"', 'id="policies"', 'id="regret"', *BESIDE[3:]):
        assert text in page
    assert "as the remote failed" not in page
    links = Links()
    links.feed(page)
    assert not [link for link in links.found if not link.startswith(("data:", "#"))], "it needs nothing else"


# -- how it ends ------------------------------------------------------------------------------------------------------


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
    process.await_line("streaming images")
    assert len(servers()) == 1
    code, printed = process.end(signal.SIGINT)
    assert code == 130
    assert "probation (live)" in printed
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
    process = started("--page", "0", "--samples", "20", BROWSER=f"{browser} %s")
    line = process.await_line("stays at")
    url = line.split()[-3]
    assert opened.read_text().strip() == url
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        assert answer.status == 200
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
        problem = refusal(capsys, "demo", "--out", str(out), "--page", str(port))
    assert f"127.0.0.1:{port}" in problem
    assert "in use" in problem


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--samples", "0"], "--samples must be >= 1, got 0"),
        (["--offload-cost", "2"], "--offload-cost must be <= 1, got 2"),
        (["--page", "70000"], "--page must be <= 65535, got 70000"),
        (["--out", "nowhere/demo.html"], "nowhere/demo.html"),
    ],
)
def test_refusals_come_before_the_server(arguments: list[str], problem: str, capsys: Captured) -> None:
    assert problem in refusal(capsys, "demo", *arguments)


def test_a_server_that_does_not_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.cli.demo.MODEL", "none.onnx")
    with pytest.raises(HingeError, match="did not start: "), edge_server():
        pass
    assert not servers()
