"""Fashion-MNIST networks to ONNX: the remote one as it is, the local one in 8-bit integers.

    python training/export_fashion.py --data .train --weights .train/scores --out .train/models

Both models take `image`, bytes of batch x 28 x 28 as they are in the files, and return `scores`, floats of batch x 10.
The script stops at the first of `CHECKS` that a model fails. What the models say about the test images goes to
NAME-onnx.npz, beside the weights.
"""

import argparse
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from networks import SmallRemote, TinyLocal
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from sheets import Bytes, Part, read_set
from torch import nn

Scores = NDArray[np.float32]

CHECKS = {
    "most difference to the trained network's scores": 1e-3,
    "least agreement of 8-bit and float answers": 0.98,
    "most bytes of the local model": 30_000,
    "most bytes of the remote model": 5_000_000,
    "least accuracy of the remote model": 0.935,
}
CALIBRATION_IMAGES = 2000


def export(network: nn.Module, path: Path) -> None:
    """The network as one ONNX file, for batches of any size."""
    image = torch.zeros(2, 28, 28, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's, about itself
        torch.onnx.export(
            network,
            (image,),
            path,
            input_names=["image"],
            output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    _strip(path)


def quantise(path: Path, out: Path, images: Bytes) -> None:
    """Weights and activations to 8 bits, by the ranges that the images give.

    Weights keep to 7 of the 8 bits, as processors without 8-bit dot products would overflow and answer differently.
    """
    with TemporaryDirectory() as folder:
        ready = Path(folder, "ready.onnx")
        quant_pre_process(path, ready)
        quantize_static(
            ready,
            out,
            _Images(images),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            extra_options={"OpTypesToExcludeOutputQuantization": ["Gemm"]},  # else few confidences would differ
        )
    _strip(out)


def onnx_scores(path: Path, images: Bytes) -> Scores:
    """What the model says about the images, 100 at a time."""
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.concatenate(
        [session.run(["scores"], {"image": batch})[0] for batch in np.split(images, len(images) // 100)]
    )


class _Images(CalibrationDataReader):
    def __init__(self, images: Bytes) -> None:
        self._batches = iter(np.split(images, len(images) // 100))

    def get_next(self) -> dict[str, Bytes] | None:
        batch = next(self._batches, None)
        return None if batch is None else {"image": batch}


def _strip(path: Path) -> None:
    """Leaves out what only the exporter reads: names of source lines, types of inner tensors, unused operators."""
    model = onnx.load(path)
    graph = model.graph
    del graph.value_info[:]
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    used = {node.domain for node in graph.node}
    for unused in [one for one in model.opset_import if one.domain not in used]:
        model.opset_import.remove(unused)
    model.producer_name, graph.name = "hinge", path.stem
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _loaded(network: nn.Module, weights: Path) -> nn.Module:
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return network.eval()


@torch.no_grad()
def _torch_scores(network: nn.Module, images: Bytes) -> Scores:
    return np.concatenate([network(batch).numpy() for batch in torch.from_numpy(images).split(100)])


def _check(what: str, value: float) -> None:
    bound = CHECKS[what]
    print(f"{what}: {bound:g}; found: {value:.6g}", flush=True)
    if value < bound if what.startswith("least") else value > bound:
        raise SystemExit("stopped, as this is beyond the bound")


def _check_export(network: nn.Module, path: Path, images: Bytes) -> Scores:
    found = onnx_scores(path, images)
    difference = float(np.abs(found - _torch_scores(network, images)).max())
    _check("most difference to the trained network's scores", difference)
    return found


def _save(folder: Path, name: str, scores: Scores, labels: Bytes) -> float:
    accuracy = float((scores.argmax(1) == labels).mean())
    np.savez(folder / f"{name}-onnx.npz", logits=scores, labels=labels)
    print(f"{name}: {accuracy:.2%} of {len(labels)} test images right", flush=True)
    return accuracy


def make_local(weights: Path, out: Path, train: Part, test: Part) -> None:
    """The local model, in 8 bits."""
    network, model = _loaded(TinyLocal(), weights / "fashion-local.pt"), out / "fashion-local.onnx"
    with TemporaryDirectory() as folder:
        plain = Path(folder, "fashion-local.onnx")
        export(network, plain)
        floats = _check_export(network, plain, test.images)
        quantise(plain, model, train.images[:CALIBRATION_IMAGES])
    scores = onnx_scores(model, test.images)
    agreement = float((scores.argmax(1) == floats.argmax(1)).mean())
    _check("least agreement of 8-bit and float answers", agreement)
    _check("most bytes of the local model", model.stat().st_size)
    _save(weights, "fashion-local", scores, test.labels)


def make_remote(weights: Path, out: Path, test: Part) -> None:
    """The remote model."""
    network, model = _loaded(SmallRemote(), weights / "fashion-remote.pt"), out / "fashion-remote.onnx"
    export(network, model)
    scores = _check_export(network, model, test.images)
    _check("most bytes of the remote model", model.stat().st_size)
    accuracy = _save(weights, "fashion-remote", scores, test.labels)
    _check("least accuracy of the remote model", accuracy)


def main() -> None:
    """Exports and checks both models."""
    parser = argparse.ArgumentParser(description="Fashion-MNIST networks to ONNX.")
    parser.add_argument("--data", type=Path, default=Path(".train"), help="the sheets (default: %(default)s)")
    parser.add_argument("--weights", type=Path, default=Path(".train/scores"), help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path(".train/models"), help="default: %(default)s")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = read_set(arguments.data, "fashion", size=28, channels=1)
    train, test = (Part(part.images[..., 0], part.labels) for part in found)
    make_local(arguments.weights, arguments.out, train, test)
    make_remote(arguments.weights, arguments.out, test)


if __name__ == "__main__":
    main()
