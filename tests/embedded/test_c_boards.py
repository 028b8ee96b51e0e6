"""The C on emulated boards: it decides as its twin, and keeps within its bytes and cycles."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from hinge.embedded.twin import LiteTwin, MonotoneTwin, SentinelTwin, Twin, constants
from tests.embedded.toolchains import available
from tools.boards.cycles import count_cycles
from tools.boards.sizes import MODES, builds, size_of
from tools.boards.streams import hashes, modes_of
from tools.boards.targets import AVR, BOARDS, M0, Target, defines

ROOT = Path(__file__).parents[2]
SETTINGS = [(16, 0.52, 0.5), (16, 0.52, 0.45), (255, 0.1, 0.31), (100, 3.7, 0.9)]  # bins, alpha, offload cost
MOST_SEAL = 96
MOST = {  # bytes on a Cortex-M0: of code, and of state for each bin, beside 16
    "table only": (32, 4),
    "table only, sentinel": (32, 8),
    "hi-lcb-lite": (256, 12),
    "hi-lcb": (384, 12),
    "sentinel": (3200, 73),
    "sentinel, many bins": (3392, 81),  # from 32 on
    "hi-lcb-lite, learned cost": (416, 12),
    "hi-lcb, learned cost": (416, 12),
}


@cache
def twin_hashes(kind: type[Twin], offload_cost: float | None, samples: int) -> list[int]:
    return hashes(kind(16, offload_cost=offload_cost), samples)


@pytest.mark.parametrize("kind", [LiteTwin, MonotoneTwin])
@pytest.mark.parametrize("offload_cost", [0.45, None])
@pytest.mark.parametrize("target", BOARDS, ids=lambda target: target.name)
def test_a_board_decides_as_the_twin(
    target: Target,
    kind: type[Twin],
    offload_cost: float | None,
    tmp_path: Path,
) -> None:
    twin, samples = kind(16, offload_cost=offload_cost), 100_000 if target.slow else 1_000_000
    samples //= 10 if offload_cost is None else 1  # each of its lessons bears on every bin
    flags = ("-Os", f"-DSAMPLES={samples}u", *defines(twin.constants, *modes_of(twin)))
    available(target).build("stream.c", tmp_path / "stream.elf", flags)
    assert target.run(tmp_path / "stream.elf") == twin_hashes(kind, offload_cost, samples)


@pytest.mark.parametrize("target", [target for target in BOARDS if builds(target, "sentinel")], ids=lambda at: at.name)
@pytest.mark.parametrize("offload_cost", [0.1, 0.35])
def test_a_board_decides_as_sentinels_twin(target: Target, offload_cost: float, tmp_path: Path) -> None:
    twin, samples = SentinelTwin(16, offload_cost), 30_000
    flags = ("-Os", f"-DSAMPLES={samples}u", *defines(twin.constants, *modes_of(twin)))
    available(target).build("stream.c", tmp_path / "stream.elf", flags)
    assert target.run(tmp_path / "stream.elf") == hashes(twin, samples)
    assert min(twin.alarms.values()) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_cortex_m0_needs_no_more_than_promised(mode: str, setting: tuple[int, float, float]) -> None:
    size = size_of(available(M0), mode, constants(*setting))
    most_code, most_state = MOST["sentinel, many bins" if mode == "sentinel" and setting[0] >= 32 else mode]
    assert size.code <= most_code
    assert size.state <= most_state * setting[0] + 16
    assert size.calls == [] or mode == "sentinel"
    seal = size_of(M0, mode, constants(*setting), "seal.c")
    assert (seal.code <= MOST_SEAL, seal.state, seal.calls) == (True, 0, [])


@pytest.mark.parametrize("target", BOARDS, ids=lambda target: target.name)
def test_no_board_needs_floating_point_or_division_but_for_sentinel(target: Target) -> None:
    for mode in set(MODES) - {"sentinel"}:
        calls = size_of(available(target), mode, constants(16, 0.52, 0.45)).calls
        assert calls == [] or (target is AVR and set(calls) <= {"__mulsi3", "__umulhisi3", "__muluhisi3"})


@pytest.mark.parametrize("target", BOARDS, ids=lambda target: target.name)
def test_sentinel_needs_arithmetic_and_no_library(target: Target) -> None:
    if builds(available(target), "sentinel"):
        calls = size_of(target, "sentinel", constants(16, 0.6, 0.45)).calls
        assert all(call.startswith("__") for call in calls)  # as compilers name their own
    else:
        with pytest.raises(RuntimeError, match="doubles of 64 bits"):
            size_of(target, "sentinel", constants(16, 0.6, 0.45))


@pytest.mark.parametrize("optimisation", ["-Os", "-O2"])
def test_an_atmega_decides_within_its_cycles(optimisation: str, tmp_path: Path) -> None:
    available(AVR)
    cycles = count_cycles(optimisation, constants(16, 0.52, 0.45), tmp_path)
    assert cycles.accept <= 60
    assert cycles.offload <= 60
    assert cycles.float_accept >= 20 * cycles.accept_by_call


def test_a_cortex_m0_gates_fashion_mnist_as_the_simulator_does() -> None:
    available(M0)
    command = [sys.executable, "-m", "examples.microcontroller.fashion"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "10000 decisions equal those of the simulated hi-lcb-lite" in done.stdout
