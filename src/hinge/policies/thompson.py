"""Thompson sampling, bin by bin. Grade A: derived here.

The agreement of a bin has the posterior Beta(1 + a, 1 + n - a) after n offloads of which a agreed. Thompson sampling
draws from it and accepts iff the draw exceeds q = 1 - offload cost. Only the outcome of that comparison matters, so the
draw can be left out:

    offload with probability P(Beta(1 + a, 1 + n - a) ≤ q) = I_q(1 + a, 1 + n - a)

which changes only when an offload is learned. A learned cost enters through its mean.

The posterior is one of coins. Where agreement is a number from 0 to 1, a coin of that chance is thrown and learned in
its place (S. Agrawal and N. Goyal, "Analysis of Thompson Sampling for the Multi-armed Bandit Problem", COLT 2012).
"""

import math
from typing import NamedTuple

from hinge.policies.expiry import count, count_cost
from hinge.policies.policy import COUNT, SUM, Reals
from hinge.policies.random import RandomisedPolicy, uniform


class PosteriorTable(NamedTuple):
    """Evidence, the offload probabilities it gives (known cost), and the parameters."""

    offloads: Reals
    agreements: Reals
    costs: Reals
    chances: Reals
    price: Reals  # what an offload costs where that is known
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
    cost = table.price[0]
    if len(table.costs) > 0:
        if table.costs[COUNT] == 0.0:
            return 1.0  # no cost seen yet: nothing to weigh a wrong answer against
        cost = table.costs[SUM] / table.costs[COUNT]
    agreements = table.agreements[bin]
    return beta_cdf(1.0 - cost, 1.0 + agreements, 1.0 + table.offloads[bin] - agreements)


def offloads_thompson(table: PosteriorTable, bin: int, time: int) -> bool:
    """Offload with the posterior chance that offloading is cheaper."""
    probability = chance(table, bin) if len(table.costs) > 0 else table.chances[bin]
    return uniform(table.seed, time, 0) < probability


def learn_thompson(table: PosteriorTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Update the posterior of the offloaded bin; the coin is that of the sample's time, in whatever order they come."""
    count(table, bin, 1.0 if uniform(table.seed, time, 1) < agreed else 0.0)
    if len(table.costs) > 0:
        count_cost(table, cost)
    else:
        table.chances[bin] = chance(table, bin)


def rebuild_thompson(table: PosteriorTable) -> None:
    """Find the probability of every bin again; with a learned cost none is kept."""
    if len(table.costs) == 0:
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
        table = self.blank(PosteriorTable)
        self.start(table, offloads=offloads_thompson, learns=learn_thompson, rebuilds=rebuild_thompson)
        rebuild_thompson(table)

    def offload_probability(self, bin: int) -> float:
        return chance(self.table, self._checked_bin(bin))

    def _ground(self, bin: int) -> str:
        offloads, agreements = self.table.offloads[bin], self.table.agreements[bin]
        return f"so likely is it, after {agreements:g} agreements in {offloads:g} offloads, that offloading is cheaper"
