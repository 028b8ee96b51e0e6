"""Every registered policy keeps every clause; broken ones do not."""

from collections.abc import Mapping
from typing import Any

import pytest

from hinge import build
from hinge.policies import Decision, HILCBLite, Policy, Probation, policy_names
from hinge.testing import CLAUSES, NotConforming, check_policy

HISTORY = [0, 1, 2, 3, 4, 5, 6, 7] * 4
SETTINGS = {
    "bins": 8,
    "alpha": 0.52,
    "horizon": 1000,
    "seed": 1,
    "threshold": 0.6,
    "agreement": [0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.95],
    "history": HISTORY,
    "agreed": [bin > 3 for bin in HISTORY],
}
LEARNED = ("hi-lcb", "hi-lcb-lite", "hedge-hi", "hil-f")  # the cost


def prototypes() -> dict[str, Policy]:
    """Every policy with a known cost and, where it can do without, with a learned or told one."""
    known = {name: build(name, offload_cost=0.5, **SETTINGS) for name in policy_names()}
    learned = {f"{name}-learned": build(name, **SETTINGS) for name in LEARNED}
    return {**known, **learned, "hedge-hi-coin": build("hedge-hi", complexity="N", offload_cost=0.5, **SETTINGS)}


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

    def learn(
        self, decision: Decision, agreed: float | None = None, cost: float | None = None, *, bin: int | None = None
    ) -> int:
        return super().learn(decision, agreed, cost, bin=self.last)


class Forgetful(HILCBLite):
    """Broken: does not save all that it has learned.

    >>> Forgetful().bins
    16
    """

    evidence: tuple[str, ...] = ("offloads", "costs")


class Stubborn(Probation):
    """Broken: the price is not saved.

    >>> Stubborn().bins
    16
    """

    saved = tuple(name for name in Probation.saved if name != "price")


class Greedy(HILCBLite):
    """Broken: what is merged twice counts twice.

    >>> Greedy().bins
    16
    """

    def merge(self, state: Mapping[str, Any]) -> None:
        super().merge({**state, "id": f"{len(self.state()['merged'])}"})


@pytest.mark.medium
@pytest.mark.parametrize(
    ("policy", "clause"),
    [
        (LastDecision(bins=8, offload_cost=0.5), "feedback_in_any_order"),
        (Forgetful(bins=8, offload_cost=0.5), "continues_bit_identically"),
        (Stubborn(bins=8, offload_cost=0.2), "prices_are_told_or_refused"),
        (Greedy(bins=8, offload_cost=0.5), "merging_adds_evidence"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_suite_bites(policy: Policy, clause: str) -> None:
    (broken,) = (each for each in CLAUSES if each.__name__ == clause)
    with pytest.raises(NotConforming):
        broken(policy)


def test_check_policy_names_the_clause() -> None:
    with pytest.raises(NotConforming, match=r"^prices_are_told_or_refused: the price was not saved$"):
        check_policy(Stubborn(bins=8, offload_cost=0.2))
