"""What local models of every format share: a sample goes in as the model's one input, its scores come out."""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidModel
from hinge.gate.protocol.tensors import cast

MAX_FILE_BYTES = 2**31 - 1  # Protocol Buffers end there, and so do flat buffers


class OneInput:
    """The input of a model, and how samples become it.

    `shape` is that of the model, its first axis for samples; -1 stands for any size.

    >>> OneInput("local.onnx", (-1, 2), np.dtype(np.float32)).one([1, 2])
    array([[1., 2.]], dtype=float32)
    """

    def __init__(self, owner: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if len(shape) < 1 or shape[0] not in (-1, 1):
            raise InvalidModel(f"{owner}: the first axis of the input must be for samples, its shape is {list(shape)}")
        self._owner, self.dtype, self.sample_shape = owner, dtype, shape[1:]
        self.batches = shape[0] == -1

    def one(self, sample: Any) -> NDArray[Any]:
        """One sample as the input, with a first axis of its own; raises `ValueError` if it does not fit."""
        array = sample if isinstance(sample, np.ndarray) else np.asarray(sample)
        if array.dtype != self.dtype:
            array = self._cast(array)
        if array.shape != self.sample_shape:
            self._check_shape(array.shape)
        return array[None]

    def many(self, samples: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """Many samples as the input."""
        return np.concatenate([self.one(sample) for sample in samples])

    def check(self, sample: Any) -> None:
        """Raise `InvalidModel` unless the model takes such samples."""
        try:
            self.one(sample)
        except ValueError as error:
            raise InvalidModel(str(error)) from error

    def _cast(self, array: NDArray[Any]) -> NDArray[Any]:
        return cast(self._owner, array, self.dtype)

    def _wrong_type(self, wanted: str, array: NDArray[Any]) -> ValueError:
        return ValueError(f"{self._owner}: the model takes {wanted}, the sample is {array.dtype.name}")

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted = self.sample_shape
        fits = len(shape) == len(wanted) and all(a in (-1, b) for a, b in zip(wanted, shape, strict=True))
        if not fits:
            raise ValueError(
                f"{self._owner}: the model takes samples of shape {list(wanted)}, the sample has {list(shape)}"
            )


class FileModel(ABC):
    """A model from a file, as a function from sample to scores; each format says how its scores are found."""

    def __init__(self, path: str | Path, input: OneInput) -> None:
        self.path, self.input = Path(path), input

    def __call__(self, sample: Any) -> NDArray[Any]:
        """The scores of one sample."""
        scores: NDArray[Any] = self._scores(self.input.one(sample))[0]
        return scores

    def many(self, samples: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """The scores of many samples, a row for each."""
        if not self.input.batches:
            return np.stack([self(sample) for sample in samples])
        return self._scores(self.input.many(samples))

    def check(self, sample: Any) -> None:
        """Raise `InvalidModel` unless the model takes such samples."""
        self.input.check(sample)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @abstractmethod
    def _scores(self, input: NDArray[Any]) -> NDArray[Any]: ...


def read_file(path: Path) -> bytes:
    """What is in a model's file.

    >>> read_file(Path("missing.tflite"))
    Traceback (most recent call last):
    hinge.errors.InvalidModel: missing.tflite: there is no such file
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe would wait for ever
            raise InvalidModel(f"{path}: not a file")
        if found.st_size > MAX_FILE_BYTES:
            raise InvalidModel(f"{path}: a model may have {MAX_FILE_BYTES} bytes, got {found.st_size}")
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidModel(f"{path}: there is no such file") from None
    except InvalidModel:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        problem = error.strerror if isinstance(error, OSError) else error
        raise InvalidModel(f"{path}: {problem}") from None


def check_ends(path: str | Path, inputs: int, outputs: int) -> None:
    """Refuse a model that does not take one tensor, or gives none."""
    if inputs != 1:
        raise InvalidModel(f"{path}: a local model must have one input, this one has {inputs}")
    if outputs == 0:
        raise InvalidModel(f"{path}: a local model must have an output, this one has none")


def first_line(error: Exception) -> str:
    """The first line of what a runtime says is wrong."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
