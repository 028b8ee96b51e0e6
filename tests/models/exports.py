"""Small ONNX models that end as those of skl2onnx, PyTorch and Keras do."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from hinge import OnnxModel
from tests.server.models import tensor

CLASSES, FEATURES = 3, 4
RANDOM = np.random.default_rng(5)
WEIGHTS = RANDOM.normal(0, 1, (CLASSES, FEATURES)).astype(np.float32)
SAMPLES: Any = RANDOM.normal(0, 1, (100, FEATURES)).astype(np.float32)
SCORES: Any = SAMPLES @ WEIGHTS.T
PROBABILITIES: Any = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
OPSET = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def save(path: Path, nodes: list[Any], outputs: list[Any], *initializers: Any) -> OnnxModel:
    graph = helper.make_graph(nodes, "g", [tensor("X", FLOAT, None, FEATURES)], outputs, list(initializers))
    path.write_bytes(helper.make_model(graph, opset_imports=OPSET, ir_version=8).SerializeToString())
    return OnnxModel(path)


def gemm(weights: Any = WEIGHTS, to: str = "scores") -> tuple[Any, Any]:
    node = helper.make_node("Gemm", ["X", "weights"], [to], transB=1)
    return node, numpy_helper.from_array(np.asarray(weights, np.float32), "weights")


def linear_classifier(path: Path, zipmap: bool, classes: dict[str, Any]) -> OnnxModel:
    """The graph that skl2onnx makes of a LogisticRegression."""
    kind = INT64 if "classlabels_ints" in classes else STRING
    scorer = helper.make_node(
        "LinearClassifier", ["X"], ["label", "raw"], domain="ai.onnx.ml", post_transform="SOFTMAX", multi_class=0,
        coefficients=WEIGHTS.ravel().tolist(), intercepts=[0.0] * CLASSES, **classes,
    )  # fmt: skip  # several to a line
    normal = helper.make_node("Normalizer", ["raw"], ["probabilities"], domain="ai.onnx.ml", norm="L1")
    label = tensor("label", kind, None)
    if not zipmap:
        return save(path, [scorer, normal], [label, tensor("probabilities", FLOAT, None, CLASSES)])
    keys = {key.replace("_ints", "_int64s"): value for key, value in classes.items()}
    node = helper.make_node("ZipMap", ["probabilities"], ["output_probability"], domain="ai.onnx.ml", **keys)
    maps = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(FLOAT, []))
    sequence = helper.make_value_info("output_probability", helper.make_sequence_type_proto(maps))
    return save(path, [scorer, normal, node], [label, sequence])
