"""How far targets are from the best threshold as samples go by, and how far any proof of them must be."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from benchmarks.regrets.changes import CHOSEN_ON, HELD_OUT, Curve, curve_of
from benchmarks.regrets.targets import CONFIDENCE, STILL, TARGETS, best_threshold, played

HORIZONS, RUNS = (100_000, 1_000_000, 10_000_000), (40, 10, 4)
NEAR = 1.15  # times the threshold: offloads that are few enough


class Cell(NamedTuple):
    """Offloads and proofs at each horizon, over the threshold; no offloads once they are near it."""

    label: str
    offloads: list[float]
    proofs: list[float]


def proofs(curve: Curve, target: float) -> list[float]:
    """The least share of offloads by which coins prove the target at each horizon T, for one who knows the agreements.

    log(1 / δ) / λ + T Σ w d p μ(p) / λ ≤ (1 - target) T with the best p for every bin, and the best λ. What lies
    between two prices of a miss, each with its best p, is had by the one for some samples, and the other for others.
    """
    p = np.unique([*np.geomspace(0.001, 1.0, 400), *(1.0 - np.geomspace(1e-4, 0.9, 400))])
    disagreement, least = 1.0 - curve.agreement, np.ones(len(HORIZONS))
    for rate in np.geomspace(0.0005, 0.2, 60):
        inside = 1.0 - (1.0 - p) * np.exp(rate)
        usable = p[inside > 0.0]
        missed = -usable * np.log(inside[inside > 0.0] / usable) / rate
        best = [np.argmin(usable + nu * disagreement[:, None] * missed, axis=1) for nu in np.geomspace(200.0, 0.1, 200)]
        used = [0.0, *(float(curve.weights @ (disagreement * missed[each])) for each in best)]
        shares = [1.0, *(float(curve.weights @ usable[each]) for each in best)]
        allowed = 1.0 - target + np.log(1.0 - CONFIDENCE) / rate / np.array(HORIZONS)
        least = np.minimum(least, np.interp(allowed, used, shares))
    return [float(share) for share in least]


def cell(trace: str, target: float, few: int) -> Cell:
    curve = curve_of(trace)
    threshold, offloads = best_threshold(curve, target), list[float]()
    if threshold == 0.0:
        return Cell(f"{trace} | {target}", [], [])
    for horizon, runs in zip(HORIZONS, RUNS, strict=True):
        if not offloads or offloads[-1] > NEAR:
            taken = played(STILL, trace, target, max(1, runs // few), [horizon])[0]
            offloads.append(float(taken.mean()) / horizon / threshold)
    return Cell(f"{trace} | {target}", offloads, [share / threshold for share in proofs(curve, target)])


def counted(cells: list[Cell]) -> list[str]:
    """How often offloads are near the threshold, and in how many of the other cells no proof brings them there."""
    lines = []
    for k, horizon in enumerate(HORIZONS):
        missed = [one for one in cells if len(one.offloads) > k and one.offloads[k] > NEAR]
        forced = sum(one.proofs[k] > NEAR for one in missed)
        near = f"at most {NEAR} times the threshold in {len(cells) - len(missed)} of {len(cells)} cells"
        lines.append(f"- {horizon} samples: {near}; of the other {len(missed)}, {forced} where any proof needs more")
    return lines


def report(quick: bool) -> list[str]:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        places = [(trace, target) for trace in (*CHOSEN_ON, *HELD_OUT) for target in TARGETS]
        jobs = [pool.submit(cell, *place, 20 if quick else 1) for place in places]
    cells = [one for one in (job.result() for job in jobs) if one.offloads]
    heads = ("trace", "target", *(f"{part}, {horizon}" for horizon in HORIZONS for part in ("offloads", "proof")))
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in cells:
        offloads = [*(f"{ratio:.2f}" for ratio in one.offloads), *["–"] * (len(HORIZONS) - len(one.offloads))]
        pairs = (f"{ratio} | {proof:.2f}" for ratio, proof in zip(offloads, one.proofs, strict=True))
        lines.append(f"| {one.label} | {' | '.join(pairs)} |")
    return [
        "## Targets and proofs",
        "",
        f"Offloads of `Target` with confidence {CONFIDENCE}, in {', '.join(map(str, RUNS))} runs of as many samples as",
        "the column says, over those of the best threshold, which knows the agreements; –: near enough before.",
        "*Proof*: the same for the least share with which coins can prove the target at the end, whatever the stream,",
        "for one who knows the agreements and the horizon. The page of targets has a little more, as there all samples",
        "of a bin have the same coin. Cells where the best threshold offloads nothing are left out.",
        "",
        *counted(cells),
        "",
        *lines,
        "",
    ]
