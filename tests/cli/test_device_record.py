"""The command `record`: two models, as files or on servers, to a trace; what it says when it is interrupted."""

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from hinge import OnnxModel, fashion, load_trace, read_trace
from hinge.cli.app import run
from hinge.oip.tensors import Tensor, TensorSpec
from tests.support.commands import INSTALLED, Captured, answer, refusal, shown
from tests.support.loopback import OipServer

WAIT_S = 30
IMAGES, LABELS = (values[:200] for values in fashion.labelled_images())
REMOTE = OnnxModel(fashion.remote_model())
MODELS = ["--local", str(fashion.local_model()), "--remote", str(fashion.remote_model())]


def served() -> OipServer:
    return OipServer(
        lambda inputs: {"scores": REMOTE.many(list(inputs["image"]))},
        inputs=[TensorSpec("image", "UINT8", (-1, 28, 28))],
        outputs=[TensorSpec("scores", "FP32", (-1, 10))],
        model="remote",
        binary=True,
    )


@pytest.fixture
def samples(tmp_path: Path) -> str:
    np.savez(tmp_path / "samples.npz", samples=IMAGES, labels=LABELS)
    return str(tmp_path / "samples.npz")


@pytest.mark.medium
def test_two_files_give_the_trace_that_comes_with_hinge(samples: str, capsys: Captured, tmp_path: Path) -> None:
    out = tmp_path / "trace.npz"
    printed = shown(capsys, "record", samples, *MODELS, "--out", str(out))
    trace, known = read_trace(out), load_trace("fashion")
    np.testing.assert_allclose(trace.confidence, known.confidence[:200], atol=1e-6)
    for name in ("local", "remote", "label"):
        assert trace.columns[name].tolist() == known.columns[name][:200].tolist()
    agrees, right, remote = (100 * np.mean(trace.local == trace.remote), 100 * np.mean(trace.local == LABELS),
                             100 * np.mean(trace.remote == LABELS))  # fmt: skip  # several to a line
    assert f"200 samples, local agrees with remote on {agrees:.2f}%" in printed
    assert f"local is right on {right:.2f}%, remote on {remote:.2f}%" in printed
    assert f"hinge evaluate {out}" in printed


@pytest.mark.medium
def test_a_server_gives_the_same(samples: str, capsys: Captured, tmp_path: Path) -> None:
    with served() as server:
        remote = ["--remote", server.url, "--model", "remote", "--batch", "64"]
        shown(capsys, "record", samples, *MODELS[:2], *remote, "--out", str(tmp_path / "served.csv"))
    shown(capsys, "record", samples, *MODELS, "--out", str(tmp_path / "file.csv"))
    assert (tmp_path / "served.csv").read_text() == (tmp_path / "file.csv").read_text()


def test_images_that_come_along_have_the_names_of_their_classes(capsys: Captured, tmp_path: Path) -> None:
    figures = answer(capsys, "record", "fashion", "--limit", "50", "--out", str(tmp_path / "trace.csv"))
    trace = read_trace(tmp_path / "trace.csv")
    assert figures["samples"] == 50
    assert figures["agreement"] == trace.agreement
    assert trace.label is not None
    assert trace.label.tolist() == [fashion.CLASSES[label] for label in LABELS[:50]]


@pytest.mark.medium
def test_what_is_refused(samples: str, capsys: Captured, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "trace.npz")]
    assert "recorded already: hinge evaluate cifar10-vgg16" in refusal(capsys, "record", "cifar10-vgg16", *out)
    assert "no format of traces ends in ''" in refusal(capsys, "record", samples, *MODELS, "--out", "trace")
    away = ["--remote", "http://127.0.0.1:9", "--model", "remote"]
    assert "http://127.0.0.1:9" in refusal(capsys, "record", samples, *MODELS[:2], *away, *out)
    assert run(["record", samples, *MODELS, *out]) == 0
    capsys.readouterr()
    assert "there is a trace already" in refusal(capsys, "record", samples, *MODELS, *out)


@pytest.mark.medium
def test_a_server_that_dies_and_comes_back(
    samples: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, requests = tmp_path / "trace.npz", 0

    def failing(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        nonlocal requests
        requests += 1
        if requests > 3:
            raise RuntimeError("out of memory")
        return {"scores": REMOTE.many(list(inputs["image"]))}

    with monkeypatch.context() as patched, served() as server:
        patched.setattr("time.sleep", lambda _: None)
        server.answer = failing
        command = ["record", samples, *MODELS[:2], "--remote", server.url, "--model", "remote", "--out", str(out)]
        assert run(command) == 2
        *again, kept, last = capsys.readouterr().err.splitlines()
        assert len(again) == 4
        assert all(server.url in line and "asking again" in line for line in again)
        assert kept == f"hinge: 96 samples are kept in {out}.part, and the same command goes on"
        assert last.startswith("hinge: ")
        requests = -1000
        shown(capsys, *command)
    assert len(read_trace(out)) == 200


@pytest.mark.slow
@pytest.mark.server
def test_ctrl_c(tmp_path: Path) -> None:
    out, part = tmp_path / "trace.npz", tmp_path / "trace.npz.part"
    command = [str(INSTALLED), "record", "fashion", "--batch", "8", "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + WAIT_S
        while not (part.exists() and part.stat().st_size) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    kept = len(part.read_text().splitlines()) - 1
    assert f"hinge: {kept} samples are kept in {part}, and the same command goes on" in errors
    assert run([*command[1:], "--limit", str(kept + 8)]) == 0
    assert len(read_trace(out)) == kept + 8
