"""Policies that never learn. Grade A.

A threshold on the confidence, the two extremes, the oracle π* (Lemma 1 of the paper), and the threshold that would have
been best on labelled history.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from hinge._checks import real, reals, whole
from hinge._columns import Wholes
from hinge.policies.expiry import ExpiryPolicy, has_expired
from hinge.policies.policy import (
    FOREVER,
    KEPT,
    Functions,
    Policy,
    make,
    signature,
)


class SettledTable(NamedTuple):
    """Licences for ever, or none."""

    expiry: Wholes


def learn_nothing(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Learn nothing."""
    return KEPT


SETTLED = Functions(offloads=has_expired, learns=learn_nothing)


class FixedPolicy(ExpiryPolicy):
    """A policy whose decision for each bin is fixed from the start."""

    weighs_price = False

    def _settle(self, accepted: Sequence[bool]) -> None:
        self.table = SettledTable(array("q", [FOREVER if accept else 0 for accept in accepted]))
        self.functions = SETTLED
        self._expiry = self.table.expiry

    def _seen(self, bin: int) -> str:
        return self._rule()

    def _lacking(self, bin: int) -> str:
        return self._rule()

    def _rule(self) -> str:
        return f"the policy is {self.name}"


class Threshold(FixedPolicy):
    """Accept local answers from a confidence on.

    A gate has two bins for it, below the threshold and from it on. Where `bins` says how many uniform bins there are, a
    bin is accepted if all of it lies at or above the threshold.

    >>> from hinge import Gate
    >>> gate = Gate(Threshold(0.8))
    >>> gate.decide(confidence=0.79).offload, gate.decide(confidence=0.8).offload
    (True, False)
    """

    name = "threshold"
    assumes_monotone = True

    def __init__(self, threshold: float, bins: int | None = None) -> None:
        owner = type(self).__name__
        self.threshold = real(owner, "threshold", threshold, 0, 1)
        super().__init__(2 if bins is None else bins, None)
        self.edges = [self.threshold] if bins is None and self.threshold > 0.0 else None
        first = 1 if self.edges else math.ceil(self.threshold * self.bins - 1e-9)
        self._settle([bin >= first for bin in range(self.bins)])

    @property
    def parameters(self) -> dict[str, Any]:
        return {"threshold": self.threshold, "bins": None if self.edges else self.bins}

    def _rule(self) -> str:
        return f"the threshold is {self.threshold:g}"


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
        return "accepting pays where 1 - agreement < offload cost"


class Offline(FixedPolicy):
    """The threshold that costs least on labelled history (arXiv 2304.11763): bins below it are offloaded.

    >>> policy = Offline.fit([0, 1, 2, 3, 3], [False, False, True, True, True], bins=4, offload_cost=0.5)
    >>> policy.first
    2
    """

    name = "offline"
    assumes_monotone = True

    def __init__(self, first: int, bins: int = 16, offload_cost: float | None = None) -> None:
        super().__init__(bins, offload_cost)
        self.first = whole(type(self).__name__, "first", first, 0, self.bins)
        self._settle([bin >= self.first for bin in range(self.bins)])

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
        best = total = sum(errors)  # accept everything
        first = 0
        for bin in range(bins):
            total += samples[bin] * cost - errors[bin]
            if total <= best:
                best, first = total, bin + 1
        return cls(first, bins, cost)

    @classmethod
    def settings(cls) -> frozenset[str]:
        return super().settings() | frozenset(signature(cls.fit).parameters)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Policy:
        maker: Any = cls.fit if "history" in settings else cls
        policy: Policy = make(cls, maker, settings, hint="; it is fitted on labelled history")
        return policy

    def _rule(self) -> str:
        return f"bins from {self.first} on were cheaper locally on the history"
