"""Policies that decide at random, and their one source of randomness: a counter-based generator.

Philox-2x32 with seven rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
turns a seed and a time into a uniform number. A policy therefore has no generator state to save: its seed and its clock
say everything, and a draw can be repeated later.

`RandomisedPolicy` is the base of the policies that use it: a stated probability of offloading, and a seed.

**Thompson sampling**, bin by bin. Grade A: derived here. The agreement of a bin has the posterior
Beta(1 + a, 1 + n - a) after n offloads of which a agreed. Thompson sampling draws from it and accepts iff the draw
exceeds q = 1 - offload cost. Only the outcome of that comparison matters, so the draw can be left out:

    offload with probability P(Beta(1 + a, 1 + n - a) ≤ q) = I_q(1 + a, 1 + n - a)

which changes only when an offload is learned. A learned cost enters through its mean. The posterior is one of coins.
Where agreement is a number from 0 to 1, a coin of that chance is thrown and learned in its place (S. Agrawal and
N. Goyal, "Analysis of Thompson Sampling for the Multi-armed Bandit Problem", COLT 2012).
"""

import math
from abc import abstractmethod
from typing import NamedTuple

from hinge._checks import whole
from hinge.policies.expiry import COST_SUMS, COUNT, SUM, count, count_cost
from hinge.policies.policy import Explanation, Policy, Reals, real_column

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

    >>> class Coin(RandomisedPolicy):
    ...     '''Offloads every sample with the same chance, and learns nothing.'''
    ...     def __init__(self, bins=16, chance=0.1, seed=0):
    ...         super().__init__(bins, None, seed)
    ...         self.chance = chance
    ...         self.start((chance, self.seed), offloads=_toss, learns=lambda *_: None)
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
        offloads, agreements = self._counts(bin) or (None, 0.0)
        agreement = agreements / offloads if offloads else None
        reason = f"Bin {bin} is offloaded with probability {chance:.3g}: {self._ground(bin)}."
        return Explanation(bin, chance, offloads, agreement, None, None, reason)

    @abstractmethod
    def _ground(self, bin: int) -> str:
        """What the probability rests on, in words."""


# -- Thompson sampling ------------------------------------------------------------------------------------------------


class PosteriorTable(NamedTuple):
    """Evidence, the offload probabilities it gives (known cost), and the parameters."""

    offloads: Reals
    agreements: Reals
    costs: Reals
    chances: Reals
    offload_cost: float
    learned: bool
    seed: int


def beta_cdf(x: float, a: float, b: float) -> float:
    """I_x(a, b), the distribution function of a Beta(a, b) variable, by its continued fraction (DLMF 8.17.22).

    >>> round(beta_cdf(0.3, 1.0, 1.0), 12), round(beta_cdf(0.5, 2.0, 1.0), 12)
    (0.3, 0.25)
    """
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    # The fraction converges fast left of the mean; right of it the mirror image does.
    if x <= (a + 1.0) / (a + b + 2.0):
        return beta_fraction(x, a, b)
    return 1.0 - beta_fraction(1.0 - x, b, a)


def beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b), evaluated forwards by the modified Lentz method."""
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    front = math.exp(min(log_front, 700.0))  # with 10^15 offloads the sum may round to anything
    fraction, upper, lower = 1.0, 1.0, 0.0
    for step in range(1, 20_000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1.0 / nonzero(1.0 + term * lower)
        upper = nonzero(1.0 + term / upper)
        fraction *= upper * lower
        if abs(upper * lower - 1.0) < 1e-15:
            break
    return min(1.0, front / fraction)


def nonzero(x: float) -> float:
    """Lentz's remedy for a vanishing denominator."""
    return x if abs(x) > 1e-300 else 1e-300


def chance(table: PosteriorTable, bin: int) -> float:
    """The probability with which the posterior of a bin falls to q or below."""
    cost = table.offload_cost
    if table.learned:
        if table.costs[COUNT] == 0.0:
            return 1.0  # no cost seen yet: nothing to weigh a wrong answer against
        cost = table.costs[SUM] / table.costs[COUNT]
    agreements = table.agreements[bin]
    return beta_cdf(1.0 - cost, 1.0 + agreements, 1.0 + table.offloads[bin] - agreements)


def offloads_thompson(table: PosteriorTable, bin: int, time: int) -> bool:
    """Offload with the posterior chance that offloading is cheaper."""
    probability = chance(table, bin) if table.learned else table.chances[bin]
    return uniform(table.seed, time, 0) < probability


def learn_thompson(table: PosteriorTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Update the posterior of the offloaded bin; the coin is that of the sample's time, in whatever order they come."""
    count(table, bin, 1.0 if uniform(table.seed, time, 1) < agreed else 0.0)
    if table.learned:
        count_cost(table, cost)
    else:
        table.chances[bin] = chance(table, bin)


def rebuild_thompson(table: PosteriorTable) -> None:
    """Find the probability of every bin again; with a learned cost none is kept."""
    if not table.learned:
        for bin in range(len(table.chances)):
            table.chances[bin] = chance(table, bin)


class Thompson(RandomisedPolicy):
    """Thompson sampling with a uniform prior on the agreement of each bin.

    >>> policy = Thompson(bins=16, offload_cost=0.25, seed=7)
    >>> policy.offload_probability(3)
    0.75
    """

    name = "thompson"
    evidence = ("offloads", "agreements", "costs")

    def __init__(self, bins: int = 16, offload_cost: float | None = None, seed: int = 0) -> None:
        super().__init__(bins, offload_cost, seed)
        table = PosteriorTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            costs=real_column(0 if self.offload_cost is not None else COST_SUMS),
            chances=real_column(self.bins),
            offload_cost=math.nan if self.offload_cost is None else self.offload_cost,
            learned=self.offload_cost is None,
            seed=self.seed,
        )
        self.start(table, offloads_thompson, learn_thompson, rebuild_thompson)
        rebuild_thompson(table)

    def offload_probability(self, bin: int) -> float:
        return chance(self.table, self._checked_bin(bin))

    def _ground(self, bin: int) -> str:
        offloads, agreements = self.table.offloads[bin], self.table.agreements[bin]
        return f"so likely is it, after {agreements:g} agreements in {offloads:g} offloads, that offloading is cheaper"
