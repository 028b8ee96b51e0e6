"""A gate decides as its parts do, is saved with all of them, and refuses a state that was made with others."""

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hinge
from hinge import HILCB, Gate, InvalidState, Probation, Target, Threshold, Trace, load_trace, simulate
from hinge.bins import Bins, FittedBins, UniformBins
from hinge.confidence import entropy, logistic, margin, max_softmax, temperature
from hinge.policies import Decision, HILCBLite, Thompson
from hinge.policies.policy import State
from hinge.simulation.engine import policy_seed, run_seeds
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Resampled

SCORES = [[2.0, 1.0, 0.0], [0.1, 0.0, 0.2], [5.0, 0.0, 0.0]]


def sure(scores: Any) -> float:
    """A measure of the user's."""
    return 0.9


def through_json(state: State) -> State:
    plain: State = json.loads(json.dumps(state, allow_nan=False))
    return plain


# -- made of parts ----------------------------------------------------------------------------------------------------


def test_it_decides_and_learns_as_its_parts_do() -> None:
    gate, policy, bins = Gate(offload_cost=0.5, bins=16), Probation(bins=16, offload_cost=0.5), UniformBins(16)
    for scores in SCORES * 20:
        decision, expected = gate.decide(scores), policy.decide(bins.bin(max_softmax(scores)))
        assert decision[:3] == expected[:3]
        if decision.offload:
            gate.learn(decision, agreed=True)
            policy.learn(expected, agreed=True)
    assert gate.policy.state() == {**policy.state(), "id": gate.policy.id}
    assert 0 < gate.policy.learned < gate.policy.time
    assert gate.decide(confidence=0.99).offload is False


@pytest.mark.parametrize(
    ("gate", "policy", "bins"),
    [
        (lambda: Gate(offload_cost=0.15), "probation", "fitted"),
        (Gate, "probation", "fitted"),
        (lambda: Gate("hi-lcb", offload_cost=0.15), "hi-lcb", "fitted"),
        (lambda: Gate("thompson", offload_cost=0.15), "thompson", "fitted"),
        (lambda: Gate("probation", offload_cost=0.15, bins=8), "probation", "uniform"),
        (lambda: Gate("hi-lcb"), "hi-lcb", "uniform"),
        (lambda: Gate("discounted", offload_cost=0.15), "discounted", "uniform"),
        (lambda: Gate("always-local"), "always-local", "uniform"),
        (lambda: Gate(HILCB(offload_cost=0.5)), "hi-lcb", "uniform"),
        (lambda: Gate(Probation(16, 0.5), bins=FittedBins()), "probation", "fitted"),
        (lambda: Gate(offload_cost=0.5, bins=[0.25, 0.5]), "probation", "edges"),
        (lambda: Gate(offload_cost=0.5, bins=np.array([0.25, 0.5])), "probation", "edges"),
        (lambda: Gate(Threshold(0.8)), "threshold", "edges"),
    ],
)
def test_what_a_gate_is_made_of(gate: Any, policy: str, bins: str) -> None:
    made = gate()
    assert (made.policy.name, made.bins.state()["kind"]) == (policy, bins)
    assert made.policy.bins == made.bins.bins


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"bins": 0}, ValueError, "UniformBins: bins must be an integer >= 1, got 0"),
        ({"policy": Probation(8, 0.5), "bins": 16}, ValueError, "as the policy has, 8, got Uniform"),
        ({"policy": Probation(8, 0.5), "offload_cost": 0.5}, TypeError, "must be given to the policy"),
        ({"policy": "probatoin"}, ValueError, "no policy is called 'probatoin'; did you mean 'probation'"),
        ({"policy": 5}, TypeError, "policy must be a policy or the name of one, got 5"),
        ({"policy": "always-local", "bins": FittedBins()}, TypeError, "always-local needs fixed bins"),
        ({"confidence": 0.5}, TypeError, "confidence must be a function from scores to a number, got 0.5"),
    ],
)
def test_parts_that_do_not_fit_are_refused(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Gate(**arguments)


@pytest.mark.parametrize("gate", [Gate(offload_cost=0.5), Gate(offload_cost=0.5, bins=16)])
def test_what_is_refused_leaves_a_gate_as_it_was(gate: Gate) -> None:
    before = gate.state()
    for wrong in ({}, {"scores": [1.0, 2.0], "confidence": 0.5}, {"confidence": 1.5}, {"confidence": "high"}):
        with pytest.raises((TypeError, ValueError)):
            gate.decide(**wrong)
    with pytest.raises(ValueError, match="cost must be"):
        gate.decide(confidence=0.9, cost=2.0)
    stranger = Gate(offload_cost=0.5).decide(confidence=0.5)
    for decision in (stranger, True, None, Decision(True, 1, 1, gate.policy.id)):
        with pytest.raises((TypeError, ValueError), match="decision must"):
            gate.learn(decision, agreed=True)  # type: ignore[arg-type]  # what must be refused
    assert gate.state() == before


@pytest.mark.parametrize("policy", [Probation(16, 0.5), HILCB(16, offload_cost=0.5), HILCB(16)])
def test_a_told_price_decides_its_sample(policy: Probation | HILCB) -> None:
    gate = Gate(policy)
    for _ in range(30):
        decision = gate.decide(confidence=0.9)
        if decision.offload:
            gate.learn(decision, agreed=True, cost=0.5)
    assert [gate.decide(confidence=0.9, cost=cost).offload for cost in (0.001, 0.9)] == [True, False]
    with pytest.raises(TypeError, match="Target: cost cannot be used before an offload"):
        Gate(Target()).decide(confidence=0.9, cost=0.5)


# -- saved and restored -----------------------------------------------------------------------------------------------

GATES: dict[str, Callable[[], Gate]] = {
    "default": lambda: Gate(offload_cost=0.2),
    "measured": Gate,
    "budget": lambda: Gate(offload_cost=0.2, budget=0.2),
    "measured, budget": lambda: Gate(budget=0.1),
    "hi-lcb": lambda: Gate("hi-lcb", offload_cost=0.2),
    "hi-lcb, budget": lambda: Gate("hi-lcb", offload_cost=0.2, budget=0.2, confidence=entropy),
    "hi-lcb, learned": lambda: Gate(HILCB(bins=4), confidence=margin),
    "lite, fitted": lambda: Gate("hi-lcb-lite", offload_cost=0.2, confidence=logistic(-4.634, 5.937, -3.042)),
    "thompson, measured": lambda: Gate("thompson", confidence=temperature(2)(temperature(3)(max_softmax))),
    "discounted, budget": lambda: Gate("discounted", offload_cost=0.2, budget=0.2),
    "edges": lambda: Gate(offload_cost=0.3, bins=[0.3, 0.9], confidence=temperature(1.5)(margin)),
    "target": lambda: Gate("target"),
}
each_gate = pytest.mark.parametrize("make", GATES.values(), ids=GATES)


def run(gate: Gate, samples: int, flight: int = 0, seed: int = 1) -> list[bool]:
    """Samples whose feedback comes late, from what the gate itself says is waiting; whether each was offloaded."""
    chance, offloads = random.Random(seed), []
    for _ in range(samples):
        offloads.append(gate.decide(confidence=min(1.0, 1.02 - chance.random() ** 3)).offload)
        while len(gate.policy.pending) > flight:
            decision = next(iter(gate.policy.pending.values()))
            fails, agreed, cost = chance.random() < 0.1, chance.random() < 0.85, chance.choice((0.1, 0.3))
            if fails:
                gate.forget(decision, cost)
            else:
                gate.learn(decision, agreed, cost)
    return offloads


@pytest.mark.parametrize("flight", [0, 30])
@each_gate
def test_a_restored_gate_continues_bit_by_bit(make: Any, flight: int) -> None:
    gate = make()
    run(gate, 1_500, flight)
    state = through_json(gate.state())
    copies = [Gate.restore(state), hinge.restore(state), make().resume(state)]
    for again in copies:
        assert again.state() == gate.state() == state
        assert [again.confidence(each) for each in SCORES] == [gate.confidence(each) for each in SCORES]
        assert [again.explain(k / 100) for k in range(101)] == [gate.explain(k / 100) for k in range(101)]
    expected = run(gate, 1_500, flight, seed=2)
    assert any(expected)
    for again in copies:
        assert run(again, 1_500, flight, seed=2) == expected
        assert again.state() == gate.state()


def test_a_decision_of_before_the_restart_counts_for_its_cell() -> None:
    gate = Gate(offload_cost=0.2)
    decisions = [gate.decide(confidence=confidence) for confidence in (0.999, 0.5)]
    again = Gate.restore(through_json(gate.state()))
    run(again, 200, flight=300)
    for decision in decisions:
        forgetful = Decision(*decision[:4])  # as one who does not know of cells would keep it
        again.learn(forgetful, agreed=True)
        assert decision.cell in [row[0] for row in again.bins.state()["used"] if row[2]]


@each_gate
def test_a_fresh_gate_is_the_same_before_its_first_sample(make: Any) -> None:
    gate = make()
    nothing = {**gate.state(), "policy": {**gate.policy.state(), "id": ""}}
    run(gate, 300)
    fresh = gate.fresh()
    assert {**fresh.state(), "policy": {**fresh.policy.state(), "id": ""}} == nothing
    assert run(fresh, 500) == run(make(), 500)


def test_a_measure_of_the_users_is_known_by_its_place_and_never_imported() -> None:
    gate = Gate(offload_cost=0.5, confidence=sure)
    state = through_json(gate.state())
    assert state["confidence"] == {"function": f"{__name__}:sure"}
    with pytest.raises(InvalidState, match=r"made with the confidence measure '.*:sure': give it as confidence="):
        Gate.restore(state)
    assert Gate.restore(state, confidence=sure).state() == gate.state()
    with pytest.raises(InvalidState, match=r"made with confidence \{'function': '.*:sure'\}, and this gate has"):
        Gate.restore(state, confidence=margin)


def test_bins_of_the_users_are_given_again() -> None:
    class Halves(Bins):
        bins = 2

        def bin(self, confidence: float) -> int:
            return int(confidence >= 0.5)

        def state(self) -> State:
            return {"kind": "halves"}

    gate = Gate(bins=Halves(), offload_cost=0.5)
    assert [gate.decide(confidence=each).bin for each in (0.4, 0.6)] == [0, 1]
    with pytest.raises(InvalidState, match="must be of uniform, edges or fitted bins"):
        Gate.restore(gate.state())
    assert Gate.restore(gate.state(), bins=Halves()).state() == gate.state()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (Gate(offload_cost=0.5, bins=8), "bins {'kind': 'uniform', 'bins': 8}, and this gate has {'kind': 'fitted'"),
        (Gate(offload_cost=0.5, bins=[0.2, 0.5]), "made with bins {'kind': 'edges', 'edges'"),
        (Gate(offload_cost=0.5, confidence=margin), "made with confidence {'name': 'margin'}, and this gate has"),
        (Gate(offload_cost=0.5, confidence=temperature(2)(max_softmax)), "confidence {'name': 'temperature'"),
        (Gate("hi-lcb", offload_cost=0.5), "made with policy hi-lcb, and this gate has probation"),
        (Gate(offload_cost=0.4), "made with probation's offload_cost 0.4, and this gate has 0.5"),
        (Gate(), "made with measured price True, and this gate has False"),
        (Gate(offload_cost=0.5, budget=0.2), "made with budget 0.2, and this gate has None"),
    ],
)
def test_the_state_of_another_gate_is_refused_in_one_sentence(other: Gate, says: str) -> None:
    for read in (Gate(offload_cost=0.5).resume, Gate(offload_cost=0.5).merge):
        with pytest.raises(InvalidState) as refused:
            read(through_json(other.state()))
        assert says in str(refused.value)
        assert str(refused.value).endswith("give the gate the same, or use another folder or file for its state")
        assert "\n" not in str(refused.value)


STATE = Gate(offload_cost=0.5).state()
WAITING = Gate(offload_cost=0.5)
WAITING.decide(confidence=0.5)
PENDING = WAITING.state()


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (None, "Gate: state must be a dict"),
        ({**STATE, "hinge_gate": 2}, "must be of version 1, got 2"),
        ({**STATE, "bins": None}, "must have 'bins' as a dict, got None"),
        ({**STATE, "bins": {"kind": "uniform", "bins": -1}}, "restore_bins: UniformBins: bins must be"),
        ({**STATE, "confidence": {"name": "guess"}}, "confidence must name a confidence measure"),
        ({**STATE, "confidence": {"name": "temperature", "value": 0, "measure": {"name": "margin"}}}, "must be > 0"),
        ({**STATE, "policy": {"policy": "probation"}}, "must be of version 1, got null"),
        ({**STATE, "policy": {**STATE["policy"], "parameters": {"bins": 10**30}}}, "impossible parameters"),
        ({**STATE, "policy": {**STATE["policy"], "elsewhere": 5}}, "5 offloads from elsewhere, but other sources"),
        ({**STATE, "price": [0.5]}, "impossible price"),
        ({**STATE, "budget": 0.2}, "impossible budget"),
        ({**STATE, "budget": [2, [0, 0, 0, 0]]}, "budget must be from 0 to 1, got 2"),
        ({**STATE, "merged": None}, "must have a dict of dicts as 'merged'"),
        ({**STATE, "merged": {"log": {"learned": -1, "cells": []}}}, "impossible number of offloads of 'log'"),
        ({**STATE, "merged": {"log": {"learned": 1, "cells": [[600, 1, 1, 1]]}}}, "impossible counts of cells"),
        ({**PENDING, "bins": UniformBins(16).state()}, "pending decisions of impossible cells"),
        ({**PENDING, "policy": {**PENDING["policy"], "pending": [[1, 8, True, None]]}}, "of impossible cells"),
        ({**PENDING, "policy": {**PENDING["policy"], "pending": [[1, 8, True, 512]]}}, "of impossible cells"),
        ({**STATE, "crc32": "00000000"}, "does not match its checksum"),
    ],
)
def test_a_state_that_makes_no_sense_is_refused(state: Any, says: str) -> None:
    with pytest.raises(InvalidState, match=says):
        Gate.restore(state)


def scaled(scores: list[float], by: float) -> float:
    return by * max(scores)


class Scaled:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, scores: list[float]) -> float:
        return self.by * max(scores)

    def __repr__(self) -> str:
        return f"Scaled({self.by})"


@pytest.mark.parametrize("make", [lambda by: partial(scaled, by=by), Scaled])
def test_a_measure_with_other_settings_is_another_one(make: Any) -> None:
    state = Gate(offload_cost=0.5, confidence=make(1.0)).state()
    assert Gate.restore(state, confidence=make(1.0)).state() == state
    with pytest.raises(InvalidState, match="was made with confidence"):
        Gate.restore(state, confidence=make(0.5))
    with pytest.raises(InvalidState, match="was made with confidence"):
        Gate(offload_cost=0.5).resume(state)


def test_bins_may_be_given_as_a_number_and_must_be_the_same() -> None:
    state = Gate(offload_cost=0.5, bins=8).state()
    assert Gate.restore(state, bins=8).state() == state
    with pytest.raises(InvalidState, match="was made with bins"):
        Gate.restore(state, bins=16)


def test_the_state_of_a_policy_and_that_of_a_gate_are_told_apart() -> None:
    policy = HILCB(bins=16, offload_cost=0.5)
    with pytest.raises(InvalidState, match=r"^Gate: state is that of a policy alone; hinge\.restore reads it"):
        Gate.restore(policy.state())
    assert hinge.restore(policy.state()).state() == policy.state()
    for read in (policy.merge, HILCB.restore):
        with pytest.raises(InvalidState, match=r"^HILCB: state is that of a gate; give .* state\['policy'\]$"):
            read(Gate(policy).state())


# -- evidence of others -----------------------------------------------------------------------------------------------


def counted(gate: Gate) -> Any:
    """The sums of what a gate knows."""
    if isinstance(gate.bins, FittedBins):
        return gate.bins.state()["used"]
    return [gate.policy.counts(bin) for bin in range(gate.policy.bins)]


MERGING = {
    "fitted": lambda: Gate(offload_cost=0.2),
    "measured": Gate,
    "uniform": lambda: Gate(offload_cost=0.2, bins=16),
    "hi-lcb": lambda: Gate("hi-lcb", offload_cost=0.2),
    "lite": lambda: Gate(HILCBLite(8, offload_cost=0.2)),
    "thompson": lambda: Gate(Thompson(8, 0.2), budget=0.5),
}


@pytest.mark.parametrize("make", MERGING.values(), ids=MERGING)
def test_of_each_gate_the_latest_counts_once_by_any_route(make: Any) -> None:
    gates = [make() for _ in range(3)]
    for seed, gate in enumerate(gates):
        run(gate, 200 + 50 * seed, seed=seed)
    early = gates[2].state()
    run(gates[2], 300, seed=9)
    one, two, three = (through_json(gate.state()) for gate in gates)

    def merged(*states: State) -> Gate:
        gate: Gate = make()
        for state in states:
            gate.merge(state)
            gate = Gate.restore(through_json(gate.state()))
        return gate

    through = merged(one, two).state()
    sums = counted(merged(one, two, three))
    for route in ((three, two, one), (early, three, early, two, two, one), (through, three), (two, through, three)):
        assert counted(merged(*route)) == sums
    gates[0].merge(merged(one, two, three).state())
    assert counted(gates[0]) == sums, "what others say about a gate itself is ignored"
    assert merged(one, two, three).policy.time == 0


def test_a_log_counts_once_and_starts_a_gate_warm() -> None:
    trace, seed = load_trace("fashion"), 5
    for make in (partial(Gate, offload_cost=0.3), Gate, partial(Gate, offload_cost=0.3, bins=16)):
        cold, warm = make(), make()
        warm.learn_log(trace)
        state = through_json(warm.state())
        warm.learn_log(trace)
        assert warm.state() == state
        warm = Gate.restore(state)
        warm.merge(state)
        assert warm.state() == state
        chance, offloads = random.Random(seed), [0, 0]
        for row in (chance.randrange(len(trace.confidence)) for _ in range(3_000)):
            for which, gate in enumerate((cold, warm)):
                decision = gate.decide(confidence=float(trace.confidence[row]))
                if decision.offload:
                    offloads[which] += 1
                    gate.learn(decision, bool(trace.agreed[row]), cost=0.3)
        assert offloads[1] < offloads[0]


def test_a_log_of_something_else_is_another_log() -> None:
    gate = Gate(offload_cost=0.3)
    gate.learn_log(Trace([0.9, 0.2], agreed=[True, False]))
    once = counted(gate)
    gate.learn_log(Trace([0.9, 0.3], agreed=[True, False]))
    assert sum(row[2] for row in counted(gate)) == 2 * sum(row[2] for row in once) == 4
    with pytest.raises(TypeError, match="AlwaysLocal: what it knows does not add up"):
        Gate("always-local").learn_log(Trace([0.9], agreed=[True]))


# -- simulated --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "budget", "hi-lcb", "hi-lcb, budget", "discounted, budget"])
def test_the_explanation_is_of_the_next_decision(name: str) -> None:
    gate, chance, spent = GATES[name](), random.Random(3), 0
    for _ in range(2_000):
        confidence = chance.random()
        why = gate.explain(confidence)
        decision = gate.decide(confidence=confidence)
        assert decision.offload == bool(why.offload_probability)
        assert ("is accepted" in str(why).partition(";")[0]) != decision.offload
        spent += "is accepted, as the budget is spent" in str(why)
        if decision.offload:
            gate.learn(decision, agreed=chance.random() < confidence)
    assert (spent > 0) == ("budget" in name)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("name", ["default", "measured", "budget", "measured, budget", "hi-lcb", "hi-lcb, budget"])
def test_the_simulator_plays_a_gate_as_it_is(name: str, told: bool) -> None:
    gate = GATES[name]()
    costs = BimodalPrice(0.1, 0.3) if "measured" in name or told else ConstantPrice(0.2)
    trace = load_trace("fashion")
    source = Resampled(trace, UniformBins(16), costs)
    settings: dict[str, Any] = {"record_decisions": True, "machine_code": False, "told_costs": ["gate"] if told else []}
    simulated = simulate({"gate": gate}, source, 5_000, seed=3, **settings)["gate"].runs[0].decisions
    seed = run_seeds(3, 1)[0]
    gate, decided = gate.fresh(policy_seed(seed)), []
    for chunk in source.stream(seed, 5_000):
        rows: Any = chunk.rows
        for row, agreed, cost in zip(rows, chunk.agreed.tolist(), chunk.costs.tolist(), strict=True):
            decision = gate.decide(confidence=float(trace.confidence[row]), cost=cost if told else None)
            if decision.offload:
                gate.learn(decision, agreed, cost)
            decided.append(decision.offload)
    assert simulated is not None
    assert simulated.tolist() == decided
