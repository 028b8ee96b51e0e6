"""What local models of every format share: a sample goes in as the model's one input, its scores come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidModel


class OneInput:
    """The input of a model, and how samples become it.

    `shape` is that of the model, its first axis for samples; -1 stands for any size.

    >>> OneInput("local.onnx", (-1, 2), np.dtype(np.float32)).one([1, 2])
    array([[1., 2.]], dtype=float32)
    """

    def __init__(self, owner: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if len(shape) < 1 or shape[0] not in (-1, 1):
            raise InvalidModel(f"{owner}: the first axis of the input must be for samples, its shape is {list(shape)}")
        self._owner, self.dtype, self._sample_shape = owner, dtype, shape[1:]
        self.batches = shape[0] == -1

    def one(self, sample: Any) -> NDArray[Any]:
        """One sample as the input, with a first axis of its own; raises `ValueError` if it does not fit."""
        array = sample if isinstance(sample, np.ndarray) else np.asarray(sample)
        if array.dtype != self.dtype:
            array = self._cast(array)
        if array.shape != self._sample_shape:
            self._check_shape(array.shape)
        return array[None]

    def many(self, samples: Sequence[Any]) -> NDArray[Any]:
        """Many samples as the input."""
        return np.concatenate([self.one(sample) for sample in samples])

    def check(self, sample: Any) -> None:
        """Raise `InvalidModel` unless the model takes such samples."""
        try:
            self.one(sample)
        except ValueError as error:
            raise InvalidModel(str(error)) from error

    def _cast(self, array: NDArray[Any]) -> NDArray[Any]:
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise ValueError(f"{self._owner}: the model takes {self.dtype.name}, the sample is {array.dtype.name}")
        return array.astype(self.dtype)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted = self._sample_shape
        fits = len(shape) == len(wanted) and all(a in (-1, b) for a, b in zip(wanted, shape, strict=True))
        if not fits:
            raise ValueError(
                f"{self._owner}: the model takes samples of shape {list(wanted)}, the sample has {list(shape)}"
            )
