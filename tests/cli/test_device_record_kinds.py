"""Every kind of model that others export goes through `record`, `evaluate`, `device` and `serve`."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from onnx import helper
from onnxruntime.quantization import quantize_dynamic

from hinge.cli.app import run
from hinge.server import Server
from tests.models.exports import CLASSES, FLOAT, SAMPLES, SCORES, WEIGHTS, gemm, linear_classifier, save
from tests.models.tiny_tflite import tiny_tflite
from tests.server.models import tensor
from tests.support.commands import Captured

TEXTS, NUMBERS = [*"abc"], [5, 7, 9]
BEST = [int(best) for best in SCORES.argmax(axis=1)]


def scores(folder: Path) -> Path:
    node, weights = gemm()
    return save(folder / "plain.onnx", [node], [tensor("scores", FLOAT, None, CLASSES)], weights).path


def ending(folder: Path, kind: str, classes: int) -> Path:
    node, weights = gemm(WEIGHTS[:classes])
    nodes = [node, helper.make_node(kind, ["scores"], ["p"])]
    return save(folder / "m.onnx", nodes, [tensor("p", FLOAT, None, classes)], weights).path


def external(folder: Path) -> Path:
    parts = {"save_as_external_data": True, "location": "m.onnx.data", "size_threshold": 0}
    onnx.save_model(onnx.load(scores(folder)), folder / "m.onnx", **parts)
    assert (folder / "m.onnx.data").stat().st_size == WEIGHTS.nbytes
    return folder / "m.onnx"


def quantised(folder: Path) -> Path:
    quantize_dynamic(scores(folder), folder / "m.onnx")
    return folder / "m.onnx"


def litert(folder: Path) -> Path:
    (folder / "m.tflite").write_bytes(tiny_tflite(WEIGHTS, np.zeros(CLASSES, np.float32)))
    return folder / "m.tflite"


def openvino_ir(folder: Path) -> Path:
    openvino.save_model(openvino.Core().read_model(scores(folder)), folder / "m.xml", compress_to_fp16=False)
    return folder / "m.xml"


KINDS: dict[str, Callable[[Path], Path]] = {
    "zipmap": lambda folder: linear_classifier(folder / "m.onnx", True, {"classlabels_strings": TEXTS}).path,
    "label and tensor": lambda folder: linear_classifier(folder / "m.onnx", False, {"classlabels_ints": NUMBERS}).path,
    "external data": external,
    "softmax": lambda folder: ending(folder, "Softmax", CLASSES),
    "one sigmoid": lambda folder: ending(folder, "Sigmoid", 1),
    "in 8 bits": quantised,
    "LiteRT": litert,
    "OpenVINO": openvino_ir,
}
NAMES: dict[str, list[Any]] = {"zipmap": TEXTS, "label and tensor": NUMBERS}


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_through_all_commands(kind: str, tmp_path: Path, capsys: Captured) -> None:
    path = KINDS[kind](tmp_path)
    names = NAMES.get(kind, [0, 1, 2])
    known = [int(score > 0) for score in SCORES[:, 0]] if kind == "one sigmoid" else [names[best] for best in BEST]
    np.savez(tmp_path / "samples.npz", X_test=SAMPLES, y_test=known)
    samples, trace, models = str(tmp_path / "samples.npz"), str(tmp_path / "trace.csv"), ["--local", str(path)]

    def found(*arguments: str) -> str:
        assert run([*arguments, "--json"]) == 0
        return capsys.readouterr().out

    both = [*models, "--remote", str(path), *(["--batch", "1"] if kind == "in 8 bits" else [])]  # it shares scales
    recorded = json.loads(found("record", samples, *both, "--out", trace))
    assert (recorded["samples"], recorded["agreement"]) == (len(SAMPLES), 1.0)
    assert recorded["local_accuracy"] >= (0.9 if kind == "in 8 bits" else 1.0)
    chosen = ["--policies", "probation", "--offload-cost", "0.1", "--runs", "1"]
    evaluated = json.loads(found("evaluate", trace, *chosen))
    assert (evaluated["trade"]["policy"], evaluated["recommendation"]["policy"]) == ("probation", "always-local")
    with Server([path]) if path.suffix == ".onnx" else nullcontext() as server:
        served = [["--remote", server.url, "--model", "m"]] if server else []
        for remote in (["--remote", str(path)], *served):
            options = ["--offload-cost", "0.1", "--deadline-s", "30"]
            summary = json.loads(found("device", samples, *models, *remote, *options).splitlines()[-1])["summary"]
            assert (summary["true_accuracy"], summary["agreement"]) == (recorded["local_accuracy"], 1.0)
            assert (summary["answered_by_remote"], summary["fell_back"]) == (summary["offloads"], {})
