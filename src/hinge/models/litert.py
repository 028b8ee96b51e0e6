"""Local models in the format of LiteRT (TensorFlow Lite), run by its interpreter."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hinge._checks import whole
from hinge.models import FileModel, OneInput, Output, check_inputs, choose_outputs, first_line, loading, read_file


class LiteRTModel(FileModel):
    """A `.tflite` file as a function from sample to scores.

    It has one input, whose first axis is for samples; the scores are the output named, or the first of real numbers.
    Where the input is quantised, samples are integers of its type, or floats, which are quantised; quantised scores
    come back as floats.

    >>> LiteRTModel("missing.tflite")
    Traceback (most recent call last):
    hinge.errors.InvalidModel: missing.tflite: there is no such file
    """

    def __init__(self, path: str | Path, *, output: str | None = None, threads: int = 1) -> None:
        content = read_file(Path(path))
        whole("LiteRTModel", "threads", threads, 1)
        with loading(path, first_line):
            self._own = _Interpreters(content, threads)
            inputs, outputs = self._own.interpreter.get_input_details(), self._own.interpreter.get_output_details()
            check_inputs(path, [details["name"] for details in inputs])
            found = [_output(details) for details in outputs]
            chosen = outputs[found.index(choose_outputs(path, found, output)[0])]
            super().__init__(path, _input(str(path), inputs[0]))
            self._from, self._to, self._scale = inputs[0]["index"], chosen["index"], _scale(chosen)

    def _scores(self, input: NDArray[Any]) -> NDArray[Any]:
        interpreter = self._own.resized(self._from, input.shape)
        interpreter.set_tensor(self._from, input)
        interpreter.invoke()
        scores: NDArray[Any] = interpreter.get_tensor(self._to)
        return scores if self._scale is None else self._scale.reals(scores)


class _Interpreters(threading.local):
    """An interpreter for each thread, made at its first call: interpreters are not thread-safe, and a lock is slower.

    The weights are not copied: all interpreters read the same bytes.
    """

    def __init__(self, content: bytes, threads: int) -> None:
        self.interpreter = _interpreter()(model_content=content, num_threads=threads)
        self.interpreter.allocate_tensors()
        self._shape: tuple[int, ...] = ()

    def resized(self, index: int, shape: tuple[int, ...]) -> Any:
        if shape != self._shape:
            self._shape = ()  # if the next fails
            self.interpreter.resize_tensor_input(index, shape)
            self.interpreter.allocate_tensors()
            self._shape = shape
        return self.interpreter


class _Scale(NamedTuple):
    """How a quantised tensor is written: a real number is `step * (integer - zero)`."""

    step: float
    zero: int

    def integers(self, reals: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        limits = np.iinfo(dtype)
        integers: NDArray[Any] = np.clip(np.rint(reals / self.step) + self.zero, limits.min, limits.max).astype(dtype)
        return integers

    def reals(self, integers: NDArray[Any]) -> NDArray[Any]:
        reals: NDArray[Any] = (integers.astype(np.float32) - self.zero) * np.float32(self.step)
        return reals


class _QuantisedInput(OneInput):
    """An input of integers that stand for real numbers; other integers are refused, as they could be either."""

    def __init__(self, owner: str, shape: tuple[int, ...], dtype: np.dtype[Any], scale: _Scale) -> None:
        super().__init__(owner, shape, dtype)
        self._scale = scale

    def _cast(self, array: NDArray[Any]) -> NDArray[Any]:
        if array.dtype.kind != "f":
            wanted = f"{self.dtype.name}, or floats to be quantised"
            raise ValueError(f"{self._owner}: the model takes {wanted}, the sample is {array.dtype.name}")
        if not np.isfinite(array).all():
            raise ValueError(f"{self._owner}: the sample has values that are not finite")
        return self._scale.integers(array, self.dtype)


def _input(owner: str, details: dict[str, Any]) -> OneInput:
    shape, dtype, scale = tuple(details["shape_signature"].tolist()), np.dtype(details["dtype"]), _scale(details)
    return OneInput(owner, shape, dtype) if scale is None else _QuantisedInput(owner, shape, dtype, scale)


def _output(details: dict[str, Any]) -> Output:
    kind = "f" if _scale(details) else np.dtype(details["dtype"]).kind  # quantised numbers come back as real ones
    return Output(details["name"], kind, details["shape_signature"].tolist())


def _scale(details: dict[str, Any]) -> _Scale | None:
    step, zero = details["quantization"]
    return _Scale(step, zero) if step > 0 and np.dtype(details["dtype"]).kind in "iu" else None


def _interpreter() -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise ImportError(f"such models need ai-edge-litert ({error}): pip install 'hinge-gate[litert]'") from error
    return Interpreter
