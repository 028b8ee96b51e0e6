"""Hostile states: whatever a file holds, `restore` and `merge` take it or raise `InvalidState`, and nothing else."""

import copy
import json
import pickle
import random
import tracemalloc
from typing import Any

import pytest

from hinge import at_most, build, on_budget
from hinge.errors import InvalidState, UnknownName
from hinge.policies import Isotonic, Policy, policy_names, restore

SETTINGS = {
    "bins": 3,
    "offload_cost": 0.5,
    "horizon": 100,
    "agreement": [0.2, 0.5, 0.9],
    "history": [0, 1, 2],
    "agreed": [False, True, True],
}
NASTY: list[Any] = [
    *(10**400, 2**63, 2**62, 2**53, 1e308, 1e300, 5e-324, 1e-300, -1, -0.0, 0, 1, float("nan"), float("inf")),
    *(None, True, "", "x", [], [[]], {}, {"x": {}}),
]


def prototypes() -> list[Policy]:
    alone = [build(name, **SETTINGS) for name in policy_names()]
    named = ("isotonic", "hi-lcb", "kl", "thompson", "discounted-isotonic", "sentinel")
    learned = [build(name, bins=3) for name in named]
    return [*alone, *learned, at_most(on_budget(Isotonic(3, offload_cost=0.1), 0.2), 0.5, 10)]


@pytest.mark.parametrize("policy", prototypes(), ids=lambda policy: policy.name)
def test_a_policy_can_be_pickled_and_goes_on_alike(policy: Policy) -> None:
    copied = pickle.loads(pickle.dumps(policy))
    assert used(copied).state() == used(policy).state()


def used(policy: Policy) -> Policy:
    chance = random.Random(1)
    for _ in range(60):
        decision = policy.decide(chance.randrange(3))
        if decision.offload or policy.needs:
            policy.learn(decision, agreed=chance.random() < 0.7, cost=0.5)
    return policy


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


@pytest.mark.slow
@pytest.mark.parametrize("policy", prototypes(), ids=lambda policy: f"{policy.name}-{policy.offload_cost}")
def test_a_damaged_state_is_taken_or_refused(policy: Policy) -> None:
    chance, device, other = random.Random(2), used(policy), used(policy.fresh(5))
    device.merge(other.state())
    state = json.loads(json.dumps(device.state()))
    taken = refused = 0
    for path in [path for path in places(state) if path and path != ("policy",)]:
        for value in chance.sample(NASTY, 3):
            wrong = damaged(state, path, value)
            try:
                again = restore(wrong)
                again.decide(1)
                again.explain(2)
                again.state()
                policy.fresh(3).merge(wrong)
                taken += 1
            except InvalidState:
                refused += 1
            except UnknownName:  # an inner policy of another name
                refused += 1
            except Exception as error:
                raise AssertionError(f"{path} = {value!r:.40}") from error
    assert refused > taken > 0


def test_a_state_cannot_ask_for_gigabytes() -> None:
    """Sizes beyond 2**20 are refused before anything is allocated; the largest that is taken needs some megabytes."""
    small = [build(name, **SETTINGS).state() for name in ("lyapunov-exp4", "isotonic", "always-local")]
    small.append(at_most(Isotonic(3, offload_cost=0.1), 0.5, 10).state())
    asked = 0
    for state in small:
        for size in {"bins", "memory", "window"} & state["parameters"].keys():
            asked += 1
            tracemalloc.start()
            try:
                with pytest.raises(InvalidState):
                    restore(damaged(state, ("parameters", size), 2**28))
                assert tracemalloc.get_traced_memory()[1] < 2**26
            finally:
                tracemalloc.stop()
    assert asked == 5


def test_more_offloads_than_were_learned_are_refused() -> None:
    device = used(Isotonic(3, offload_cost=0.5))
    liar = used(Isotonic(3, offload_cost=0.5)).state()
    liar["evidence"]["offloads"][2] = 1e9
    with pytest.raises(InvalidState, match=r"^Isotonic: state counts 1e\+09 offloads, but \d+ learned$"):
        device.merge(liar)
    liar = used(Isotonic(3, offload_cost=0.5)).state()
    liar["merged"] = {"another": {**liar, "time": 9, "learned": 9}}
    with pytest.raises(InvalidState, match="offloads of 'another', but 9 learned"):
        device.merge(liar)


def test_a_state_says_nothing_about_the_device_that_merges_it() -> None:
    device, other = used(Isotonic(3, offload_cost=0.5)), used(Isotonic(3, offload_cost=0.5)).state()
    before = device.state()
    other["merged"] = {device.id: {**before, "time": 10**6, "learned": 10**5, "as_of": 1}}
    other["evidence"] = {field: [2 * value for value in values] for field, values in before["evidence"].items()}
    other["learned"], other["time"] = 10**5, 10**5
    device.merge(other)
    assert device.id not in device.state()["merged"]
