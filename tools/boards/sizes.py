"""What the C library takes on a target: bytes of code and of state, and what it calls."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hinge.embedded.twin import Constants
from tools.boards.targets import AVR, HERE, Target, defines

MODES: dict[str, tuple[str, ...]] = {
    "table only": ("HINGE_TABLE_ONLY",),
    "table only, sentinel": ("HINGE_TABLE_ONLY", "HINGE_SENTINEL"),
    "hi-lcb-lite": (),
    "hi-lcb": ("HINGE_MONOTONE",),
    "sentinel": ("HINGE_SENTINEL",),
    "hi-lcb-lite, learned cost": ("HINGE_LEARNED_COST",),
    "hi-lcb, learned cost": ("HINGE_MONOTONE", "HINGE_LEARNED_COST"),
}


def builds(target: Target, mode: str) -> bool:
    """Whether a target can: the AVR's doubles have 32 bits, too few for Sentinel to learn."""
    return target is not AVR or mode != "sentinel"


@dataclass(frozen=True)
class Size:
    """Of one mode on one target, in bytes."""

    code: int  # constants included
    state: int  # 0 where the program has none
    calls: list[str]  # functions that come from the compiler's library


def size_of(target: Target, mode: str, constants: Constants, program: str = "size.c") -> Size:
    """Compile with -Os and look; `seal.c` is what a program takes on beside it that keeps its state in flash."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "size.o")
        target.compile(HERE / program, out, ("-Os", *defines(constants, *MODES[mode])))
        symbols = _symbols(target, out)
    state = sum(int(size, 16) for size, _, name in symbols if name == "state")
    code = sum(int(size, 16) for size, kind, _ in symbols if kind in "tTrR" and size)
    return Size(code, state, sorted(name for _, kind, name in symbols if kind == "U" and not name.startswith("__do_")))


def doubles_of(target: Target, constants: Constants) -> int:
    """Bytes of the compiler's library that arithmetic in doubles adds to a program with Sentinel."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ("-Os", "-DSAMPLES=1u", *defines(constants, "HINGE_SENTINEL"))
        target.build("stream.c", Path(folder, "whole"), flags)
        parts = ("stream.c", target.board)
        for part in parts:
            target.compile(HERE / part, Path(folder, f"{part}.o"), flags)
        return _text(target, Path(folder, "whole")) - sum(_text(target, Path(folder, f"{part}.o")) for part in parts)


def _text(target: Target, file: Path) -> int:
    """Bytes of code and constants."""
    program = target.compiler.replace("gcc", "size")
    done = subprocess.run([program, str(file)], capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout.splitlines()[1].split()[0])


def _symbols(target: Target, file: Path) -> list[tuple[str, str, str]]:
    """Size, kind and name of all symbols; an empty size where there is none."""
    program = target.compiler.replace("gcc", "nm")
    done = subprocess.run([program, "-S", str(file)], capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(row[1] if len(row) == 4 else "", row[-2], row[-1]) for row in rows]
