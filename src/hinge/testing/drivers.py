"""How the conformance suite drives a policy, and how it complains."""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from hinge.policies import Decision, Need, Policy

Sample = tuple[int, bool, float]  # bin, agreed, cost


class NotConforming(AssertionError):
    """A policy does not keep a clause of the conformance suite."""


def samples(policy: Policy, seed: int = 0) -> Iterator[Sample]:
    """An endless stream for a policy: agreement rises with the bin, costs vary unless the policy knows them."""
    chance = random.Random(seed)
    while True:
        bin = chance.randrange(policy.bins)
        agreed = chance.random() < (bin + 0.5) / policy.bins
        cost = chance.choice((0.45, 0.55)) if policy.offload_cost is None else policy.offload_cost
        yield bin, agreed, cost


def play(policy: Policy, length: int, seed: int = 0) -> list[bool]:
    """Drive a policy with immediate feedback, telling it what it may know; returns its decisions."""
    decisions = []
    for sample in islice(samples(policy, seed), length):
        decision = policy.decide(sample[0])
        tell(policy, decision, sample)
        decisions.append(decision.offload)
    return decisions


def tell(policy: Policy, decision: Decision, sample: Sample) -> None:
    """Give the feedback that a policy is due: after an offload, or in every slot if it needs that."""
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


def refuses(policy: Policy, kinds: type[Exception] | tuple[type[Exception], ...], action: str, call: Any) -> str:
    """Require that a call raises one of these errors and leaves the policy's state as it was; returns the message."""
    before = policy.state()
    try:
        call()
    except kinds as error:
        require(policy.state() == before, f"{action} was refused, but changed the state")
        return str(error)
    except Exception as error:
        raise NotConforming(f"{action} raised {error!r}") from error
    raise NotConforming(f"{action} was not refused")
