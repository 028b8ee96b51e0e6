"""Intervals of production logs where all bins agree alike, near break-even: the hardest case for them.

A policy stops asking about a bin that was lucky, so that the log flatters it, and where no bin differs from the others
nothing makes up for that. `logs` has the shipped traces, in which few bins lie close to break-even.
"""

from typing import NamedTuple

import numpy as np

from hinge import build
from hinge.theory import Estimate

LOGS, SLACK = 200, 5e-4  # a cost is printed with three digits


class World(NamedTuple):
    """All bins agree alike, so much above break-even."""

    writer: str
    bins: int
    offload_cost: float
    above: float
    samples: int


WORLDS = (
    *(World("sentinel", 16, 0.5, above, 1_000) for above in (-0.1, -0.05, -0.02, 0.02, 0.1)),
    World("sentinel", 16, 0.5, -0.05, 10_000),
    World("sentinel", 64, 0.5, -0.05, 10_000),
    World("sentinel", 32, 0.3, -0.05, 2_000),
    World("isotonic", 16, 0.5, -0.02, 10_000),
    World("thompson", 16, 0.5, -0.05, 1_000),
)


def interval(world: World, seed: int) -> tuple[float, float]:
    """What a log by this policy says of the cost of local alone."""
    writer, count, cost, above, samples = world
    chance, policy = np.random.default_rng(seed), build(writer, bins=count, offload_cost=cost, seed=seed)
    bins, agreed = chance.integers(count, size=samples), chance.random(samples) < 1.0 - cost + above
    offloads, agreements = np.zeros(count, np.int64), np.zeros(count)
    for bin, agrees in zip(bins.tolist(), agreed.tolist(), strict=True):
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agrees, cost)
            offloads[bin] += 1
            agreements[bin] += agrees
    estimate = Estimate(np.bincount(bins, minlength=count), offloads, agreements)
    low, high = estimate.cost(np.ones(count), cost)
    return float(low), float(high)


def report(quick: bool) -> list[str]:
    logs = 10 if quick else LOGS
    lines = [
        "## Intervals where all bins agree alike",
        "",
        f"The share of {logs} logs whose interval holds what local alone costs; how often it lies above, where the log",
        "flatters local, and below; and how wide the interval is on average. For 95 % of logs it is made.",
        "",
        "| written by | bins | offload cost | agreement over break-even | samples | held | above | below | width |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for world in WORLDS:
        found = np.array([interval(world, seed) for seed in range(logs)])
        true = world.offload_cost - world.above
        above, below = true > found[:, 1] + SLACK, true < found[:, 0] - SLACK
        shares = f"{1.0 - (above | below).mean():.1%} | {above.mean():.1%} | {below.mean():.1%}"
        settings = f"{world.writer} | {world.bins} | {world.offload_cost} | {world.above:+.2f} | {world.samples}"
        lines.append(f"| {settings} | {shares} | {(found[:, 1] - found[:, 0]).mean():.3f} |")
    return [*lines, ""]
