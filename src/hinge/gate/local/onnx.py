"""Local models in the ONNX format, run by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hinge.errors import InvalidModel
from hinge.gate.local.onnx_file import input_specs, open_session, output_specs
from hinge.gate.local.tensors import FileModel, OneInput, check_ends
from hinge.gate.protocol.tensors import dtype_of


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
