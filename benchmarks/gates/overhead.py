"""What the gate adds to a sample that is accepted, over calling the local model alone."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.report import Table, span
from benchmarks.timing import Timed, calls, in_turn
from hinge import Device, OnnxModel, fashion

GOAL_NS = 5_000.0
BATCH = 1_000


def confident(local: Callable[[Any], Any], samples: Any, label: int) -> Any:
    """A sample of that class of which the local model is sure."""
    sure = [sample for sample in samples if (scores := local(sample)).argmax() == label and np.ptp(scores) > 8]
    return sure[0]


def trained(local: Callable[[Any], Any], sample: Any, state: Path | None = None) -> Device:
    """A device that accepts such samples, having learned that local is right."""
    right = int(np.argmax(local(sample)))
    device = Device(local, lambda _: right, offload_cost=0.5, deadline_s=10, state=state)
    while device.infer(sample).offloaded:
        pass
    return device


def report(quick: bool) -> list[Table]:
    images, _ = fashion.labelled_images()
    model = OnnxModel(fashion.local_model())
    image = confident(model, images[:500], 9)
    ten, thousand = model(image), np.random.default_rng(1).normal(size=1000).astype(np.float32)
    thousand[3] = 20.0
    cases: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "the shipped local model": (model, image),
        "a function that returns 10 scores": (lambda _: ten, None),
        "a function that returns 1000 scores": (lambda _: thousand, None),
    }
    cases["the shipped local model, state on disk"] = model, image
    with TemporaryDirectory() as folder, ExitStack() as devices:
        batches = {}
        for name, (local, sample) in cases.items():
            state = Path(folder) if name.endswith("on disk") else None
            device = devices.enter_context(trained(local, sample, state))
            batches[f"{name}: alone"] = calls(local, [sample] * BATCH)
            batches[f"{name}: gated"] = calls(device.infer, [sample] * BATCH)
        timed = in_turn(batches, 5 if quick else 100)
    return [_table(timed, list(cases))]


def _table(timed: dict[str, Timed], cases: list[str]) -> Table:
    table = Table("An accepted sample: the device over the local model alone")
    for name in cases:
        alone, gated = timed[f"{name}: alone"], timed[f"{name}: gated"]
        added = gated.ns - alone.ns
        detail = f"{span(gated.ns)} against {span(alone.ns)}; noise {alone.noise:.2f} and {gated.noise:.2f}"
        table.goal(name, f"<= {span(GOAL_NS)}", span(added), added <= GOAL_NS, detail)
    table.notes.append("Shortest of many batches, in turn, in processor time; noise is the median over the shortest.")
    return table
