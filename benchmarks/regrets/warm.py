"""A warm start: what a log saves at each weight, if it is of the same stream, and what it costs if it is of another.

Each device learns a log of 500 samples before its first one, with a weight; then come 100 000 samples. The policies are
driven as objects, since a simulation starts every run from nothing.
"""

from benchmarks.report import SPREAD, spread
from hinge import HILCB, Isotonic, Policy, UniformBins, load_trace
from hinge.simulation import run_seeds
from hinge.simulation.sources import ConstantPrice, Resampled

HORIZON, LOG, BINS = 100_000, 500, 16
WEIGHTS = (0.0, 0.01, 0.1, 0.3, 1.0)
PAIRS = {  # the trace that comes, and those that logs are of
    "cifar10-vgg16": ("cifar10-vgg16", "fashion", "cifar100-resnet50"),
    "fashion": ("fashion", "cifar10-vgg16", "imagenet-mobilenet"),
}


def source(trace: str, cost: float) -> Resampled:
    return Resampled(load_trace(trace), UniformBins(BINS), ConstantPrice(cost))


def started(policy: Policy, log: str, weight: float, cost: float, seed: int) -> Policy:
    """A fresh copy, warmed by a log drawn with a seed of its own."""
    copy = policy.fresh()
    if weight > 0:
        chunk = next(source(log, cost).stream(seed + 1, LOG))
        copy.learn_log(chunk.bins.tolist(), chunk.agreed.tolist(), weight=weight)
    return copy


def regret(policy: Policy, stream: Resampled, seed: int) -> float:
    total = 0.0
    for chunk in stream.stream(seed, HORIZON):
        columns = (chunk.bins, chunk.agreed, chunk.gaps)
        for bin, agreed, gap in zip(*(column.tolist() for column in columns), strict=True):
            decision = policy.decide(bin)
            if decision.offload:
                policy.learn(decision, agreed)
                total += max(0.0, -gap)
            else:
                total += max(0.0, gap)
    return total


def report(quick: bool) -> list[str]:
    runs, cost = 3 if quick else 50, 0.5
    lines = [
        "## Warm start",
        "",
        f"Regret after {HORIZON} samples, cost {cost}, {BINS} bins, {runs} runs, after a log of {LOG} samples that",
        f"counted with a weight; {SPREAD}.",
        "",
        f"| policy | trace | log of | {' | '.join(f'weight {weight:g}' for weight in WEIGHTS)} |",
        "|---" * (len(WEIGHTS) + 3) + "|",
    ]
    seeds = run_seeds(7, runs)
    for policy in (Isotonic(BINS, offload_cost=cost), HILCB(BINS, 0.52, cost)):
        for trace, logs in PAIRS.items():
            stream = source(trace, cost)
            for log in logs if isinstance(policy, Isotonic) else logs[:1]:
                cells = []
                for weight in WEIGHTS:
                    figures = [regret(started(policy, log, weight, cost, seed), stream, seed) for seed in seeds]
                    cells.append(spread(figures, 1))
                lines.append(f"| {policy.name} | {trace} | {log} | {' | '.join(cells)} |")
    return [*lines, ""]
