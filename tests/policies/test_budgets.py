"""Budgets hold: in every window, and in the long run, whatever comes."""

import random
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge import HILCB, InvalidState, Isotonic, Policy, at_most, on_budget, simulate
from hinge.policies import AlwaysRemote, HedgeHI, OnBudget, Sentinel, Static
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Synthetic
from hinge.testing import tell

RISING = np.linspace(0.1, 0.95, 8)


def offload_times(policy: Policy, bins: list[int]) -> list[int]:
    return [time for time, bin in enumerate(bins, start=1) if policy.decide(bin).offload]


def fullest_window(times: list[int], window: int) -> int:
    """The most offloads in any `window` consecutive samples: one of the fullest begins with an offload."""
    return max((sum(start <= time < start + window for time in times) for start in times), default=0)


@settings(max_examples=150)
@given(
    bins=st.lists(st.integers(0, 3), max_size=300),
    offloads=st.floats(0.02, 1.0),
    window=st.integers(1, 60),
)
def test_every_window_holds_whatever_comes(bins: list[int], offloads: float, window: int) -> None:
    if offloads * window < 1:
        return
    policy = at_most(Static(bins=4, threshold=2), offloads, window)
    times = offload_times(policy, bins)
    assert fullest_window(times, window) <= offloads * window + 1e-9
    wanted = [time for time, bin in enumerate(bins, start=1) if bin < 2]
    for time in wanted:  # nothing is refused that would fit
        if time not in times:
            recent = [other for other in times if time - window < other < time]
            assert len(recent) == int(offloads * window + 1e-9)


def test_an_audit_inside_a_budget_is_one() -> None:
    alone, limited = Sentinel(2, offload_cost=0.5), at_most(Sentinel(2, offload_cost=0.5), 1.0, 10)
    marked = []
    for _ in range(2_000):
        one, other = (each.decide(1) for each in (alone, limited))
        assert one.offload == other.offload
        if one.offload:
            marked.append(alone.is_audit(one))
            assert limited.is_audit(other) == marked[-1]
            alone.learn(one, True)
            limited.learn(other, True)
    assert not marked[0]
    assert any(marked)


@pytest.mark.medium
def test_the_limit_holds_while_learning_with_late_and_missing_feedback() -> None:
    chance, policy, waiting = random.Random(3), at_most(Isotonic(8, offload_cost=0.3), 0.1, 100), []
    times = []
    for time in range(1, 20_001):
        bin = chance.randrange(8)
        decision = policy.decide(bin)
        if decision.offload:
            times.append(time)
            waiting.append(decision)
        if waiting and chance.random() < 0.05:
            policy.learn(waiting.pop(chance.randrange(len(waiting))), agreed=chance.random() < RISING[bin])
    assert len(times) > 1000
    assert fullest_window(times, 100) == 10


def test_exact_shares_are_not_lost_to_rounding() -> None:
    assert len(offload_times(at_most(AlwaysRemote(4), 0.29, 100), [0] * 100)) == 29


def spent_by(policy: OnBudget, samples: list[tuple[int, bool, float]]) -> list[float]:
    """What was spent up to each sample."""
    spent, total = [], 0.0
    for sample in samples:
        decision = policy.decide(sample[0])
        tell(policy, decision, sample)
        if decision.offload:
            total += 1.0 if policy.cost is None else sample[2]
        spent.append(total)
    return spent


@pytest.mark.slow
@pytest.mark.parametrize("inside", [HILCB(8, offload_cost=0.1), Isotonic(8, offload_cost=0.1), HILCB(8), Isotonic(8)])
@pytest.mark.parametrize("kind", ["random", "worst first", "always the lowest"])
def test_what_is_spent_stays_within_the_stated_bound(inside: Policy, kind: str) -> None:
    chance = random.Random(5)
    bins = [chance.randrange(8) for _ in range(30_000)]
    bins = {"random": bins, "worst first": sorted(bins), "always the lowest": [0] * len(bins)}[kind]
    samples = [(bin, chance.random() < RISING[bin], chance.choice((0.05, 0.15))) for bin in bins]
    for policy in (on_budget(inside.fresh(), 0.2), on_budget(inside.fresh(), cost=0.03)):
        target = policy.offloads or policy.cost or 0.0
        first = max(policy.rate, 0.2 / policy.review**0.5)
        slack = (1 + first * policy.review) / policy.rate + policy.review
        for time, spent in enumerate(spent_by(policy, samples), start=1):
            assert spent <= target * time + slack


@pytest.mark.parametrize("delay", [3_000, 10**9])
def test_late_and_missing_feedback_cannot_break_the_bound(delay: int) -> None:
    """A cost that has to be learned is booked at its most until it is known."""
    policy = on_budget(Isotonic(4), cost=0.03)
    slack = (1 + 0.2 / 10**0.5 * 10) / policy.rate + policy.review
    waiting, spent = [], 0.0
    for time in range(1, 20_001):
        decision = policy.decide(0)
        if decision.offload:
            spent += 1.0
            waiting.append((time, decision))
        while waiting and waiting[0][0] + delay <= time:
            policy.learn(waiting.pop(0)[1], agreed=False, cost=1.0)
        assert spent <= 0.03 * time + slack
    assert spent > 100


def test_a_price_inside_a_limit_is_restored() -> None:
    chance, policy = random.Random(1), at_most(on_budget(Isotonic(8, offload_cost=0.05), 0.2), 0.9, 1000)
    samples = [(bin := chance.randrange(8), chance.random() < RISING[bin], 0.05) for _ in range(4_000)]
    for step, sample in enumerate(samples):
        if step % 97 == 0:
            copy = type(policy).restore(policy.state())
            assert copy.table.inner.inner.price[0] == policy.table.inner.inner.price[0]
            assert copy.state() == policy.state()
            explained = policy.explain(sample[0]).offload_probability
            assert explained == copy.decide(sample[0]).offload
        tell(policy, policy.decide(sample[0]), sample)
    inside = policy.inside
    assert isinstance(inside, OnBudget)
    assert inside.price > 0.1


def test_unlike_policies_do_not_merge_through_their_budgets() -> None:
    one = at_most(Isotonic(8, offload_cost=0.5))
    with pytest.raises(InvalidState, match="Isotonic: other_state must have bins=8, got 4"):
        one.merge(at_most(Isotonic(4, offload_cost=0.5)).state())
    with pytest.raises(InvalidState, match="AtMost: other_state must be around 'isotonic'"):
        one.merge(at_most(HILCB(8, offload_cost=0.5)).state())
    nested = at_most(on_budget(Isotonic(8, offload_cost=0.5), 0.2))
    with pytest.raises(InvalidState, match="Isotonic: other_state must have bins=8, got 4"):
        nested.merge(at_most(on_budget(Isotonic(4, offload_cost=0.5), 0.2)).state())


@pytest.mark.slow
def test_the_rate_is_met_and_spent_where_it_is_worth_most() -> None:
    source = Synthetic(RISING, ConstantPrice(0.05))
    policies = {"free": Isotonic(8, offload_cost=0.05), "budget": on_budget(Isotonic(8, offload_cost=0.05), 0.25)}
    policies["limit"] = at_most(Isotonic(8, offload_cost=0.05), 0.25)
    results = simulate(policies, source, 100_000, runs=4, seed=2, record_decisions=True)
    share = {name: record.offload_fraction[:, -1].mean() for name, record in results.items()}
    cost = {name: record.cost_per_sample[:, -1].mean() for name, record in results.items()}
    assert share["free"] > 0.8
    assert share["budget"] == pytest.approx(0.25, abs=0.01)
    assert share["limit"] <= 0.25
    # The two lowest of eight bins deserve the quarter; a limit alone spends it on whoever comes first.
    best = float(np.mean([0.05] * 2 + (1 - RISING[2:]).tolist()))
    assert cost["budget"] == pytest.approx(best, abs=0.01)
    assert cost["limit"] > cost["budget"] + 0.05


@pytest.mark.slow
def test_a_mean_cost_that_is_learned_is_met() -> None:
    source = Synthetic(RISING, BimodalPrice(0.1, 0.3))
    record = simulate([on_budget(Isotonic(8), cost=0.05)], source, 100_000, runs=4, seed=2)["on-budget"]
    assert record.offload_fraction[:, -1].mean() * 0.2 == pytest.approx(0.05, abs=0.003)


@pytest.mark.slow
def test_without_need_the_price_is_nothing() -> None:
    source = Synthetic(RISING, ConstantPrice(0.5))
    policies = {"free": Isotonic(8, offload_cost=0.5), "budget": on_budget(Isotonic(8, offload_cost=0.5), 0.9)}
    results = simulate(policies, source, 5_000, seed=2, record_decisions=True)
    free, budget = (results[name].runs[0].decisions for name in ("free", "budget"))
    assert free is not None
    assert budget is not None
    assert free[500:].mean() == pytest.approx(budget[500:].mean(), abs=0.01)


def test_a_policy_goes_on_under_its_budget() -> None:
    policy = Isotonic(8, offload_cost=0.5)
    waiting = [policy.decide(7) for _ in range(20)]
    limited = at_most(policy, 0.2, 100)
    for decision in islice(waiting, 10):
        limited.learn(decision, agreed=True)
    assert limited.time == 20
    assert not limited.decide(7).offload


def test_what_cannot_be_put_on_a_budget_is_refused() -> None:
    with pytest.raises(TypeError, match="AtMost: policy must learn from offloads alone"):
        at_most(HedgeHI(horizon=100, bins=4))
    with pytest.raises(TypeError, match="AtMost: policy must learn from offloads alone"):
        at_most(HedgeHI(horizon=100, bins=4, offload_cost=0.5))  # it weighs what it sees by the chance of seeing it
    inside = Isotonic(4)
    at_most(inside)
    with pytest.raises(ValueError, match="AtMost: policy must not be inside another already"):
        at_most(inside)
    with pytest.raises(TypeError, match="OnBudget: policy must weigh a price that can be moved"):
        on_budget(AlwaysRemote(4), 0.2)
    with pytest.raises(TypeError, match="OnBudget: offloads or cost must be given, and not both"):
        on_budget(Isotonic(4), 0.2, cost=0.1)
    with pytest.raises(ValueError, match=r"AtMost: offloads must allow one in 10 samples at least, got 0\.01"):
        at_most(Isotonic(4), 0.01, 10)
    with pytest.raises(TypeError, match="AtMost: policy must be a policy, got 'isotonic'"):
        at_most("isotonic")  # type: ignore[arg-type]  # that is the point


def test_explanations_say_what_the_budget_says() -> None:
    policy = at_most(Isotonic(8, offload_cost=0.5), 0.2, 10)
    for _ in range(4):
        policy.decide(0)
    assert str(policy.explain(0)) == (
        "Bin 0 is accepted: at most 2 of 10 samples are offloaded, and the next may go in 7 samples."
    )
    assert "the price for 0.2 offloads a sample is 0" in str(on_budget(Isotonic(8, offload_cost=0.5), 0.2).explain(0))
