"""What a decision costs: every policy, one sample at a time in Python, and the paper's formula taken literally.

Times depend on the machine; their ratios to an empty method call less so. It fails on nothing.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import hinge
from benchmarks.report import ABSENT, Table, ratio, span
from benchmarks.timing import Batch, Timed, calls, in_turn, noisiest, whole
from hinge.policies import policy_names
from tests.policies.literal import LiteralHILCB

BINS, COST, HORIZON = 16, 0.5, 100_000
CURVE = 0.1 + 0.85 * (np.arange(BINS) + 0.5) / BINS  # agreement; it crosses 1 - COST near the middle
UPPER, LOWER, ALL = (12, 16), (0, 4), (0, 16)  # bins that are licensed when they are known, always offloaded, any
WARM, TRIES = 20_000, 50  # samples to learn from at least, and how often so many more as a batch has
SAMPLES, MIX = 1_000, 20_000  # in a batch, and in a batch of the mix
GOALS = {"probation": 6_000.0, "hi-lcb": 3_000.0, "hi-lcb-lite": None}  # most nanoseconds of an offload
CALLS = 4.0  # most empty calls for an accepted sample

Samples = list[tuple[int, bool, float]]  # the bin, whether local agrees, and what an offload costs


class Empty:
    """The unit: a method that does nothing."""

    def nothing(self, bin: int) -> None:
        pass


class Cost(NamedTuple):
    """What a policy costs: nanoseconds of an accepted sample, of one that is offloaded, of one in a mix, and bytes."""

    accepted: Timed
    offload: Timed
    mix: float
    bytes_each: float | None


def drawn(count: int, low: int, high: int, seed: int) -> Samples:
    """Draw samples of the bins from `low` to below `high`."""
    chance = np.random.default_rng(seed)
    bins = chance.integers(low, high, count)
    costs = chance.choice([COST - 0.05, COST + 0.05], count)
    return list(zip(bins.tolist(), (chance.random(count) < CURVE[bins]).tolist(), costs.tolist(), strict=True))


def play(policy: Any, samples: Samples) -> int:
    """Decide and learn; return how many samples were offloaded."""
    decide, learn, offloaded = policy.decide, policy.learn, 0
    always, told = bool(policy.needs), policy.offload_cost is None
    for bin, agreed, cost in samples:
        decision = decide(bin)
        offloaded += decision.offload
        if decision.offload or always:
            learn(decision, agreed, cost if told else None)
    return offloaded


def play_literal(policy: LiteralHILCB, samples: Samples) -> int:
    """Do the same with the paper's formula."""
    decide, learn, offloaded = policy.decide, policy.learn, 0
    for bin, agreed, cost in samples:
        if decide(bin)[0]:
            learn(bin, agreed, cost)
            offloaded += 1
    return offloaded


def play_new(make: Callable[[], Any], playing: Callable[[Any, Samples], int], samples: Samples) -> int:
    """Do the same with a policy that knows nothing yet."""
    return playing(make(), samples)


def settled(policy: Any, playing: Callable[[Any, Samples], int], samples: Samples) -> Batch:
    """Return a batch of accepted samples: by a policy of which no licence runs out meanwhile, where that can be."""
    playing(policy, drawn(WARM, *UPPER, seed=2))
    bins = [bin for bin, _, _ in samples]
    if not isinstance(policy, hinge.Policy):
        return calls(policy.decide, bins)
    for _ in range(TRIES):
        state = policy.state()
        if not any(decision.offload for decision in hinge.restore(state).decide_many(bins)):
            break
        playing(policy, samples)
    return lambda: calls(hinge.restore(state).decide, bins)()


def built(name: str, bins: int = BINS, offload_cost: float | None = COST) -> hinge.Policy:
    """Build a policy by its name."""
    history = drawn(2_000, *ALL, seed=1)
    return hinge.build(
        name,
        bins=bins,
        alpha=0.52,
        offload_cost=offload_cost,
        horizon=HORIZON,
        seed=1,
        threshold=0.5,
        agreement=np.interp(np.linspace(0, 1, bins), np.linspace(0, 1, BINS), CURVE).tolist(),
        history=[bin * (bins // BINS) for bin, _, _ in history],
        agreed=[agreed for _, agreed, _ in history],
    )


def bytes_a_bin(name: str) -> float:
    """Return by how much a policy grows for each further bin, as tracemalloc sees it."""
    sizes = []
    for bins in (4_096, 8_192):
        built(name, bins)  # imports and caches, before the count
        tracemalloc.start()
        policy = built(name, bins)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del policy
    return (sizes[1] - sizes[0]) / 4_096


class Subject(NamedTuple):
    """A policy to be measured: how to make one, and how to play it."""

    make: Callable[[], Any]
    play: Callable[[Any, Samples], int]
    bytes_each: float | None = None


def subjects() -> Iterator[tuple[str, Subject]]:
    """Every policy that needs no budget, two that learn the cost, and the paper's formula."""
    for name in policy_names():
        if name not in ("lyapunov-exp4", "target"):
            yield name, Subject(partial(built, name), play, bytes_a_bin(name))
    for name in ("hi-lcb", "hi-lcb-lite"):
        yield f"{name}, learned cost", Subject(partial(built, name, offload_cost=None), play)
    yield "literal hi-lcb", Subject(partial(LiteralHILCB, BINS, 0.52, COST), play_literal)


def measured(chosen: dict[str, Subject], rounds: int) -> tuple[Timed, dict[str, Cost]]:
    """Time the empty call and the policies, in turn."""
    licensed, always = drawn(SAMPLES, *UPPER, seed=3), drawn(SAMPLES, *LOWER, seed=3)
    mixed = drawn(MIX, *ALL, seed=3)
    batches: dict[str, Batch] = {"": calls(Empty().nothing, [bin for bin, _, _ in licensed])}
    offloaded = {}
    for name, (make, playing, _) in chosen.items():
        learning = make()
        batches[f"{name}: accepted"] = settled(make(), playing, licensed)
        batches[f"{name}: offload"] = whole(partial(playing, learning, always), SAMPLES)
        offloaded[name] = playing(make(), mixed)
        batches[f"{name}: mix"] = whole(partial(play_new, make, playing, mixed))
    found = in_turn(batches, rounds)
    costs = {}
    for name, subject in chosen.items():
        accepted, offload, mix = (found[f"{name}: {what}"] for what in ("accepted", "offload", "mix"))
        rest, count = mix.ns - accepted.ns * (MIX - offloaded[name]), offloaded[name]
        costs[name] = Cost(accepted, offload, rest / count if count else float("nan"), subject.bytes_each)
    return found[""], costs


def tables(unit: Timed, costs: dict[str, Cost]) -> list[Table]:
    """Return the tables of all policies, and of the goals."""
    header = ["", "accepted sample", "empty calls", "offload: decide + learn", "offload in a mix", "bytes/bin"]
    every, goals = Table(f"A decision, {BINS} bins", header), Table("Goals")
    every.rows.append(["empty method call", span(unit.ns), "1.00x", *[ABSENT] * 3])
    for name, (accepted, offload, mix, size) in costs.items():
        share = ratio(accepted.ns / unit.ns)
        cells = [span(accepted.ns), share, span(offload.ns), span(mix), f"{size:.0f}" if size else ABSENT]
        every.rows.append([name, *cells])
    every.notes = [
        f"Accepted: `decide` alone, of the highest quarter of the bins, after {WARM:,} samples of them or more, until"
        " no licence runs out in a batch; randomised policies offload some of these all the same. Offload: of the"
        f" lowest quarter, which is offloaded always. In a mix: of a new policy's first {MIX:,} samples of all bins,"
        " less its accepted samples at the price of the first column. Literal: the paper's formula, computed anew.",
        noisiest([unit, *(cost.accepted for cost in costs.values())]),
    ]
    for name, most in GOALS.items():
        cost = costs[name]
        calls_each = cost.accepted.ns / unit.ns
        goals.goal(f"{name}: accepted sample, in empty calls", f"<= {CALLS:g}x", ratio(calls_each), calls_each <= CALLS)
        if most:
            goals.goal(f"{name}: offload + learn", f"<= {span(most)}", span(cost.offload.ns), cost.offload.ns <= most)
    return [every, goals]


def report(quick: bool) -> list[Table]:
    """Measure what a decision costs."""
    return tables(*measured(dict(subjects()), rounds=5 if quick else 25))
