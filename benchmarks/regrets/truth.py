"""What true labels are worth: costs by the truth with γ, and with the shifted γ′ fitted on labels of other samples.

A rule "by truth" offloads the bins in which that pays by the labels themselves: what γ′, one number for all bins, can
save at most.
"""

import numpy as np
from numpy.typing import NDArray

from benchmarks.workload import image_traces
from hinge import Trace, UniformBins, load_trace, simulate
from hinge.costs import SURE
from hinge.gate import DEFAULT_POLICY
from hinge.simulation import interval
from hinge.simulation.evaluate import fitted_cost, halves
from hinge.simulation.sources import ConstantPrice, Resampled

BINS, HORIZON = 16, 20_000
COSTS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
LABELS = (3, 10, 30, 100, 300)  # disagreements with a true label
PRIORS = (0.0, 2.0, 5.0, SURE, 20.0, 50.0)
SEED = 911
Reals = NDArray[np.float64]


def gains(trace: Trace) -> Reals:
    """What the remote's answer saves in each sample: 1, 0 or -1 wrong answers."""
    if trace.local_right is None or trace.remote_right is None:
        raise ValueError(f"{trace!r} has no true labels")
    saved: Reals = trace.remote_right.astype(float) - trace.local_right
    return saved


class ByBin:
    """What is known of a trace, bin by bin: samples, disagreements, and what the remote's answers save."""

    def __init__(self, trace: Trace) -> None:
        bins, saved = trace.bins_by(UniformBins(BINS)), gains(trace)
        self.gains: Reals = saved[~trace.agreed]
        self.samples = np.bincount(bins, minlength=BINS)
        self.disagreement = np.bincount(bins, ~trace.agreed, BINS) / np.maximum(self.samples, 1)
        self.saved = np.bincount(bins, saved, BINS)
        self.wrong = 1.0 - (trace.local_accuracy or 0.0)

    def cost(self, offload_cost: float, offload: NDArray[np.bool_]) -> float:
        """The true cost of a sample where these bins are offloaded."""
        return self.wrong + float(((offload_cost * self.samples - self.saved) * offload).sum() / self.samples.sum())


# -- offline ----------------------------------------------------------------------------------------------------------


def by_truth(labelled: Trace, held_out: Trace, cost: float) -> float:
    known = ByBin(labelled)
    return ByBin(held_out).cost(cost, known.saved > cost * known.samples)


def offline_row(trace: Trace, cost: float, splits: int) -> tuple[str, float]:
    """A row of the table, and what γ′ saves."""
    paid, offloads, best, shifts = [], [], [], []
    for split in range(splits):
        for labelled, held_out in (both := halves(trace, SEED + split), both[::-1]):
            shifts.append(fitted_cost(labelled, cost))
            told = {"γ": cost, "γ′": shifts[-1]}
            policies = {name: DEFAULT_POLICY(bins=BINS, offload_cost=each) for name, each in told.items()}
            source = Resampled(held_out, UniformBins(BINS), ConstantPrice(cost))
            results = simulate(policies, source, HORIZON, 1, SEED + split)
            paid.append([record.true_cost_per_sample[0, -1] for record in results.values()])
            offloads.append([record.offload_fraction[0, -1] for record in results.values()])
            best.append(by_truth(labelled, held_out, cost))
    costs = np.array(paid)
    saved, half = interval(100.0 * (1.0 - costs[:, 1] / costs[:, 0]))
    given, moved = costs.mean(axis=0)
    asked = " → ".join(f"{share:.2f}" for share in np.mean(offloads, axis=0))
    shown = f"{given:.4f} | {moved:.4f} | {saved:.1f} ± {half:.1f} % | {np.mean(best):.4f} | {asked}"
    return f"| {trace.name} | {cost:g} | {np.mean(shifts):.3f} | {shown} |", saved


# -- few labels -------------------------------------------------------------------------------------------------------


def change(known: ByBin, cost: float, labels: int, prior: float, draws: int) -> float:
    """By how many per cent γ′ from so few labels changes the true cost of a rule that knows the agreement."""
    chance, paid = np.random.default_rng(SEED), 0.0
    for _ in range(draws):
        gain = chance.choice(known.gains, labels).sum()
        advantage = (prior + gain) / (prior + labels)
        paid += known.cost(cost, known.disagreement > (1.0 if advantage <= cost else cost / advantage)) / draws
    return 100.0 * (paid / known.cost(cost, known.disagreement > cost) - 1.0)


def few_labels(draws: int) -> list[str]:
    known = [ByBin(load_trace(name)) for name in image_traces(synthetic=True)]
    lines = [f"| labels | {' | '.join(f'prior {prior:g}' for prior in PRIORS)} |", "|---" * (1 + len(PRIORS)) + "|"]
    for labels in LABELS:
        changes = [[change(each, cost, labels, prior, draws) for each in known for cost in COSTS] for prior in PRIORS]
        lines.append(f"| {labels} | {' | '.join(f'{np.mean(each):+.2f} ({max(each):+.1f})' for each in changes)} |")
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    """The tables as Markdown."""
    splits, draws = (1, 5) if quick else (10, 100)
    costs = (0.3,) if quick else COSTS
    traces = [load_trace(name) for name in image_traces(synthetic=True)[: 2 if quick else None]]
    rows = [offline_row(trace, cost, splits) for trace in traces for cost in costs]
    saved = [percent for _, percent in rows]
    default = DEFAULT_POLICY.name
    return [
        "## True labels",
        "",
        "Costs by the truth: a wrong answer costs 1, an offload γ. γ′ = γ / κ, see docs/costs.md.",
        "",
        "### Offline: γ′ from half of the labels, measured on the other half",
        "",
        f"{default}, {BINS} bins, {HORIZON} samples drawn from the half, {2 * splits} halves (± half of the 95 %",
        "interval over them). By truth: the rule that offloads, bin by bin, where the labels that γ′ is fitted on say",
        f"that it pays, and need not learn. γ′ saves {np.mean(saved):.1f} % in the mean of these rows,",
        f"{max(saved):.1f} % at most, {min(saved):.1f} % at least.",
        "",
        "| trace | γ | γ′ | cost with γ | cost with γ′ | saved | by truth | offloaded |",
        "|---" * 8 + "|",
        *(row for row, _ in rows),
        "",
        "### Few labels: how strong the prior at κ = 1 should be",
        "",
        "Change of the true cost, in per cent, of the rule that knows the agreement of each bin, with κ from so many",
        "labelled disagreements; the mean over all traces and costs, and the worst. This is how the prior was chosen:",
        f"{SURE:g} gives up little of the mean, and does less harm than weaker ones.",
        "",
        *few_labels(draws),
    ]


if __name__ == "__main__":
    print("\n".join(report(quick=False)))
