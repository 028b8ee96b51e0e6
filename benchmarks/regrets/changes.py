"""Never badly wrong: every policy where its assumptions hold, and where the world changes or confidence is wrong.

Streams drawn from the shipped traces, with the arrivals and agreements of 16 uniform bins (`fine` has more). Rows are
what happens to them. Four traces and the rows above the line chose the constants; the others were measured once.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import BEFORE, against, best_before, geometric
from hinge import UniformBins, build, load_trace, simulate
from hinge.simulation.engine import Threads
from hinge.simulation.sources import Samples, chunk_lengths

BINS, HORIZON, RUNS = 16, 100_000, 50
SEED = 20_261  # not one with which constants were chosen
CHOSEN_ON = ("cifar10-vgg16", "fashion", "cifar100-resnet50", "imagenet-mobilenetv2")
HELD_OUT = ("cifar10-vgg16-calibrated", "cifar100-resnet18-calibrated", "imagenet-mobilenet")
COSTS = (0.1, 0.3, 0.5)
DEFAULT = "probation"
POLICIES = (DEFAULT, "hi-lcb", "hi-lcb-lite", "thompson", "discounted", "hedge-hi")
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The arrivals and the agreement of the bins."""

    weights: Reals
    agreement: Reals

    def times(self, factor: float, plus: float = 0.0) -> "Curve":
        return Curve(self.weights, np.clip(factor * self.agreement + plus, 0.0, 1.0))

    def where_unsure(self, factor: float) -> "Curve":
        return Curve(self.weights, self.agreement * (factor + (1.0 - factor) * self.agreement))

    def reversed(self) -> "Curve":
        return Curve(self.weights, self.agreement[::-1].copy())

    def peaked(self) -> "Curve":
        """With the highest agreement in the middle."""
        return Curve(self.weights, 0.95 - 0.9 * np.abs(np.linspace(-1.0, 1.0, len(self.agreement))))

    def at(self, sixteenths: Sequence[int], agreement: float) -> "Curve":
        """With this agreement in some of the bins, which are 16 or a multiple of that."""
        changed = self.agreement.copy()
        changed.reshape(16, -1)[list(sixteenths)] = agreement
        return Curve(self.weights, changed)

    def without(self, sixteenths: Sequence[int]) -> "Curve":
        """With none of the samples of some bins."""
        left = self.weights.copy()
        left.reshape(16, -1)[list(sixteenths)] = 0.0
        return Curve(left / left.sum(), self.agreement)


Parts = list[tuple[float, Curve]]  # from which share of the horizon on


class Changing:
    """A source of parts, each drawn from its own curve; `drift` multiplies agreement by a share of the horizon."""

    def __init__(self, parts: Parts, cost: float, drift: Callable[[Reals], Reals] | None = None) -> None:
        self.bins, self.parts, self.cost, self.drift = len(parts[0][1].weights), parts, cost, drift

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        chance = np.random.default_rng(seed)
        starts = np.array([start for start, _ in self.parts])
        for first, length in chunk_lengths(horizon):
            share = np.arange(first - 1, first - 1 + length) / horizon
            part = np.searchsorted(starts, share, side="right") - 1
            bins, agreement = np.empty(length, np.int64), np.empty(length)
            for k in np.unique(part):
                where, curve = np.flatnonzero(part == k), self.parts[k][1]
                bins[where] = chance.choice(self.bins, len(where), p=curve.weights)
                agreement[where] = curve.agreement[bins[where]]
            if self.drift is not None:
                agreement *= self.drift(share)
            agreed = (chance.random(length) < agreement).astype(np.float64)
            yield Samples(bins, agreed, np.full(length, self.cost), 1.0 - agreement - self.cost)


def curve_of(name: str, count: int = BINS) -> Curve:
    trace = load_trace(name)
    bins = np.asarray(trace.bins_by(UniformBins(count)))
    seen = np.bincount(bins, minlength=count)
    agreed = np.bincount(bins, weights=np.asarray(trace.agreed, float), minlength=count)
    return Curve(seen / seen.sum(), np.where(seen > 0, agreed / np.maximum(seen, 1), 0.5))


def tenths(one: Curve, other: Curve, share: float) -> Parts:
    """Ten times one, then the other, which takes this share of each tenth."""
    return [part for k in range(10) for part in ((k / 10, one), (k / 10 + (1 - share) / 10, other))]


Row = Callable[[Curve, Curve], Parts]
ROWS: dict[str, Row] = {
    "nothing changes": lambda one, _: [(0, one)],
    "another model or other data": lambda one, other: [(0, one), (0.5, other)],
    "agreement falls to 0.6 of it": lambda one, _: [(0, one), (0.5, one.times(0.6))],
    "agreement falls to 0.75 of it": lambda one, _: [(0, one), (0.3, one.times(0.75))],
    "agreement rises from 0.6 of it": lambda one, _: [(0, one.times(0.6)), (0.5, one)],
    "remote broken for a fifth": lambda one, _: [(0, one), (0.4, one.times(0.1)), (0.6, one)],
    "remote upgraded": lambda one, _: [(0, one), (0.5, one.where_unsure(0.52))],
    "corrupted for a tenth": lambda one, _: [(0, one), (0.45, one.times(0.4, 0.05)), (0.55, one)],
    "corrupted a tenth of each tenth": lambda one, _: tenths(one, one.times(0.4, 0.05), 0.1),
    "day and night": lambda one, other: tenths(one, other, 0.5),
    "top bin overconfident": lambda one, _: [(0, one.at([15], 0.3))],
    "top bin overconfident from half on": lambda one, _: [(0, one), (0.5, one.at([15], 0.3))],
    "top bin appears at half, overconfident": lambda one, _: [(0, one.without([15])), (0.5, one.at([15], 0.3))],
    "middle bins overconfident": lambda one, _: [(0, one.at([10, 11], 0.15))],
    "agreement falls with confidence": lambda one, _: [(0, one.reversed())],
    "good and bad bins alternate": lambda one, _: [(0, one.at(range(0, 16, 2), 0.3).at(range(1, 16, 2), 0.95))],
    "all 0.02 below break-even": lambda one, _: [(0, one.times(np.nan))],
}
UNSEEN: dict[str, Row] = {
    "agreement falls by a quarter, late": lambda one, _: [(0, one), (0.7, one.times(1.0, -0.25))],
    "agreement halves, and comes back": lambda one, _: [(0, one), (0.33, one.times(0.5)), (0.66, one)],
    "two top bins overconfident": lambda one, _: [(0, one.at([14, 15], 0.45))],
    "agreement is highest in the middle": lambda one, _: [(0, one.peaked())],
    "agreement turns over": lambda one, _: [(0, one), (0.5, one.reversed())],
}
DRIFTS: dict[str, Callable[[Reals], Reals]] = {
    "agreement falls slowly to 0.65 of it": lambda share: 1.0 - 0.35 * share,
    "agreement rises slowly from 0.6 of it": lambda share: 0.6 + 0.4 * share,
}


def source(row: str, one: Curve, other: Curve, cost: float) -> Changing:
    if row in DRIFTS:
        return Changing([(0, one)], cost, DRIFTS[row])
    parts = (ROWS | UNSEEN)[row](one, other)
    flat = [(start, Curve(c.weights, np.where(np.isnan(c.agreement), 0.98 - cost, c.agreement))) for start, c in parts]
    return Changing(flat, cost)


class Cell(NamedTuple):
    """A row, on some traces and at some costs."""

    title: str
    row: str
    costs: Sequence[float]
    horizon: int


def regrets(cell: Cell, traces: Sequence[str], runs: int, bins: int, names: Sequence[str]) -> dict[str, Reals]:
    """The regret of every run of every policy, over traces and costs alike."""
    _, row, costs, horizon = cell
    found: dict[str, list[float]] = {name: [] for name in names}
    curves = [curve_of(name, bins) for name in traces]
    cells = [(k, cost) for k in range(len(curves)) for cost in costs]
    each = max(1, round(runs / len(cells)))
    for k, cost in cells:
        policies = {name: build(name, bins=bins, offload_cost=cost, horizon=horizon) for name in names}
        stream = source(row, curves[k], curves[(k + 1) % len(curves)], cost)
        seed = SEED + zlib.crc32(f"{row} {traces[k]} {cost} {horizon}".encode())
        results = simulate(policies, stream, horizon, each, seed, executor=Threads(1), machine_code=True)
        for name in names:
            found[name] += results[name].regret[:, -1].tolist()
    return {name: np.array(values) for name, values in found.items()}


def cells(unseen: bool) -> Iterator[Cell]:
    for row in (*ROWS, *DRIFTS, *(UNSEEN if unseen else ())):
        yield Cell(row, row, COSTS, HORIZON)
    for cost in (0.01, 0.05, 0.2, 0.7, 0.9):
        yield Cell(f"nothing changes, cost {cost}", "nothing changes", (cost,), HORIZON)
    for horizon in (200, 1_000, 5_000, 1_000_000):
        yield Cell(f"nothing changes, {horizon} samples", "nothing changes", COSTS, horizon)


def runs_of(horizon: int, runs: int) -> int:
    """Fewer runs of more samples than usual, and more of a few, which differ most and take no time."""
    if horizon > HORIZON:
        return max(4, runs // 5)
    return runs if horizon > 1_000 else 10 * runs


def table(
    traces: Sequence[str], unseen: bool, runs: int, bins: int = BINS, names: Sequence[str] = POLICIES
) -> list[str]:
    lines = [f"| regret, mean (p99) | {' | '.join(names)} | {BEFORE} |", "|---" * (len(names) + 2) + "|"]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    half, beside = "Traces held out" if unseen else "Traces on which", list[float]()
    measured = list(cells(unseen))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(regrets, cell, traces, runs_of(cell.horizon, runs), bins, names) for cell in measured]
        everything = [job.result() for job in jobs]
    for (title, row, *_), found in zip(measured, everything, strict=True):
        means = {name: float(values.mean()) for name, values in found.items()}
        for name, mean in means.items():
            ratios[name].append((mean + 1.0) / (min(means.values()) + 1.0))  # a regret of 1 is no regret
        before = best_before("regret-changes", half, title)
        beside.append((means[DEFAULT] + 1.0) / (before + 1.0))
        shown = (f"{means[name]:.0f} ({np.percentile(found[name], 99):.0f})" for name in names)
        mark = " (row unseen)" if row in UNSEEN else ""
        lines.append(f"| {title}{mark} | {' | '.join(shown)} | {against(means[DEFAULT], before)} |")
    worst = " | ".join(f"{max(ratios[name]):.1f}" for name in names)
    usual = " | ".join(f"{np.exp(np.mean(np.log(ratios[name]))):.2f}" for name in names)
    known = [ratio for ratio in beside if ratio == ratio]
    lines.append(f"| **worst ratio to the best of a row** | {worst} | {max(known):.1f} |")
    return [*lines, f"| **geometric mean of ratios** | {usual} | {geometric(known):.2f} |", ""]


def report(quick: bool) -> list[str]:
    runs = 4 if quick else RUNS
    return [
        "## Never badly wrong",
        "",
        f"Pseudo-regret against whoever knows the agreement at every instant: mean and 99th percentile of about {runs}",
        f"runs of {HORIZON} samples, spread alike over traces and the costs {COSTS}, {BINS} bins, the same samples for",
        "all; a fifth as many of a million samples, and ten times as many of 1 000 and fewer. Ratios are of regret +",
        f"1. The costs are known. In the last column, {DEFAULT} beside the best of all policies that there were.",
        "",
        f"### Traces on which constants were chosen: {', '.join(CHOSEN_ON)}",
        "",
        *table(CHOSEN_ON, False, runs),
        f"### Traces held out: {', '.join(HELD_OUT)}",
        "",
        *table(HELD_OUT, True, runs),
    ]
