"""A stream of samples that is the same in every process, with feedback that is late, reordered or missing."""

import json
from collections.abc import Callable, Iterator
from random import Random

from hinge import Decision, Gate
from hinge.device.locked import LockedGate
from hinge.policies import HILF, HedgeHI, LyapunovEXP4, Need
from hinge.policies.policy import State

BINS = 6
GATES: dict[str, Callable[[], Gate]] = {
    "default": lambda: Gate(offload_cost=0.4),
    "measured": Gate,
    "probation": lambda: Gate(offload_cost=0.4, bins=BINS),
    "hi-lcb learned": lambda: Gate("hi-lcb", bins=BINS),
    "thompson": lambda: Gate("thompson", offload_cost=0.4, bins=BINS),
    "target": lambda: Gate("target", bins=BINS),
    "budget": lambda: Gate(offload_cost=0.2, budget=0.3),
    "budget measured": lambda: Gate(bins=BINS, budget=0.3),
    "hedge-hi": lambda: Gate(HedgeHI(1000, BINS, 0.4, seed=3)),
    "hil-f": lambda: Gate(HILF(1000, BINS, 0.4, seed=3)),
    "lyapunov": lambda: Gate(LyapunovEXP4(BINS, offloads=0.3, seed=3)),
}


def play(gate: Gate | LockedGate, samples: int, seed: int = 0) -> Iterator[bool]:
    """Decide and learn; yields False after every decision, and True after everything that is learned."""
    random, waiting = Random(seed), list[tuple[Decision, float]]()
    needs = gate.policy.needs
    for _ in range(samples):
        confidence = random.random()
        decision = gate.decide(confidence) if isinstance(gate, LockedGate) else gate.decide(confidence=confidence)
        if decision.time is not None:
            waiting.append((decision, confidence))
        yield False
        while waiting and random.random() < 0.6:
            late, sure = waiting.pop(random.randrange(len(waiting)))
            if random.random() < 0.1:
                continue  # the remote model never answered
            agreed = random.random() < 0.3 + 0.6 * sure if late.offload or Need.AGREEMENT in needs else None
            gate.learn(late, agreed, random.random())
            yield True


def text(state: State) -> str:
    """A state in a form in which equal texts are equal bits: floats are written in full."""
    return json.dumps(state, sort_keys=True)


def peer(gate: Gate, seed: int) -> State:
    """What another device with such a gate has learned."""
    other = gate.fresh()
    for _ in play(other, 40, seed):
        pass
    return other.state()
