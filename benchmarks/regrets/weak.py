"""Equally weak local models: how far the paper's tables move when only the local model is trained again.

The models of `weak.npz` (training/weak.py) differ in seed, length of training and peak rate, and all are right in 67 to
69 % of CIFAR-10's test images. The remote is that of the trace `cifar10-vgg16`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from hinge import HILCB, HILCBLite, Isotonic, Policy, Sentinel, Trace, UniformBins, load_trace, simulate
from hinge.paper.figures import PAPER_TABLES, calibration_error
from hinge.policies import HedgeHI
from hinge.simulation.sources import ConstantPrice, Resampled

HORIZON, COST = 100_000, 0.5
SHIPPED = "cifar10-vgg16"
IN_PAPER = {"HI-LCB": "HI-LCB, α = 0.52", "HI-LCB-lite": "HI-LCB-lite, α = 0.52", "Hedge-HI": "Hedge-HI"}


def policies() -> dict[str, Policy]:
    """The paper's, and ours beside them."""
    told: dict[str, Any] = {"bins": 16, "offload_cost": COST}
    return {
        "HI-LCB": HILCB(**told),
        "HI-LCB-lite": HILCBLite(**told),
        "Hedge-HI": HedgeHI(**told, horizon=HORIZON, seed=0),
        "Isotonic": Isotonic(**told),
        "Sentinel": Sentinel(**told),
    }


def traces() -> dict[str, Trace]:
    """The shipped trace, and one for each of the other models."""
    shipped = load_trace(SHIPPED)
    with np.load(Path(__file__).with_suffix(".npz")) as found:
        if shipped.label is None or not np.array_equal(found["label"], shipped.label):
            raise ValueError("weak.npz: its images are not those of the trace")
        rows = zip(found["recipe"], found["confidence"], found["local"], strict=True)
        others = {
            str(recipe): Trace(confidence.astype(float), local.astype(int), shipped.remote, shipped.label)
            for recipe, confidence, local in rows
        }
    return {"as shipped": shipped} | others


def report(quick: bool) -> list[str]:
    runs = 2 if quick else 20
    lines = [
        "## Equally weak local models",
        "",
        f"CIFAR-10 at cost {COST}, {runs} runs of {HORIZON} samples: VGG16s that are right in 67 to 69 % of the test",
        "images. The share of samples offloaded, and in per cent how often the device's answer is the remote's. The",
        "error is the expected calibration error against the remote's answers.",
        "",
    ]
    names = list(policies())
    lines += [f"| local model | right, % | error | {' | '.join(names)} |", "|---" * (len(names) + 3) + "|"]
    shares: dict[str, list[float]] = {name: [] for name in names}
    accuracies: dict[str, list[float]] = {name: [] for name in names}
    for recipe, trace in traces().items():
        source = Resampled(trace, UniformBins(16), ConstantPrice(COST))
        results = simulate(policies(), source, HORIZON, runs, seed=7)
        for name in names:
            shares[name].append(float(results[name].offload_fraction[:, -1].mean()))
            accuracies[name].append(100 * float(results[name].accuracy[:, -1].mean()))
        cells = [f"{shares[name][-1]:.3f}, {accuracies[name][-1]:.1f}" for name in names]
        right = 100 * float(trace.local_accuracy or 0)
        lines.append(f"| {recipe} | {right:.1f} | {calibration_error(source):.3f} | {' | '.join(cells)} |")
    for what, pick in (("**least**", min), ("**most**", max)):
        cells = [f"{pick(shares[name]):.3f}, {pick(accuracies[name]):.1f}" for name in names]
        lines.append(f"| {what} | | | {' | '.join(cells)} |")
    paper = {name: PAPER_TABLES["CIFAR-10", title] for name, title in IN_PAPER.items()}
    cells = [f"{paper[name][0]:.3f}, {paper[name][1]:.1f}" if name in paper else "" for name in names]
    return [*lines, f"| the paper | | | {' | '.join(cells)} |", ""]
