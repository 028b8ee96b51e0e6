"""Local models in the ONNX format, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidModel
from hinge.gate.local.onnx_file import input_specs, open_session, output_specs
from hinge.gate.local.tensors import OneInput
from hinge.gate.protocol.tensors import dtype_of


class OnnxModel:
    """A model from a file, as a function from sample to scores.

    It has one input, whose first axis is for samples; of several outputs the first, or the one named, are the scores.

    >>> from hinge import fashion
    >>> images, labels = fashion.labelled_images()
    >>> scores = OnnxModel(fashion.local_model())(images[0])
    >>> fashion.CLASSES[scores.argmax()], fashion.CLASSES[labels[0]]
    ('ankle boot', 'ankle boot')
    """

    def __init__(self, path: str | Path, *, output: str | None = None, threads: int | None = None) -> None:
        self.path = Path(path)
        session = open_session(path, threads=threads)
        inputs, outputs = input_specs(session), output_specs(session)
        if len(inputs) != 1:
            raise InvalidModel(f"{path}: a local model must have one input, this one has {len(inputs)}")
        names = [spec.name for spec in outputs]
        if output is not None and output not in names:
            raise InvalidModel(f"{path}: the model has no output {output!r}; it has {', '.join(map(repr, names))}")
        self.input = OneInput(str(path), inputs[0].shape, dtype_of(inputs[0].datatype))
        self._name, self._outputs, self._run = inputs[0].name, [output or names[0]], session.run

    def __call__(self, sample: Any) -> NDArray[Any]:
        """The scores of one sample."""
        scores: NDArray[Any] = self._run(self._outputs, {self._name: self.input.one(sample)})[0][0]
        return scores

    def many(self, samples: Sequence[Any]) -> NDArray[Any]:
        """The scores of many samples, a row for each."""
        if not self.input.batches:
            return np.stack([self(sample) for sample in samples])
        scores: NDArray[Any] = self._run(self._outputs, {self._name: self.input.many(samples)})[0]
        return scores

    def check(self, sample: Any) -> None:
        """Raise `InvalidModel` unless the model takes such samples."""
        self.input.check(sample)

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.path)!r})"
