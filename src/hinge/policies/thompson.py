"""Thompson sampling, bin by bin. Grade A: derived here.

The agreement of a bin has the posterior Beta(1 + a, 1 + n - a) after n offloads of which a agreed. Thompson sampling
draws from it and accepts iff the draw exceeds q = 1 - offload cost. Only the outcome of that comparison matters, so the
draw can be left out:

    offload with probability P(Beta(1 + a, 1 + n - a) ≤ q) = I_q(1 + a, 1 + n - a)

which changes only when an offload is learned or the price moves.

The posterior is one of coins. Where agreement is a number from 0 to 1, a coin of that chance is thrown and learned in
its place (S. Agrawal and N. Goyal, "Analysis of Thompson Sampling for the Multi-armed Bandit Problem", COLT 2012).
"""

import math
from array import array
from typing import Any, NamedTuple

from hinge._columns import Reals, real_column
from hinge.policies.policy import (
    KEPT,
    Functions,
    from_cells,
)
from hinge.policies.random import RandomisedPolicy, uniform


class PosteriorTable(NamedTuple):
    """Evidence, the offload probabilities it gives, and the parameters."""

    offloads: Reals
    agreements: Reals
    chances: Reals
    price: Reals
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


def chance(table: PosteriorTable, bin: int, price: float) -> float:
    """Return the probability with which the posterior of a bin falls to q or below."""
    agreements = table.agreements[bin]
    return beta_cdf(1.0 - price, 1.0 + agreements, 1.0 + table.offloads[bin] - agreements)


def offload_thompson(table: PosteriorTable, bin: int, time: int) -> bool:
    """Offload with the posterior chance that offloading is cheaper."""
    return uniform(table.seed, time, 0) < table.chances[bin]


def offload_thompson_at(table: PosteriorTable, bin: int, time: int, price: float) -> bool:
    """Do so at a price for this sample alone."""
    return uniform(table.seed, time, 0) < chance(table, bin, price)


def learn_thompson(table: PosteriorTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Update the posterior of the offloaded bin; the coin is that of the sample's time, in whatever order they come."""
    table.offloads[bin] += 1.0
    table.agreements[bin] += 1.0 if uniform(table.seed, time, 1) < agreed else 0.0
    table.chances[bin] = chance(table, bin, table.price[0])
    return KEPT


def rebuild_thompson(table: PosteriorTable) -> None:
    """Find the probability of every bin again."""
    for bin in range(len(table.chances)):
        table.chances[bin] = chance(table, bin, table.price[0])


def reprice_thompson(table: PosteriorTable, price: float, extra: float, time: int) -> None:
    """Set the price, and find the probabilities again if it has moved."""
    if table.price[0] != min(price + extra, 1.0):
        table.price[0] = min(price + extra, 1.0)
        rebuild_thompson(table)


def regroup_thompson(table: PosteriorTable, cells: Any, time: int) -> None:
    """Take over the records of bins formed anew."""
    from_cells(cells, table.offloads, table.agreements)
    rebuild_thompson(table)


class Thompson(RandomisedPolicy):
    """Thompson sampling with a uniform prior on the agreement of each bin.

    >>> policy = Thompson(bins=16, offload_cost=0.25, seed=7)
    >>> policy.offload_probability(3)
    0.75
    """

    name = "thompson"
    evidence = ("offloads", "agreements")
    saved = ("price",)

    def __init__(self, bins: int = 16, offload_cost: float = 0.5, seed: int = 0) -> None:
        super().__init__(bins, offload_cost, seed)
        self.table = PosteriorTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            chances=real_column(self.bins),
            price=array("d", [self.offload_cost or 0.0]),
            seed=self.seed,
        )
        self.functions = Functions(
            offloads=offload_thompson,
            learns=learn_thompson,
            offloads_at=offload_thompson_at,
            reprices=reprice_thompson,
            regroups=regroup_thompson,
            rebuilds=rebuild_thompson,
        )
        rebuild_thompson(self.table)

    def offload_probability(self, bin: int) -> float:
        return chance(self.table, self._checked_bin(bin), self.table.price[0])

    def _ground(self, bin: int) -> str:
        return f"so likely is it, as {self._seen(bin)}, that offloading is cheaper"
