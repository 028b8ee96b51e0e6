"""The conformance suite: what every policy promises, clause by clause, for your own policies too.

    from hinge.testing import check_policy
    check_policy(MyPolicy(bins=16))

or, one test for each clause:

    @pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
    def test_my_policy(clause):
        clause(MyPolicy(bins=16))

A clause works on fresh copies of the policy it is given, and raises `NotConforming` with what went wrong.
"""

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from hinge.bins import UniformBins
from hinge.errors import InvalidDecision, InvalidState
from hinge.policies import Decision, Need, Policy
from hinge.policies.policy import OUTSTANDING

__all__ = ["CLAUSES", "Clause", "NotConforming", "Sample", "check_policy", "play", "samples", "tell"]

Sample = tuple[int, float, float]  # bin, agreed, cost
Kinds = type[Exception] | tuple[type[Exception], ...]


class NotConforming(AssertionError):
    """A policy does not keep a clause of the conformance suite."""


def samples(policy: Policy, seed: int = 0) -> Iterator[Sample]:
    """An endless stream for a policy: agreement rises with the bin, costs vary unless the policy knows them."""
    chance = random.Random(seed)
    while True:
        bin = int(chance.random() * policy.bins)
        agreed = chance.random() < (bin + 0.5) / policy.bins
        cost = (0.45 if chance.random() < 0.5 else 0.55) if policy.offload_cost is None else policy.offload_cost
        yield bin, agreed, cost


def play(policy: Policy, length: int, seed: int = 0) -> list[bool]:
    """Drive a policy with immediate feedback; returns its decisions."""
    decisions = []
    for sample in islice(samples(policy, seed), length):
        decision = policy.decide(sample[0])
        tell(policy, decision, sample)
        decisions.append(decision.offload)
    return decisions


def tell(policy: Policy, decision: Decision, sample: Sample) -> None:
    """Give the feedback that a policy expects: after an offload, or after every sample if it needs that."""
    _, agreed, cost = sample
    if decision.offload or Need.AGREEMENT in policy.needs:
        policy.learn(decision, agreed=agreed, cost=cost)
    elif policy.needs:
        policy.learn(decision, cost=cost)


def offloaded(policy: Policy, count: int) -> list[tuple[Decision, Sample]]:
    """Decisions that wait for feedback, with their samples."""
    found = []
    for sample in islice(samples(policy, seed=5), 100_000):
        decision = policy.decide(sample[0])
        if decision.offload:
            found.append((decision, sample))
            if len(found) == count:
                break
        elif policy.needs:
            tell(policy, decision, sample)
    return found


def require(condition: bool, message: str) -> None:
    """Raise `NotConforming` unless the condition holds."""
    if not condition:
        raise NotConforming(message)


def refuses(policy: Policy, kinds: Kinds, action: str, call: Callable[..., Any], /, *given: Any, **named: Any) -> str:
    """Require that a call raises one of these errors and leaves the policy's state as it was; returns the message."""
    before = policy.state()
    try:
        call(*given, **named)
    except kinds as error:
        require(policy.state() == before, f"{action} was refused, but changed the state")
        return str(error)
    except Exception as error:
        raise NotConforming(f"{action} raised {error!r}") from error
    raise NotConforming(f"{action} was not refused")


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


Clause = Callable[[Policy], None]


# -- deciding ---------------------------------------------------------------------------------------------------------


def time_counts_decisions(policy: Policy) -> None:
    """`time` starts at 0 and advances by one with every decision."""
    policy = policy.fresh(1)
    require(policy.time == 0, f"time starts at {policy.time}")
    play(policy, 50)
    require(policy.time == 50, f"time is {policy.time} after 50 decisions")


def same_seed_same_decisions(policy: Policy) -> None:
    """Two fresh copies with one seed decide alike."""
    require(play(policy.fresh(3), 1000) == play(policy.fresh(3), 1000), "two copies with the same seed differ")


def fresh_knows_nothing(policy: Policy) -> None:
    """A fresh copy of a policy that has learned starts from nothing."""
    used = policy.fresh(1)
    play(used, 200)
    before, after = policy.fresh(1).state(), used.fresh(1).state()
    require({**before, "id": ""} == {**after, "id": ""}, "a fresh copy remembers something")
    require(before["id"] != after["id"], "two copies share an id")


def batch_equals_one_by_one(policy: Policy) -> None:
    """`decide_many` decides as `decide` would, and its decisions can be learned from."""
    single, batch = policy.fresh(2), policy.fresh(2)
    play(single, 300)
    play(batch, 300)
    upcoming = list(islice(samples(policy, seed=9), 100))
    expected = [single.decide(bin) for bin, _, _ in upcoming]
    got = batch.decide_many([bin for bin, _, _ in upcoming])
    require(got.offload.tolist() == [decision.offload for decision in expected], "a batch is decided differently")
    require(len(batch.decide_many([])) == 0, "an empty batch has decisions")
    for one, other, sample in zip(expected, got, upcoming, strict=True):
        tell(single, one, sample)
        tell(batch, other, sample)
    require(content(single) == content(batch), "a batch is learned from differently")


def extreme_bins(policy: Policy) -> None:
    """The lowest and the highest bin can be decided and learned."""
    policy = policy.fresh(1)
    for bin in (0, policy.bins - 1):
        for agreed in (True, False, True):
            tell(policy, policy.decide(bin), (bin, agreed, 0.5))


def wrong_bins_are_refused(policy: Policy) -> None:
    """A wrong bin is refused by name, and changes nothing."""
    policy = policy.fresh(1)
    play(policy, 20)
    for bin in (-1, policy.bins, 0.5, "3", None, math.nan, [1]):
        for call in (policy.decide, policy.explain, lambda wrong: policy.decide_many([wrong])):
            message = refuses(policy, (ValueError, TypeError), f"bin {bin!r}", call, bin)
            require("bin" in message, f"the error about bin {bin!r} does not name it: {message}")


# -- learning ---------------------------------------------------------------------------------------------------------


def feedback_in_any_order(policy: Policy) -> None:
    """Feedback that is late and out of order teaches the same as feedback in order."""
    ordered, reordered = policy.fresh(4), policy.fresh(4)
    for device, backwards in ((ordered, False), (reordered, True)):
        waiting = offloaded(device, 40)
        for decision, sample in reversed(waiting) if backwards else waiting:
            tell(device, decision, sample)
    one, other = content(ordered), content(reordered)
    for field in policy.order_matters:
        del one["evidence"][field], other["evidence"][field]
    require(almost(one, other), "the order of the feedback matters")


def late_feedback_reaches_its_bin(policy: Policy) -> None:
    """Feedback counts for the bin of its own decision, not for that of the last one."""
    policy = policy.fresh(4)
    waiting = offloaded(policy, 40)
    for decision, sample in waiting:
        counts = [policy.explain(bin).offloads for bin in range(policy.bins)]
        tell(policy, decision, sample)
        for bin, count in enumerate(counts):
            if bin != decision.bin:
                require(policy.explain(bin).offloads == count, f"feedback for bin {decision.bin} reached bin {bin}")


def missing_feedback_is_bounded(policy: Policy) -> None:
    """Feedback that never arrives costs a bounded amount of memory, and nothing else."""
    policy = policy.fresh(1)
    bins = [0] * 1000
    for _ in range(OUTSTANDING // 1000 + 2):
        policy.decide_many(bins)
    require(len(policy.state()["pending"]) <= OUTSTANDING, "decisions without feedback pile up")
    tell(policy, policy.decide(0), (0, True, 0.5))


def feedback_once(policy: Policy) -> None:
    """A decision is learned from once; a second time, or another policy's decision, is an error."""
    policy = policy.fresh(1)
    stranger = policy.fresh(1)
    for decision, sample in offloaded(policy, 1):
        policy.learn(decision, agreed=True, cost=sample[2])
        refuses(policy, InvalidDecision, "a second feedback", policy.learn, decision, True, 0.5)
    for decision, _ in offloaded(stranger, 1):
        refuses(policy, InvalidDecision, "a foreign decision", policy.learn, decision, True, 0.5)
    refuses(policy, TypeError, "a decision that is none", policy.learn, True, agreed=True)


def forgotten_feedback_is_refused(policy: Policy) -> None:
    """A decision that is forgotten leaves nothing behind, and feedback for it is an error."""
    policy = policy.fresh(1)
    for decision, _ in offloaded(policy, 1):
        before = {**policy.state(), "pending": []}
        policy.forget(decision)
        require({**policy.state(), "pending": []} == before, "forgetting a decision changed more than that")
        refuses(policy, InvalidDecision, "forgotten feedback", policy.learn, decision, True, 0.5)
        refuses(policy, InvalidDecision, "a second forgetting", policy.forget, decision)


def accepted_teaches_nothing(policy: Policy) -> None:
    """An accepted sample cannot be learned from; by a policy that must be told about it, once."""
    policy = policy.fresh(1)
    for sample in islice(samples(policy), 500):
        decision = policy.decide(sample[0])
        if decision.offload or policy.needs:
            tell(policy, decision, sample)
        if not decision.offload:
            refuses(policy, InvalidDecision, "an accepted decision", policy.learn, decision, True, 0.5)


def wrong_feedback_is_refused(policy: Policy) -> None:
    """Feedback out of range is refused by name, changes nothing, and the decision goes on waiting."""
    policy = policy.fresh(1)
    for decision, sample in offloaded(policy, 1):
        for name, value in (
            *(("agreed", wrong) for wrong in (None, "yes", 2, -0.1, math.nan)),
            *(("cost", wrong) for wrong in ("much", 1.5, -0.1, math.nan, math.inf)),
        ):
            feedback = {"agreed": True, "cost": 0.5, name: value}
            message = refuses(policy, (ValueError, TypeError), f"{name}={value!r}", policy.learn, decision, **feedback)
            require(name in message, f"the error about {name}={value!r} does not name it: {message}")
        tell(policy, decision, sample)


def simulator_equals_object(policy: Policy) -> None:
    """The simulator's loop, which works on the table alone, decides as the object does, by coins and by fractions."""
    from hinge.simulation import Threads, run_seeds, simulate
    from hinge.simulation.engine import policy_seed
    from hinge.simulation.sources import BimodalPrice, ConstantPrice, Resampled, Source, Synthetic
    from hinge.traces import Trace

    costs = BimodalPrice() if policy.offload_cost is None else ConstantPrice(policy.offload_cost)
    chance = random.Random(4)
    confidences = [(bin + 0.5) / policy.bins for bin in range(policy.bins) for _ in range(20)]
    fractions = [min(1.0, 2.0 * confidence * chance.random()) for confidence in confidences]
    bins = UniformBins(policy.bins)
    settings: dict[str, Any] = {"record_decisions": True, "executor": Threads(1), "machine_code": False}
    coins, shares = Synthetic(confidences[::20], costs), Resampled(Trace(confidences, agreed=fractions), bins, costs)
    sources: tuple[Source, ...] = (coins, shares)
    for source in sources:
        simulated = simulate({"policy": policy}, source, 500, seed=3, **settings)["policy"].runs[0].decisions
        seed = run_seeds(3, 1)[0]
        device, decided = policy.fresh(policy_seed(seed)), []
        for chunk in source.stream(seed, 500):
            for sample in zip(chunk.bins.tolist(), chunk.agreed.tolist(), chunk.costs.tolist(), strict=True):
                decision = device.decide(sample[0])
                tell(device, decision, sample)
                decided.append(decision.offload)
        require(simulated is not None and simulated.tolist() == decided, "the simulator decides differently")


# -- explaining -------------------------------------------------------------------------------------------------------


def explanation_tells_the_truth(policy: Policy) -> None:
    """`explain` says what `decide` does next, in numbers and as a sentence, and changes nothing."""
    policy = policy.fresh(1)
    for sample in islice(samples(policy), 400):
        before = policy.state()
        explanation = policy.explain(sample[0])
        require(policy.state() == before, "explaining changed the state")
        require(str(explanation).startswith(f"Bin {sample[0]} "), f"not a sentence about the bin: {explanation}")
        require(0.0 <= explanation.offload_probability <= 1.0, f"probability {explanation.offload_probability}")
        decision = policy.decide(sample[0])
        if explanation.offload_probability in (0.0, 1.0):
            require(decision.offload == bool(explanation.offload_probability), f"decided against: {explanation}")
        tell(policy, decision, sample)


# -- saving and merging ------------------------------------------------------------------------------------------------


def restores_bit_identically(policy: Policy) -> None:
    """A policy saved as JSON in the middle of a run, with feedback outstanding, continues bit-identically."""
    _continues(policy, lambda used: type(used).restore(json.loads(json.dumps(used.state(), allow_nan=False))))


def copies_bit_identically(policy: Policy) -> None:
    """The same by `copy.deepcopy`, which copies as process pools do; the copy shares nothing with the original."""
    _continues(policy, copy.deepcopy)


def _continues(policy: Policy, copied: Callable[[Policy], Policy]) -> None:
    original = policy.fresh(6)
    play(original, 300)
    waiting = offloaded(original, 5)
    twin = copied(original)
    require(twin.state() == original.state(), "the state changed on the way")
    for one in (original, twin):
        for decision, sample in waiting:
            tell(one, decision, sample)
    require(play(original, 700, seed=8) == play(twin, 700, seed=8), "the copy decides differently")
    require(twin.state() == original.state(), "the copy learned differently")


def damaged_states_are_refused(policy: Policy) -> None:
    """States that are newer, of another policy, or damaged are refused with a reason."""
    policy = policy.fresh(1)
    play(policy, 50)
    state = policy.state()
    damages: list[dict[str, Any]] = [{"hinge_state": state["hinge_state"] + 1}, {"hinge_state": None}, {"policy": "no"}]
    damages += [{key: None} for key in ("id", "time", "learned", "evidence", "merged", "parameters")]
    damages += [{"time": -1}, {"pending": [["x"]]}, {"pending": 5}, {"parameters": {"bins": -1}}]
    damages += [{"time": 10**400}, {"learned": state["time"] + 1}, {"merged": {"other": None}}]
    for field, values in state["evidence"].items():
        for damaged in ([*values, 0], *([value] * len(values) for value in (-1, 10**400, "1"))):
            if damaged:
                damages.append({"evidence": {**state["evidence"], field: damaged}})
    for damage in damages:
        refuses(policy, InvalidState, f"a state with {damage}", type(policy).restore, {**state, **damage})
    nonsense: tuple[Any, ...] = (None, [], "state")
    for thing in nonsense:
        refuses(policy, (TypeError, InvalidState), f"state {thing!r}", type(policy).restore, thing)


def merge(device: Policy, state: Any) -> None:
    """Merge a state that must not be refused."""
    try:
        device.merge(state)
    except InvalidState as error:
        raise NotConforming(f"a state of its own kind was refused: {error}") from error


def only_itself_speaks_for_it(policy: Policy) -> None:
    """What another state says about this policy is ignored, and a state that counts more than it learned is refused."""
    device, other = policy.fresh(1), policy.fresh(2)
    play(device, 200, 1)
    play(other, 100, 2)
    honest = other.state()
    merge(other, {**device.state(), "time": device.time + 1000})
    one, two = copy.deepcopy(device), copy.deepcopy(device)
    merge(one, honest)
    merge(two, other.state())
    require(almost(one.state()["evidence"], two.state()["evidence"]), "it believed what was said in its own name")
    evidence = honest["evidence"]
    if "offloads" in evidence:
        many = {**honest, "evidence": {**evidence, "offloads": [value + 10**6 for value in evidence["offloads"]]}}
        refuses(device, InvalidState, "a state that counts too much", device.merge, many)


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
            merge(device, states[which])
        merged.append(device.state()["evidence"])
    through = policy.fresh(8)
    merge(through, states[0])
    merge(through, states[1])
    device = policy.fresh(9)
    merge(device, states[1])
    merge(device, through.state())
    merge(device, states[2])
    merged.append(device.state()["evidence"])
    for other in merged[1:]:
        require(almost(merged[0], other), "the order or the route of merging matters")


def unlike_states_do_not_merge(policy: Policy) -> None:
    """Evidence over other bins cannot be added."""
    device = policy.fresh(1)
    state = device.state()
    other = {**state, "parameters": {**state["parameters"], device.merges_on[0]: None}, "id": "other"}
    refuses(device, InvalidState, "a state of unlike parameters", device.merge, other)
    refuses(device, (TypeError, InvalidState), "a state that is none", device.merge, {})


# -- being built ------------------------------------------------------------------------------------------------------


def parameters_build_the_same(policy: Policy) -> None:
    """The constructor's parameters are attributes, and enough to build the policy again."""
    again = type(policy)(**policy.parameters)
    require(again.parameters == policy.parameters, f"{policy!r} was built again as {again!r}")
    json.dumps(policy.parameters, allow_nan=False)


def wrong_parameters_are_refused(policy: Policy) -> None:
    """A parameter that makes no sense is refused by name."""
    for name in policy.parameters:
        wrong = {**policy.parameters, name: "nonsense"}
        message = refuses(policy, (ValueError, TypeError), f"{name}='nonsense'", type(policy), **wrong)
        require(name in message, f"the error about {name} does not name it: {message}")


def documented_with_an_example(policy: Policy) -> None:
    """The class has a name, and a docstring with a runnable example."""
    require(">>>" in (type(policy).__doc__ or ""), f"{type(policy).__name__} has no example in its docstring")
    require(bool(type(policy).name), "the policy has no name")


CLAUSES: tuple[Clause, ...] = tuple(  # every public function above that takes a policy and returns nothing
    value
    for name, value in [*globals().items()]
    if getattr(value, "__annotations__", None) == {"policy": Policy, "return": None} and not name.startswith("_")
)


def check_policy(policy: Policy) -> None:
    """Run every clause against a policy; raises `NotConforming` at the first that it does not keep.

    >>> from hinge import HILCB
    >>> check_policy(HILCB(bins=4, offload_cost=0.5))
    """
    if not isinstance(policy, Policy):
        raise TypeError(f"check_policy: policy must be an instance of a policy, got {policy!r}")
    for clause in CLAUSES:
        try:
            clause(policy)
        except NotConforming as error:
            raise NotConforming(f"{clause.__name__}: {error}") from error
