"""How samples become the tensors that a remote model takes, and how the tensors that it gives become labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hinge.errors import InvalidMessage, RemoteFailed
from hinge.gate.protocol.metadata import ModelMetadata
from hinge.gate.protocol.tensors import Tensor, TensorSpec, cast, dtype_of


@dataclass(frozen=True)
class Contract:
    """What the remote's model takes and gives, as far as it says so."""

    inputs: tuple[TensorSpec, ...]
    output: TensorSpec | str

    @property
    def batches(self) -> bool:
        """Whether one request may hold many samples."""
        return all(spec.shape[:1] == (-1,) for spec in self.inputs)

    @property
    def classes(self) -> int | None:
        """How many classes the model scores, if it says so.

        >>> Contract((), TensorSpec("scores", "FP32", (-1, 10))).classes
        10
        """
        if isinstance(self.output, str) or not self.output.datatype.startswith("FP"):
            return None
        sizes = [size for size in self.output.shape if size != 1]
        return sizes[-1] if sizes and sizes[-1] > 1 and max(sizes[:-1], default=-1) == -1 else None

    def tensors(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """The samples as the model's inputs, along a first axis where the model has one for them.

        A sample is an array, or where the model has several inputs a mapping from their names to arrays.

        >>> contract = Contract((TensorSpec("x", "FP32", (-1, 2)),), "y")
        >>> contract.tensors([[1, 2], [3, 4]])["x"].tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        >>> contract.tensors([[1, 2, 3]])
        Traceback (most recent call last):
        hinge.errors.RemoteFailed: tensor 'x': shape must be [-1, 2], got [1, 3]
        """
        try:
            return {spec.name: self._tensor(spec, samples) for spec in self.inputs}
        except (InvalidMessage, KeyError, TypeError, ValueError) as error:
            raise RemoteFailed(str(error), "invalid") from error

    def _tensor(self, spec: TensorSpec, samples: Sequence[Any]) -> Tensor:
        values = [_value(spec, sample, len(self.inputs)) for sample in samples]
        alone = len(values) == 1 and len(spec.shape) == values[0].ndim  # the model has no axis for samples
        tensor: Tensor = values[0] if alone else np.stack(values)
        dtype = dtype_of(spec.datatype)
        if tensor.dtype != dtype and dtype.kind != "O":
            tensor = cast(f"tensor {spec.name!r}", tensor, dtype)
        spec.check(tensor)
        return tensor

    def labels(self, outputs: Mapping[str, Tensor], samples: int) -> list[Any]:
        """The label of each sample: the class that scores highest, or the number or name that the model itself gives.

        >>> Contract((), "y").labels({"y": np.array([[0.1, 0.9], [0.7, 0.3]])}, 2)
        [1, 0]
        >>> Contract((), "y").labels({"y": np.array([[0.1, np.nan]])}, 1)
        Traceback (most recent call last):
        hinge.errors.RemoteFailed: the scores are not finite
        """
        name = self.output if isinstance(self.output, str) else self.output.name
        tensor = outputs[name] if name in outputs else next(iter(outputs.values()))
        rows = tensor.reshape(1, -1) if samples == 1 and tensor.ndim < 2 else tensor
        if len(rows) != samples or rows.ndim > 2:
            raise RemoteFailed(f"{samples} samples have an output of shape {list(tensor.shape)}", "invalid")
        if rows.dtype.kind != "f":
            return _named(rows)
        if rows.ndim != 2 or rows.shape[1] < 2:
            raise RemoteFailed(f"scores of shape {list(tensor.shape)} have no classes", "invalid")
        if not np.isfinite(rows).all():
            raise RemoteFailed("the scores are not finite", "invalid")
        labels: list[Any] = rows.argmax(axis=1).tolist()
        return labels


def contract_of(metadata: ModelMetadata, input: str | None, output: str | None) -> Contract:
    """What a model takes and gives, by its metadata; names that it does not tell must be given."""
    inputs = tuple(spec for spec in metadata.inputs if input in (None, spec.name))
    if not inputs:
        known = ", ".join(repr(spec.name) for spec in metadata.inputs) or "none"
        raise RemoteFailed(f"model {metadata.name!r} has no input {input!r}; it tells of {known}", "invalid")
    specs = [spec for spec in metadata.outputs if output in (None, spec.name)]
    if not specs and (output is None or metadata.outputs):
        known = ", ".join(repr(spec.name) for spec in metadata.outputs) or "none"
        raise RemoteFailed(f"model {metadata.name!r} has no output {output!r}; it tells of {known}", "invalid")
    return Contract(inputs, specs[0] if specs else str(output))


def _value(spec: TensorSpec, sample: Any, inputs: int) -> Tensor:
    if isinstance(sample, Mapping):
        return np.asarray(sample[spec.name])
    if inputs != 1:
        raise TypeError(f"the model has {inputs} inputs, so a sample must be a mapping from their names")
    return np.asarray(sample)


def _named(rows: Tensor) -> list[Any]:
    if rows.ndim == 2 and rows.shape[1] != 1:
        raise RemoteFailed(f"an output of shape {list(rows.shape)} is no label for each sample", "invalid")
    labels = rows.ravel().tolist()
    return [label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in labels]
