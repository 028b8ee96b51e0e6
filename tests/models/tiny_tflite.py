"""LiteRT models of one dense layer, `scores = weights @ sample + bias`, written as the format's flat buffers.

path.write_bytes(tiny_tflite(weights, bias))                                                    # in floats
path.write_bytes(tiny_tflite(weights, bias, Quantised(np.int8, Scale(1 / 32), Scale(0.5, 7))))  # in integers
"""

from typing import Any, NamedTuple

import flatbuffers  # type: ignore[import-untyped]  # it comes without types
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

WEIGHT_STEP = 1 / 64  # weights that are to be quantised should be multiples of it


class Scale(NamedTuple):
    """A real number is `step * (integer - zero)`."""

    step: float
    zero: int = 0


class Quantised(NamedTuple):
    """How samples and scores are written in integers."""

    dtype: type[np.integer[Any]]
    sample: Scale
    scores: Scale


class Part(NamedTuple):
    """A tensor: what it holds, or where it is of every sample anew, only the shape of that."""

    name: str
    values: NDArray[Any]
    scale: Scale | None = None
    variable: bool = False


def tiny_tflite(
    weights: NDArray[Any], bias: NDArray[Any], quantised: Quantised | None = None, *, batch: int = -1
) -> bytes:
    """The content of the file; `batch` is the size of the axis for samples."""
    parts = _quantised_parts(weights, bias, quantised) if quantised else _float_parts(weights, bias)
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.description = 3, "one dense layer"
    model.operatorCodes, model.subgraphs = [_dense_code()], [graph]
    model.buffers = [_buffer(part) for part in parts]
    graph.tensors = [_tensor(part, buffer, batch) for buffer, part in enumerate(parts, start=1)]
    graph.inputs, graph.outputs, graph.operators = [0], [3], [_dense()]
    model.buffers.insert(0, schema.BufferT())  # the first must be empty
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _float_parts(weights: NDArray[Any], bias: NDArray[Any]) -> list[Part]:
    return [
        Part("sample", np.zeros((1, weights.shape[1]), np.float32), variable=True),
        Part("weights", weights.astype(np.float32)),
        Part("bias", bias.astype(np.float32)),
        Part("scores", np.zeros((1, weights.shape[0]), np.float32), variable=True),
    ]


def _quantised_parts(weights: NDArray[Any], bias: NDArray[Any], quantised: Quantised) -> list[Part]:
    dtype = quantised.dtype
    weight = Scale(WEIGHT_STEP, 128 if dtype is np.uint8 else 0)
    product = Scale(WEIGHT_STEP * quantised.sample.step)
    return [
        Part("sample", np.zeros((1, weights.shape[1]), dtype), quantised.sample, variable=True),
        Part("weights", np.rint(weights / weight.step + weight.zero).astype(dtype), weight),
        Part("bias", np.rint(bias / product.step).astype(np.int32), product),
        Part("scores", np.zeros((1, weights.shape[0]), dtype), quantised.scores, variable=True),
    ]


def _dense_code() -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    code.version = 4  # the first with 8-bit integers of either kind
    return code


def _dense() -> Any:
    dense = schema.OperatorT()
    dense.opcodeIndex, dense.inputs, dense.outputs = 0, [0, 1, 2], [3]
    dense.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    dense.builtinOptions = schema.FullyConnectedOptionsT()
    return dense


def _buffer(part: Part) -> Any:
    buffer = schema.BufferT()
    buffer.data = None if part.variable else np.frombuffer(part.values.tobytes(), np.uint8)
    return buffer


def _tensor(part: Part, buffer: int, batch: int) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.buffer, tensor.shape = part.name, buffer, list(part.values.shape)
    tensor.type = getattr(schema.TensorType, part.values.dtype.name.upper())
    if part.variable:
        tensor.shape[0], tensor.shapeSignature = abs(batch), [batch, *part.values.shape[1:]]
    if part.scale is not None:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [part.scale.step], [part.scale.zero]
    return tensor
