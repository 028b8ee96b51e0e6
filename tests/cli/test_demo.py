"""The demo: a real server process, the figures of the simulator, a view, a table and a report."""

import io
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
from rich.console import Console

from hinge import OnnxModel, UniformBins, fashion, load_trace, max_softmax, simulate
from hinge.cli import console as output
from hinge.cli.app import run
from hinge.cli.demo import BOUNDS, FLAGSHIP, SHADOWS, Comparison, Outcome, cases, edge_server, paced, recorded, rows
from hinge.errors import HingeError
from hinge.simulation import lineup
from tests.support.commands import Captured, refusal

WAIT_S = 30

pytestmark = [pytest.mark.server, pytest.mark.slow]  # each demo starts a server and streams images

ALL = (*BOUNDS, FLAGSHIP, *SHADOWS)
SHORT = 600
SAME = ("offload_fraction", "accuracy", "cost_per_sample", "regret", "true_accuracy")


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


def check_same(found: Any, expected: dict[str, Any]) -> None:
    """What shadows is exactly as simulated; so is the device, but on processors that round otherwise."""
    as_recorded = found["remote_answers"]["not_as_recorded"] == found["bins_not_as_recorded"] == 0
    for each in found["policies"]:
        name = each["policy"]
        within = 1e-9 if as_recorded or name != FLAGSHIP else 0.2
        assert {key: each[key] for key in SAME} == pytest.approx({key: expected[name][key] for key in SAME}, rel=within)


# -- the figures ------------------------------------------------------------------------------------------------------


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
    assert run(["evaluate", "fashion", "--policies", ",".join(ALL), "--runs", "1", "--json", *price]) == 0
    expected = {each["policy"]: each for each in json.loads(capsys.readouterr().out)["policies"]}
    assert found["samples"] == 10_000
    assert found["complete"] is True
    assert found["trade"]["headline"]["offload_cost"] == found["offload_cost"], "the price is chosen by the rule"
    assert found["faults"] == {}
    answers = found["remote_answers"]
    assert answers["checked"] == found["policies"][3]["offloads"] + 200
    assert answers["not_as_recorded"] <= 0.01 * answers["checked"]
    assert [each["policy"] for each in found["policies"]] == list(ALL)
    check_same(found, expected)
    for each in found["policies"]:
        assert each["offloads"] == round(10_000 * each["offload_fraction"])
        assert each["latency_ms"] > 0
    assert {each["policy"] for each in found["policies"] if each["latency_estimated"]} == {"oracle", *SHADOWS}


def test_a_short_demo_at_another_cost_is_the_simulators(capsys: Captured, out: Path) -> None:
    found = demo(capsys, out, "--samples", str(SHORT), "--offload-cost", "0.2")
    source = recorded(0.2)
    results = simulate(lineup(ALL, source, offload_cost=0.2, horizon=SHORT), source, SHORT)
    assert found["offload_cost"] == 0.2
    check_same(found, {name: record.summary() for name, record in results.items()})


def test_after_the_last_image_comes_the_first() -> None:
    source = recorded(0.5)
    assert len(list(rows(source, 10_002))) == 10_002
    last = list(cases(source, 10_002))[-2:]
    first = list(cases(source, 2))
    assert [(each.truth, each.remote) for each in last] == [(each.truth, each.remote) for each in first]


# -- what people see --------------------------------------------------------------------------------------------------


def test_the_table_and_the_report(capsys: Captured, out: Path) -> None:
    assert run(["demo", "--samples", str(SHORT), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for text in ("600 images", "local only", "remote only", "oracle", "sentinel (live)", "≈", "0 not as recorded"):
        assert text in printed
    assert "local alone is cheaper" in printed
    assert str(out) in printed.replace("\n", "")
    page = out.read_text("utf-8")
    assert page.count("* plotly.js v") == 1
    assert page.count("data:image/png;base64,") >= 16
    assert "local alone is cheaper" in page
    assert 'id="trade"' in page
    for text in ('id="regret"', 'id="offloads"', 'id="bins"', 'id="examples"', "says remote", "says local", *SHADOWS):
        assert text in page
    assert "as the remote failed" not in page
    links = Links()
    links.feed(page)
    assert not [link for link in links.found if not link.startswith(("data:", "#"))], "it needs nothing else"


def lines(page: str, plot: str) -> dict[str, Any]:
    """How each curve of a plot is drawn."""
    curves, _ = json.JSONDecoder().raw_decode(page.partition(f'"plot-{plot}",')[2].lstrip())
    return {curve["name"]: curve["line"] for curve in curves}


def test_a_policy_has_one_colour_in_all_plots_and_none_hides_another(out: Path) -> None:
    assert run(["demo", "--samples", str(SHORT), "--out", str(out), "--json"]) == 0
    page = out.read_text("utf-8")
    plots = [lines(page, name) for name in ("trade", "regret", "offloads")]
    assert {"local only", "remote only", FLAGSHIP, *SHADOWS} == plots[1].keys()
    assert {FLAGSHIP, *SHADOWS} == plots[2].keys()
    colours: dict[str, set[str]] = {}
    for name, line in (each for plot in plots for each in plot.items()):
        colours.setdefault(name, set()).add(line["color"])
    assert all(len(each) == 1 for each in colours.values()), colours
    assert len(set.union(*colours.values())) == len(colours)
    for plot in plots[1:]:
        assert plot["hi-lcb"]["dash"] != plot["hi-lcb-lite"]["dash"], "they decide alike, and coincide"
    assert "Remote only leaves the plot, and ends at " in page


def test_in_a_terminal_the_policies_are_side_by_side(
    capsys: Captured, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, color_system=None)
    monkeypatch.setattr(output, "out", console)
    assert run(["demo", "--samples", "100", "--out", str(out)]) == 0
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for text in ("side by side", "sentinel, live", "hedge-hi, in shadow", "licence", "samples left", "of 100"):
        assert text in shown
    assert "remote only" in shown.rpartition("\x1b")[2]
    assert capsys.readouterr().err == ""


def test_a_pace_loses_nothing() -> None:
    assert list(paced(range(10))) == list(range(10))


def test_differences_from_the_record_and_faults_are_told(
    capsys: Captured, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Outcome] = []
    real = Comparison.check

    def check(comparison: Comparison, as_recorded: bool) -> None:
        real(comparison, False)

    def faults(outcome: Outcome) -> dict[str, int]:
        seen.append(outcome)
        return {"late": 3}

    monkeypatch.setattr(Comparison, "check", check)
    monkeypatch.setattr(Outcome, "faults", property(faults))
    assert run(["demo", "--samples", "50", "--out", str(out)]) == 0
    printed, checked = capsys.readouterr().out, seen[0].comparison.checked
    assert f"{checked} answers: {checked} not as recorded" in printed
    assert "as the remote failed: late 3" in printed
    assert "as the remote failed: late 3" in out.read_text("utf-8")


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
    process.await_line("per second")
    assert len(servers()) == 1
    code, printed = process.end(signal.SIGINT)
    assert code == 130
    assert "sentinel (live)" in printed
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
    assert f"--page {port}" in problem
    assert "in use" in problem


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--samples", "0"], "Invalid value for '--samples'"),
        (["--offload-cost", "2"], "Invalid value for '--offload-cost'"),
        (["--page", "70000"], "Invalid value for '--page'"),
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
    monkeypatch.setattr("hinge.cli.demo._START_S", 0.0)
    with pytest.raises(HingeError, match="did not start in"), edge_server():
        pass
    assert not servers()
