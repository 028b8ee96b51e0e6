"""S4: models from files. What was looked at is what runs, and nothing else is opened."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from hinge.errors import InvalidModel
from hinge.fashion import local_model, remote_model
from hinge.models.onnx import MAX_DEPTH, OnnxFile, OnnxModel, check_content, input_specs, open_session, output_specs
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
        assert refusal(tmp_path / "m.onnx").endswith("not an ONNX model, or a damaged one")


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


def in_initializer() -> Any:
    return helper.make_graph([], "g", [], [], initializer=[models.external_tensor()])


def in_attribute() -> Any:
    return helper.make_graph([helper.make_node("Constant", [], ["c"], value=models.external_tensor())], "g", [], [])


def in_attribute_list() -> Any:
    node = helper.make_node("Any", [], ["c"], values=[models.external_tensor(), models.external_tensor("b")])
    return helper.make_graph([node], "g", [], [])


def in_subgraph() -> Any:
    node = helper.make_node("If", ["x"], ["y"], then_branch=in_initializer(), else_branch=in_attribute())
    return helper.make_graph([node], "g", [], [])


def in_sparse() -> Any:
    sparse = onnx.SparseTensorProto(values=models.external_tensor(), dims=[4])
    return helper.make_graph([], "g", [], [], sparse_initializer=[sparse])


@pytest.mark.parametrize("make", [in_attribute, in_attribute_list, in_subgraph, in_sparse])
def test_s4_external_data_is_refused_but_in_the_main_graph(tmp_path: Path, make: Callable[[], Any]) -> None:
    (tmp_path / "weights.bin").write_bytes(np.ones(1, np.float32).tobytes())
    model = helper.make_model(make(), opset_imports=models.OPSET)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert "keeps data in other files" in refusal(tmp_path / "m.onnx")


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
    assert OnnxFile.read(path).data == {location: folder / location}
    assert OnnxModel(path).many(np.ones((2, 2), np.float32)).tolist() == [[3.0] * 2] * 2
    (tmp_path / "link.onnx").symlink_to(path)
    with pytest.raises(InvalidModel, match="is not beside it"):  # the folder is the one that was named
        OnnxModel(tmp_path / "link.onnx")
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


@pytest.mark.parametrize(
    "location",
    ["/etc/hostname", "../secret", "a/../../secret", "a/../secret", "./inside", "a//inside", ".hidden", "a/.hidden", "",
     "C:\\secret", "c:secret", "a\\inside", "in\nside", "*/_ORT_MEM_ADDR_/*", "a", "link", "linked/inside", "fifo",
     "empty", "missing"],
)  # fmt: skip  # several to a line
def test_s4_data_anywhere_else_is_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    (folder / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    factor = np.ones(1, np.float32).tobytes()
    for name in ("secret", "model/inside", "model/.hidden", "model/a/inside", "model/a/.hidden", "model/secret",
                 "model/*/_ORT_MEM_ADDR_/*", "model/C:\\secret", "model/c:secret", "model/a\\inside",
                 "model/in\nside"):  # fmt: skip  # several to a line
        (tmp_path / name).write_bytes(factor)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (tmp_path / "inside").write_bytes(factor)
    os.mkfifo(folder / "fifo")
    (folder / "empty").touch()
    said = refusal(scaling_by(location, folder / "m.onnx"))
    assert "keeps data in other files" in said
    leaves, no_data = "is a link that leaves its folder; copy the file there", "is not a file with data in it"
    why = {"link": leaves, "linked/inside": leaves, "a": no_data, "fifo": no_data, "empty": no_data}
    assert said.endswith(why.get(location, ""))


@pytest.mark.parametrize("swapped", ["weights.bin", "data"])
def test_s4_a_link_that_appears_after_the_check_is_not_followed(tmp_path: Path, swapped: str) -> None:
    folder, secret = tmp_path / "model", tmp_path / "secret"
    location = "data/weights.bin" if swapped == "data" else swapped
    for place in (folder / location, secret / "weights.bin"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(np.ones(1, np.float32).tobytes())
    file = OnnxFile.read(scaling_by(location, folder / "m.onnx"))
    (folder / swapped).rename(tmp_path / "aside")
    (folder / swapped).symlink_to(secret if swapped == "data" else secret / "weights.bin")
    with pytest.raises(InvalidModel, match="cannot be run"):
        open_session(file)
    (folder / swapped).unlink()
    (tmp_path / "aside").rename(folder / swapped)
    assert open_session(file).get_outputs()[0].name == "y"


def test_s4_a_tensor_that_is_unclear_about_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(np.ones(1, np.float32).tobytes())
    path = scaling_by("weights.bin", tmp_path / "m.onnx")
    OnnxModel(path)
    twice = onnx.load(path, load_external_data=False)
    twice.graph.initializer[0].external_data.append(onnx.StringStringEntryProto(key="location", value="../secret"))
    unsaid = onnx.load(path, load_external_data=False)
    unsaid.graph.initializer[0].data_location = TensorProto.DEFAULT
    for model in (twice, unsaid):
        path.write_bytes(model.SerializeToString())
        assert "keeps data in other files" in refusal(path)


def test_s4_external_data_in_functions_and_training_is_refused(tmp_path: Path) -> None:
    empty = helper.make_graph([], "g", [], [])
    function = helper.make_function(
        "d", "f", [], ["c"], [helper.make_node("Constant", [], ["c"], value=models.external_tensor())], models.OPSET
    )
    training = onnx.TrainingInfoProto(algorithm=in_initializer())
    for parts in ({"functions": [function]}, {"training_info": [training]}):
        model = onnx.ModelProto(graph=empty, opset_import=models.OPSET, **parts)
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        assert "keeps data in other files" in refusal(tmp_path / "m.onnx")


def test_s4_a_location_is_external_however_it_is_written() -> None:
    def with_tensor(tensor: bytes) -> bytes:
        graph = b"\x2a" + bytes([len(tensor)]) + tensor
        return b"\x3a" + bytes([len(graph)]) + graph

    for field in (
        b"\x70\x01",  # data_location = EXTERNAL
        b"\x70\x81\x00",  # in more bytes than it needs
        b"\x70\x81\x80\x80\x80\x10",  # 2**32 + 1, of which an enumeration keeps the lower half
        b"\xf0\x00\x01",  # its number in more bytes than it needs
        b"\x70\x01\x70\x00",  # taken back
        b"\x6a\x00",  # an empty entry of external_data
    ):
        with pytest.raises(InvalidModel, match="other files"):
            check_content(with_tensor(field), "m")


def test_s4_what_looks_external_but_is_not_is_taken(tmp_path: Path) -> None:
    path = models.scaling(tmp_path / "weights.bin.onnx", 1.0)
    model = onnx.load(path)
    model.graph.initializer[0].data_location = TensorProto.DEFAULT
    model.doc_string = "location: weights.bin"
    check_content(model.SerializeToString(), "m")


def test_s4_depth_is_bounded() -> None:
    content = b""
    for _ in range(MAX_DEPTH):  # a graph in an attribute of a node, again and again
        for key in (b"\x32", b"\x2a", b"\x0a"):
            size, length = len(content), b""
            while size > 127:
                length += bytes([size & 127 | 128])
                size >>= 7
            content = key + length + bytes([size]) + content
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    with pytest.raises(InvalidModel, match="damaged"):
        check_content(b"\x3a" + length + bytes([size]) + content, "m")


@pytest.mark.medium
@settings(max_examples=300)
@given(st.data())
def test_s4_damaged_files_never_crash_the_reader(data: st.DataObject) -> None:
    content = bytearray(local_model().read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidModel):
        check_content(bytes(content), "m")


def calling(depth: int, *, times: int = 2, end: str | None = None) -> bytes:
    """A model of a function that calls another so many times, which does the same, and so on; the last calls `end`."""
    functions = []
    for level in range(depth):
        called = f"f{level + 1}" if level + 1 < depth else end
        domain = "" if called is None else "d"
        nodes = [helper.make_node(called or "Identity", ["a"], [f"b{n}"], domain=domain) for n in range(times)]
        nodes.append(helper.make_node("Identity", ["b0"], ["b"]))
        functions.append(helper.make_function("d", f"f{level}", ["a"], ["b"], nodes, [*models.OPSET, DOMAIN]))
    sides = [models.tensor(name, TensorProto.FLOAT, 1) for name in "xy"]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="d")], "g", sides[:1], sides[1:])
    model = helper.make_model(graph, opset_imports=[*models.OPSET, DOMAIN], functions=functions, ir_version=8)
    return bytes(model.SerializeToString())


DOMAIN = helper.make_opsetid("d", 1)


def test_functions_that_call_each_other_without_end_are_refused_before_they_are_expanded(tmp_path: Path) -> None:
    for name, content in {"many": calling(26), "long": calling(3, times=60), "circle": calling(3, end="f0")}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        problem = "a damaged one" if name == "circle" else "may have 131072 nodes with its functions expanded"
        assert problem in refusal(path)


def test_functions_within_reason_run(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(calling(6))
    (y,) = open_session(tmp_path / "m.onnx").run(None, {"x": np.array([3.0], np.float32)})
    assert y.tolist() == [3.0]


def test_a_function_in_the_default_domain_counts_by_either_of_its_names() -> None:
    model = onnx.load_from_string(calling(26))
    for function in model.functions:
        function.domain = "ai.onnx"
        for node in function.node:
            node.domain = ""
    model.graph.node[0].domain = ""
    with pytest.raises(InvalidModel, match="nodes with its functions expanded"):
        check_content(model.SerializeToString(), "m")


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
