"""The device beside other policies in shadow: who offloads what, and what that costs."""

from __future__ import annotations

from typing import Any

from hinge.cli.demo.stream import Row
from hinge.cli.device.samples import Case
from hinge.device.answer import Answer
from hinge.policies import Policy
from hinge.simulation import lineup, run_seeds
from hinge.simulation.engine import policy_seed
from hinge.simulation.sources import InOrder

FLAGSHIP = "isotonic"  # what the device decides by
SHADOWS = ("hi-lcb", "hi-lcb-lite", "hedge-hi")
BOUNDS = ("always-local", "always-remote", "oracle")
_POINTS = 200  # of a curve


class Ledger:
    """The sums of one policy, as the simulator's loop keeps them, and how they grew."""

    def __init__(self, samples: int) -> None:
        self._every = max(1, samples // _POINTS)
        self.samples = self.offloads = self.right = 0
        self.regret = self.offload_cost = self.errors = 0.0
        self.times: list[int] = []
        self.regrets: list[float] = []
        self.offloaded: list[int] = []

    def take(self, row: Row, offloaded: bool, agreed: float, right: bool) -> None:
        """Count a sample: whether it was offloaded, and how good the answer to it was."""
        self.samples += 1
        self.right += right
        if offloaded:
            self.offloads += 1
            self.offload_cost += row.cost
            self.regret += max(0.0, -row.gap)
        else:
            self.errors += 1.0 - agreed
            self.regret += max(0.0, row.gap)
        if self.samples % self._every == 0:
            self.times.append(self.samples)
            self.regrets.append(self.regret)
            self.offloaded.append(self.offloads)

    def figures(self) -> dict[str, Any]:
        """The figures so far, in the words of the other commands."""
        samples = max(1, self.samples)
        return {
            "offloads": self.offloads,
            "offload_fraction": self.offloads / samples,
            "accuracy": 1.0 - self.errors / samples,
            "cost_per_sample": (self.offload_cost + self.errors) / samples,
            "regret": self.regret,
            "true_accuracy": self.right / samples,
        }


class Comparison:
    """The policies, each with its ledger. What the shadows would have learned of the remote is in the record."""

    def __init__(self, source: InOrder, samples: int, offload_cost: float) -> None:
        names = (*BOUNDS, FLAGSHIP, *SHADOWS)
        ready = lineup(names, source, offload_cost=offload_cost, horizon=samples)
        seed = policy_seed(run_seeds(0, 1)[0])  # as the first run of 'hinge evaluate'
        fresh = {name: policy.fresh(seed) for name, policy in ready.items()}
        self.flagship: Policy = fresh.pop(FLAGSHIP)  # which the device drives
        self.ledgers = {name: Ledger(samples) for name in names}
        self.checked = self.differences = self.elsewhere = 0
        self._shadows = [(policy, self.ledgers[name]) for name, policy in fresh.items()]

    def take(self, row: Row, case: Case, answer: Answer) -> None:
        """Count what the device did, and what each of the others would have done."""
        offloaded, as_recorded = answer.source == "remote", answer.label == case.remote
        self.ledgers[FLAGSHIP].take(row, offloaded, float(as_recorded), answer.label == case.truth)
        self.elsewhere += answer.bin != row.bin
        if offloaded:
            self.check(as_recorded)
        for policy, ledger in self._shadows:
            decision = policy.decide(row.bin)
            if decision.offload:
                policy.learn(decision, row.agreed, row.cost)
            ledger.take(row, decision.offload, row.agreed, row.remote_right if decision.offload else row.local_right)

    def check(self, as_recorded: bool) -> None:
        """Count an answer of the live remote, and whether it is the recorded one."""
        self.checked += 1
        self.differences += not as_recorded

    def rows(self) -> list[dict[str, Any]]:
        """The figures of every policy."""
        return [{"policy": name, **ledger.figures()} for name, ledger in self.ledgers.items()]
