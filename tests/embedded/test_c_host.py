"""The C on this machine: equal to its twin from any state, clean under every check, whole under fuzzing."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from hinge import EdgeBins, UniformBins
from hinge.embedded import C_FOLDER
from hinge.embedded.twin import (
    CLOCK_END,
    LATEST,
    LONGEST,
    HILCBTwin,
    ProbationTwin,
    Record,
    Twin,
    device_bins,
    log_odds,
)
from tests.embedded.library import Library, known
from tests.embedded.toolchains import ALL, available, need
from tools.boards.sizes import modes
from tools.boards.targets import CLANG, HERE, HOSTS, STRICT, Target, defines

FUZZED = 1_000_000 if ALL else 20_000
MODES = modes(16, 0.45)


@pytest.fixture(autouse=True)
def _compiler() -> None:
    need("gcc")


@pytest.mark.parametrize(
    ("bins", "offload_cost"), [*((16, cost) for cost in (0.02, 0.45, 0.9)), (1, 0.3), (4, 0.9999999), (255, 1e-7)]
)
def test_the_c_follows_probations_twin_with_late_and_lost_feedback(bins: int, offload_cost: float) -> None:
    twin, chance = ProbationTwin(bins, offload_cost), np.random.default_rng(6)
    c, waiting = Library(twin), list[int]()
    for sample in range(20_000):
        bin = int(bins * chance.beta(3, 1))
        offload = twin.decide(bin)
        assert c.decide(bin) == offload
        waiting += [bin] if offload else []
        while waiting and chance.random() < 0.5:
            told = waiting.pop(int(chance.integers(len(waiting))))
            agreed = bool(chance.random() < (told + 1) / bins / (1 + 2 * (sample // 4000 % 2)))
            if chance.random() < 0.9:
                twin.learn(told, agreed)
                c.learn(told, agreed)
        if sample % 100 == 0:
            assert c.known() == known(twin)
    assert c.known() == known(twin)


@pytest.mark.parametrize("offload_cost", [2.0**-16, 0.05, 0.5, 0.97, 1.0 - 2.0**-16])
def test_the_c_learns_as_probations_twin_from_any_state(offload_cost: float) -> None:
    chance = np.random.default_rng(6)
    for _ in range(1000):
        twin = ProbationTwin(4, offload_cost)
        twin.time, twin.learned = (any_of(chance, CLOCK_END) for _ in range(2))
        twin.fallen, twin.misled = (any_of(chance, 2**18) for _ in range(2))
        twin.bins = [any_record(chance) for _ in range(4)]
        c = Library(twin)
        for bin in chance.integers(0, 4, 8).tolist():
            agreed = bool(chance.integers(4))
            assert c.decide(bin) == twin.decide(bin)
            c.learn(bin, agreed)
            twin.learn(bin, agreed)
        assert c.known() == known(twin)


def any_of(chance: np.random.Generator, most: int) -> int:
    """A number of any magnitude."""
    return min(most, int(2 ** chance.uniform(0, np.log2(most) + 0.1)) - 1)


def any_record(chance: np.random.Generator) -> Record:
    """A record that feedback may have led to; often all agreed."""
    offloads, granted = any_of(chance, 8192), any_of(chance, LONGEST)
    agreements = int(chance.integers(0, offloads + 1)) if chance.integers(3) else offloads
    left = int(chance.integers(0, granted + 1)) if chance.integers(2) else 0
    samples = max(left, any_of(chance, 2**31))
    return Record(left, granted, samples, any_of(chance, 2**18), offloads, agreements, any_of(chance, 65535))


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(("alpha", "offload_cost"), [(0.52, 0.5), (0.1, 0.31), (7.0, 0.97), (0.52, 1.0), (0.52, 0.0)])
def test_the_c_learns_as_hi_lcbs_twin_from_any_counts(monotone: bool, alpha: float, offload_cost: float) -> None:
    twin, chance = HILCBTwin(16, alpha, offload_cost, monotone=monotone), np.random.default_rng(6)
    c = Library(twin)
    for _ in range(2000):
        bin, agreed, offloads = int(chance.integers(16)), bool(chance.integers(2)), any_of(chance, 65535)
        agreements = int(chance.integers(0, offloads + 1)) if chance.integers(4) else offloads
        twin.offloads[bin] = c.state.bins[bin].offloads = offloads
        twin.agreements[bin] = c.state.bins[bin].agreements = agreements
        twin.learn(bin, agreed)
        c.learn(bin, agreed)
        assert c.known() == known(twin)


@pytest.mark.parametrize("expiry", [0, 1, CLOCK_END - 1, CLOCK_END, CLOCK_END + 1, LATEST])
@pytest.mark.parametrize("time", [0, 1, CLOCK_END - 3, CLOCK_END - 1, CLOCK_END])
def test_the_c_decides_as_its_twin_at_the_ends(expiry: int, time: int) -> None:
    twin = HILCBTwin(1)
    twin.time, twin.expiry[0] = time, expiry
    c = Library(twin)
    assert [c.decide(0) for _ in range(5)] == [twin.decide(0) for _ in range(5)]
    assert c.state.time == twin.time


@pytest.mark.parametrize("twin", [ProbationTwin(3), HILCBTwin(3)], ids=lambda twin: twin.name)
def test_a_bin_too_high_is_offloaded_and_teaches_nothing(twin: Twin) -> None:
    c = Library(twin)
    assert [c.decide(bin) for bin in (3, 255)] == [True, True]
    before = bytes(c.state)
    c.learn(3, True)
    c.learn(255, False)
    assert bytes(c.state) == before


@pytest.mark.parametrize("bins", [1, 3, 16, 255])
def test_bins_of_quantised_confidences_are_those_of_uniform_bins(bins: int) -> None:
    c, uniform = Library(ProbationTwin(bins)), UniformBins(bins)
    assert [c.bin_from_int8(step - 128) for step in range(256)] == [uniform.bin(step / 256) for step in range(256)]


def test_confidences_are_sorted_by_edges_in_log_odds_as_by_the_twin() -> None:
    bins = EdgeBins([0.001, 0.25, 0.5, 0.9, 1 - 1e-6, 1.0])
    edges, chance = device_bins(bins).edges or [], np.random.default_rng(6)
    c = Library(ProbationTwin(len(edges) + 1), edges)
    near = [int(edge * 2**32) + step for edge in bins.edges for step in (-9999, -1, 0, 1, 9999)]
    for confidence in (*near, *(2**32 // (1 + 2 ** chance.uniform(-32, 32, 20_000))).astype(int).tolist()):
        confidence = min(max(confidence, 0), 2**32 - 1)
        assert c.bin(confidence) == sum(edge <= log_odds(confidence) for edge in edges)
    assert [c.bin_from_int8(step - 128) for step in range(256)] == [bins.bin(step / 256) for step in range(256)]


@pytest.fixture(scope="module")
def sealed() -> list[Library]:
    """Of all policies and some bins, after some samples; as a device would have them in flash."""
    need("gcc")
    chance, taught = np.random.default_rng(6), list[Library]()
    twins: list[Twin] = [
        ProbationTwin(16),
        ProbationTwin(15),
        HILCBTwin(16),
        HILCBTwin(16, monotone=True),
        HILCBTwin(15),
    ]
    for twin in twins:
        learner = Library(twin)
        for bin in chance.integers(0, 15, 200).tolist():
            if learner.decide(bin):
                learner.learn(bin, bool(chance.integers(2)))
        taught.append(learner)
    return taught


def test_only_a_state_that_comes_back_as_it_was_is_sound(sealed: list[Library]) -> None:
    """Neither one erased, nor one torn or with a wrong bit: a CRC finds every burst of up to 32 bits."""
    chance = np.random.default_rng(7)
    for each in sealed:
        saved, seal = bytes(each.state), each.seal()
        assert each.is_sound(saved, seal)
        assert not each.is_sound(saved, seal ^ 1)
        for empty in (b"\xff", b"\0"):
            assert not each.is_sound(empty * len(saved), int.from_bytes(4 * empty, "little"))
            assert not each.is_sound(empty * len(saved), seal)
            for at in chance.integers(1, len(saved), 20).tolist():
                torn = saved[:at] + (len(saved) - at) * empty
                assert each.is_sound(torn, seal) == (torn == saved)
                worn = saved[:at] + bytes([saved[at] ^ 1 << int(chance.integers(8))]) + saved[at + 1 :]
                assert not each.is_sound(worn, seal)


def test_a_state_of_other_bins_or_another_policy_is_not_sound(sealed: list[Library]) -> None:
    for each in sealed:
        for other in sealed:
            flash = bytes(other.state) + other.seal().to_bytes(4, "little") + b"\xff" * 4096  # what is read from it
            own = len(bytes(each.state))
            read = int.from_bytes(flash[own : own + 4], "little")
            assert each.is_sound(flash[:own], read) == (each is other)
            assert not each.is_sound(flash[:own], other.seal()) or each is other


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", HOSTS, ids=lambda target: target.name)
def test_it_compiles_without_a_warning(target: Target, mode: str, tmp_path: Path) -> None:
    for program in ("size.c", "seal.c"):
        for edges in ({}, {"EDGES": f"{{{','.join(map(str, range(15)))}}}"}):
            flags = defines({**MODES[mode], **edges})
            available(target).compile(HERE / program, tmp_path / "size.o", ("-O2", *flags))


@pytest.mark.parametrize("mode", MODES)
def test_it_compiles_as_cpp(mode: str, tmp_path: Path) -> None:
    need("g++")
    source = tmp_path / "sketch.cpp"
    source.write_text('#define HINGE_IMPLEMENTATION\n#include "hinge.h"\n')
    strict = [flag for flag in STRICT if not flag.startswith("-std")]
    constants = defines(MODES[mode])
    command = ["g++", "-std=c++11", *strict, *constants, f"-I{C_FOLDER}", "-c", str(source), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_cppcheck_finds_nothing(mode: str) -> None:
    need("cppcheck")
    checks = ["--enable=warning,style,performance,portability", "--std=c99", "--error-exitcode=1", "--quiet"]
    allowed = ["--suppress=unusedStructMember", "--suppress=missingIncludeSystem"]  # the state is read by its user
    command = ["cppcheck", *checks, *allowed, *defines(MODES[mode]), f"-I{C_FOLDER}", str(HERE / "size.c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize(
    "twin", [ProbationTwin(4, 0.45), HILCBTwin(4), HILCBTwin(4, monotone=True)], ids=lambda twin: twin.name
)
def test_fuzzed_inputs_break_nothing(twin: Twin, tmp_path: Path) -> None:
    need(CLANG.compiler)
    program = tmp_path / "fuzz"
    flags = ["-g", "-O1", "-fsanitize=fuzzer,undefined,address", "-fno-sanitize-recover=all", *STRICT]
    source = str(Path(__file__).with_name("fuzz.c"))
    command = [CLANG.compiler, *flags, *defines(twin.settings), f"-I{C_FOLDER}", source, "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "libclang_rt.fuzzer" in built.stderr:
        need("libclang_rt.fuzzer (libclang-rt-dev)")
    assert built.returncode == 0, built.stderr
    limits = [f"-runs={FUZZED}", "-seed=6", "-max_len=512", "-timeout=10", "-max_total_time=240", "-verbosity=1"]
    done = subprocess.run([program, *limits], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"Done {FUZZED}" in done.stderr
