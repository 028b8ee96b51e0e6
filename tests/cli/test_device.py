"""The command `device`: what it answers, from what samples, and what it prints of it."""

import io
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, Any

import numpy as np
import pytest

from hinge import Gate, OnnxModel, UniformBins, fashion, load_trace, simulate
from hinge.cli.app import run
from hinge.device.page.page import LivePage
from hinge.device.store import Store
from hinge.oip.tensors import TensorSpec
from hinge.server import Server, Tls
from hinge.simulation import lineup
from hinge.simulation.sources import ConstantPrice, InOrder
from tests.support.certificates import self_signed, with_passphrase
from tests.support.commands import INSTALLED, Captured, refusal
from tests.support.loopback import OipServer

WAIT_S = 30

PATIENT = ["--deadline-s", "30", "--json"]
IMAGES, LABELS = fashion.labelled_images()
REMOTE = OnnxModel(fashion.remote_model())


def served(model: str = "remote") -> OipServer:
    """The remote model that comes with Hinge, on a server."""
    return OipServer(
        lambda inputs: {"scores": REMOTE.many(list(inputs["image"]))},
        inputs=[TensorSpec("image", "UINT8", (-1, 28, 28))],
        outputs=[TensorSpec("scores", "FP32", (-1, 10))],
        model=model,
        binary=True,
    )


def device(capsys: Captured, *arguments: str) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """The answers of a run, its summary, and what it says on standard error."""
    assert run(["device", *arguments, *PATIENT]) == 0
    captured = capsys.readouterr()
    *answers, last = [json.loads(line) for line in captured.out.splitlines()]
    assert [answer["sample"] for answer in answers] == list(range(len(answers)))
    assert last["summary"]["samples"] == len(answers)
    return answers, last["summary"], captured.err


def offloads(answers: list[dict[str, Any]]) -> list[bool]:
    return [answer["decision"] == "offload" for answer in answers]


def refused(capsys: Captured, *arguments: str) -> str:
    return refusal(capsys, "device", *arguments)


def own_models(server: OipServer) -> list[str]:
    return ["--local", str(fashion.local_model()), "--remote", server.url, "--model", "remote"]


# -- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("name", ["hi-lcb", "probation"])
def test_a_trace_is_decided_as_the_simulator_decides_it(name: str, capsys: Captured) -> None:
    trace = load_trace("cifar10-vgg16")
    answers, summary, err = device(capsys, "cifar10-vgg16", "--policy", name, "--offload-cost", "0.5", "--bins", "16")
    source = InOrder(trace, UniformBins(16), ConstantPrice(0.5))
    policies = lineup([name], source, offload_cost=0.5, horizon=len(trace))
    record = simulate(policies, source, len(trace), record_decisions=True)[name]
    decisions = record.runs[0].decisions
    assert decisions is not None
    assert offloads(answers) == decisions.tolist()
    assert (err, summary["complete"], summary["policy"]) == ("", True, name)
    figures = record.summary()
    for key in ("offload_fraction", "accuracy", "cost_per_sample", "true_accuracy", "true_cost_per_sample"):
        assert summary[key] == pytest.approx(figures[key]), key


# -- images, arrays, frames -------------------------------------------------------------------------------------------


@pytest.mark.medium
def test_the_shipped_images_and_models_need_nothing_else(capsys: Captured) -> None:
    answers, summary, err = device(capsys, "--limit", "400")
    assert err == ""
    assert {answer["label"] for answer in answers} <= set(fashion.CLASSES)
    assert [answer["truth"] for answer in answers] == [fashion.CLASSES[label] for label in LABELS[:400]]
    right = [answer["label"] == answer["truth"] for answer in answers]
    assert summary["gain"]["local_true_accuracy"] == np.mean([answer["local"] == answer["truth"] for answer in answers])
    assert summary["true_accuracy"] == sum(right) / 400 > 0.9
    assert 0 < summary["answered_by_remote"] == sum(offloads(answers)) < 200
    assert summary["agreement"] is not None
    assert summary["latency_ms_p50"] <= summary["latency_ms_p99"]
    with served("fashion") as server:
        again, _, _ = device(capsys, "fashion", "--limit", "400", "--remote", server.url)
    assert [answer["label"] for answer in again] == [answer["label"] for answer in answers]


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """A hundred images and their labels in a file."""
    path = tmp_path / "samples.npz"
    np.savez(path, other=np.zeros(3), images=IMAGES[:100], labels=LABELS[:100])
    return path


@pytest.mark.medium
def test_arrays_images_and_frames_are_answered_alike(
    capsys: Captured, arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    for number, (image, label) in enumerate(zip(IMAGES[:100], LABELS[:100], strict=True)):
        folder = tmp_path / "images" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:03}.png")
    (tmp_path / "images" / "3" / "broken.png").write_bytes(b"no image")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(IMAGES[:100].tobytes() + b"more")))
    with served() as server:
        models = [*own_models(server), "--policy", "always-remote"]
        from_arrays, summary, err = device(capsys, str(arrays), *models)
        assert (err, summary["true_accuracy"]) == ("", np.mean([a["label"] == a["truth"] for a in from_arrays]))
        from_images, same, err = device(capsys, str(tmp_path / "images"), *models)
        assert "broken.png: cannot be read as an image, and is left out" in err
        from_frames, frames, err = device(capsys, "-", *models)
        assert err == "hinge: the last frame is cut short, at 4 of 784 bytes\n"
    labels = [answer["label"] for answer in from_arrays]
    assert [answer["label"] for answer in from_frames] == labels
    assert frames["true_accuracy"] is None
    assert same["true_accuracy"] == summary["true_accuracy"]
    order = [int(Path(answer["name"]).stem) for answer in from_images]
    assert [answer["label"] for answer in from_images] == [labels[number] for number in order]
    assert [answer["name"] for answer in from_images] == sorted(answer["name"] for answer in from_images)


@pytest.mark.parametrize(("content", "cut"), [(b"", ""), (b"part", ", but 4 of its 784 bytes")])
def test_a_camera_that_sends_no_frame_is_refused(
    content: bytes, cut: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with served() as server:
        problem = refusal(capsys, "device", "-", *own_models(server))
    assert problem == f"hinge: no frame on standard input{cut}"


def test_folders_by_name_are_told_with_their_numbers(capsys: Captured, tmp_path: Path) -> None:
    from PIL import Image

    for number in range(10):
        (tmp_path / f"kind {number}").mkdir()
        Image.fromarray(IMAGES[number]).save(tmp_path / f"kind {number}" / "a.png")
    with served() as server:
        _, _, err = device(capsys, str(tmp_path), *own_models(server))
    told = ", ".join(f"class {number} is 'kind {number}'" for number in range(10))
    assert err == f"hinge: {told}, by the alphabet; --labels names them in another order\n"


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.medium
def test_a_target_is_held(capsys: Captured) -> None:
    answers, summary, _ = device(capsys, "cifar100-resnet50", "--limit", "3000", "--target", "0.8")
    assert summary["policy"] == "target"
    assert summary["accuracy"] >= 0.8
    assert 0 < sum(offloads(answers)) < 3000
    assert summary["alarms"] == {}


@pytest.mark.medium
def test_prices_are_learned(capsys: Captured) -> None:
    prices = ["--prices", "call=3,wrong-answer=12"]
    answers, summary, _ = device(capsys, "--limit", "50", "--policy", "hi-lcb", *prices)
    assert {answer["cost"] for answer in answers if answer["offloaded"]} == {0.25}
    assert summary["offload_cost"] == 0.25 * summary["answered_by_remote"]


@pytest.mark.medium
@pytest.mark.parametrize("who", ["local", "remote"])
def test_in_shadow_one_answers_and_the_policy_learns(who: str, capsys: Captured, tmp_path: Path) -> None:
    answers, summary, _ = device(capsys, "--limit", "60", "--shadow", who, "--state", str(tmp_path))
    assert {answer["source"] for answer in answers} == {who}
    assert 0 < summary["offload_fraction"] < 1
    assert summary["shadow"] == who
    assert summary["asked"] == summary["answered_by_remote"] == (60 if who == "remote" else summary["offloads"])
    assert run(["state", "show", str(tmp_path), "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["learned"] <= summary["offloads"]


@pytest.mark.medium
def test_a_device_goes_on_from_its_state(capsys: Captured, tmp_path: Path) -> None:
    settings = ["cifar10-vgg16", "--policy", "hi-lcb", "--state", str(tmp_path)]
    once, summary, _ = device(capsys, *settings, "--limit", "500")
    assert summary["not_durable"] is None
    device(capsys, *settings, "--limit", "500")
    assert run(["state", "show", str(tmp_path), "--json"]) == 0
    state = json.loads(capsys.readouterr().out)
    assert state["time"] == 1000
    assert state["learned"] > sum(offloads(once))


def test_a_remote_that_is_away_is_mentioned_and_waited_for(capsys: Captured, arrays: Path) -> None:
    with served() as server:
        gone = own_models(server)
    answers, summary, err = device(capsys, str(arrays), *gone, "--policy", "always-remote")
    first, *rest = err.splitlines()
    assert first.startswith(f"hinge: {gone[3]}: cannot be reached: ")
    assert first.endswith("; using local answers until it is reachable")
    assert [line.partition(": [Errno")[0] for line in rest] == ["hinge: the breaker opened: cannot be reached"]
    assert summary["asked"] == 3
    assert summary["last_fault"].startswith("cannot be reached: [Errno 111] ")
    assert summary["offloads"] == summary["asked"] + summary["fell_back"]["breaker"]
    assert {answer["source"] for answer in answers} == {"local"}
    assert sum(summary["fell_back"].values()) == 100
    assert summary["breaker"] == "open"


def test_a_summary_for_people(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.cli.console.EVERY_S", 0.05)
    assert run(["device", "--limit", "2000"]) == 0
    captured = capsys.readouterr()
    for text in ("samples", "2000", "offloads", "asked ", "true accuracy", "milliseconds, 99 % within", "closed"):
        assert text in captured.out
    assert "fashion, probation, remote in this process: " in captured.err
    assert " per second, " in captured.err


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--policy", "probatoin"], "did you mean 'probation'"),
        (["--policy", "hil-f"], "hil-f cannot run on a device: it must be told"),
        (["--policy", "oracle"], "oracle cannot run on a device: it must be told how often local agrees"),
        (
            ["--policy", "hedge-hi", "--budget", "0.1"],
            "--budget cannot be used with hedge-hi, whose price cannot be raised",
        ),
        (["--model", "remote"], "--model needs --remote"),
        (["--state", __file__], "test_device.py is not a folder"),
        (["--offload-cost", "2"], "from 0 to 1"),
        (["--offload-cost", "learned"], "--offload-cost learned needs --prices"),
        (["--prices", "wrong-answer=1"], "--prices need wrong-answer=… and call=…"),
        (["--offload-cost", "0.5", "--prices", "ms=1,wrong-answer=9"], "give one of them"),
        (["--budget", "2"], "--budget must be <= 1, got 2.0"),
        (["--target", "0.9", "--policy", "hi-lcb"], "--target has its own policy, and yet there is --policy hi-lcb"),
        (["--target", "1"], "--target must be above 0 and below 1, got 1.0"),
        (["--deadline-s", "0"], "--deadline-s must be > 0, got 0.0"),
        (["--deadline-s", "1e10"], "--deadline-s must be at most 1000000, got 10000000000.0"),
        (["--token-file", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["--limit", "0"], "--limit must be >= 1, got 0"),
        (["--limit", "99999999999999999999"], "--limit must be <= "),
        (["--shadow", "both"], "--shadow must be one of local, remote, got 'both'"),
        (["--metrics-port", "70000"], "--metrics-port must be <= 65535, got 70000"),
    ],
)
def test_settings_that_make_no_sense(arguments: list[str], problem: str, capsys: Captured) -> None:
    assert problem in refused(capsys, *arguments)


def test_a_measure_that_does_not_fit_the_scores_is_no_bug(capsys: Captured) -> None:
    said = refusal(capsys, "device", "fashion", "--confidence", "max_probability")
    assert said.startswith(
        f"hinge: sample 0: {fashion.local_model()}: max_probability: outputs must be from 0 to 1, got "
    )


def test_a_state_of_another_policy_or_in_use(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.device.store.BUSY_S", 0.1)
    with Store(tmp_path, Gate(offload_cost=0.5, bins=8), seconds=None):
        assert "in use by process" in refused(capsys, "--state", str(tmp_path), "--bins", "8")
    assert "or use another folder" in refused(capsys, "--state", str(tmp_path), "--bins", "16")


def test_a_port_that_is_taken(capsys: Captured) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert refused(capsys, "--metrics-port", str(port)) == f"hinge: --metrics-port {port}: Address already in use"


# -- a device while it runs -------------------------------------------------------------------------------------------


class Camera:
    """The installed command, fed with frames through a pipe that stays open."""

    def __init__(self, *arguments: str) -> None:
        models = ["--local", str(fashion.local_model()), "--remote", "http://127.0.0.1:9", "--model", "remote"]
        self.process = subprocess.Popen(
            [str(INSTALLED), "device", "-", *models, *arguments],
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
@pytest.mark.server
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
    assert (state["time"], state["in_use_by"]) == (20, None)


@pytest.mark.server
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


@pytest.mark.server
def test_whoever_stops_reading_ends_it_quietly() -> None:
    script = [str(INSTALLED), "device", "--limit", "2000", "--json"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(WAIT_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


# -- the page ----------------------------------------------------------------------------------------------------------


def test_a_port_of_the_page_that_is_taken_is_one_line(capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["device", "fashion", "--limit", "1", "--page", str(port)]) == 2
    assert f"127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


def test_the_live_page_is_where_it_says(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = list[str]()

    def close(page: LivePage) -> None:
        with urllib.request.urlopen(page.url) as answer:
            pages.append(answer.read().decode())
        page.close()

    monkeypatch.setattr(LivePage, "__exit__", lambda page, *_: close(page))
    assert run(["device", "fashion", "--limit", "5", "--page", "0", "--json"]) == 0
    assert "The live page is at http://127.0.0.1:" in capsys.readouterr().err
    assert "<title>Hinge</title>" in pages[0]


# -- budgets, settings of the policy, true labels ---------------------------------------------------------------------


@pytest.mark.medium
def test_a_budget_is_used_and_never_exceeded(capsys: Captured) -> None:
    for share in (0.2, 0.6):
        answers, summary, _ = device(capsys, "cifar10-vgg16", "--limit", "5000", "--budget", str(share))
        assert summary["offload_fraction"] == pytest.approx(share, abs=0.06)
        assert max(np.convolve(offloads(answers), np.ones(1000), "valid")) <= 1000 * share
        assert summary["offload_cost"] is summary["cost_per_sample"] is None, "it finds its own price"
    known = device(capsys, "cifar10-vgg16", "--limit", "300", "--budget", "0.2", "--offload-cost", "0.3")[1]
    assert known["offload_cost"] == pytest.approx(0.3 * known["asked"])


@pytest.mark.medium
def test_settings_of_the_policy_are_its_own(capsys: Captured) -> None:
    run_of = ["cifar10-vgg16", "--limit", "3000", "--policy", "hi-lcb", "--offload-cost", "0.5"]
    often, seldom = (offloads(device(capsys, *run_of, "--set", f"alpha={alpha}")[0]) for alpha in (2, 0.52))
    assert sum(often) > sum(seldom)
    problem = refused(capsys, "--set", "alpha=0.6")
    assert problem.startswith(
        "hinge: --set: alpha must be left out: it is no setting of probation, but of discounted, "
    )
    assert "NAME=VALUE, got 'alpha'" in refused(capsys, "--set", "alpha")


# -- certificates -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("certificates"), "server", "client", "stranger")


@pytest.mark.server
def test_mutual_tls(certificates: Path, capsys: Captured) -> None:
    tls = Tls(certificates / "server.pem", certificates / "server.key", certificates / "client.pem")
    ca = ["--ca", str(certificates / "server.pem")]
    own = ["--cert", str(certificates / "client.pem"), "--key", str(certificates / "client.key")]
    with Server(["fashion"], tls=tls, log_level="error") as server:
        remote = ["--remote", server.url, "--limit", "20", "--policy", "always-remote"]
        assert device(capsys, *remote, *ca, *own)[1]["answered_by_remote"] == 20
        assert "its certificate is not trusted" in refused(capsys, *remote)
        assert "--ca names who signed it" in refused(capsys, *remote, "--ca", str(certificates / "client.pem"))
        _, summary, err = device(capsys, *remote, *ca)
        assert summary["answered_by_remote"] == 0, "the server wants one of the device, too"
        assert "does it want a certificate (--cert, --key)?" in err
        plain = ["--remote", server.url.replace("https", "http"), "--limit", "1"]
        assert "does it speak https:// instead?" in device(capsys, *plain)[2]
    with Server(["fashion"], log_level="error") as server:
        secure = ["--remote", server.url.replace("http", "https"), "--limit", "1"]
        assert "does it speak http:// instead?" in device(capsys, *secure)[2]


@pytest.mark.medium
def test_certificates_that_cannot_be_used_are_refused(certificates: Path, capsys: Captured) -> None:
    remote = ["--remote", "https://localhost:9"]
    pem, key = str(certificates / "client.pem"), str(certificates / "stranger.key")
    assert refused(capsys, *remote, "--key", key) == "hinge: --key needs --cert"
    assert "not the key of them" in refused(capsys, *remote, "--cert", pem, "--key", key)
    locked = with_passphrase(certificates / "client.key")
    passphrase = "the key has a passphrase; give one without"
    assert refused(capsys, *remote, "--cert", pem, "--key", str(locked)) == f"hinge: --key {locked}: {passphrase}"
    assert refused(capsys, *remote, "--ca", "none.pem") == "hinge: none.pem: No such file or directory"
    assert "are for https://" in refused(capsys, "--remote", "http://localhost:9", "--ca", pem)
