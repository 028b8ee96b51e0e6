"""Targets: how often they are met, and how many offloads that takes beside a threshold that knows the trace."""

import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.regrets.changes import BINS, CHOSEN_ON, HELD_OUT, HORIZON, SEED, Curve, Reals, curve_of, source
from hinge import Target, simulate
from hinge.simulation.engine import Threads

TARGETS, RUNS = (0.9, 0.95, 0.98), 1000
CONFIDENCE = 0.95
STILL, FALLS = "nothing changes", "agreement falls to 0.6 of it"
TENTHS = np.linspace(HORIZON // 10, HORIZON, 10).astype(int)
LONGER = 10 * HORIZON
TIMES = np.unique([*np.geomspace(100, HORIZON, 60).astype(int), *TENTHS])


def best_threshold(curve: Curve, target: float) -> float:
    """The share that the lowest threshold offloads whose expected agreement is the target."""
    lost = np.cumsum((curve.weights * (1.0 - curve.agreement))[::-1])[::-1]
    threshold = next((k for k in range(BINS) if lost[k] <= 1.0 - target), BINS)
    return float(curve.weights[:threshold].sum())


def proof(curve: Curve, target: float) -> float:
    """The least share of offloads by which coins prove the target at the horizon, for one who knows the agreements.

    log(1 / δ) / λ + T Σ w d p μ(p) / λ ≤ (1 - target) T with the best p for every bin, and the best λ.
    """
    p = np.unique([*np.geomspace(0.001, 1.0, 400), *(1.0 - np.geomspace(1e-4, 0.9, 400))])
    disagreement, least = 1.0 - curve.agreement, 1.0
    for rate in np.geomspace(0.0005, 0.2, 60):
        inside = 1.0 - (1.0 - p) * np.exp(rate)
        usable = p[inside > 0.0]
        missed = -usable * np.log(inside[inside > 0.0] / usable) / rate
        for nu in np.geomspace(0.1, 200.0, 200):
            best = np.argmin(usable + nu * disagreement[:, None] * missed, axis=1)
            used = -np.log(1.0 - CONFIDENCE) / rate / HORIZON + curve.weights @ (disagreement * missed[best])
            if used <= 1.0 - target:
                least = min(least, float(curve.weights @ usable[best]))
    return least


def played(row: str, trace: str, target: float, runs: int, times: Sequence[int]) -> tuple[Reals, Reals]:
    """Offloads and agreement up to each of the times, in every run."""
    curve = curve_of(trace)
    seed = SEED + zlib.crc32(f"{row} {trace} {target}".encode())
    policies, stream = [Target(target, BINS, CONFIDENCE)], source(row, curve, curve, 0.5)
    record = simulate(policies, stream, times[-1], runs, seed, times=times, executor=Threads(1))["target"]
    return record.offload_fraction * np.array(times), record.accuracy


def cell(row: str, trace: str, target: float, runs: int) -> str:
    """A line of the table."""
    offloads, agreement = played(row, trace, target, runs, TIMES.tolist())
    always, finally_ = np.mean((agreement >= target).all(axis=1)), np.mean(agreement[:, -1] >= target)
    share = float(offloads[:, -1].mean()) / HORIZON
    late = float((offloads[:, -1] - offloads[:, TENTHS[-2] == TIMES][:, 0]).mean()) / (HORIZON / 10)
    means = f"{agreement[:, -1].mean():.4f} | {100 * always:.1f} | {100 * finally_:.1f} | {share:.3f} | {late:.3f}"
    if row != STILL:
        return f"| {trace} | {target} | {means} |"
    curve = curve_of(trace)
    threshold, proved = best_threshold(curve, target), proof(curve, target)
    longer = float(played(row, trace, target, longer_runs(runs), [LONGER])[0].mean()) / LONGER
    ratios = [f"{part / threshold:.2f}" if threshold > 0.0 else "–" for part in (share, late, proved, longer)]
    return f"| {trace} | {target} | {means} | {threshold:.3f} | {proved:.3f} | {' | '.join(ratios)} |"


def longer_runs(runs: int) -> int:
    """So many that all of their samples are half of the others'."""
    return max(1, runs // 20)


def table(row: str, targets: Sequence[float], runs: int, heads: Sequence[str]) -> list[str]:
    traces = (*CHOSEN_ON, *HELD_OUT)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(cell, row, trace, target, runs) for trace in traces for target in targets]
        return [*lines, *(job.result() for job in jobs), ""]


def report(quick: bool) -> list[str]:
    runs = 4 if quick else RUNS
    longer = f"{longer_runs(runs)} runs"
    heads = ("trace", "target", "agreement", "met always, %", "met at the end, %", "offloads", "in the last tenth")
    beside = ("threshold", "proof", *(f"{part} / threshold" for part in ("offloads", "last tenth", "proof", "longer")))
    return [
        "## Targets",
        "",
        f"`Target` with confidence {CONFIDENCE}, {runs} runs of {HORIZON} samples drawn from each trace, {BINS} bins.",
        f"*Met always*: runs in which the agreement of all answers up to each of {len(TIMES)} times, from the 100th",
        "sample on, is at least the target. *Threshold*: what the best threshold offloads whose expected agreement is",
        "the target; it knows the agreement of every bin, and misses a target that it just meets in half of the runs.",
        "*Proof*: the least share of offloads with which coins can prove the target at the end, whatever the stream,",
        "for one who knows the agreements and the horizon; `Target` knows neither, and holds its proof at every time.",
        f"*Longer*: what `Target` offloads of {LONGER} samples, in {longer}. The first four traces chose",
        "the constants of the plan; the other three were looked at when it was designed, so that none is held out.",
        "",
        *table(STILL, TARGETS, runs, (*heads, *beside)),
        "### Agreement falls to 0.6 of it after half of the samples, unannounced",
        "",
        *table(FALLS, (0.95,), max(4, runs // 10), heads),
    ]
