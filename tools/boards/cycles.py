"""Cycles on an ATmega328P, as simavr counts them."""

from pathlib import Path
from typing import NamedTuple

from tools.boards.targets import AVR, defines


class Cycles(NamedTuple):
    """What `cycles.c` prints."""

    accept: int  # inlined
    offload: int  # inlined
    shortest_learn: int
    longest_learn: int
    float_accept: int  # the paper's formula
    float_learn: int


def count_cycles(optimisation: str, settings: dict[str, str], folder: Path) -> Cycles:
    """Build with that flag, and count."""
    program = folder / "cycles.elf"
    paper = ("-DALPHA=0.52f", "-DOFFLOAD_COST=0.45f", "-Wno-conversion")  # floats from integers, as one writes it
    AVR.build("cycles.c", program, (optimisation, *paper, *defines(settings)))
    return Cycles(*AVR.run(program))
