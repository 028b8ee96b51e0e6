"""Every registered policy keeps every clause; broken ones do not."""

import pytest

from hinge import DiscountedIsotonic, Isotonic, at_most, build, on_budget
from hinge.policies import Decision, HILCBLite, Policy, policy_names
from hinge.testing import CLAUSES, NotConforming, check_policy

HISTORY = [0, 1, 2, 3, 4, 5, 6, 7] * 4
SETTINGS = {
    "bins": 8,
    "alpha": 0.52,
    "horizon": 1000,
    "seed": 1,
    "agreement": [0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.95],
    "history": HISTORY,
    "agreed": [bin > 3 for bin in HISTORY],
}
FIXED_COST = {"offline", "oracle", "static"}  # they weigh a cost that they cannot learn


def prototypes() -> dict[str, Policy]:
    """Every policy with a known cost and, where it can do without, with a learned one; and budgets of each kind."""
    names = policy_names()
    known = {name: build(name, offload_cost=0.5, **SETTINGS) for name in names}
    learned = {f"{name}-learned": build(name, **SETTINGS) for name in names if name not in FIXED_COST}
    return {
        **known,
        **{name: policy for name, policy in learned.items() if "offload_cost" in policy.parameters},
        "limit": at_most(build("thompson", offload_cost=0.5, **SETTINGS), 0.3, 50),
        "price": on_budget(build("hi-lcb", offload_cost=0.1, **SETTINGS), 0.2),
        "price-learned": on_budget(Isotonic(8), cost=0.05),
        "nested": at_most(at_most(on_budget(DiscountedIsotonic(8, offload_cost=0.1), 0.3), 0.3, 40), 0.5, 4),
    }


@pytest.mark.medium
@pytest.mark.parametrize("policy", prototypes().values(), ids=prototypes())
def test_every_policy_conforms(policy: Policy) -> None:
    check_policy(policy)


class LastDecision(HILCBLite):
    """Broken: learns about the last decision, whichever it is told about.

    >>> LastDecision().bins
    16
    """

    last = 0

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        decision = super().decide(bin, cost)
        self.last = bin
        return decision

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        super().learn(decision, agreed, cost)
        if decision.bin is not None:
            self.table.offloads[decision.bin] -= 1
            self.table.agreements[decision.bin] -= float(agreed or 0)
            self.table.offloads[self.last] += 1
            self.table.agreements[self.last] += float(agreed or 0)


class Forgetful(HILCBLite):
    """Broken: does not save all that it has learned.

    >>> Forgetful().bins
    16
    """

    evidence: tuple[str, ...] = ("offloads", "costs")


def broken_clauses(policy: Policy) -> set[str]:
    broken = set()
    for clause in CLAUSES:
        try:
            clause(policy)
        except NotConforming:
            broken.add(clause.__name__)
    return broken


@pytest.mark.medium
def test_the_suite_bites_on_feedback_to_the_last_decision() -> None:
    assert "late_feedback_reaches_its_bin" in broken_clauses(LastDecision(bins=8, offload_cost=0.5))


def test_the_suite_bites_on_an_incomplete_state() -> None:
    assert "restores_bit_identically" in broken_clauses(Forgetful(bins=8, offload_cost=0.5))


def test_check_policy_names_the_failure() -> None:
    with pytest.raises(NotConforming, match="the copy decides differently"):
        check_policy(Forgetful(bins=8, offload_cost=0.5))
