"""What `hinge device` refuses before the first sample: in one line, which says what is wrong, with exit code 2."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import Isotonic, Store, fashion
from hinge.cli.app import run
from hinge.errors import RemoteFailed, RemoteInvalid, RemoteUnreachable
from hinge.oip.messages import ServerMetadata, build_server_metadata
from hinge.oip.tensors import Tensor, TensorSpec
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


# -- models -----------------------------------------------------------------------------------------------------------


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
    assert away == "hinge: http://edge: cannot be reached; answering locally until it comes"
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


def test_what_has_to_be_named(capsys: Captured, samples: str) -> None:
    assert "--local must name a model" in refused(capsys, samples)
    assert "--remote must name a server" in refused(capsys, samples, *LOCAL)
    assert "--model must name" in refused(capsys, samples, *LOCAL, "--remote", "http://127.0.0.1:9")
    assert "must start with http://" in refused(capsys, "--remote", "ftp://127.0.0.1")
    assert "--local must not be given" in refused(capsys, "cifar10-vgg16", *LOCAL)


# -- samples ----------------------------------------------------------------------------------------------------------


def test_samples_that_are_not_there(capsys: Captured, tmp_path: Path) -> None:
    assert "there is no folder and no trace 'nowhere'" in refused(capsys, "nowhere")
    assert "did you mean 'cifar10-vgg16'" in refused(capsys, "cifar10-vgg61")
    assert "No such file" in refused(capsys, "nowhere.npz")
    assert "No such file" in refused(capsys, "nowhere.csv")
    (tmp_path / "empty").mkdir()
    assert "there are no images in it" in refused(capsys, str(tmp_path / "empty"), *LOCAL)
    (tmp_path / "empty" / "a.png").write_bytes(b"no image")
    assert "none of the images can be read" in refused(capsys, str(tmp_path / "empty"), *LOCAL)


def test_arrays_that_make_no_sense(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    path.write_bytes(b"no zip")
    assert refused(capsys, str(path), *LOCAL) == f"hinge: {path}: not an .npz file"
    np.savez(path, labels=np.zeros(3))
    assert "there are no samples in it" in refused(capsys, str(path), *LOCAL)
    np.savez(path, np.zeros((0, 28, 28), np.uint8))
    assert "there are no samples in array" in refused(capsys, str(path), *LOCAL)
    np.savez(path, np.array([{"a": 1}], dtype=object))
    assert "cannot be read" in refused(capsys, str(path), *LOCAL)
    np.savez(path, np.zeros((3, 28, 28), np.uint8), labels=np.zeros(2))
    assert "a label for each of 3 samples" in refused(capsys, str(path), *LOCAL)


@pytest.mark.parametrize("label", [10, -1, 0.5, "cat"])
def test_labels_that_are_no_classes_of_the_model(label: Any, capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, samples=np.zeros((1, 28, 28), np.uint8), labels=np.array([label]))
    problem = refused(capsys, str(path), *LOCAL)
    assert f"there is a label '{label}', but the classes of " in problem
    assert problem.endswith("are 0 to 9")


def test_folders_by_number_that_are_no_classes_of_the_model(capsys: Captured, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "10").mkdir()
    Image.new("L", (28, 28)).save(tmp_path / "10" / "1.png")
    assert "there is a label '10', but" in refused(capsys, str(tmp_path), *LOCAL)


def test_folders_that_are_not_the_classes_of_the_model(capsys: Captured, tmp_path: Path) -> None:
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (28, 28)).save(tmp_path / name / "1.png")
    assert "2 folders do not fit the 10 classes" in refused(capsys, str(tmp_path), *LOCAL)


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--policy", "isotnic"], "did you mean 'isotonic'"),
        (["--policy", "hil-f"], "hil-f cannot run on a device: it must be told"),
        (["--policy", "oracle"], "oracle cannot run on a device: it must be told how often local agrees"),
        (["--policy", "logistic"], "logistic cannot run on a device: it must be told what was fitted"),
        (["--policy", "hedge-hi", "--at-most", "0.1"], "--at-most cannot be used with hedge-hi, which learns by"),
        (["--model", "remote"], "--model needs --remote"),
        (["--state", __file__], "test_device.py is not a folder"),
        (["--offload-cost", "2"], "from 0 to 1"),
        (["--offload-cost", "learned"], "needs prices"),
        (["--price-per-ms", "1"], "--wrong-answer"),
        (["--wrong-answer", "1"], "--price-per-call"),
        (["--offload-cost", "0.5", "--price-per-ms", "1", "--wrong-answer", "9"], "give one of them"),
        (["--at-most", "2"], "Invalid value for '--at-most'"),
        (["--deadline-s", "0"], "--deadline-s must be > 0, got 0.0"),
        (["--batch", "0"], "Invalid value for '--batch'"),
        (["--limit", "0"], "Invalid value for '--limit'"),
        (["--shadow", "both"], "Invalid value for '--shadow'"),
        (["--metrics-port", "70000"], "Invalid value for '--metrics-port'"),
    ],
)
def test_settings_that_make_no_sense(arguments: list[str], problem: str, capsys: Captured) -> None:
    assert problem in refused(capsys, *arguments)


def test_a_state_of_another_policy_or_in_use(capsys: Captured, tmp_path: Path) -> None:
    with Store(tmp_path, Isotonic(bins=8, offload_cost=0.5), seconds=None):
        assert "in use by process" in refused(capsys, "--state", str(tmp_path), "--bins", "8")
    assert "use another folder" in refused(capsys, "--state", str(tmp_path), "--bins", "16")


def test_a_port_that_is_taken(capsys: Captured, guarded: str) -> None:
    port = guarded.rpartition(":")[2]
    assert refused(capsys, "--metrics-port", port) == f"hinge: --metrics-port {port}: Address already in use"
