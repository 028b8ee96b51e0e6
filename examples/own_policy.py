"""A policy of your own: accept a bin for a while after it has agreed a few times in a row.

python examples/own_policy.py
"""

from typing import NamedTuple

from hinge.policies import ExpiryPolicy, Functions, Reals, Wholes, real_column, whole_column
from hinge.policies.expiry import has_expired
from hinge.policies.policy import KEPT


class StreakTable(NamedTuple):
    """Evidence (sums of what was learned, so that devices can add theirs up), the rest of what it knows, parameters."""

    offloads: Reals
    agreements: Reals
    streak: Wholes
    expiry: Wholes
    wins: int


def learn_streak(table: StreakTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Lengthen or break the streak of a bin; a long one is a licence for 100 samples a win."""
    table.offloads[bin] += 1.0
    table.agreements[bin] += agreed
    table.streak[bin] = table.streak[bin] + 1 if agreed == 1.0 else 0
    table.expiry[bin] = now + 100 * table.streak[bin] if table.streak[bin] >= table.wins else 0
    return KEPT


class Streak(ExpiryPolicy):
    """Accepts a bin for a while after it agreed `wins` times in a row.

    >>> Streak(bins=4, wins=3).decide(2).offload
    True
    """

    name = "streak"
    evidence = ("offloads", "agreements")  # what `merge` adds up
    saved = ("streak", "expiry")  # what is saved as it is, because it depends on the order of the feedback
    weighs_price = False

    def __init__(self, bins: int = 16, wins: int = 3) -> None:
        super().__init__(bins, offload_cost=None)
        if not isinstance(wins, int) or wins < 1:
            raise ValueError(f"Streak: wins must be an integer >= 1, got {wins!r}")
        self.wins = wins
        self.table = StreakTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            streak=whole_column(self.bins),
            expiry=whole_column(self.bins),
            wins=wins,
        )
        self.functions = Functions(offloads=has_expired, learns=learn_streak)


if __name__ == "__main__":
    from hinge import HILCB, UniformBins, load_trace, simulate
    from hinge.simulation.sources import ConstantPrice, Resampled
    from hinge.testing import check_policy

    check_policy(Streak(bins=8))
    source = Resampled(load_trace("fashion"), UniformBins(16), ConstantPrice(0.5))
    results = simulate([Streak(), HILCB(offload_cost=0.5)], source, horizon=20_000, runs=10)
    for name, record in results.items():
        print(f"{name}: regret {record.regret[:, -1].mean():.0f}")
