"""One budget for many devices: each spends what it has earned and was given, at a price that all agree on.

Every device has an account. After n samples, x offloads, c credits ceded to other accounts and r received from them, it
holds

    b = offloads × n + START + r - c - x

credits. An offload takes one; where there is none, the sample is accepted. A device cedes no more than it holds, by
counters that only grow, one for each account that it cedes to, and receives what it reads off the counters of others:
late perhaps, and so never more than was ceded, Σ r ≤ Σ c. Adding up b ≥ 0 over all accounts, at any time and whatever
becomes of the messages,

    Σ x ≤ offloads × Σ n + START × accounts.

These are the rights of a bounded counter (Balegas et al., SRDS 2015), with the budget as the bound. An account belongs
to a state: a device that has lost its state opens another.

**The price** that is added to what an offload costs,

    λ = (1 - cost) (1 - min(mean of b over all devices / W, b / START)),      W = START + min(2 √n, WIDEST)

is that of a virtual queue (see `lyapunov`) which starts full and is not to run dry: 0 where W is held on average, and
where nothing is left, so much that no sample is worth an offload. Devices that have heard the same have the same price,
without a leader; one that is about to run out waits for credits at a higher one. Alone, a device has an ordinary
budget.

The price reaches the policy inside as the cost of the very sample (`decide(bin, cost=…)`): no licence that was given at
one price then stands at another. What it accepts it is not asked about again for the next SURE samples of the bin, or
until the price falls.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

from hinge._checks import real
from hinge.errors import InvalidState, InvalidValue
from hinge.policies.budgets import Budgeted
from hinge.policies.policy import COUNT, SUM, Explanation, Functions, Policy, Reals, Wholes, real_column, whole_column

START = 20.0  # credits of a new account
WIDEST = 500.0
REVIEW = 10  # samples from one review of the price to the next
STEP = 0.01  # by which the price moves at least
SURE = 20
ACCOUNTS = 8  # to which one can cede
PRICE, SPENT, CEDED, RECEIVED, OTHERS_HOLD, OTHERS = range(6)  # the entries of the ledger: λ, x, c, r, Σ b and devices


class SharedTable(NamedTuple):
    """The table of the policy inside, and the account."""

    inner: Any
    ledger: Annotated[Reals, OTHERS + 1]
    reviewed: Wholes  # when the price was last reviewed
    sure: Wholes  # samples of a bin that are accepted without asking the policy inside
    accounts: Annotated[Wholes, ACCOUNTS]  # to which was ceded; 0: none
    granted: Annotated[Wholes, ACCOUNTS]  # how much to each, in all
    known_cost: Reals  # of an offload; of no meaning where that is learned
    costs: Reals  # what was learned of it; empty where it is known
    share: float


def balance(table: SharedTable, time: int) -> float:
    """b: the credits held when a sample is decided."""
    ledger = table.ledger
    return float(table.share * time + START + ledger[RECEIVED] - ledger[CEDED] - ledger[SPENT])


def full_at(time: int) -> float:
    """W: the credits at which an offload costs nothing more."""
    return START + min(2.0 * math.sqrt(time), WIDEST)


def cost_inside(table: SharedTable) -> float:
    """What an offload costs without λ, as far as that is known."""
    if len(table.costs) == 0:
        return table.known_cost[0]
    return float(table.costs[SUM] / max(table.costs[COUNT], 1.0))


def price_at(table: SharedTable, time: int) -> float:
    """λ, by what is known of the others."""
    held, ledger = balance(table, time), table.ledger
    mean = (held + ledger[OTHERS_HOLD]) / (1.0 + ledger[OTHERS])
    return max(0.0, 1.0 - cost_inside(table)) * max(0.0, 1.0 - min(mean / full_at(time), held / START))


@cache
def shared(inner: Functions) -> tuple[Functions, Callable[..., None]]:
    """The functions of a policy with an account, and the one that tells the policy inside what an offload costs."""
    inner_offloads, inner_notes, inner_learns, inner_accepts, inner_expects = inner

    def tell_cost(table: SharedTable) -> None:
        """Raise the cost of an offload by λ, for the policy inside."""
        inner_expects(table.inner, cost_inside(table) + table.ledger[PRICE])

    def offloads_shared(table: SharedTable, bin: int, time: int) -> bool:
        """Offload as the policy inside does at the present price, if there is a credit."""
        if time >= table.reviewed[0] + REVIEW:
            table.reviewed[0] = time
            price = price_at(table, time)
            if abs(price - table.ledger[PRICE]) >= STEP or price == 0.0:
                if price < table.ledger[PRICE]:
                    for i in range(len(table.sure)):
                        table.sure[i] = 0
                table.ledger[PRICE] = price
            tell_cost(table)
        if table.sure[bin] > 0 or balance(table, time) < 1.0:
            return False
        return bool(inner_offloads(table.inner, bin, time))

    def note_shared(table: SharedTable, bin: int, time: int) -> None:
        inner_notes(table.inner, bin, time)
        table.ledger[SPENT] += 1.0

    def learn_shared(table: SharedTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
        inner_learns(table.inner, bin, agreed, cost, time, now)

    def accept_shared(table: SharedTable, bin: int, time: int) -> None:
        """The policy inside counts an accepted sample; if it was its own choice, it is not asked again for a while."""
        inner_accepts(table.inner, bin, time)
        if table.sure[bin] > 0:
            table.sure[bin] -= 1
        elif balance(table, time) >= 1.0:
            table.sure[bin] = SURE

    return Functions(offloads_shared, note_shared, learn_shared, accept_shared), tell_cost


class SharedBudget(Budgeted):
    """A share of offloads for many devices together; `hinge.Fleet(…, budget=…)` puts it around a device's policy.

    >>> from hinge import Sentinel
    >>> policy = SharedBudget(Sentinel(bins=16, offload_cost=0.1), offloads=0.05)
    >>> int(policy.decide_many([0] * 1000).offload.sum()), int(policy.balance), round(policy.price, 2)
    (70, 0, 0.89)
    """

    name = "shared-budget"
    _own = ("ledger", "reviewed", "sure", "accounts", "granted")

    def __init__(self, policy: Policy | Mapping[str, Any], offloads: float = 0.05) -> None:
        inner, owner = self._enclose(policy), type(self).__name__
        if not inner.takes_cost:
            raise TypeError(f"{owner}: policy must be one that can be told a cost, as 'sentinel' can, got {inner!r}")
        self.offloads = real(owner, "offloads", offloads, 0, 1)
        table = self.blank(
            SharedTable,
            inner=inner.table,
            reviewed=whole_column(1, self.time),
            known_cost=real_column(1, inner.shifted_cost or 0.0),
            costs=inner.unlimited.table.costs,
            share=self.offloads,
        )
        functions, self._tell_cost = shared(inner.functions)
        self.start(table, **functions._asdict())
        self._tell_cost(table)

    @property
    def price(self) -> float:
        """λ: what an offload costs at present beyond its cost, as a share of a wrong answer."""
        return float(self.table.ledger[PRICE])

    @property
    def price_with_cost(self) -> float:
        """What an offload costs, λ included."""
        return cost_inside(self.table) + self.price

    @property
    def balance(self) -> float:
        """b: the credits that it holds."""
        return balance(self.table, self.time)

    @property
    def offloaded(self) -> int:
        """x: the offloads so far."""
        return int(self.table.ledger[SPENT])

    @property
    def ceded(self) -> int:
        """c: what was ceded, in all."""
        return int(self.table.ledger[CEDED])

    @property
    def received(self) -> float:
        """r: what was received, in all."""
        return float(self.table.ledger[RECEIVED])

    @property
    def granted(self) -> dict[int, int]:
        """What was ceded to each account, in all; of those that made room for others nothing is known any more."""
        return {account: self.table.granted[i] for i, account in enumerate(self.table.accounts) if account}

    def cede(self, credits: Mapping[int, int]) -> None:
        """Cede whole credits to other accounts, `ACCOUNTS` at most; nothing at all, if they are more than is held.

        >>> from hinge import Sentinel
        >>> policy = SharedBudget(Sentinel(bins=16, offload_cost=0.1))
        >>> policy.cede({7: 12})
        >>> policy.balance, policy.granted
        (8.0, {7: 12})
        """
        owner, table = type(self).__name__, self.table
        if len(credits) > ACCOUNTS or min(credits.values(), default=0) < 0 or min(credits, default=1) < 1:
            problem = f"must be for {ACCOUNTS} accounts at most, none of them 0, got {dict(credits)}"
            raise InvalidValue(owner, "credits", problem)
        if sum(credits.values()) > self.balance:
            return
        table.ledger[CEDED] += sum(credits.values())  # first: what is ceded to an account is never more
        for account, more in credits.items():
            place = self._place(account, credits)
            table.granted[place] = more + (table.granted[place] if table.accounts[place] == account else 0)
            table.accounts[place] = account

    def _place(self, account: int, taken: Mapping[int, int]) -> int:
        """Where an account stands, or may: in a place that is free, or of one that gets nothing now."""
        accounts = list(self.table.accounts)
        if account in accounts:
            return accounts.index(account)
        return next(place for place, other in enumerate(accounts) if other not in taken)

    def hear(self, received: float, held: float, devices: int) -> None:
        """Of others: what they have ceded to this account, in all, and what so many hold together.

        Without others, (0, 0, 0): what was received before is not lost.
        """
        ledger = self.table.ledger
        ledger[RECEIVED] = max(ledger[RECEIVED], received)
        ledger[OTHERS_HOLD], ledger[OTHERS] = held, devices

    def spend(self, offloads: int) -> None:
        """As far as there are credits."""
        super().spend(offloads)
        room = min(int(self.balance), self.time - self.offloaded)
        self.table.ledger[SPENT] += max(0, min(offloads, room))

    def explain(self, bin: int) -> Explanation:
        table, why = self.table, self._now().explain(bin)
        ledger, reviewed, sure = table.ledger[:], table.reviewed[0], table.sure[:]
        try:
            offload, cost = self._offloads(table, bin, self.time + 1), self.price_with_cost
            refused = self._refuses()
        finally:
            table.ledger[:], table.reviewed[0], table.sure[:] = ledger, reviewed, sure
            self._tell_cost(table)
        seen = "no offload of it seen yet"
        if why.offloads and why.agreement is not None:
            seen = f"local agreed in {why.agreement * why.offloads:.4g} of {why.offloads:g} offloads"
        verdict = "offloaded" if offload else "accepted"
        reason = f"Bin {bin} is {verdict}: {seen}, and an offload costs {cost:.3g}; {self._terms()}."
        if refused:
            reason = self._refusal_to_spend(bin)
        return Explanation(bin, float(offload), why.offloads, why.agreement, None, None, reason)

    def _refresh(self) -> None:
        super()._refresh()
        table, owner = self.table, type(self).__name__
        ceded, spent = table.ledger[CEDED], table.ledger[SPENT]
        if table.reviewed[0] > self.time:
            raise InvalidState(f"{owner}: state has a review from the future")
        if spent > self.time or min(min(table.ledger), min(table.granted), min(table.accounts)) < 0:
            raise InvalidState(f"{owner}: state has an impossible account: {list(table.ledger)}")
        if sum(table.granted) > ceded or self.balance < -1e-6:
            raise InvalidState(f"{owner}: state has spent or ceded more than it held")
        self._tell_cost(table)

    def _weigh(self, offload_cost: float | None) -> None:
        self.table.known_cost[0] = offload_cost or 0.0
        self._inner._weigh(offload_cost)
        self._tell_cost(self.table)

    def _refuses(self) -> bool:
        return balance(self.table, self.time + 1) < 1.0

    def _refusal_to_spend(self, bin: int) -> str:
        return f"Bin {bin} is accepted: nothing is left to spend; {self._terms()}."

    def _terms(self) -> str:
        held = f"{max(0.0, self.balance):.3g} credits are held"
        return f"the price for {self.offloads:g} offloads a sample, together, is {self.price:.3g}, and {held}"
