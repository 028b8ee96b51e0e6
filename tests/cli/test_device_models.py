"""The models of `hinge device`: what is refused before the first sample, and a remote that comes late."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from hinge import OnnxModel, fashion
from hinge.cli.app import run
from hinge.confidence import margin, max_softmax
from hinge.errors import RemoteFailed, RemoteInvalid, RemoteUnreachable
from hinge.oip.messages import ServerMetadata, build_server_metadata
from hinge.oip.tensors import Tensor, TensorSpec
from tests.models.exports import PROBABILITIES, SAMPLES, SCORES, WEIGHTS, gemm, linear_classifier, save
from tests.server.models import scaling, tensor
from tests.support.commands import Captured, refusal
from tests.support.loopback import OipServer

LOCAL = ["--local", str(fashion.local_model())]


class Guarded(BaseHTTPRequestHandler):
    """Lets in who shows the token, and has no model at all; under /web it is a server of another kind."""

    shown: list[str | None]

    def do_GET(self) -> None:
        self.shown.append(self.headers["Authorization"])
        body, status = build_server_metadata(ServerMetadata("guarded", "1", ())).body, 200
        if self.path.startswith("/web"):
            body = b"<html>"
        elif self.headers["Authorization"] != "Bearer the-right-token":
            body, status = b'{"error": "who are you?"}', 401
        elif self.path != "/v2":
            body, status = b'{"error": "unknown"}', 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def guarded() -> Iterator[str]:
    Guarded.shown = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


@pytest.fixture
def samples(tmp_path: Path) -> str:
    np.savez(tmp_path / "samples.npz", x=np.zeros((3, 28, 28), np.uint8))
    return str(tmp_path / "samples.npz")


def nothing(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {}


def refused(capsys: Captured, *arguments: str) -> str:
    return refusal(capsys, "device", *arguments)


@pytest.mark.parametrize("name", ["missing.onnx", "missing.tflite", "missing.xml"])
def test_a_local_model_that_is_missing(name: str, capsys: Captured) -> None:
    assert refused(capsys, "--local", name) == f"hinge: {name}: there is no such file"


def test_a_local_model_that_is_damaged_or_of_no_known_format(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "damaged.onnx").write_bytes(fashion.local_model().read_bytes()[:5000])
    assert "damaged.onnx" in refused(capsys, "--local", str(tmp_path / "damaged.onnx"))
    assert "no format of models ends in '.pt'" in refused(capsys, "--local", "model.pt")


def test_samples_that_do_not_fit_the_local_model(capsys: Captured, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", np.zeros((3, 28, 29), np.uint8))
    problem = refused(capsys, str(tmp_path / "wide.npz"), *LOCAL)
    assert "the model takes samples of shape [28, 28], the sample has [28, 29]" in problem
    np.savez(tmp_path / "floats.npz", np.zeros((3, 28, 28)))
    assert "the model takes uint8, the sample is float64" in refused(capsys, str(tmp_path / "floats.npz"), *LOCAL)


def test_samples_that_do_not_fit_the_remote_model(capsys: Captured, samples: str) -> None:
    with OipServer(nothing, inputs=[TensorSpec("image", "UINT8", (-1, 32, 32))]) as server:
        problem = refused(capsys, samples, *LOCAL, "--remote", server.url, "--model", "remote")
    assert problem == f"hinge: {server.url}: tensor 'image': shape must be [-1, 32, 32], got [1, 28, 28]"


def test_a_remote_with_other_classes(capsys: Captured, samples: str) -> None:
    image, scores = TensorSpec("image", "UINT8", (-1, 28, 28)), TensorSpec("scores", "FP32", (-1, 7))
    with OipServer(nothing, inputs=[image], outputs=[scores]) as server:
        problem = refused(capsys, samples, *LOCAL, "--remote", server.url, "--model", "remote")
    assert problem == f"hinge: {server.url}: model 'remote' has 7 classes, the local model 10"


class Late:
    """A remote that is away at the start, and when it comes has no such model."""

    model = "remote"

    def __init__(self) -> None:
        self.asked = 0

    def check(self, sample: Any) -> None:
        raise self.fault()

    def ask(self, samples: Any, deadline: Any) -> Any:
        self.asked += 1
        raise self.fault()

    def fault(self) -> RemoteFailed:
        if self.asked < 2:
            return RemoteUnreachable("cannot be reached")
        return RemoteInvalid("http://edge has no model 'remote'")

    def close(self) -> None:
        pass


def test_a_server_that_comes_late_without_the_model(
    capsys: Captured, samples: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hinge.cli.device_models.open_remote", lambda *_: Late())
    folder = str(tmp_path / "state")
    remote = ["--remote", "http://edge", "--model", "remote", "--state", folder, "--json"]
    assert run(["device", samples, *LOCAL, *remote]) == 2
    captured = capsys.readouterr()
    away, refused = captured.err.splitlines()
    assert away == "hinge: http://edge: cannot be reached; using local answers until it is reachable"
    assert refused == "hinge: http://edge has no model 'remote'"
    summary = json.loads(captured.out.splitlines()[-1])["summary"]
    assert (summary["samples"], summary["complete"]) == (1, False)
    assert run(["state", "show", folder]) == 0


def test_a_server_without_the_model(capsys: Captured, samples: str) -> None:
    with OipServer(nothing) as server:
        problem = refused(capsys, samples, *LOCAL, "--remote", server.url, "--model", "other")
    assert problem == f"hinge: {server.url} has no model 'other': HTTP 404, 'no such page'"


def test_a_server_of_another_kind(capsys: Captured, samples: str, guarded: str) -> None:
    problem = refused(capsys, samples, *LOCAL, "--remote", f"{guarded}/web", "--model", "remote")
    assert f"{guarded}/web does not speak the Open Inference Protocol" in problem


def test_a_token_comes_from_a_file_or_the_environment_and_a_wrong_one_is_refused(
    capsys: Captured, samples: str, guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = [samples, *LOCAL, "--remote", guarded, "--model", "remote"]
    wanted = f"hinge: {guarded} wants a token: --token-file or HINGE_TOKEN, in Python token=…"
    assert refused(capsys, *remote) == wanted
    problem = f"hinge: {guarded} refuses the token: HTTP 401, 'who are you?'"
    monkeypatch.setenv("HINGE_TOKEN", "a-wrong-token")
    assert refused(capsys, *remote) == problem
    (tmp_path / "token").write_text("the-right-token\n")
    assert "has no model 'remote'" in refused(capsys, *remote, "--token-file", str(tmp_path / "token"))
    assert Guarded.shown == [None, "Bearer a-wrong-token", *["Bearer the-right-token"] * 2]
    (tmp_path / "token").write_text("two words")
    assert "without spaces" in refused(capsys, *remote, "--token-file", str(tmp_path / "token"))


def test_a_remote_in_a_file(capsys: Captured, tmp_path: Path) -> None:
    images, _ = fashion.labelled_images()
    np.save(tmp_path / "samples.npy", images[:20])
    remote = ["--remote", str(fashion.remote_model()), "--policy", "always-remote", "--deadline-s", "30", "--json"]
    assert run(["device", str(tmp_path / "samples.npy"), *LOCAL, *remote]) == 0
    *answers, _ = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = OnnxModel(fashion.remote_model()).many(images[:20]).argmax(axis=1).tolist()
    assert [(answer["source"], answer["label"]) for answer in answers] == [("remote", label) for label in expected]


def test_a_remote_in_a_file_that_does_not_fit(capsys: Captured, samples: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "threes.npz", np.zeros((3, 3), np.float32))
    small, large = scaling(tmp_path / "small.onnx", 1.0), scaling(tmp_path / "large.onnx", 1.0, width=4)
    problem = refused(capsys, str(tmp_path / "threes.npz"), "--local", str(small), "--remote", str(large))
    assert "large.onnx: the model takes samples of shape [4], the sample has [3]" in problem
    assert "missing.onnx: there is no such file" in refused(capsys, samples, *LOCAL, "--remote", "missing.onnx")
    assert "--remote must be a server" in refused(capsys, "cifar10-vgg16", "--remote", str(large))
    assert "--model needs --remote to be a server" in refused(capsys, "--remote", str(large), "--model", "remote")


def test_what_has_to_be_named(capsys: Captured, samples: str) -> None:
    assert "--local must name a model" in refused(capsys, samples)
    assert "--remote must name a server" in refused(capsys, samples, *LOCAL)
    assert "--model must name" in refused(capsys, samples, *LOCAL, "--remote", "http://127.0.0.1:9")
    assert "must start with http://" in refused(capsys, "--remote", "ftp://127.0.0.1")
    assert "--local must not be given" in refused(capsys, "cifar10-vgg16", *LOCAL)


# -- models that others exported --------------------------------------------------------------------------------------


def digits(folder: Path, labels: Any = None, **arrays: Any) -> str:
    known: dict[str, Any] = {} if labels is None else {"labels": np.asarray(labels)}
    np.savez(folder / "s.npz", samples=SAMPLES, **known, **arrays)
    return str(folder / "s.npz")


def summary(capsys: Captured, *arguments: str) -> Any:
    assert run(["device", *arguments, "--json", "--shadow", "local"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.medium
@pytest.mark.parametrize("zipmap", [True, False])
def test_a_model_with_labels_of_its_own_answers_with_them(tmp_path: Path, capsys: Captured, zipmap: bool) -> None:
    best = PROBABILITIES.argmax(axis=1)
    for classes, names in (({"classlabels_ints": [5, 7, 9]}, [5, 7, 9]), ({"classlabels_strings": [*"abc"]}, [*"abc"])):
        path = str(linear_classifier(tmp_path / "m.onnx", zipmap, classes).path)
        truth = [names[k] for k in best]
        answers = summary(capsys, "--local", path, "--remote", path, digits(tmp_path, truth))
        assert [answer["label"] for answer in answers[:-1]] == truth
        assert answers[-1]["summary"]["true_accuracy"] == 1.0
        assert answers[-1]["summary"]["agreement"] == 1.0
        renamed = summary(capsys, "--local", path, "--remote", path, "--labels", "x,y,z", digits(tmp_path, best))
        assert [answer["label"] for answer in renamed[:-1]] == ["xyz"[k] for k in best]
        assert renamed[-1]["summary"]["true_accuracy"] == renamed[-1]["summary"]["agreement"] == 1.0


def test_labels_of_another_kind_than_the_models_are_refused(tmp_path: Path, capsys: Captured) -> None:
    numbers = str(linear_classifier(tmp_path / "n.onnx", False, {"classlabels_ints": [0, 1, 2]}).path)
    texts = str(linear_classifier(tmp_path / "t.onnx", True, {"classlabels_strings": [*"abc"]}).path)
    found = refusal(capsys, "device", "--local", texts, "--remote", texts, digits(tmp_path, [0] * 100))
    assert "there is a label '0'" in found
    assert "--labels names its classes" in found
    found = refusal(capsys, "device", "--local", numbers, "--remote", texts, digits(tmp_path))
    assert "t.onnx: the model answers as in " in found
    assert summary(capsys, "--local", numbers, "--remote", texts, "--labels", "a,b,c", digits(tmp_path))


def naming(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Answers as a server does whose model has a label output before its scores."""
    scores = inputs["X"] @ WEIGHTS.T
    return {"label": np.array([b"abc"[k : k + 1] for k in scores.argmax(axis=1)], object), "scores": scores}


def naming_server() -> OipServer:
    outputs = [TensorSpec("label", "BYTES", (-1,)), TensorSpec("scores", "FP32", (-1, 3))]
    return OipServer(naming, inputs=[TensorSpec("X", "FP32", (-1, 4))], outputs=outputs, binary=True)


@pytest.mark.parametrize("command", ["device", "record"])
def test_a_server_that_names_classes_where_local_numbers_them_is_refused_before_it_is_asked(
    command: str, tmp_path: Path, capsys: Captured
) -> None:
    numbers = str(linear_classifier(tmp_path / "n.onnx", False, {"classlabels_ints": [0, 1, 2]}).path)
    texts = str(linear_classifier(tmp_path / "t.onnx", False, {"classlabels_strings": [*"abc"]}).path)
    index = str(save(tmp_path / "i.onnx", [gemm()[0]], [tensor("scores", TensorProto.FLOAT, None, 3)], gemm()[1]).path)
    samples, first = digits(tmp_path), int(PROBABILITIES[0].argmax())
    with naming_server() as server:
        out = ["--out", str(tmp_path / "trace.npz")] if command == "record" else []
        remote = [samples, "--remote", server.url, "--model", "remote", *out]
        for local, label in ((numbers, first), (index, 0)):
            assert refusal(capsys, command, "--local", local, *remote) == (
                f"hinge: {server.url}: model 'remote' answers in texts (output 'label': BYTES), the local model in "
                f"numbers, as in {label}; --labels names the classes of both, --remote-output another output of the "
                "remote"
            )
        said = refusal(capsys, command, "--local", texts, *remote, "--remote-output", "scores")
        assert "answers in numbers (output 'scores': FP32), the local model in texts, as in '" in said
        assert server.inferences == 0
        for local, more in (
            (texts, ()),
            (numbers, ("--labels", "a,b,c")),
            (texts, ("--labels", "a,b,c", "--remote-output", "scores")),
            (index, ("--remote-output", "scores")),
        ):
            assert run([command, "--local", local, *remote, *more]) == 0
            (tmp_path / "trace.npz").unlink(missing_ok=True)
        capsys.readouterr()


@pytest.mark.parametrize("command", ["device", "record"])
def test_labels_that_are_none_of_the_models_own_are_refused(command: str, tmp_path: Path, capsys: Captured) -> None:
    def found(classes: list[Any], labels: Any) -> str:
        kind = "classlabels_ints" if isinstance(classes[0], int) else "classlabels_strings"
        path = str(linear_classifier(tmp_path / "m.onnx", False, {kind: classes}).path)
        out = ["--out", str(tmp_path / "trace.npz")] if command == "record" else []
        return refusal(capsys, command, "--local", path, "--remote", path, *out, digits(tmp_path, labels))

    best = PROBABILITIES.argmax(axis=1)
    assert found([0, 1, 2], best + 1).endswith(f"there is a label '3', but the classes of {tmp_path}/m.onnx are 0 to 2")
    unlabelled = np.where(np.arange(100) % 2, best, -1)
    assert found([0, 1, 2], unlabelled).endswith("m.onnx are 0 to 2: leave out samples without a label")
    assert "there is a label 'd', but the classes of" in found([*"abc"], [*"abcd" * 25])


def test_labels_below_zero_are_those_of_a_model_that_gives_them(tmp_path: Path, capsys: Captured) -> None:
    path = str(linear_classifier(tmp_path / "m.onnx", False, {"classlabels_ints": [-1, 0, 1]}).path)
    labels = PROBABILITIES.argmax(axis=1) - 1
    answers = summary(capsys, "--local", path, "--remote", path, digits(tmp_path, labels))
    assert answers[-1]["summary"]["true_accuracy"] == 1.0


@pytest.mark.medium
def test_classes_are_named_by_a_list_or_a_file(tmp_path: Path, capsys: Captured) -> None:
    path = str(save(tmp_path / "m.onnx", [gemm()[0]], [tensor("scores", TensorProto.FLOAT, None, 3)], gemm()[1]).path)
    both = ("--local", path, "--remote", path)
    (tmp_path / "names.txt").write_text("cat\ndog\n\nbird\n")
    for names in ("cat,dog,bird", str(tmp_path / "names.txt")):
        answers = summary(capsys, *both, "--labels", names, digits(tmp_path, ["dog"] * 100))
        assert {answer["label"] for answer in answers[:-1]} == {"cat", "dog", "bird"}
    for names in ("cat,dog,bird", "names.txt"):
        (tmp_path / "hinge.toml").write_text(f'[device]\nlocal = "m.onnx"\nremote = "m.onnx"\nlabels = "{names}"\n')
        answers = summary(capsys, "--config", str(tmp_path / "hinge.toml"), digits(tmp_path))
        assert {answer["label"] for answer in answers[:-1]} == {"cat", "dog", "bird"}
    for names, problem in (
        ("cat,dog", "2 names do not fit the 3 classes"),
        ("cat", "must name two classes or more"),
        ("cat,cat,dog", "--labels must name each class once, got 'cat' twice"),
        ("cat,dog,cow", "there is a label 'bird', but --labels has no such name"),
    ):
        assert problem in refusal(capsys, "device", *both, "--labels", names, digits(tmp_path, ["bird"] * 100))


def test_a_sample_that_the_local_model_refuses_is_named(tmp_path: Path, capsys: Captured) -> None:
    path = str(save(tmp_path / "m.onnx", [gemm()[0]], [tensor("scores", TensorProto.FLOAT, None, 3)], gemm()[1]).path)
    spoilt = SAMPLES.copy()
    spoilt[37] = np.nan
    np.savez(tmp_path / "spoilt.npz", samples=spoilt)
    models = ["--local", path, "--remote", path]
    assert run(["device", *models, str(tmp_path / "spoilt.npz"), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith(f"hinge: sample 37: {path}: ")
    *answers, last = [json.loads(line) for line in captured.out.splitlines()]
    assert last["summary"]["samples"] == len(answers) == 37
    assert last["summary"]["complete"] is False
    assert run(["device", *models, str(tmp_path / "spoilt.npz")]) == 2
    assert f"samples {len(answers)} " in " ".join(capsys.readouterr().out.split())


def test_folders_are_classes_in_the_order_of_the_labels(tmp_path: Path, capsys: Captured) -> None:
    from PIL import Image

    images, labels = fashion.labelled_images()
    for number in range(60):
        folder = tmp_path / fashion.CLASSES[labels[number]].replace("/", "-")
        folder.mkdir(exist_ok=True)
        Image.fromarray(images[number]).save(folder / f"{number}.png")
    models = ("--local", str(fashion.local_model()), "--remote", str(fashion.remote_model()))
    names = ",".join(name.replace("/", "-") for name in fashion.CLASSES)
    assert summary(capsys, *models, "--labels", names, str(tmp_path))[-1]["summary"]["true_accuracy"] > 0.8


@pytest.mark.medium
def test_the_output_the_array_and_the_measure_are_chosen(tmp_path: Path, capsys: Captured) -> None:
    node, weights = gemm()
    twice = helper.make_node("Add", ["scores", "scores"], ["double"])
    ends = [tensor(name, TensorProto.FLOAT, None, 3) for name in ("scores", "double")]
    path = str(save(tmp_path / "m.onnx", [node, twice], ends, weights).path)
    samples = digits(tmp_path, other=SAMPLES[::-1])
    for options, expected in (
        ((), max_softmax(SCORES)),
        (("--output", "double"), max_softmax(2 * SCORES)),
        (("--confidence", "margin"), margin(SCORES)),
        (("--input", "other"), max_softmax(SCORES[::-1])),
    ):
        answers = summary(capsys, "--local", path, "--remote", path, "--remote-output", "double", *options, samples)
        np.testing.assert_allclose([answer["confidence"] for answer in answers[:-1]], expected, atol=1e-5)
    both = ("--local", path, "--remote", path)
    assert "has no output 'triple'" in refusal(capsys, "device", *both, "--output", "triple", samples)
    assert "no array 'oter'; did you mean 'other'?" in refusal(capsys, "device", *both, "--input", "oter", samples)
    labelled = digits(tmp_path, [0] * 100)
    assert "array 'labels' holds labels, not samples; there are samples" in refusal(
        capsys, "device", *both, "--input", "labels", labelled
    )
    assert "--confidence is for models" in refusal(capsys, "device", "cifar10-vgg16", "--confidence", "margin")
    assert "are for models" in refusal(capsys, "device", "cifar10-vgg16", "--output", "scores")
    with np.errstate(invalid="ignore"):
        np.savez(tmp_path / "nan.npz", samples=SAMPLES * np.float32(np.nan))
    assert "m.onnx: the scores of the first sample are not all finite" in refusal(
        capsys, "device", *both, str(tmp_path / "nan.npz")
    )
