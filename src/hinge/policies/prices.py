"""A price that meets a budget.

It adds λ ≥ 0 to what an offload costs, and every `review` samples moves it by the dual step

    λ ← max(0, λ + rate_t (spent - target × review)),      rate_t = max(rate, 0.2 / √t)

so that the policy inside learns to offload where that is worth most; the first steps are long, to find the price soon.
At λ ≥ 1 nothing is worth an offload: a wrong answer costs 1. So λ never exceeds 1 + rate_t × review, taken at the first
review, and as every excess has been added to λ, at no more than its rate, what was spent by time T is never more than

    target × T + (1 + rate_t × review) / rate + review

against any input. A cost that is not known is booked as 1 when an offload is decided, and what it was less is refunded
when its feedback comes, so that feedback which is late or missing cannot break the bound. Devices that share one ledger
share one budget; the bound is then for those that start together, since rate_t must only fall.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hinge.arguments import positive, real, whole
from hinge.policies.base import Policy
from hinge.policies.columns import Reals, Wholes, real_column, whole_column
from hinge.policies.enclosing import Budgeted, around, inner_learns, inner_notes, inner_offloads, inner_rebuilds

QUICK = 0.2  # how long the first steps are


class PriceTable(NamedTuple):
    """The table of the policy inside, and the ledger."""

    inner: Any
    ledger: Reals  # λ, and what was booked and refunded since the last review; devices may share it
    reviewed: Wholes  # when the price was last reviewed
    known_cost: float  # what an offload costs inside, or 0 where that is learned
    books: float  # what an offload is booked for when it is decided
    refunds: bool  # whether it turns out to cost less
    target: float
    rate: float
    review: int


def offloads_priced(table: PriceTable, bin: int, time: int) -> bool:
    """Offload as the policy inside does at the present price."""
    if time >= table.reviewed[0] + table.review:
        settle(table, time)
    return bool(table.ledger[0] < 1.0 and inner_offloads(table.inner, bin, time))


def settle(table: PriceTable, time: int) -> None:
    """Review the price, and let the policy inside see it."""
    reviews = (time - table.reviewed[0]) // table.review
    allowed = table.target * table.review * reviews
    rate = max(table.rate, QUICK / math.sqrt(time))
    spent = table.ledger[1] - table.ledger[2]
    table.ledger[0] = max(0.0, table.ledger[0] + rate * (spent - allowed))
    table.ledger[1] = table.ledger[2] = 0.0
    table.reviewed[0] += reviews * table.review
    if table.ledger[0] + table.known_cost != table.inner.price[0]:
        put_price(table)


def put_price(table: PriceTable) -> None:
    """Raise the cost of an offload by λ, for the policy inside."""
    table.inner.price[0] = table.known_cost + table.ledger[0]
    inner_rebuilds(table.inner)


def note_priced(table: PriceTable, bin: int, time: int) -> None:
    """Book what the offload costs, or the most that it can."""
    inner_notes(table.inner, bin, time)
    table.ledger[1] += table.books


def learn_priced(table: PriceTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Refund what the offload was booked for too much; the policy inside learns."""
    if table.refunds:
        table.ledger[2] += table.books - cost
    inner_learns(table.inner, bin, agreed, cost, time, now)


class OnBudget(Budgeted):
    """A price that meets a budget in the long run; see `on_budget`.

    >>> from hinge import Isotonic
    >>> policy = on_budget(Isotonic(bins=16, offload_cost=0.1), offloads=0.2)
    >>> sum(policy.decide(3).offload for _ in range(10_000))
    2009
    """

    name = "on-budget"
    _own = ("ledger", "reviewed")

    def __init__(
        self,
        policy: Policy | Mapping[str, Any],
        offloads: float | None = None,
        cost: float | None = None,
        rate: float = 0.002,
        review: int = 10,
    ) -> None:
        inner, owner = self._enclose(policy), type(self).__name__
        if not hasattr(inner.table, "price"):
            wanted = f"{owner}: policy must weigh a price that can be moved, as hi-lcb and isotonic do"
            raise TypeError(f"{wanted}, got {inner!r}")
        if (offloads is None) == (cost is None):
            raise TypeError(f"{owner}: offloads or cost must be given, and not both, got {offloads!r} and {cost!r}")
        self.offloads = None if offloads is None else real(owner, "offloads", offloads, 0, 1)
        self.cost = None if cost is None else real(owner, "cost", cost, 0, 1)
        self.rate, self.review = positive(owner, "rate", rate), whole(owner, "review", review, 1, 2**31)
        known = inner.offload_cost
        self.table = PriceTable(
            inner=inner.table,
            ledger=real_column(3),
            reviewed=whole_column(1, self.time),
            known_cost=known or 0.0,
            books=known if self.cost is not None and known is not None else 1.0,
            refunds=self.cost is not None and known is None,
            target=self.offloads or self.cost or 0.0,
            rate=self.rate,
            review=self.review,
        )
        self._surround(offloads_priced, note_priced, learn_priced)

    @property
    def price(self) -> float:
        """λ: what an offload costs at present beyond its cost, as a share of a wrong answer."""
        return float(self.table.ledger[0])

    def share(self, other: Budgeted) -> None:
        """Spend from the ledger of another device: what both may spend is then one budget.

        The ledger is shared in memory: a device that is restored from its state has one of its own again.

        >>> from hinge import Isotonic
        >>> one, other = (on_budget(Isotonic(bins=16, offload_cost=0.1), offloads=0.2) for _ in range(2))
        >>> other.share(one)
        """
        owner = type(self).__name__
        if not isinstance(other, OnBudget):
            raise TypeError(f"{owner}: other must be on a budget, got {other!r}")
        if (self.offloads, self.cost) != (other.offloads, other.cost):
            goals = f"offloads={self.offloads}, cost={self.cost}"
            raise ValueError(f"{owner}: other must have {goals} too, got offloads={other.offloads}, cost={other.cost}")
        if self.enclosed:
            raise ValueError(f"{owner}: the policy around this one has to share, as this one is inside it")
        self._share(other)

    def _share(self, other: Budgeted) -> None:
        self.table = self.table._replace(ledger=other.table.ledger)

    def _refresh(self) -> None:
        super()._refresh()
        around(put_price, *self._functions())(self.table)

    def _refuses(self) -> bool:
        return self.price >= 1.0

    def _refusal_to_spend(self, bin: int) -> str:
        return f"Bin {bin} is accepted: the budget is overspent, and nothing is worth an offload until {self._terms()}."

    def _terms(self) -> str:
        goal = f"{self.offloads:g} offloads" if self.cost is None else f"an offload cost of {self.cost:g}"
        return f"the price for {goal} a sample is {self.price:.3g}"


def on_budget(policy: Policy, offloads: float | None = None, *, cost: float | None = None) -> OnBudget:
    """The policy, at the price at which it offloads this share of samples, or spends so much on each, in the long run.

    >>> from hinge import HILCB
    >>> on_budget(HILCB(bins=16, offload_cost=0.5), offloads=0.2).price
    0.0
    """
    return OnBudget(policy, offloads, cost)
