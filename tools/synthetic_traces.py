"""Synthetic traces in the shape of the paper's three settings, to try things on before any model is at hand.

    python -m tools.synthetic_traces OUT_DIR

For every sample, with u uniform on [0, 1) and m classes:

    sureness      s = 1 - u^crowding, the confidence but for chance: confidence = 1/m + (1 - 1/m) s
    label         uniform over the classes
    remote        right with a chance that rises with s along a line, else any other class
    local         agrees with the remote with a chance that rises with s^2; where it does not, and the remote is wrong,
                  it is right with chance `rescue`; else it is any class but the remote's

So agreement rises with confidence, as the paper assumes, and both models are better where the local one is surer. The
accuracies are set by hand to about those of real models; each trace says which came out.

Only additions, multiplications and comparisons of uniform numbers are used: every machine makes the same bits.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hinge.traces.columns import Floats
from hinge.traces.files import write_trace
from hinge.traces.trace import Trace

Integers = NDArray[np.int64]
SAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Setting:
    """What a synthetic trace is drawn from; the pairs are chances at the lowest and at the highest confidence."""

    name: str
    shape: str
    classes: int
    crowding: int
    agreement: tuple[float, float]
    remote_accuracy: tuple[float, float]
    rescue: float
    seed: int


SETTINGS = (
    Setting(
        name="synthetic-cifar10",
        shape="CIFAR-10: 10 classes, a weak local model that is often too sure, a strong remote one",
        classes=10,
        crowding=3,
        agreement=(0.19, 0.97),
        remote_accuracy=(0.875, 0.975),
        rescue=0.6,
        seed=10,
    ),
    Setting(
        name="synthetic-cifar100",
        shape="CIFAR-100: 100 classes, a weak local model, a middling remote one",
        classes=100,
        crowding=2,
        agreement=(0.12, 0.96),
        remote_accuracy=(0.72, 0.87),
        rescue=0.55,
        seed=100,
    ),
    Setting(
        name="synthetic-imagenet",
        shape="ImageNet: 1000 classes, a small local model, a middling remote one",
        classes=1000,
        crowding=2,
        agreement=(0.32, 0.98),
        remote_accuracy=(0.66, 0.84),
        rescue=0.6,
        seed=1000,
    ),
)


def synthesise(setting: Setting, samples: int = SAMPLES) -> Trace:
    """The synthetic trace of a setting; the same one every time.

    >>> synthesise(SETTINGS[0], samples=100)
    <Trace 'synthetic-cifar10': 100 samples, confidence, local, remote, label, agreement 0...>
    """
    # PCG64 by name, as the default may change with numpy's version.
    draws = iter(np.random.Generator(np.random.PCG64(setting.seed)).random((7, samples)))
    classes = setting.classes
    sureness = 1 - _power(next(draws), setting.crowding)
    label = _any_class(next(draws), classes)
    remote_right = next(draws) < _between(setting.remote_accuracy, sureness)
    remote = np.where(remote_right, label, _another_class(next(draws), classes, label))
    agreed = next(draws) < _between(setting.agreement, sureness * sureness)
    rescued = ~remote_right & (next(draws) < setting.rescue)
    apart = np.where(rescued, label, _another_class(next(draws), classes, remote))
    local = np.where(agreed, remote, apart)
    lowest = 1 / classes  # of a largest softmax probability
    return _described(setting, Trace(lowest + (1 - lowest) * sureness, local, remote, label))


def _described(setting: Setting, trace: Trace) -> Trace:
    about = {
        "kind": "synthetic: drawn from formulas; no image was seen and no model was run",
        "shape": setting.shape,
        "script": f"python -m tools.synthetic_traces, seed {setting.seed}",
        "agreement": f"{trace.agreement:.1%}",
        "local accuracy": f"{trace.local_accuracy:.1%}",
        "remote accuracy": f"{trace.remote_accuracy:.1%}",
    }
    return Trace(**trace.columns, name=setting.name, about=about)


def _power(base: Floats, exponent: int) -> Floats:
    """By multiplying, as numpy's own power rounds differently from machine to machine."""
    product = base
    for _ in range(exponent - 1):
        product = product * base
    return product


def _between(ends: tuple[float, float], part: Floats) -> Floats:
    low, high = ends
    return low + (high - low) * part


def _any_class(uniform: Floats, classes: int) -> Integers:
    return (uniform * classes).astype(np.int64)


def _another_class(uniform: Floats, classes: int, than: Integers) -> Integers:
    return (than + 1 + _any_class(uniform, classes - 1)) % classes


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes every synthetic trace into a folder."""
    parser = argparse.ArgumentParser(prog="python -m tools.synthetic_traces", description="Make the synthetic traces.")
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="an existing folder")
    folder = parser.parse_args(arguments).out
    for setting in SETTINGS:
        trace = synthesise(setting)
        write_trace(trace, folder / f"{setting.name}.npz")
        print(trace)


if __name__ == "__main__":
    main()
