"""The paper's claims, each decided from the measured numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hinge.paper.figures import ALPHA, COST, PAPER_TRACES, Lab, run_time_by_bins
from hinge.policies import Policy, build
from hinge.simulation import Record, interval
from hinge.simulation.sources import Source

MARGIN = 0.25  # a difference of up to a quarter is marginal
MONO, LITE, HEDGE = "HI-LCB, α = 0.52", "HI-LCB-lite, α = 0.52", "Hedge-HI"


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured, and whether the one follows from the other."""

    claim: str
    paper: str
    measured: str
    holds: bool


def final(record: Record) -> tuple[float, float]:
    """Mean regret at the horizon and the half-width of its interval."""
    return interval(record.regret[:, -1])


def logarithmic(lab: Lab) -> Claim:
    """(i) The growth over the long horizon, by two fits."""
    parts, holds = [], True
    for title, trace in PAPER_TRACES.items():
        for policy in (MONO, LITE):
            record = lab.long(trace)[policy]
            log_error, root_error, power_error = growth_errors(record)
            holds &= log_error < min(root_error, power_error)
            name = f"{title} {policy.split(',')[0]}"
            parts.append(f"{name}: {log_error:.3g} against {root_error:.3g} and {power_error:.3g}")
    return Claim(
        "regret grows like log T for both policies",
        "O(log T)",
        f"residuals of a + b log T, of √T and of T^(2/3) up to T = {lab.scale.long_horizon:.0e}: " + "; ".join(parts),
        holds,
    )


def growth_errors(record: Record) -> tuple[float, float, float]:
    """Residual sums of squares of the fits a + b log T, a + b √T and a + b T^(2/3), over the last three decades."""
    late = record.times >= record.times[-1] / 1000
    times, regret = record.times[late].astype(float), record.regret.mean(axis=0)[late]
    errors = []
    for shape in (np.log(times), np.sqrt(times), times ** (2 / 3)):
        design = np.stack([np.ones_like(shape), shape], axis=1)
        fitted = design @ np.linalg.lstsq(design, regret, rcond=None)[0]
        errors.append(float(((regret - fitted) ** 2).sum()))
    return errors[0], errors[1], errors[2]


def beats_hedge(lab: Lab) -> Claim:
    """(ii) Regret at the horizon, known and learned cost."""
    parts, holds = [], True
    for title, trace in PAPER_TRACES.items():
        for learned, results in ((False, lab.known(trace)), (True, lab.learned(trace))):
            hedge = final(results[HEDGE])
            for policy in (MONO, LITE):
                ours, lead = final(results[policy]), interval(results.difference(policy, HEDGE)[:, -1])
                holds &= lead[0] + lead[1] < 0  # by more than the interval of the paired difference
                parts.append(f"{policy.split(',')[0]} {ours[0]:.0f} ± {ours[1]:.0f}")
            kind = "learned" if learned else "known"
            parts.append(f"Hedge-HI {hedge[0]:.0f} ± {hedge[1]:.0f} ({title}, {kind} cost)")
    return Claim(
        "HI-LCB and HI-LCB-lite beat Hedge-HI at T = 100 000 with α = 0.52",
        "significantly, on all three sets, known and stochastic costs",
        "; ".join(parts),
        holds,
    )


def overtakes(lab: Lab) -> Claim:
    """(iii) Where the two curves cross."""
    parts, holds = [], True
    for title, trace in PAPER_TRACES.items():
        results = lab.known(trace)
        difference = results.difference(MONO, HEDGE).mean(axis=0)
        behind = np.flatnonzero(difference > 0)
        crossing = int(results[MONO].times[behind[-1]]) if len(behind) else 0
        ahead_early = bool((difference[results[MONO].times <= 2000] > 0).any())
        holds &= ahead_early and 0 < crossing < lab.scale.horizon
        parts.append(f"{title}: Hedge-HI ahead until about t = {crossing}")
    return Claim("Hedge-HI is ahead at short horizons and is overtaken", "as in Figure 4(a)", "; ".join(parts), holds)


def monotone_helps(lab: Lab) -> Claim:
    """(iv) Paired difference between HI-LCB and lite."""
    parts, holds = [], True
    for title, trace in PAPER_TRACES.items():
        results = lab.known(trace)
        mean, half = interval(results.difference(MONO, LITE)[:, -1])
        lite = final(results[LITE])[0]
        holds &= mean <= half and abs(mean) <= MARGIN * lite
        parts.append(f"{title}: {mean:+.1f} ± {half:.1f} of {lite:.0f}")
    return Claim(
        "HI-LCB is marginally better than HI-LCB-lite, and nowhere worse",
        "marginally outperforms",
        "paired difference HI-LCB minus lite: " + "; ".join(parts),
        holds,
    )


def grows_with_alpha(lab: Lab) -> Claim:
    """(v) Regret at the horizon against α, up to noise."""
    parts, holds = [], True
    for title, trace in PAPER_TRACES.items():
        for policy in ("HI-LCB", "HI-LCB-lite"):
            regrets = [final(lab.by_alpha(trace, alpha)[policy]) for alpha in lab.scale.alphas]
            rising = all(after[0] >= before[0] - before[1] for before, after in pairwise(regrets))
            holds &= rising
            parts.append(f"{title} {policy}: {regrets[0][0]:.0f} to {regrets[-1][0]:.0f}")
    return Claim("regret grows with α", "consistently increases", "; ".join(parts), holds)


def over_costs(lab: Lab) -> Claim:
    """(vi) Paired difference to Hedge-HI at every cost."""
    parts, holds = [], True
    for title, trace in PAPER_TRACES.items():
        worst, at = -math.inf, 0.0
        for cost in lab.scale.costs:
            mean, half = interval(lab.known(trace, cost).difference(MONO, HEDGE)[:, -1])
            holds &= mean <= half
            if mean > worst:
                worst, at = mean, cost
        parts.append(f"{title}: worst difference {worst:+.0f} at cost {at:g}")
    return Claim(
        "HI-LCB at α = 0.52 matches or beats Hedge-HI over all costs",
        "consistently outperforms or matches",
        "HI-LCB minus Hedge-HI at the horizon: " + "; ".join(parts),
        holds,
    )


def flat_run_time(lab: Lab) -> Claim:
    """(vii) Time per sample, from 16 to 1024 bins."""
    curves = {curve.name: curve for curve in run_time_by_bins(lab).panels[0].curves}
    growth = {name: curve.y[-1] / curve.y[0] for name, curve in curves.items()}
    measured = ", ".join(f"{name} {ratio:.1f}×" for name, ratio in growth.items())
    return Claim(
        "HI-LCB-lite's run time is flat in |Φ|",
        "constant; the others grow",
        f"time per sample at 1024 bins over 16: {measured}",
        growth["HI-LCB-lite"] < 4.0 < growth["Hedge-HI"],
    )


def monotone_agreement(lab: Lab) -> Claim:
    """(viii) Dips of the agreement between bins with enough samples."""
    parts, holds = [], True
    for title, trace in PAPER_TRACES.items():
        source = lab.source(trace)
        seen = np.flatnonzero(source.weights * len(source.trace) >= 30)
        steps = np.diff(source.agreement[seen])
        holds &= bool((steps < 0).sum() <= 2) and bool(np.corrcoef(seen, source.agreement[seen])[0, 1] > 0.9)
        parts.append(f"{title}: {int((steps < 0).sum())} dips in {len(steps)} steps")
    measured = "between bins of at least 30 samples: " + "; ".join(parts)
    return Claim("agreement rises with confidence, with rare exceptions", "Figure 2", measured, holds)


def against_truth(lab: Lab) -> Claim:
    """(ix) Accuracy and cost by the true labels."""
    results = lab.known(PAPER_TRACES["CIFAR-100"])
    parts = []
    for policy in (MONO, LITE, HEDGE):
        accuracy = 100 * float(results[policy].true_accuracy[:, -1].mean())
        cost = float(results[policy].true_cost_per_sample[:, -1].mean())
        parts.append((policy, accuracy, cost))
    hedge = parts[-1]
    holds = all(accuracy > hedge[1] and cost < hedge[2] for _, accuracy, cost in parts[:-1])
    return Claim(
        "against the truth, HI-LCB and lite are more accurate and cheaper than Hedge-HI (CIFAR-100)",
        "80.5 %, 80.4 % and 79.1 %, at lower cost",
        "; ".join(f"{name.split(',')[0]} {accuracy:.1f} %, cost {cost:.4f}" for name, accuracy, cost in parts),
        holds,
    )


def anytime_and_deterministic(lab: Lab) -> Claim:
    """(x) Decisions of one policy on the same samples, with other seeds and with twice the horizon."""
    parts, holds = [], True
    for name in ("hi-lcb", "hi-lcb-lite"):
        same, anytime = repeats(name, lab.source(PAPER_TRACES["CIFAR-10"]), PREFIX, lab.scale.seed)
        holds &= same and anytime
        parts.append(
            f"{name}: with another seed the {PREFIX} decisions are {_same(same)}, "
            f"in a run twice as long the first {PREFIX} are {_same(anytime)}"
        )
    return Claim("both are anytime and deterministic", "no horizon, no random numbers", "; ".join(parts), holds)


PREFIX = 20_000  # decisions compared


def _same(same: bool) -> str:
    return "the same" if same else "different"


def repeats(name: str, source: Source, length: int, seed: int) -> tuple[bool, bool]:
    """Whether a policy repeats its decisions with another seed of its own, and in a run that is twice as long.

    A policy that takes a seed or a horizon is given them.
    """
    runs = []
    for own_seed, horizon in ((1, length), (2, length), (1, 2 * length)):
        policy = build(name, bins=source.bins, alpha=ALPHA, offload_cost=COST, horizon=horizon, seed=own_seed)
        runs.append(_decisions(policy, source, horizon, seed))
    reference, reseeded, extended = runs
    return reference == reseeded, reference == extended[:length]


def _decisions(policy: Policy, source: Source, length: int, seed: int) -> list[bool]:
    """What the policy itself decides, with its own seed: the simulator would give every run another."""
    decided = []
    for samples in source.stream(seed, length):
        for bin, agreed, cost in zip(
            samples.bins.tolist(), samples.agreed.tolist(), samples.costs.tolist(), strict=True
        ):
            decision = policy.decide(bin)
            if decision.offload:
                policy.learn(decision, agreed, cost)
            decided.append(decision.offload)
    return decided


CLAIMS: tuple[Callable[[Lab], Claim], ...] = (
    logarithmic,
    beats_hedge,
    overtakes,
    monotone_helps,
    grows_with_alpha,
    over_costs,
    flat_run_time,
    monotone_agreement,
    against_truth,
    anytime_and_deterministic,
)
