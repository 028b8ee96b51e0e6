"""Hostile states: whatever a file holds, `restore` and `merge` take it or raise `InvalidState`, and nothing else."""

import copy
import json
import pickle
import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hinge import Gate, build
from hinge.errors import InvalidState, UnknownName
from hinge.policies import Policy, Probation, policy_names, restore

SETTINGS = {
    "bins": 3,
    "offload_cost": 0.5,
    "horizon": 100,
    "threshold": 0.5,
    "agreement": [0.2, 0.5, 0.9],
    "history": [0, 1, 2],
    "agreed": [False, True, True],
}
NASTY: list[Any] = [
    *(10**400, 2**63, 2**62, 2**53, 1e308, 1e300, 5e-324, 1e-300, -1, -0.0, 0, 1, float("nan"), float("inf")),
    *(None, True, "", "x", [], [[]], {}, {"x": {}}),
]


def prototypes() -> list[Policy]:
    return [
        *(build(name, **SETTINGS) for name in policy_names()),
        build("hi-lcb", bins=3),
        build("hi-lcb-lite", bins=3),
    ]


def used(policy: Any) -> Any:
    """The policy, or gate, after some samples, with one that waits."""
    chance = random.Random(1)
    for _ in range(60):
        bin = chance.randrange(3)
        decision = policy.decide(confidence=0.4 + bin / 4) if isinstance(policy, Gate) else policy.decide(bin)
        if decision.offload or (isinstance(policy, Policy) and policy.needs):
            policy.learn(decision, agreed=chance.random() < 0.7, cost=0.5)
    inner = policy.policy if isinstance(policy, Gate) else policy
    waiting = inner.overrule(1, True)
    if isinstance(policy, Gate):
        inner.place(waiting, 256)
    return policy


@pytest.mark.parametrize("policy", prototypes(), ids=lambda policy: policy.name)
def test_a_policy_can_be_pickled_and_goes_on_alike(policy: Policy) -> None:
    copied = pickle.loads(pickle.dumps(policy))
    assert used(copied).state() == used(policy).state()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in a state."""
    if isinstance(value, dict):
        return [path] + [each for key in value for each in places(value[key], (*path, key))]
    if isinstance(value, list):
        return [path] + [each for position in range(len(value)) for each in places(value[position], (*path, position))]
    return [path]


def damaged(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    copied = copy.deepcopy(state)
    place = copied
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return copied


def survives(state: Any, path: tuple[Any, ...], values: list[Any], use: Any) -> tuple[int, int]:
    """How many of the damaged states are taken, and how many are refused."""
    taken = refused = 0
    for value in values:
        try:
            use(damaged(state, path, value))
            taken += 1
        except (InvalidState, UnknownName):
            refused += 1
        except Exception as error:
            raise AssertionError(f"{path} = {value!r:.40}") from error
    return taken, refused


@pytest.mark.slow
@pytest.mark.parametrize("policy", prototypes(), ids=lambda policy: f"{policy.name}-{policy.offload_cost}")
def test_a_damaged_state_is_taken_or_refused(policy: Policy) -> None:
    chance, device = random.Random(2), used(policy.fresh(4))
    counts = "offloads" in policy.evidence
    if counts:
        device.merge(used(policy.fresh(5)).state())
        device.learn_log([0, 1], [True, False], [0.5, 0.5])

    def use(state: Any) -> None:
        again = restore(state)
        again.decide(1)
        again.explain(2)
        again.state()
        waiting = next(iter(again.pending.values()), None)
        if waiting is not None:
            again.learn(waiting, agreed=True, cost=0.5)
        if counts:
            policy.fresh(3).merge(state)

    state = json.loads(json.dumps(device.state()))
    taken = refused = 0
    for path in [path for path in places(state) if path and path != ("policy",)]:
        some = survives(state, path, chance.sample(NASTY, 3), use)
        taken, refused = taken + some[0], refused + some[1]
    assert refused > taken > 0


@pytest.mark.slow
@pytest.mark.parametrize("make", [partial(Gate, offload_cost=0.2), partial(Gate, budget=0.2)], ids=["priced", "budget"])
def test_a_damaged_state_of_a_gate_is_taken_or_refused(make: Callable[[], Gate]) -> None:
    chance, gate, other = random.Random(3), used(make()), used(make())
    gate.merge(other.state())

    def use(state: Any) -> None:
        again = Gate.restore(state)
        again.explain(0.7)
        for confidence in (0.0, 0.65, 1.0):
            decision = again.decide(confidence=confidence)
            if decision.offload:
                again.learn(decision, agreed=True, cost=0.5)
        again.state()
        waiting = next(iter(again.policy.pending.values()), None)
        if waiting is not None:
            again.learn(waiting, agreed=True, cost=0.5)
        make().merge(state)

    state = json.loads(json.dumps(gate.state()))
    taken = refused = 0
    for path in [path for path in places(state) if path]:
        some = survives(state, path, chance.sample(NASTY, 4), use)
        taken, refused = taken + some[0], refused + some[1]
    assert refused > taken > 0


def test_a_state_cannot_ask_for_gigabytes() -> None:
    """Sizes beyond 2**20 are refused before anything is allocated; the largest that is taken needs some megabytes."""
    asked = 0
    for state in [build(name, **SETTINGS).state() for name in ("lyapunov-exp4", "probation", "always-local", "target")]:
        for size in {"bins", "memory"} & state["parameters"].keys():
            asked += 1
            tracemalloc.start()
            try:
                with pytest.raises(InvalidState):
                    restore(damaged(state, ("parameters", size), 2**28))
                assert tracemalloc.get_traced_memory()[1] < 2**26
            finally:
                tracemalloc.stop()
    assert asked == 5


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("offloads", 1e9, r"state counts 1e\+09 offloads, but \d+ learned"),
        ("agreements", 50.0, "agreements of"),
        ("left", 2**40, "impossible licence for bin 2"),
        ("predicted", 1.0, "impossible licence for bin 2"),
        ("left", 1.5, "state has 1.5 in 'left'"),
    ],
)
def test_what_probation_cannot_have_learned_is_refused(column: str, value: float, says: str) -> None:
    state = used(Probation(3, 0.5)).state()
    with pytest.raises(InvalidState, match=says):
        restore(damaged(state, ("table", column, 2), value))


def test_a_state_says_nothing_about_the_device_that_merges_it() -> None:
    device, other = used(Probation(3, 0.5)), used(Probation(3, 0.5)).state()
    known = {"learned": 10**5, "offloads": [9.0] * 3, "agreements": [9.0] * 3}
    device.merge({**other, "merged": {device.id: known}, "learned": 10**5, "time": 10**5})
    assert device.id not in device.state()["merged"]
    with pytest.raises(InvalidState, match="agreements of 8"):
        device.merge({**other, "merged": {"another": {**known, "offloads": [8.0] * 3}}})
