"""What the C library takes on a target: bytes of code and of state, and what it calls."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hinge.embedded.twin import HILCBTwin, ProbationTwin
from tools.boards.targets import HERE, Target, defines


def modes(bins: int, offload_cost: float, alpha: float = 0.52) -> dict[str, dict[str, str]]:
    """Return the settings of everything that `hinge.h` can be."""
    plain = {"BINS": f"{bins}", "TABLE_ONLY": ""}
    return {
        "probation": ProbationTwin(bins, offload_cost).settings,
        "probation, table only": {**plain, "PROBATION": ""},
        "hi-lcb": HILCBTwin(bins, alpha, offload_cost, monotone=True).settings,
        "hi-lcb-lite": HILCBTwin(bins, alpha, offload_cost).settings,
        "hi-lcb, table only": plain,
    }


@dataclass(frozen=True)
class Size:
    """Of one mode on one target, in bytes."""

    code: int  # constants included
    state: int  # 0 where the program has none
    calls: list[str]  # functions that come from the compiler's library


def size_of(target: Target, settings: dict[str, str], program: str = "size.c") -> Size:
    """Compile with -Os and look; `seal.c` is what a program takes on beside it that keeps its state in flash."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "size.o")
        target.compile(HERE / program, out, ("-Os", *defines(settings)))
        symbols = _symbols(target, out)
    state = sum(int(size, 16) for size, _, name in symbols if name == "state")
    code = sum(int(size, 16) for size, kind, _ in symbols if kind in "tTrR" and size)
    return Size(code, state, sorted(name for _, kind, name in symbols if kind == "U" and not name.startswith("__do_")))


def _symbols(target: Target, file: Path) -> list[tuple[str, str, str]]:
    """Size, kind and name of all symbols; an empty size where there is none."""
    program = "nm" if target.compiler == "clang" else target.compiler.replace("gcc", "nm")
    done = subprocess.run([program, "-S", str(file)], capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(row[1] if len(row) == 4 else "", row[-2], row[-1]) for row in rows]
