"""How well budgets are met, and what is made of them.

All policies see the same samples; the best static threshold is that of the very samples of a run, in hindsight.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import ABSENT, BEFORE, against, best_before, geometric, spread
from hinge import Gate, Policy, UniformBins, load_trace, simulate
from hinge.policies import LyapunovEXP4
from hinge.simulation import Record, Results, interval, run_seeds
from hinge.simulation.sources import ConstantPrice, Resampled

HORIZON = 100_000
BINS, COST = 16, 0.05  # so cheap that most policies would offload more than they may
RATES = (0.05, 0.1, 0.2, 0.4)
TRACES = ("cifar10-vgg16", "fashion")
WINDOW = 1000
DEFAULT = "probation"
EARLY = HORIZON // 10
SEED = 4712  # not the one with which the price's steps were chosen
Reals = NDArray[np.float64]


def through(trace: str) -> Resampled:
    return Resampled(load_trace(trace), UniformBins(BINS), ConstantPrice(COST))


# -- the best static thresholds, in hindsight -------------------------------------------------------------------------


class Seen(NamedTuple):
    """What a run turned out to hold: the share of each bin, and the share of all samples that disagree in it."""

    weights: Reals
    errors: Reals


def seen(source: Resampled, run_seed: int, horizon: int) -> Seen:
    weights, errors = np.zeros(BINS), np.zeros(BINS)
    for chunk in source.stream(run_seed, horizon):
        weights += np.bincount(chunk.bins, minlength=BINS)
        errors += np.bincount(chunk.bins, 1.0 - chunk.agreed, BINS)
    return Seen(weights / horizon, errors / horizon)


def steps(run: Seen) -> list[tuple[float, float]]:
    """How much of the error a share of offloads removes, and that share, along the best mixtures of thresholds.

    These are the sides of the convex hull of all thresholds, the steepest first.
    """
    sides: list[tuple[float, float]] = []
    for weight, error in zip(run.weights.tolist(), run.errors.tolist(), strict=True):
        removed, share = error, weight
        while sides and sides[-1][0] * share <= removed * sides[-1][1]:  # steeper than the one before: one side
            removed, share = removed + sides[-1][0], share + sides[-1][1]
            sides.pop()
        if share > 0.0:
            sides.append((removed, share))
    return sides


def best_static(devices: Sequence[Seen], rate: float) -> tuple[float, float, float]:
    """Offloads, cost and error a sample of the best static mixture of thresholds within a rate, over all devices."""
    sides = sorted((side for device in devices for side in steps(device)), key=lambda side: -side[0] / side[1])
    error, left = float(sum(device.errors.sum() for device in devices)), rate * len(devices)
    for removed, share in sides:
        taken = min(share, left) if removed > COST * share else 0.0
        error, left = error - removed * taken / share, left - taken
    offloads, error = rate - left / len(devices), error / len(devices)
    return offloads, COST * offloads + error, error


# -- one device -------------------------------------------------------------------------------------------------------


def contestants(rate: float) -> dict[str, Policy | Gate]:
    return {
        DEFAULT: Gate(DEFAULT, offload_cost=COST, bins=BINS, budget=rate),
        "probation, fitted bins": Gate(DEFAULT, offload_cost=COST, budget=rate),
        "hi-lcb": Gate("hi-lcb", offload_cost=COST, bins=BINS, budget=rate),
        "lyapunov-exp4": LyapunovEXP4(BINS, offloads=rate),
    }


def offloads_by_time(record: Record) -> NDArray[np.int64]:
    """Runs × times: offloads up to each time, from none at time 0."""
    taken = [run.decisions for run in record.runs if run.decisions is not None]
    return np.pad(np.cumsum(taken, axis=1, dtype=np.int64), ((0, 0), (1, 0)))


def figures(values: Sequence[Sequence[float] | Reals]) -> str:
    pairs = (interval(np.asarray(value)) for value in values)
    return " | ".join(f"{mean:.4f} ± {half:.4f}" for mean, half in pairs)


def excess(costs: Reals, rates: Reals, runs: Sequence[Sequence[Seen]]) -> str:
    """How much more a policy costs than the best static mixture that may offload as much as it did."""
    best = [best_static(devices, rate)[1] for devices, rate in zip(runs, rates.tolist(), strict=True)]
    return f"{spread(100.0 * (costs / np.array(best) - 1.0), 1)} %"


def rows(trace: str, rate: float, results: Results, runs: Sequence[Seen], ratios: list[float]) -> Iterator[str]:
    before = best_before("regret-budgets", f"One device, {trace}", f"budget {rate:g}")
    best = [best_static([run], rate) for run in runs]
    yield f"| {rate:g} | best static, in hindsight | {figures(list(zip(*best, strict=True)))} | | | | |"
    for name, record in results.items():
        reached, costs = record.offload_fraction[:, -1], record.cost_per_sample[:, -1]
        shown = figures([reached, costs, 1.0 - record.accuracy[:, -1]])
        counts = offloads_by_time(record)
        early, fullest = figures([counts[:, EARLY] / EARLY]), np.max(counts[:, WINDOW:] - counts[:, :-WINDOW])
        beyond = excess(costs, reached, [[run] for run in runs])
        mean = float(costs.mean())
        beside = against(mean, before, 4) if name == DEFAULT else ABSENT
        ratios += [mean / before] if name == DEFAULT else []
        yield f"| {rate:g} | {name} | {shown} | {beyond} | {early} | {fullest} | {beside} |"


def one_device(trace: str, rates: Sequence[float], count: int, ratios: list[float]) -> list[str]:
    source = through(trace)
    runs = [seen(source, seed, HORIZON) for seed in run_seeds(SEED, count)]
    free = simulate(DEFAULT, source, HORIZON, count, SEED)[DEFAULT]
    unbound = interval(free.offload_fraction[:, -1])[0]
    columns: tuple[str, ...] = ("budget", "policy", "offloads", "cost", "error", "cost beyond the best at that rate")
    columns += (f"offloads by {EARLY}", f"fullest {WINDOW}", BEFORE)
    lines = [
        f"### {trace}",
        "",
        f"Without a budget, {DEFAULT} offloads {unbound:.3f} of the samples.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for rate in rates:
        results = simulate(contestants(rate), source, HORIZON, count, SEED, record_decisions=True)
        lines += rows(trace, rate, results, runs, ratios)
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    """The tables as Markdown."""
    runs, rates = (3, (0.1,)) if quick else (50, RATES)
    lines = [
        "## Budgets",
        "",
        f"T = {HORIZON}, {BINS} bins, offload cost {COST}, {runs} runs ± half of the 95 % interval; the same samples",
        "for all. Error: the share of answers other than the remote's. The best static policy is a mixture of",
        "thresholds; p99 is the 99th percentile of the runs. Fullest: the most offloads in any",
        f"{WINDOW} samples of any run. The constants of lyapunov-exp4 and of budgets were chosen on these traces, with",
        "other seeds.",
        "",
    ]
    ratios = list[float]()
    for trace in TRACES:
        lines += one_device(trace, rates, runs, ratios)
    return [*lines, f"{DEFAULT} over the best before, geometric mean of {len(ratios)}: {geometric(ratios):.3f}.", ""]
