"""The models that are served, loaded from files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hinge import fashion
from hinge._checks import did_you_mean
from hinge.errors import InvalidMessage, InvalidModel, InvalidValue, UnknownName
from hinge.models.onnx import as_array, input_specs, is_map, open_session, output_specs
from hinge.oip.messages import MAX_TENSORS, Message, ModelMetadata, build_model_metadata, model_name
from hinge.oip.tensors import Tensor, TensorSpec

VERSION = "1"  # the only one of each model
SHIPPED = {"fashion": fashion.remote_model, "fashion-local": fashion.local_model}

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Place:
    """A model's name and the path of its file."""

    name: str
    path: Path

    @classmethod
    def parse(cls, text: str | Path) -> Place:
        """Read NAME=PATH; or PATH, whose stem is the name; or the name of a model that comes with the package.

        >>> Place.parse("digits=models/v2.onnx")
        Place(name='digits', path=PosixPath('models/v2.onnx'))
        >>> Place.parse("models/digits.onnx").name, Place.parse("fashion").name
        ('digits', 'fashion')
        """
        named = re.fullmatch(r"([^/\\]*?)=(.*)", text, re.DOTALL) if isinstance(text, str) else None
        path = Path(named[2] if named else text)
        name = named[1] if named else path.stem
        if not named and not path.suffix and len(path.parts) <= 1 and not path.is_file():
            if path.name not in SHIPPED:
                raise UnknownName(f"there is no model {path.name!r}{did_you_mean(path.name, SHIPPED)}")
            name, path = path.name, SHIPPED[path.name]()
        if path.suffix.lower() in (".tflite", ".xml"):
            raise InvalidModel(f"{text}: ONNX models are served; a device runs this one itself: --remote {path}")
        try:
            return cls(model_name(name), path)
        except InvalidMessage as error:
            raise InvalidModel(f"{text}: {error}; give it one: NAME=PATH") from None


def parse_places(texts: Sequence[str | Path]) -> tuple[Place, ...]:
    """Read several, of different names."""
    places = tuple(Place.parse(text) for text in texts)
    if not places:
        raise InvalidValue("Server", "models", "must be one model at least, got none")
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        problem = f"must have different names, got {twice[0]!r} twice: give one as NAME=PATH"
        raise InvalidValue("Server", "models", problem)
    return places


@dataclass(frozen=True, eq=False)
class Model:
    """A model that is loaded. One that is `batchable` treats the rows of its tensors one by one."""

    session: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batchable: bool
    run_options: Callable[[], Any]  # makes options for a run, which ends early once `terminate` is set in them
    refusals: tuple[type[Exception], ...] = ()  # what a run raises if the inputs are not such as the model takes

    @classmethod
    def load(cls, path: Path, threads: int | None = None) -> Model:
        """The model in a file.

        >>> from hinge.fashion import local_model
        >>> Model.load(local_model()).batchable
        True
        """
        session = open_session(path, threads=threads)
        try:
            inputs, outputs = input_specs(session), output_specs(session)
        except InvalidModel as error:
            raise InvalidModel(f"{path}: {error}") from None
        if not 0 < len(inputs) <= MAX_TENSORS or not 0 < len(outputs) <= MAX_TENSORS:
            raise InvalidModel(f"{path}: a model that is served has 1 to {MAX_TENSORS} inputs, and as many outputs")
        nodes = [node for node in (*session.get_inputs(), *session.get_outputs()) if not is_map(node)]
        axes = {node.shape[0] if node.shape else 0 for node in nodes}
        batchable = len(axes) == 1 and not isinstance(axes.pop(), int)  # one axis of any size, by one name
        import onnxruntime  # here: `open_session` has explained its absence
        from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

        return cls(session, inputs, outputs, batchable, onnxruntime.RunOptions, (InvalidArgument,))

    @cached_property
    def takes_text(self) -> bool:
        return any(spec.datatype == "BYTES" for spec in self.inputs)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.outputs)

    def run(self, inputs: Tensors, options: Any) -> Tensors:
        """The outputs; raises `InvalidMessage` for inputs that the model does not take."""
        if self.takes_text:
            inputs = {name: _as_text(tensor) for name, tensor in inputs.items()}
        try:
            found = self.session.run(self.output_names, inputs, options)
        except self.refusals as error:
            raise InvalidMessage(str(error)) from error
        return dict(zip(self.output_names, map(as_array, found), strict=True))

    def run_together(self, requests: list[Tensors], rows: list[int], options: Any) -> list[Tensors]:
        """The outputs of each of several requests, which differ only in their rows, from one run."""
        joined = {name: np.concatenate([inputs[name] for inputs in requests]) for name in requests[0]}
        outputs = self.run(joined, options)
        ends = np.cumsum(rows).tolist()
        self._check_rows(outputs, ends[-1])
        spans = zip([0, *ends[:-1]], ends, strict=True)
        return [{name: tensor[start:end] for name, tensor in outputs.items()} for start, end in spans]

    def joined(self, parts: list[Tensors], rows: int) -> Tensors:
        """The outputs of one request, from those of its slices."""
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self._check_rows(outputs, rows)
        return outputs

    def _check_rows(self, outputs: Tensors, rows: int) -> None:
        if any(len(tensor) != rows for tensor in outputs.values()):
            raise InvalidModel("the model's outputs do not have the rows of its inputs; serve it with --max-batch 1")


def _as_text(tensor: Tensor) -> Tensor:
    """The tensor, with text in place of bytes, which onnxruntime would take for objects to print."""
    if tensor.dtype.kind != "O":
        return tensor
    text = np.empty(tensor.shape, object)
    try:
        text.ravel()[:] = [element.decode("utf-8") for element in tensor.ravel().tolist()]
    except UnicodeDecodeError:
        raise InvalidMessage("the model takes text, and an element of BYTES is not UTF-8") from None
    return text


def describe(name: str, model: Model) -> Message:
    """A model's metadata, as clients ask for it."""
    return build_model_metadata(ModelMetadata(name, "onnxruntime_onnx", model.inputs, model.outputs, (VERSION,)))
