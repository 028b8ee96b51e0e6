"""Budgets: a policy around another that limits what it spends on offloads. `at_most` is hard, `on_budget` a price.

A budget is built from the functions of the policy inside by a closure (`limited`, `priced`), which Python and numba run
alike; its table holds the table of the policy inside.

**A hard limit.** `AtMost` remembers when each of the last L offloads leaves the window; while the oldest of them is
still in it, samples are accepted, whatever the policy inside would do. Hence no window of `window` samples, wherever it
begins, holds more than L = ⌊offloads × window⌋ of them, against any input.

**A price that meets a budget.** `OnBudget` adds λ ≥ 0 to what an offload costs, and every `review` samples moves it by
the dual step

    λ ← max(0, λ + rate_t (spent - target × review)),      rate_t = max(rate, 0.2 / √t)

so that the policy inside learns to offload where that is worth most; the first steps are long, to find the price soon.
At λ ≥ 1 nothing is worth an offload: a wrong answer costs 1. So λ never exceeds 1 + rate_t × review, taken at the first
review, and as every excess has been added to λ, at no more than its rate, what was spent by time T is never more than

    target × T + (1 + rate_t × review) / rate + review

against any input. A cost that is not known is booked as 1 when an offload is decided, and what it was less is refunded
when its feedback arrives, so that feedback which is late or missing cannot break the bound.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, NamedTuple, Self

from hinge._checks import positive, real, shown, whole
from hinge.errors import InvalidState, InvalidValue
from hinge.policies.policy import (
    MOST_SIZE,
    Decision,
    Explanation,
    Functions,
    Policy,
    Reals,
    Wholes,
    expect_nothing,
    policy_class,
    real_column,
    whole_column,
)


class Budgeted(Policy):
    """A policy around another, whose clock, evidence and open decisions it takes over: ask this one from now on."""

    _own: tuple[str, ...]  # columns of the table that are not the inner policy's

    def _enclose(self, policy: Policy | Mapping[str, Any]) -> Policy:
        owner = type(self).__name__
        inner = _built(owner, policy)
        if not inner.limitable:
            raise TypeError(f"{owner}: policy must learn from offloads alone, and not by their chance, got {inner!r}")
        if inner._enclosed:
            raise ValueError(f"{owner}: policy must not be inside another already, got {inner!r}")
        inner._enclosed = True
        super().__init__(inner.bins, inner.offload_cost)
        self.policy, self._inner = {"policy": inner.name, "parameters": inner.parameters}, inner
        self.id, self.time, self.learned = inner.id, inner.time, inner.learned
        self._pending, self._merged = inner._pending, inner._merged
        self._owed, self._charged = inner._owed, inner._charged
        self.weighs_cost, self.assumes_monotone = inner.weighs_cost, inner.assumes_monotone
        self.charges_failures = inner.charges_failures
        self.evidence, self.order_matters = inner.evidence, inner.order_matters
        self.carried = (*self._own, *(f"inner.{field}" for field in inner.carried))
        self.spent = (*self._own, *(f"inner.{field}" for field in inner.spent))
        return inner

    def explain(self, bin: int) -> Explanation:
        with self._as_decided_next():
            why = self._now().explain(bin)
            if why.offload_probability > 0.0 and self._refuses():
                return Explanation(bin, 0.0, why.offloads, why.agreement, None, None, self._refusal_to_spend(bin))
            return replace(why, reason=f"{why.reason[:-1]}; {self._terms()}.")

    def spend(self, offloads: int) -> None:
        self._inner.spend(offloads)

    @contextmanager
    def _as_decided_next(self) -> Iterator[None]:
        """The table as it will be when the next sample is decided, for the length of a `with` block."""
        yield

    def is_audit(self, decision: Decision) -> bool:
        return self._inner.is_audit(decision)

    @property
    def alarms(self) -> dict[str, int]:
        return self._inner.alarms

    @property
    def exhausted(self) -> bool:
        return self._refuses() or self._now().exhausted

    @property
    def warning(self) -> str | None:
        return self._now().warning or super().warning

    @property
    def inside(self) -> Policy:
        """The policy that this one is around."""
        return self._now()

    @property
    def unlimited(self) -> Policy:
        return self._now().unlimited

    def _now(self) -> Policy:
        """The policy inside, its clock set."""
        self._inner.time = self.time
        return self._inner

    def fresh(self, seed: int | None = None) -> Self:
        own = {name: value for name, value in self.parameters.items() if name != "policy"}
        return type(self)(**{**own, "policy": self._inner.fresh(seed)})

    def __reduce__(self) -> Any:
        return type(self).restore, (self.state(),)  # closures cannot be sent to another process

    def _check_like(self, theirs: Mapping[str, Any]) -> None:
        described = theirs.get("policy")
        if not isinstance(described, Mapping) or described.get("policy") != self._inner.name:
            wanted = f"{type(self).__name__}: other_state must be around {self._inner.name!r}"
            raise InvalidState(f"{wanted}, got {shown(described)}")
        parameters = described.get("parameters")
        self._inner._check_like(parameters if isinstance(parameters, Mapping) else {})

    def _column(self, field: str) -> Any:
        if field in self._own:
            return getattr(self.table, field)
        return self._inner._column(field.removeprefix("inner."))

    def _rebuild(self) -> None:
        self._inner._rebuild()

    def _refresh(self) -> None:
        self._now()._refresh()

    @abstractmethod
    def _refuses(self) -> bool:
        """Whether there is nothing to spend at present."""

    @abstractmethod
    def _refusal_to_spend(self, bin: int) -> str:
        """Why a sample is accepted that the policy inside would offload."""

    @abstractmethod
    def _terms(self) -> str:
        """What the budget says at present."""


def _built(owner: str, policy: Policy | Mapping[str, Any]) -> Policy:
    """The policy to go inside: one that exists, or the description of one in saved parameters."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, Mapping) or not isinstance(policy.get("parameters"), Mapping):
        raise TypeError(f"{owner}: policy must be a policy, got {shown(policy)}")
    built: Policy = policy_class(str(policy.get("policy")))(**policy["parameters"])
    return built


# -- a hard limit -----------------------------------------------------------------------------------------------------


class LimitTable(NamedTuple):
    """The table of the policy inside, and when there will be room for the next offload."""

    inner: Any
    leaves: Wholes  # when each of the last L offloads leaves the window
    oldest: Wholes  # which of them leaves first
    window: int


def enter_window(table: LimitTable, time: int) -> None:
    """Replace the oldest offload by one of now."""
    table.leaves[table.oldest[0]] = time + table.window
    table.oldest[0] = (table.oldest[0] + 1) % len(table.leaves)


@cache  # the same functions for the same policy inside, so that they are compiled once
def limited(inner: Functions) -> Functions:
    """The functions of a policy within a limit."""
    inner_offloads, inner_notes, inner_learns, inner_accepts, inner_expects = inner

    def expect_within(table: LimitTable, cost: float) -> None:
        inner_expects(table.inner, cost)

    def accept_within(table: LimitTable, bin: int, time: int) -> None:
        inner_accepts(table.inner, bin, time)

    def offloads_within(table: LimitTable, bin: int, time: int) -> bool:
        """Offload as the policy inside does, where the window has room."""
        return bool(time >= table.leaves[table.oldest[0]] and inner_offloads(table.inner, bin, time))

    def note_within(table: LimitTable, bin: int, time: int) -> None:
        inner_notes(table.inner, bin, time)
        enter_window(table, time)

    def learn_within(table: LimitTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
        inner_learns(table.inner, bin, agreed, cost, time, now)

    expects = inner_expects if inner_expects is expect_nothing else expect_within
    return Functions(offloads_within, note_within, learn_within, accept_within, expects)


class AtMost(Budgeted):
    """A limit that holds in every window; see `at_most`.

    >>> from hinge.policies import AlwaysRemote
    >>> policy = at_most(AlwaysRemote(bins=16), offloads=0.25, window=8)
    >>> [policy.decide(3).offload for _ in range(10)]
    [True, True, False, False, False, False, False, False, True, True]
    """

    name = "at-most"
    _own = ("leaves", "oldest")

    def __init__(self, policy: Policy | Mapping[str, Any], offloads: float = 0.2, window: int = 1000) -> None:
        inner, owner = self._enclose(policy), type(self).__name__
        self.offloads = real(owner, "offloads", offloads, 0, 1)
        self.window = whole(owner, "window", window, 1, 2**31)
        limit = math.floor(self.offloads * self.window + 1e-9)  # 0.29 × 100 is 28.999999999999996
        if limit < 1:
            raise InvalidValue(owner, "offloads", f"must allow one in {window} samples at least, got {offloads!r}")
        if limit > MOST_SIZE:
            raise InvalidValue(owner, "window", f"may hold {MOST_SIZE} offloads at most, got {limit}")
        table = LimitTable(inner.table, whole_column(limit), whole_column(1), self.window)
        self.start(table, **limited(inner.functions)._asdict())

    def spend(self, offloads: int) -> None:
        super().spend(offloads)
        for _ in range(min(offloads, len(self.table.leaves))):
            enter_window(self.table, self.time)

    def _refresh(self) -> None:
        super()._refresh()
        leaves, oldest = self.table.leaves, self.table.oldest[0]
        if oldest >= len(leaves):
            raise InvalidState(f"{type(self).__name__}: state has {oldest} as 'oldest'")
        if max(leaves) > self.time + self.window:
            raise InvalidState(f"{type(self).__name__}: state has an offload from the future in 'leaves'")

    def _refuses(self) -> bool:
        return bool(self.time + 1 < self.table.leaves[self.table.oldest[0]])

    def _refusal_to_spend(self, bin: int) -> str:
        room = self.table.leaves[self.table.oldest[0]] - self.time
        return f"Bin {bin} is accepted: {self._terms()}, and the next may go in {room} sample{'s' * (room != 1)}."

    def _terms(self) -> str:
        return f"at most {len(self.table.leaves)} of {self.window} samples are offloaded"


def at_most(policy: Policy, offloads: float = 0.2, window: int = 1000) -> AtMost:
    """The policy, with at most this share of offloads in every window of so many samples, against any input.

    Where the window is full, samples are accepted, whichever come. A price (`on_budget`) that aims a little lower keeps
    room for those that are worth most: `at_most(on_budget(policy, offloads=0.18), offloads=0.2)`.

    >>> from hinge import Isotonic
    >>> policy = at_most(Isotonic(bins=16, offload_cost=0.5), offloads=0.2, window=1000)
    >>> sum(policy.decide(0).offload for _ in range(1000))
    200
    """
    return AtMost(policy, offloads, window)


# -- a price ----------------------------------------------------------------------------------------------------------

QUICK = 0.2  # how long the first steps are
PRICE, BOOKED, REFUNDED = 0, 1, 2  # the entries of the ledger: λ, and what was booked and refunded since the review
LEDGER = 3


class PriceTable(NamedTuple):
    """The table of the policy inside, and the ledger."""

    inner: Any
    ledger: Annotated[Reals, LEDGER]
    reviewed: Wholes  # when the price was last reviewed
    charged: Reals  # what the cost at hand has beyond what the answer itself cost: failures were booked themselves
    known_cost: Reals  # what an offload costs inside, or 0 where that is learned
    books: float  # what an offload is booked for when it is decided
    refunds: bool  # whether it turns out to cost less
    target: float
    rate: float
    review: int


def review_price(table: PriceTable, time: int) -> None:
    """Move the price by what was spent since the last review."""
    reviews = (time - table.reviewed[0]) // table.review
    allowed = table.target * table.review * reviews
    rate = max(table.rate, QUICK / math.sqrt(time))
    spent = table.ledger[BOOKED] - table.ledger[REFUNDED]
    table.ledger[PRICE] = max(0.0, table.ledger[PRICE] + rate * (spent - allowed))
    table.ledger[BOOKED] = table.ledger[REFUNDED] = 0.0
    table.reviewed[0] += reviews * table.review


@cache
def priced(inner: Functions, inner_rebuilds: Callable[..., None]) -> tuple[Functions, Callable[..., None]]:
    """The functions of a policy at a price, and the one that sets the price inside."""
    inner_offloads, inner_notes, inner_learns, inner_accepts, _ = inner

    def accept_priced(table: PriceTable, bin: int, time: int) -> None:
        inner_accepts(table.inner, bin, time)

    def set_price(table: PriceTable) -> None:
        """Raise the cost of an offload by λ, for the policy inside."""
        table.inner.price[0] = table.known_cost[0] + table.ledger[PRICE]
        inner_rebuilds(table.inner)

    def offloads_priced(table: PriceTable, bin: int, time: int) -> bool:
        """Offload as the policy inside does at the present price."""
        if time >= table.reviewed[0] + table.review:
            review_price(table, time)
            if table.ledger[PRICE] + table.known_cost[0] != table.inner.price[0]:
                set_price(table)
        return bool(table.ledger[PRICE] < 1.0 and inner_offloads(table.inner, bin, time))

    def note_priced(table: PriceTable, bin: int, time: int) -> None:
        """Book what the offload costs, or the most that it can."""
        inner_notes(table.inner, bin, time)
        table.ledger[BOOKED] += table.books

    def learn_priced(table: PriceTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
        """Refund what the offload was booked for too much; the policy inside learns."""
        if table.refunds:
            table.ledger[REFUNDED] += table.books - (cost - table.charged[0])
        inner_learns(table.inner, bin, agreed, cost, time, now)

    return Functions(offloads_priced, note_priced, learn_priced, accept_priced), set_price


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
        if inner.price_column is None:
            wanted = f"{owner}: policy must weigh a price that can be moved, as hi-lcb and isotonic do"
            raise TypeError(f"{wanted}, got {inner!r}")
        if (offloads is None) == (cost is None):
            raise TypeError(f"{owner}: offloads or cost must be given, and not both, got {offloads!r} and {cost!r}")
        self.offloads = None if offloads is None else real(owner, "offloads", offloads, 0, 1)
        self.cost = None if cost is None else real(owner, "cost", cost, 0, 1)
        self.rate, self.review = positive(owner, "rate", rate), whole(owner, "review", review, 1, 2**31)
        known = inner.offload_cost
        table = self.blank(
            PriceTable,
            inner=inner.table,
            reviewed=whole_column(1, self.time),
            charged=self._charged,
            known_cost=real_column(1, inner.offload_cost or 0.0),
            books=known if self.cost is not None and known is not None else 1.0,
            refunds=self.cost is not None and known is None,
            target=self.offloads or self.cost or 0.0,
        )
        functions, self._set_price = priced(inner.functions, inner._rebuilds)
        self.start(table, **functions._asdict())

    @property
    def price(self) -> float:
        """λ: what an offload costs at present beyond its cost, as a share of a wrong answer."""
        return float(self.table.ledger[PRICE])

    @contextmanager
    def _as_decided_next(self) -> Iterator[None]:
        """The price as it will be after the review that may come before the next sample."""
        table, time = self.table, self.time + 1
        if time < table.reviewed[0] + table.review:
            yield
            return
        ledger, reviewed, before = table.ledger[:], table.reviewed[0], table.ledger[PRICE]
        review_price(table, time)
        moved = table.ledger[PRICE] != before
        try:
            if moved:
                self._set_price(table)
            yield
        finally:
            table.ledger[:], table.reviewed[0] = ledger, reviewed
            if moved:
                self._set_price(table)

    def _refresh(self) -> None:
        super()._refresh()
        if self.table.reviewed[0] > self.time:
            raise InvalidState(f"{type(self).__name__}: state has a review from the future")
        self._set_price(self.table)

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
