"""Policies that never learn. Grade A.

A fixed threshold, the two extremes, the oracle π* (Lemma 1 of the paper), and a threshold that is fitted once on
labelled history.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from hinge._checks import real, reals, whole
from hinge.policies.expiry import FOREVER, ExpiryPolicy, has_expired
from hinge.policies.policy import Policy, Wholes, made, signature


class SettledTable(NamedTuple):
    """Licences for ever, or none."""

    expiry: Wholes


def learn_nothing(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Feedback changes nothing."""


class FixedPolicy(ExpiryPolicy):
    """A policy whose decision for each bin is fixed from the start."""

    weighs_cost = False

    def _settle(self, accepted: Sequence[bool]) -> None:
        expiry = array("q", [FOREVER if accept else 0 for accept in accepted])
        self.start(SettledTable(expiry), offloads=has_expired, learns=learn_nothing)

    def _sentence(self, bin: int, left: int | None) -> str:
        verb = "offloaded" if left == 0 else "accepted"
        return f"Bin {bin} is always {verb}: {self._rule()}."

    def _rule(self) -> str:
        return f"the policy is {self.name}"


class Static(FixedPolicy):
    """A fixed threshold: bins below it are offloaded.

    Without a threshold the confidence counts as the probability of agreement, as is right for a calibrated one:
    temperature scaling with a fixed threshold (arXiv 2406.09424) is this policy on `temperature(T)(max_softmax)`.

    >>> [Static(bins=4, threshold=3).decide(bin).offload for bin in range(4)]
    [True, True, True, False]
    >>> Static(bins=16, offload_cost=0.3).threshold
    12
    """

    name = "static"
    assumes_monotone = True

    def __init__(self, bins: int = 16, threshold: int | None = None, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        if threshold is None:  # the first bin whose lowest confidence exceeds 1 - cost
            cost = real(type(self).__name__, "offload_cost", offload_cost, 0, 1)
            threshold = next((bin for bin in range(self.bins) if bin / self.bins > 1.0 - cost), self.bins)
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

    Where the mean cost differs from bin to bin, `bin_costs` has one for each.

    >>> oracle = Oracle(agreement=[0.2, 0.5, 0.9], offload_cost=0.5)
    >>> [oracle.decide(bin).offload for bin in range(3)]
    [True, True, False]
    """

    name = "oracle"
    merges_on = ("agreement",)

    def __init__(
        self, agreement: Sequence[float], offload_cost: float, bin_costs: Sequence[float] | None = None
    ) -> None:
        owner = type(self).__name__
        self.agreement = reals(owner, "agreement", agreement, 0, 1)
        super().__init__(whole(owner, "the length of agreement", len(self.agreement), 1), offload_cost)
        self.bin_costs = None if bin_costs is None else reals(owner, "bin_costs", bin_costs, 0, 1)
        costs = self.bin_costs
        if costs is None:
            costs = [real(owner, "offload_cost", offload_cost, 0, 1)] * self.bins
        if len(costs) != self.bins:
            raise TypeError(f"{owner}: bin_costs must be a list with a number for each bin, got {bin_costs!r}")
        self._settle([1.0 - value < cost for value, cost in zip(self.agreement, costs, strict=True)])

    def _rule(self) -> str:
        return "accepting is cheaper where 1 - agreement < offload cost"


class Offline(FixedPolicy):
    """The threshold that costs least on labelled history (arXiv 2304.11763): bins below it are offloaded.

    The history must be of the same stream; HI-LCB does without.

    >>> policy = Offline.fit([0, 1, 2, 3, 3], [False, False, True, True, True], bins=4, offload_cost=0.5)
    >>> policy.threshold
    2
    """

    name = "offline"
    assumes_monotone = True

    def __init__(self, threshold: int, bins: int = 16, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        self.threshold = whole(type(self).__name__, "threshold", threshold, 0, self.bins)
        self._settle([bin >= self.threshold for bin in range(self.bins)])

    @classmethod
    def fit(cls, history: Sequence[int], agreed: Sequence[float], bins: int = 16, offload_cost: float = 0.5) -> Self:
        """Scan every threshold over past samples; of equally cheap ones take the highest, as a tie offloads."""
        owner = cls.__name__
        bins, cost = whole(owner, "bins", bins, 1), real(owner, "offload_cost", offload_cost, 0, 1)
        if len(history) != len(agreed):
            raise ValueError(f"{owner}: agreed must have the {len(history)} entries of history, got {len(agreed)}")
        if len(history) == 0:
            raise ValueError(f"{owner}: history must have at least one sample, got none")
        samples, errors = [0] * bins, [0.0] * bins
        for position, (entry, answer) in enumerate(zip(history, agreed, strict=True)):
            bin = whole(owner, f"history[{position}]", entry, 0, bins - 1)
            samples[bin] += 1
            agreed_here = float(answer) if isinstance(answer, bool) else answer
            errors[bin] += 1.0 - real(owner, f"agreed[{position}]", agreed_here, 0, 1)
        best = total = sum(errors)  # threshold 0: accept everything
        threshold = 0
        for bin in range(bins):
            total += samples[bin] * cost - errors[bin]
            if total <= best:
                best, threshold = total, bin + 1
        return cls(threshold, bins, cost)

    @classmethod
    def settings(cls) -> frozenset[str]:
        return super().settings() | frozenset(signature(cls.fit).parameters)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Policy:
        maker: Any = cls.fit if "history" in settings else cls
        return made(cls, maker, settings, hint="; it is fitted on labelled history")

    def _rule(self) -> str:
        return f"threshold {self.threshold} was cheapest on the history"
