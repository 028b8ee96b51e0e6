"""The C on this machine: equal to its twin, clean under every check, whole under fuzzing."""

import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hinge import Decision, UniformBins
from hinge.embedded import C_FOLDER
from hinge.embedded.twin import CLOCK_END, LATEST, LONGEST, LiteTwin, MonotoneTwin, SentinelTwin, Twin
from tests.embedded.library import Library, Sealed
from tests.embedded.toolchains import ALL, available, need
from tools.boards.sizes import MODES
from tools.boards.streams import hashes, modes_of
from tools.boards.targets import CLANG, HERE, HOST, HOSTS, STRICT, Target, defines

TWINS = [LiteTwin, MonotoneTwin]
SANITIZED = ("-g", "-O1", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")
FUZZED = 1_000_000 if ALL else 20_000


@pytest.fixture
def library() -> Callable[[Twin], Library]:
    need("gcc")
    return Library


@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize(
    ("alpha", "offload_cost"), [(0.52, 0.5), (0.1, 0.31), (7.0, 0.97), (0.52, 1.0), (0.52, 0.0), (0.52, None)]
)
def test_the_c_learns_as_its_twin_from_any_counts(
    kind: type[LiteTwin | MonotoneTwin], alpha: float, offload_cost: float | None, library: Callable[[Twin], Library]
) -> None:
    twin = kind(16, alpha, offload_cost)
    c, chance = library(twin), np.random.default_rng(6)
    for _ in range(2000):
        bin, agreed, cost = int(chance.integers(16)), bool(chance.integers(2)), int(chance.integers(2**15 + 1))
        offloads, agreements = any_counts(chance)
        twin.table.offloads[bin], twin.table.agreements[bin] = offloads, agreements
        c.state.bins[bin].offloads, c.state.bins[bin].agreements = offloads, agreements
        if offload_cost is None:
            twin.table.costs[0] = c.state.offloads = any_counts(chance)[0]
            twin.table.costs[1] = c.state.costs = int(twin.table.costs[0] * chance.integers(2**15 + 1))
        twin.functions.learns(twin.table, bin, float(agreed), cost / 2**15, 1, 1)
        c.learn(bin, agreed, cost)
        for field in ("expiry", "offloads", "agreements"):
            assert c.column(field) == list(getattr(twin.table, field))
        if offload_cost is None:
            assert [c.state.offloads, c.state.costs] == list(twin.table.costs)


@pytest.mark.parametrize(
    ("bins", "offload_cost"),
    [
        *((16, cost) for cost in (0.05, 0.45, 0.9, 0.999999)),
        *((4, 1 - 1e-8), (1, 1 - 1e-10), (24, 0.45), (100, 0.45), (255, 0.9)),
    ],
)
def test_the_c_follows_sentinels_twin_with_late_and_lost_feedback(
    bins: int, offload_cost: float, library: Callable[[Twin], Library]
) -> None:
    twin = SentinelTwin(bins, offload_cost)
    c, chance = library(twin), np.random.default_rng(6)
    waiting: list[Decision] = []
    for sample in range(20_000):
        bin = int(bins * chance.beta(3, 1))
        decision = twin.decide(bin)
        assert c.decide(bin) == decision.offload
        waiting += [decision] if decision.offload else []
        while waiting and chance.random() < 0.5:
            told = waiting.pop(int(chance.integers(len(waiting))))
            assert told.bin is not None
            agreed = bool(chance.random() < (told.bin + 1) / bins / (1 + 2 * (sample // 4000 % 2)))
            if chance.random() < 0.9:
                twin.learn(told, agreed=agreed)
                c.learn(told.bin, agreed)
        if sample % 100 == 0:
            assert_equal(c, twin)
    assert min(twin.alarms.values()) > 0 or (bins, offload_cost) != (16, 0.45)
    assert_equal(c, twin)


def assert_equal(c: Library, twin: SentinelTwin) -> None:
    """Equal to the last bit."""
    table = twin.table
    for field in ("left", "granted", "arrivals", "offloads", "agreements", "recent_offloads", "recent_agreements"):
        assert c.column(field) == list(getattr(table, field)), field
    for field in ("weight", "total", "support", "evidence", "suspicion", "rising", *(["cut"] * (twin.bins >= 32))):
        assert c.column(field) == list(getattr(table, field)), field
    assert c.column("below") == [bin - first for bin, first in enumerate(table.first)]
    assert c.column("audited") == [int(time > 0) for time in table.audited]
    assert [c.state.audits, c.state.offloads, c.state.misfit] == list(table.sums)
    assert [c.state.time, c.state.since] == [twin.time, table.since[0]]
    assert getattr(c.state, "alarms", twin.alarms["agreement"]) == twin.alarms["agreement"]


def test_sentinel_begins_again_when_its_clock_ends(library: Callable[[Twin], Library]) -> None:
    c, fresh = library(SentinelTwin(2, 0.5)), Library.__new__(Library)
    for _ in range(100):
        if c.decide(1):
            c.learn(1, True)
    c.state.time = CLOCK_END - 2
    left = c.state.bins[1].left
    assert left > 3
    assert [c.decide(1) for _ in range(3)] == [False] * 3
    assert (c.state.time, c.state.bins[1].left) == (CLOCK_END, left - 3)
    assert c.decide(0)  # where a licence is to be found, the clock is needed
    fresh.state = type(c.state)(time=1)
    fresh.state.bins[0].arrivals = 1
    assert bytes(c.state) == bytes(fresh.state)


def test_sentinels_longest_licence_fits(library: Callable[[Twin], Library]) -> None:
    c = library(SentinelTwin(1, 1 - 1e-9))
    c.state.time = 2**30
    c.state.bins[0].offloads = c.state.bins[0].agreements = 40
    assert c.decide(0)
    c.learn(0, True)
    assert not c.decide(0)
    assert c.state.bins[0].granted == LONGEST - 1


def test_millions_of_offloads_that_prove_nothing_do_not_end_a_licence_soon(library: Callable[[Twin], Library]) -> None:
    c = library(SentinelTwin(255, 0.5))
    c.state.time, bin = 2_000_000_000, c.state.bins[1]
    bin.offloads, bin.agreements, bin.arrivals = 3_368_601, 1_684_301, 3_368_601  # 5 * 255 times as many need 33 bits
    bin.weight, bin.total, bin.support, bin.evidence, bin.below = 10_000_000, 9_000_000, 10_000_000, 1e6, 1
    assert not c.decide(1)
    assert bin.granted == int(20.0 * math.sqrt(255 * 3_368_601 * (9_000_001 / 10_000_002 - 0.5)) / 0.5)


LITE, MONOTONE, SENTINEL = LiteTwin(16, 0.52, 0.5), MonotoneTwin(16, 0.52, 0.5), SentinelTwin(16, 0.5)
LEARNED = LiteTwin(16, 0.52), MonotoneTwin(16, 0.52)
OTHER_BINS = LiteTwin(15, 0.52, 0.5), SentinelTwin(15, 0.5)


@pytest.fixture(scope="module")
def sealed() -> list[Sealed]:
    """Of all policies and some bins, after some samples; as a device would have them in flash."""
    need("gcc")
    chance, taught = np.random.default_rng(6), list[Sealed]()
    for twin in (LITE, MONOTONE, SENTINEL, *LEARNED, *OTHER_BINS):
        learner = Library(twin)
        for bin in chance.integers(0, twin.bins, 200).tolist():
            if learner.decide(bin):
                learner.learn(bin, bool(chance.integers(2)), 9)
        taught.append(learner)
    return taught


def test_a_state_that_comes_back_as_it_was_is_sound(sealed: list[Sealed]) -> None:
    for each in sealed:
        assert each.is_sound(bytes(each.state), each.seal())


def test_a_state_that_was_erased_is_not_sound(sealed: list[Sealed]) -> None:
    for each in sealed:
        for empty in (b"\xff", b"\0"):
            size = len(bytes(each.state))
            assert not each.is_sound(empty * size, int.from_bytes(4 * empty, "little"))
            assert not each.is_sound(empty * size, each.seal())


def test_a_state_that_was_torn_or_worn_is_not_sound(sealed: list[Sealed]) -> None:
    """Written only in part over another, or with a wrong bit: a CRC finds every burst of up to 32 bits."""
    chance = np.random.default_rng(7)
    for each in sealed:
        saved, seal = bytes(each.state), each.seal()
        for at in chance.integers(1, len(saved), 20).tolist():
            for before in (b"\xff" * len(saved), bytes(len(saved))):
                torn = saved[:at] + before[at:]
                assert each.is_sound(torn, seal) == (torn == saved)
            bit = 1 << int(chance.integers(8))
            assert not each.is_sound(saved[:at] + bytes([saved[at] ^ bit]) + saved[at + 1 :], seal)
        assert not each.is_sound(saved, seal ^ 1)


def test_a_state_of_other_bins_or_another_policy_is_not_sound(sealed: list[Sealed]) -> None:
    for each in sealed:
        for other in sealed:
            size = max(len(bytes(each.state)), len(bytes(other.state)))
            flash = bytes(other.state) + other.seal().to_bytes(4, "little") + b"\xff" * size  # what is read from it
            own = len(bytes(each.state))
            read = int.from_bytes(flash[own : own + 4], "little")
            assert each.is_sound(flash[:own], read) == (each is other)
            assert not each.is_sound(flash[:own], other.seal()) or each is other


def any_counts(chance: np.random.Generator) -> tuple[int, int]:
    """Offloads of any magnitude that a counter holds, and agreements; often all of them."""
    offloads = min(65535, int(2 ** chance.uniform(0, 16.1)) - 1)
    return offloads, int(chance.integers(0, offloads + 1)) if chance.integers(4) else offloads


def test_a_cost_above_one_counts_as_one(library: Callable[[Twin], Library]) -> None:
    c = library(LiteTwin(1))
    c.learn(0, True, 65535)
    assert (c.state.costs, c.state.offloads) == (32768, 1)


@pytest.mark.parametrize("expiry", [0, 1, CLOCK_END - 1, CLOCK_END, CLOCK_END + 1, LATEST])
@pytest.mark.parametrize("time", [0, 1, CLOCK_END - 3, CLOCK_END - 1, CLOCK_END])
def test_the_c_decides_as_its_twin_at_the_ends(expiry: int, time: int, library: Callable[[Twin], Library]) -> None:
    twin = LiteTwin(1, offload_cost=0.5)
    c = library(twin)
    c.state.time, c.state.bins[0].expiry = time, expiry
    twin.time, twin.table.expiry[0] = time, expiry
    assert [c.decide(0) for _ in range(5)] == [twin.decide(0).offload for _ in range(5)]
    assert c.state.time == min(twin.time, CLOCK_END)


def test_a_bin_too_high_is_offloaded_and_teaches_nothing(library: Callable[[Twin], Library]) -> None:
    c = library(LiteTwin(3, offload_cost=0.5))
    for bin in range(3):
        c.state.bins[bin].expiry = LATEST
    assert [c.decide(bin) for bin in (2, 3, 255)] == [False, True, True]
    before = bytes(c.state)
    c.learn(3, True)
    c.learn(255, False)
    assert bytes(c.state) == before


@pytest.mark.parametrize("bins", [1, 3, 16, 255])
def test_bins_of_quantised_confidences_are_those_of_uniform_bins(bins: int, library: Callable[[Twin], Library]) -> None:
    c, uniform = library(LiteTwin(bins, offload_cost=0.5)), UniformBins(bins)
    for step in range(256):
        assert c.bin_from_int8(step - 128) == uniform.bin(step / 256)


@pytest.mark.parametrize("target", HOSTS, ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("kind", "offload_cost"), [*((kind, cost) for kind in TWINS for cost in (0.45, None)), (SentinelTwin, 0.45)]
)
def test_a_stream_is_decided_as_by_the_twin_under_sanitizers(
    target: Target,
    kind: type[Twin],
    offload_cost: float | None,
    tmp_path: Path,
) -> None:
    twin, program = kind(16, offload_cost=offload_cost), tmp_path / "stream"
    samples = 20_000 if offload_cost is None or kind is SentinelTwin else 100_000
    flags = (*SANITIZED, f"-DSAMPLES={samples}u", *defines(twin.constants, *modes_of(twin)))
    available(target).build("stream.c", program, flags)
    assert target.run(program) == hashes(twin, samples)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", HOSTS, ids=lambda target: target.name)
def test_it_compiles_without_a_warning(target: Target, mode: str, tmp_path: Path) -> None:
    flags = defines(LiteTwin(255, offload_cost=0.45).constants, *MODES[mode])
    available(target).compile(HERE / "size.c", tmp_path / "size.o", ("-O2", *flags))
    available(target).compile(HERE / "seal.c", tmp_path / "seal.o", ("-O2", *flags))


@pytest.mark.parametrize("mode", ["HINGE_MONOTONE", "HINGE_SENTINEL"])
def test_it_compiles_as_cpp(mode: str, tmp_path: Path) -> None:
    need("g++")
    source = tmp_path / "sketch.cpp"
    source.write_text('#define HINGE_IMPLEMENTATION\n#include "hinge.h"\n')
    strict = [flag for flag in STRICT if not flag.startswith("-std")]
    constants = defines(LiteTwin(16, offload_cost=0.45).constants, mode)
    command = ["g++", "-std=c++11", *strict, *constants, f"-I{C_FOLDER}", "-c", str(source), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_cppcheck_finds_nothing(mode: str) -> None:
    need("cppcheck")
    checks = ["--enable=warning,style,performance,portability", "--std=c99", "--error-exitcode=1", "--quiet"]
    allowed = ["--suppress=unusedStructMember", "--suppress=missingIncludeSystem"]  # the state is read by its user
    constants = defines(LiteTwin(16, offload_cost=0.45).constants, *MODES[mode], "DBL_MANT_DIG=53")  # no float.h there
    command = ["cppcheck", *checks, *allowed, *constants, f"-I{C_FOLDER}", str(HERE / "size.c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("kind", "offload_cost"), [(LiteTwin, 0.45), (MonotoneTwin, 0.45), (MonotoneTwin, None), (SentinelTwin, 0.45)]
)
def test_fuzzed_inputs_break_nothing(kind: type[Twin], offload_cost: float | None, tmp_path: Path) -> None:
    twin = kind(4, offload_cost=offload_cost)
    fuzz("fuzz.c", defines(twin.constants, *modes_of(twin)), tmp_path)


def fuzz(name: str, constants: tuple[str, ...], tmp_path: Path) -> None:
    """Run a program with libFuzzer."""
    need(CLANG.compiler)
    program = tmp_path / "fuzz"
    flags = ["-g", "-O1", "-fsanitize=fuzzer,undefined,address", "-fno-sanitize-recover=all", *STRICT]
    source = str(Path(__file__).with_name(name))
    command = [CLANG.compiler, *flags, *constants, f"-I{C_FOLDER}", source, "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "libclang_rt.fuzzer" in built.stderr:
        need("libclang_rt.fuzzer (libclang-rt-dev)")
    assert built.returncode == 0, built.stderr
    limits = [f"-runs={FUZZED}", "-seed=6", "-max_len=512", "-timeout=10", "-max_total_time=240", "-verbosity=1"]
    done = subprocess.run([program, *limits], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"Done {FUZZED}" in done.stderr


def test_sentinel_does_not_learn_a_cost(tmp_path: Path) -> None:
    flags = defines(SentinelTwin(16, 0.5).constants, "HINGE_SENTINEL", "HINGE_LEARNED_COST")
    with pytest.raises(RuntimeError, match="does not learn the offload cost"):
        available(HOST).compile(HERE / "size.c", tmp_path / "size.o", flags)


def test_a_million_samples_are_decided_as_by_the_twin(tmp_path: Path) -> None:
    twin = LiteTwin(16, 0.52, 0.5)
    available(HOST).build("stream.c", tmp_path / "s", ("-Os", "-DSAMPLES=1000000u", *defines(twin.constants)))
    assert HOST.run(tmp_path / "s") == hashes(twin, 1_000_000)
