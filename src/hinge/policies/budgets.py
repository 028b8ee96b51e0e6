"""Putting real functions in the place of stand-ins.

Compiled code cannot take functions as arguments, and a policy's functions are to be compiled. So a loop, or a policy
around another, is written with stand-ins, and copied with the real functions under their names.

A policy around another: what the budgets of `limits` and `prices` share.

Their functions are written around stand-ins for those of the policy inside, and their table holds its table.

A hard limit on offloads.

It remembers when each of the last L offloads leaves the window; while the oldest of them is still in it, samples are
accepted, whatever the policy inside would do. Hence no window of `window` samples, wherever it begins, holds more than
L = ⌊offloads × window⌋ of them, against any input.

A price that meets a budget.

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
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from hinge._checks import positive, real, whole
from hinge.errors import InvalidState
from hinge.policies.expiry import Reals, Wholes, real_column, whole_column
from hinge.policies.policy import ACCEPTED, Decision, Evidence, Explanation, Policy, State, policy_class


def bound_to(function: Callable[..., Any], **real: Callable[..., Any]) -> FunctionType:
    """A copy of a function, and of those it calls in its own module, that knows these functions by these names.

    >>> def price(): return 0
    >>> def total(count): return count * price()
    >>> bound_to(total, price=lambda: 7)(3)
    21
    """
    original = plain(function)
    names = {**original.__globals__, **real}
    for name, value in original.__globals__.items():
        if name not in real and isinstance(value, FunctionType) and value.__globals__ is original.__globals__:
            names[name] = FunctionType(value.__code__, names, value.__name__, value.__defaults__)
            names[name].__qualname__ = f"{value.__qualname__}[{', '.join(f.__qualname__ for f in real.values())}]"
    copy = names.get(original.__name__)
    return copy if isinstance(copy, FunctionType) else FunctionType(original.__code__, names, original.__name__)


def plain(function: Callable[..., Any]) -> FunctionType:
    """The function, if it is one that can be copied and compiled."""
    if not isinstance(function, FunctionType):
        raise TypeError(f"a policy's functions must be plain functions, got {function!r}")
    return function


Self = TypeVar("Self", bound="Budgeted")


def inner_offloads(table: Any, bin: int, time: int) -> bool:
    """Stands for the policy's own."""
    raise NotImplementedError


def inner_notes(table: Any, bin: int, time: int) -> None:
    """Stands for the policy's own."""
    raise NotImplementedError


def inner_learns(table: Any, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Stands for the policy's own."""
    raise NotImplementedError


def inner_rebuilds(table: Any) -> None:
    """Stands for the policy's own."""
    raise NotImplementedError


@cache
def around(
    function: Callable[..., Any],
    offloads: Callable[..., bool],
    notes: Callable[..., None],
    learns: Callable[..., None],
    rebuilds: Callable[..., None],
) -> Callable[..., Any]:
    """A function around those of the policy inside; one and the same for the same, so that it is compiled once."""
    inner = {"inner_offloads": offloads, "inner_notes": notes, "inner_learns": learns, "inner_rebuilds": rebuilds}
    return bound_to(function, **inner)


class Budgeted(Policy):
    """A policy around another, whose clock, evidence and open decisions it takes over: ask this one from now on."""

    wraps = True
    _own: tuple[str, ...]  # fields of the table that are not the inner policy's

    def _enclose(self, policy: Policy | Mapping[str, Any]) -> Policy:
        owner = type(self).__name__
        inner = _built(owner, policy)
        if inner.needs or not inner.can_be_overruled:
            raise TypeError(f"{owner}: policy must learn from offloads alone, and not by their chance, got {inner!r}")
        if inner.enclosed:
            raise ValueError(f"{owner}: policy must not be inside another already, got {inner!r}")
        inner.enclosed = True
        super().__init__(inner.bins, inner.offload_cost)
        self.policy, self._inner = {"policy": inner.name, "parameters": inner.parameters}, inner
        self.id, self.time, self.learned = inner.id, inner.time, inner.learned
        self._pending, self._merged = inner._pending, inner._merged
        self.weighs_cost, self.assumes_monotone = inner.weighs_cost, inner.assumes_monotone
        self.evidence, self.order_matters = inner.evidence, inner.order_matters
        self.carried = (*self._own, *(f"inner.{field}" for field in inner.carried))
        self.spent = (*self._own, *(f"inner.{field}" for field in inner.spent))
        return inner

    def _surround(self, *functions: Callable[..., Any]) -> None:
        self._offloads, self._notes, self._learns = (around(function, *self._functions()) for function in functions)

    def _functions(self) -> tuple[Callable[..., Any], ...]:
        inner = self._inner
        return inner._offloads, inner._notes, inner._learns, inner._rebuilds or rebuild_nothing

    def decide(self, bin: int) -> Decision:
        bin = self._checked_bin(bin)
        self.time = time = self.time + 1
        if not self._offloads(self.table, bin, time):
            return ACCEPTED
        self._notes(self.table, bin, time)
        return self._await(True, bin, time)

    def explain(self, bin: int) -> Explanation:
        bin = self._checked_bin(bin)
        copy = type(self).restore(self.state())  # to decide may review the price, and to explain changes nothing
        offload = copy._offloads(copy.table, bin, copy.time + 1)
        why = copy._now().explain(bin)
        if why.offload_probability > 0.0 and not offload and copy._refuses():
            return Explanation(bin, 0.0, why.offloads, why.agreement, None, None, copy._refusal_to_spend(bin))
        reason = f"{why.reason[:-1]}; {copy._terms()}."
        return Explanation(bin, float(offload), why.offloads, why.agreement, why.expiry, why.samples_left, reason)

    def share(self, other: "Budgeted") -> None:
        """Let the budget inside be one with that inside another policy of the same kind; see `OnBudget.share`."""
        if type(other) is not type(self) or not isinstance(self._inner, Budgeted):
            raise TypeError(f"{type(self).__name__}: other must be around a budget as this one is, got {other!r}")
        self._share(other)

    def _share(self, other: "Budgeted") -> None:
        inner, theirs = self._inner, other._inner
        if not isinstance(inner, Budgeted) or not isinstance(theirs, Budgeted):
            raise TypeError(f"{type(self).__name__}: only a price can be shared, got {inner!r} and {theirs!r}")
        inner._share(theirs)
        self.table = self.table._replace(inner=inner.table)

    @property
    def alarms(self) -> dict[str, int]:
        return self._inner.alarms

    @property
    def exhausted(self) -> bool:
        return self._refuses() or self._now().exhausted

    @property
    def inside(self) -> Policy:
        """The policy that this one is around."""
        return self._now()

    def _now(self) -> Policy:
        """The policy inside, its clock set."""
        self._inner.time = self.time
        return self._inner

    def fresh(self: Self, seed: int | None = None) -> Self:
        own = {name: value for name, value in self.parameters.items() if name != "policy"}
        policy: Self = type(self)(**{**own, "policy": self._inner.fresh(seed)})
        return policy

    def __reduce__(self) -> Any:
        return type(self).restore, (self.state(),)  # functions made here cannot be pickled

    def _check_like(self, theirs: Mapping[str, Any]) -> None:
        described = theirs.get("policy")
        if not isinstance(described, Mapping) or described.get("policy") != self._inner.name:
            wanted = f"{type(self).__name__}: other_state must be around {self._inner.name!r}"
            raise InvalidState(f"{wanted}, got {described!r}")
        self._inner._check_like(described["parameters"])

    def _column(self, field: str) -> Any:
        if field in self._own:
            return getattr(self.table, field)
        return self._inner._column(field.removeprefix("inner."))

    def _rebuild(self) -> None:
        self._inner._rebuild()

    def _as_of(self) -> int:
        return self._now()._as_of()

    def _catch_up(self) -> int:
        return self._now()._catch_up()

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        return self._now()._aged(evidence, since)

    def _left(self, snapshot: State) -> Evidence:
        return self._now()._left(snapshot)

    def _alarms(self) -> list[int]:
        return self._inner._alarms()

    def _refresh(self) -> None:
        self._now()._refresh()

    def _refuses(self) -> bool:
        """Whether there is nothing to spend at present."""
        raise NotImplementedError

    def _refusal_to_spend(self, bin: int) -> str:
        """Why a sample is accepted that the policy inside would offload."""
        raise NotImplementedError

    def _terms(self) -> str:
        """What the budget says at present."""
        raise NotImplementedError


def rebuild_nothing(table: Any) -> None:
    """The policy inside has nothing that is derived from its evidence."""


def _built(owner: str, policy: Policy | Mapping[str, Any]) -> Policy:
    """The policy to go inside: one that exists, or the description of one in saved parameters."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, Mapping) or not isinstance(policy.get("parameters"), Mapping):
        raise TypeError(f"{owner}: policy must be a policy, got {policy!r}")
    built: Policy = policy_class(str(policy.get("policy")))(**policy["parameters"])
    return built


class LimitTable(NamedTuple):
    """The table of the policy inside, and when there will be room for the next offload."""

    inner: Any
    leaves: Wholes  # when each of the last L offloads leaves the window
    oldest: Wholes  # which of them leaves first
    window: int


def offloads_within(table: LimitTable, bin: int, time: int) -> bool:
    """Offload as the policy inside does, where the window has room."""
    return bool(time >= table.leaves[table.oldest[0]] and inner_offloads(table.inner, bin, time))


def note_within(table: LimitTable, bin: int, time: int) -> None:
    """The offload takes the place of the oldest."""
    inner_notes(table.inner, bin, time)
    table.leaves[table.oldest[0]] = time + table.window
    table.oldest[0] = (table.oldest[0] + 1) % len(table.leaves)


def learn_within(table: LimitTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """The policy inside learns."""
    inner_learns(table.inner, bin, agreed, cost, time, now)


class AtMost(Budgeted):
    """A limit that holds in every window; see `at_most`.

    >>> from hinge import AlwaysRemote
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
            raise ValueError(f"{owner}: offloads must allow one in {window} samples at least, got {offloads!r}")
        self.table = LimitTable(inner.table, whole_column(limit), whole_column(1), self.window)
        self._surround(offloads_within, note_within, learn_within)

    def _refresh(self) -> None:
        super()._refresh()
        if self.table.oldest[0] >= len(self.table.leaves):
            raise InvalidState(f"{type(self).__name__}: state has {self.table.oldest[0]} as 'oldest'")

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
