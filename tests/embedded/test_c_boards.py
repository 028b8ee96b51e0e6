"""The C on emulated boards: it decides as its twin, and keeps within its bytes and cycles."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from hinge.embedded.twin import HILCBTwin, ProbationTwin, Twin
from tests.embedded.toolchains import available
from tools.boards.cycles import count_cycles
from tools.boards.sizes import modes, size_of
from tools.boards.streams import hashes
from tools.boards.targets import AVR, BOARDS, HOSTS, M0, M0_CLANG, Target, defines

ROOT = Path(__file__).parents[2]
SAMPLES = 100_000
MOST = {  # bytes on a Cortex-M0: of code, and of state for each bin, beside 16
    "probation": (1300, 24),
    "probation, table only": (48, 8),
    "hi-lcb": (384, 12),
    "hi-lcb-lite": (320, 8),
    "hi-lcb, table only": (48, 4),
}


def fresh(name: str) -> Twin:
    if name.startswith("probation"):
        return ProbationTwin(16, 0.06 if "cheap" in name else 0.45)
    return HILCBTwin(16, 0.52, 0.45, monotone=name == "hi-lcb")


@cache
def twin_hashes(name: str) -> list[int]:
    return hashes(fresh(name), SAMPLES)


@pytest.mark.parametrize("name", ["probation", "probation, cheap offloads", "hi-lcb", "hi-lcb-lite"])
@pytest.mark.parametrize("target", [*HOSTS, *BOARDS], ids=lambda target: target.name)
def test_the_c_decides_as_the_twin(target: Target, name: str, tmp_path: Path) -> None:
    sanitized = ("-g", "-O1", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")
    flags = (*(sanitized if target in HOSTS else ("-Os",)), f"-DSAMPLES={SAMPLES}u", *defines(fresh(name).settings))
    available(target).build("stream.c", tmp_path / "stream.elf", flags)
    assert target.run(tmp_path / "stream.elf") == twin_hashes(name)


@pytest.mark.parametrize("mode", MOST)
@pytest.mark.parametrize(("bins", "offload_cost"), [(16, 0.45), (255, 0.9)])
@pytest.mark.parametrize("target", [M0, M0_CLANG], ids=lambda target: target.name)
def test_a_cortex_m0_needs_no_more_than_promised(target: Target, mode: str, bins: int, offload_cost: float) -> None:
    settings = modes(bins, offload_cost)[mode]
    size = size_of(available(target), settings)
    most_code, most_state = MOST[mode]
    assert size.code <= most_code
    assert size.state <= most_state * bins + 16
    seal = size_of(target, settings, "seal.c")
    assert (seal.code <= 128, seal.state, seal.calls) == (True, 0, [])


@pytest.mark.parametrize("target", BOARDS, ids=lambda target: target.name)
def test_no_board_needs_floating_point_or_division(target: Target) -> None:
    for settings in modes(16, 0.45).values():
        calls = size_of(available(target), settings).calls
        assert calls == [] or (target is AVR and set(calls) <= {"__mulsi3", "__umulhisi3", "__muluhisi3"})


@pytest.mark.parametrize("optimisation", ["-Os", "-O2"])
def test_an_atmega_decides_within_its_cycles(optimisation: str, tmp_path: Path) -> None:
    available(AVR)
    for mode, most in (("probation", 120), ("hi-lcb", 60)):
        cycles = count_cycles(optimisation, modes(16, 0.45)[mode], tmp_path)
        assert max(cycles.accept, cycles.offload) <= most
        assert cycles.float_accept >= 20 * max(cycles.accept, cycles.offload)


def test_a_cortex_m0_gates_fashion_mnist_as_the_twin_does() -> None:
    available(M0)
    command = [sys.executable, "-m", "examples.microcontroller.fashion"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "10000 decisions equal those of the twin" in done.stdout
