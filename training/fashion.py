"""Fashion-MNIST: a local network for a microcontroller and a remote one for any server.

    python training/fashion.py --data .train --out .train/scores

Each writes NAME.pt (weights), NAME.npz (scores for the test images, and labels) and NAME.log; export_fashion.py makes
ONNX models of the weights.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path

import torch
from augment import Augmentation
from loop import Recipe, Run
from networks import SmallRemote, TinyLocal
from sheets import ImageSet, Part, read_set

RECIPES = (
    Recipe("fashion-local", "fashion", TinyLocal, 40, 256, 0.1, Augmentation(shift=1)),
    Recipe(
        name="fashion-remote",
        images="fashion",
        network=SmallRemote,
        epochs=50,
        batch=256,
        peak_rate=0.2,
        augmentation=Augmentation(shift=2, cutout=8, cover=0),
        smoothing=0.1,
        average=0.998,
    ),
)


def main() -> None:
    """Trains what is named, or both."""
    names = {recipe.name: recipe for recipe in RECIPES}
    parser = argparse.ArgumentParser(description="Trains networks on Fashion-MNIST.")
    parser.add_argument("names", nargs="*", default=[*names], metavar="NAME", help=", ".join(names))
    parser.add_argument("--data", type=Path, default=Path(".train"), help="the sheets (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(".train/scores"), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=math.inf, help="cut the epochs to what fits, for each network")
    parser.add_argument("--smoke", action="store_true", help="few images, one epoch: does it run?")
    arguments = parser.parse_args()
    found = read_set(arguments.data, "fashion", size=28, channels=1)
    if arguments.smoke:
        found = ImageSet(*(Part(part.images[:2048], part.labels[:2048]) for part in found))
    for name in arguments.names:
        recipe = replace(names[name], epochs=1) if arguments.smoke else names[name]
        network = Run(recipe, found, arguments.out, arguments.seconds).train()
        torch.save(network.state_dict(), arguments.out / f"{name}.pt")


if __name__ == "__main__":
    main()
