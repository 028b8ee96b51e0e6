"""A stream of samples that is the same in every process, with feedback that is late, reordered or missing."""

import json
from collections.abc import Callable, Iterator
from random import Random

from hinge import Decision, DiscountedIsotonic, Isotonic, Policy, Thompson, at_most, on_budget
from hinge.device.locked import LockedPolicy
from hinge.policies import HILF, HedgeHI, LyapunovEXP4, Need
from hinge.policies.policy import State

BINS = 6
POLICIES: dict[str, Callable[[], Policy]] = {
    "isotonic known": lambda: Isotonic(BINS, offload_cost=0.4),
    "isotonic learned": lambda: Isotonic(BINS),
    "discounted": lambda: DiscountedIsotonic(BINS, offload_cost=0.4, memory=200, audit=0.05),
    "discounted learned": lambda: DiscountedIsotonic(BINS, memory=200, audit=0.05),
    "thompson": lambda: Thompson(BINS, offload_cost=0.4, seed=3),
    "thompson learned": lambda: Thompson(BINS, seed=3),
    "budget": lambda: at_most(on_budget(Isotonic(BINS, offload_cost=0.2), offloads=0.3), offloads=0.4, window=50),
    "budget learned": lambda: at_most(on_budget(Isotonic(BINS), cost=0.2), offloads=0.4, window=50),
    "budget discounted": lambda: on_budget(DiscountedIsotonic(BINS, memory=200, offload_cost=0.2), offloads=0.3),
    "hedge-hi": lambda: HedgeHI(1000, BINS, 0.4, seed=3),
    "hedge-hi told": lambda: HedgeHI(1000, BINS, seed=3),
    "hil-f": lambda: HILF(1000, BINS, 0.4, seed=3),
    "lyapunov": lambda: LyapunovEXP4(BINS, 0.4, offloads=0.3, seed=3),
}


def play(decider: Policy | LockedPolicy, samples: int, seed: int = 0) -> Iterator[bool]:
    """Decide and learn; yields False after every decision, and True after everything that is learned."""
    policy = decider.policy if isinstance(decider, LockedPolicy) else decider
    random, waiting = Random(seed), list[Decision]()
    for _ in range(samples):
        decision = decider.decide(random.randrange(BINS))
        if decision.time is not None:
            waiting.append(decision)
        yield False
        while waiting and random.random() < 0.6:
            late = waiting.pop(random.randrange(len(waiting)))
            if random.random() < 0.1:
                continue  # the remote model never answered
            told = late.offload or Need.AGREEMENT in policy.needs
            agreed = random.random() < 0.3 + 0.1 * (late.bin or 0) if told else None
            decider.learn(late, agreed, cost=random.random())
            yield True


def text(state: State) -> str:
    """A state in a form in which equal texts are equal bits: floats are written in full."""
    return json.dumps(state, sort_keys=True)


def peer(policy: Policy, seed: int) -> State:
    """What another device with such a policy has learned."""
    other = policy.fresh()
    for _ in play(other, 40, seed):
        pass
    return other.state()
