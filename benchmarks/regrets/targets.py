"""Targets: how often they are met, and how many offloads that takes beside a threshold that knows the trace."""

import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from benchmarks.regrets.changes import BINS, CHOSEN_ON, HELD_OUT, HORIZON, SEED, Curve, Reals, curve_of, source
from hinge import Target, simulate
from hinge.simulation.engine import Threads

TARGETS, RUNS = (0.9, 0.95, 0.98), 1000
CONFIDENCE = 0.95
STILL, FALLS = "nothing changes", "agreement falls to 0.6 of it"
TENTHS = np.linspace(HORIZON // 10, HORIZON, 10).astype(int)
LONGER, LONGEST = 10 * HORIZON, 100 * HORIZON
NEAR = 1.15  # times the threshold: offloads that are few enough
TIMES = np.unique([*np.geomspace(100, HORIZON, 60).astype(int), *TENTHS])


class Cell(NamedTuple):
    """A line of the table; what is offloaded, and what a proof needs, over the threshold at each horizon."""

    line: str
    offloads: list[float]
    proofs: list[float]


def best_threshold(curve: Curve, target: float) -> float:
    """The share that the lowest threshold offloads whose expected agreement is the target."""
    lost = np.cumsum((curve.weights * (1.0 - curve.agreement))[::-1])[::-1]
    threshold = next((k for k in range(BINS) if lost[k] <= 1.0 - target), BINS)
    return float(curve.weights[:threshold].sum())


def proofs(curve: Curve, target: float) -> list[float]:
    """The least share of offloads by which coins prove the target at each horizon T, for one who knows the agreements.

    log(1 / δ) / λ + T Σ w d p μ(p) / λ ≤ (1 - target) T with the best p for every bin, and the best λ. What lies
    between two prices ν of a miss, each with its best p, is had by the one for some samples, and the other for others.
    """
    p = np.unique([*np.geomspace(0.001, 1.0, 400), *(1.0 - np.geomspace(1e-4, 0.9, 400))])
    disagreement, horizons = 1.0 - curve.agreement, np.array([HORIZON, LONGER, LONGEST])
    least = np.ones(len(horizons))
    for rate in np.geomspace(0.0005, 0.2, 60):
        inside = 1.0 - (1.0 - p) * np.exp(rate)
        usable = p[inside > 0.0]
        missed = -usable * np.log(inside[inside > 0.0] / usable) / rate
        prices = np.geomspace(200.0, 0.1, 200)
        best = [np.argmin(usable + price * disagreement[:, None] * missed, axis=1) for price in prices]
        used = [0.0, *(float(curve.weights @ (disagreement * missed[each])) for each in best)]
        shares = [1.0, *(float(curve.weights @ usable[each]) for each in best)]
        allowed = 1.0 - target + np.log(1.0 - CONFIDENCE) / rate / horizons
        least = np.minimum(least, np.interp(allowed, used, shares))
    return [float(share) for share in least]


def played(row: str, trace: str, target: float, runs: int, times: Sequence[int]) -> tuple[Reals, Reals]:
    """Offloads and agreement up to each of the times, in every run."""
    curve = curve_of(trace)
    seed = SEED + zlib.crc32(f"{row} {trace} {target}".encode())
    policies, stream = [Target(target, BINS, CONFIDENCE)], source(row, curve, curve, 0.5)
    record = simulate(policies, stream, times[-1], runs, seed, times=times, executor=Threads(1))["target"]
    return record.offload_fraction * np.array(times), record.accuracy


def cell(row: str, trace: str, target: float, runs: int) -> Cell:
    """A line of the table."""
    offloads, agreement = played(row, trace, target, runs, TIMES.tolist())
    always, finally_ = np.mean((agreement >= target).all(axis=1)), np.mean(agreement[:, -1] >= target)
    share = float(offloads[:, -1].mean()) / HORIZON
    late = float((offloads[:, -1] - offloads[:, TENTHS[-2] == TIMES][:, 0]).mean()) / (HORIZON / 10)
    means = f"{agreement[:, -1].mean():.4f} | {100 * always:.1f} | {100 * finally_:.1f} | {share:.3f} | {late:.3f}"
    if row != STILL:
        return Cell(f"| {trace} | {target} | {means} |", [], [])
    curve = curve_of(trace)
    threshold, needed = best_threshold(curve, target), proofs(curve, target)
    means = f"{means} | {threshold:.3f} | {needed[0]:.3f}"
    if threshold == 0.0:
        return Cell(f"| {trace} | {target} | {means} |{' – |' * 7}", [], [])
    ratios, least = [share / threshold], [proof / threshold for proof in needed]
    for few, horizon in ((20, LONGER), (100, LONGEST)):
        if horizon == LONGER or ratios[-1] > NEAR:
            longer = played(row, trace, target, max(1, runs // few), [horizon])[0]
            ratios.append(float(longer.mean()) / horizon / threshold)
    pairs = [f"{ratio:.2f} | {proof:.2f}" for ratio, proof in zip(ratios, least, strict=False)]
    pairs[0] = f"{ratios[0]:.2f} | {late / threshold:.2f} | {least[0]:.2f}"
    pairs += ["– | –"] * (3 - len(pairs))
    return Cell(f"| {trace} | {target} | {means} | {' | '.join(pairs)} |", ratios, least)


def cells(row: str, targets: Sequence[float], runs: int) -> list[Cell]:
    traces = (*CHOSEN_ON, *HELD_OUT)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(cell, row, trace, target, runs) for trace in traces for target in targets]
        return [job.result() for job in jobs]


def table(found: Sequence[Cell], heads: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(line for line, *_ in found), ""]


def misses(found: Sequence[Cell]) -> list[str]:
    """How often offloads are near the threshold, and in how many of the other cells no proof could bring them there."""
    measured, lines = [one for one in found if one.offloads], []
    for k, horizon in enumerate((HORIZON, LONGER, LONGEST)):
        missed = [one for one in measured if len(one.offloads) > k and one.offloads[k] > NEAR]
        forced = sum(one.proofs[k] > NEAR for one in missed)
        near = f"at most {NEAR} times the threshold in {len(measured) - len(missed)} of {len(measured)} cells"
        lines.append(f"- {horizon} samples: {near}; of the other {len(missed)}, in {forced} even the proof needs more")
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    runs = 4 if quick else RUNS
    heads = ("trace", "target", "agreement", "met always, %", "met at the end, %", "offloads", "in the last tenth")
    parts = ("offloads", "last tenth", "proof", "longer", "longer: proof", "longest", "longest: proof")
    still = cells(STILL, TARGETS, runs)
    return [
        "## Targets",
        "",
        f"`Target` with confidence {CONFIDENCE}, {runs} runs of {HORIZON} samples drawn from each trace, {BINS} bins.",
        f"*Met always*: runs in which the agreement of all answers up to each of {len(TIMES)} times, from the 100th",
        "sample on, is at least the target. *Threshold*: what the best threshold offloads whose expected agreement is",
        "the target; it knows the agreement of every bin, and misses a target that it just meets in half of the runs.",
        "*Proof*: the least share of offloads with which coins can prove the target at the end, whatever the stream,",
        "for one who knows the agreements and the horizon; `Target` knows neither, and holds its proof at every time.",
        f"*Longer*: what `Target` offloads of {LONGER} samples, in {max(1, runs // 20)} runs. *Longest*: of {LONGEST},",
        f"in {max(1, runs // 100)} runs, where longer is above {NEAR} times the threshold. The first four traces",
        "chose the constants of the plan; the others were looked at when it was designed, so that none is held out.",
        "",
        *misses(still),
        *table(still, (*heads, "threshold", "proof", *(f"{part} / threshold" for part in parts))),
        "### Agreement falls to 0.6 of it after half of the samples, unannounced",
        "",
        *table(cells(FALLS, (0.95,), max(4, runs // 10)), heads),
    ]
