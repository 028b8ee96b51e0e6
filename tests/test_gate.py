"""A gate decides as its parts do, is saved with all of them, and refuses a state that was made with others."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

import hinge
from hinge import HILCB, Gate, InvalidState, Isotonic, Sentinel, at_most, on_budget
from hinge.bins import Bins, ClassBins, EdgeBins, QuantileBins, UniformBins
from hinge.confidence import entropy, logistic, margin, max_softmax, temperature
from hinge.policies.policy import State

SCORES = [[2.0, 1.0, 0.0], [0.1, 0.0, 0.2], [5.0, 0.0, 0.0]]


def sure(scores: Any) -> float:
    """A measure of the user's."""
    return 0.9


def through_json(state: State) -> State:
    plain: State = json.loads(json.dumps(state))
    return plain


def test_it_decides_and_learns_as_its_parts_do() -> None:
    gate, policy, bins = Gate(offload_cost=0.5), Sentinel(bins=16, offload_cost=0.5), UniformBins(16)
    for scores in SCORES * 20:
        decision, expected = gate.decide(scores), policy.decide(bins.bin(max_softmax(scores)))
        assert decision[:3] == expected[:3]
        if decision.offload:
            gate.learn(decision, agreed=True)
            policy.learn(expected, agreed=True)
    assert gate.policy.state() == {**policy.state(), "id": gate.policy.id}
    assert gate.policy.learned < gate.policy.time
    assert gate.decide(confidence=0.99).offload is False
    assert gate.bin(0.99) == 15


def test_it_passes_a_cost_that_is_known_beforehand_on() -> None:
    gate = Gate(Sentinel(bins=16, offload_cost=0.5))
    for _ in range(10):
        decision = gate.decide(confidence=0.9)
        if decision.offload:
            gate.learn(decision, agreed=True)
    assert [gate.decide(confidence=0.9, cost=cost).offload for cost in (0.01, 0.9)] == [True, False]
    with pytest.raises(TypeError, match="HILCB: cost cannot be used before an offload"):
        Gate(HILCB(bins=16)).decide(confidence=0.9, cost=0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"bins": 0}, ValueError, "UniformBins: bins must be an integer >= 1, got 0"),
        ({"policy": Isotonic(8, offload_cost=0.5), "bins": 16}, ValueError, "as the policy has, 8, got Uniform"),
        ({"policy": Isotonic(8, offload_cost=0.5), "offload_cost": 0.5}, TypeError, "must be given to the policy"),
        ({"policy": "isotonic"}, TypeError, "policy must be a policy, got 'isotonic'"),
        ({"confidence": 0.5}, TypeError, "confidence must be a function from scores to a number, got 0.5"),
    ],
)
def test_parts_that_do_not_fit_are_refused(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Gate(**arguments)


@pytest.mark.parametrize("edges", [[0.25, 0.5], (0.25, 0.5), np.array([0.25, 0.5])])
def test_edges_may_be_given_in_place_of_bins(edges: Any) -> None:
    assert Gate(bins=edges, offload_cost=0.5).bins == EdgeBins([0.25, 0.5])


def test_classes_have_bins_of_their_own() -> None:
    gate = Gate(bins=ClassBins(UniformBins(4), ["quiet", "fire"]), offload_cost=0.5)
    assert (gate.policy.bins, gate.decide(confidence=0.9, label="fire").bin) == (8, 7)
    with pytest.raises(ValueError, match="ClassBins: label must be one of the classes, got None"):
        gate.decide(confidence=0.9)


GATES = {
    "default": Gate(offload_cost=0.5),
    "learned cost": Gate(HILCB(bins=4), confidence=margin),
    "quantiles": Gate(bins=QuantileBins([0.3, 0.9]), offload_cost=0.3, confidence=entropy),
    "classes": Gate(bins=ClassBins(UniformBins(2), 2), offload_cost=0.3, confidence=temperature(1.5)(margin)),
    "logistic": Gate(offload_cost=0.3, confidence=logistic(-4.634, 5.937, -3.042)),
    "twice": Gate(offload_cost=0.3, confidence=temperature(2)(temperature(3)(max_softmax))),
}


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_restored_gate_continues_bit_by_bit(gate: Gate) -> None:
    for scores in SCORES * 5:
        decision = gate.decide(scores, label=1)
        if decision.offload:
            gate.learn(decision, agreed=True, cost=0.25)
    state = through_json(gate.state())
    for again in (Gate.restore(state), hinge.restore(state), gate.resume(state)):
        assert isinstance(again, Gate)
        assert again.state() == gate.state()
        assert [again.confidence(each) for each in SCORES] == [gate.confidence(each) for each in SCORES]
        assert [again.bin(k / 100, 0) for k in range(101)] == [gate.bin(k / 100, 0) for k in range(101)]
    assert hinge.restore(gate.policy.state()).state() == gate.policy.state()


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

        def bin(self, confidence: float, label: object = None) -> int:
            return int(confidence >= 0.5)

        def state(self) -> State:
            return {"kind": "halves"}

    gate = Gate(bins=Halves(), offload_cost=0.5)
    assert [gate.bin(0.4), gate.bin(0.6)] == [0, 1]
    with pytest.raises(InvalidState, match="must be of uniform, edges, quantile or class bins"):
        Gate.restore(gate.state())
    assert Gate.restore(gate.state(), bins=Halves()).state() == gate.state()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (Gate(offload_cost=0.5, bins=8), "bins {'kind': 'uniform', 'bins': 8}, and this gate has {'kind': 'uniform'"),
        (Gate(Isotonic(3), bins=QuantileBins([0.2, 0.5])), "made with bins {'kind': 'quantile', 'edges'"),
        (Gate(offload_cost=0.5, confidence=margin), "made with confidence {'name': 'margin'}, and this gate has"),
        (Gate(offload_cost=0.5, confidence=temperature(2)(max_softmax)), "confidence {'name': 'temperature'"),
        (Gate(HILCB(16, offload_cost=0.5)), "made with policy hi-lcb, and this gate has sentinel"),
        (Gate(offload_cost=0.4), "made with sentinel's offload_cost 0.4, and this gate has 0.5"),
    ],
)
def test_the_state_of_another_gate_is_refused_in_one_sentence(other: Gate, says: str) -> None:
    with pytest.raises(InvalidState) as refused:
        Gate(offload_cost=0.5).resume(through_json(other.state()))
    assert says in str(refused.value)
    assert str(refused.value).endswith("give the gate the same, or use another folder or file for its state")
    assert "\n" not in str(refused.value)


def test_what_differs_inside_a_budget_is_named_too() -> None:
    def gate(cost: float, share: float) -> Gate:
        return Gate(at_most(on_budget(Isotonic(16, offload_cost=cost), share), 0.2))

    state = through_json(gate(0.5, 0.1).state())
    others = ((gate(0.4, 0.1), "isotonic's offload_cost 0.5, and"), (gate(0.5, 0.2), "on-budget's offloads 0.1"))
    for other, says in others:
        with pytest.raises(InvalidState, match=f"the state was made with {says}"):
            other.resume(state)
    assert gate(0.5, 0.1).resume(state).policy.id == state["policy"]["id"]


def test_the_state_of_a_policy_alone_is_taken_for_one_of_these_bins() -> None:
    policy = Sentinel(16, offload_cost=0.5)
    policy.learn(policy.decide(3), agreed=True)
    assert Gate(offload_cost=0.5).resume(policy.state()).policy.state() == policy.state()
    with pytest.raises(InvalidState, match="made with sentinel's bins 8, and this gate has 16"):
        Gate(offload_cost=0.5).resume(Sentinel(8, offload_cost=0.5).state())


STATE = Gate(offload_cost=0.5).state()


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (None, "Gate: state must be a dict"),
        ({**STATE, "hinge_gate": 2}, "state is of version 2; this Hinge reads up to 1"),
        ({**STATE, "hinge_gate": True}, "must have a 'hinge_gate' version, got True"),
        ({**STATE, "bins": None}, "must have 'bins' as a dict, got None"),
        ({**STATE, "bins": {"kind": "uniform", "bins": -1}}, "restore_bins: UniformBins: bins must be"),
        ({**STATE, "confidence": {"name": "guess"}}, "confidence must name a confidence measure"),
        ({**STATE, "confidence": {"name": "temperature", "value": 0, "measure": {"name": "margin"}}}, "must be > 0"),
        ({**STATE, "policy": {"policy": "sentinel"}}, "must have a 'hinge_state' version"),
        ({**STATE, "policy": {**STATE["policy"], "parameters": {"bins": 10**30}}}, "impossible parameters"),
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
    for read in (policy.merge, HILCB.restore):
        with pytest.raises(InvalidState, match=r"^HILCB: state is that of a gate; give .* state\['policy'\]$"):
            read(Gate(policy).state())
