"""ONNX models from files that need not be trusted: looked through before they run, and run from the bytes looked at.

A model may keep its weights in other files, which it names by path ("external data"); a model from a stranger could so
have any file read (CVE-2024-27318 and its kin). Such models are refused. To find them without opening anything, the
file is walked as what it is, a tree of Protocol Buffers messages; the tables below say where in it tensors may be.

Local models in the ONNX format, run by onnxruntime.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hinge.errors import InvalidMessage, InvalidModel
from hinge.models.base import first_line, read_file
from hinge.oip.tensors import TensorSpec, read_varint

if TYPE_CHECKING:
    import onnxruntime
from numpy.typing import NDArray

from hinge.models.base import FileModel, OneInput, check_ends
from hinge.oip.tensors import dtype_of

MAX_DEPTH = 64  # of messages in messages; a graph inside a graph takes three
SMALL_MODEL_BYTES = 16 * 2**20  # up to here, sharing the work among threads costs more than it saves

_DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "float": "FP32", "double": "FP64", "string": "BYTES",
}  # fmt: skip

# Field numbers of onnx.proto that lead to tensors, and what kind of message they hold.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # fields of a tensor
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # how a field is written


def open_session(path: str | Path, *, threads: int | None = None) -> onnxruntime.InferenceSession:
    """Load a model on the processor; with no number of threads given, one for small models and else one per core.

    >>> open_session("missing.onnx")
    Traceback (most recent call last):
    hinge.errors.InvalidModel: missing.onnx: there is no such file
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"models need onnxruntime ({error}): pip install 'hinge-gate[device]'") from error
    content = read_file(Path(path))
    check_content(content, str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = (len(content) <= SMALL_MODEL_BYTES) if threads is None else threads  # 0: per core
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised; it need not be printed, too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait leave the core alone
    options.add_session_config_entry("session.load_model_format", "ONNX")  # nothing but what was checked
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base
        raise InvalidModel(f"{path}: the model cannot be run: {_problem(error)}") from None


def input_specs(session: onnxruntime.InferenceSession) -> tuple[TensorSpec, ...]:
    """What the model takes, in the words of the Open Inference Protocol.

    >>> from hinge.fashion import local_model
    >>> input_specs(open_session(local_model()))
    (TensorSpec(name='image', datatype='UINT8', shape=(-1, 28, 28)),)
    """
    return tuple(_spec("input", node) for node in session.get_inputs())


def output_specs(session: onnxruntime.InferenceSession) -> tuple[TensorSpec, ...]:
    """What the model gives.

    >>> from hinge.fashion import local_model
    >>> output_specs(open_session(local_model()))
    (TensorSpec(name='scores', datatype='FP32', shape=(-1, 10)),)
    """
    return tuple(_spec("output", node) for node in session.get_outputs())


def check_content(content: bytes, owner: str) -> None:
    """Refuse a model that is damaged, or that keeps data in other files.

    >>> check_content(b"\\x08", "m.onnx")
    Traceback (most recent call last):
    hinge.errors.InvalidModel: m.onnx: not an ONNX model, or a damaged one
    """
    try:
        graphs = _walk(memoryview(content))
    except ValueError:
        graphs = 0
    except _External:
        raise InvalidModel(
            f"{owner}: the model keeps data in other files, which is refused; save it as one file"
        ) from None
    if not graphs:
        raise InvalidModel(f"{owner}: not an ONNX model, or a damaged one")


class _Damaged(ValueError):
    """No tree of messages, or one that is too deep."""


class _External(Exception):
    """A tensor's data is elsewhere."""


def _walk(content: memoryview) -> int:
    """Look at every message that may hold a tensor, and count the graphs."""
    graphs = 0
    waiting = [("model", content, 1)]
    while waiting:
        kind, message, depth = waiting.pop()
        graphs += kind == "graph"
        if depth > MAX_DEPTH:
            raise _Damaged
        inner = _FIELDS.get(kind, {})
        for number, value in _fields(message):
            if kind == "tensor":
                _check_tensor(number, value)
            elif number in inner and isinstance(value, memoryview):
                waiting.append((inner[number], value, depth + 1))
    return graphs


def _check_tensor(number: int, value: memoryview | int) -> None:
    if number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0):
        raise _External


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a message: numbers, and the bytes of what has a length."""
    position = 0
    while position < len(message):
        key, position = read_varint(message, position)
        number, form = key >> 3, key & 7
        if not 0 < number < 2**29:
            raise _Damaged
        if form == _VARINT:
            value, position = read_varint(message, position)
            yield number, value
            continue
        if form == _LENGTH:
            size, position = read_varint(message, position)
        elif form in (_FIXED64, _FIXED32):
            size = 8 if form == _FIXED64 else 4
        else:
            raise _Damaged
        end = position + size
        if end > len(message):
            raise _Damaged
        yield number, message[position:end] if form == _LENGTH else 0
        position = end


def _spec(role: str, node: Any) -> TensorSpec:
    form = node.type.removeprefix("tensor(").removesuffix(")")
    if form not in _DATATYPES:
        raise InvalidModel(f"{role} {node.name!r}: {node.type} is not a type that can be sent")
    shape = tuple(size if isinstance(size, int) else -1 for size in node.shape)
    try:
        return TensorSpec(node.name, _DATATYPES[form], shape)
    except InvalidMessage as error:
        raise InvalidModel(f"{role} {node.name!r}: {error}") from None


def _problem(error: Exception) -> str:
    """What the runtime says is wrong, without its codes and the places in its source."""
    return re.sub(r"^/\S+:\d+ .*\) ", "", first_line(error).rpartition(" : ")[2])[:200]


class OnnxModel(FileModel):
    """A model from a file, as a function from sample to scores.

    It has one input, whose first axis is for samples; of several outputs the first, or the one named, are the scores.

    >>> from hinge import fashion
    >>> images, labels = fashion.labelled_images()
    >>> scores = OnnxModel(fashion.local_model())(images[0])
    >>> fashion.CLASSES[scores.argmax()], fashion.CLASSES[labels[0]]
    ('ankle boot', 'ankle boot')
    """

    def __init__(self, path: str | Path, *, output: str | None = None, threads: int | None = None) -> None:
        session = open_session(path, threads=threads)
        inputs, outputs = input_specs(session), output_specs(session)
        check_ends(path, len(inputs), len(outputs))
        names = [spec.name for spec in outputs]
        if output is not None and output not in names:
            raise InvalidModel(f"{path}: the model has no output {output!r}; it has {', '.join(map(repr, names))}")
        super().__init__(path, OneInput(str(path), inputs[0].shape, dtype_of(inputs[0].datatype)))
        self._name, self._outputs, self._run = inputs[0].name, [output or names[0]], session.run

    def _scores(self, input: NDArray[Any]) -> NDArray[Any]:
        scores: NDArray[Any] = self._run(self._outputs, {self._name: input})[0]
        return scores
