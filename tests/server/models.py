"""Small ONNX models for the tests."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = [helper.make_opsetid("", 17)]


def save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], **parts: Any) -> Path:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, **parts)
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def tensor(name: str, kind: int, *shape: int | str | None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def scaling(path: Path, factor: float, width: int = 3) -> Path:
    """y = factor * x, row by row."""
    weight = numpy_helper.from_array(np.array([factor], np.float32), "factor")
    sides = [tensor(name, TensorProto.FLOAT, "batch", width) for name in "xy"]
    return save(path, [helper.make_node("Mul", ["x", "factor"], ["y"])], sides[:1], sides[1:], initializer=[weight])


def choosing(path: Path) -> Path:
    """y = table[x], which fails for an x beyond the table."""
    table = numpy_helper.from_array(np.array([10, 20, 30], np.float32), "table")
    gather = helper.make_node("Gather", ["table", "x"], ["y"])
    sides = tensor("x", TensorProto.INT64, "batch"), tensor("y", TensorProto.FLOAT, "batch")
    return save(path, [gather], [sides[0]], [sides[1]], initializer=[table])


def echoing(path: Path) -> Path:
    """y = x, for text."""
    sides = [tensor(name, TensorProto.STRING, "batch") for name in "xy"]
    return save(path, [helper.make_node("Identity", ["x"], ["y"])], sides[:1], sides[1:])


def dividing(path: Path) -> Path:
    """y = 1 / x, which may be infinite."""
    sides = [tensor(name, TensorProto.FLOAT, "batch") for name in "xy"]
    return save(path, [helper.make_node("Reciprocal", ["x"], ["y"])], sides[:1], sides[1:])


def summing(path: Path) -> Path:
    """y = the sum of all rows of x: a model whose rows are not its own."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=1)
    sides = tensor("x", TensorProto.FLOAT, "batch", 2), tensor("y", TensorProto.FLOAT, "batch", 1)
    return save(path, [node], [sides[0]], [sides[1]])


def adding(path: Path) -> Path:
    """c = a + b, of inputs whose shapes must go together."""
    sides = [tensor(name, TensorProto.FLOAT, "batch", "width") for name in "abc"]
    return save(path, [helper.make_node("Add", ["a", "b"], ["c"])], sides[:2], sides[2:])


def external_tensor(name: str = "factor", location: str = "weights.bin") -> Any:
    """A tensor whose data is in another file."""
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    made.external_data.append(onnx.StringStringEntryProto(key="location", value=location))
    return made
