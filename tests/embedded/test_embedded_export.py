"""`hinge export`: what it writes compiles, starts from what a policy knows, and decides as it."""

import json
import math
import subprocess
from pathlib import Path

import pytest

from hinge import HILCB, ClassBins, Gate, HILCBLite, Isotonic, Policy, Thompson, UniformBins
from hinge.cli.app import app
from hinge.cli.settings import UsageError
from hinge.device.store import Store
from hinge.embedded import export_c, export_table
from hinge.embedded.twin import LiteTwin, twin_of
from hinge.errors import HingeError, InvalidState, InvalidValue
from hinge.gate import sealed
from hinge.policies import Sentinel
from hinge.policies import policy as registering
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


def export(*arguments: str) -> None:
    command, bound, _ = app.parse_args(["export", *arguments], print_error=False, exit_on_error=False)
    command(*bound.args, **bound.kwargs)


def learned(policy: Policy) -> Policy:
    """The policy after a stream in which the upper half of the bins agrees."""
    for bin in list(range(policy.bins)) * 60:
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agreed=bin >= policy.bins // 2, cost=0.45)
    return policy


def saved(policy: Policy, folder: Path) -> str:
    path = folder / "state.json"
    path.write_text(json.dumps(policy.state()))
    return str(path)


def compiled(folder: Path, main: Path) -> str:
    """What a program prints that is built with the exported library."""
    program = folder / "program"
    sources = [str(main), str(folder / "src/hinge.c")]
    command = ["gcc", *STRICT, f"-I{folder / 'src'}", *sources, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True, timeout=10, check=True).stdout


def next_decisions(folder: Path, rounds: int = 1) -> list[bool]:
    """What the exported device decides for its next samples, one of each bin in a round."""
    main = folder / "next.c"
    main.write_text(NEXT.replace("ROUNDS", f"{rounds}"))
    return [digit == "1" for digit in compiled(folder, main)]


@pytest.mark.parametrize(
    ("policy", "cost"),
    [("hi-lcb", "0.4"), ("hi-lcb", "learned"), ("hi-lcb-lite", "0.4"), ("hi-lcb-lite", "learned"), ("sentinel", "0.4")],
)
def test_a_fresh_library_is_complete_and_its_example_runs(policy: str, cost: str, tmp_path: Path) -> None:
    alpha = [] if policy == "sentinel" else ["--set", "alpha=0.6"]
    export("c", "--policy", policy, "--bins", "8", *alpha, "--offload-cost", cost, "--out", str(tmp_path))
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == FILES
    assert "{version}" not in (tmp_path / "library.json").read_text() + (tmp_path / "library.properties").read_text()
    assert json.loads((tmp_path / "library.json").read_text())["name"] == "Hinge"
    need("gcc")
    assert compiled(tmp_path, tmp_path / "examples/plain/main.c").endswith("of 1000 samples offloaded\n")


@pytest.mark.parametrize(
    ("kind", "offload_cost"), [(HILCB, 0.45), (HILCB, None), (HILCBLite, 0.45), (HILCBLite, None), (Sentinel, 0.45)]
)
def test_a_device_goes_on_from_a_state(
    kind: type[HILCB | HILCBLite | Sentinel], offload_cost: float | None, tmp_path: Path
) -> None:
    policy = learned(kind(bins=6, offload_cost=offload_cost))
    export("c", "--state", saved(policy, tmp_path), "--out", str(tmp_path / "c"))
    need("gcc")
    decided = [policy.decide(bin).offload for bin in range(6)]
    assert next_decisions(tmp_path / "c") == decided
    assert True in decided
    assert False in decided


def test_any_policy_with_expiries_becomes_a_table(tmp_path: Path) -> None:
    policy = learned(Isotonic(bins=6, offload_cost=0.45))
    export("table", "--state", saved(policy, tmp_path), "--out", str(tmp_path / "c"))
    config = (tmp_path / "c/src/hinge_config.h").read_text()
    assert "#define HINGE_TABLE_ONLY\n" in config
    assert "HINGE_RATE" not in config
    need("gcc")
    assert next_decisions(tmp_path / "c") == [policy.decide(bin).offload for bin in range(6)]
    assert "samples offloaded" in compiled(tmp_path / "c", tmp_path / "c/examples/plain/main.c")


@pytest.mark.parametrize("offload_cost", [0.45, None])
def test_sentinel_becomes_a_table_of_countdowns(offload_cost: float | None, tmp_path: Path) -> None:
    policy = learned(Sentinel(bins=6, offload_cost=offload_cost))
    assert isinstance(policy, Sentinel)
    export("table", "--state", saved(policy, tmp_path), "--out", str(tmp_path / "c"))
    licences = [policy.countdown(bin) for bin in range(6)]
    assert [granted > 0 for _, granted in licences] == [False] * 3 + [True] * 3
    assert any(left < granted for left, granted in licences)
    need("gcc")
    rounds = 3 * max(granted for _, granted in licences)
    found = next_decisions(tmp_path / "c", rounds)
    for bin, (left, granted) in enumerate(licences):
        audits = [sample for sample in range(rounds) if found[6 * sample + bin]]
        assert audits == list(range(left, rounds, granted + 1))
    first = 6 * min(left for left, granted in licences if granted) + 6  # until the policy would have learned
    assert found[:first] == [policy.decide(sample % 6).offload for sample in range(first)]
    assert "samples offloaded" in compiled(tmp_path / "c", tmp_path / "c/examples/plain/main.c")


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
EDGES = [1 / 256, 0.003920, 0.2, 0.5, math.nextafter(0.5, 1), 0.999, 1.0]


@pytest.mark.parametrize("kind", ["c", "table", "state"])
def test_confidences_are_sorted_by_the_edges_of_the_gate(kind: str, tmp_path: Path) -> None:
    gate, out = Gate(offload_cost=0.5, bins=EDGES), ["--out", str(tmp_path / "c")]
    (tmp_path / "state.json").write_text(json.dumps(sealed(gate.state())))
    edges, state = ["--bins", ",".join(map(str, EDGES))], ["--state", str(tmp_path / "state.json")]
    told = {"c": ["c", *edges], "table": ["table", *state], "state": ["c", *state]}
    export(*told[kind], *out)
    need("gcc")
    (tmp_path / "c/bins.c").write_text(BINS)
    found = compiled(tmp_path / "c", tmp_path / "c/bins.c").split()
    assert list(map(int, found)) == [gate.bins.bin(step / 256) for step in range(256)]


def test_bins_that_stay_empty_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export("c", "--bins", ",".join(map(str, EDGES)), "--out", str(tmp_path))
    empty = len(EDGES) + 1 - len({Gate(offload_cost=0.5, bins=EDGES).bins.bin(step / 256) for step in range(256)})
    assert f"--bins: {empty} of 8 bins stay empty" in capsys.readouterr().err
    state = tmp_path / "state.json"
    state.write_text(json.dumps(sealed(Gate(offload_cost=0.5, bins=EDGES).state())))
    export("c", "--state", str(state), "--out", str(tmp_path / "known"))
    assert f"{state}: {empty} of 8 bins stay empty" in capsys.readouterr().err
    export("c", "--bins", "0.5,0.9", "--out", str(tmp_path / "wide"))
    assert capsys.readouterr().err == ""


def test_bins_that_no_device_can_sort_by_are_refused(tmp_path: Path) -> None:
    gate = Gate(offload_cost=0.5, bins=ClassBins(UniformBins(4), 2))
    with pytest.raises(TypeError, match="bins must be UniformBins or EdgeBins, got ClassBins"):
        export_table(gate, tmp_path)


def test_the_longest_licence_is_cut_to_fit(tmp_path: Path) -> None:
    export_table(Sentinel(bins=1, offload_cost=1.0), tmp_path)
    assert "{4294967295u, 4294967295u}" in (tmp_path / "src/hinge_config.h").read_text()


def test_the_longest_licence_of_a_device_that_learns_is_shorter(tmp_path: Path) -> None:
    policy = learned(Sentinel(bins=1, offload_cost=1 - 1e-9))
    assert isinstance(policy, Sentinel)
    policy.table.left[0] = policy.table.granted[0] = 2**33
    export_c(twin_of(policy), tmp_path)
    assert "{2147483646u, 2147483646u, " in (tmp_path / "src/hinge_config.h").read_text()


def test_offloads_beyond_32_bits_are_scaled_down_and_keep_their_mean() -> None:
    policy = Sentinel(bins=2, offload_cost=0.6)
    policy.learn_log([1] * 6_000, [True, False] * 3_000, weight=1e6)
    assert policy.table.offloads[1] > 2**32
    table = twin_of(policy).table
    assert table.offloads[1] < 2**24
    assert table.agreements[1] / table.offloads[1] == pytest.approx(0.5)
    assert (table.weight[1], table.total[1]) == (table.offloads[1], table.agreements[1])


def test_what_has_expired_stays_expired_past_the_end_of_the_clock(tmp_path: Path) -> None:
    policy = learned(Isotonic(bins=6, offload_cost=0.45))
    assert isinstance(policy, Isotonic)
    policy.time = 2**31 + 5_000
    ends = [policy.expiry(bin) for bin in range(6)]
    export("table", "--state", saved(policy, tmp_path), "--out", str(tmp_path / "c"))
    config = (tmp_path / "c/src/hinge_config.h").read_text()
    expired = sum(end <= policy.time + 1 for end in ends)
    assert expired > 0
    assert config.count("{0u}") == expired


def test_cmake_builds_the_library_and_its_example(tmp_path: Path) -> None:
    need("cmake", "gcc")
    export_c(LiteTwin(offload_cost=0.5), tmp_path)
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
    export_c(twin_of(HILCB(bins=4, offload_cost=0.5)), tmp_path)
    sketch = tmp_path / "sketch.cpp"
    sketch.write_text(ARDUINO + (tmp_path / "examples/Gate/Gate.ino").read_text())
    strict = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command = ["g++", *strict, f"-I{tmp_path / 'src'}", str(sketch)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_clocks_and_counts_beyond_the_devices_own_are_cut_to_fit(tmp_path: Path) -> None:
    policy = HILCBLite(bins=1, offload_cost=0.5)
    policy.time, policy.table.offloads[0], policy.table.agreements[0] = 2**40, 1e9, 1e9
    policy._rebuild()
    export_c(twin_of(policy), tmp_path)
    config = (tmp_path / "src/hinge_config.h").read_text()
    assert "2147483648u, { \\\n        {4294967295u, 61036u, 61035u} \\" in config
    export_table(policy, tmp_path)
    assert "2147483648u, { \\\n        {4294967295u} \\" in (tmp_path / "src/hinge_config.h").read_text()


def test_refusals(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "c")]
    with pytest.raises(UsageError, match="only sentinel, hi-lcb and hi-lcb-lite learn on a device"):
        export("c", "--policy", "isotonic", *out)
    with pytest.raises(UsageError, match="--policy own:Greedy: only sentinel, hi-lcb and hi-lcb-lite learn"):
        export("c", "--policy", "own:Greedy", *out)
    with pytest.raises(UsageError, match="--bins is in the state already"):
        export("c", "--bins", "4", "--state", saved(HILCB(4, offload_cost=0.5), tmp_path), *out)
    with pytest.raises(HingeError, match="bins must be an integer from 1 to 255"):
        export("c", "--bins", "1000", *out)
    with pytest.raises(ValueError, match="offload_unseen must be True"):
        export("c", "--state", saved(HILCB(4, offload_cost=0.5, offload_unseen=False), tmp_path), *out)
    with pytest.raises(HingeError, match="offload_cost must be known, above 0 and below 1"):
        export("c", "--policy", "sentinel", "--offload-cost", "learned", *out)
    with pytest.raises(InvalidValue, match="stakes must be None"):
        export("c", "--state", saved(Sentinel(4, offload_cost=0.5, stakes=[1.0, 0.6]), tmp_path), *out)
    with pytest.raises(InvalidValue, match="offload_cost must be a number from 0 to 1, or 'learned'"):
        export("c", "--offload-cost", "dear", *out)
    with pytest.raises(UsageError, match="has no table of expiries or countdowns"):
        export("table", "--state", saved(Thompson(4, offload_cost=0.5), tmp_path), *out)
    (tmp_path / "state.json").write_text("[")
    with pytest.raises(InvalidState, match="holds no state"):
        export("table", "--state", str(tmp_path / "state.json"), *out)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("folder", [True, False])
def test_a_policy_that_is_not_known_here_is_told_what_writes_its_table(
    folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("hinge.policies.policy._registry", dict(registering._registry))  # Mine is forgotten afterwards

        class Mine(HILCB):
            name = "mine"

        with Store(tmp_path / "state", Gate(Mine(4, offload_cost=0.5))) as store:
            store.sync()
        path = str(tmp_path / "state") if folder else saved(Mine(4, offload_cost=0.5), tmp_path)
    with pytest.raises(InvalidState, match=r"'mine'.*your own is written in Python, by hinge\.embedded") as caught:
        export("table", "--state", path, "--out", str(tmp_path / "c"))
    assert "hinge state" not in str(caught.value)


def test_what_may_have_been_edited_is_not_replaced_in_silence(tmp_path: Path) -> None:
    example = tmp_path / "examples/plain/main.c"
    for _ in range(2):  # the same again changes nothing
        export("c", "--out", str(tmp_path))
    original = example.read_text()
    example.write_text("mine")
    with pytest.raises(UsageError, match=r"main\.c is there already, with another content: --replace writes over"):
        export("c", "--bins", "8", "--out", str(tmp_path))
    assert "HINGE_BINS 16" in (tmp_path / "src/hinge_config.h").read_text(), "nothing is written"
    export("c", "--bins", "8", "--replace", "--out", str(tmp_path))
    assert example.read_text() == original
    assert "HINGE_BINS 8" in (tmp_path / "src/hinge_config.h").read_text()


def test_a_table_comes_from_the_folder_of_a_device_too(tmp_path: Path) -> None:
    policy = learned(HILCB(bins=6, offload_cost=0.45))
    with Store(tmp_path / "state", Gate(policy)) as store:
        store.sync()
    for source, out in ((str(tmp_path / "state"), "one"), (saved(policy, tmp_path), "other")):
        export("table", "--state", source, "--out", str(tmp_path / out))
    one, other = ((tmp_path / out / "src/hinge_config.h").read_text() for out in ("one", "other"))
    assert one == other
