"""Images become samples of the shape and type that a model takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hinge import fashion
from hinge.cli.device_samples import from_arrays, from_images
from hinge.errors import InvalidModel, InvalidTrace
from hinge.models import OneInput
from tests.support.commands import Captured, refusal

LOCAL = ["--local", str(fashion.local_model())]
RED, GREY = (255, 0, 0), 76  # which is how bright red is


def refused(capsys: Captured, *arguments: str) -> str:
    return refusal(capsys, "device", *arguments)


def wanted(*shape: int, dtype: type[np.generic] = np.uint8) -> OneInput:
    return OneInput("local.onnx", (-1, *shape), np.dtype(dtype))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A red image of 6 × 4, with a blue pixel in its upper right corner."""
    image = Image.new("RGB", (6, 4), RED)
    image.putpixel((5, 0), (0, 0, 255))
    image.save(tmp_path / "a.png")
    return tmp_path


@pytest.mark.parametrize(
    ("shape", "dtype", "pixel"),
    [
        ((4, 6), np.uint8, GREY),
        ((1, 4, 6), np.uint8, GREY),
        ((4, 6, 1), np.uint8, GREY),
        ((3, 4, 6), np.uint8, RED),
        ((4, 6, 3), np.uint8, RED),
        ((4, 6), np.float32, GREY / 255),
        ((3, 4, 6), np.float32, (1, 0, 0)),
        ((4, 6, 3), np.float16, (1, 0, 0)),
        ((4, 6), np.int8, GREY / 255),  # quantised from floats by the model
    ],
)
def test_channels_and_type(shape: tuple[int, ...], dtype: type[np.generic], pixel: Any, folder: Path) -> None:
    stream = from_images(folder, wanted(*shape, dtype=dtype))
    sample = stream.example
    assert sample.shape == shape
    assert sample.dtype == (np.float32 if dtype is np.int8 else dtype)
    channels_first = len(shape) == 3 and shape[0] in (1, 3)
    corner = sample[:, 0, 0] if channels_first else sample[0, 0]
    assert np.allclose(corner, pixel, atol=1e-3)
    assert np.array_equal([case.sample for case in stream.cases], [sample])


def test_sizes(folder: Path) -> None:
    assert from_images(folder, wanted(28, 28)).example.shape == (28, 28)
    assert from_images(folder, wanted(3, -1, -1)).example.shape == (3, 4, 6)
    right = from_images(folder, wanted(4, 6, 3)).example[0, 5]
    assert right.tolist() == [0, 0, 255], "neither mirrored nor turned"
    for shape in ((4,), (4, 6, 2), (3, 4, 6, 1)):
        with pytest.raises(InvalidModel, match="images do not fit a model that takes samples of shape"):
            from_images(folder, wanted(*shape))


def test_names_and_classes(folder: Path) -> None:
    (folder / "notes.txt").write_text("not an image")
    Image.new("L", (6, 4)).save(folder / "B.JPG")
    plain = from_images(folder, wanted(4, 6))
    assert [(case.name, case.truth) for case in plain.cases] == [("B.JPG", None), ("a.png", None)]
    assert (plain.length, plain.classes) == (2, None)
    classes = folder / "classes"
    for name in ("dog", "cat"):
        (classes / name).mkdir(parents=True)
        Image.new("L", (6, 4)).save(classes / name / "1.png")
    named = from_images(classes, wanted(4, 6))
    assert [(case.name, case.truth) for case in named.cases] == [("cat/1.png", "cat"), ("dog/1.png", "dog")]
    assert named.classes == ["cat", "dog"]


def test_folders_may_be_the_numbers_of_classes(tmp_path: Path) -> None:
    for number in ("10", "9"):
        (tmp_path / number).mkdir()
        Image.new("L", (6, 4)).save(tmp_path / number / "1.png")
    stream = from_images(tmp_path, wanted(4, 6))
    assert [case.truth for case in stream.cases] == [10, 9]
    assert stream.classes is None


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_samples_that_are_not_there(capsys: Captured, tmp_path: Path) -> None:
    assert "there is no folder and no trace 'nowhere'" in refused(capsys, "nowhere")
    assert "did you mean 'cifar10-vgg16'" in refused(capsys, "cifar10-vgg61")
    assert "No such file" in refused(capsys, "nowhere.npz")
    assert "No such file" in refused(capsys, "nowhere.csv")
    (tmp_path / "empty").mkdir()
    assert "there are no images in it" in refused(capsys, str(tmp_path / "empty"), *LOCAL)
    (tmp_path / "empty" / "a.png").write_bytes(b"no image")
    assert "none of the images can be read" in refused(capsys, str(tmp_path / "empty"), *LOCAL)


def test_arrays_that_make_no_sense(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    path.write_bytes(b"no zip")
    assert refused(capsys, str(path), *LOCAL) == f"hinge: {path}: not an .npz file"
    np.savez(path, labels=np.zeros(3))
    assert "there are no samples in it" in refused(capsys, str(path), *LOCAL)
    np.savez(path, np.zeros((0, 28, 28), np.uint8))
    assert "there are no samples in array" in refused(capsys, str(path), *LOCAL)
    np.savez(path, np.array([{"a": 1}], dtype=object))
    assert "cannot be read" in refused(capsys, str(path), *LOCAL)
    np.savez(path, np.zeros((3, 28, 28), np.uint8), labels=np.zeros(2))
    assert "a label for each of 3 samples" in refused(capsys, str(path), *LOCAL)


def test_arrays_of_other_names_are_said_not_to_be_read(capsys: Captured, tmp_path: Path) -> None:
    path, images, labels = tmp_path / "samples.npz", np.zeros((3, 28, 28), np.uint8), np.zeros(3, int)
    for names in (("x", "y"), ("X_test", "y_test"), ("data", "target")):
        arrays: dict[str, Any] = dict(zip(names, (images, labels), strict=True))
        np.savez(path, **arrays)
        assert from_arrays(path).truths == [0, 0, 0]
        assert capsys.readouterr().err == ""
    np.savez(path, x_train=images, y_train=labels)
    for wanted_array in (None, "x_train"):
        assert from_arrays(path, wanted_array).truths == []
        said = capsys.readouterr().err
        assert "the samples are in 'x_train', without labels, and 'y_train' not read: --input names" in said
        assert "labels are called 'labels' or 'y'" in said
    np.savez(path, x_train=images, y_train=labels, X_test=images, y_test=labels + 1)
    assert from_arrays(path).truths == [1, 1, 1]
    capsys.readouterr()
    assert from_arrays(path, "x_train").truths == []  # and not those of the test
    assert "the samples are in 'x_train', without labels" in capsys.readouterr().err


def test_a_table_is_no_samples_for_a_model(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("width,height\n1,2\n")
    said = refused(capsys, str(tmp_path / "log.csv"), *LOCAL)
    assert said.endswith("samples for --local are in a folder of images or an .npz or .npy file")


@pytest.mark.parametrize("label", [10, -1, 0.5, "cat"])
def test_labels_that_are_no_classes_of_the_model(label: Any, capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, samples=np.zeros((1, 28, 28), np.uint8), labels=np.array([label]))
    problem = refused(capsys, str(path), *LOCAL)
    assert f"there is a label '{label}', but the classes of " in problem
    assert problem.endswith("are 0 to 9: leave out samples without a label" if label == -1 else "are 0 to 9")


def test_folders_that_are_not_the_classes_of_the_model(capsys: Captured, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (28, 28)).save(tmp_path / name / "1.png")
    assert "2 folders do not fit the 10 classes" in refused(capsys, str(tmp_path), *LOCAL)


def test_a_file_that_holds_no_samples_is_told_what_does(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "train.py").write_text("import torch")
    said = refused(capsys, *LOCAL, str(tmp_path / "train.py"))
    assert "train.py: samples are a folder of images, an .npz or .npy file, '-' for frames on standard input, " in said
    assert said.endswith("or a trace, by name or in a .csv, .tsv, .jsonl, .npz or .parquet file")


def test_labels_that_are_whole_numbers_may_be_floats(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", samples=np.zeros((2, 3)), labels=np.array([0.0, 7.0]))
    assert [repr(truth) for truth in from_arrays(tmp_path / "samples.npz").truths] == ["0", "7"]
    np.savez(tmp_path / "samples.npz", samples=np.zeros((2, 3)), labels=np.array([0.0, np.nan]))
    with pytest.raises(InvalidTrace, match=r"samples\.npz: the label of sample 1 is nan: leave out samples without"):
        from_arrays(tmp_path / "samples.npz")
