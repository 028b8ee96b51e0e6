"""A device while it runs: the view in a terminal, metrics, and how it is ended."""

import io
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO

import pytest
from rich.console import Console

from hinge import AlwaysRemote, Device, FixedCost, Isotonic, Policy, Thompson, at_most, fashion
from hinge.cli import console as output
from hinge.cli.app import run
from hinge.cli.device_samples import Case
from hinge.cli.device_view import Figures, View
from tests.support.commands import Captured

WAIT_S = 30
IMAGES, _ = fashion.labelled_images()


class Camera:
    """The installed command, fed with frames through a pipe that stays open."""

    def __init__(self, *arguments: str) -> None:
        script = Path(sys.executable).with_name("hinge")
        models = ["--local", str(fashion.local_model()), "--remote", "http://127.0.0.1:9", "--model", "remote"]
        self.process = subprocess.Popen(
            [script, "device", "-", *models, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.out, self.err = self._lines(self.process.stdout), self._lines(self.process.stderr)

    def _lines(self, stream: IO[bytes] | None) -> "Queue[str]":
        lines: Queue[str] = Queue()

        def read() -> None:
            assert stream is not None
            for line in stream:
                lines.put(line.decode())

        Thread(target=read, daemon=True).start()
        return lines

    def send(self, frames: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(IMAGES[:frames].tobytes())
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def camera(tmp_path: Path) -> Iterator[Camera]:
    camera = Camera("--json", "--state", str(tmp_path / "state"), "--metrics-port", "0")
    yield camera
    camera.close()


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_device_that_waits_is_ended_cleanly(
    kind: signal.Signals, camera: Camera, capsys: Captured, tmp_path: Path
) -> None:
    camera.send(20)
    answers = [json.loads(camera.out.get(timeout=WAIT_S)) for _ in range(20)]
    assert [answer["source"] for answer in answers] == ["local"] * 20
    camera.process.send_signal(kind)
    summary = json.loads(camera.out.get(timeout=WAIT_S))["summary"]
    assert camera.process.wait(WAIT_S) == 128 + kind
    assert (summary["samples"], summary["complete"], summary["not_durable"]) == (20, False, None)
    assert run(["state", "show", str(tmp_path / "state"), "--json"]) == 0
    state = json.loads(capsys.readouterr().out)
    assert (state["time"], state["notes"], state["in_use_by"]) == (20, [], None)


def test_metrics_are_served_while_a_device_runs(camera: Camera, capsys: Captured, tmp_path: Path) -> None:
    lines = [camera.err.get(timeout=WAIT_S) for _ in range(2)]
    url = next(line for line in lines if line.startswith("Metrics at ")).split()[-1]
    camera.send(7)
    for _ in range(7):
        camera.out.get(timeout=WAIT_S)
    with urllib.request.urlopen(url, timeout=WAIT_S) as page:
        metrics = page.read().decode()
    assert "hinge_samples_total 7.0" in metrics
    assert "hinge_durable 1.0" in metrics
    assert run(["state", "show", str(tmp_path / "state"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["in_use_by"] == str(camera.process.pid)
    assert camera.process.stdin is not None
    camera.process.stdin.close()
    assert camera.process.wait(WAIT_S) == 0


# -- the view ---------------------------------------------------------------------------------------------------------


def terminal(width: int, height: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)


def viewed(policy: Policy, console: Console, samples: int = 100, failing: bool = False) -> list[str]:
    """The lines of a view after so many samples."""

    def remote(sample: float) -> int:
        if failing:
            raise OSError("away")
        return 1

    with Device(lambda sample: [0.0, sample], remote, policy, price=FixedCost(0.5)) as device:
        figures = Figures(policy.bins)
        for number in range(samples):
            sample = number % 40 / 10
            figures.add(Case(sample), device.infer(sample), 1.0)
        console.print(View(device, figures, f"hinge device {'x' * 200}", samples))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 16), (200, 60)])
@pytest.mark.parametrize("bins", [1, 16, 1024])
def test_the_view_fits_its_terminal(width: int, height: int, bins: int) -> None:
    lines = viewed(at_most(Isotonic(bins=bins, offload_cost=0.5), 0.5), terminal(width, height))
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for part in ("100 of 100", "offloads", "confidence", "licence", "99 "):
        assert part in text
    if width >= 80:
        assert all(part in text for part in ("per second", "local agreed", "of remote's answers", "in memory only"))


def test_the_view_tells_of_licences_faults_and_alarms() -> None:
    lines = viewed(Isotonic(bins=4, offload_cost=0.5), terminal(120, 40))
    assert any("samples left" in line and "0.75 – 1.00" in line for line in lines)
    failing = "\n".join(viewed(Isotonic(bins=4, offload_cost=0.5), terminal(120, 40), failing=True))
    for part in ("fails: breaker open", "breaker 9", "alarms: the breaker opened 1", "in memory only"):
        assert part in failing
    spent = "\n".join(viewed(at_most(AlwaysRemote(bins=4), 0.01), terminal(120, 40)))
    assert "none; the budget is spent" in spent
    assert "for good" not in spent
    chance = "\n".join(viewed(Thompson(bins=4, offload_cost=0.5), terminal(120, 40)))
    assert "offloaded by chance, " in chance


def test_an_outage_fits_in_80_columns() -> None:
    failing = "\n".join(viewed(Isotonic(bins=4, offload_cost=0.5), terminal(80, 24), failing=True))
    assert "fails: breaker open; OSError: away" in failing
    assert "breaker 97, unreachable 3" in failing


def test_whoever_stops_reading_ends_it_quietly() -> None:
    script = [str(Path(sys.executable).with_name("hinge")), "device", "--limit", "2000", "--json"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(WAIT_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_in_a_terminal_the_view_gives_way_to_the_summary(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal(80, 24)
    monkeypatch.setattr(output, "out", console)
    assert run(["device", "--limit", "50", "--policy", "always-remote", "--at-most", "0.01"]) == 0
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "alarms: the offload budget is exhausted 1" in shown
    assert "milliseconds, 99 % within" in shown.rpartition("\x1b")[2]
    assert capsys.readouterr().err == ""
