"""The models of `hinge device`: from files, from servers, from a trace, or those that come with Hinge."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hinge._checks import did_you_mean
from hinge.errors import InvalidModel, UnknownName
from hinge.remotes import Deadline, Reply
from hinge.traces import Trace

# Each is imported when it is needed, as each needs an extra of its own.
_LOCAL = {
    ".onnx": ("hinge.models.onnx", "OnnxModel"),
    ".tflite": ("hinge.models.litert", "LiteRTModel"),
    ".xml": ("hinge.models.openvino", "OpenVINOModel"),
}
_REMOTE = {
    "http": ("hinge.remotes.open_inference", "OpenInference"),
    "https": ("hinge.remotes.open_inference", "OpenInference"),
    "grpc": ("hinge.remotes.grpc", "OpenInferenceGrpc"),
}


def open_local(path: Path) -> Any:
    """The local model in a file, by the end of its name."""
    suffix = path.suffix.lower()
    if suffix not in _LOCAL:
        raise UnknownName(f"--local {path}: no format of models ends in {suffix!r}{did_you_mean(suffix, _LOCAL)}")
    return _named(*_LOCAL[suffix])(path)


def open_remote(url: str, model: str, token: str | None) -> Any:
    """The model of that name on the server at a URL."""
    scheme, address = urlsplit(url)[:2]
    if scheme not in _REMOTE:
        raise UnknownName(f"--remote {url}: must start with http://, https:// or grpc://")
    try:
        kind = _named(*_REMOTE[scheme])
    except ModuleNotFoundError as error:
        raise ImportError(f"a remote needs the extra 'device' ({error}): pip install 'hinge-gate[device]'") from None
    return kind(address if scheme == "grpc" else url, model, token=token)


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def classes_of(local: Any, example: Any) -> int:
    """How many classes a local model has; raises `InvalidModel` unless it takes such samples, and scores them."""
    local.check(example)
    scores = local(example)
    if scores.ndim != 1 or len(scores) < 2:
        raise InvalidModel(f"{local.path}: the model must score two classes or more, it gives {list(scores.shape)}")
    return len(scores)


class InProcess:
    """A model that runs here, as a remote."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """The classes that score highest."""
        return Reply(self._model.many(samples).argmax(axis=1).tolist())

    def close(self) -> None:
        """Nothing is kept open."""


class Replayed:
    """The remote of a trace: its recorded labels, at the recorded costs if there are some."""

    def __init__(self, trace: Trace) -> None:
        self._labels, self._costs = trace.remote.tolist(), trace.cost
        self._asked = threading.local()  # an offload is asked for and priced in one thread

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """What the remote said of these rows."""
        rows = [int(sample.item()) for sample in samples]
        self._asked.rows = rows
        return Reply([self._labels[row] for row in rows])

    def cost(
        self, *, latency_ms: float = 0.0, bytes: float = 0.0, calls: float = 1.0
    ) -> float:
        """What the rows asked for last had cost, on average."""
        if self._costs is None:
            raise ValueError("the trace has recorded no costs")
        return float(self._costs[self._asked.rows].mean())

    def close(self) -> None:
        """Nothing is kept open."""
