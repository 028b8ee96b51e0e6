"""Sentinel's first samples, and its audits where offloads are dear: what they cost, and what other rules would cost.

Everything runs as Python, so that constants and rules can be changed in place.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from benchmarks.regrets.changes import BINS, CHOSEN_ON, COSTS, HORIZON, SEED, Curve, curve_of
from benchmarks.report import SPREAD, spread
from hinge import build
from hinge.policies import sentinel

FIRST, SOME = 1_000, 20_000
TOP = BINS - 1
DEAR = (0.7, 0.9)


class Regret(NamedTuple):
    """What was lost by offloads before a licence, by audits, and by samples that were accepted."""

    offloads: float
    audits: float
    accepted: float


def play(name: str, curve: Curve, cost: float, horizon: int, run: int, late: Sequence[int] = ()) -> Regret:
    """One run of a policy; late bins have samples in the second half only."""
    chance = np.random.default_rng(SEED + zlib.crc32(f"{curve.agreement.tolist()} {cost} {horizon} {run}".encode()))
    parts = [curve.without(late), curve] if late else [curve]
    bins = np.concatenate([chance.choice(BINS, horizon // len(parts), p=part.weights) for part in parts])
    agreed = chance.random(horizon) < curve.agreement[bins]
    gaps = (curve.agreement - (1.0 - cost)).tolist()
    policy, offloads, audits, accepted = build(name, bins=BINS, offload_cost=cost, horizon=horizon), 0.0, 0.0, 0.0
    watched = isinstance(policy, sentinel.Sentinel)
    for bin, right in zip(bins.tolist(), agreed.tolist(), strict=True):
        decision = policy.decide(bin)
        gap = gaps[bin]
        if not decision.offload:
            accepted -= min(gap, 0.0)
            continue
        if watched and policy.is_audit(decision):
            audits += max(gap, 0.0)
        else:
            offloads += max(gap, 0.0)
        policy.learn(decision, right)
    return Regret(offloads, audits, accepted)


def mean_of(runs: list[Regret]) -> Regret:
    return Regret(*np.mean(runs, axis=0).tolist())


# -- other rules ------------------------------------------------------------------------------------------------------


def since_alarm(table: sentinel.SentinelTable, _: int, time: int) -> float:
    return float(time - table.since[0])


def by_arrivals(table: sentinel.SentinelTable, bin: int, _: int) -> float:
    return float(BINS * (table.arrivals[bin] + table.granted[bin] - table.left[bin]))


def by_both(table: sentinel.SentinelTable, bin: int, time: int) -> float:
    return min(since_alarm(table, bin, time), by_arrivals(table, bin, time))


def longest(
    past: Callable[..., float] = by_both,
    growth: Callable[[float], float] = lambda offloads: 1.0 + offloads,
    proven: float = sentinel.PROVEN,
) -> Callable[..., int]:
    """`longest` by another t', or with licences of at most HURRY growth(n) samples after n offloads of the bin.

    That limit holds until these testify by more than `proven` themselves.
    """

    def longest(table: sentinel.SentinelTable, bin: int, q: float, time: int, _: bool) -> int:
        hurried = sentinel.is_suspected(table) or table.suspicion[bin] > sentinel.SUSPECTED
        if hurried or table.agreements[bin] < q * table.offloads[bin]:
            return sentinel.HURRY
        gap = max(sentinel.believed(table, bin, q) - q, 0.0)
        samples = sentinel.AUDIT * math.sqrt(past(table, bin, time) * gap) / q
        if sentinel.evidence_alone(table, bin, q)[0] <= proven:
            samples = min(samples, sentinel.HURRY * growth(table.offloads[bin]))
        return max(sentinel.HURRY, int(min(samples, 1e9)))

    return longest


RULES: dict[str, dict[str, object]] = {
    "as it is": {},
    "ENTRY 0.2": {"ENTRY": 0.2},
    "ENTRY 0.4": {"ENTRY": 0.4},
    "WARM 48": {"WARM": 48.0},
    "WARM 192": {"WARM": 192.0},
    "AUDIT 10": {"AUDIT": 10.0},
    "AUDIT 40": {"AUDIT": 40.0},
    "SUSPECTED 1": {"SUSPECTED": 1.0},
    "SUSPECTED 2": {"SUSPECTED": 2.0},
    "t' since the last alarm alone": {"longest": longest(since_alarm)},
    "t' = B m alone": {"longest": longest(by_arrivals)},
    "no limit until PROVEN": {"longest": longest(proven=-1.0)},
    "none goes on": {"further": lambda *_: 0},
    "neither": {"longest": longest(proven=-1.0), "further": lambda *_: 0},
    "at most HURRY 1.5^n, until PROVEN": {"longest": longest(growth=lambda n: 1.5 ** min(n, 30.0))},
    "at most HURRY 2^n, until PROVEN": {"longest": longest(growth=lambda n: 2.0 ** min(n, 30.0))},
    "at most HURRY (1 + n) for ever": {"longest": longest(proven=math.inf)},
    "PROVEN 0": {"PROVEN": 0.0},
    "PROVEN 0.5": {"PROVEN": 0.5},
    "PROVEN 2": {"PROVEN": 2.0},
}


@contextmanager
def rule(label: str) -> Iterator[None]:
    """Sentinel with other constants or functions."""
    before = {name: getattr(sentinel, name) for name in RULES[label]}
    vars(sentinel).update(RULES[label])
    try:
        yield
    finally:
        vars(sentinel).update(before)


def compared(label: str, runs: int) -> str:
    """A line of the second table."""
    curves = [curve_of(name) for name in CHOSEN_ON]
    cells = [(curve, cost) for curve in curves for cost in COSTS]
    with rule(label):
        first = [sum(play("sentinel", *cell, FIRST, run)) for cell in cells for run in range(runs)]
        dear = [
            [sum(play("sentinel", curve, cost, HORIZON, run)) for curve in curves for run in range(max(1, runs // 10))]
            for cost in DEAR
        ]
        top = [(curve.at([TOP], 0.3), cost) for curve, cost in cells]
        late = [sum(play("sentinel", *cell, SOME, run, [TOP])) for cell in top for run in range(max(1, runs // 10))]
        flat = [(Curve(curve.weights, np.full(BINS, 0.98 - cost)), cost) for curve, cost in cells]
        below = [sum(play("sentinel", *cell, SOME, run)) for cell in flat for run in range(max(1, runs // 10))]
    return f"| {label} | {spread(first, 2)} | {' | '.join(spread(each) for each in (*dear, below, late))} |"


def decomposed(trace: str, cost: float, runs: int) -> tuple[Regret, Regret]:
    """Isotonic's and Sentinel's first regret on a trace."""
    curve = curve_of(trace)
    isotonic, ours = (
        mean_of([play(name, curve, cost, FIRST, run) for run in range(runs)]) for name in ("isotonic", "sentinel")
    )
    return isotonic, ours


def line(label: str, isotonic: Regret, ours: Regret) -> str:
    parts = " | ".join(f"{part:.2f}" for part in (*ours, isotonic.offloads, isotonic.accepted))
    return f"| {label} | {sum(ours):.2f} | {sum(isotonic):.2f} | {parts} |"


def report(quick: bool) -> list[str]:
    runs = 4 if quick else 40
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        lines = [pool.submit(compared, label, runs) for label in RULES]
        cells = [(trace, cost) for trace in CHOSEN_ON for cost in COSTS]
        jobs = [pool.submit(decomposed, *cell, runs) for cell in cells]
    found = [job.result() for job in jobs]
    isotonic, ours = (mean_of([pair[k] for pair in found]) for k in (0, 1))
    parts = ("its offloads", "audits", "wrong accepts", "isotonic's offloads", "wrong accepts")
    columns = ("rule", f"first {FIRST}", *(f"cost {cost}" for cost in DEAR), "0.02 below break-even", "late top bin")
    heads = ("trace", "cost", "sentinel", "isotonic", *parts)
    return [
        "## The first samples",
        "",
        f"Mean regret in the first {FIRST} samples, {runs} runs for each trace that Sentinel was chosen on, and what",
        "it comes from: offloads before a licence, audits, and samples that were accepted and should not have been.",
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(line(f"{trace} | {cost}", *pair) for (trace, cost), pair in zip(cells, found, strict=True)),
        line("**all** |", isotonic, ours),
        "",
        f"In the mean Sentinel has {sum(ours) / sum(isotonic):.2f} of Isotonic's regret.",
        "",
        "### Rules that Sentinel could follow",
        "",
        f"Mean regret ({SPREAD})",
        f"on the same traces: of the first {FIRST} samples, costs {COSTS},",
        f"{runs} runs each; of {HORIZON} samples at dear costs, {max(1, runs // 10)} runs each; and of {SOME} samples,",
        f"{max(1, runs // 10)} runs each, with all bins 0.02 below break-even, and with a top bin that has samples in",
        "the second half only and agrees in 0.3 of them. Runs are the same for all rules, so that differences are less",
        "uncertain than the figures; in the last four columns only large ones count. Nothing else changes: what",
        "watches for changes is worth more than these figures say, and costs what they say.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
        *(job.result() for job in lines),
        "",
    ]
