"""Costs known beforehand: what the default policy saves that is told what offloading each sample costs.

Streams are those of `changes`, with a cost drawn for each sample, whatever its bin. The policy is told it before it
decides, or knows the mean, or its gate measures that.
"""

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from benchmarks.regrets.changes import BINS, CHOSEN_ON, HELD_OUT, SEED, Changing, curve_of, source
from benchmarks.report import BEFORE, against, best_before, geometric
from hinge import Gate, Probation, simulate
from hinge.simulation import run_seeds
from hinge.simulation.engine import Threads
from hinge.simulation.sources import BimodalPrice, LognormalPrice, PriceProcess, Samples

HORIZON, RUNS = 100_000, 20
TRACES = (*CHOSEN_ON, *HELD_OUT)
COSTS: dict[str, PriceProcess] = {
    "0.2 or 0.8": BimodalPrice(0.2, 0.8),
    "0.05 or 0.4": BimodalPrice(0.05, 0.4),
    "lognormal, median 0.3": LognormalPrice(median=0.3, spread=0.8),
}
CHANGES = (
    *("another model or other data", "agreement falls to 0.6 of it", "agreement rises from 0.6 of it"),
    *("corrupted a tenth of each tenth", "top bin overconfident", "middle bins overconfident"),
)
TOLD, KNOWN, LEARNED = "told each cost", "knows the mean", "learns the mean"
BEST, BEST_BLIND = "best rule, told", "best rule, mean"
COLUMNS = (BEST, BEST_BLIND, TOLD, KNOWN, LEARNED)
Paid = dict[str, NDArray[np.float64]]


class Priced:
    """A source whose offloads cost something else each time."""

    def __init__(self, stream: Changing, costs: PriceProcess) -> None:
        self.bins, self._stream, self._costs = stream.bins, stream, costs

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        chance = np.random.default_rng([seed, 1])
        for samples in self._stream.stream(seed, horizon):
            yield samples._replace(costs=self._costs.draw(chance, len(samples.bins), None))


def best_rules(priced: Priced, mean: float, seed: int, horizon: int) -> tuple[float, float]:
    """What is paid by those who know the agreement of every sample, and its cost or only the mean cost."""
    told = blind = 0.0
    for samples in priced.stream(seed, horizon):
        wrong = samples.gaps + mean
        told += float(np.minimum(wrong, samples.costs).sum())
        blind += float(np.where(samples.gaps < 0, wrong, samples.costs).sum())
    return told, blind


def paid(row: str, trace: str, other: str, costs: str, runs: int) -> Paid:
    """What each pays for 1 000 samples, run by run."""
    drawn = COSTS[costs]
    priced = Priced(source(row, curve_of(trace), curve_of(other), drawn.mean), drawn)
    seed = SEED + zlib.crc32(f"{row} {trace} {costs}".encode())
    knows = Probation(BINS, drawn.mean)
    policies: dict[str, Probation | Gate] = {TOLD: knows, KNOWN: knows, LEARNED: Gate(bins=BINS)}
    results = simulate(policies, priced, HORIZON, runs, seed, told_costs=[TOLD], executor=Threads(1))
    found = {name: np.array([run.cost[-1] for run in results[name].runs]) for name in policies}
    found[BEST], found[BEST_BLIND] = np.array(
        [best_rules(priced, drawn.mean, each, HORIZON) for each in run_seeds(seed, runs)]
    ).T
    return {name: 1000 * values / HORIZON for name, values in found.items()}


def line(head: str, title: str, found: Paid) -> str:
    means = {name: float(found[name].mean()) for name in COLUMNS}
    shown = " | ".join(f"{means[name]:.1f} ({np.percentile(found[name], 99):.1f})" for name in COLUMNS)
    saved = (f"{1 - means[to] / means[by]:.1%}" for to, by in ((BEST, BEST_BLIND), (TOLD, KNOWN), (TOLD, LEARNED)))
    beside = against(means[TOLD], best_before("regret-forecasts", head, title), 1)
    return f"| {title} | {shown} | {' | '.join(saved)} | {beside} |"


def table(head: str, titles: Sequence[str], everything: Sequence[Paid]) -> list[str]:
    saved = ("at best", "by being told, not knowing", "by being told, not learning")
    heads = [head, *COLUMNS, *(f"saved {what}" for what in saved), BEFORE]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    pairs = list(zip(titles, everything, strict=True))
    ours = ((title, float(found[TOLD].mean())) for title, found in pairs)
    ratio = geometric(mean / best_before("regret-forecasts", head, title) for title, mean in ours)
    rows = (line(head, title, found) for title, found in pairs)
    return [*lines, *rows, "", f"Told, over the best before, geometric mean: {ratio:.3f}.", ""]


def joined(parts: Sequence[Paid]) -> Paid:
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def report(quick: bool) -> list[str]:
    runs = 2 if quick else RUNS
    traces = TRACES[:2] if quick else TRACES
    changes = CHANGES[:2] if quick else CHANGES
    still = [(costs, trace) for costs in COSTS for trace in traces]
    following = {trace: traces[(k + 1) % len(traces)] for k, trace in enumerate(traces)}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        unchanged = [
            pool.submit(paid, "nothing changes", trace, following[trace], costs, runs) for costs, trace in still
        ]
        changed = [
            [pool.submit(paid, row, trace, following[trace], next(iter(COSTS)), max(2, runs // 4)) for trace in traces]
            for row in changes
        ]
        first = [job.result() for job in unchanged]
        second = [joined([job.result() for job in jobs]) for jobs in changed]
    return [
        "## Costs known beforehand",
        "",
        f"What is paid for 1 000 of {HORIZON} samples, offloads and wrong answers together: mean (99th percentile) of",
        f"{runs} runs, {BINS} bins, the same samples for all. The best rules know the agreement of every bin at every",
        "instant; what they pay is an expectation. Where nothing changes:",
        "",
        *table("Where nothing changes", [f"{costs}, {trace}" for costs, trace in still], first),
        f"Where something does (costs {next(iter(COSTS))}, all traces together):",
        "",
        *table("Where something changes", changes, second),
    ]
