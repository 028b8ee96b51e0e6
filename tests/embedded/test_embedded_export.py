"""What `hinge export` writes: a library that is complete, builds everywhere, and decides as the gate it came from."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hinge import HILCB, EdgeBins, Gate, HILCBLite, Policy, Probation, Thompson, Threshold, UniformBins
from hinge.embedded import bins_of, export_c, export_table
from hinge.embedded.twin import log_odds
from hinge.policies import AlwaysLocal
from tests.embedded.toolchains import need
from tools.boards.targets import STRICT

FILES = {
    *("src/hinge.h", "src/hinge.c", "src/hinge_config.h", "examples/plain/main.c", "examples/Gate/Gate.ino"),
    *("library.properties", "library.json", "CMakeLists.txt"),
    *("zephyr/module.yml", "zephyr/CMakeLists.txt", "zephyr/Kconfig"),
}
NEXT = """
#include <stdio.h>
#include "hinge.h"
int main(void)
{
    struct hinge gate = HINGE_START;
    int sample;
    for (sample = 0; sample < ROUNDS * HINGE_BINS; sample++)
        putchar(hinge_decide(&gate, (uint8_t)(sample % HINGE_BINS)) ? '1' : '0');
    return 0;
}
"""
BINS = """
#include <stdio.h>
#include "hinge.h"
int main(void)
{
    int step;
    for (step = -128; step < 128; step++)
        printf("%u ", (unsigned int)hinge_bin_from_int8((int8_t)step));
    return 0;
}
"""


def taught(gate: Gate, samples: int = 4000) -> Gate:
    """The gate after samples that agree as often as their confidence says."""
    chance = np.random.default_rng(6)
    for confidence in chance.beta(3, 1, samples).tolist():
        decision = gate.decide(confidence=confidence)
        if decision.offload:
            gate.learn(decision, agreed=bool(chance.random() < confidence), cost=0.3)
    return gate


def printed(folder: Path, main: Path) -> str:
    """What a program prints that is built with the exported library."""
    need("gcc")
    program = folder / "program"
    command = ["gcc", *STRICT, f"-I{folder / 'src'}", str(main), str(folder / "src/hinge.c"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True, timeout=10, check=True).stdout


def next_decisions(folder: Path, rounds: int = 1) -> list[bool]:
    """What the exported device decides for its next samples, one of each bin in a round."""
    main = folder / "next.c"
    main.write_text(NEXT.replace("ROUNDS", f"{rounds}"))
    return [digit == "1" for digit in printed(folder, main)]


@pytest.mark.parametrize("kind", [Probation, HILCB, HILCBLite])
def test_a_fresh_library_is_complete_and_its_example_runs(kind: type[Policy], tmp_path: Path) -> None:
    written = export_c(kind.from_settings({"bins": 8, "offload_cost": 0.4}), tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in written} == FILES
    assert "{version}" not in (tmp_path / "library.json").read_text() + (tmp_path / "library.properties").read_text()
    assert json.loads((tmp_path / "library.json").read_text())["name"] == "Hinge"
    assert printed(tmp_path, tmp_path / "examples/plain/main.c").endswith("of 1000 samples offloaded\n")


@pytest.mark.parametrize("export", [export_c, export_table])
@pytest.mark.parametrize(
    "gate",
    [
        Gate(offload_cost=0.3),
        Gate(),  # the price is measured
        Gate(offload_cost=0.3, bins=[0.5, 0.9]),
        Gate("hi-lcb", offload_cost=0.3),
        Gate("hi-lcb-lite", bins=6),
    ],
    ids=["fitted", "measured", "edges", "hi-lcb", "hi-lcb-lite, measured"],
)
def test_a_device_goes_on_from_what_a_gate_knows(export: type, gate: Gate, tmp_path: Path) -> None:
    gate = taught(gate.fresh())
    export(gate, tmp_path)
    parts = bins_of(gate).parts
    decided = [gate.policy.decide(bin).offload for _ in range(2) for (bin,) in parts]
    assert next_decisions(tmp_path, 2) == decided
    assert {True, False} == {*decided}


def test_probation_becomes_a_table_of_countdowns(tmp_path: Path) -> None:
    gate = taught(Gate(offload_cost=0.3, bins=6))
    table = gate.policy.table
    licences = list(zip(table.left, table.granted, strict=True))
    assert any(0 < left < granted for left, granted in licences)
    export_table(gate, tmp_path)
    rounds = 3 * max(granted for _, granted in licences)
    found = next_decisions(tmp_path, rounds)
    for bin, (left, granted) in enumerate(licences):
        audits = [sample for sample in range(rounds) if found[6 * sample + bin]]
        assert audits == list(range(left, rounds, granted + 1))
    assert "samples offloaded" in printed(tmp_path, tmp_path / "examples/plain/main.c")


def test_a_fixed_policy_becomes_a_table_too(tmp_path: Path) -> None:
    export_table(Gate(Threshold(0.8)), tmp_path / "threshold")
    assert next_decisions(tmp_path / "threshold", 2) == [True, False] * 2
    export_table(AlwaysLocal(1), tmp_path / "local")
    assert next_decisions(tmp_path / "local", 9) == [False] * 9


@pytest.mark.parametrize(
    "bins",
    [
        UniformBins(7),
        EdgeBins([1 / 256, 0.00392, 0.2, 0.5, 0.999, 1.0]),
        EdgeBins([0.3, 0.5, 0.500001, 0.9, 0.9000001]),
    ],
    ids=["uniform", "edges", "edges that fall together"],
)
@pytest.mark.parametrize("export", [export_c, export_table])
def test_confidences_are_sorted_by_the_edges_of_the_gate(export: type, bins: EdgeBins, tmp_path: Path) -> None:
    gate = Gate(offload_cost=0.5, bins=bins)
    export(gate, tmp_path)
    (tmp_path / "bins.c").write_text(BINS)
    parts = bins_of(gate).parts
    places = {bin: place for place, part in enumerate(parts) for bin in part}
    found = list(map(int, printed(tmp_path, tmp_path / "bins.c").split()))
    assert found == [places[bins.bin(step / 256)] for step in range(256)]


def test_fitted_bins_are_sorted_alike_but_within_a_step_of_an_edge(tmp_path: Path) -> None:
    gate = taught(Gate(offload_cost=0.3))
    edges, fitted = bins_of(gate).edges or [], gate.bins
    places = {bin: place for place, (bin,) in enumerate(bins_of(gate).parts)}
    for confidence in np.random.default_rng(6).beta(3, 1, 5000).tolist():
        steps = log_odds(int(confidence * 2**32))
        if min(abs(edge - steps) for edge in edges) > 1:
            assert sum(edge <= steps for edge in edges) == places[fitted.bin(confidence)]


def test_cmake_builds_the_library_and_its_example(tmp_path: Path) -> None:
    need("cmake", "gcc")
    export_c(Probation(16, 0.5), tmp_path)
    for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "build/hinge_example").exists()


ARDUINO = """
#include <stdint.h>
struct Port { void begin(long); void println(const char *); } Serial;
const int A0 = 0;
int analogRead(int);
"""


def test_the_sketch_compiles_as_cpp(tmp_path: Path) -> None:
    need("g++")
    export_c(taught(Gate(offload_cost=0.3)), tmp_path)
    sketch = tmp_path / "sketch.cpp"
    sketch.write_text(ARDUINO + (tmp_path / "examples/Gate/Gate.ino").read_text())
    strict = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command = ["g++", *strict, f"-I{tmp_path / 'src'}", str(sketch)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_what_has_expired_stays_expired_past_the_end_of_the_clock(tmp_path: Path) -> None:
    gate = taught(Gate("hi-lcb-lite", offload_cost=0.3, bins=6))
    gate.policy.time = 2**31 + 5_000
    export_table(gate, tmp_path)
    assert next_decisions(tmp_path, 2) == [gate.policy.decide(bin).offload for bin in (*range(6), *range(6))]


def test_what_has_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="thompson: has no table"):
        export_table(Thompson(4, offload_cost=0.5), tmp_path)
