"""Production logs: how often the interval of a policy's cost holds its true cost, and how wide it is.

From every trace, samples are drawn with replacement and a policy decides. The log keeps the remote's answer where it
offloaded, and nothing else. The true cost is the expected cost per sample of the evaluated policy on as many samples of
the trace.
"""

import math
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from benchmarks.workload import image_traces
from hinge import Policy, UniformBins, build, load_trace, simulate
from hinge.policies import policy_class, policy_names
from hinge.simulation.engine import Threads, run_seeds
from hinge.simulation.evaluate import in_possible_worlds, lineup
from hinge.simulation.results import Results
from hinge.simulation.sources import FixedCosts, Resampled, Synthetic
from hinge.theory import Estimate
from hinge.theory.estimate import LEEWAY

BINS, RUNS, FEWER = 16, 200, 50
COST, FURTHER = 0.3, (0.1, 0.5)  # all policies are evaluated at one cost, some at two others
LOGGER, OTHERS = "sentinel", ("isotonic", "hi-lcb", "thompson", "hedge-hi")
FEW = ("always-local", "oracle", "sentinel")  # evaluated on the logs of others
SOME = (*FEW, "static", "isotonic", "hi-lcb", "thompson")
REPEATS = 4  # simulations of each policy on a curve
HELD = 0.95  # of the logs, in every cell and for every policy
FIXED = 1.920729  # half of the 95 % point of χ² with one degree of freedom: for numbers of offloads that are fixed


class Cell(NamedTuple):
    """The logs of one policy on one trace at one cost, and by name the policies that are evaluated on them."""

    trace: str
    cost: float
    offloaded: float  # the share of the samples to which the log knows the remote's answer
    held: dict[str, float]  # the share of logs whose interval holds the true cost
    width: dict[str, float]  # of the interval, on average
    fixed: float  # as `held` of always-local, with the leeway for fixed numbers of offloads


def cell(trace: str, cost: float, logger: str, policies: Sequence[str], runs: int) -> Cell:
    """Logs, and what is estimated from each."""
    source = Resampled(load_trace(trace), UniformBins(BINS), FixedCosts(cost))
    horizon, seed, alone = len(source.trace), zlib.crc32(f"{trace} {cost} {logger}".encode()), Threads(1)
    names = lineup(policies, source, offload_cost=cost, horizon=horizon)
    truth = simulate(names, source, horizon, runs, 1, times=[horizon], executor=alone)
    true = {name: float(record.cost_per_sample[:, -1].mean()) for name, record in truth.items()}
    true["always-local"] = float(source.weights @ (1.0 - source.agreement))
    chosen: Policy = build(logger, bins=BINS, offload_cost=cost, alpha=0.52, horizon=horizon)
    logs = simulate([chosen], source, horizon, runs, seed, times=[horizon], record_decisions=True, executor=alone)
    held, width, asked, fixed = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0), 0, 0
    for stream, run in zip(run_seeds(seed, runs), logs[logger].runs, strict=True):
        rows = list(source.stream(stream, horizon))
        bins, agreed = np.concatenate([each.bins for each in rows]), np.concatenate([each.agreed for each in rows])
        asks = np.asarray(run.decisions)
        counts = [np.bincount(some, minlength=BINS) for some in (bins, bins[asks], bins[asks][agreed[asks] > 0.0])]
        asked += int(asks.sum())
        estimate = Estimate(*counts)
        low, high = Estimate(*counts, leeway=FIXED).cost(np.ones(BINS), cost)
        fixed += low <= true["always-local"] <= high
        play = partial(played, policies=policies, cost=cost, horizon=horizon, seed=stream)
        for name, (low, high) in in_possible_worlds(estimate, cost, run_seeds(stream, REPEATS), play)[1].items():
            held[name] += (low <= true[name] <= high) / runs
            width[name] += (high - low) / runs
    return Cell(trace, cost, asked / (runs * horizon), held, width, fixed / runs)


def played(source: Synthetic, policies: Sequence[str], cost: float, horizon: int, seed: int) -> Results:
    ready = lineup(policies, source, offload_cost=cost, horizon=horizon)
    return simulate(ready, source, horizon, REPEATS, seed, times=[horizon], executor=Threads(1))


def lucky(trace: str, runs: int) -> list[float]:
    """Of always-local, the share of intervals that hold, for a log whose bins were asked about until they looked good.

    Each bin is offloaded until it agrees by 1.5 standard errors more often than it should, and never again: what no
    policy can do, as it does not know how often it should. Also for the leeway for fixed numbers of offloads.
    """
    source = Resampled(load_trace(trace), UniformBins(BINS), FixedCosts(0.5))
    chance, held, true = np.random.default_rng(5), np.zeros(2), float(source.weights @ (1.0 - source.agreement))
    for _ in range(runs):
        samples = chance.multinomial(len(source.trace), source.weights)
        counts = np.zeros((2, BINS), np.int64)
        for bin in np.flatnonzero(samples):
            agreement, seen = source.agreement[bin], np.arange(1, samples[bin] + 1)
            agreements = np.cumsum(chance.random(samples[bin]) < agreement)
            excess = agreements - agreement * seen > 1.5 * np.sqrt(seen * agreement * (1.0 - agreement))
            stops = np.flatnonzero(excess & (seen >= 5))
            stop = int(stops[0]) if stops.size else samples[bin] - 1
            counts[:, bin] = seen[stop], agreements[stop]
        for column, leeway in enumerate((LEEWAY, FIXED)):
            low, high = Estimate(samples, *counts, leeway=leeway).cost(np.ones(BINS), 0.5)
            held[column] += low <= true <= high
    return [float(share) for share in held / runs]


def row(found: Cell) -> str:
    """A line of the table of cells."""
    worst = min(found.held, key=lambda name: found.held[name])
    widths = " | ".join(f"{found.width[name]:.3f}" for name in FEW)
    least = f"{100 * found.held[worst]:.1f} ({worst}) | {100 * float(np.mean([*found.held.values()])):.1f}"
    return f"| {found.trace} | {found.cost} | {found.offloaded:.2f} | {least} | {widths} | {100 * found.fixed:.1f} |"


def by_policy(cells: Sequence[Cell]) -> list[str]:
    """A line for each policy."""
    lines = ["| policy | least held, % | mean, % | width, mean | largest |", "|---" * 5 + "|"]
    for name in cells[0].held:
        known = [each for each in cells if name in each.held]
        held, widths = ([getattr(each, field)[name] for each in known] for field in ("held", "width"))
        shares = f"{100 * min(held):.1f} | {100 * float(np.mean(held)):.1f}"
        lines.append(f"| {name} | {shares} | {float(np.mean(widths)):.3f} | {max(widths):.3f} |")
    return [*lines, ""]


def verdict(cells: Sequence[Cell]) -> str:
    """Whether every policy's interval held often enough in every cell."""
    shares = [share for each in cells for share in each.held.values()]
    missed = sum(share < HELD for share in shares)
    met = "met" if not missed else f"MISSED in {missed}"
    least = f"least {100 * min(shares):.1f} %, {100 * float(np.mean(shares)):.1f} % in the mean"
    return f"Held in at least {100 * HELD:g} % of the logs, of {len(shares)} cells and policies: {met} ({least})."


def report(quick: bool) -> list[str]:
    runs, further = (10, ()) if quick else (RUNS, FURTHER)
    recorded = image_traces()
    traces, fewer = recorded[:2] if quick else recorded, min(runs, FEWER)
    fixed = "always-remote"  # costs the price, whatever agrees
    every = [name for name in policy_names() if not policy_class(name).keeps_budget and name != fixed]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = {LOGGER: [pool.submit(cell, trace, COST, LOGGER, every, runs) for trace in traces]}
        jobs[LOGGER] += [pool.submit(cell, trace, cost, LOGGER, SOME, runs) for cost in further for trace in traces]
        for other in OTHERS:
            jobs[other] = [pool.submit(cell, trace, COST, other, FEW, fewer) for trace in traces]
        cells = {logger: [job.result() for job in found] for logger, found in jobs.items()}
    heads = "| trace | cost | offloaded | least held, % | mean, % | width: always-local | oracle | sentinel | fixed |"
    stopped = [lucky(trace, runs) for trace in traces]
    ours, theirs = (100 * float(np.mean(column)) for column in zip(*stopped, strict=True))
    others = [
        f"| {logger} | {float(np.mean([each.offloaded for each in found])):.2f} "
        f"| {100 * min(min(each.held.values()) for each in found):.1f} "
        f"| {100 * float(np.mean([share for each in found for share in each.held.values()])):.1f} "
        f"| {float(np.mean([each.width['always-local'] for each in found])):.3f} |"
        for logger, found in cells.items()
    ]
    return [
        "## Logs of offloads alone",
        "",
        f"{runs} logs of each recorded trace at each cost, as long as the trace, drawn from it with replacement;",
        f"{LOGGER} decides, {BINS} bins. From the remote's answers to what was offloaded, agreement is estimated, and",
        f"the cost per sample of {len(every)} policies at cost {COST}, and of {len(SOME)} at the others, with",
        f"intervals: all curves at least 1/{math.exp(LEEWAY):.0f} as likely as the best are possible. *Held*: the",
        "share of logs whose interval holds the policy's expected cost on the trace; *least* is that of the policy in",
        "parentheses. *Fixed*: the same, in %, of always-local with the leeway that gives 95 % where numbers of",
        f"offloads are fixed beforehand ({FIXED:.2f}, not {LEEWAY:.2f}).",
        f"Each policy runs {REPEATS} times on a curve (`hinge evaluate`: 20 times).",
        "",
        heads,
        "|---" * 9 + "|",
        *map(row, cells[LOGGER]),
        "",
        verdict(cells[LOGGER]),
        "",
        *by_policy(cells[LOGGER]),
        "### Logs of other policies",
        "",
        f"{fewer} logs of each trace at cost {COST}; evaluated are {', '.join(FEW)}, in the first row all as above.",
        "",
        "| logged by | offloaded | least held, % | mean, % | width: always-local |",
        "|---" * 5 + "|",
        *others,
        "",
        "### A log that cannot be",
        "",
        "Each bin is offloaded until it happens to agree by 1.5 standard errors more often than it should, and then",
        "never again. No policy can do that, as none knows how often it should; but to stop where it looks good is",
        f"what all do, a little. Always-local's interval holds in {ours:.0f} % of such logs, with the leeway of fixed",
        f"numbers in {theirs:.0f} %.",
        "",
    ]
