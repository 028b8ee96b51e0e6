"""One budget for a fleet, without I/O: what a device makes of the others' statements, and what it cedes to them.

`hinge.policies.shared_budget` has the account and why its bound holds. Here is how credits come to where they are worth
most. Of all B credits that members hold, each should have a part in proportion to what it has spent so far,

    target = B (x + 1) / Σ (x + 1),

so that who offloads much does not run dry between two messages, and who offloads little keeps little. A device that
holds more than its target, and more than START, cedes the rest to those that hold less than theirs, to each no more
than TO_ONE of what it has earned in all; in fleets of fewer than a dozen, 3 parts of as many as there are others.

*How fresh.* A device tells its balance once that has changed by

    max(START, share × min(n, FRESH) / PARTS)

credits, and cedes as soon as there is so much to cede: at first a share of all that it has earned, then a constant.

*Liars.* What others claim is limited by own figures: a balance counts up to MOST times one's own W, and offloads up to
what they can have earned in as many samples and were ceded by all. Who says that it lacks credits gets TO_ONE of them
from each device, at most. From who says that it cedes, nobody receives more than TO_ONE of what one has earned oneself:
each liar may add so much to what honest devices spend, and no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from math import floor

from hinge.fleet.messages import MOST_DEVICES, Statement
from hinge.policies.shared_budget import ACCOUNTS, START, SharedBudget, full_at

FRESH, PARTS = 50_000, 6.0
MOST = 4.0
TO_ONE = 0.25


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
    >>> idle.cede(hall.gifts(hall.statement(idle), idle.time, {"kitchen": kitchen.statement(hard)}))
    >>> kitchen.hear("hall", hall.statement(idle))
    >>> hard.hear(*kitchen.heard(hard.time, [hall.statement(idle)]))
    >>> int(hard.balance), int(idle.balance)
    (100, 20)
    """

    def __init__(self, device: str, policy: SharedBudget) -> None:
        self.id, self._share = account_of(device, policy.id), policy.offloads
        self.told: Statement | None = None  # by ourselves, the last
        self._others = 0  # the most that were heard of at one time
        self._received: dict[str, dict[str, int]] = {}  # credits ceded to us, by device, from each account it had
        self._ceded: dict[str, int] = {}  # by us, to each device, whatever accounts it had

    def hear(self, device: str, said: Statement) -> None:
        """A device has made a statement: new, old, or heard before."""
        credits = said.granted.get(self.id, 0)
        known = self._received.get(device, {})
        if credits == 0 or (said.account not in known and len(known) == ACCOUNTS):
            return
        if known or len(self._received) < MOST_DEVICES:
            self._received[device] = {**known, said.account: max(credits, known.get(said.account, 0))}

    def heard(self, samples: int, others: Collection[Statement]) -> tuple[float, float, int]:
        """For `SharedBudget.hear`: what was ceded to us, what others hold, and how many they are."""
        self._others = max(self._others, len(others))
        most = self._most(samples)
        received = sum(min(most, sum(known.values())) for known in self._received.values())
        return received, sum(_held(each, samples) for each in others), len(others)

    def statement(self, policy: SharedBudget) -> Statement:
        held = floor(min(max(0.0, policy.balance), MOST * full_at(policy.time)))
        granted = {f"{account:015x}": credits for account, credits in policy.granted.items()}
        return Statement(self.id, held, policy.offloaded, granted)

    def due(self, own: Statement, samples: int) -> bool:
        """Whether what was told last is out of date."""
        if self.told is None or own.granted != self.told.granted:
            return True
        return abs(own.balance - self.told.balance) >= self._least(samples)

    def gifts(self, own: Statement, samples: int, others: Mapping[str, Statement]) -> dict[int, int]:
        """What to cede to which accounts, by what each of the others said last."""
        if own.balance - START < self._least(samples):
            return {}  # whatever they said
        known = {each.account: each for each in others.values() if each.account != self.id}
        held = {account: _held(each, samples) for account, each in known.items()}
        most, can = self._most(samples), dict.fromkeys(known, self._share * samples + START)
        for each in (own, *known.values()):
            for account in can.keys() & each.granted.keys():
                can[account] += min(each.granted[account], most)
        weight = {account: 1.0 + min(each.spent, can[account]) for account, each in known.items()}
        part = (own.balance + sum(held.values())) / (1.0 + own.spent + sum(weight.values()))
        spare = own.balance - max(START, part * (1.0 + own.spent))
        lacking = {account: part * weight[account] - held[account] for account in self._order(own, known)}
        left = {account: most - own.granted.get(account, 0) for account in known}
        for device, credits in self._ceded.items():
            if device in others and others[device].account in left:
                left[others[device].account] = min(left[others[device].account], most - credits)
        chosen = [each for each in lacking.items() if each[1] >= 1.0 and left[each[0]] >= 1.0][:ACCOUNTS]
        total = sum(lack for _, lack in chosen)
        gifts = {int(account, 16): floor(min(spare * lack / total, left[account])) for account, lack in chosen}
        gifts = {account: credits for account, credits in gifts.items() if credits > 0}
        return gifts if sum(gifts.values()) >= self._least(samples) else {}

    def ceded(self, gifts: Mapping[int, int], others: Mapping[str, Statement]) -> None:
        """Take note of whose accounts got what: a device that opens another gets no more for that."""
        for device, said in others.items():
            if credits := gifts.get(int(said.account, 16), 0):
                self._ceded[device] = self._ceded.get(device, 0) + credits

    def _order(self, own: Statement, accounts: Iterable[str]) -> list[str]:
        """Those first that got credits before, and then not the same as other devices choose."""
        mine = int(self.id, 16)
        return sorted(accounts, key=lambda account: (account not in own.granted, int(account, 16) ^ mine))

    def _most(self, samples: int) -> float:
        """The credits that one device cedes to another, in all."""
        return min(1.0, max(TO_ONE, 3.0 / max(1, self._others))) * self._share * samples

    def _least(self, samples: int) -> float:
        """The credits that are worth a message."""
        return max(START, self._share * min(samples, FRESH) / PARTS)


def _held(said: Statement, samples: int) -> float:
    """What another says that it holds, as far as it counts."""
    return min(float(said.balance), MOST * full_at(samples))
