"""Print the tables of docs/microcontrollers.md: bytes of code and state, and cycles on an ATmega328P.

python -m tools.sizes
"""

import tempfile
from pathlib import Path

from hinge.embedded.twin import constants
from tools.boards.cycles import Cycles, count_cycles
from tools.boards.sizes import MODES, builds, doubles_of, size_of
from tools.boards.targets import BOARDS

CONSTANTS = constants(bins=16, alpha=0.52, offload_cost=0.45)  # no round number: those make shorter code


def main() -> None:
    """Measure and print."""
    print("| bytes | " + " | ".join(target.name for target in BOARDS) + " | state |")
    print("|---|" + "--:|" * (len(BOARDS) + 1))
    for mode in MODES:
        sizes = [size_of(target, mode, CONSTANTS) if builds(target, mode) else None for target in BOARDS]
        codes = [str(size.code) if size else "–" for size in sizes]
        print(f"| {mode} | " + " | ".join(codes) + f" | {sizes[0].state if sizes[0] else 0} |")
    seals = [str(size_of(target, "table only", CONSTANTS, "seal.c").code) for target in BOARDS]
    print("| seal and check, of any | " + " | ".join(seals) + " | 4 |")
    doubles = [str(doubles_of(target, CONSTANTS)) if builds(target, "sentinel") else "–" for target in BOARDS]
    print("| doubles, by the compiler's library | " + " | ".join(doubles) + " | 0 |")
    print("\n| cycles | -Os | -O2 |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        columns = [count_cycles(flag, CONSTANTS, Path(folder)) for flag in ("-Os", "-O2")]
    for field in Cycles._fields:
        print(f"| {field.replace('_', ' ')} | " + " | ".join(str(getattr(column, field)) for column in columns) + " |")


if __name__ == "__main__":
    main()
