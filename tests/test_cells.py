"""Bins that fit themselves: as the description says, sample by sample, and nothing is lost or invented."""

import json
import math
import random
from collections.abc import Callable, Iterator

import pytest

from hinge import FittedBins, Gate, InvalidState
from hinge.bins import restore_bins
from hinge.cells import CELLS
from hinge.policies import Decision
from tests.literal_cells import LiteralGate

Stream = Callable[[random.Random, int], float]
STREAMS: dict[str, Stream] = {
    "even": lambda chance, _: chance.random(),
    "crowded at 1": lambda chance, _: 1.0 - 10.0 ** -chance.uniform(0.2, 9.0),
    "exactly 1": lambda chance, _: chance.choice((1.0, 1.0, 1.0, 0.5, chance.random())),
    "crowded at 0": lambda chance, _: 10.0 ** -chance.uniform(0.5, 12.0),
    "int8": lambda chance, _: chance.choice((0, 25, 128, 192, 230, 250, 253, 254, 255, 256)) / 256.0,
    "one value": lambda *_: 0.7,
    "drifting": lambda chance, time: min(1.0, abs(chance.gauss(0.95 - time / 20_000, 0.05))),
}
POLICIES = ("probation", "hi-lcb", "hi-lcb-lite", "thompson", "target")
each_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)


def driven(gate: Gate, stream: Stream, samples: int, delay: int = 0, seed: int = 1) -> Iterator[None]:
    """Feed a gate, and say so whenever it has learned."""
    chance = random.Random(seed)
    waiting: list[tuple[Decision, bool]] = []
    for time in range(samples):
        confidence = stream(chance, time)
        decision = gate.decide(confidence=confidence)
        if decision.offload:
            waiting.append((decision, chance.random() < confidence**3))
        if waiting and len(waiting) > delay:
            gate.learn(*waiting.pop(0))
            yield


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("delay", [0, 200])
@each_stream
def test_it_decides_as_the_description_says(stream: Stream, delay: int, seed: int) -> None:
    chance = random.Random(seed)
    cost = chance.choice((0.05, 0.15, 0.3))
    gate, literal = Gate(offload_cost=cost), LiteralGate(cost)
    waiting: list[tuple[Decision, float, bool]] = []
    for time in range(5_000 if seed == 1 else 40_000):
        confidence = stream(chance, time)
        told = chance.choice((0.05, 0.4)) if chance.random() < 0.1 else None
        decision, offload = gate.decide(confidence=confidence, cost=told), literal.decide(confidence, told)
        assert decision.offload == offload, time
        if offload:
            waiting.append((decision, confidence, chance.random() < confidence ** (2 if time < 3_000 else 9)))
        if waiting and len(waiting) > delay * chance.random():
            decided, confidence, agreed = waiting.pop(0)
            gate.learn(decided, agreed)
            literal.learn(confidence, agreed)
    state = gate.bins.state()
    assert state["used"] == [
        [cell, *counts]
        for cell, counts in enumerate(zip(literal.samples, literal.offloads, literal.agreements, strict=True))
        if any(counts)
    ]
    assert [gate.bins.cells.group[cell] for cell in range(CELLS)] == literal.group  # type: ignore[attr-defined]  # these bins are fitted


@pytest.mark.parametrize("name", POLICIES)
@each_stream
def test_records_of_bins_are_the_sums_of_their_cells(name: str, stream: Stream) -> None:
    gate, told = Gate(name, offload_cost=0.2), 0
    if name == "target":
        gate = Gate("target")
    for _ in driven(gate, stream, 6_000, delay=20):
        told += 1
        if told % 40:
            continue
        sums: dict[int, list[float]] = {}
        used = gate.bins.state()["used"]
        for cell, _, offloads, agreements in used:
            record = sums.setdefault(gate.bins.cells.group[cell], [0.0, 0.0])  # type: ignore[attr-defined]  # these bins are fitted
            record[0] += offloads
            record[1] += agreements
        for bin in range(16):
            assert list(gate.policy.counts(bin) or ()) == sums.get(bin, [0.0, 0.0])
        if name != "probation":  # which drops what no longer holds
            assert sum(row[2] for row in used) == told
            assert sum(row[1] for row in used) == gate.policy.time


@each_stream
def test_bins_are_neighbouring_cells_of_about_equal_weight(stream: Stream) -> None:
    gate = Gate("hi-lcb-lite", offload_cost=1.0)  # no bin is near break-even, as all are worth accepting
    for _ in driven(gate, stream, 300):
        pass
    bins, chance = gate.bins, random.Random(2)
    assert isinstance(bins, FittedBins)
    grouping = bins.state()
    assert bins.edges == tuple(sorted(bins.edges))
    assert len(bins.edges) == len(grouping["bins"]) <= 15
    confidences = sorted([stream(chance, time) for time in range(300)] + [0.0, 1.0])
    found = [bins.bin(confidence) for confidence in confidences]
    assert found == sorted(found) == bins.bin_many(confidences).tolist()


def test_a_crowd_is_told_apart_and_a_single_value_is_one_bin() -> None:
    gates = {name: Gate(offload_cost=0.15) for name in STREAMS}
    for name, gate in gates.items():
        for _ in driven(gate, STREAMS[name], 10_000):
            pass
    crowd = gates["crowded at 1"].bins
    assert crowd.bin(0.99) < crowd.bin(0.999) < crowd.bin(0.99999)
    assert len(gates["one value"].bins.edges) <= 2  # type: ignore[attr-defined]  # these bins are fitted
    assert gates["exactly 1"].bins.bin(1.0) > gates["exactly 1"].bins.bin(0.999)
    few = gates["int8"].bins
    assert few.bin(128 / 256) < few.bin(230 / 256) < few.bin(250 / 256) < few.bin(256 / 256)


def test_the_finest_that_a_number_near_one_can_tell_are_cells_of_their_own() -> None:
    bins = FittedBins()
    assert bins.cell(1.0) == bins.cell(1.0 - 2.0**-25) == CELLS - 1
    assert bins.cell(0.0) == bins.cell(2.0**-25) == 0
    assert bins.cell(1.0 - 2.0**-20) < bins.cell(1.0 - 2.0**-21) < bins.cell(1.0 - 2.0**-22)
    for wrong in (-0.1, 1.1, math.nan, "0.5", None):
        with pytest.raises((TypeError, ValueError), match="FittedBins: confidence must be"):
            bins.cell(wrong)  # type: ignore[arg-type]  # what must be refused


def test_a_state_names_only_cells_in_use_and_is_restored() -> None:
    gate = Gate(offload_cost=0.15)
    for _ in driven(gate, STREAMS["int8"], 5_000):
        pass
    state = json.loads(json.dumps(gate.bins.state()))
    assert len(state["used"]) <= 10
    assert len(json.dumps(state)) < 1_000
    again = restore_bins(state)
    assert again.state() == gate.bins.state()
    assert [again.bin(k / 1000) for k in range(1001)] == [gate.bins.bin(k / 1000) for k in range(1001)]


@pytest.mark.parametrize(
    "damage",
    [
        {"used": None},
        {"used": [[1, 2.0, 1.0]]},
        {"used": [[CELLS, 2.0, 1.0, 1.0]]},
        {"used": [[-1, 2.0, 1.0, 1.0]]},
        {"used": [[1.0, 2.0, 1.0, 1.0]]},
        {"used": [[1, math.nan, 1.0, 1.0]]},
        {"used": [[1, 2.0, 10**400, 1.0]]},
        {"used": [[1, 2.0, 1.0, 1.5]]},
        {"bins": [[0, 1]]},
        {"bins": [[9, 1], [8, 2]]},
        {"bins": [[8, 2], [9, 1]]},
        {"bins": [[8, 16]]},
        {"bins": [[8, True]]},
        {"bins": [8]},
        {"due": [64]},
        {"due": [64, -1]},
        {"due": [64, "0"]},
        {"more": 1},
    ],
    ids=str,
)
def test_a_state_that_nothing_can_have_counted_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(InvalidState):
        restore_bins({**FittedBins().state(), **damage})
