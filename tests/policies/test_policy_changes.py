"""`Policy.changed`: another price or alpha, and everything that was learned before it."""

from typing import Any

import pytest

from hinge import Isotonic, Policy, Sentinel, at_most, build, on_budget
from hinge.policies import policy_class, policy_names

BINS = 4
LOG = [(bin, (7 * row + bin) % 10 < 4 + 2 * bin) for row in range(60) for bin in range(BINS)]
PRICED = [
    name
    for name in policy_names()
    if "offload_cost" in policy_class(name).settings()
    and "offload_cost" not in policy_class(name).merges_on
    and "offloads" in policy_class(name).evidence
]


def taught(policy: Policy) -> Policy:
    """The policy after the log, each row of which was offloaded."""
    bins, agreed = zip(*LOG, strict=True)
    policy.learn_log(bins, agreed, weight=1)
    return policy


@pytest.mark.parametrize("name", PRICED)
@pytest.mark.parametrize("cost", [0.1, 0.3, 0.8])
def test_it_decides_as_one_that_learned_the_same_at_the_new_price(name: str, cost: float) -> None:
    settings: dict[str, Any] = {"bins": BINS, "seed": 1}
    changed = taught(build(name, offload_cost=0.5, **settings)).changed(offload_cost=cost)
    other = taught(build(name, offload_cost=cost, **settings))
    assert changed.parameters == other.parameters
    assert [changed.explain(bin) for bin in range(BINS)] == [other.explain(bin) for bin in range(BINS)]


def test_the_clock_the_id_and_open_decisions_stay() -> None:
    policy = Isotonic(bins=BINS, offload_cost=0.5)
    open_one = policy.decide(2)
    changed = policy.changed(offload_cost=0.2, alpha=0.9)
    assert (changed.id, changed.time, changed.offload_cost, changed.alpha) == (policy.id, 1, 0.2, 0.9)
    changed.learn(open_one, agreed=True)
    assert (changed.learned, policy.learned) == (1, 0), "the policy itself is as it was"


def test_a_licence_for_good_ends_with_the_price_that_gave_it() -> None:
    policy = Sentinel(bins=BINS, offload_cost=1.0)
    assert not policy.decide(0).offload
    assert "for good" in str(policy.explain(0))
    assert policy.changed(offload_cost=0.3).decide(0).offload, "nothing is known that would pay at this price"


def test_a_budget_keeps_what_it_has_spent() -> None:
    policy = at_most(on_budget(Sentinel(bins=BINS, offload_cost=0.1), offloads=0.3), offloads=0.2, window=10)
    for _ in range(3):
        decision = policy.decide(1)
        if decision.offload:
            policy.learn(decision, agreed=False)
    changed = policy.changed(offload_cost=0.2)
    assert changed.unlimited.offload_cost == 0.2
    assert [changed.decide(1).offload for _ in range(7)] == [False] * 7, "two of ten were spent"
    assert changed.decide(1).offload


@pytest.mark.parametrize(
    ("policy", "settings", "problem"),
    [
        ("hedge-hi", {"offload_cost": 0.3}, "what hedge-hi knows depends on it"),
        ("static", {"offload_cost": 0.3}, "what static knows depends on it"),
        ("sentinel", {"alpha": 0.3}, "alpha cannot be changed: of sentinel, offload_cost can"),
        ("target", {"target": 0.9}, "target cannot be changed: of target, nothing can"),
        ("isotonic", {"offload_cost": None}, "one that is learned needs other evidence"),
        ("isotonic", {"alpha": -1}, "alpha must be > 0, got -1"),
    ],
)
def test_what_cannot_be_changed_is_refused(policy: str, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        build(policy, bins=BINS, offload_cost=0.5, horizon=100).changed(**settings)


def test_a_price_that_is_learned_is_not_set() -> None:
    with pytest.raises(ValueError, match="one that is learned needs other evidence"):
        Isotonic(bins=BINS).changed(offload_cost=0.5)
