"""Print the tables of docs/microcontrollers.md: bytes of code and state, and cycles on an ATmega328P.

python -m tools.sizes
"""

import tempfile
from pathlib import Path

from tools.boards.cycles import Cycles, count_cycles
from tools.boards.sizes import modes, size_of
from tools.boards.targets import BOARDS, M0_CLANG

MODES = modes(bins=16, offload_cost=0.45)  # no round number: those make shorter code
TARGETS = (*BOARDS[:1], M0_CLANG, *BOARDS[1:])


def main() -> None:
    """Measure and print."""
    print("| bytes | " + " | ".join(target.name for target in TARGETS) + " | state |")
    print("|---|" + "--:|" * (len(TARGETS) + 1))
    for mode, settings in MODES.items():
        sizes = [size_of(target, settings) for target in TARGETS]
        print(f"| {mode} | " + " | ".join(str(size.code) for size in sizes) + f" | {sizes[0].state} |")
    seals = [str(size_of(target, MODES["probation"], "seal.c").code) for target in TARGETS]
    print("| seal and check, of any | " + " | ".join(seals) + " | 4 |")
    columns = [(mode, flag) for mode in ("probation", "hi-lcb") for flag in ("-Os", "-O2")]
    print(
        "\n| cycles | " + " | ".join(f"{mode}, {flag}" for mode, flag in columns) + " |\n|---|" + "--:|" * len(columns)
    )
    with tempfile.TemporaryDirectory() as folder:
        counts = [count_cycles(flag, MODES[mode], Path(folder)) for mode, flag in columns]
    for field in Cycles._fields:
        print(f"| {field.replace('_', ' ')} | " + " | ".join(str(getattr(count, field)) for count in counts) + " |")


if __name__ == "__main__":
    main()
