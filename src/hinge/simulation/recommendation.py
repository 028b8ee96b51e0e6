"""A recommendation: the policy, bins and price that suit a recorded log, tried on samples it was not chosen by.

Policy and bins are chosen on a random half of the log and measured on the other; a price that nobody knows is that of
the trade's headline, on all of it. The default policy and the bins asked for stay,
unless others are cheaper by more than one standard error, √(c (1 − c) / n) at a cost c on n samples: a smaller
difference says more about the half than about the policy (Breiman et al., Classification and Regression Trees, 1984).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, TypeVar

from hinge.bins import UniformBins
from hinge.gate import DEFAULT_BINS
from hinge.policies import Target, policy_class, policy_names
from hinge.simulation.engine import Progress, simulate
from hinge.simulation.evaluate import as_trace, halves, lineup
from hinge.simulation.sources import FixedCosts, InOrder
from hinge.simulation.trade import KEPT, Point, Trade, trade
from hinge.traces import Trace

DEFAULT = "sentinel"
FEWEST = 100  # samples of a log: on fewer, nothing can be chosen and measured
_BINS = (8, 16, 32, 64)
_ALONE = ("always-local", "always-remote")
_WHY = {
    "given": "",
    "recorded": " (the mean of those in the log)",
    "found": f" (none was given; this one keeps {100 * KEPT:.0f} % of what the remote adds, for the fewest calls)",
    "usual": f" (none was given, and at none {DEFAULT} keeps {100 * KEPT:.0f} % of what the remote adds, if anything)",
}
K = TypeVar("K")


@dataclass(frozen=True)
class Recommendation:
    """What to run, and what it did on the half of the log that it was not chosen on. `str()` says it in words."""

    policy: str
    bins: int
    alpha: float | None  # of the policies that have it, if it was given
    offload_cost: float
    target: float | None  # the agreement to hold, in place of a price
    price: str  # where the offload cost is from: "given", "recorded", "found" or, where there is none to find, "usual"
    samples: int  # that it was measured on
    measured: Point
    local: Point  # local alone, on the same samples
    remote: Point

    @property
    def settings(self) -> dict[str, Any]:
        """The options of `hinge device`, by name."""
        if self.target is not None:
            return {"target": self.target, "bins": self.bins}
        kind = policy_class(self.policy)
        own = not kind.__module__.startswith("hinge.")  # which must be imported
        policy = f"{kind.__module__}:{kind.__name__}" if own else self.policy
        alpha = {} if self.alpha is None or "alpha" not in kind.settings() else {"alpha": self.alpha}
        return {"policy": policy, "bins": self.bins, "offload_cost": self.offload_cost, **alpha}

    def __str__(self) -> str:
        chosen = f"at an offload cost of {self.offload_cost:g}{_WHY[self.price]}"
        key, said, costs = "agreement", "agree with the remote", ""
        half = "Policy and bins are chosen on a random half of the log; on the other"
        if self.target is not None:
            chosen, half = f"to hold an agreement of {self.target:g}", "On a random half of the log"
        else:
            trade = Trade(self.policy, (self.measured,), (self.local,), (self.remote,), ())
            costs = f", at a cost of {self.measured.cost_per_sample:.4f}, {trade.compared(self.offload_cost)}"
            costs += "" if trade.saving(self.offload_cost)[0] > 0 else ": at this price nothing is gained"
            if self.local.true_accuracy is not None:
                key, said = "true_accuracy", "are right"
        rules = (self.measured, self.remote, self.local)
        found, remote, local = (f"{100 * getattr(each, key):.1f} %" for each in rules)
        return (
            f"Recommended: {self.policy}, {self.bins} bins, {chosen}. {half}, {self.samples} samples, "
            f"{found} of the answers {said} for "
            f"{100 * self.measured.offload_fraction:.0f} % of the remote's calls (remote alone {remote}, local alone "
            f"{local}){costs}."
        )

    def as_dict(self) -> dict[str, Any]:
        """For programs, as `hinge evaluate --json` prints it."""
        return {**asdict(self), "settings": self.settings}


def recommend(
    trace: Any,
    policies: str | Iterable[str] | None = None,
    offload_cost: float | None = None,
    *,
    target: float | None = None,
    bins: int = DEFAULT_BINS,
    alpha: float | None = None,
    seed: int = 0,
    gain: Trade | None = None,
    progress: Progress | None = None,
) -> Recommendation | None:
    """The policy, of those named, and the bins that suit a log.

    None where the log has too few samples to tell, or none of the policies can run on a device.

    Without `policies`, they are all that a device can run. Without an `offload_cost`, it is the mean of those recorded,
    or where there are none the highest at which the default policy keeps 90 % of what the remote adds, or else 0.5:
    the headline of `gain`, the trade on this log, if that is made already. A `target` is an agreement to hold in place
    of a price. `alpha` is for the policies that have it.

    >>> print(recommend("fashion", offload_cost=0.1))
    Recommended: sentinel, 16 bins, at an offload cost of 0.1. Policy and bins are chosen on a random half of the log;
    on the other, 5000 samples, 95.2 % of the answers are right for 25 % of the remote's calls (remote alone 95.3 %, ...
    """
    recorded = as_trace(trace)
    given = [each.strip() for each in policies.split(",")] if isinstance(policies, str) else policies
    names = [each for each in given or policy_names() if _runs_on_a_device(each)]
    if len(recorded) < FEWEST or (target is None and not names):
        return None
    half, held_out = halves(recorded, seed)
    told = {} if alpha is None else {"alpha": alpha}
    cost, price = offload_cost, "given"
    if cost is None and recorded.mean_offload_cost is not None:
        cost, price = round(recorded.mean_offload_cost, 4), "recorded"
    elif cost is None:
        gain = gain or trade(recorded, DEFAULT, bins=bins, seed=seed, progress=progress)
        best = gain.headline
        cost, price = (0.5, "usual") if best is None else (best.offload_cost, "found")

    def points(names: Sequence[str], part: Trace, bins: int) -> dict[str, Point]:
        """What the policies, and local and remote alone, cost on a part of the log, in its order."""
        source = InOrder(part, UniformBins(bins), FixedCosts(cost))
        built = [each for each in dict.fromkeys((*names, *_ALONE)) if each != Target.name]
        ready = lineup(built, source, offload_cost=cost, horizon=len(part), seed=seed, **told)
        if target is not None:
            ready[Target.name] = Target(target, bins=bins, seed=seed)
        played = simulate(ready, source, len(part), 1, seed, times=[len(part)], progress=progress)
        return {each: Point.of(cost, record.summary()) for each, record in played.items()}

    name = Target.name
    if target is None:
        costs = {each: point.cost_per_sample for each, point in points(names, half, bins).items()}
        name = _choice({each: costs[each] for each in names}, DEFAULT, len(half))
        by_bins = {count: points([name], half, count)[name].cost_per_sample for count in {bins, *_BINS}}
        bins = _choice(by_bins, bins, len(half))
    found = points([name], held_out, bins)
    alone = (found[each] for each in _ALONE)
    return Recommendation(name, bins, alpha, cost, target, price, len(held_out), found[name], *alone)


def _runs_on_a_device(name: str) -> bool:
    """Whether a policy needs to be told neither what the log alone knows, nor how many samples will come."""
    kind = policy_class(name)
    told = kind.is_informed() or kind.needs or "horizon" in kind.settings()
    return not kind.keeps_budget and not told


def _choice(costs: Mapping[K, float], usual: K, samples: int) -> K:
    """The usual one, unless the cheapest is cheaper by more than one standard error.

    >>> _choice({"sentinel": 0.08, "kl": 0.075}, "sentinel", samples=1000)
    'sentinel'
    >>> _choice({"sentinel": 0.08, "kl": 0.075}, "sentinel", samples=10_000)
    'kl'
    """
    best = min(costs, key=lambda each: costs[each])
    error = sqrt(costs[best] * (1.0 - min(costs[best], 1.0)) / samples)
    return usual if usual in costs and costs[usual] <= costs[best] + error else best
