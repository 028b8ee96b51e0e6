"""Two models of your own, in the ONNX format: a tiny local one and a larger remote one, trained in seconds.

    python examples/own_models.py [FOLDER]

Half of Fashion-MNIST's test images are learned from, the other half become `samples.npz`. `local.onnx` is a softmax
regression on 7 × 7 pixels, `remote.onnx` a network with one hidden layer on all of them. Both take raw bytes, `image`
uint8 [batch, 28, 28], and give `scores` float32 [batch, 10]. It needs numpy and onnx.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hinge import fashion

Array = NDArray[np.float32]
Layer = tuple[Array, Array]  # weights and biases


def pooled(images: NDArray[np.uint8], side: int) -> Array:
    """The means of squares of `side` × `side` pixels, from 0 to 1, in a row."""
    cells = 28 // side
    squares = images.reshape(-1, cells, side, cells, side).astype(np.float32) / 255
    means: Array = squares.mean(axis=(2, 4)).reshape(len(images), -1)
    return means


def scores_of(layers: list[Layer], inputs: Array) -> tuple[list[Array], Array]:
    """What each layer is given, and the scores that the last one gives."""
    given = [inputs]
    for weights, biases in layers[:-1]:
        given.append(np.maximum(given[-1] @ weights + biases, 0))
    return given, given[-1] @ layers[-1][0] + layers[-1][1]


def train(inputs: Array, labels: NDArray[np.int64], sizes: list[int], passes: int) -> list[Layer]:
    """Layers of these sizes, by Adam on the cross entropy, in batches of 50."""
    chance = np.random.default_rng(1)
    layers = [
        (chance.normal(0, (2 / a) ** 0.5, (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in pairwise(sizes)
    ]
    moments = [[np.zeros_like(each) for layer in layers for each in layer] for _ in range(2)]
    step = 0
    for turn in range(passes):
        for batch in np.array_split(chance.permutation(len(inputs)), len(inputs) // 50):
            step += 1
            rate = 0.003 * (1 - turn / passes) * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
            parameters = [each for layer in layers for each in layer]
            slopes = gradients(layers, inputs[batch], labels[batch])
            for each, slope, mean, square in zip(parameters, slopes, *moments, strict=True):
                mean += 0.1 * (slope - mean)
                square += 0.001 * (slope * slope - square)
                each -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
    return layers


def gradients(layers: list[Layer], inputs: Array, labels: NDArray[np.int64]) -> list[Array]:
    """The slopes of the mean cross entropy, of weights and biases in turn, from the first layer on."""
    given, scores = scores_of(layers, inputs)
    error = np.exp(scores - scores.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    slopes: list[Array] = []
    for (weights, _), values in zip(reversed(layers), reversed(given), strict=True):
        slopes[:0] = [values.T @ error, error.sum(axis=0)]
        error = (error @ weights.T) * (values > 0)
    return slopes


def save(path: Path, layers: list[Layer], side: int) -> None:
    """Write the model as ONNX: bytes to numbers, means of squares, then the layers."""
    constants = {"scale": np.float32(1 / 255), "shape": np.array([-1, 1, 28, 28])}
    nodes = [
        helper.make_node("Cast", ["image"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "scale"], ["scaled"]),
        helper.make_node("Reshape", ["scaled", "shape"], ["square"]),
        helper.make_node("AveragePool", ["square"], ["means"], kernel_shape=[side, side], strides=[side, side]),
        helper.make_node("Flatten", ["means"], ["given0"]),
    ]
    for i, (weights, biases) in enumerate(layers):
        last = i == len(layers) - 1
        constants |= {f"weights{i}": weights, f"biases{i}": biases}
        sums = "scores" if last else f"sums{i}"
        nodes.append(helper.make_node("Gemm", [f"given{i}", f"weights{i}", f"biases{i}"], [sums]))
        if not last:
            nodes.append(helper.make_node("Relu", [sums], [f"given{i + 1}"]))
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", 28, 28])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def main(folder: Path) -> None:
    """Train, save, and say how good they are on the other half."""
    images, labels = fashion.labelled_images()
    half = len(images) // 2
    for name, side, hidden, passes in (("local", 4, [], 40), ("remote", 1, [128], 10)):
        layers = train(pooled(images[:half], side), labels[:half], [(28 // side) ** 2, *hidden, 10], passes)
        path = folder / f"{name}.onnx"
        save(path, layers, side)
        _, scores = scores_of(layers, pooled(images[half:], side))
        right = (scores.argmax(axis=1) == labels[half:]).mean()
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {right:.0%} of the other half right")
    np.savez_compressed(folder / "samples.npz", samples=images[half:], labels=labels[half:])
    print(f"samples.npz: {len(images) - half} images and their labels")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
