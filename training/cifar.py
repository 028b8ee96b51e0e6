"""CIFAR-10 and CIFAR-100: weak local models as in the paper, well-trained ones as users have, and the remote ones.

    python training/cifar.py cifar10-vgg16 cifar10-wrn-28-10 --data .train --out .train/scores

Each recipe writes NAME.npz (scores for the test images, and labels) and NAME.log. The weak ones are chosen by accuracy
alone: of a few lengths of training, that whose accuracy comes nearest to the aim.
"""

import argparse
import math
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from augment import Augmentation
from loop import Recipe, Run
from networks import resnet18, resnet50, vgg16, wrn_28_10
from sheets import ImageSet, Part, read_set

CROP_AND_FLIP = Augmentation()
NONE = Augmentation(shift=0, flip=False)

RECIPES = (
    Recipe("cifar10-vgg16", "cifar10", vgg16, 3, 512, 0.1, CROP_AND_FLIP),
    Recipe("cifar10-vgg16-calibrated", "cifar10", vgg16, 40, 256, 0.1, Augmentation(cutout=8), held_out=5000),
    Recipe("cifar100-resnet50", "cifar100", resnet50, 20, 512, 0.1, NONE),
    Recipe("cifar100-resnet18-calibrated", "cifar100", resnet18, 40, 256, 0.2, CROP_AND_FLIP, held_out=5000),
    Recipe(
        name="cifar10-wrn-28-10",
        images="cifar10",
        network=wrn_28_10,
        epochs=60,
        batch=128,
        peak_rate=0.1,
        augmentation=Augmentation(cutout=16),
        smoothing=0.1,
        average=0.999,
        flip_test=True,
    ),
    Recipe(
        name="cifar100-wrn-28-10",
        images="cifar100",
        network=wrn_28_10,
        epochs=75,
        batch=128,
        peak_rate=0.1,
        augmentation=Augmentation(cutmix=0.5),
        smoothing=0.1,
        average=0.999,
        flip_test=True,
    ),
)

# The accuracies that the paper's tables imply; how near is near enough; epochs and peak rates to try after the
# recipe's own.
AIMS: dict[str, tuple[float, float, tuple[tuple[int, float], ...]]] = {
    "cifar10-vgg16": (0.68, 0.02, ((3, 0.05), (3, 0.02), (2, 0.05), (2, 0.02), (2, 0.01), (1, 0.02))),
    "cifar100-resnet50": (0.53, 0.02, ((12, 0.1), (8, 0.1))),
}


def train_towards(recipe: Recipe, found: ImageSet, out: Path, width: int) -> None:
    """Tries lengths of training until the accuracy is near its aim, and keeps what came nearest."""
    aim, near, others = AIMS[recipe.name]
    missed: dict[tuple[int, float], float] = {}
    for attempt in ((recipe.epochs, recipe.peak_rate), *others):
        with TemporaryDirectory() as folder:
            run = Run(replace(recipe, epochs=attempt[0], peak_rate=attempt[1]), found, Path(folder), width=width)
            run.train()
            missed[attempt] = abs(run.accuracy - aim)
            if missed[attempt] == min(missed.values()):
                _keep(Path(folder), out)
        if missed[attempt] <= near:
            break
    best = min(missed, key=missed.__getitem__)
    tried = ", ".join(f"{epochs} at {rate}" for epochs, rate in missed)
    line = f"aim {aim:.0%}; epochs and peak rates tried: {tried}; kept: {best[0]} at {best[1]}\n"
    with (out / f"{recipe.name}.log").open("a") as log:
        log.write(line)
    print(line, end="", flush=True)


def _keep(folder: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        shutil.copy(file, out)


def _few(found: ImageSet) -> ImageSet:
    return ImageSet(*(Part(part.images[:1024], part.labels[:1024]) for part in found))


def _smoke(recipe: Recipe) -> Recipe:
    return replace(recipe, epochs=1, batch=64, held_out=min(recipe.held_out, 256))


def main() -> None:
    """Trains what is named."""
    names = {recipe.name: recipe for recipe in RECIPES}
    parser = argparse.ArgumentParser(description="Trains networks on CIFAR-10 and CIFAR-100.")
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--data", type=Path, default=Path(".train"), help="the sheets (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(".train/scores"), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=math.inf, help="cut the epochs to what fits, for each name")
    parser.add_argument("--epochs", type=int, help="in place of the recipe's")
    parser.add_argument("--smoke", action="store_true", help="a small network, few images, one epoch: does it run?")
    arguments = parser.parse_args()
    for name in arguments.names:
        recipe, width = names[name], 0
        found = read_set(arguments.data, recipe.images)
        if arguments.epochs:
            recipe = replace(recipe, epochs=arguments.epochs)
        if arguments.smoke:
            recipe, found, width = _smoke(recipe), _few(found), 8
        if name in AIMS and not arguments.epochs:
            train_towards(recipe, found, arguments.out, width)
        else:
            Run(recipe, found, arguments.out, arguments.seconds, width).train()


if __name__ == "__main__":
    main()
