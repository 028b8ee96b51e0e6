"""Libraries a user might pick instead, each in its cheapest honest use: two arms, accept (0) and offload (1), per bin.

Only speed is compared. All of them assume that a pulled arm reveals its reward, so here they are told it every time,
which no gate could do: an accepted sample reveals nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from random import Random
from typing import Any

import numpy as np

from benchmarks.timing import Probe, Reading, clock
from benchmarks.workload import COST, Samples, Stream

ARMS = [0, 1]
WARM_UP = 320  # samples

Decides = Sequence[Callable[[], Any]]  # for each bin
Updates = Sequence[Callable[[Any, bool], object]]  # for each bin: takes what was decided, and whether local agreed
Made = Iterator[tuple[str, Decides, Updates]]


@dataclass
class Peer:
    """Another library's way to decide a sample, and to decide it and learn from it."""

    label: str
    decide: Probe
    both: Probe


def peers(bins: int) -> Iterator[Peer | str]:
    """Every peer; in place of one that is missing, its name."""
    for package, make in (("river", river), ("vowpalwabbit", vowpal_wabbit), ("mabwiser", mabwiser)):
        try:
            import_module(package)
        except ImportError:
            yield package
            continue
        for label, decides, updates in make(bins):
            yield peer(label, decides, updates, bins)


def peer(label: str, decides: Decides, updates: Updates, bins: int) -> Peer:
    stream = Stream(bins, seed=6)
    timed_both(decides, updates, stream.draw(WARM_UP, 0, bins))
    return Peer(
        label,
        Probe(lambda size: timed_decide(decides, stream.draw(size, 0, bins))),
        Probe(lambda size: timed_both(decides, updates, stream.draw(size, 0, bins))),
    )


def timed_decide(decides: Decides, samples: Samples) -> Reading:
    started = clock()
    for bin in samples[0]:
        decides[bin]()
    return Reading(clock() - started, len(samples[0]))


def timed_both(decides: Decides, updates: Updates, samples: Samples) -> Reading:
    started = clock()
    for bin, agreed in zip(samples[0], samples[1], strict=True):
        updates[bin](decides[bin](), agreed)
    return Reading(clock() - started, len(samples[0]))


def river(bins: int) -> Made:
    """One bandit per bin."""
    from river import bandit, proba

    upper_bounds = [bandit.UCB(delta=1, seed=bin) for bin in range(bins)]
    yield "river UCB", [partial(one.pull, ARMS) for one in upper_bounds], [one.update for one in upper_bounds]

    draws = [bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=bin) for bin in range(bins)]
    yield "river ThompsonSampling", [partial(one.pull, ARMS) for one in draws], [one.update for one in draws]


def vowpal_wabbit(bins: int) -> Made:
    """One learner, the bin as its only feature; it returns a distribution, from which we draw."""
    import vowpalwabbit

    learner = vowpalwabbit.Workspace("--cb_explore 2 --epsilon 0.05 --random_seed 1 --quiet")
    draw = Random(1).random

    def decide(context: str) -> tuple[int, float]:
        accept, offload = learner.predict(context)
        return (1, accept) if draw() < accept else (2, offload)

    def update(context: str, chosen: tuple[int, float], agreed: bool) -> None:
        cost = COST if chosen[0] == 2 else 1.0 - agreed
        learner.learn(f"{chosen[0]}:{cost}:{chosen[1]} {context}")

    contexts = [f"| bin{bin}" for bin in range(bins)]
    yield (
        "Vowpal Wabbit cb_explore",
        [partial(decide, context) for context in contexts],
        [partial(update, context) for context in contexts],
    )


def mabwiser(bins: int) -> Made:
    """UCB1 with one bandit per bin; LinUCB with the confidence as the context."""
    from mabwiser.mab import MAB, LearningPolicy

    simple = [MAB(ARMS, LearningPolicy.UCB1(alpha=1.0), seed=1) for _ in range(bins)]
    for one in simple:
        one.fit(ARMS, [1, 0])

    def update(one: Any, arm: Any, agreed: bool) -> None:
        one.partial_fit([arm], [agreed])

    yield "MABWiser UCB1", [one.predict for one in simple], [partial(update, one) for one in simple]

    linear = MAB(ARMS, LearningPolicy.LinUCB(alpha=1.0), seed=1)
    linear.fit(ARMS, [1, 0], np.array([[1.0, 0.5]] * 2))

    def update_linear(context: Any, arm: Any, agreed: bool) -> None:
        linear.partial_fit([arm], [agreed], context)

    contexts = [np.array([[1.0, (bin + 0.5) / bins]]) for bin in range(bins)]
    yield (
        "MABWiser LinUCB",
        [partial(linear.predict, context) for context in contexts],
        [partial(update_linear, context) for context in contexts],
    )
