"""Several local models for CIFAR-10 that are equally weak: the confidences and answers of each, in one file.

    python training/weak.py --data .train --out benchmarks/regrets/weak.npz

The recipe of `cifar10-vgg16`, with other seeds and the lengths and peak rates that were tried for it. Kept is every
model whose accuracy on the test images is within a point of the aim, and nothing else is looked at.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from cifar import AIMS, RECIPES
from loop import Run
from sheets import read_set

SEEDS = range(1, 9)
NEAR = 0.01


def main() -> None:
    """Trains all of them, and writes those that are as weak as the aim."""
    parser = argparse.ArgumentParser(description="Several equally weak local models.")
    parser.add_argument("--data", type=Path, default=Path(".train"), help="the sheets (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/regrets/weak.npz"), help="default: %(default)s")
    arguments = parser.parse_args()
    recipe = RECIPES[0]
    found = read_set(arguments.data, recipe.images)
    aim, _, others = AIMS[recipe.name]
    kept, confidence, local, labels = [], [], [], found.test.labels
    for epochs, rate in ((recipe.epochs, recipe.peak_rate), *others):
        for seed in SEEDS:
            with TemporaryDirectory() as folder:
                run = Run(replace(recipe, epochs=epochs, peak_rate=rate, seed=seed), found, Path(folder))
                run.train()
                if abs(run.accuracy - aim) > NEAR:
                    continue
                with np.load(Path(folder) / f"{recipe.name}.npz") as scores:
                    logits = scores["logits"].astype(np.float64)
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            confidence.append((1 / odds.sum(axis=1)).astype(np.float16))  # the largest softmax
            local.append(logits.argmax(axis=1).astype(np.uint8))
            kept.append(f"{epochs} epochs at {rate}, seed {seed}")
    np.savez_compressed(
        arguments.out, recipe=np.array(kept), confidence=np.stack(confidence), local=np.stack(local), label=labels
    )
    print(f"{len(kept)} models within {NEAR:.0%} of {aim:.0%}: {'; '.join(kept)}")


if __name__ == "__main__":
    main()
