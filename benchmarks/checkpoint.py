"""Long measurements in parts, on all cores: what is done is kept on disk, and the next run goes on from there.

Ctrl-C ends a measurement with what there is so far, and the page that is written says how much that is.
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

FOLDER = Path.home() / ".cache" / "hinge" / "benchmarks"

Part = TypeVar("Part", bound=tuple[Any, ...])
Measure = Callable[[Part], Sequence[Any]]


def measured(
    name: str, code: str, measure: Measure[Part], parts: Iterable[Part], chunk: int = 1, prepare: Iterable[Any] = ()
) -> dict[Part, list[Any]]:
    """The figures of each part that is done, in order; what is on disk by the same `code` is not measured again.

    `measure` is a function of a module, parts and figures are what JSON holds. `chunk` parts in succession go to one
    process. Where something is left, the processes first call what is to be prepared, such as code to be compiled.
    """
    file = FOLDER / f"{name}-{hashlib.sha256(code.encode()).hexdigest()[:12]}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    keys = {part: json.dumps(part) for part in parts}
    found: dict[str, list[Any]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        part, *figures = json.loads(line)
        found[json.dumps(part)] = figures
    left = [part for part, key in keys.items() if key not in found]
    if left:
        ignored = (signal.signal, (signal.SIGINT, signal.SIG_IGN))  # Ctrl-C is for the one that writes
        try:
            with get_context("spawn").Pool(len(os.sched_getaffinity(0)), *ignored) as pool, file.open("a") as log:
                for done, _ in enumerate(pool.imap_unordered(_call, prepare), 1):
                    print(f"\rprepared: {done}", end="", file=sys.stderr)
                begun = time.monotonic()
                for done, (part, figures) in enumerate(pool.imap_unordered(partial(_measure, measure), left, chunk), 1):
                    found[keys[part]] = figures
                    log.write(json.dumps([part, *figures]) + "\n")
                    log.flush()
                    minutes = (time.monotonic() - begun) / done * (len(left) - done) / 60
                    print(f"\r{name}: {done} of {len(left)} parts, {minutes:.0f} min left ", end="", file=sys.stderr)
            print(file=sys.stderr)
        except KeyboardInterrupt:
            print(", stopped", file=sys.stderr)
    return {part: found[key] for part, key in keys.items() if key in found}


def _measure(measure: Measure[Part], part: Part) -> tuple[Part, list[Any]]:
    return part, list(measure(part))


def _call(function: Callable[[], object]) -> None:
    function()
