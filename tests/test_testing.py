"""Every registered policy keeps every clause; broken ones do not."""

import pytest
from _pytest.mark import ParameterSet

from hinge import DiscountedIsotonic, Isotonic, at_most, build, on_budget
from hinge.policies import Decision, HILCBLite, Policy, policy_names
from hinge.testing import CLAUSES, Clause, NotConforming, check_policy

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
PRICED = ("isotonic", "hi-lcb", "hi-lcb-lite", "kl", "pooled-kl", "discounted-isotonic", "sliding-window-hi-lcb")
FIXED_COST = {"offline", "logistic", "oracle", "static"}  # they weigh a cost that they cannot learn


def prototypes() -> list[Policy]:
    """Every policy with a known cost and, where it can do without, with a learned one."""
    names = policy_names()
    known = [build(name, offload_cost=0.5, **SETTINGS) for name in names]
    learned = [build(name, offload_cost=None, **SETTINGS) for name in names if name not in FIXED_COST]
    return known + [policy for policy in learned if "offload_cost" in policy.parameters] + budgeted()


def budgeted() -> list[Policy]:
    """Every kind of policy within a limit and at a price, and one budget within another."""
    inner = [build(name, offload_cost=0.5, **SETTINGS) for name in ("isotonic", "thompson", "sliding-window-hi-lcb")]
    priced = [build(name, offload_cost=cost, **SETTINGS) for name in PRICED for cost in (0.1, None)]
    nested = at_most(at_most(on_budget(DiscountedIsotonic(8, offload_cost=0.1), 0.3), 0.3, 40), 0.5, 4)
    limited = [at_most(policy, 0.3, 50) for policy in inner]
    dear = at_most(on_budget(Isotonic(8, offload_cost=0.05), 0.1), 0.9, 1000)
    others = [on_budget(Isotonic(8), cost=0.05), nested, dear]
    return [*limited, *(on_budget(policy, 0.2) for policy in priced), *others]


def label(policy: Policy) -> str:
    inside = getattr(policy, "policy", None)
    return f"{policy.name}-{inside['policy'] + '-' if inside else ''}{policy.offload_cost}"


def slow_variants(policies: list[Policy]) -> list[ParameterSet]:
    """The policies as parameters; beyond the first of each name they are marked slow."""
    first = {policy.name: policy for policy in reversed(policies)}
    return [
        pytest.param(policy, id=label(policy), marks=() if first[policy.name] is policy else pytest.mark.slow)
        for policy in policies
    ]


def slow_clauses() -> list[ParameterSet]:
    """The clauses as parameters; the one that makes 65 536 decisions is marked slow."""
    bounded = "missing_feedback_is_bounded"
    return [pytest.param(c, id=c.__name__, marks=pytest.mark.slow if c.__name__ == bounded else ()) for c in CLAUSES]


@pytest.mark.parametrize("clause", slow_clauses())
@pytest.mark.parametrize("policy", slow_variants(prototypes()))
def test_clause(policy: Policy, clause: Clause) -> None:
    clause(policy)


def test_all_policies_are_found() -> None:
    assert len({policy.name for policy in prototypes()}) == 28


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
