"""Local models in the ONNX format, run by onnxruntime; their files need not be trusted.

A file is looked through before it is loaded, and loaded from the bytes that were looked at. A model may keep weights in
other files, which it names by path ("external data"): one from a stranger could so have any file read (CVE-2024-27318
and its kin). Only those of the main graph may be elsewhere, and only in the folder of the model: the files are opened
here, and the runtime is given what is in them. Functions that call each other may stand for more nodes than any machine
could load, so nodes are counted as if every call were expanded. For both, the file is walked as what it is, a tree of
Protocol Buffers messages; the tables below say where in it tensors, nodes and functions are.
"""

from __future__ import annotations

import mmap
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hinge._checks import shown
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
from hinge.oip.protobuf import fields, integers, parts
from hinge.oip.tensors import TensorSpec, dtype_of

if TYPE_CHECKING:
    import onnxruntime

_AS_ONE = "save it as one file (torch.onnx.export: external_data=False; onnx.save_model: save_as_external_data=False)"

MAX_DEPTH = 64  # of messages in messages; a graph inside a graph takes three
MAX_NODES = 2**17  # of all graphs, once functions are expanded where they are called
_MOST_NAMES = 3  # that an error shows
SMALL_MODEL_BYTES = 16 * 2**20  # up to here, sharing the work among threads costs more than it saves

_DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "float": "FP32", "double": "FP64", "string": "BYTES",
}  # fmt: skip  # several to a line

# Field numbers of onnx.proto that lead to tensors and nodes, and what kind of message they hold.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "main", 20: "training", 25: "function"},
    "main": {1: "node", 5: "initializer", 15: "sparse"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_MAPS = re.compile(r"seq\(map\((?:int64|string),tensor\(float\)\)\)")  # what ZipMap gives, for each sample
_CLASS_LABELS = (b"classlabels_ints", b"classlabels_int64s", b"classlabels_strings")  # attributes of classifiers
_PICKS, _KEEPS = ("ArrayFeatureExtractor", "Gather"), ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
_RAW = {6: "<i4", 7: "<i8"}  # data types of tensors, as bytes
_LABELS_BYTES = 2**20  # that all labels together take, at most
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # fields of a tensor
_NAMES = {"node": (4, 7), "function": (1, 10)}  # fields of what a node calls, or a function is called: name and domain
_EXTERNAL = 1  # the data_location of a tensor whose data is in another file
_ELSEWHERE = frozenset({_EXTERNAL_DATA, _DATA_LOCATION})
_WANTED = {kind: frozenset({*inner, *_NAMES.get(kind, ())}) for kind, inner in _FIELDS.items()}
_PLAIN_NAME = re.compile(r"[^\x00-\x1f./\\:*?\"<>|][^\x00-\x1f/\\:*?\"<>|]*")  # on any system, and not hidden

_Name = tuple[bytes, bytes]
_MAIN: _Name = (b"", b"")  # in place of a function: the graphs of the model itself


def open_session(path: str | Path | OnnxFile, *, threads: int | None = None) -> onnxruntime.InferenceSession:
    """Load a model on the processor; with no number of threads given, one for small models and else one per core.

    >>> open_session("missing.onnx")
    Traceback (most recent call last):
    hinge.errors.InvalidModel: missing.onnx: there is no such file
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"models need onnxruntime ({error}): pip install 'hinge-gate[device]'") from error
    file = path if isinstance(path, OnnxFile) else OnnxFile.read(path)
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised; it need not be printed, too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait leave the core alone
    options.add_session_config_entry("session.load_model_format", "ONNX")  # nothing but what was checked
    with loading(file.path, _problem), file.opened() as data:
        options.intra_op_num_threads = (file.size <= SMALL_MODEL_BYTES) if threads is None else threads  # 0: per core
        if data and not hasattr(options, "add_external_initializers_from_files_in_memory"):
            raise InvalidModel(f"{file.path}: data in other files needs a newer onnxruntime than this; {_AS_ONE}")
        if data:
            sizes = [len(content) for content in data.values()]
            options.add_external_initializers_from_files_in_memory(list(data), list(data.values()), sizes)
        # Without the fallback, which prints to standard output and tries the same provider again.
        return onnxruntime.InferenceSession(
            file.content, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )


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


@dataclass(frozen=True)
class OnnxFile:
    """A model's file that was looked through, and the files beside it that hold its data, by the names it has for them.

    >>> from hinge.fashion import local_model
    >>> OnnxFile.read(local_model()).data
    {}
    """

    path: Path
    content: bytes
    data: dict[str, Path]

    @classmethod
    def read(cls, path: str | Path) -> OnnxFile:
        """Read it; raises `InvalidModel` if it is damaged, or keeps data outside its own folder."""
        content = read_file(Path(path))
        found = _looked_through(content, str(path))
        return cls(Path(path), content, {name: _beside(Path(path), name) for name in sorted(found)})

    @property
    def files(self) -> tuple[Path, ...]:
        """The file itself, and those of its data."""
        return self.path, *self.data.values()

    @property
    def size(self) -> int:
        """How many bytes it has, with its data."""
        return len(self.content) + sum(file.stat().st_size for file in self.data.values())

    @contextmanager
    def opened(self) -> Iterator[dict[str, mmap.mmap]]:
        """What is in the files of data, as long as the block runs."""
        with ExitStack() as stack:
            opened = {}
            for name, path in self.data.items():
                file = stack.enter_context(open(path, "rb", opener=self._open_in_folder))
                opened[name] = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            yield opened

    def _open_in_folder(self, path: str, flags: int) -> int:
        """Open a file of data step by step from the folder, following no link: one may be new since it was checked."""
        if os.open not in os.supports_dir_fd:  # Windows, where links need a privilege
            return os.open(path, flags)
        folder = self.path.parent.resolve()
        *below, name = Path(path).relative_to(folder).parts
        with ExitStack() as stack:
            at = None
            for step in (str(folder), *below):
                at = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, at)
            return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)


def check_content(content: bytes, owner: str) -> None:
    """Refuse a model that is damaged, keeps data in other files, or stands for too many nodes.

    >>> check_content(b"\\x08", "m.onnx")
    Traceback (most recent call last):
    hinge.errors.InvalidModel: m.onnx: not an ONNX model, or a damaged one
    """
    if _looked_through(content, owner):
        raise InvalidModel(f"{owner}: the model keeps data in other files, which is refused; {_AS_ONE}")


def _looked_through(content: bytes, owner: str) -> set[str]:
    """What the model calls the files in which it keeps data."""
    try:
        walk = _Walk(memoryview(content))
        nodes = walk.nodes()
    except ValueError:
        raise InvalidModel(f"{owner}: not an ONNX model, or a damaged one") from None
    except _External:
        raise InvalidModel(f"{owner}: the model keeps data in other files, which is refused; {_AS_ONE}") from None
    if nodes > MAX_NODES:
        raise InvalidModel(f"{owner}: a model may have {MAX_NODES} nodes with its functions expanded, this has more")
    return walk.locations


def _beside(model: Path, name: str) -> Path:
    """The file of that name in the folder of the model, or below it."""
    problem = f"{model}: the model keeps data in other files, and {shown(name)}"
    if not all(_PLAIN_NAME.fullmatch(part) for part in name.split("/")):
        raise InvalidModel(f"{problem} is not the plain name of one in its folder; {_AS_ONE}")
    try:
        folder = model.parent.resolve(strict=True)
        path = (folder / name).resolve(strict=True)
        has_data = path.is_file() and path.stat().st_size > 0
    except FileNotFoundError:
        raise InvalidModel(f"{problem} is not beside it; copy it there") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidModel(f"{problem} cannot be opened: {type(error).__name__}") from None
    if not path.is_relative_to(folder):
        raise InvalidModel(f"{problem} is a link that leaves its folder; copy the file there")
    if not has_data:
        raise InvalidModel(f"{problem} is not a file with data in it")
    return path


class _External(Exception):
    """A tensor's data is elsewhere, where it must not be."""


class _Walk:
    """All messages of a model that may hold a tensor or a node: what each function, and the model itself, calls."""

    def __init__(self, content: memoryview) -> None:
        self._calls: dict[_Name, Counter[_Name]] = {_MAIN: Counter()}
        self.locations: set[str] = set()  # of the main graph's data in other files
        graphs = 0
        waiting = [("model", content, 1, _MAIN)]
        while waiting:
            kind, message, depth, within = waiting.pop()
            graphs += kind in ("main", "graph")
            if depth > MAX_DEPTH:
                raise ValueError("nested too deep")
            found = list(fields(message, _WANTED.get(kind, _ELSEWHERE)))
            if kind == "function":
                within = _name(kind, found)
                self._calls.setdefault(within, Counter())
            elif kind == "node":
                self._calls[within][_name(kind, found)] += 1
            elif kind == "initializer":
                self.locations.update(_locations(found))
            elif kind == "tensor" and _locations(found):
                raise _External
            inner = _FIELDS.get(kind, {})
            for number, value in found:
                if number in inner and isinstance(value, memoryview):
                    waiting.append((inner[number], value, depth + 1, within))
        if not graphs:
            raise ValueError("no graph")

    def nodes(self) -> int:
        """How many nodes the model has once every call of a function is expanded, or one more than it may have."""
        counts: dict[_Name, int] = {}
        path = {_MAIN: None}  # in order: what is being counted, each called by the one before
        while path:
            current = next(reversed(path))
            called = self._calls[current]
            missing = next((name for name in called if name in self._calls and name not in counts), None)
            if missing in path:
                raise ValueError("a function calls itself")
            if missing is None:
                total = sum(times * (1 + counts.get(name, 0)) for name, times in called.items())
                counts[current] = min(total, MAX_NODES + 1)
                del path[current]
            else:
                path[missing] = None
        return counts[_MAIN]


def _name(kind: str, found: list[tuple[int, memoryview | int]]) -> _Name:
    name, domain = (
        b"".join(bytes(value) for number, value in found if number == wanted and isinstance(value, memoryview))
        for wanted in _NAMES[kind]
    )
    return name, b"" if domain == b"ai.onnx" else domain  # two names of the same


def _locations(tensor: list[tuple[int, memoryview | int]]) -> list[str]:
    """What a tensor calls the file its data is in, if it is elsewhere; one that is unclear about it is refused."""
    places = [value for number, value in tensor if number == _DATA_LOCATION]
    entries = [value for number, value in tensor if number == _EXTERNAL_DATA]
    if not entries and not any(places):
        return []
    told = [{number: bytes(text) for number, text in fields(entry) if isinstance(text, memoryview)}
            for entry in entries if isinstance(entry, memoryview)]  # fmt: skip  # several to a line
    names = [entry.get(2, b"") for entry in told if entry.get(1) == b"location"]
    if places != [_EXTERNAL] or len(names) != 1:
        raise _External
    return [names[0].decode()]


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
        file = OnnxFile.read(path)
        session = open_session(file, threads=threads)
        with loading(path, _problem):
            inputs, outputs = input_specs(session), [_output(node) for node in session.get_outputs()]
        check_inputs(path, [spec.name for spec in inputs])
        scores, label = choose_outputs(path, outputs, output)
        super().__init__(path, OneInput(str(path), inputs[0].shape, dtype_of(inputs[0].datatype)), file.files)
        self._name, self._outputs, self._run = inputs[0].name, [scores.name], session.run
        if label is not None:
            self._both, self.labelled = [label.name, scores.name], self._labelled
            self.classes = label_classes(file.content, label.name)
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
            some = ", ".join(f"{name!r:.40}" for name in sorted(names)[:_MOST_NAMES])
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
                if len(attribute) <= _LABELS_BYTES and bytes(parts(attribute, 1)[1][0]) in _CLASS_LABELS:
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
    if len(tensor) > _LABELS_BYTES:
        return None
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
