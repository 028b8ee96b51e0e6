"""Cycles on an ATmega328P, as simavr counts them."""

from pathlib import Path
from typing import NamedTuple

from hinge.embedded.twin import Constants
from tools.boards.targets import AVR, defines


class Cycles(NamedTuple):
    """What `cycles.c` prints."""

    accept: int  # inlined
    offload: int  # inlined
    accept_by_call: int  # call and return included
    shortest_learn: int
    longest_learn: int
    float_accept: int  # the paper's formula, call and return included
    float_learn: int


def count_cycles(optimisation: str, constants: Constants, folder: Path) -> Cycles:
    """Build HI-LCB-lite with that flag, and count."""
    program = folder / "cycles.elf"
    paper = ("-DALPHA=0.52f", "-DOFFLOAD_COST=0.45f", "-Wno-conversion")  # floats from integers, as one writes it
    AVR.build("cycles.c", program, (optimisation, *paper, *defines(constants)))
    return Cycles(*AVR.run(program))
