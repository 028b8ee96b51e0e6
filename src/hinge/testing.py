"""The conformance suite: what every policy promises, clause by clause, for your own policies too.

    from hinge.testing import check_policy
    check_policy(MyPolicy(bins=16))

A clause works on fresh copies of the policy it is given, and raises `NotConforming` with what went wrong; `CLAUSES` has
them all, for a test of each.
"""

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from hinge.bins import UniformBins
from hinge.errors import HingeError, InvalidDecision, InvalidState
from hinge.policies import Decision, Need, Policy
from hinge.policies.policy import MAX_PENDING

__all__ = ["CLAUSES", "Clause", "NotConforming", "Sample", "check_policy", "play", "samples", "tell"]

Clause = Callable[[Policy], None]
Sample = tuple[int, float, float]  # bin, agreed, cost
Kinds = type[Exception] | tuple[type[Exception], ...]


class NotConforming(AssertionError):
    """A policy does not keep a clause of the conformance suite."""


def samples(policy: Policy, seed: int = 0) -> Iterator[Sample]:
    """Yield samples without end: agreement rises with the bin, costs vary unless the policy knows them."""
    chance = random.Random(seed)
    while True:
        bin = int(chance.random() * policy.bins)
        agreed = chance.random() < (bin + 0.5) / policy.bins
        cost = (0.45 if chance.random() < 0.5 else 0.55) if policy.offload_cost is None else policy.offload_cost
        yield bin, agreed, cost


def play(policy: Policy, length: int, seed: int = 0) -> list[bool]:
    """Drive a policy with immediate feedback; return its decisions."""
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


def require(condition: bool, message: str) -> None:
    """Raise `NotConforming` unless the condition holds."""
    if not condition:
        raise NotConforming(message)


def refuses(policy: Policy, kinds: Kinds, action: str, call: Callable[..., Any], /, *given: Any, **named: Any) -> str:
    """Require that a call raises one of these errors and leaves the policy's state as it was; return the message."""
    before = policy.state()
    try:
        call(*given, **named)
    except kinds as error:
        require(policy.state() == before, f"{action} was refused, but changed the state")
        return str(error)
    except Exception as error:
        raise NotConforming(f"{action} raised {error!r}") from error
    raise NotConforming(f"{action} was not refused")


def nameless(policy: Policy) -> Any:
    """Return what a policy knows, without who it is."""
    return {**policy.state(), "id": ""}


def evidence(policy: Policy) -> list[list[float]]:
    """Return the sums of what a policy has learned."""
    return [policy.state()["table"][name] for name in policy.evidence]


def restored(policy: Policy) -> Policy:
    """Return a policy that was saved as JSON."""
    return type(policy).restore(json.loads(json.dumps(policy.state(), allow_nan=False)))


def almost(one: Any, other: Any) -> bool:
    """Return whether nested lists are equal but for the rounding of sums taken in another order."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(almost, one, other))
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def fresh_copies_start_alike(policy: Policy) -> None:
    """A fresh copy of a policy that has learned knows nothing, and copies with one seed decide alike."""
    used, new = policy.fresh(1), policy.fresh(1)
    decided = play(used, 500)
    require((new.time, used.time) == (0, 500), f"{used.time} of 500 samples are counted")
    require(nameless(used.fresh(1)) == nameless(new), "a fresh copy remembers something")
    require(used.fresh(1).id != new.id, "two copies share an id")
    require(play(new, 500) == decided, "two copies with the same seed differ")


def batch_equals_one_by_one(policy: Policy) -> None:
    """`decide_many` decides as `decide` would, and its decisions can be learned from."""
    single, batch = policy.fresh(2), policy.fresh(2)
    upcoming = list(islice(samples(policy), 300))
    one, many = [single.decide(bin) for bin, _, _ in upcoming], batch.decide_many([bin for bin, _, _ in upcoming])
    for first, second, sample in zip(one, many, upcoming, strict=True):
        require(first.offload == second.offload, "a batch is decided differently")
        tell(single, first, sample)
        tell(batch, second, sample)
    require(nameless(single) == nameless(batch), "a batch is learned from differently")


def wrong_bins_are_refused(policy: Policy) -> None:
    """The lowest and the highest bin are bins; a wrong one is refused by name, and changes nothing."""
    policy = policy.fresh(1)
    for bin in (0, policy.bins - 1):
        tell(policy, policy.decide(bin), (bin, 1.0, 0.5))
    for wrong in (-1, policy.bins, 0.5, "3", None, math.nan, [1]):
        for call in (policy.decide, policy.explain, lambda bin: policy.decide_many([0, bin])):
            message = refuses(policy, (ValueError, TypeError), f"bin {wrong!r}", call, wrong)
            require("bin" in message, f"the error about bin {wrong!r} does not name it: {message}")


def prices_are_told_or_refused(policy: Policy) -> None:
    """What is offloaded at a price told for one sample is so at each lower one; a price that a gate moves is saved."""
    policy = policy.fresh(1)
    play(policy, 300)
    if policy.functions.offloads_at is None:
        refuses(policy, TypeError, "a told price", policy.decide, 0, 0.5)
    else:
        for wrong in (-0.1, 1.5, math.nan, "much"):
            refuses(policy, (TypeError, ValueError), f"cost {wrong!r}", policy.decide, 0, wrong)
        for bin in range(policy.bins):
            decided = [copy.deepcopy(policy).decide(bin, cost).offload for cost in (0.0, 0.1, 0.3, 0.6, 0.9, 1.0)]
            require(decided == sorted(decided, reverse=True), f"at rising prices bin {bin} is decided {decided}")
    if not policy.takes_price:
        refuses(policy, TypeError, "a price", policy.reprice, 0.3)
        return
    policy.reprice(0.9, 0.05)
    moved, saved = ([each.explain(bin) for bin in range(policy.bins)] for each in (policy, restored(policy)))
    require(moved == saved, "the price was not saved")


def feedback_in_any_order(policy: Policy) -> None:
    """Feedback that is late and out of order adds up to the same, in the bins of its own decisions."""
    outlooks = []
    for backwards in (False, True):
        device = policy.fresh(4)
        upcoming = [(device.overrule(sample[0], True), sample) for sample in islice(samples(device), 40)]
        for decision, sample in reversed(upcoming) if backwards else upcoming:
            before = [device.counts(bin) for bin in range(device.bins) if bin != decision.bin]
            tell(device, decision, sample)
            after = [device.counts(bin) for bin in range(device.bins) if bin != decision.bin]
            require(before == after, f"feedback for bin {decision.bin} reached another")
        bins = range(device.bins)
        outlooks.append([device.counts(bin) or device.explain(bin).offload_probability for bin in bins])
    require(almost(*outlooks), "the order of the feedback matters")


def feedback_once(policy: Policy) -> None:
    """An offload is learned from once, or forgotten; nothing else is learned from, nor remembered for ever."""
    policy, stranger = policy.fresh(1), policy.fresh(1)
    learned, forgotten = (policy.overrule(0, True) for _ in range(2))
    policy.learn(learned, agreed=True, cost=0.5)
    before = {**policy.state(), "pending": []}
    policy.forget(forgotten)
    require({**policy.state(), "pending": []} == before, "forgetting a decision changed more than that")
    for wrong in (learned, forgotten, policy.overrule(0, False), stranger.overrule(0, True)):
        refuses(policy, InvalidDecision, f"feedback for {wrong}", policy.learn, wrong, True, 0.5)
        refuses(policy, InvalidDecision, f"forgetting {wrong}", policy.forget, wrong)
    refuses(policy, TypeError, "a decision that is none", policy.learn, True, agreed=True)
    many = [policy.overrule(0, True) for _ in range(MAX_PENDING + 2)]
    require(len(policy.pending) <= MAX_PENDING, "decisions without feedback pile up")
    policy.learn(many[-1], agreed=True, cost=0.5)


def wrong_feedback_is_refused(policy: Policy) -> None:
    """Feedback out of range is refused by name, changes nothing, and the decision goes on waiting."""
    policy = policy.fresh(1)
    decision = policy.overrule(0, True)
    wrong: dict[str, tuple[Any, ...]] = {"agreed": (None, "yes", 2), "cost": ("much", 1.5, math.inf)}
    for name, values in wrong.items():
        for value in (*values, -0.1, math.nan):
            given = {"agreed": True, "cost": 0.5, name: value}
            message = refuses(policy, (ValueError, TypeError), f"{name}={value!r}", policy.learn, decision, **given)
            require(name in message, f"the error about {name}={value!r} does not name it: {message}")
    policy.learn(decision, agreed=True, cost=0.5)


def simulator_equals_object(policy: Policy) -> None:
    """The simulator's loop, which works on the table alone, decides as the object does; also where prices are told."""
    from hinge.simulation import simulate
    from hinge.simulation.engine import Threads, policy_seed, run_seeds
    from hinge.simulation.sources import BimodalPrice, ConstantPrice, Resampled
    from hinge.traces import Trace

    costs = BimodalPrice() if policy.offload_cost is None else ConstantPrice(policy.offload_cost)
    chance, seed = random.Random(4), run_seeds(3, 1)[0]
    confidences = [(bin + 0.5) / policy.bins for bin in range(policy.bins) for _ in range(20)]
    fractions = [min(1.0, 2.0 * confidence * chance.random()) for confidence in confidences]
    source = Resampled(Trace(confidences, agreed=fractions), UniformBins(policy.bins), costs)
    settings: dict[str, Any] = {"record_decisions": True, "executor": Threads(1), "machine_code": False}
    for told in (False, True)[: 1 + (policy.functions.offloads_at is not None)]:
        settings["told_costs"] = ["policy"] if told else []
        simulated = simulate({"policy": policy}, source, 1000, seed=3, **settings)["policy"].runs[0].decisions
        device, decided = policy.fresh(policy_seed(seed)), []
        for chunk in source.stream(seed, 1000):
            for sample in zip(chunk.bins.tolist(), chunk.agreed.tolist(), chunk.costs.tolist(), strict=True):
                decision = device.decide(sample[0], sample[2] if told else None)
                tell(device, decision, sample)
                decided.append(decision.offload)
        require(simulated is not None and simulated.tolist() == decided, "the simulator decides differently")


def explanation_tells_the_truth(policy: Policy) -> None:
    """`explain` says what `decide` does next, in numbers and as a sentence, and changes nothing."""
    policy = policy.fresh(1)
    for sample in islice(samples(policy), 400):
        before, explanation = policy.state(), policy.explain(sample[0])
        require(policy.state() == before, "explaining changed the state")
        require(str(explanation).startswith(f"Bin {sample[0]} "), f"not a sentence about the bin: {explanation}")
        decision, probability = policy.decide(sample[0]), explanation.offload_probability
        require(0.0 <= probability <= 1.0, f"probability {probability}")
        require(probability not in (0.0, 1.0) or decision.offload == bool(probability), f"not so: {explanation}")
        tell(policy, decision, sample)


def continues_bit_identically(policy: Policy) -> None:
    """A policy saved as JSON in the middle of a run, with feedback outstanding, goes on alike; so does a deep copy."""
    for copied in (restored, copy.deepcopy):
        original = policy.fresh(6)
        play(original, 300)
        waiting = [(original.overrule(sample[0], True), sample) for sample in islice(samples(original, 5), 5)]
        twin = copied(original)
        require(twin.state() == original.state(), "the state changed on the way")
        for one in (original, twin):
            for decision, sample in waiting:
                tell(one, decision, sample)
        require(play(original, 700, seed=8) == play(twin, 700, seed=8), "the copy decides differently")
        require(twin.state() == original.state(), "the copy learned differently")


def damaged_states_are_refused(policy: Policy) -> None:
    """States of another version, of another policy, or damaged are refused with a reason."""
    policy = policy.fresh(1)
    play(policy, 50)
    state = policy.state()
    damages: list[dict[str, Any]] = [{key: None} for key in state]
    damages += [{"hinge_state": state["hinge_state"] + 1}, {"policy": "no"}, {"time": -1}, {"time": 10**400}]
    damages += [{"pending": [["x"]]}, {"parameters": {"bins": -1}}, {"learned": 51}, {"merged": {"other": None}}]
    for field, values in state["table"].items():
        wrong = ([*values, 0], *([value] * len(values) for value in (-1, 10**400, "1") if values))
        damages += [{"table": {**state["table"], field: damaged}} for damaged in wrong]
    for damage in damages:
        refuses(policy, InvalidState, f"a state with {damage}", type(policy).restore, {**state, **damage})


def merging_adds_evidence(policy: Policy) -> None:
    """Of every policy the latest evidence counts, once, by any route, and only a policy speaks for itself."""
    devices = [policy.fresh(seed) for seed in (1, 2, 3)]
    for seed, device in enumerate(devices):
        play(device, 100, seed)
    early, device = devices[2].state(), policy.fresh(9)
    if "offloads" not in policy.evidence:
        refuses(device, TypeError, "evidence that does not add up", device.merge, early)
        refuses(device, TypeError, "a log", device.learn_log, [0], [True], [0.5])
        return
    play(devices[2], 100, 7)
    one, two, three = (device.state() for device in devices)
    through = merged(policy.fresh(8), one, two).state()
    routes = ((one, two, three, early), (early, three, two, two, one), (two, through, three), (through, three, one))
    sums = [evidence(merged(restored(merged(policy.fresh(9), *route)), *route)) for route in routes]
    require(all(almost(sums[0], other) for other in sums), "the order or the route of merging matters")
    gossip = merged(devices[0], two, {**three, "time": three["time"] + 1000}).state()
    require(almost(evidence(merged(devices[2], one, gossip)), sums[0]), "it believed what was said in its own name")
    counts = {**early["table"], "offloads": [value + 10**6 for value in early["table"]["offloads"]]}
    unlike = {**early, "parameters": {**early["parameters"], "bins": policy.bins + 1}}
    for wrong, what in (({**early, "table": counts}, "too many offloads"), (unlike, "other bins"), ({}, "nothing")):
        refuses(device, (InvalidState, TypeError), f"a state of {what}", device.merge, wrong)


def merged(device: Policy, *states: Any) -> Policy:
    """Return a policy that has merged states."""
    for state in states:
        device.merge(state)
    return device


def parameters_build_the_same(policy: Policy) -> None:
    """Parameters build the policy again; nonsense is refused by name. The class has a name and a runnable example."""
    again = type(policy)(**json.loads(json.dumps(policy.parameters, allow_nan=False)))
    require(again.parameters == policy.parameters, f"{policy!r} was built again as {again!r}")
    for name in policy.parameters:
        wrong = {**policy.parameters, name: "nonsense"}
        message = refuses(policy, (ValueError, TypeError), f"{name}='nonsense'", type(policy), **wrong)
        require(name in message, f"the error about {name} does not name it: {message}")
    require(bool(type(policy).name) and ">>>" in (type(policy).__doc__ or ""), "it has no name, or no example")


CLAUSES: tuple[Clause, ...] = tuple(  # every function above that takes a policy and returns nothing
    value
    for value in [*globals().values()]
    if getattr(value, "__annotations__", None) == {"policy": Policy, "return": None}
)


def check_policy(policy: Policy) -> None:
    """Run every clause against a policy; raises `NotConforming` at the first that it does not keep.

    >>> from hinge import HILCB
    >>> check_policy(HILCB(bins=4, offload_cost=0.5))
    """
    for clause in CLAUSES:
        try:
            clause(policy)
        except (NotConforming, HingeError) as error:
            raise NotConforming(f"{clause.__name__}: {error}") from error
