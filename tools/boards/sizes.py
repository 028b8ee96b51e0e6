"""What the C library takes on a target: bytes of code and of state, and what it calls."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hinge.embedded.twin import Constants
from tools.boards.targets import HERE, Target, defines

MODES: dict[str, tuple[str, ...]] = {
    "table only": ("HINGE_TABLE_ONLY",),
    "table only, sentinel": ("HINGE_TABLE_ONLY", "HINGE_SENTINEL"),
    "hi-lcb-lite": (),
    "hi-lcb": ("HINGE_MONOTONE",),
    "hi-lcb-lite, learned cost": ("HINGE_LEARNED_COST",),
    "hi-lcb, learned cost": ("HINGE_MONOTONE", "HINGE_LEARNED_COST"),
}


@dataclass(frozen=True)
class Size:
    """Of one mode on one target, in bytes."""

    code: int  # constants included
    state: int
    calls: list[str]  # functions that come from the compiler's library


def size_of(target: Target, mode: str, constants: Constants) -> Size:
    """Compile with -Os and look."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "size.o")
        target.compile(HERE / "size.c", out, ("-Os", *defines(constants, *MODES[mode])))
        symbols = _symbols(target, out)
    state = next(int(size, 16) for size, kind, name in symbols if name == "state")
    code = sum(int(size, 16) for size, kind, _ in symbols if kind in "tTrR" and size)
    return Size(code, state, sorted(name for _, kind, name in symbols if kind == "U" and not name.startswith("__do_")))


def _symbols(target: Target, file: Path) -> list[tuple[str, str, str]]:
    """Size, kind and name of all symbols; an empty size where there is none."""
    program = target.compiler.replace("gcc", "nm")
    done = subprocess.run([program, "-S", str(file)], capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(row[1] if len(row) == 4 else "", row[-2], row[-1]) for row in rows]
