"""What the policies are asked to decide, a synthetic monotone stream, and what they know when we look at them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hinge
from hinge.policies.drift import Forgetting
from hinge.traces import describe, trace_names

ALPHA = 0.52
HORIZON = 100_000
COST = 0.5
PLENTY = 2_000  # offloads of each bin after which an upper bin is licensed for good

Samples = tuple[list[int], list[bool], list[float]]  # bins, whether local agrees, offload costs


def agreement_curve(bins: int) -> NDArray[np.float64]:
    """Agreement from 0.1 in the lowest bin to 0.95 in the highest; it crosses 1 - COST near the middle."""
    return 0.1 + 0.85 * (np.arange(bins) + 0.5) / bins


def upper_bins(bins: int) -> tuple[int, int]:
    """The bins that hold licences after plenty of evidence: the highest quarter."""
    return bins - bins // 4, bins


def lower_bins(bins: int) -> tuple[int, int]:
    """Bins that every sound policy offloads: the lowest quarter."""
    return 0, bins // 4


def image_traces(synthetic: bool = False) -> list[str]:
    """The shipped traces of image classifiers; with those that were drawn from formulas, if wanted."""
    kinds = {"images", "kind"} if synthetic else {"images"}
    return [name for name in trace_names() if kinds & describe(name).keys()]


class Stream:
    """Samples of uniformly drawn bins; the same seed draws the same samples."""

    def __init__(self, bins: int, seed: int) -> None:
        self._curve = agreement_curve(bins)
        self._generator = np.random.default_rng(seed)

    def draw(self, count: int, low: int, high: int) -> Samples:
        bins = self._generator.integers(low, high, count)
        agreed = self._generator.random(count) < self._curve[bins]
        costs = self._generator.choice([COST - 0.05, COST + 0.05], count)
        return bins.tolist(), agreed.tolist(), costs.tolist()


@dataclass(frozen=True)
class Subject:
    """A policy to be measured; an offload cost of None is learned."""

    name: str
    offload_cost: float | None = COST

    @property
    def label(self) -> str:
        return self.name if self.offload_cost is not None else f"{self.name}, learned cost"

    def build(self, bins: int) -> hinge.Policy:
        history, agreed, _ = Stream(bins, seed=1).draw(2_000, 0, bins)
        return hinge.build(
            self.name,
            bins=bins,
            alpha=ALPHA,
            offload_cost=self.offload_cost,
            horizon=HORIZON,
            seed=1,
            agreement=agreement_curve(bins).tolist(),
            history=history,
            agreed=agreed,
        )


def subjects() -> list[Subject]:
    """Every policy but those that forget, whose licences do not outlive the benchmark, and those on a budget."""
    kinds = {name: hinge.policies.policy_class(name) for name in hinge.policies.policy_names()}
    lasting = [name for name, kind in kinds.items() if not issubclass(kind, Forgetting) and not kind.keeps_budget]
    return [*map(Subject, lasting), Subject("hi-lcb", None), Subject("hi-lcb-lite", None)]


def plenty(bins: int) -> NDArray[np.int64]:
    """Offloads of each bin: so many that the licences of all upper bins outlive the benchmark."""
    return np.full(bins, PLENTY)


def at_the_edge(bins: int) -> NDArray[np.int64]:
    """Offloads of each bin as HI-LCB-lite has them in the middle of its work.

    A bin worth accepting was offloaded until n (f - q)² / α reached log t, and is checked again now and then; the
    others are offloaded always.
    """
    time = time_at_the_edge(bins)
    surplus = np.maximum(agreement_curve(bins) - (1.0 - COST), 1e-9)
    offloads: NDArray[np.int64] = np.ceil(np.minimum(time / bins, ALPHA * np.log(time) / surplus**2)).astype(np.int64)
    return offloads


def time_at_the_edge(bins: int) -> int:
    return max(HORIZON, 100 * bins)


def knowing(policy: hinge.Policy, offloads: NDArray[np.int64], time: int) -> hinge.Policy:
    """The policy restored from a state with this evidence: what any device could have sent it."""
    state = policy.state()
    if not state["evidence"]:
        return policy
    known = counted(offloads) | charged(policy.bins)
    for field, empty in state["evidence"].items():
        if len(known.get(field, ())) == len(empty):  # a known cost, say, leaves no evidence of costs
            state["evidence"][field] = known[field]
    state.update(time=time, learned=int(offloads.sum()))
    return type(policy).restore(state)


def counted(offloads: NDArray[np.int64]) -> dict[str, list[Any]]:
    """The evidence of policies that count agreements, bin by bin."""
    total = float(offloads.sum())
    return {
        "offloads": offloads.tolist(),
        "agreements": np.round(agreement_curve(len(offloads)) * offloads).tolist(),
        "costs": [total, total * COST, total * (COST**2 + 0.05**2)],
    }


def charged(bins: int) -> dict[str, Sequence[float]]:
    """The evidence of policies that weigh thresholds, after HORIZON samples: what threshold k would have paid."""
    seen = HORIZON / bins
    below = np.arange(bins + 1) * seen * COST
    errors = np.append(np.cumsum((1.0 - agreement_curve(bins))[::-1])[::-1], 0.0) * seen
    return {"losses": (below + errors).tolist()}
