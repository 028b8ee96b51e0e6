"""Models from ONNX files: what runs, with data beside it, and what is said of those that cannot run."""

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hinge.errors import InvalidModel
from hinge.fashion import local_model, remote_model
from hinge.models.onnx import OnnxModel, input_specs, model_files, open_session, output_specs
from tests.server import models


def refusal(path: Path) -> str:
    with pytest.raises(InvalidModel) as caught:
        open_session(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_runs(tmp_path: Path) -> None:
    session = open_session(models.scaling(tmp_path / "m.onnx", 2.0), threads=1)
    (y,) = session.run(None, {"x": np.ones((4, 3), np.float32)})
    assert y.tolist() == [[2.0] * 3] * 4
    assert [(spec.name, spec.datatype, spec.shape) for spec in input_specs(session)] == [("x", "FP32", (-1, 3))]
    assert [(spec.name, spec.datatype, spec.shape) for spec in output_specs(session)] == [("y", "FP32", (-1, 3))]


def test_small_models_take_one_thread() -> None:
    assert open_session(remote_model()).get_session_options().intra_op_num_threads == 1
    assert open_session(remote_model(), threads=2).get_session_options().intra_op_num_threads == 2


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing.onnx").endswith("there is no such file")
    assert refusal(tmp_path).endswith("not a file")
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe").endswith("not a file")
    good = local_model().read_bytes()
    for content in (b"", b"hello", good[:1000], good[:-1], b"\x00" * 64, b"PK\x03\x04" + good):
        (tmp_path / "m.onnx").write_bytes(content)
        assert "m.onnx: the model cannot be run: " in refusal(tmp_path / "m.onnx")


def test_what_the_runtime_refuses_is_told_in_one_line(tmp_path: Path) -> None:
    sides = [models.tensor(name, TensorProto.FLOAT, 1) for name in "xy"]
    models.save(tmp_path / "m.onnx", [helper.make_node("NoSuchOp", ["x"], ["y"])], sides[:1], sides[1:])
    assert "the model cannot be run" in refusal(tmp_path / "m.onnx")


def test_types_that_have_no_form_in_the_protocol_are_refused(tmp_path: Path) -> None:
    sides = [models.tensor(name, TensorProto.BFLOAT16, 1) for name in "xy"]
    session = open_session(
        models.save(tmp_path / "m.onnx", [helper.make_node("Identity", ["x"], ["y"])], sides[:1], sides[1:])
    )
    with pytest.raises(InvalidModel, match="bfloat16"):
        input_specs(session)


def scaling_by(location: str, path: Path) -> Path:
    """y = factor * x, whose factor is in another file."""
    sides = [models.tensor(name, TensorProto.FLOAT, "batch", 2) for name in "xy"]
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    return models.save(path, [node], sides[:1], sides[1:], initializer=[models.external_tensor(location=location)])


@pytest.mark.parametrize("location", ["weights.bin", "data/weights.bin", "m.onnx.data"])
def test_data_in_the_folder_of_the_model_is_read(tmp_path: Path, location: str, monkeypatch: Any) -> None:
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    (folder / location).write_bytes(np.full(1, 3.0, np.float32).tobytes())
    path = scaling_by(location, folder / "m.onnx")
    assert model_files(path) == (path, folder / location)
    assert OnnxModel(path).many(np.ones((2, 2), np.float32)).tolist() == [[3.0] * 2] * 2
    monkeypatch.chdir(folder)
    assert OnnxModel("m.onnx")([2.0, 1.0]).tolist() == [6.0, 3.0]


def test_a_file_of_data_may_hold_many_tensors_and_be_cut(tmp_path: Path) -> None:
    path = models.scaling(tmp_path / "m.onnx", 2.0)
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "all.bin", offset=8, length=4)
    tensor.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    (tmp_path / "all.bin").write_bytes(np.array([7, 7, 5], np.float32).tobytes())
    assert OnnxModel(path)([1, 1, 1]).tolist() == [5.0] * 3
    (tmp_path / "all.bin").write_bytes(b"\x00" * 11)
    assert "the model cannot be run" in refusal(path)


@pytest.mark.medium
def test_damaged_models_raise_invalid_model_and_print_nothing(tmp_path: Path, capfd: Any) -> None:
    content, path, chance = models.scaling(tmp_path / "good.onnx", 2.0).read_bytes(), tmp_path / "m.onnx", Random(7)
    refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 1, 2, 4])):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            OnnxModel(path)
        except InvalidModel as problem:
            refused += str(problem).isprintable()
    assert refused > 100
    assert capfd.readouterr() == ("", "")
