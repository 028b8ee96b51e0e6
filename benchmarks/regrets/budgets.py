"""How well budgets are met, and what is made of them: by one device, and by several that share one.

All policies see the same samples; the best static threshold is that of the very samples of a run, in hindsight.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import spread
from hinge import HILCB, Isotonic, Policy, UniformBins, at_most, load_trace, on_budget, simulate
from hinge.policies import LyapunovEXP4, OnBudget
from hinge.simulation import Record, Results, interval, run_seeds
from hinge.simulation.sources import ConstantPrice, Resampled

HORIZON = 100_000
BINS, COST = 16, 0.05  # so cheap that most policies would offload more than they may
RATES = (0.05, 0.1, 0.2, 0.4)
TRACES = ("cifar10-vgg16", "fashion")
WINDOW = 1000
SLACK = 0.9  # a price moves only where the limit around it leaves room to overspend
EARLY = HORIZON // 10
DEVICES = ("cifar10-vgg16", "cifar100-resnet50", "imagenet-mobilenet", "imagenet-mobilenetv2", "fashion")
EACH = 20_000  # samples of each device: objects are slower than the simulator
SEED = 4712  # not the one with which the price's steps were chosen
Reals = NDArray[np.float64]
Maker = Callable[[float, int], OnBudget | LyapunovEXP4]  # for a target rate and a seed


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


def contestants(rate: float) -> dict[str, Policy]:
    isotonic, hi_lcb = Isotonic(BINS, offload_cost=COST), HILCB(BINS, offload_cost=COST)
    return {
        "on_budget(Isotonic)": on_budget(isotonic.fresh(), rate),
        "at_most(Isotonic)": at_most(isotonic.fresh(), rate, WINDOW),
        "at_most(on_budget(Isotonic))": at_most(on_budget(isotonic.fresh(), rate), rate, WINDOW),
        f"at_most(on_budget(Isotonic, {SLACK:g} ×))": at_most(on_budget(isotonic.fresh(), SLACK * rate), rate, WINDOW),
        "on_budget(HILCB)": on_budget(hi_lcb, rate),
        "lyapunov-exp4": LyapunovEXP4(BINS, COST, offloads=rate),
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


def rows(rate: float, results: Results, runs: Sequence[Seen]) -> Iterator[str]:
    best = [best_static([run], rate) for run in runs]
    yield f"| {rate:g} | best static, in hindsight | {figures(list(zip(*best, strict=True)))} | | | |"
    for name, record in results.items():
        reached, costs = record.offload_fraction[:, -1], record.cost_per_sample[:, -1]
        shown = figures([reached, costs, 1.0 - record.accuracy[:, -1]])
        counts = offloads_by_time(record)
        early, fullest = figures([counts[:, EARLY] / EARLY]), np.max(counts[:, WINDOW:] - counts[:, :-WINDOW])
        beyond = excess(costs, reached, [[run] for run in runs])
        yield f"| {rate:g} | {name} | {shown} | {beyond} | {early} | {fullest} |"


def one_device(trace: str, rates: Sequence[float], count: int) -> list[str]:
    source = through(trace)
    runs = [seen(source, seed, HORIZON) for seed in run_seeds(SEED, count)]
    free = simulate([Isotonic(BINS, offload_cost=COST)], source, HORIZON, count, SEED)["isotonic"]
    unbound = interval(free.offload_fraction[:, -1])[0]
    columns: tuple[str, ...] = ("budget", "policy", "offloads", "cost", "error", "cost beyond the best at that rate")
    columns += (f"offloads by {EARLY}", f"fullest {WINDOW}")
    lines = [
        f"### One device, {trace}",
        "",
        f"Without a budget, Isotonic offloads {unbound:.3f} of the samples.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for rate in rates:
        results = simulate(contestants(rate), source, HORIZON, count, SEED, record_decisions=True)
        lines += rows(rate, results, runs)
    return [*lines, ""]


# -- several devices --------------------------------------------------------------------------------------------------


def priced(rate: float, seed: int) -> OnBudget:
    return on_budget(Isotonic(BINS, offload_cost=COST), rate)


def queued(rate: float, seed: int) -> LyapunovEXP4:
    return LyapunovEXP4(BINS, COST, offloads=rate, seed=seed)


def devices_with(make: Maker, rate: float, seed: int, shared: bool) -> list[OnBudget | LyapunovEXP4]:
    """A policy for each device; one budget for all, or an equal part for each."""
    first, *others = devices = [make(rate, seed + device) for device in range(len(DEVICES))]
    for other in others if shared else ():
        other.share(first)  # type: ignore[arg-type]  # of one kind: the same maker made both
    return devices


class Streams(NamedTuple):
    """The samples of every device in one run, and what they turned out to hold."""

    bins: list[list[int]]
    agreed: list[list[bool]]
    devices: list[Seen]


def streams(sources: Sequence[Resampled], seed: int, each: int) -> Streams:
    bins, agreed = [], []
    seeds = run_seeds(seed, len(sources))
    for source, run_seed in zip(sources, seeds, strict=True):
        chunks = list(source.stream(run_seed, each))
        bins.append(np.concatenate([chunk.bins for chunk in chunks]).tolist())
        agreed.append((np.concatenate([chunk.agreed for chunk in chunks]) == 1.0).tolist())
    return Streams(bins, agreed, [seen(*pair, each) for pair in zip(sources, seeds, strict=True)])


def round_robin(policies: Sequence[Policy], samples: Streams) -> tuple[list[float], float, float]:
    """Offloads of each device, cost and error of all, a sample."""
    offloads, errors, each = [0] * len(policies), 0, len(samples.bins[0])
    turns = list(enumerate(zip(policies, samples.bins, samples.agreed, strict=True)))
    for time in range(each):
        for device, (policy, bins, agreed) in turns:
            decision = policy.decide(bins[time])
            if decision.offload:
                offloads[device] += 1
                policy.learn(decision, agreed[time])
            else:
                errors += not agreed[time]
    total = each * len(policies)
    return [count / each for count in offloads], (COST * sum(offloads) + errors) / total, errors / total


def devices_row(label: str, outcomes: Sequence[tuple[list[float], float, float]], runs: Sequence[Streams]) -> str:
    shares, costs = np.array([rates for rates, _, _ in outcomes]), np.array([cost for _, cost, _ in outcomes])
    shown = figures([shares.mean(axis=1), costs, [error for _, _, error in outcomes]])
    beyond = excess(costs, shares.mean(axis=1), [run.devices for run in runs])
    return f"| {label} | {shown} | {beyond} | {' '.join(f'{share:.2f}' for share in shares.mean(axis=0))} |"


def static_row(label: str, outcomes: Sequence[Sequence[tuple[float, float, float]]]) -> str:
    """Of the best static mixtures of each run, one for all devices together or one for each."""
    means = np.array(outcomes).mean(axis=1)
    return f"| {label} | {figures(list(means.T))} | | |"


def several_devices(rates: Sequence[float], count: int, each: int) -> list[str]:
    sources = [through(trace) for trace in DEVICES]
    lines = [
        f"### {len(DEVICES)} devices, one after the other",
        "",
        f"The devices see {', '.join(DEVICES)}; {each} samples each, {count} runs, by objects.",
        "",
        "| budget | policy | offloads | cost | error | cost beyond the best shared one at that rate | of each device |",
        "|---" * 7 + "|",
    ]
    for rate in rates:
        runs = [streams(sources, SEED + run, each) for run in range(count)]
        best = [[best_static(run.devices, rate)] for run in runs]
        apart = [[best_static([device], rate) for device in run.devices] for run in runs]
        lines += [static_row(f"{rate:g} | best static, shared", best)]
        lines += [static_row(f"{rate:g} | best static, each its own", apart)]
        makers: tuple[tuple[str, Maker], ...] = (("on_budget(Isotonic)", priced), ("lyapunov-exp4", queued))
        for name, make in makers:
            for shared, said in ((True, "shared"), (False, "each its own")):
                plays = [round_robin(devices_with(make, rate, 10 * run, shared), runs[run]) for run in range(count)]
                lines.append(devices_row(f"{rate:g} | {name}, {said}", plays, runs))
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
        f"{WINDOW} samples of any run. The constants of lyapunov-exp4 and the steps of the price were chosen on the",
        "first two traces, with other seeds.",
        "",
    ]
    for trace in TRACES:
        lines += one_device(trace, rates, runs)
    return [*lines, *several_devices((0.2,) if quick else (0.05, 0.2), 2 if quick else 10, 4000 if quick else EACH)]


if __name__ == "__main__":
    print("\n".join(report(quick=False)))
