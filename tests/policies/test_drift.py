"""Policies that forget: against sums taken anew for every decision, and against what they promise."""

import math
import random
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from hinge import DiscountedIsotonic, build, simulate
from hinge.policies import DiscountedHILCB
from hinge.policies.drift import Forgetting
from hinge.policies.isotonic import doubt, lowest_cost
from hinge.simulation.sources import ConstantPrice, Drifting, Sudden, Synthetic
from hinge.testing import play

KINDS = (DiscountedIsotonic, DiscountedHILCB)
ALPHA, BINS = 0.52, 5


class Offload(NamedTuple):
    """What an offload taught."""

    time: int
    bin: int
    agreed: bool
    cost: float


def kl(p: float, q: float) -> float:
    sides = ((p, q), (1 - p, 1 - q))
    return math.fsum(x * math.log(x / y) for x, y in sides if x > 0)


def isotonic_blocks(counts: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Weight and agreements of the blocks of the fit, by joining neighbours out of order until there are none."""
    blocks = [pair for pair in counts if pair[0] > 0]
    while True:
        means = [agreements / offloads for offloads, agreements in blocks]
        wrong = [i for i, (low, high) in enumerate(pairwise(means)) if low >= high]
        if not wrong:
            return blocks
        i = wrong[0]
        blocks[i : i + 2] = [(blocks[i][0] + blocks[i + 1][0], blocks[i][1] + blocks[i + 1][1])]


def accepts(
    kind: type[Forgetting], memory: int, seen: list[Offload], bin: int, now: int, cost: float | None, learned_at: int
) -> bool:
    """The rule, from all that was ever learned: evidence is taken when something is learned, and fades as a whole."""
    weights = [(1 - 1 / memory) ** (now - offload.time) for offload in seen]
    left = (1 - 1 / memory) ** (now - learned_at)
    reach, isotonic = min(now, memory), kind is DiscountedIsotonic
    if cost is None:
        total = math.fsum(weights)
        if total == 0:
            return False
        mean = math.fsum(w * o.cost for w, o in zip(weights, seen, strict=True)) / total
        variance = max(0.0, math.fsum(w * o.cost**2 for w, o in zip(weights, seen, strict=True)) / total - mean**2)
        cost = mean - math.sqrt(ALPHA * math.log(reach) / total)
        if isotonic:
            cost = lowest_cost(mean, variance, total, reach, ALPHA)
    if not 0 < cost < 1:
        return cost >= 1
    q, counts = 1 - cost, []
    for i in range(bin + 1):
        own = [(w, w * o.agreed) for w, o in zip(weights, seen, strict=True) if o.bin == i]
        counts.append((math.fsum(w for w, _ in own), math.fsum(a for _, a in own)))
    if not isotonic:
        strengths = [2 * n * (a / n - q) ** 2 for n, a in counts if n > 0 and a > q * n]
        return max(strengths, default=0.0) > 2 * ALPHA * math.log(reach) if strengths else False
    evidence, support = 0.0, 0.0
    for n, a in isotonic_blocks(counts):
        seen_then, mean = n / left + 2, (a / left + 1) / (n / left + 2)
        if a / n > q + 1e-9 and mean > q:
            evidence += left * seen_then * kl(mean, q)
            support += n
    return support > 0 and evidence > doubt(reach, support, ALPHA)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [0.5, 0.15, None])
@pytest.mark.parametrize("kind", KINDS)
def test_every_decision_follows_the_rule(kind: type[Forgetting], cost: float | None) -> None:
    """No alarm, no audit: every decision from all feedback ever, weighed by its age, some of it late."""
    chance, memory = random.Random(4), 320
    policy = kind(BINS, ALPHA, cost, memory=memory, audit=0.0)
    seen: list[Offload] = []
    late: list[tuple[int, Offload]] = []
    learned_at = 0
    for time in range(1, 1501):
        bin = chance.randrange(BINS)
        expected = accepts(kind, memory, seen, bin, time, cost, learned_at)
        decision = policy.decide(bin)
        assert decision.offload == (not expected), (time, bin)
        if decision.offload:
            offload = Offload(time, bin, chance.random() < 0.1 + 0.88 * bin / (BINS - 1), chance.choice((0.4, 0.6)))
            if chance.random() < 0.3:
                late.append((chance.randint(1, 400), offload))
            else:
                policy.learn(decision, offload.agreed, offload.cost)
                seen.append(offload)
                learned_at = time
        for due in [pair for pair in late if pair[0] <= 0]:
            waiting = next(d for d in policy._pending.values() if d.time == due[1].time)
            policy.learn(waiting, due[1].agreed, due[1].cost)
            seen.append(due[1])
            learned_at = time
        late = [(left - 1, offload) for left, offload in late if left > 0]
    assert policy.table.forgotten.tolist() == [0, 0]
    assert len(seen) > 75


@pytest.mark.parametrize("kind", KINDS)
def test_an_explanation_says_when_a_bin_is_checked_again(kind: type[Forgetting]) -> None:
    for audit in (0.0, 0.02):
        policy = kind(4, offload_cost=0.5, memory=800, audit=audit)
        play(policy, 1500)
        for seed in range(100):  # until the bin has a licence
            if policy.explain(3).samples_left:
                break
            play(policy, 10, seed)
        left = policy.explain(3).samples_left
        assert left
        for _ in range(left):
            assert not policy.decide(3).offload
        assert policy.decide(3).offload


@pytest.mark.parametrize("kind", KINDS)
def test_audits_come_as_often_as_stated_and_no_more(kind: type[Forgetting]) -> None:
    """A memory so long that nothing fades: what is offloaded of a bin that always agrees are audits."""
    policy = kind(2, offload_cost=0.5, memory=10**9, audit=0.01)
    times, marked = [], []
    for time in range(1, 20_001):
        decision = policy.decide(1)
        if decision.offload:
            times.append(time)
            marked += [time] * policy.is_audit(decision)
            policy.learn(decision, agreed=True)
    audits = [time for time in times if time > 2_000]
    assert marked[-len(audits) :] == audits
    assert times[0] not in marked  # nothing is accepted yet
    assert {after - before for before, after in pairwise(audits)} == {100}


@pytest.mark.medium
@pytest.mark.parametrize("name", ["discounted-isotonic", "discounted-hi-lcb"])
def test_an_alarm_drops_the_licences_at_once(name: str) -> None:
    """All bins agree, then none: an audit in 20 notices after a few dozen audits, not after a memory."""
    policy = build(name, bins=4, offload_cost=0.5, memory=100_000, audit=0.05)
    chance = random.Random(2)
    dropped = None
    for time in range(1, 20_001):
        decision = policy.decide(chance.randrange(4))
        if decision.offload:
            policy.learn(decision, agreed=time <= 10_000 or chance.random() < 0.2)
            if dropped is None and policy.table.forgotten[0]:
                dropped = time
    assert dropped is not None
    assert 10_000 < dropped < 10_500
    assert all(policy.explain(bin).offload_probability == 1 for bin in range(4))


def test_a_rise_and_a_new_cost_are_noticed_too() -> None:
    policy = DiscountedIsotonic(4, memory=100_000, audit=0.0)
    for time in range(1, 6_001):
        decision = policy.decide(time % 4)
        if decision.offload:
            policy.learn(decision, agreed=time > 3_000, cost=0.5 if time <= 4_000 else 0.1)
    agreement, costs = policy.table.forgotten
    assert 3_000 < agreement < 3_100
    assert costs == 0  # every bin is accepted by then: nothing tells the cost
    other = DiscountedIsotonic(2, memory=100_000, audit=0.0)
    for time in range(1, 3_001):
        other.learn(other.decide(0), agreed=False, cost=0.5 if time <= 2_000 else 0.1)
    assert 2_000 < other.table.forgotten[1] < 2_200


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated() -> None:
    """Once in 10 memories of offloads at most: 40 runs of one memory each, all offloaded, can bear 12 (p < 0.001)."""
    alarms = 0
    for seed in range(40):
        policy, chance = DiscountedIsotonic(4, offload_cost=0.3, memory=2_000, audit=0.0), random.Random(seed)
        for _ in range(2_000):
            policy.learn(policy._await(True, chance.randrange(4), policy.time + 1), agreed=chance.random() < 0.65)
            policy.time += 1
        alarms += policy.table.forgotten[0] > 0
    assert alarms <= 12


@pytest.mark.slow
def test_after_a_change_forgetting_pays() -> None:
    rising = np.linspace(0.15, 0.97, 16)
    before, after = (Synthetic(np.clip(rising - fall, 0, 1), ConstantPrice(0.5)) for fall in (0.0, 0.35))
    names = ("hi-lcb", "kl", "isotonic", "thompson", "discounted-isotonic")
    policies = {name: build(name, bins=16, offload_cost=0.5) for name in names}
    results = simulate(policies, Drifting(before, after, Sudden(0.5)), 60_000, runs=10, seed=1, times=[30_000])
    late = {name: (record.regret[:, -1] - record.regret[:, 0]).mean() for name, record in results.items()}
    assert late.pop("discounted-isotonic") < 0.75 * min(late.values())


def test_merging_ages_what_was_merged() -> None:
    one, other = (DiscountedIsotonic(4, offload_cost=0.5, memory=1600, audit=0.0) for _ in range(2))
    play(other, 400)
    one.merge(other.state())
    merged = [one.explain(bin).offloads or 0.0 for bin in range(4)]
    assert merged == pytest.approx([other.explain(bin).offloads or 0.0 for bin in range(4)])
    for _ in range(800):  # nothing is learned meanwhile
        one.decide(3)
    aged = [one.explain(bin).offloads or 0.0 for bin in range(4)]
    assert aged == pytest.approx([(1 - 1 / 1600) ** 800 * count for count in merged])
    for _ in range(20):
        other.decide(3)
    one.merge(other.state())  # newer: counts in place of what is left of the older
    assert [one.explain(bin).offloads or 0.0 for bin in range(4)] == pytest.approx(
        [other.explain(bin).offloads or 0.0 for bin in range(4)]
    )


def test_the_fresher_copy_of_one_state_counts_by_any_route() -> None:
    source, through = (DiscountedIsotonic(4, offload_cost=0.5, memory=200, audit=0.0) for _ in range(2))
    play(source, 400)
    through.merge(source.state())
    for _ in range(1000):
        through.decide(0)
    there = [source.explain(bin).offloads or 0.0 for bin in range(4)]
    for order in ((source, through), (through, source)):
        device = DiscountedIsotonic(4, offload_cost=0.5, memory=200, audit=0.0)
        for other in order:
            device.merge(other.state())
        assert [device.explain(bin).offloads or 0.0 for bin in range(4)] == pytest.approx(there)


def test_an_alarm_drops_what_was_merged_and_keeps_what_came_since() -> None:
    device, other = (DiscountedIsotonic(2, offload_cost=0.5, memory=16_000, audit=0.0) for _ in range(2))
    for _ in range(200):
        other.learn(other._await(True, 1, other.time + 1), agreed=True)
        other.time += 1
    device.merge(other.state())
    while not device.table.alarms[0]:  # it was all wrong
        device.learn(device._await(True, 1, device.time + 1), agreed=False)
        device.time += 1
    for _ in range(300):
        device.learn(device._await(True, 1, device.time + 1), agreed=False)
        device.time += 1
    third = DiscountedIsotonic(2, offload_cost=0.5, memory=16_000, audit=0.0)
    third.merge(device.state())
    assert third.explain(1).agreement == 0
    assert (third.explain(1).offloads or 0.0) == pytest.approx(device.explain(1).offloads or 0.0)
    assert (third.explain(1).offloads or 0.0) > 280


def test_what_comes_too_late_raises_no_alarm() -> None:
    policy = DiscountedIsotonic(2, offload_cost=0.5, memory=1600, audit=0.0)
    old = [policy._await(True, 1, time) for time in range(1, 400)]
    policy.time = 3_000
    for _ in range(1_000):
        policy.time += 1
        policy.learn(policy._await(True, 1, policy.time), agreed=True)
    for decision in old:
        policy.learn(decision, agreed=False)
    assert policy.table.alarms.tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_costs_raise_no_alarm(kind: type[Forgetting]) -> None:
    for cost in (0.0, 0.001, 0.5, 1.0):
        policy = kind(2, memory=1_000, audit=0.0)
        for _ in range(6_000):
            policy.time += 1
            policy.learn(policy._await(True, 0, policy.time), agreed=False, cost=cost)
        assert policy.table.alarms.tolist() == [0, 0], cost
    policy = kind(2, offload_cost=0.005, memory=1_000, audit=0.0)
    for _ in range(6_000):
        policy.time += 1
        policy.learn(policy._await(True, 0, policy.time), agreed=True)
    assert policy.table.alarms.tolist() == [0, 0]


def test_there_is_no_audit_where_there_is_nothing_to_gain() -> None:
    policy = DiscountedIsotonic(4, offload_cost=0.1, stakes=[1.0, 0.05], audit=0.01)
    assert not any(policy.decide(3).offload for _ in range(1_000))
    assert policy.explain(3).expiry is None


def test_an_explanation_does_not_blame_an_audit_for_a_bad_bin() -> None:
    policy = DiscountedIsotonic(4, offload_cost=0.5, memory=1000, audit=0.01)
    for _ in range(2000):
        policy.learn(policy.decide(0), agreed=False)
    assert "accepting would be cheaper above 0.5 of them" in str(policy.explain(0))
    assert "too little evidence" in str(policy.explain(3))
    assert policy.alarms == {"agreement": 0, "cost": 0}


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(ValueError, match=r"DiscountedIsotonic: memory must be an integer from 16 to \d+, got 3"):
        DiscountedIsotonic(4, memory=3)
    with pytest.raises(ValueError, match="DiscountedHILCB: audit must be from 0 to 1, got 2"):
        DiscountedHILCB(4, audit=2)
