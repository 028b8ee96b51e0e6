"""A soak: a million samples through a device with its state on disk and a server, and the memory of both on the way."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gates.resident import resident_mib
from benchmarks.report import Table
from hinge import Device, OnnxModel, OpenInference, fashion
from tools.peers.hinge import hinge

MARKS = 10
FLAT_MIB = 2.0  # by how much memory may differ between a tenth of the way and its end


def report(quick: bool) -> list[Table]:
    samples = 20_000 if quick else 1_000_000
    images, _ = fashion.labelled_images()
    with hinge({"remote": fashion.remote_model()}) as server, TemporaryDirectory() as folder:
        marks = list(_soaked(server.url, server.pid, images, samples, Path(folder)))
    table = Table("A soak", ["", "device MiB", "server MiB", "answered by remote", "fell back"])
    table.rows += [[f"{done} samples", f"{own:.1f}", f"{served:.1f}", *counts] for done, own, served, *counts in marks]
    goals = Table("Goals")
    for name, column in (("device", 1), ("server", 2)):
        grown = float(marks[-1][column]) - float(marks[0][column])
        detail = f"from a tenth of the way to its end, {samples} samples"
        goals.goal(f"{name}: growth", f"<= {FLAT_MIB:g} MiB", f"{grown:+.1f} MiB", grown <= FLAT_MIB, detail)
    goals.goal("a process that only imports the device", "–", f"{_imported():.0f} MiB", None, "for comparison")
    return [goals, table]


def _soaked(url: str, pid: int, images: Any, samples: int, folder: Path) -> Iterator[tuple[Any, ...]]:
    """Memory at every tenth of the way. Audits keep the server busy to the end."""
    remote = OpenInference(url, "remote")
    stream = cycle(images)
    with Device(OnnxModel(fashion.local_model()), remote, offload_cost=0.5, deadline_s=5, state=folder) as device:
        for mark in range(1, MARKS + 1):
            for sample in islice(stream, samples // MARKS):
                device.infer(sample)
            status = device.status
            counts = [str(status.answered_by_remote), str(sum(status.fell_back.values()))]
            yield mark * samples // MARKS, resident_mib() - _children_mib(pid), resident_mib(pid), *counts


def _children_mib(pid: int) -> float:
    """The server is our child, and its memory is not ours."""
    return resident_mib(pid)


def _imported() -> float:
    code = (
        "import sys; sys.path.insert(0, '.'); from hinge import Device, OnnxModel, OpenInference, fashion;"
        "OnnxModel(fashion.local_model()); from benchmarks.gates.resident import resident_mib; print(resident_mib())"
    )
    root = Path(__file__).resolve().parents[2]
    return float(subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True).stdout)
