"""What every policy promises about its state: saved, continued, merged, or refused."""

import json
import math
import pickle
from collections.abc import Callable
from typing import Any

from hinge.errors import InvalidState
from hinge.policies import Policy
from hinge.testing.drivers import offloaded, play, refuses, require, tell


def restores_bit_identically(policy: Policy) -> None:
    """A policy saved as JSON in the middle of a run, with feedback outstanding, goes on as if nothing had happened."""
    _continues(policy, lambda used: type(used).restore(json.loads(json.dumps(used.state(), allow_nan=False))))


def pickles_bit_identically(policy: Policy) -> None:
    """The same by pickle, as process pools need it."""
    _continues(policy, lambda used: pickle.loads(pickle.dumps(used)))


def _continues(policy: Policy, copied: Callable[[Policy], Policy]) -> None:
    original = policy.fresh(6)
    play(original, 300)
    waiting = offloaded(original, 5)
    copy = copied(original)
    require(copy.state() == original.state(), "the state changed on the way")
    for one in (original, copy):
        for decision, sample in waiting:
            tell(one, decision, sample)
    require(play(original, 700, seed=8) == play(copy, 700, seed=8), "the copy decides differently")
    require(copy.state() == original.state(), "the copy learned differently")


def damaged_states_are_refused(policy: Policy) -> None:
    """States that are newer, of another policy, or damaged are refused with a reason."""
    policy = policy.fresh(1)
    play(policy, 50)
    state = policy.state()
    damages: list[dict[str, Any]] = [{"hinge_state": state["hinge_state"] + 1}, {"hinge_state": None}, {"policy": "no"}]
    damages += [{key: None} for key in ("id", "time", "learned", "evidence", "merged", "parameters")]
    damages += [{"time": -1}, {"pending": [["x"]]}, {"pending": 5}, {"parameters": {"bins": -1}}]
    for field, values in state["evidence"].items():
        for damaged in ([*values, 0], *([value] * len(values) for value in (-1, 10**400, "1"))):
            if damaged:
                damages.append({"evidence": {**state["evidence"], field: damaged}})
    for damage in damages:
        wrong = {**state, **damage}
        refuses(policy, InvalidState, f"a state with {damage}", lambda wrong=wrong: type(policy).restore(wrong))
    nonsense: tuple[Any, ...] = (None, [], "state")
    for thing in nonsense:
        refuses(policy, (TypeError, InvalidState), f"state {thing!r}", lambda thing=thing: type(policy).restore(thing))


def merging_adds_evidence(policy: Policy) -> None:
    """Merging is commutative, associative and idempotent: every device's evidence counts once, by any route."""
    states = []
    for seed in (1, 2, 3):
        device = policy.fresh(seed)
        play(device, 100, seed)
        early = device.state()
        play(device, 50 * seed, seed)
        states.append(device.state())
    merged = []
    states.append(early)
    for order in ((0, 1, 2, 3), (3, 2, 0, 1), (1, 1, 3, 2, 0, 1)):
        device = policy.fresh(9)
        for which in order:
            device.merge(states[which])
        merged.append(device.state()["evidence"])
    through = policy.fresh(8)
    through.merge(states[0])
    through.merge(states[1])
    device = policy.fresh(9)
    device.merge(states[1])
    device.merge(through.state())
    device.merge(states[2])
    merged.append(device.state()["evidence"])
    for other in merged[1:]:
        require(almost(merged[0], other), "the order or the route of merging matters")


def unlike_states_do_not_merge(policy: Policy) -> None:
    """Evidence over other bins cannot be added."""
    device = policy.fresh(1)
    state = device.state()
    other = {**state, "parameters": {**state["parameters"], device.merges_on[0]: None}, "id": "other"}
    refuses(device, InvalidState, "a state of unlike parameters", lambda: device.merge(other))
    refuses(device, (TypeError, InvalidState), "a state that is none", lambda: device.merge({}))


def content(policy: Policy) -> Any:
    """What a policy knows, without who it is."""
    state = policy.state()
    return {key: state[key] for key in ("time", "learned", "evidence")}


def almost(one: Any, other: Any) -> bool:
    """Equal but for the rounding of sums taken in another order."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(almost(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(almost, one, other))
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
