"""Local models of every format: one dense layer, whose scores numpy knows, and the models that come with Hinge."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
from numpy.typing import NDArray

from hinge import Device, HILCBLite, OnnxModel, fashion
from hinge.errors import InvalidModel
from hinge.models.litert import LiteRTModel
from hinge.models.openvino import OpenVINOModel
from tests.models.tiny_tflite import WEIGHT_STEP, Quantised, Scale, tiny_tflite

Floats: TypeAlias = NDArray[np.float32]
Model: TypeAlias = OnnxModel | LiteRTModel | OpenVINOModel
Make: TypeAlias = Callable[[Path, int], Model]

CLASSES, FEATURES = 4, 6
RANDOM = np.random.default_rng(0)
WEIGHTS: Floats = (WEIGHT_STEP * RANDOM.integers(-100, 100, (CLASSES, FEATURES))).astype(np.float32)
BIAS: Floats = (WEIGHT_STEP * RANDOM.integers(-100, 100, CLASSES)).astype(np.float32)
SAMPLES: Any = RANDOM.uniform(-1, 1, (200, FEATURES)).astype(np.float32)
SCORES: Any = SAMPLES @ WEIGHTS.T + BIAS


def dense_onnx(path: Path, batch: int) -> Path:
    floats = onnx.TensorProto.FLOAT
    size = "batch" if batch == -1 else batch
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gemm", ["sample", "weights", "bias"], ["scores"], transB=1)],
        "dense",
        [onnx.helper.make_tensor_value_info("sample", floats, [size, FEATURES])],
        [onnx.helper.make_tensor_value_info("scores", floats, [size, CLASSES])],
        [onnx.numpy_helper.from_array(WEIGHTS, "weights"), onnx.numpy_helper.from_array(BIAS, "bias")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    return path


def onnx_model(folder: Path, batch: int = -1) -> OnnxModel:
    return OnnxModel(dense_onnx(folder / "m.onnx", batch))


def litert_model(folder: Path, batch: int = -1) -> LiteRTModel:
    path = folder / "m.tflite"
    path.write_bytes(tiny_tflite(WEIGHTS, BIAS, batch=batch))
    return LiteRTModel(path)


def openvino_onnx_model(folder: Path, batch: int = -1) -> OpenVINOModel:
    return OpenVINOModel(dense_onnx(folder / "m.onnx", batch))


def openvino_ir_model(folder: Path, batch: int = -1) -> OpenVINOModel:
    read = openvino.Core().read_model(dense_onnx(folder / "m.onnx", batch))
    openvino.save_model(read, folder / "m.xml", compress_to_fp16=False)
    return OpenVINOModel(folder / "m.xml")


every_format = pytest.mark.parametrize("make", [onnx_model, litert_model, openvino_onnx_model, openvino_ir_model])


@every_format
def test_the_scores_are_those_of_numpy(make: Make, tmp_path: Path) -> None:
    model = make(tmp_path, -1)
    for sample, scores in zip(SAMPLES[:20], SCORES[:20], strict=True):
        np.testing.assert_allclose(model(sample), scores, atol=1e-5)
        np.testing.assert_allclose(model(sample.tolist()), scores, atol=1e-5)


@every_format
@pytest.mark.parametrize("batch", [-1, 1])
def test_a_batch_scores_as_its_samples_do(make: Make, batch: int, tmp_path: Path) -> None:
    model = make(tmp_path, batch)
    for samples in (SAMPLES[:7], SAMPLES[:1], SAMPLES[:30]):
        scores = model.many(samples)
        assert scores.shape == (len(samples), CLASSES)
        np.testing.assert_allclose(scores, np.stack([model(sample) for sample in samples]), atol=1e-5)


def test_a_batch_of_another_size_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"its shape is \[8, 6\]: export it with a dynamic batch axis, or with 1$"):
        onnx_model(tmp_path, 8)


@every_format
def test_an_output_is_chosen_by_its_name(make: Make, tmp_path: Path) -> None:
    model = make(tmp_path, -1)
    with pytest.raises(InvalidModel, match="the model has no output 'other'; it has '") as refused:
        type(model)(model.path, output="other")
    name = str(refused.value).split("'")[-2]
    np.testing.assert_allclose(type(model)(model.path, output=name)(SAMPLES[0]), SCORES[0], atol=1e-5)


@every_format
def test_scores_stay_as_they_are_when_the_model_runs_again(make: Make, tmp_path: Path) -> None:
    model = make(tmp_path, -1)
    first, batch = model(SAMPLES[0]), model.many(SAMPLES[:3])
    model(SAMPLES[1])
    model.many(SAMPLES[3:6])
    np.testing.assert_allclose(first, SCORES[0], atol=1e-5)
    np.testing.assert_allclose(batch, SCORES[:3], atol=1e-5)


@every_format
def test_samples_that_do_not_fit_are_refused_by_what_they_are(make: Make, tmp_path: Path) -> None:
    model = make(tmp_path, -1)
    with pytest.raises(ValueError, match=r"takes samples of shape \[6\], the sample has \[5\]"):
        model(SAMPLES[0][:5])
    with pytest.raises(ValueError, match=r"takes float32, the sample is complex64"):
        model.many([SAMPLES[0] * 1j])
    with pytest.raises(InvalidModel, match=r"takes samples of shape \[6\], the sample has \[2, 6\]"):
        model.check(SAMPLES[:2])
    model.check(SAMPLES[0])


@pytest.mark.medium
@every_format
def test_eight_threads_find_what_one_does(make: Make, tmp_path: Path) -> None:
    model = make(tmp_path, -1)

    def run(turn: int) -> bool:
        part = np.roll(np.arange(len(SAMPLES)), turn)
        singles = np.stack([model(SAMPLES[k]) for k in part])
        batch = model.many(SAMPLES[: 1 + turn % 5])
        return np.allclose(singles, SCORES[part], atol=1e-5) and np.allclose(batch, SCORES[: len(batch)], atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(24)))


@every_format
def test_a_device_runs_with_it(make: Make, tmp_path: Path) -> None:
    model = make(tmp_path, -1)
    labels = SCORES.argmax(axis=1).tolist()
    with Device(model, lambda _: 0, HILCBLite(bins=16, offload_cost=0.5), shadow="local") as device:
        assert [device.infer(sample).label for sample in SAMPLES[:20]] == labels[:20]
        assert [answer.label for answer in device.infer_many(SAMPLES)] == labels


@pytest.mark.parametrize(
    ("model", "name"),
    [(OnnxModel, "m.onnx"), (LiteRTModel, "m.tflite"), (OpenVINOModel, "m.onnx"), (OpenVINOModel, "m.xml")],
)
@pytest.mark.parametrize("content", [None, b"", b"\x00" * 64, b"<net></net>", b"no model at all", "half"])
def test_missing_and_damaged_files_are_refused_in_one_line(
    model: Callable[[Path], Model], name: str, content: bytes | str | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    if isinstance(content, str):
        make = {"m.onnx": onnx_model, "m.tflite": litert_model, "m.xml": openvino_ir_model}[name]
        make(tmp_path)
        content = path.read_bytes()[: path.stat().st_size // 2]
    else:
        path.with_suffix(".bin").write_bytes(b"")
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidModel) as refused:
        model(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert len(str(refused.value).splitlines()) == 1
    if content is None:
        assert str(refused.value) == f"{path}: there is no such file"


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    for model in (OnnxModel, LiteRTModel, OpenVINOModel):
        with pytest.raises(InvalidModel, match="not a file"):
            model(tmp_path)


@pytest.mark.parametrize("package", ["ai_edge_litert.interpreter", "openvino"])
def test_a_missing_package_is_named_with_its_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    litert_model(tmp_path), onnx_model(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    make: Any = OpenVINOModel if package == "openvino" else LiteRTModel
    extra = "openvino" if package == "openvino" else "litert"
    with pytest.raises(ImportError, match=rf"pip install 'hinge-gate\[{extra}\]'"):
        make(tmp_path / ("m.onnx" if package == "openvino" else "m.tflite"))


# -- LiteRT: quantised models -----------------------------------------------------------------------------------------

INT8 = Quantised(np.int8, Scale(1 / 127, 0), Scale(1 / 8, 5))
UINT8 = Quantised(np.uint8, Scale(1 / 127, 128), Scale(1 / 8, 120))
quantised_forms = pytest.mark.parametrize("form", [INT8, UINT8])


def quantised_model(folder: Path, form: Quantised) -> LiteRTModel:
    path = folder / "q.tflite"
    path.write_bytes(tiny_tflite(WEIGHTS, BIAS, form))
    return LiteRTModel(path)


@quantised_forms
def test_quantised_scores_are_real_numbers_within_a_step(form: Quantised, tmp_path: Path) -> None:
    model = quantised_model(tmp_path, form)
    integers: Any = np.random.default_rng(1).integers(-127, 127, (30, FEATURES)) + form.sample.zero
    expected = form.sample.step * (integers - form.sample.zero) @ WEIGHTS.T + BIAS
    scores = model.many(integers.astype(form.dtype))
    assert scores.dtype == np.float32
    assert (np.abs(scores - expected) <= form.scores.step).all()
    np.testing.assert_array_equal(scores, [model(sample) for sample in integers.astype(form.dtype)])


@quantised_forms
def test_floats_are_quantised_as_the_input_says(form: Quantised, tmp_path: Path) -> None:
    model = quantised_model(tmp_path, form)
    by_hand: Any = np.round(SAMPLES / form.sample.step + form.sample.zero).astype(form.dtype)
    np.testing.assert_array_equal(model.many(SAMPLES), model.many(by_hand))
    assert (np.abs(model.many(SAMPLES) - SCORES) <= 2 * form.scores.step).all()
    limits = np.iinfo(form.dtype)
    np.testing.assert_array_equal(model(np.full(FEATURES, 9.0)), model(np.full(FEATURES, limits.max, form.dtype)))
    np.testing.assert_array_equal(model(np.full(FEATURES, -9.0)), model(np.full(FEATURES, limits.min, form.dtype)))


@quantised_forms
def test_integers_of_another_type_are_refused_by_a_quantised_model(form: Quantised, tmp_path: Path) -> None:
    model = quantised_model(tmp_path, form)
    other = np.uint8 if form.dtype is np.int8 else np.int8
    takes = np.dtype(form.dtype).name
    for wrong in (np.zeros(FEATURES, other), np.zeros(FEATURES, np.int64)):
        with pytest.raises(ValueError, match=rf"takes {takes}, or floats to be quantised, the sample is {wrong.dtype}"):
            model(wrong)
    with pytest.raises(InvalidModel, match="not finite"):
        model.check(np.full(FEATURES, np.nan))


@pytest.mark.parametrize("threads", [0, 1.5])
def test_threads_are_a_whole_number(threads: Any, tmp_path: Path) -> None:
    path = litert_model(tmp_path).path
    with pytest.raises((TypeError, ValueError), match="LiteRTModel: threads must be an integer >= 1"):
        LiteRTModel(path, threads=threads)
    assert LiteRTModel(path, threads=2)(SAMPLES[0]).shape == (CLASSES,)


# -- the models that come with Hinge ----------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("model", [OnnxModel, OpenVINOModel])
def test_the_models_of_fashion_score_as_onnxruntime_says(model: Callable[[Path], Model]) -> None:
    images: Any = fashion.labelled_images()[0]
    for path in (fashion.local_model(), fashion.remote_model()):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        expected = session.run(None, {"image": images[:100]})[0]
        scores = model(path).many(images[:100])
        np.testing.assert_allclose(scores, expected, atol=0.05)  # 8-bit integers are rounded in other places
        assert (scores.argmax(axis=1) == expected.argmax(axis=1)).all()


def test_onnx_with_data_in_other_files_runs_in_openvino_too(tmp_path: Path) -> None:
    path = dense_onnx(tmp_path / "m.onnx", -1)
    model = onnx.load(path)
    (tmp_path / "weights.bin").write_bytes(WEIGHTS.tobytes())
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "weights")
    onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    tensor.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    openvino_model = OpenVINOModel(path)
    assert openvino_model.files == (path, tmp_path / "weights.bin")
    np.testing.assert_allclose(openvino_model.many(SAMPLES), SCORES, atol=1e-5)
