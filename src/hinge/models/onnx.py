"""Local models in the ONNX format, run by onnxruntime.

A model file is trusted, with the files beside it in which it keeps data: onnxruntime reads them by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidMessage, InvalidModel
from hinge.models import (
    NO_ZIPMAP,
    FileModel,
    OneInput,
    Output,
    check_inputs,
    choose_outputs,
    first_line,
    loading,
    read_file,
)
from hinge.oip.protobuf import integers, parts
from hinge.oip.tensors import TensorSpec, dtype_of

if TYPE_CHECKING:
    import onnxruntime

SMALL_MODEL_BYTES = 16 * 2**20  # up to here, sharing the work among threads costs more than it saves
MAX_NAMES = 3  # that an error shows

_DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "float": "FP32", "double": "FP64", "string": "BYTES",
}  # fmt: skip  # several to a line
_MAPS = re.compile(r"seq\(map\((?:int64|string),tensor\(float\)\)\)")  # what ZipMap gives, for each sample
_CLASS_LABELS = (b"classlabels_ints", b"classlabels_int64s", b"classlabels_strings")  # attributes of classifiers
_PICKS, _KEEPS = ("ArrayFeatureExtractor", "Gather"), ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
_RAW = {6: "<i4", 7: "<i8"}  # data types of tensors, as bytes


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
    size = sum(file.stat().st_size for file in model_files(path))
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = (size <= SMALL_MODEL_BYTES) if threads is None else threads  # 0: one per core
    options.log_severity_level = 4  # what goes wrong is raised; it need not be printed, too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait leave the core alone
    with loading(path, _problem):
        # Without the fallback, which prints to standard output and tries the same provider again.
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"], enable_fallback=0)


def model_files(path: str | Path) -> tuple[Path, ...]:
    """The file of a model, and those beside it in which it keeps its weights.

    >>> from hinge.fashion import local_model
    >>> [file.name for file in model_files(local_model())]
    ['fashion-local.onnx']
    """
    content = read_file(Path(path))
    try:
        [graph] = parts(memoryview(content), 7)[7]
        entries = [parts(entry, 1, 2) for tensor in parts(graph, 5)[5] for entry in parts(tensor, 13)[13]]
        names = {bytes(entry[2][0]).decode() for entry in entries if bytes(entry[1][0]) == b"location"}
    except (LookupError, TypeError, ValueError):  # a damaged file, of which the runtime says what is wrong
        names = set()
    beside = (Path(path).parent / name for name in sorted(names))
    return Path(path), *(file for file in beside if file.is_file())


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


def _spec(role: str, node: Any) -> TensorSpec:
    form = node.type.removeprefix("tensor(").removesuffix(")")
    if is_map(node):
        return TensorSpec(node.name, "FP32", (-1, -1))
    if form not in _DATATYPES:
        raise InvalidModel(f"{role} {node.name!r}: {node.type} is not a type that can be sent; export it as a tensor")
    shape = tuple(size if isinstance(size, int) else -1 for size in node.shape)
    try:
        return TensorSpec(node.name, _DATATYPES[form], shape)
    except InvalidMessage as error:
        raise InvalidModel(f"{role} {node.name!r}: {error}") from None


def _problem(error: Exception) -> str:
    """What the runtime says is wrong, without its codes and the places in its source."""
    return re.sub(r"^/\S+:\d+ .*\) ", "", first_line(error).rpartition(" : ")[2])


class OnnxModel(FileModel):
    """A model from a file, as a function from sample to scores.

    It has one input, whose first axis is for samples; the scores are the output named, or else the first of real
    numbers. Labels that the model gives beside them are its answers; a ZipMap, as skl2onnx adds it, is seen through.

    >>> from hinge import fashion
    >>> images, labels = fashion.labelled_images()
    >>> scores = OnnxModel(fashion.local_model())(images[0])
    >>> fashion.CLASSES[scores.argmax()], fashion.CLASSES[labels[0]]
    ('ankle boot', 'ankle boot')
    """

    def __init__(self, path: str | Path, *, output: str | None = None, threads: int | None = None) -> None:
        session = open_session(path, threads=threads)
        with loading(path, _problem):
            inputs, outputs = input_specs(session), [_output(node) for node in session.get_outputs()]
        check_inputs(path, [spec.name for spec in inputs])
        scores, label = choose_outputs(path, outputs, output)
        super().__init__(path, OneInput(str(path), inputs[0].shape, dtype_of(inputs[0].datatype)), model_files(path))
        self._name, self._outputs, self._run = inputs[0].name, [scores.name], session.run
        if label is not None:
            self._both, self.labelled = [label.name, scores.name], self._labelled
            self.classes = label_classes(self.path.read_bytes(), label.name)
            self._names: set[str] = set()  # labels beside one number for a sample, which speaks of two classes

    def _scores(self, input: NDArray[Any]) -> NDArray[Any]:
        return as_array(self._run(self._outputs, {self._name: input})[0])

    def _labelled(self, samples: Sequence[Any]) -> tuple[list[Any], NDArray[Any]]:
        """The model's own labels of the samples, and their scores."""
        parts = [self.input.many(samples)] if self.input.batches else [self.input.one(sample) for sample in samples]
        found = [self._run(self._both, {self._name: part}) for part in parts if len(part)]
        labels = [label for labels, _ in found for label in labels.ravel().tolist()]
        arrays = [as_array(scores) for _, scores in found]
        if any(scores.size == len(label) for scores, (label, _) in zip(arrays, found, strict=True)):
            self._check_two(labels)
        rows = [self._rows(scores, len(label)) for scores, (label, _) in zip(arrays, found, strict=True)]
        return labels, np.concatenate(rows)

    def _check_two(self, labels: list[Any]) -> None:
        """Refuse labels of more than two classes beside one number for a sample, which speaks of two."""
        names = {label for label in labels if isinstance(label, str)} | self._names
        odd = next((label for label in labels if not isinstance(label, str) and label not in (0, 1)), None)
        if odd is not None or len(names) > 2:
            some = ", ".join(f"{name!r:.40}" for name in sorted(names)[:MAX_NAMES])
            found = f"label {odd}" if odd is not None else f"labels {some}"
            problem = f"one number for a sample is the probability of the second of two classes, and there is {found}"
            remedy = f"name the output with the scores (--output), or export it with {NO_ZIPMAP}"
            raise InvalidModel(f"{self.path}: {problem}: {remedy}")
        self._names = names


def label_classes(content: bytes, output: str) -> list[Any] | None:
    """The labels that an output may have, where the model says so as exporters of classifiers write it; else None.

    They are an attribute of the node that classifies, or a tensor from which a node picks the label. Behind it there
    may be casts and changes of shape.
    """
    try:
        [graph] = parts(memoryview(content), 7)[7]
        found = parts(graph, 1, 5)
        nodes = [parts(node, 1, 2, 4, 5) for node in found[1]]  # inputs, outputs, kind, attributes
        made = {bytes(name).decode(): node for node in nodes for name in node[2]}
        tensors = {bytes(name).decode(): each for each in found[5] for name in parts(each, 8)[8]}
        while node := made.pop(output, None):  # no node twice, in a graph that makes no sense
            kind, output = bytes(node[4][0]).decode(), bytes(node[1][0]).decode()
            for attribute in node[5]:
                if bytes(parts(attribute, 1)[1][0]) in _CLASS_LABELS:
                    known = parts(attribute, 8, 9)  # numbers, texts
                    return [bytes(text).decode() for text in known[9]] or integers(known[8]) or None
            if kind in _PICKS and output in tensors:
                return _elements(tensors[output])
            if kind not in _KEEPS:
                return None
    except (LookupError, TypeError, ValueError):  # it says so otherwise, or not at all
        pass
    return None


def _elements(tensor: memoryview) -> list[Any] | None:
    """The numbers or texts of a tensor that holds them itself."""
    known = parts(tensor, 2, 5, 6, 7, 9)  # data type, numbers of 32 bits, texts, numbers of 64 bits, bytes
    if known[9] and known[2][0] in _RAW:
        numbers: list[Any] = np.frombuffer(known[9][0], _RAW[known[2][0]]).tolist()
        return numbers or None
    return [bytes(text).decode() for text in known[6]] or integers([*known[5], *known[7]]) or None


def _output(node: Any) -> Output:
    """What an output is."""
    form = node.type.removeprefix("tensor(").removesuffix(")")
    if form in _DATATYPES:
        shape = [size if isinstance(size, int) else -1 for size in node.shape]
        return Output(node.name, "O" if form == "string" else dtype_of(_DATATYPES[form]).kind, shape)
    return Output(node.name, "f" if is_map(node) else node.type, [-1, -1])


def is_map(node: Any) -> bool:
    """Whether an output is a sequence of maps, from classes to numbers, as ZipMap gives it."""
    return _MAPS.fullmatch(node.type) is not None


def as_array(output: Any) -> NDArray[Any]:
    """What a session gave for an output: of a sequence of maps, from classes to numbers, the numbers.

    >>> as_array([{"cat": 0.25, "dog": 0.75}])
    array([[0.25, 0.75]], dtype=float32)
    """
    if not isinstance(output, list):
        array: NDArray[Any] = np.asarray(output)
        return array
    return np.array([list(row.values()) for row in output], np.float32)
