"""A fleet on one budget, simulated: devices that are away, brokers that do not hear each other or are wiped, liars.

Every device runs Sentinel in a `SharedBudget`, and makes its statements by `hinge.fleet.budget`, as a member does.
Devices take turns; between two rounds of `EVERY` samples each they exchange statements.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hinge.fleet.budget import Account
from hinge.fleet.messages import Statement
from hinge.policies import Sentinel, SharedBudget
from hinge.policies.policy import MOST_SAMPLES
from hinge.simulation.engine import run_seeds
from hinge.simulation.fleet import GROWTH
from hinge.simulation.sources import Source

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]
EVERY = 50


class BudgetLie(IntEnum):
    """What a device states in place of the truth; it decides as an honest one does."""

    HONEST = 0
    GIVES = 1  # credits to everybody that it does not have
    LACKS = 2  # it holds nothing and has offloaded everything, so that others cede to it
    HOLDS = 3  # more than anybody


@dataclass(frozen=True)
class BudgetedFleet:
    """Devices, each with a stream; the first ones may lie.

    `brokers` says for each time (a row) at which broker every device is; -1: at none. At the times in `wiped`, all
    brokers lose what they had.
    """

    sources: Sequence[Source]
    lies: Sequence[BudgetLie] = ()
    brokers: Callable[[Wholes], Wholes] | None = None
    wiped: Sequence[int] = ()


class BudgetRun(NamedTuple):
    """A run of a fleet."""

    times: Wholes  # samples of each device, at the end of each round
    offloads: Wholes  # of each honest device, until each time
    cost: Reals  # of each honest device, a sample
    prices: Reals  # that each honest device had at each time
    messages: Wholes  # of each device


def simulate_fleet_budget(
    fleet: BudgetedFleet, offload_cost: float, budget: float = 0.05, *, shared: bool = True, horizon: int, seed: int = 0
) -> BudgetRun:
    """Run a fleet on one budget together, or each device on its own."""
    devices = len(fleet.sources)
    lies = [*fleet.lies, *[BudgetLie.HONEST] * (devices - len(fleet.lies))]
    streams = [_stream(*each, horizon) for each in zip(fleet.sources, run_seeds(seed, devices), strict=True)]
    policies = [SharedBudget(Sentinel(source.bins, offload_cost), budget) for source in fleet.sources]
    times = np.arange(EVERY, horizon + 1, EVERY)
    brokers = np.zeros((len(times), devices), np.int64) if fleet.brokers is None else fleet.brokers(times)
    for number, policy in enumerate(policies):
        policy.id = f"{seed} {number}"  # so that accounts, too, follow from the seed
    bus = Bus(policies, lies)
    cost = np.zeros(devices)
    offloads, prices = np.zeros((len(times), devices), np.int64), np.zeros((len(times), devices))
    for row, end in enumerate(times.tolist()):
        for number, (policy, (bins, agreed)) in enumerate(zip(policies, streams, strict=True)):
            for t in range(end - EVERY, end):
                decision = policy.decide(bins[t])
                if decision.offload:
                    policy.learn(decision, agreed[t])
                    cost[number] += offload_cost
                else:
                    cost[number] += 1.0 - agreed[t]
        offloads[row] = [policy.offloaded for policy in policies]
        prices[row] = [policy.price for policy in policies]
        if any(end - EVERY < time <= end for time in fleet.wiped):
            bus.wipe()
        if shared:
            bus.exchange(brokers[row].tolist())
    honest = np.array(lies) == BudgetLie.HONEST
    return BudgetRun(times, offloads[:, honest], cost[honest] / times[-1], prices[:, honest], np.array(bus.sent))


class Bus:
    """Brokers with a retained statement of each device, and the devices."""

    def __init__(self, policies: Sequence[SharedBudget], lies: Sequence[BudgetLie]) -> None:
        self._policies, self._lies = policies, lies
        self._accounts = [Account(f"d{number}", policy) for number, policy in enumerate(policies)]
        self._retained: dict[int, dict[str, Statement]] = {}
        self._at, self.sent = [-1] * len(policies), [0] * len(policies)

    def wipe(self) -> None:
        """The brokers lose everything, and the devices notice as they connect again."""
        self._retained = {}
        self._at = [-1] * len(self._at)

    def exchange(self, brokers: Sequence[int]) -> None:
        """Let every device read what its broker has, and publish what is due."""
        for number, (account, policy) in enumerate(zip(self._accounts, self._policies, strict=True)):
            broker, name = brokers[number], f"d{number}"
            if broker != self._at[number]:
                self._at[number], account.told = broker, None
            retained = self._retained.setdefault(broker, {}) if broker >= 0 else {}
            others = {device: said for device, said in retained.items() if device != name}
            for device, said in others.items():
                account.hear(device, said)
            policy.hear(*account.heard(policy.time, others.values()))
            if broker < 0:
                continue
            gifts = account.gifts(account.statement(policy), policy.time, others)
            policy.cede(gifts)
            account.ceded(gifts, others)
            own, told = account.statement(policy), account.told
            if told is None or account.due(own, policy.time) or own.spent > GROWTH * told.spent:
                account.told = own
                retained[name] = self._said(number, account.told)
                self.sent[number] += 1

    def _said(self, number: int, truth: Statement) -> Statement:
        everybody = {account.id: MOST_SAMPLES for account in self._accounts}
        if self._lies[number] == BudgetLie.GIVES:
            return Statement(truth.account, 0, truth.spent, everybody)
        if self._lies[number] == BudgetLie.LACKS:
            return Statement(truth.account, 0, MOST_SAMPLES, {})
        if self._lies[number] == BudgetLie.HOLDS:
            return Statement(truth.account, MOST_SAMPLES, truth.spent, {})
        return truth


def _stream(source: Source, seed: int, horizon: int) -> tuple[list[int], list[float]]:
    chunks = list(source.stream(seed, horizon))
    bins, agreed = (np.concatenate([getattr(chunk, field) for chunk in chunks]) for field in ("bins", "agreed"))
    return bins.tolist(), agreed.tolist()
