"""An ONNX model as Triton's Python backend calls it: requests that Triton has batched run as one."""

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # part of Triton

from tools.peers.served.onnx_model import OnnxModel, Spec


class TritonPythonModel:
    """The class that Triton looks for in `model.py`."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Add inputs and outputs to the configuration, so that they are said once, in the ONNX file."""
        model = OnnxModel(_path(config.as_dict()))
        for spec in model.inputs:
            config.add_input(_described(spec))
        for spec in model.outputs:
            config.add_output(_described(spec))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        """Open the model."""
        self._model = OnnxModel(_path(json.loads(args["model_config"])))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer the requests of one batch."""
        inputs = {spec["name"]: _rows(requests, spec["name"]) for spec in self._model.inputs}
        first = self._model.inputs[0]["name"]
        ends = list(accumulate(len(rows) for rows in inputs[first]))
        results = self._model.run({name: np.concatenate(rows) for name, rows in inputs.items()})
        parts = {name: np.split(result, ends[:-1]) for name, result in results.items()}
        return [_response({name: part[i] for name, part in parts.items()}) for i in range(len(requests))]


def _path(config: Any) -> str:
    return str(config["parameters"]["path"]["string_value"])


def _described(spec: Spec) -> dict[str, Any]:
    # Triton's configuration leaves out the batch, the first dimension
    return {"name": spec["name"], "data_type": f"TYPE_{spec['datatype']}", "dims": spec["shape"][1:]}


def _rows(requests: Sequence[Any], name: str) -> list[Any]:
    return [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for request in requests]


def _response(outputs: dict[str, Any]) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, output) for name, output in outputs.items()])
