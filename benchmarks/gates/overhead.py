"""What the gate adds to a sample that is accepted, over calling the local model alone."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.goals import add
from benchmarks.report import Table, span
from benchmarks.timing import Probe, Reading, clock, interleave
from hinge import Device, Isotonic, OnnxModel, fashion

GOAL_NS = 5_000.0


def called(function: Callable[[Any], Any], sample: Any) -> Probe:
    """A probe of one call."""

    def run(size: int) -> Reading:
        calls = range(size)
        began = clock()
        for _ in calls:
            function(sample)
        return Reading(clock() - began, size)

    return Probe(run)


def confident(local: Callable[[Any], Any], samples: Any, label: int) -> Any:
    """A sample of that class of which the local model is sure."""
    sure = [sample for sample in samples if (scores := local(sample)).argmax() == label and np.ptp(scores) > 8]
    return sure[0]


def trained(local: Callable[[Any], Any], sample: Any, state: Path | None = None) -> Device:
    """A device that accepts such samples, having learned that local is right."""
    right = int(np.argmax(local(sample)))
    device = Device(local, lambda _: right, Isotonic(bins=16, offload_cost=0.5), deadline_s=10, state=state)
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
    with TemporaryDirectory() as folder:
        probes: dict[str, tuple[Probe, Probe]] = {}
        devices = []
        for name, (local, sample) in cases.items():
            devices.append(trained(local, sample))
            probes[name] = called(local, sample), called(devices[-1].infer, sample)
        devices.append(trained(model, image, Path(folder)))
        probes["the shipped local model, state on disk"] = called(model, image), called(devices[-1].infer, image)
        everything = [probe for pair in probes.values() for probe in pair]
        interleave([], everything, 5 if quick else 60, 0.02, 30.0)
        for device in devices:
            device.close()
    return [_table(probes)]


def _table(probes: dict[str, tuple[Probe, Probe]]) -> Table:
    header = ["", "goal", "measured", "", "detail"]
    table = Table("An accepted sample: the device over the local model alone", header)
    for name, (alone, gated) in probes.items():
        added = gated.best_ns() - alone.best_ns()
        noise = f"noise {alone.noise():.2f} and {gated.noise():.2f}"
        detail = f"{span(gated.best_ns())} against {span(alone.best_ns())}; {noise}"
        add(table, name, f"<= {span(GOAL_NS)}", span(added), added <= GOAL_NS, detail)
    table.notes.append("Shortest of many batches, in turn, in processor time; noise is the median over the shortest.")
    return table
