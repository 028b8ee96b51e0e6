"""What a device's answers cost, mistakes included, and what the best rule would have cost, seen from the end.

The oracle knows how often local is wrong in every bin, and answers there locally, or always offloads, whichever costs
less. An accepted sample shows whether local was wrong, if its true label is known; an offloaded one is taken to be
wrong as often as offloads of its bin disagreed.
"""

from __future__ import annotations

from collections.abc import Sequence

from hinge.gate.answer import Answer
from hinge.policies.decision import Explanation


class Hindsight:
    """Sums over samples whose true labels are known."""

    def __init__(self, bins: int) -> None:
        self._local, self._wrong, self._remote = [0] * bins, [0] * bins, [0] * bins
        self._samples, self._offload_cost = 0, 0.0

    def take(self, answer: Answer, truth: object) -> None:
        """Count an answer. The remote's is right by definition, as in the paper."""
        self._samples += 1
        self._offload_cost += answer.cost
        if answer.source == "remote":
            self._remote[answer.bin] += 1
        else:
            self._local[answer.bin] += 1
            self._wrong[answer.bin] += bool(answer.label != truth)

    @property
    def cost(self) -> float:
        """What all answers cost."""
        return self._offload_cost + sum(self._wrong)

    @property
    def cost_per_sample(self) -> float | None:
        """What an answer cost on average; None if no truth was known."""
        return self.cost / self._samples if self._samples else None

    def regret(self, licences: Sequence[Explanation], offload_cost: float | None) -> float | None:
        """How much more the answers cost than the oracle's; None if no truth was known, or nobody counts agreement."""
        price = self._mean_cost() if offload_cost is None else offload_cost
        if not self._samples or price is None or any(self._unknown(licence) for licence in licences):
            return None
        return self.cost - sum(self._least(licence, price) for licence in licences)

    def _mean_cost(self) -> float | None:
        offloads = sum(self._remote)
        return self._offload_cost / offloads if offloads else None

    def _unknown(self, licence: Explanation) -> bool:
        return bool(self._remote[licence.bin]) and licence.agreement is None

    def _least(self, licence: Explanation, price: float) -> float:
        local, remote = self._local[licence.bin], self._remote[licence.bin]
        wrong = self._wrong[licence.bin] + remote * (1.0 - (licence.agreement or 0.0))
        return min(wrong, price * (local + remote))
