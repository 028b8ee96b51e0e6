"""The simulator's loops and the policy objects decide alike, sample for sample, on every source."""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from hinge import Gate, Policy, Probation, Thompson, UniformBins, load_trace
from hinge.policies import Need, policy_names
from hinge.simulation import Run, run_seeds, simulate
from hinge.simulation.engine import policy_seed
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Samples, Shuffled, Source, Synthetic
from hinge.testing import tell
from tests.simulation.streams import policy_for, sources, variants

SEED = 20
ENOUGH = 100_000  # samples of each of these policies on every single source, and of the others over all sources
THOROUGH = ("probation", "hi-lcb", "hi-lcb-lite", "thompson", "hedge-hi")
BITWISE = ("probation", "hi-lcb", "hedge-hi", "thompson")
BIT_LENGTH = 5_000


def lengths(name: str, learned: bool) -> dict[str, int]:
    """How many samples of each source a policy decides; known and learned cost share ENOUGH where it is thorough."""
    kinds = sources(6)
    if name in THOROUGH:
        shares = 1 + ((name, True) in variants())
        return dict.fromkeys(kinds, ENOUGH // shares)
    return dict.fromkeys(kinds, math.ceil(ENOUGH / len(kinds)))


def drive(policy: Policy, source: Source, run_seed: int, horizon: int) -> tuple[list[bool], Samples]:
    """The decisions of the object, and the samples that they were about."""
    decisions: list[bool] = []
    seen: list[Samples] = []
    hears_all, pays_all = Need.AGREEMENT in policy.needs, bool(policy.needs)
    for chunk in source.stream(run_seed, horizon):
        columns = (chunk.bins.tolist(), chunk.agreed.tolist(), chunk.costs.tolist())
        for bin, agreed, cost in zip(*columns, strict=True):
            decision = policy.decide(bin)
            decisions.append(decision.offload)
            if decision.offload or hears_all:  # as `hinge.testing.tell` does, millions of times
                policy.learn(decision, agreed, cost)
            elif pays_all:
                policy.learn(decision, cost=cost)
        seen.append(chunk)
    agreed, costs, gaps = (np.concatenate([np.asarray(chunk[i]) for chunk in seen]) for i in (1, 2, 3))
    return decisions, Samples(np.concatenate([chunk.bins for chunk in seen]), agreed, costs, gaps)


def compare(name: str, learned: bool, kind: str, horizon: int) -> int:
    """Run a policy in the simulator and as an object; returns how many decisions were compared."""
    source = sources(6)[kind]
    policy = policy_for(name, learned, source, horizon)
    settings: dict[str, Any] = {"seed": SEED, "record_decisions": True, "machine_code": True}
    run = simulate({name: policy}, source, horizon, **settings)[name].runs[0]
    run_seed = run_seeds(SEED, 1)[0]
    decisions, samples = drive(policy.fresh(policy_seed(run_seed)), source, run_seed, horizon)
    case = f"{name}, {'learned' if learned else 'known'} cost, {kind}"
    assert run.decisions is not None
    differing = np.flatnonzero(run.decisions != np.array(decisions))
    assert differing.tolist() == [], case
    mistaken = np.array(decisions) == (samples.gaps < 0)
    assert run.offloads[-1] == sum(decisions), case
    assert run.regret[-1] == pytest.approx(math.fsum(np.abs(samples.gaps[mistaken])), rel=1e-9, abs=1e-9), case
    return len(run.decisions)


def label(variant: tuple[str, bool]) -> str:
    return f"{variant[0]}, {'learned' if variant[1] else 'known'} cost"


@pytest.mark.slow
@pytest.mark.timeout(900)  # a tenth of it on an idle machine
@pytest.mark.parametrize("variant", variants(), ids=label)
def test_kernel_and_object_decide_alike(variant: tuple[str, bool]) -> None:
    """All sources of a policy in one test, so that its loops are compiled once, in one process."""
    name, learned = variant
    compared = {kind: compare(name, learned, kind, horizon) for kind, horizon in lengths(name, learned).items()}
    assert sum(compared.values()) >= ENOUGH
    if name in THOROUGH:
        share = 0.5 if {(name, False), (name, True)} <= {*variants()} else 1.0
        assert min(compared.values()) >= share * ENOUGH
        assert len(compared) == len(sources(6))


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["resampled, recorded costs", "gradual drift", "in a bad order"])
@pytest.mark.parametrize("name", ["hi-lcb", "hi-lcb-lite"])
def test_kernel_and_object_decide_alike_in_short(name: str, kind: str) -> None:
    assert compare(name, True, kind, 2_000) == 2_000


def test_every_policy_is_tried() -> None:
    assert {name for name, _ in variants()} == {*policy_names()}
    assert {*THOROUGH, *BITWISE} <= {*policy_names()}


GATES: dict[str, dict[str, Any]] = {
    "fitted": {"offload_cost": 0.3},
    "measured": {},
    "within a budget": {"offload_cost": 0.3, "budget": 0.2},
    "measured, within a budget, 16 bins": {"budget": 0.2, "bins": 16},
    "hi-lcb": {"policy": "hi-lcb", "offload_cost": 0.3},
    "thompson": {"policy": "thompson", "offload_cost": 0.3},
    "discounted": {"policy": "discounted", "offload_cost": 0.3},
    "target": {"policy": "target"},
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", GATES)
def test_gates_as_machine_code_and_as_python_give_the_same_bits(name: str) -> None:
    for costs in (ConstantPrice(0.3), BimodalPrice(0.2, 0.4)):
        source = Shuffled(load_trace("fashion"), UniformBins(16), costs)
        gate = Gate(**GATES[name])
        one, other = (
            simulate({name: gate}, source, 12_000, seed=SEED, record_decisions=True, machine_code=code)[name].runs[0]
            for code in (True, False)
        )
        for field in fields(Run):
            assert np.asarray(getattr(one, field.name)).tobytes() == np.asarray(getattr(other, field.name)).tobytes()
        assert 0 < one.offloads[-1] < 12_000


def bitwise(name: str) -> Iterator[tuple[bool, str]]:
    """Every policy on a source with true labels, and a few on sources of every other shape."""
    for learned in [learned for known, learned in variants() if known == name]:
        yield learned, "resampled"
        if name in BITWISE:
            for kind in ("in order", "shuffled", "blocks", "gradual drift"):
                yield learned, kind


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", policy_names())
def test_machine_code_and_python_give_the_same_bits(name: str) -> None:
    for learned, kind in bitwise(name):
        source = sources(6)[kind]
        policies = {name: policy_for(name, learned, source, BIT_LENGTH)}
        compiled, interpreted = (
            simulate(policies, source, BIT_LENGTH, seed=SEED, record_decisions=True, machine_code=machine_code)[name]
            for machine_code in (True, False)
        )
        assert compiled.times.tobytes() == interpreted.times.tobytes()
        for field in fields(Run):
            one, other = (np.asarray(getattr(record.runs[0], field.name)) for record in (compiled, interpreted))
            assert (one.dtype, one.shape) == (other.dtype, other.shape), (learned, kind, field.name)
            assert one.tobytes() == other.tobytes(), (learned, kind, field.name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Probation, Thompson])
def test_kernel_and_object_decide_alike_told_the_cost(kind: type[Policy]) -> None:
    source = Synthetic([0.3, 0.6, 0.75, 0.8, 0.95, 0.99], BimodalPrice(0.2, 0.8))
    policy, horizon = kind(6, offload_cost=0.5), 5_000
    settings: dict[str, Any] = {"seed": SEED, "record_decisions": True, "told_costs": ["told"], "machine_code": True}
    run = simulate({"told": policy, "not told": policy.fresh()}, source, horizon, **settings)["told"].runs[0]
    assert run.decisions is not None
    decided, policy = run.decisions.tolist(), policy.fresh(policy_seed(run_seeds(SEED, 1)[0]))
    chunk = next(iter(source.stream(run_seeds(SEED, 1)[0], horizon)))
    for time, sample in enumerate(zip(chunk.bins.tolist(), chunk.agreed.tolist(), chunk.costs.tolist(), strict=True)):
        decision = policy.decide(sample[0], cost=sample[2])
        assert decision.offload == decided[time], time
        tell(policy, decision, sample)
    assert 0 < sum(decided) < horizon


def test_only_policies_that_can_be_told_the_cost_are() -> None:
    source = Synthetic([0.3, 0.9], ConstantPrice(0.5))
    with pytest.raises(TypeError, match="told_costs must name policies whose decide takes a cost, got 'oracle'"):
        simulate(["oracle"], source, 10, told_costs=["oracle"])
