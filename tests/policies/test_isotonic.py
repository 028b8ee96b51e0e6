"""Isotonic against brute force: the min-max formula of isotonic regression in place of pooling neighbours."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge import HILCB, Isotonic, Sentinel, build, restore, simulate
from hinge.policies.isotonic import expiry_of
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Synthetic

ALPHA = 0.52


def divergence(p: Fraction, q: float) -> float:
    sides = ((float(p), q), (1 - float(p), 1 - q))
    return math.fsum(x * math.log(x / y) if y > 0 else math.inf for x, y in sides if x > 0)


def isotonic_fit(offloads: list[int], agreements: list[int], bin: int) -> dict[int, Fraction]:
    """f̂_j = max over s ≤ j of min over e ≥ j of the mean of bins s..e, over the bins up to `bin` that were seen."""
    seen = [j for j in range(bin + 1) if offloads[j]]

    def mean(start: int, end: int) -> Fraction:
        group = [j for j in seen if start <= j <= end]
        return Fraction(sum(agreements[j] for j in group), sum(offloads[j] for j in group))

    return {j: max(min(mean(s, e) for e in seen if e >= j) for s in seen if s <= j) for j in seen}


def offloads_by_formula(offloads: list[int], agreements: list[int], bin: int, cost: Fraction, time: int) -> bool:
    fit, q = isotonic_fit(offloads, agreements, bin), 1 - cost
    if q <= 0:
        return False  # nothing is worse than such an offload
    blocks: dict[Fraction, list[int]] = {}  # neighbours of one fitted mean are one block
    for j, mean in fit.items():
        if mean > q:
            counts = blocks.setdefault(mean, [0, 0])
            counts[0] += offloads[j]
            counts[1] += agreements[j]
    evidence = math.fsum(evidence_of(n, a, q) for n, a in blocks.values())
    support = sum(n for n, a in blocks.values() if evidence_of(n, a, q) > 0)
    if not support:
        return True
    span = math.log1p(time / support)
    return not evidence > 0.5 + 2 * ALPHA * (span - math.log1p(span))


def evidence_of(offloads: int, agreements: int, q: Fraction) -> float:
    mean = Fraction(agreements + 1, offloads + 2)
    return (offloads + 2) * divergence(mean, float(q)) if mean > q else 0.0


@pytest.mark.medium
@pytest.mark.parametrize("bins", [1, 2, 5, 9])
@pytest.mark.parametrize("cost", [Fraction(1, 2), Fraction(1, 5), Fraction(4, 5), Fraction(0), Fraction(1)])
def test_every_decision_follows_the_formula(bins: int, cost: Fraction) -> None:
    chance, policy = random.Random(7), Isotonic(bins, ALPHA, float(cost))
    offloads, agreements = [0] * bins, [0] * bins
    for time in range(1, 1201):
        bin = chance.randrange(bins)
        agreed = chance.random() < 0.2 + 0.7 * bin / bins
        expected = offloads_by_formula(offloads, agreements, bin, cost, time)
        decision = policy.decide(bin)
        assert decision.offload == expected, (time, bin)
        if decision.offload:
            policy.learn(decision, agreed=agreed)
            offloads[bin] += 1
            agreements[bin] += agreed


STALE = (  # (bin, agreed) of 4 bins at cost 0.3: a refit that stopped at the first fit without a change kept old sums
    "01 11 31 01 31 20 01 21 01 20 00 31 31 31 31 11 31 11 21 01 11 31 01 21 "
    "11 20 11 31 00 10 01 31 21 21 21 01 11 10 00 00"
)


def test_higher_bins_follow_a_refit_that_they_pool_past() -> None:
    policy, feedback = Isotonic(4, ALPHA, 0.3), [(int(pair[0]), pair[1] == "1") for pair in STALE.split()]
    waiting = [policy.decide(bin) for bin, _ in feedback]
    for decision, (_, agreed) in zip(waiting, feedback, strict=True):
        policy.learn(decision, agreed=agreed)
    assert policy.expiry(3) == Isotonic.restore(policy.state()).expiry(3) == 95


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    bins=st.integers(2, 12),
    percent=st.integers(1, 99),
    chance=st.randoms(use_true_random=False),
    length=st.integers(1, 80),
)
def test_after_every_feedback_the_state_is_what_the_formula_says(
    bins: int, percent: int, chance: random.Random, length: int
) -> None:
    """Live, restored and by the min-max formula, after each feedback, whatever the order."""
    cost = Fraction(percent, 100)
    policy = Isotonic(bins, ALPHA, float(cost))
    rising = [chance.random() for _ in range(bins)]
    waiting = list(policy.decide_many([chance.randrange(bins) for _ in range(length)]))
    waiting = [decision for decision in waiting if decision.offload]
    chance.shuffle(waiting)
    offloads, agreements = [0] * bins, [0] * bins
    for decision in waiting:
        bin = decision.bin or 0
        agreed = chance.random() < rising[bin]
        policy.learn(decision, agreed=agreed)
        offloads[bin] += 1
        agreements[bin] += agreed
        again = Isotonic.restore(policy.state())
        assert [again.expiry(each) for each in range(bins)] == [policy.expiry(each) for each in range(bins)]
        for each in range(bins):
            expected = offloads_by_formula(offloads, agreements, each, cost, policy.time + 1)
            assert (policy.expiry(each) <= policy.time + 1) == expected


UNSEEN_BETWEEN = (  # (bin, agreed): block 11 had taken in bin 10, which was unseen, and went on without it
    *((8, 0), (6, 1), (9, 0), (11, 1), (10, 0), (7, 1), (15, 1), (9, 1)),
    *((9, 0), (9, 0), (6, 1), (9, 0), (5, 1), (1, 1), (14, 0)),
)


@pytest.mark.parametrize("kind", [Isotonic, Sentinel])
def test_evidence_counts_bins_that_were_unseen_when_a_block_took_them_in(kind: type[Isotonic | Sentinel]) -> None:
    policy = kind(16, offload_cost=0.5)
    waiting = [policy.decide(bin) for bin, _ in UNSEEN_BETWEEN]
    for decision, (_, agreed) in zip(waiting, UNSEEN_BETWEEN, strict=True):
        policy.learn(decision, agreed=bool(agreed))
    restored = restore(policy.state())
    assert policy.table.evidence == restored.table.evidence
    assert policy.table.support == restored.table.support


def test_the_explanation_says_which_bins_are_evidence() -> None:
    policy = Isotonic(bins=8, offload_cost=0.5)
    for decision in policy.decide_many([3] * 4 + [4] * 4):
        policy.learn(decision, agreed=decision.time != 1)
    assert "no offload of it seen yet (bins 3–4 together: 7 of 8)" in str(policy.explain(7))
    assert "local agreed in 4 of 4 offloads (bins 3–4 together: 7 of 8)" in str(policy.explain(4))
    assert str(policy.explain(2)).startswith("Bin 2 is offloaded: no offload of it seen yet;")


@pytest.mark.medium
def test_a_learned_cost_enters_through_its_bernstein_bound() -> None:
    chance, policy = random.Random(3), Isotonic(4, ALPHA)
    offloads, agreements, costs = [0] * 4, [0] * 4, [0.0]
    del costs[0]
    accepted = 0
    for time in range(1, 2501):
        bin = chance.randrange(4)
        cost = chance.choice((0.45, 0.55))
        expected = True
        if costs:
            mean = math.fsum(costs) / len(costs)
            variance = math.fsum((one - mean) ** 2 for one in costs) / len(costs)
            doubt = 2 * ALPHA * math.log(time)
            bound = mean - math.sqrt(2 * variance * doubt / len(costs)) - doubt / len(costs)
            if bound > 0:
                expected = offloads_by_formula(offloads, agreements, bin, Fraction(bound), time)
        decision = policy.decide(bin)
        assert decision.offload == expected, (time, bin)
        accepted += not decision.offload
        if decision.offload:
            agreed = chance.random() < (0.1, 0.4, 0.7, 0.95)[bin]
            policy.learn(decision, agreed=agreed, cost=cost)
            offloads[bin] += 1
            agreements[bin] += agreed
            costs.append(cost)
    assert accepted > 500


def test_an_unseen_bin_is_licensed_by_lower_ones() -> None:
    policy = Isotonic(bins=8, offload_cost=0.5)
    for _ in range(30):
        decision = policy.decide(4)
        if decision.offload:
            policy.learn(decision, agreed=True)
    assert not policy.decide(7).offload
    assert policy.decide(3).offload


def test_an_expiry_is_where_the_bound_gives_way() -> None:
    for evidence, support in ((0.5001, 3000.0), (0.6, 300.0), (4.0, 17.0), (15.0, 250.0), (19.9, 25.0)):
        end = expiry_of(evidence, support, ALPHA)
        before, after = (math.log1p(time / support) for time in (end - 1, end))
        assert evidence > 0.5 + 2 * ALPHA * (before - math.log1p(before))
        assert not evidence > (0.5 + 2 * ALPHA * (after - math.log1p(after))) * (1 + 1e-12)
    assert expiry_of(0.5, 3000.0, ALPHA) == 0


@pytest.mark.slow
@pytest.mark.parametrize("costs", [ConstantPrice(0.5), BimodalPrice()], ids=["known", "learned"])
def test_it_pays_well_under_half_of_what_hi_lcb_pays(costs: ConstantPrice | BimodalPrice) -> None:
    source = Synthetic([0.1 + 0.055 * bin for bin in range(16)], costs)
    known = costs.mean if isinstance(costs, ConstantPrice) else None
    policies = [build("isotonic", offload_cost=known), HILCB(offload_cost=known)]
    results = simulate(policies, source, horizon=50_000, runs=20, seed=1)
    ours, theirs = (results[name].regret[:, -1].mean() for name in ("isotonic", "hi-lcb"))
    assert ours < 0.5 * theirs
