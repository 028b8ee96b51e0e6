"""Local models in the format ONNX or in OpenVINO's own (IR), run by OpenVINO on Intel's processors and the like."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidModel
from hinge.models import FileModel, OneInput, Output, check_inputs, choose_outputs, loading, read_file
from hinge.models.onnx import SMALL_MODEL_BYTES, model_files

if TYPE_CHECKING:
    import openvino


class OpenVINOModel(FileModel):
    """A model from an ONNX file, or from an `.xml` file with its weights in the `.bin` file beside it.

    It has one input, whose first axis is for samples; the scores are the output named, or the first of real numbers.

    >>> from hinge import fashion
    >>> images, labels = fashion.labelled_images()
    >>> scores = OpenVINOModel(fashion.local_model())(images[0])
    >>> fashion.CLASSES[scores.argmax()], fashion.CLASSES[labels[0]]
    ('ankle boot', 'ankle boot')
    """

    def __init__(self, path: str | Path, *, output: str | None = None) -> None:
        files = _files(Path(path))
        size = sum(file.stat().st_size for file in files)
        with loading(path, _last_line):
            model = _compiled(_read(Path(path)), small=size <= SMALL_MODEL_BYTES)
            check_inputs(path, [port.any_name for port in model.inputs])
            outputs = [_output(number, port) for number, port in enumerate(model.outputs)]
            self._number = outputs.index(choose_outputs(path, outputs, output)[0])
            super().__init__(path, _input(str(path), model.inputs[0]), files)
            self._own = _Requests(model)

    def _scores(self, input: NDArray[Any]) -> NDArray[Any]:
        # The input is read where it lies, which halves the time of a small model; the scores are a copy.
        scores: NDArray[Any] = self._own.request.infer({0: input}, share_inputs=True)[self._number]
        return scores


class _Requests(threading.local):
    """An infer request for each thread, made at its first call: requests are not thread-safe."""

    def __init__(self, model: openvino.CompiledModel) -> None:
        self.request = model.create_infer_request()


def _files(path: Path) -> tuple[Path, ...]:
    """The file of the model, and those with its weights."""
    content = read_file(path)
    if path.suffix != ".xml":
        return model_files(path)
    if not content.lstrip().startswith(b"<"):  # OpenVINO would guess at other formats
        raise InvalidModel(f"{path}: not a model in OpenVINO's format, or a damaged one")
    read_file(weights := path.with_suffix(".bin"))
    return path, weights


def _read(path: Path) -> openvino.Model:
    try:
        import openvino
        from openvino.frontend import FrontEndManager
    except ImportError as error:
        raise ImportError(f"such models need openvino ({error}): pip install 'hinge-gate[openvino]'") from error
    if path.suffix == ".xml":
        return openvino.Core().read_model(path, path.with_suffix(".bin"))
    onnx = FrontEndManager().load_by_framework("onnx")
    return onnx.convert(onnx.load(path))


def _compiled(model: openvino.Model, small: bool) -> openvino.CompiledModel:
    import openvino

    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}  # the same scores on every processor
    if small:
        options["INFERENCE_NUM_THREADS"] = "1"  # sharing the work among threads would cost more than it saves
    return openvino.Core().compile_model(model, "CPU", options)


def _input(owner: str, port: Any) -> OneInput:
    if port.partial_shape.rank.is_dynamic:
        raise InvalidModel(f"{owner}: the first axis of the input must be for samples, its shape is unknown")
    shape = tuple(size.get_length() if size.is_static else -1 for size in port.partial_shape)
    return OneInput(owner, shape, np.dtype(port.element_type.to_dtype()))


def _output(number: int, port: Any) -> Output:
    rank = port.partial_shape.rank
    known = () if rank.is_dynamic else port.partial_shape
    shape = [size.get_length() if size.is_static else -1 for size in known] or [-1, -1]
    name = port.any_name if port.names else str(number)
    return Output(name, np.dtype(port.element_type.to_dtype()).kind, shape)


def _last_line(error: Exception) -> str:
    """What is wrong; the lines before say where in OpenVINO."""
    return next(reversed(str(error).strip().splitlines()), "")
