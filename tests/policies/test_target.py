"""A target is held whatever comes, and what cannot be held is said."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge import InvalidState, Target, simulate
from hinge.policies.target import MEMORY, PARTS, RATES, charge
from hinge.simulation.sources import ConstantPrice, Synthetic

RUNS = 60
RISING = np.array([0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.99])


def run(policy: Target, length: int, agrees: Callable[[Target, int], bool], seed: int = 0) -> list[tuple[bool, bool]]:
    """Samples of random bins with immediate feedback: whether each was offloaded, and agreed."""
    chance, seen = random.Random(seed), []
    for _ in range(length):
        bin = chance.randrange(policy.bins)
        agreed = agrees(policy, bin)
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agreed=agreed)
        seen.append((decision.offload, agreed))
    return seen


@given(rate=st.sampled_from(RATES), excess=st.floats(1e-3, 1.0), disagreed=st.floats(0.0, 1.0))
def test_what_is_charged_makes_a_martingale(rate: float, excess: float, disagreed: float) -> None:
    least = 1.0 - math.exp(-rate)
    p = least + excess * (1.0 - least)
    factor = (1.0 - p) * math.exp(rate * disagreed) + p * math.exp(-charge(rate, p, disagreed))
    assert factor == pytest.approx(1.0, abs=1e-9)


def test_the_parts_of_what_may_go_wrong_add_up_to_it() -> None:
    assert sum(PARTS) <= 1.0 + 1e-12


@pytest.mark.medium
@settings(max_examples=20)
@given(st.integers(0, 10), st.sampled_from([0.5, 0.8, 0.9]), st.sampled_from(["never", "turns", "all"]))
def test_what_is_promised_is_proved_at_every_time(seed: int, target: float, kind: str) -> None:
    policy = Target(target, bins=3, seed=seed)
    for time in range(1, 1500):
        decision = policy.decide(time % 3)
        if decision.offload:
            policy.learn(decision, agreed=kind == "all" or (kind == "turns" and time < 700))
        elif time > 1:
            assert policy.most_errors <= (1.0 - target) * time + 1e-9
        assert policy.warning is None


@pytest.mark.parametrize("target", [0.8, 0.9, 0.95])
def test_the_first_answer_is_accepted_once_it_could_be_wrong(target: float) -> None:
    """e^(λL) of the largest λ outweighs 1 / wδ when L is all that may disagree: from 23 errors on."""
    policy, time = Target(target, bins=1), 1
    while (decision := policy.decide(0)).offload:
        policy.learn(decision, agreed=True)
        time += 1
    allowed = (1.0 - target) * time
    assert math.exp(RATES[0] * allowed) > 1.0 / (PARTS[0] * 0.05)
    assert allowed < 1.5 * 23


@pytest.mark.slow
@pytest.mark.parametrize("sly", [True, False])
def test_errors_stay_within_the_bound_against_an_adversary(sly: bool) -> None:
    """One who agrees until audits become rare, or who never agrees again once anything was accepted."""

    def agrees(policy: Target, bin: int) -> bool:
        return policy.offload_probability(bin) > (0.3 if sly else 0.999)

    missed, errors = 0, 0
    for seed in range(RUNS):
        seen = run(Target(0.8, bins=2, seed=seed, confidence=0.8), 1500, agrees, seed)
        wrong = np.cumsum([not offloaded and not agreed for offloaded, agreed in seen])
        missed += bool((wrong > 0.2 * np.arange(1, 1501)).any())
        errors += int(wrong[-1])
    assert missed <= 0.2 * RUNS
    assert errors > RUNS * 50  # the adversary had something to win


@pytest.mark.slow
def test_offloads_go_where_they_are_worth_most() -> None:
    """The best threshold offloads the bins below it; a mixture of two thresholds would come closer to the target."""
    record = simulate([Target(0.9, bins=8)], Synthetic(RISING, ConstantPrice(0.5)), 100_000, runs=8, seed=1)["target"]
    losses = 1.0 - RISING
    best = next(k for k in range(9) if losses[k:].sum() / 8 <= 0.1) / 8
    assert (record.accuracy[:, -1] >= 0.9).all()
    assert record.offload_fraction[:, -1].mean() < 1.15 * best
    assert record.accuracy[:, -1].mean() < 0.92  # it does not buy what nobody asked for


def test_where_local_is_good_enough_only_audits_remain() -> None:
    chance = random.Random(1)
    policy = Target(0.8, bins=4)
    seen = run(policy, 12_000, lambda *_: chance.random() < 0.95)
    assert sum(offloaded for offloaded, _ in seen[-4000:]) / 4000 < 0.1
    assert str(policy.explain(2)).endswith("so that nothing needs to be offloaded but audits.")


def test_a_remote_that_fails_is_noticed() -> None:
    policy = Target(0.9, bins=2)
    for _ in range(20):
        policy.forget(policy.decide(0))
    assert policy.warning == "the agreement target cannot be met: offloads fail, or are refused"
    assert policy.warning in str(policy.explain(0))
    run(policy, 2000, lambda *_: True)
    assert policy.warning is None  # the samples since outweigh them


def test_a_gate_that_refuses_offloads_is_noticed() -> None:
    few, all = Target(0.9, bins=2), Target(0.9, bins=2)
    for time in range(3000):
        for policy, most in ((few, 0.2), (all, 1.0)):
            decision = policy.overrule(time % 2, policy.learned < most * (time + 1))
            if decision.offload:
                policy.learn(decision, agreed=time % 4 > 1)
    assert few.warning == "the agreement target cannot be met: offloads fail, or are refused"
    assert all.warning is None


@pytest.mark.parametrize("target", [1e-9, 1.0 - 1e-9])
def test_the_hardest_and_the_easiest_target(target: float) -> None:
    policy = Target(target, bins=2)
    seen = run(policy, 500, lambda _, bin: bin == 1)
    assert any(not offloaded for offloaded, _ in seen) == (target < 0.5)


def test_late_feedback_is_no_failure() -> None:
    policy, waiting = Target(0.8, bins=2), []
    for time in range(3000):
        decision = policy.decide(time % 2)
        if decision.offload:
            waiting.append(decision)
        if len(waiting) > 30:
            policy.learn(waiting.pop(0), agreed=True)
        assert policy.warning is None
    assert policy.offload_probability(0) < 1.0


def test_feedback_takes_back_what_an_offload_was_charged_unless_it_is_too_late() -> None:
    policy = Target(0.9, bins=2)
    early, late = policy.decide(0), policy.decide(0)
    assert policy.table.charges[0] == pytest.approx(2 * RATES[0])
    policy.learn(early, agreed=False)
    assert policy.table.charges[0] == pytest.approx(RATES[0])  # nothing can have been missed at p = 1
    for _ in range(MEMORY):
        decision = policy.decide(1)
        if decision.offload:
            policy.learn(decision, agreed=True)
    before = list(policy.table.charges)
    policy.learn(late, agreed=True)
    assert list(policy.table.charges) == before


def test_another_device_lends_its_evidence_but_not_its_errors() -> None:
    one, other = Target(0.9, bins=2, seed=1), Target(0.9, bins=2, seed=2)
    run(other, 3000, lambda _, bin: bin == 1)
    before = one.most_errors
    one.merge(other.state())
    assert one.most_errors == before
    assert one.counts(0) == other.counts(0) != (0.0, 0.0)


def test_explanations() -> None:
    policy = Target(0.9, bins=2)
    policy.learn(policy.decide(0), agreed=True)
    seen = "1 of 1 agreed; 0 of 1 answers may disagree, too few to judge by"
    assert str(policy.explain(0)) == f"Bin 0 is offloaded with probability 1: {seen}."
    run(policy, 5000, lambda _, bin: bin == 1)
    assert "500 of 5001 answers may disagree, and at most" in str(policy.explain(1))


@pytest.mark.parametrize("charges", [[], [0.0] * 5, [0.0] * 7, [*[0.0] * 5, -1.0]])
def test_states_with_other_numbers_of_rates_are_refused(charges: list[float]) -> None:
    state = Target(0.9, bins=2).state()
    state["table"]["charges"] = charges
    with pytest.raises(InvalidState, match="charges"):
        Target.restore(state)


@pytest.mark.parametrize(("field", "value"), [("stage", 9), ("multiplier", 0.0), ("chances", 1e-6)])
def test_impossible_states_are_refused(field: str, value: float) -> None:
    state = Target(0.9, bins=2).state()
    state["table"][field][0] = value
    with pytest.raises(InvalidState, match=field):
        Target.restore(state)


def test_certainty_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match=r"Target: target must be above 0 and below 1, got 1\.0"):
        Target(1.0)
    with pytest.raises(ValueError, match=r"Target: confidence must be above 0 and below 1, got 1"):
        Target(0.9, confidence=1)
