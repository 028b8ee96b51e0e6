"""A model as it runs: its session, what it takes and gives, and how it is run on one request or on several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hinge.errors import InvalidModel
from hinge.models.onnx import input_specs, open_session, output_specs
from hinge.oip.messages import MAX_TENSORS
from hinge.oip.tensors import Tensor, TensorSpec
from hinge.server.refusal import Refusal

Tensors = Mapping[str, Tensor]
Mark = tuple[int, int, int] | None  # what changes with a file's content; None: there is none


@dataclass(frozen=True, eq=False)
class Model:
    """A model that is loaded. One that is `batchable` treats the rows of its tensors one by one."""

    session: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batchable: bool
    mark: Mark = None  # of the file it was loaded from

    @classmethod
    def load(cls, path: Path, threads: int | None = None) -> Model:
        """The model in a file.

        >>> from hinge.fashion import local_model
        >>> Model.load(local_model()).batchable
        True
        """
        found = mark(path)  # before it is read: what changes afterwards will be noticed
        session = open_session(path, threads=threads)
        try:
            inputs, outputs = input_specs(session), output_specs(session)
        except InvalidModel as error:
            raise InvalidModel(f"{path}: {error}") from None
        if not 0 < len(inputs) <= MAX_TENSORS or not 0 < len(outputs) <= MAX_TENSORS:
            raise InvalidModel(f"{path}: a model that is served has 1 to {MAX_TENSORS} inputs, and as many outputs")
        axes = {node.shape[0] if node.shape else 0 for node in (*session.get_inputs(), *session.get_outputs())}
        batchable = len(axes) == 1 and not isinstance(axes.pop(), int)  # one axis of any size, by one name
        return cls(session, inputs, outputs, batchable, found)

    def fits(self, other: Model) -> bool:
        """Whether clients of the other can use this one without noticing."""
        return self.inputs == other.inputs and self.outputs == other.outputs

    def rows(self, inputs: Tensors) -> int:
        """How many rows the inputs have; 0 where they cannot be joined with others."""
        sizes = {tensor.shape[0] for tensor in inputs.values()} if self.batchable else set()
        return sizes.pop() if len(sizes) == 1 else 0

    def run(self, inputs: Tensors, options: Any) -> dict[str, Tensor]:
        """The outputs."""
        outputs = self.session.run(None, {name: _as_text(tensor) for name, tensor in inputs.items()}, options)
        return {spec.name: output for spec, output in zip(self.outputs, outputs, strict=True)}

    def run_together(self, requests: Sequence[Tensors], rows: Sequence[int], options: Any) -> list[dict[str, Tensor]]:
        """The outputs of each of several requests, which differ only in their rows, from one run."""
        joined = {name: np.concatenate([inputs[name] for inputs in requests]) for name in requests[0]}
        outputs = self.run(joined, options)
        ends = np.cumsum(rows).tolist()
        self._check_rows(outputs, ends[-1])
        spans = zip([0, *ends[:-1]], ends, strict=True)
        return [{name: tensor[start:end] for name, tensor in outputs.items()} for start, end in spans]

    def joined(self, parts: Sequence[Tensors], rows: int) -> dict[str, Tensor]:
        """The outputs of one request, from those of its slices."""
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self._check_rows(outputs, rows)
        return outputs

    def _check_rows(self, outputs: Tensors, rows: int) -> None:
        if any(len(tensor) != rows for tensor in outputs.values()):
            raise InvalidModel("the model's outputs do not have the rows of its inputs; serve it with --max-batch 1")


def run_options() -> Any:
    """Options for runs, which end early once `terminate` is set in them."""
    import onnxruntime  # here, so that its absence is told by `open_session`

    return onnxruntime.RunOptions()


def mark(path: Path) -> Mark:
    """What tells a file's content from what was there before."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _as_text(tensor: Tensor) -> Tensor:
    """The tensor; of text rather than bytes, which onnxruntime would take for objects to print."""
    if tensor.dtype.kind != "O":
        return tensor
    text = np.empty(tensor.shape, object)
    try:
        text.ravel()[:] = [element.decode("utf-8") for element in tensor.ravel().tolist()]
    except UnicodeDecodeError:
        raise Refusal(400, "invalid", "the model takes text, and an element of BYTES is not UTF-8") from None
    return text
