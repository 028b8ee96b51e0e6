"""Policies that never learn: a fixed threshold, the two extremes, and the oracle π* (Lemma 1 of the paper). Grade A."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hinge.arguments import real, whole
from hinge.policies.columns import Wholes, whole_column
from hinge.policies.expiry import FOREVER, ExpiryPolicy, has_expired


class FixedTable(NamedTuple):
    """Licences for ever, or none."""

    expiry: Wholes


def learn_nothing(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """What happens changes nothing."""


class FixedPolicy(ExpiryPolicy):
    """A policy whose decision for each bin is settled from the start."""

    weighs_cost = False

    def _settle(self, accepted: Sequence[bool]) -> None:
        table = FixedTable(whole_column(self.bins))
        for bin, accept in enumerate(accepted):
            table.expiry[bin] = FOREVER if accept else 0
        self._start(table, has_expired, learn_nothing)

    def _counts(self, bin: int) -> tuple[float, float] | None:
        return None

    def _sentence(self, bin: int, offloads: float, agreements: float, left: int | None) -> str:
        verb = "offloaded" if left == 0 else "accepted"
        return f"Bin {bin} is always {verb}: {self._rule()}."

    def _rule(self) -> str:
        return f"the policy is {self.name}"


def confidence_threshold(owner: str, bins: int, offload_cost: float | None) -> int:
    """The first bin whose confidence, taken at its word, makes accepting cheaper: its lowest value exceeds 1 - cost."""
    cost = real(owner, "offload_cost", offload_cost, 0, 1)
    return next((bin for bin in range(bins) if bin / bins > 1.0 - cost), bins)


class Static(FixedPolicy):
    """A fixed threshold: bins below it are offloaded.

    Without a threshold the confidence is taken at its word, as is right for a calibrated one: temperature scaling with
    a fixed threshold (arXiv 2406.09424) is this policy on `temperature(T)(max_softmax)`.

    >>> [Static(bins=4, threshold=3).decide(bin).offload for bin in range(4)]
    [True, True, True, False]
    >>> Static(bins=16, offload_cost=0.3).threshold
    12
    """

    name = "static"
    assumes_monotone = True

    def __init__(self, bins: int = 16, threshold: int | None = None, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        if threshold is None:
            threshold = confidence_threshold(type(self).__name__, self.bins, offload_cost)
        self.threshold = whole(type(self).__name__, "threshold", threshold, 0, self.bins)
        self._settle([bin >= self.threshold for bin in range(self.bins)])

    def _rule(self) -> str:
        return f"the threshold is bin {self.threshold}"


class AlwaysLocal(FixedPolicy):
    """Accept every local answer.

    >>> AlwaysLocal(bins=16).decide(0).offload
    False
    """

    name = "always-local"

    def __init__(self, bins: int = 16) -> None:
        super().__init__(bins, None)
        self._settle([True] * self.bins)


class AlwaysRemote(FixedPolicy):
    """Offload every sample.

    >>> AlwaysRemote(bins=16).decide(15).offload
    True
    """

    name = "always-remote"

    def __init__(self, bins: int = 16) -> None:
        super().__init__(bins, None)
        self._settle([False] * self.bins)


class Oracle(FixedPolicy):
    """π*: knows the agreement f of every bin and the mean offload cost γ, and accepts iff 1 - f < γ, strictly.

    >>> oracle = Oracle(agreement=[0.2, 0.5, 0.9], offload_cost=0.5)
    >>> [oracle.decide(bin).offload for bin in range(3)]
    [True, True, False]
    """

    name = "oracle"
    merges_on = ("agreement",)

    def __init__(self, agreement: Sequence[float], offload_cost: float) -> None:
        owner = type(self).__name__
        if isinstance(agreement, str) or not hasattr(agreement, "__len__"):
            raise TypeError(f"{owner}: agreement must be a list with a number for each bin, got {agreement!r}")
        super().__init__(whole(owner, "the length of agreement", len(agreement), 1), offload_cost)
        self.agreement = [real(owner, f"agreement[{bin}]", value, 0, 1) for bin, value in enumerate(agreement)]
        cost = real(owner, "offload_cost", offload_cost, 0, 1)
        self._settle([1.0 - value < cost for value in self.agreement])

    def _rule(self) -> str:
        return "accepting is cheaper where 1 - agreement < offload cost"
