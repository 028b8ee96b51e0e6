"""An ONNX model in onnxruntime, and its tensors in the words of the Open Inference Protocol."""

from collections.abc import Mapping
from typing import Any, TypedDict

import onnxruntime

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(double)": "FP64",
    "tensor(float)": "FP32",
    "tensor(float16)": "FP16",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(int8)": "INT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(uint8)": "UINT8",
}


class Spec(TypedDict):
    """Name, datatype and shape of a tensor, -1 for a dimension of any size."""

    name: str
    datatype: str
    shape: list[int]


class OnnxModel:
    """A model on one thread, so that all peers compute alike and none takes the cores of those it is compared with."""

    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [_spec(node) for node in self._session.get_inputs()]
        self.outputs = [_spec(node) for node in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The model's outputs by name, as arrays."""
        names = [spec["name"] for spec in self.outputs]
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))


def _spec(node: Any) -> Spec:
    shape = [size if isinstance(size, int) else -1 for size in node.shape]
    return {"name": node.name, "datatype": _DATATYPES[node.type], "shape": shape}
