"""The command `device`: what it answers, from what samples, and what it prints of it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import OnnxModel, UniformBins, fashion, load_trace, read_trace, simulate
from hinge.cli.app import run
from hinge.oip.tensors import TensorSpec
from hinge.simulation import lineup
from hinge.simulation.sources import FixedCosts, InOrder
from hinge.traces import Trace, write_trace
from tests.support.commands import Captured, refusal
from tests.support.loopback import OipServer

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


def own_models(server: OipServer) -> list[str]:
    return ["--local", str(fashion.local_model()), "--remote", server.url, "--model", "remote"]


# -- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hi-lcb", "isotonic"])
def test_a_trace_is_decided_as_the_simulator_decides_it(name: str, capsys: Captured) -> None:
    trace = load_trace("cifar10-vgg16")
    answers, summary, err = device(capsys, "cifar10-vgg16", "--policy", name, "--offload-cost", "0.5")
    source = InOrder(trace, UniformBins(16), FixedCosts(0.5))
    policies = lineup([name], source, offload_cost=0.5, horizon=len(trace))
    record = simulate(policies, source, len(trace), record_decisions=True)[name]
    decisions = record.runs[0].decisions
    assert decisions is not None
    assert offloads(answers) == decisions.tolist()
    assert (err, summary["complete"], summary["policy"]) == ("", True, name)
    figures = record.summary()
    for key in ("offload_fraction", "accuracy", "cost_per_sample", "true_accuracy", "true_cost_per_sample"):
        assert summary[key] == pytest.approx(figures[key]), key


def test_a_trace_with_a_real_remote_is_decided_the_same(capsys: Captured) -> None:
    trace = load_trace("cifar10-vgg16")
    with OipServer.of_labels(trace.remote.tolist(), 10, binary=True) as server:
        real = ["--remote", server.url, "--model", "remote"]
        answers, summary, _ = device(capsys, "cifar10-vgg16", "--limit", "3000", *real)
    alone, _, _ = device(capsys, "cifar10-vgg16", "--limit", "3000")
    assert [answer["label"] for answer in answers] == [answer["label"] for answer in alone]
    assert offloads(answers) == offloads(alone)
    assert server.inferences == summary["answered_by_remote"] == sum(offloads(answers))


def test_recorded_costs_are_learned(capsys: Captured, tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    trace = Trace(chance.random(600), ["cat"] * 600, chance.choice(["cat", "dog"], 600), cost=chance.random(600))
    write_trace(trace, tmp_path / "log.npz")
    answers, summary, _ = device(capsys, str(tmp_path / "log.npz"), "--policy", "hi-lcb")
    trace = read_trace(tmp_path / "log.npz")
    source = InOrder(trace, UniformBins(16))
    record = simulate(lineup(["hi-lcb"], source, offload_cost=None, horizon=600), source, 600, record_decisions=True)
    decisions = record["hi-lcb"].runs[0].decisions
    assert decisions is not None
    assert offloads(answers) == decisions.tolist()
    assert summary["cost_per_sample"] == pytest.approx(record["hi-lcb"].summary()["cost_per_sample"])
    assert summary["true_accuracy"] is None


# -- images, arrays, frames -------------------------------------------------------------------------------------------


def test_the_shipped_images_and_models_need_nothing_else(capsys: Captured) -> None:
    answers, summary, err = device(capsys, "--limit", "400")
    assert err == ""
    assert {answer["label"] for answer in answers} <= set(fashion.CLASSES)
    assert [answer["truth"] for answer in answers] == [fashion.CLASSES[label] for label in LABELS[:400]]
    right = [answer["label"] == answer["truth"] for answer in answers]
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


def test_a_single_array_is_answered_as_it_is(capsys: Captured, tmp_path: Path) -> None:
    np.save(tmp_path / "samples.npy", IMAGES[:5])
    with served() as server:
        answers, summary, _ = device(capsys, str(tmp_path / "samples.npy"), *own_models(server))
    assert (len(answers), summary["true_accuracy"]) == (5, None)


def test_folders_by_name_are_told_with_their_numbers(capsys: Captured, tmp_path: Path) -> None:
    from PIL import Image

    for number in range(10):
        (tmp_path / f"kind {number}").mkdir()
        Image.fromarray(IMAGES[number]).save(tmp_path / f"kind {number}" / "a.png")
    with served() as server:
        _, _, err = device(capsys, str(tmp_path), *own_models(server))
    told = ", ".join(f"class {number} is 'kind {number}'" for number in range(10))
    assert err == f"hinge: {told}\n"


# -- settings ---------------------------------------------------------------------------------------------------------


def test_samples_are_sent_together(capsys: Captured, arrays: Path) -> None:
    with served() as server:
        settings = ["--policy", "always-remote", "--batch", "30"]
        answers, summary, _ = device(capsys, str(arrays), *own_models(server), *settings)
        assert (server.inferences, summary["answered_by_remote"]) == (4, 100)
    assert all(answer["source"] == "remote" for answer in answers)


def test_a_budget_holds(capsys: Captured) -> None:
    answers, summary, err = device(capsys, "fashion", "--limit", "300", "--policy", "always-remote", "--at-most", "0.1")
    assert offloads(answers) == [True] * 100 + [False] * 200
    assert err == "hinge: the offload budget is exhausted\n"
    assert summary["alarms"] == {"the offload budget is exhausted": 1}


def test_prices_are_learned(capsys: Captured) -> None:
    prices = ["--price-per-call", "3", "--wrong-answer", "12"]
    answers, summary, _ = device(capsys, "--limit", "50", "--policy", "hi-lcb", *prices)
    assert {answer["cost"] for answer in answers if answer["offloaded"]} == {0.25}
    assert summary["offload_cost"] == 0.25 * summary["answered_by_remote"]


@pytest.mark.parametrize("who", ["local", "remote"])
def test_in_shadow_one_answers_and_the_policy_learns(who: str, capsys: Captured, tmp_path: Path) -> None:
    answers, summary, _ = device(capsys, "--limit", "60", "--shadow", who, "--state", str(tmp_path))
    assert {answer["source"] for answer in answers} == {who}
    assert 0 < summary["offload_fraction"] < 1
    assert summary["shadow"] == who
    assert summary["asked"] == summary["answered_by_remote"] == (60 if who == "remote" else summary["offloads"])
    assert run(["state", "show", str(tmp_path), "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["learned"] <= summary["offloads"]


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
    assert first.endswith("; answering locally until it comes")
    assert rest == ["hinge: the breaker opened: cannot be reached: [Errno 111] Connection refused"]
    assert (summary["asked"], summary["last_fault"]) == (3, "cannot be reached: [Errno 111] Connection refused")
    assert summary["offloads"] == summary["asked"] + summary["fell_back"]["breaker"]
    assert {answer["source"] for answer in answers} == {"local"}
    assert sum(summary["fell_back"].values()) == 100
    assert summary["breaker"] == "open"


def test_a_remote_over_grpc_is_asked_at_its_address(capsys: Captured, arrays: Path) -> None:
    away = ["--local", str(fashion.local_model()), "--remote", "grpc://127.0.0.1:9", "--model", "remote"]
    _, summary, err = device(capsys, str(arrays), *away, "--limit", "3")
    assert err.startswith("hinge: grpc://127.0.0.1:9: cannot be reached: ")
    assert sum(summary["fell_back"].values()) == 3


# -- for people -------------------------------------------------------------------------------------------------------


def test_a_summary_for_people(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.cli.device_view._EVERY_S", 0.0)
    assert run(["device", "--limit", "50"]) == 0
    captured = capsys.readouterr()
    for text in ("samples", "50", "offloads", "asked ", "true accuracy", "milliseconds, 99 % within", "closed"):
        assert text in captured.out
    assert "memory" not in captured.out, "nobody asked for more"
    assert captured.err.count("\n") == 50
    assert captured.err.startswith("1 sample, ")


def test_the_summary_of_a_shadow_says_who_was_not_asked_for(capsys: Captured) -> None:
    assert run(["device", "--limit", "20", "--shadow", "local", "--deadline-s", "30"]) == 0
    assert "asked behind the caller" in capsys.readouterr().out


