"""One budget for a fleet, without I/O: what a device makes of the others' statements, and what it cedes to them.

`hinge.policies.shared_budget` has the account and why its bound holds. Here is how credits come to where they are worth
most. Of all B credits that members hold, each should have a part in proportion to what it has spent so far,

    target = B (x + 1) / Σ (x + 1),

so that who offloads much does not run dry between two messages, and who offloads little keeps little. A device that
holds more than its target, and more than START, cedes the rest to those that hold less than theirs.

*How fresh.* A device tells its balance once that has changed by

    max(START, share × min(n, FRESH) / 10)

credits, and cedes as soon as there is so much to cede: each tenth of what it earns at first, and then every so often.

*Liars.* What others claim is limited by own figures: a balance counts up to MOST times one's own W, offloads up to
one's own samples. Nobody receives more from a device than `share` of one's own samples, whatever it says that it cedes:
each liar may add so much to what honest devices spend, and no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from math import floor

from hinge.fleet.messages import Statement
from hinge.fleet.peers import MOST_DEVICES
from hinge.policies.shared_budget import ACCOUNTS, START, SharedBudget, full_at

FRESH = 40_000
MOST = 4.0


def account_of(device: str, policy: str) -> str:
    """The account of a device with the policy of this id: that of a copy, or of a new state, is another.

    >>> account_of("kitchen", "0123456789abcdef")
    'abea0cf0cafc08c'
    """
    return hashlib.sha256(f"{device}/{policy}".encode()).hexdigest()[:15]


class Account:
    """A device's part in the budget of its fleet: hears statements, and makes its own.

    >>> from hinge import Sentinel
    >>> hard, idle = (SharedBudget(Sentinel(bins=16, offload_cost=0.1)) for _ in range(2))
    >>> kitchen, hall = Account("kitchen", hard), Account("hall", idle)
    >>> for _ in range(2000):
    ...     _, idle.time = hard.decide(0), idle.time + 1
    >>> idle.cede(hall.gifts(idle, [kitchen.statement(hard)]))
    >>> kitchen.hear("hall", hall.statement(idle))
    >>> kitchen.settle(hard, [hall.statement(idle)])
    >>> int(hard.balance), int(idle.balance)
    (102, 20)
    """

    def __init__(self, device: str, policy: SharedBudget) -> None:
        self.id = account_of(device, policy.id)
        self.told: Statement | None = None
        self._received: dict[str, tuple[str, int, int]] = {}  # by device: its account, from earlier ones, from this

    def hear(self, device: str, said: Statement) -> None:
        """A device has made a statement."""
        account, before, credits = self._received.get(device, (said.account, 0, 0))
        if account != said.account:
            before, credits = before + credits, 0
        credits = max(credits, said.granted.get(self.id, 0))
        if credits + before > 0 and (device in self._received or len(self._received) < MOST_DEVICES):
            self._received[device] = said.account, before, credits

    def settle(self, policy: SharedBudget, others: Iterable[Statement]) -> None:
        """Let the policy have what was ceded to it, and the price that follows from what others hold."""
        limit = policy.offloads * policy.time
        policy.receive(sum(min(limit, before + credits) for _, before, credits in self._received.values()))
        held = [_held(policy, each) for each in others]
        policy.hear(sum(held), len(held))

    def statement(self, policy: SharedBudget) -> Statement:
        """What to publish."""
        held = floor(min(max(0.0, policy.balance), MOST * full_at(policy.time)))
        granted = {f"{account:015x}": credits for account, credits in policy.granted.items()}
        return Statement(self.id, held, policy.offloaded, granted)

    def due(self, policy: SharedBudget) -> bool:
        """Whether the last statement is out of date."""
        said = self.statement(policy)
        if self.told is None or said.granted != self.told.granted:
            return True
        return abs(said.balance - self.told.balance) >= least(policy)

    def gifts(self, policy: SharedBudget, others: Iterable[Statement]) -> dict[int, int]:
        """What to cede to which accounts, by what the others said last."""
        known = {each.account: each for each in others if each.account != self.id}
        held = {account: _held(policy, each) for account, each in known.items()}
        weight = {account: 1.0 + min(each.spent, policy.time) for account, each in known.items()}
        own = 1.0 + policy.offloaded
        part = (sum(held.values()) + policy.balance) / (sum(weight.values()) + own)
        spare = policy.balance - max(START, part * own)
        if spare < least(policy):
            return {}
        lacking = self._chosen(policy, {account: part * weight[account] - held[account] for account in known})
        share = min(1.0, spare / max(1.0, sum(lacking.values())))
        gifts = {int(account, 16): floor(share * lack) for account, lack in lacking.items()}
        return gifts if sum(gifts.values()) >= least(policy) else {}

    def _chosen(self, policy: SharedBudget, lacking: Mapping[str, float]) -> dict[str, float]:
        """Those who lack credits; of many, those that got some before, and then not the same as others choose."""
        before = policy.granted
        names = sorted(
            (account for account, lack in lacking.items() if lack >= 1.0),
            key=lambda account: (int(account, 16) not in before, int(account, 16) ^ int(self.id, 16)),
        )
        return {account: lacking[account] for account in names[:ACCOUNTS]}


def least(policy: SharedBudget) -> float:
    """The credits that are worth a message."""
    return max(START, policy.offloads * min(policy.time, FRESH) / 10.0)


def _held(policy: SharedBudget, said: Statement) -> float:
    """What another says that it holds, as far as it counts."""
    return min(float(said.balance), MOST * full_at(policy.time))
