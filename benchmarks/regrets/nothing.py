"""Not an answer: where samples go of which the local model says nothing, such as frames in which it found no object.

The scores of what it found lie between 1/2 and 1, and agreement rises with them from 0.3 to 0.97. Nothing was found in
a share of the samples; in those, remote finds nothing either with some chance. Such a sample may have confidence 0, the
lowest bin, as `hinge.tasks` has it; or 1, the highest, as if to find nothing were to be sure; or bins of its own.
"""

import numpy as np

from hinge import Policy, Sentinel, build, simulate
from hinge.simulation.sources import ConstantPrice, Synthetic

HORIZON, BINS = 50_000, 16
COSTS = (0.1, 0.3)
SETTINGS = ((0.6, 0.95), (0.6, 0.75), (0.6, 0.2), (0.1, 0.95), (0.1, 0.2))  # share of nothing, agreement in it
POLICIES = ("sentinel", "isotonic", "hi-lcb-lite", "hi-lcb")


def source(share: float, agreement: float, cost: float, place: int, bins: int = BINS) -> Synthetic:
    """The stream, with nothing in the bin `place`; what was found is in the upper half of the last 16 bins."""
    curve, weights = np.zeros(bins), np.zeros(bins)
    curve[-BINS // 2 :], weights[-BINS // 2 :] = np.linspace(0.3, 0.97, BINS // 2), (1.0 - share) / (BINS // 2)
    both = weights[place] + share
    curve[place] = (curve[place] * weights[place] + agreement * share) / both
    weights[place] = both
    return Synthetic(curve, ConstantPrice(cost), weights)


def report(quick: bool) -> list[str]:
    runs = 2 if quick else 20
    columns = [f"{name}, {place}" for name in POLICIES for place in ("lowest", "highest")] + ["sentinel, own class"]
    lines = [
        "## Not an answer",
        "",
        "Cost per sample, divided by that of the best rule that tells such samples from all others. "
        f"T = {HORIZON}, {runs} runs.",
        "",
        f"| offload cost | nothing found | agrees | oracle's cost | {' | '.join(columns)} |",
        "|---" * (4 + len(columns)) + "|",
    ]
    for cost in COSTS:
        for share, agreement in SETTINGS:
            low, high = (source(share, agreement, cost, place) for place in (0, BINS - 1))
            least = float(low.weights @ np.minimum(1.0 - low.agreement, cost))
            tried: list[tuple[Policy, Synthetic]] = []
            for name in POLICIES:
                tried += [(build(name, bins=BINS, offload_cost=cost, alpha=0.52), each) for each in (low, high)]
            own = Sentinel(2 * BINS, offload_cost=cost, stakes=[1.0, 1.0])
            tried.append((own, source(share, agreement, cost, 0, 2 * BINS)))
            paid = [simulate({"it": policy}, each, HORIZON, runs, seed=3)["it"] for policy, each in tried]
            ratios = [f"{record.cost_per_sample[:, -1].mean() / least:.3f}" for record in paid]
            lines.append(f"| {cost} | {share} | {agreement} | {least:.4f} | {' | '.join(ratios)} |")
    return lines
