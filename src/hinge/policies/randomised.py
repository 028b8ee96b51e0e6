"""Policies that decide by chance: a stated probability of offloading, and a seed."""

from abc import abstractmethod

from hinge.arguments import whole
from hinge.policies.base import Policy
from hinge.policies.chance import SEED_LIMIT
from hinge.policies.decision import ACCEPTED, Decision, Explanation


class RandomisedPolicy(Policy):
    """Same seed, same samples, same feedback: same decisions, on every backend."""

    def __init__(self, bins: int, offload_cost: float | None, seed: int) -> None:
        super().__init__(bins, offload_cost)
        self.seed = whole(type(self).__name__, "seed", seed, 0, SEED_LIMIT - 1)

    def decide(self, bin: int) -> Decision:
        bin = self._checked_bin(bin)
        time = self.time + 1
        offload = self._offloads(self.table, bin, time)
        self.time = time
        if offload:
            self._notes(self.table, bin, time)
        return self._await(offload, bin, time) if offload or self.needs else ACCEPTED

    @abstractmethod
    def offload_probability(self, bin: int) -> float:
        """The chance that the next sample, if it lies in this bin, is offloaded."""

    def explain(self, bin: int) -> Explanation:
        chance = self.offload_probability(bin)
        offloads, agreements = self._counts(bin) or (None, 0.0)
        agreement = agreements / offloads if offloads else None
        return Explanation(
            bin=bin,
            offload_probability=chance,
            offloads=offloads,
            agreement=agreement,
            expiry=None,
            samples_left=None,
            reason=f"Bin {bin} is offloaded with probability {chance:.3g}: {self._ground(bin)}.",
        )

    def _counts(self, bin: int) -> tuple[float, float] | None:
        """Offloads and agreements of a bin, if the policy keeps them."""
        return None

    @abstractmethod
    def _ground(self, bin: int) -> str:
        """What the probability rests on, in words."""
