"""A warm start: what a log saves if it is of the same stream, and what it costs if it is of another.

Each device learns a log of 500 samples before its first one; then come 100 000 samples. Policies are driven as objects,
since a simulation starts every run from nothing.
"""

from benchmarks.report import ABSENT, BEFORE, SPREAD, against, best_before, geometric, spread
from hinge import HILCB, Policy, Probation, UniformBins, load_trace
from hinge.simulation import run_seeds
from hinge.simulation.sources import ConstantPrice, Resampled

HORIZON, LOG, BINS = 100_000, 500, 16
PAIRS = {  # the trace that comes, and those that logs are of
    "cifar10-vgg16": ("cifar10-vgg16", "fashion", "cifar100-resnet50"),
    "fashion": ("fashion", "cifar10-vgg16", "imagenet-mobilenet"),
}


def source(trace: str, cost: float) -> Resampled:
    return Resampled(load_trace(trace), UniformBins(BINS), ConstantPrice(cost))


def started(policy: Policy, log: str | None, cost: float, seed: int) -> Policy:
    """A fresh copy, warmed by a log drawn with a seed of its own, if there is one."""
    copy = policy.fresh()
    if log is not None:
        chunk = next(source(log, cost).stream(seed + 1, LOG))
        copy.learn_log(chunk.bins.tolist(), chunk.agreed.tolist())
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
        f"Regret after {HORIZON} samples, cost {cost}, {BINS} bins, {runs} runs, after a log of {LOG} samples;",
        f"{SPREAD}.",
        "",
        f"| policy | trace | log of | cold | warm | warm / cold | {BEFORE} |",
        "|---" * 7 + "|",
    ]
    seeds, ratios = run_seeds(7, runs), list[float]()
    for policy in (Probation(BINS, cost), HILCB(BINS, 0.52, cost)):
        for trace, logs in PAIRS.items():
            stream = source(trace, cost)
            cold = [regret(started(policy, None, cost, seed), stream, seed) for seed in seeds]
            for log in logs if isinstance(policy, Probation) else logs[:1]:
                warm = [regret(started(policy, log, cost, seed), stream, seed) for seed in seeds]
                mean, beside = sum(warm) / runs, ABSENT
                if isinstance(policy, Probation):
                    before = best_before("regret-warm", "Warm start", f"{trace}, log of {log}")
                    ratios.append(mean / before)
                    beside = against(mean, before, 1)
                shown = f"{spread(cold, 1)} | {spread(warm, 1)} | {mean / (sum(cold) / runs):.2f} | {beside}"
                lines.append(f"| {policy.name} | {trace} | {log} | {shown} |")
    ratio = f"probation over the best before, geometric mean of {len(ratios)}: {geometric(ratios):.2f}."
    return [*lines, "", ratio, ""]
