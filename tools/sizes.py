"""Print the tables of docs/microcontrollers.md: bytes of code and state, and cycles on an ATmega328P.

python -m tools.sizes
"""

import tempfile
from pathlib import Path

from hinge.embedded.twin import constants
from tools.boards.cycles import Cycles, count_cycles
from tools.boards.sizes import MODES, size_of
from tools.boards.targets import BOARDS

CONSTANTS = constants(bins=16, alpha=0.52, offload_cost=0.45)  # no round number: those make shorter code


def main() -> None:
    """Measure and print."""
    print("| bytes | " + " | ".join(target.name for target in BOARDS) + " | state |")
    print("|---|" + "--:|" * (len(BOARDS) + 1))
    for mode in MODES:
        sizes = [size_of(target, mode, CONSTANTS) for target in BOARDS]
        print(f"| {mode} | " + " | ".join(str(size.code) for size in sizes) + f" | {sizes[0].state} |")
    print("\n| cycles | -Os | -O2 |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        columns = [count_cycles(flag, CONSTANTS, Path(folder)) for flag in ("-Os", "-O2")]
    for field in Cycles._fields:
        print(f"| {field.replace('_', ' ')} | " + " | ".join(str(getattr(column, field)) for column in columns) + " |")


if __name__ == "__main__":
    main()
