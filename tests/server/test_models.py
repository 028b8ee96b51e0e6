"""R10: a new file takes a model's place while requests go on; a bad one leaves the old model serving."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from hinge.oip.messages import build_request
from hinge.server import Server
from tests.server import models
from tests.server.clients import ask, infer

WAIT_S = 20.0
ONES = build_request({"x": np.ones((1, 3), np.float32)})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server that looks often, and the file of its model, which doubles."""
    path = models.scaling(tmp_path / "m.onnx", 2.0)
    with Server([path], watch_s=0.02, log_level="error") as server:
        yield server.url, path


def factor(url: str) -> float:
    reply = infer(url, "m", ONES)
    assert reply.status == 200
    return float(reply.json["outputs"][0]["data"][0])


def metric(url: str, name: str) -> float:
    lines = ask(url, "/metrics").body.decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith(name + '{model="m"}')))


def tries(url: str) -> float:
    return metric(url, "hinge_model_loads_total") + metric(url, "hinge_model_load_failures_total")


def tried_again(url: str, before: float) -> bool:
    return tries(url) > before


def wait_until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def put(path: Path, content: bytes) -> None:
    """Put a file in the place of another, as a careful program does."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


def test_r10_a_new_file_is_served(served: tuple[str, Path], tmp_path: Path) -> None:
    url, path = served
    assert factor(url) == 2.0
    put(path, models.scaling(tmp_path / "other", 3.0).read_bytes())
    wait_until(lambda: factor(url) == 3.0)
    models.scaling(path, 4.0)  # written over in place
    wait_until(lambda: factor(url) == 4.0)
    assert metric(url, "hinge_model_load_failures_total") == 0


@pytest.mark.parametrize("kind", ["broken", "empty", "cut", "unfitting", "gone"])
def test_r10_a_bad_file_leaves_the_old_one_serving(
    served: tuple[str, Path], tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url, path = served
    good = path.read_bytes()
    if kind == "gone":
        path.unlink()
    else:
        other = models.scaling(tmp_path / "o", 5.0, width=4).read_bytes()
        put(path, {"broken": b"x" * 99, "empty": b"", "cut": good[:-9], "unfitting": other}[kind])
    wait_until(lambda: metric(url, "hinge_model_load_failures_total") >= 1)
    assert factor(url) == 2.0
    assert ask(url, "/v2/models/m/ready").json["ready"]
    assert ask(url, "/v2/health/ready").status == 200
    put(path, models.scaling(tmp_path / "other", 7.0).read_bytes())
    wait_until(lambda: factor(url) == 7.0)
    event = json.loads(capsys.readouterr().err.splitlines()[0])
    assert (event["event"], event["model"]) == ("model not replaced", "m")


def test_r10_data_beside_the_file_is_served_and_watched(tmp_path: Path) -> None:
    def write(value: float) -> None:
        put(tmp_path / "weights.bin", np.full(1, value, np.float32).tobytes())

    write(2.0)
    sides = [models.tensor(name, TensorProto.FLOAT, "batch", 3) for name in "xy"]
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    path = models.save(tmp_path / "m.onnx", [node], sides[:1], sides[1:], initializer=[models.external_tensor()])
    with Server([path], watch_s=0.05, log_level="error") as server:
        assert factor(server.url) == 2.0
        write(3.0)
        wait_until(lambda: factor(server.url) == 3.0)
        write(4.0)
        wait_until(lambda: factor(server.url) == 4.0)
        (tmp_path / "weights.bin").unlink()
        wait_until(lambda: metric(server.url, "hinge_model_load_failures_total") >= 1)
        assert factor(server.url) == 4.0


def test_r10_no_request_fails_while_models_change(served: tuple[str, Path], tmp_path: Path) -> None:
    url, path = served
    contents = [models.scaling(tmp_path / f"{n}", float(n)).read_bytes() for n in (2, 3)]
    contents.append(b"broken")
    seen: set[float] = set()
    done = threading.Event()

    def client() -> None:
        while not done.is_set():
            seen.add(factor(url))

    threads = [threading.Thread(target=client) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round in range(6):
        before = tries(url)
        put(path, contents[(round + 1) % 3])
        wait_until(partial(tried_again, url, before))
    done.set()
    for thread in threads:
        thread.join()
    assert seen == {2.0, 3.0}


def test_r10_without_watching_the_file_is_left_alone(tmp_path: Path) -> None:
    path = models.scaling(tmp_path / "m.onnx", 2.0)
    with Server([path]) as server:
        put(path, b"broken")
        assert factor(server.url) == 2.0
