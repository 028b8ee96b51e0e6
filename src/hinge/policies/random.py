"""Policies that decide at random, and their one source of randomness: a counter-based generator.

Philox-2x32 with seven rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
turns a seed and a time into a uniform number. A policy therefore has no generator state to save: its seed and its clock
say everything, and a draw can be repeated later.

`RandomisedPolicy` is the base of the policies that use it: a stated probability of offloading, and a seed.
"""

from abc import abstractmethod

from hinge._checks import whole
from hinge.policies.policy import Explanation, Policy

_MULTIPLIER = 0xD256D193
_KEY_STEP = 0x9E3779B9
_WORD = 0xFFFFFFFF
SEED_LIMIT = 2**32


def philox(low: int, high: int, key: int, rounds: int) -> tuple[int, int]:
    """Two 32-bit words from a 64-bit counter and a 32-bit key.

    >>> [f"{word:08x}" for word in philox(0, 0, 0, rounds=7)]
    ['257a3673', 'cd26be2a']
    """
    # Products overflow a signed 64-bit integer in compiled code; masking gives Python and compiled code the same bits.
    for _ in range(rounds):
        product = _MULTIPLIER * low
        low = ((product >> 32) ^ key ^ high) & _WORD
        high = product & _WORD
        key = (key + _KEY_STEP) & _WORD
    return low, high


def uniform(seed: int, time: int, draw: int) -> float:
    """A number in [0, 1), fixed by the seed, the time and which draw of that time it is (0 to 255).

    >>> uniform(7, 1, 0) == uniform(7, 1, 0) != uniform(7, 1, 1)
    True
    """
    low, high = philox(time & _WORD, ((time >> 32) << 8 | draw) & _WORD, seed, 7)
    return ((low >> 5) * 67108864 + (high >> 6)) / 9007199254740992.0


class RandomisedPolicy(Policy):
    """The base of randomised policies. Same seed, same samples, same feedback: same decisions, on every backend.

    >>> from hinge.policies.policy import Functions
    >>> class Coin(RandomisedPolicy):
    ...     '''Offloads every sample with the same chance, and learns nothing.'''
    ...     def __init__(self, bins=16, chance=0.1, seed=0):
    ...         super().__init__(bins, None, seed)
    ...         self.chance = chance
    ...         self.table, self.functions = (chance, self.seed), Functions(_toss, learns=lambda *_: 0)
    ...     def offload_probability(self, bin):
    ...         return self.chance
    ...     def _ground(self, bin):
    ...         return "of all samples"
    >>> def _toss(table, bin, time):
    ...     chance, seed = table
    ...     return uniform(seed, time, 0) < chance
    >>> coin = Coin(chance=0.1, seed=7)
    >>> sum(coin.decide(3).offload for _ in range(10_000)), coin.explain(3).offload_probability
    (1026, 0.1)
    """

    def __init__(self, bins: int, offload_cost: float | None, seed: int) -> None:
        super().__init__(bins, offload_cost)
        self.seed = whole(type(self).__name__, "seed", seed, 0, SEED_LIMIT - 1)

    @abstractmethod
    def offload_probability(self, bin: int) -> float:
        """The chance that the next sample, if it lies in this bin, is offloaded."""

    def explain(self, bin: int) -> Explanation:
        chance = self.offload_probability(bin)
        why = f"Bin {bin} is offloaded with probability {chance:.3g}: {self._ground(bin)}."
        return self._explained(bin, chance, why)

    @abstractmethod
    def _ground(self, bin: int) -> str:
        """What the probability rests on, in words."""
