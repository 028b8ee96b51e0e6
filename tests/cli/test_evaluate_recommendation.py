"""What `hinge evaluate` recommends is what it prints and writes, and `hinge device` takes it as it is."""

import json
import tomllib
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from hinge import Gate, Target, Threshold, Trace, fashion, load_trace, read_trace, write_trace
from hinge.cli.app import run
from hinge.simulation.evaluate import fitted_cost
from tests.support.commands import Captured, answer, refusal, shown, write_log

pytestmark = pytest.mark.slow

QUICK = ["--policies", "always-local", "--runs", "2"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    images, labels = (values[:600] for values in fashion.labelled_images())
    np.savez(folder / "samples.npz", samples=images, labels=labels)
    models = ["--local", str(fashion.local_model()), "--remote", str(fashion.remote_model())]
    assert run(["record", str(folder / "samples.npz"), *models, "--out", str(folder / "trace.npz")]) == 0
    return folder


@pytest.fixture
def trace(recording: Path, tmp_path: Path, capsys: Captured) -> Path:
    """A copy, beside which a test may write."""
    copytree(recording, tmp_path, dirs_exist_ok=True)
    capsys.readouterr()
    return tmp_path / "trace.npz"


def test_from_a_recording_to_a_device(trace: Path, capsys: Captured) -> None:
    settings = trace.with_name("hinge.toml")
    printed = shown(capsys, "evaluate", str(trace), *QUICK, "--write", str(settings))
    assert f"{settings} is written, with the settings of 'hinge device --config' and 'hinge gateway" in printed
    assert f"To run it: hinge device --config {settings} SAMPLES" in printed
    sections = tomllib.loads(settings.read_text())
    written = sections["device"]
    assert sections["gateway"] == {"offload_cost": written["offload_cost"]}
    assert (trace.parent / written["local"]).samefile(fashion.local_model())
    assert (trace.parent / written["remote"]).samefile(fashion.remote_model())
    assert "Recommended: probation, at an offload cost of " in printed
    assert run(["device", "--config", str(settings), str(trace.with_name("samples.npz")), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]
    assert (summary["policy"], summary["samples"]) == ("probation", 600)
    assert summary["offload_cost"] == pytest.approx(written["offload_cost"] * summary["asked"])


def test_the_options_for_the_models_are_written_too(tmp_path: Path, capsys: Captured) -> None:
    images, labels = (values[:200] for values in fashion.labelled_images())
    np.savez(tmp_path / "samples.npz", pictures=images, labels=labels)
    (tmp_path / "classes.txt").write_text("\n".join(fashion.CLASSES))
    (tmp_path / "etc").mkdir()
    models = ["--local", str(fashion.local_model()), "--remote", str(fashion.remote_model()), "--confidence", "margin"]
    parts = ["--labels", str(tmp_path / "classes.txt"), "--input", "pictures", "--output", "scores"]
    out, settings, samples = (str(tmp_path / name) for name in ("trace.npz", "etc/hinge.toml", "samples.npz"))
    shown(capsys, "record", samples, *models, *parts, "--out", out)
    shown(capsys, "evaluate", out, *QUICK, "--write", settings)
    written = tomllib.loads(Path(settings).read_text())["device"]
    assert written.items() >= {"confidence": "margin", "labels": "../classes.txt", "input": "pictures"}.items()
    assert run(["device", "--config", settings, samples, "--limit", "3", "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["local"], first["truth"]) == ("ankle boot", "ankle boot")


EDGE = 0.9999995  # which six digits cannot tell from 1, nor any bins from what is a little lower
MIXED = np.where(np.arange(4000) % 2, EDGE, 0.99999949999)
RIGHT = np.arange(4000) % 2 == 1


@pytest.mark.parametrize(
    ("recorded", "price", "options", "gate"),
    [
        (Trace(CONFIDENCE := np.repeat([0.1, 0.3, 0.9], 2000), agreed=CONFIDENCE**2), 0.3, [], Gate(offload_cost=0.3)),
        (Trace(MIXED, agreed=RIGHT), 0.2, [], Gate(Threshold(EDGE))),
        (Trace(MIXED, agreed=RIGHT), 0.2, ["--target", "0.9"], Gate(Target(0.9))),
    ],
)
def test_of_another_task_the_recommendation_is_for_a_program(
    recorded: Trace, price: float, options: list[str], gate: Gate, tmp_path: Path, capsys: Captured
) -> None:
    write_trace(recorded, tmp_path / "boxes.npz")
    printed = shown(capsys, "evaluate", str(tmp_path / "boxes.npz"), *QUICK, *options, "--offload-cost", str(price))
    (line,) = (line for line in printed.splitlines() if line.startswith("To run it, in Python: Device(local, remote, "))
    written = eval(line.partition("remote, ")[2].removesuffix(", task=…)"))  # it is there to be copied
    assert written.state()["policy"]["parameters"] == gate.state()["policy"]["parameters"]
    assert written.description() == gate.description()


def test_a_threshold_that_is_recommended_is_what_the_device_runs(tmp_path: Path, capsys: Captured) -> None:
    trace, settings = tmp_path / "trace.npz", tmp_path / "hinge.toml"
    write_trace(Trace(MIXED, local=np.zeros(4000, int), remote=(~RIGHT).astype(int)), trace)
    printed = shown(capsys, "evaluate", str(trace), *QUICK, "--offload-cost", "0.2", "--write", str(settings))
    assert f"Recommended: a fixed threshold of {EDGE}, which is cheaper while nothing changes" in printed
    sections = tomllib.loads(settings.read_text())
    assert sections["device"] == sections["gateway"] == {"policy": "threshold", "set": [f"threshold={EDGE}"]}
    assert run(["device", "--config", str(settings), str(trace), "--limit", "100", "--json"]) == 0
    *answers, _ = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [each["decision"] for each in answers] == 50 * ["offload", "accept"]


def test_without_a_file_the_options_are_printed(trace: Path, capsys: Captured) -> None:
    printed = shown(capsys, "evaluate", str(trace), *QUICK, "--offload-cost", "0.05")
    told = float(f"{fitted_cost(read_trace(trace), 0.05):.3g}")
    command = f"hinge device --local LOCAL --remote REMOTE SAMPLES --offload-cost {told}"
    assert f"To run it (--write hinge.toml writes these settings): {command}" in printed.splitlines()
    half = "simulated on a random half of the log, 300 samples"
    assert f"What probation gains at each price of an offload, {half}" in printed
    found = answer(capsys, "evaluate", str(trace), *QUICK, "--offload-cost", "0.05")["recommendation"]
    assert (found["settings"], found["samples"]) == ({"offload_cost": told}, 300)


def test_what_a_trace_says_of_itself_is_no_setting(tmp_path: Path, capsys: Captured) -> None:
    known = load_trace("fashion")
    about = {"remote": "ResNet, from https://example.org", "--report": "kitchen", '--x"]\n[serve]\nhost': "0.0.0.0"}
    write_trace(Trace(known.confidence, known.local, known.remote, about=about), tmp_path / "trace.npz")
    printed = shown(capsys, "evaluate", str(tmp_path / "trace.npz"), *QUICK, "--write", str(tmp_path / "hinge.toml"))
    assert "hinge.toml --local LOCAL --remote REMOTE SAMPLES" in printed
    written = tomllib.loads((tmp_path / "hinge.toml").read_text())
    assert written.keys() == {"device", "gateway"}
    assert written["device"].keys() == written["gateway"].keys() == {"offload_cost"}


def test_an_interrupted_recommendation_is_not_written_and_ends_as_interrupted(
    trace: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **keywords: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hinge.cli.evaluate.recommend", interrupted)
    settings = trace.with_name("hinge.toml")
    assert run(["evaluate", str(trace), *QUICK, "--write", str(settings)]) == 130
    printed = capsys.readouterr()
    assert "always-local" in printed.out
    assert "Interrupted" in printed.err
    assert not settings.exists()


def test_a_server_is_written_with_the_name_of_its_model(tmp_path: Path, capsys: Captured) -> None:
    known = load_trace("fashion")
    about = {"local": "gone.onnx", "remote": "http://edge:8080", "remote name": "large"}
    write_trace(Trace(known.confidence, known.local, known.remote, about=about), tmp_path / "trace.npz")
    shown(capsys, "evaluate", str(tmp_path / "trace.npz"), *QUICK, "--write", str(tmp_path / "hinge.toml"))
    written = tomllib.loads((tmp_path / "hinge.toml").read_text())["device"]
    assert (written["remote"], written["model"], "local" in written) == ("http://edge:8080", "large", False)


def test_what_is_refused(trace: Path, capsys: Captured, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("mine")
    assert "is there already" in refusal(capsys, "evaluate", str(trace), *QUICK, "--write", str(mine))
    nowhere = str(mine.with_name("nowhere") / "hinge.toml")
    assert "No such file" in refusal(capsys, "evaluate", str(trace), *QUICK, "--write", nowhere)  # and prints no table
    assert mine.read_text() == "mine"
    few = write_log(tmp_path / "few.csv", "confidence", "local", "remote")
    problem = refusal(capsys, "evaluate", few, *QUICK, "--write", str(tmp_path / "hinge.toml"))
    assert "a recommendation needs 100 samples, and 'few' has 4" in problem


@pytest.mark.parametrize("write", [False, True])
def test_where_local_always_agrees_it_says_that_no_gate_is_needed(
    write: bool, tmp_path: Path, capsys: Captured
) -> None:
    known, path = load_trace("fashion"), tmp_path / "trace.npz"
    write_trace(Trace(known.confidence, known.remote, known.remote), path)
    settings = ["--write", str(tmp_path / "hinge.toml")] if write else []
    printed = shown(capsys, "evaluate", str(path), *QUICK, "--offload-cost", "0.2", *settings)
    assert "Recommended: no gate, but local alone, at an offload cost of 0.2." in printed
    assert "To run it, no gate is needed: let the local model answer everything" in printed.splitlines()
    assert "hinge device --local" not in printed
    assert (tmp_path / "hinge.toml").exists() == write
