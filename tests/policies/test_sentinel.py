"""Sentinel, against a literal account of its rules, and where Isotonic goes wrong."""

import math
import random
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from hinge.policies import FOREVER, Isotonic, Policy, Sentinel, at_most, build, on_budget, restore
from hinge.policies.sentinel import (
    ALARM,
    AUDIT,
    ENTRY,
    FALL,
    FALLEN,
    HURRY,
    MISFIT,
    PARTS,
    PROVEN,
    REFUTED,
    RISE,
    RISE_GROWTH,
    SUREST,
    SUSPECTED,
    WARM,
)


class Literal:
    """The rules of the module's docstring with lists, brute force and no incremental anything; the cost is known."""

    def __init__(self, bins: int, cost: float) -> None:
        self.q, self.bins, self.time = 1.0 - cost, bins, 0
        self.alarms = 0
        self.fineness = max(1.0, bins / PARTS)
        self.start()

    def start(self) -> None:
        zeros = [0.0] * self.bins
        self.n, self.a, self.m = zeros[:], zeros[:], zeros[:]
        self.left, self.granted, self.cut, self.unaudited = ([0] * self.bins for _ in range(4))
        self.audits, self.offloads, self.misfit, self.by_bin = 0.0, 0.0, 0.0, zeros[:]
        self.rising, self.since_n, self.since_a = zeros[:], zeros[:], zeros[:]
        self.since = self.time

    def blocks(self, bin: int) -> list[tuple[float, float]]:
        """Pool adjacent violators over the bins up to this one: offloads and agreements of each block."""
        blocks: list[tuple[float, float]] = []
        for n, a in zip(self.n[: bin + 1], self.a[: bin + 1], strict=True):
            if n > 0:
                blocks.append((n, a))
                while len(blocks) > 1 and blocks[-2][1] / blocks[-2][0] >= blocks[-1][1] / blocks[-1][0]:
                    (n1, a1), (n2, a2) = blocks.pop(), blocks.pop()
                    blocks.append((n1 + n2, a1 + a2))
        return blocks

    def mean(self, bin: int, q: float) -> float:
        blocks = self.blocks(bin)
        if not blocks or blocks[-1][1] <= (q + 1e-12) * blocks[-1][0]:
            return 0.0
        return (blocks[-1][1] + 1) / (blocks[-1][0] + 2)

    def refuted(self) -> bool:
        return self.misfit > REFUTED + math.log(self.fineness)

    def evidence(self, blocks: list[tuple[float, float]], q: float) -> tuple[float, float]:
        evidence = support = 0.0
        for n, a in blocks:
            p = (a + 1) / (n + 2)
            if a > (q + 1e-12) * n and p > q:
                evidence += (n + 2) * (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)))
                support += n
        return evidence, support

    def evident(self, bin: int, q: float, samples: int) -> bool:
        """Whether the evidence is enough for so many more samples of a bin."""
        alone = [(self.n[bin], self.a[bin])]
        evidence, support = self.evidence(alone if self.refuted() else self.blocks(bin), q)
        if support == 0.0:
            return False
        span = math.log(1 + (self.m[bin] + samples) / support)
        entry = ENTRY * math.log(1 + self.m[bin] / WARM) + math.log(1 + (self.fineness - 1) * self.alarms)
        return evidence > entry + 2 * 0.6 * (span - math.log(1 + span))

    def longest(self, bin: int, q: float) -> int:
        hurried = self.audits > SUSPECTED or self.offloads > FALLEN or self.by_bin[bin] > SUSPECTED
        if hurried or self.a[bin] < q * self.n[bin]:
            return HURRY
        past = min(self.time - self.since, len(self.n) * self.m[bin])
        samples = AUDIT * math.sqrt(past * max(0.0, self.mean(bin, q) - q)) / q
        if not self.proved(bin, q):
            samples = min(samples, HURRY * self.fineness * (1 + self.n[bin]))
        return max(HURRY, int(samples))

    def proved(self, bin: int, q: float) -> bool:
        return self.evidence([(self.n[bin], self.a[bin])], q)[0] > PROVEN

    def licence(self, bin: int) -> int:
        if not self.evident(bin, self.q, 0):
            return 0
        size = self.longest(bin, self.q)
        while size and not self.evident(bin, self.q, size):
            size //= 2
        return size

    def further(self, bin: int) -> int:
        if not self.proved(bin, self.q):
            return min(self.cut[bin], max(0, self.licence(bin) - self.granted[bin]))
        self.m[bin] -= self.granted[bin]  # as at its beginning
        longer = self.licence(bin) - self.granted[bin]
        self.m[bin] += self.granted[bin]
        return max(0, longer)

    def sample_at(self, bin: int, agreed: bool, cost: float) -> bool:
        """As `sample`, with the cost of this very sample known beforehand."""
        self.time += 1
        q = 1.0 - cost
        free = q == 0.0 or (q < 1.0 and self.evident(bin, q, 0))
        audit = free and q > 0.0 and self.unaudited[bin] >= self.longest(bin, q)
        self.m[bin] += 1
        if free and not audit:
            self.unaudited[bin] += 1
            return False
        if audit:
            self.unaudited[bin] = 0
        self.learn(bin, float(agreed), audit, q if audit else None)
        return True

    def sample(self, bin: int, agreed: bool) -> bool:
        """Decide, and learn at once; returns whether the sample was offloaded."""
        self.time += 1
        if self.left[bin] == 0 and self.granted[bin] == 0:
            self.left[bin] = self.granted[bin] = self.licence(bin)
        elif self.left[bin] == 0 and self.audits <= SUSPECTED >= self.by_bin[bin] and self.offloads <= FALLEN:
            more = self.further(bin) if self.licence(bin) else 0
            self.left[bin] = more
            self.granted[bin], self.cut[bin] = self.granted[bin] + more, self.cut[bin] - min(more, self.cut[bin])
        self.m[bin] += 1
        if self.left[bin] > 0:
            self.left[bin] -= 1
            return False
        audit = self.granted[bin] > 0 and self.licence(bin) > 0
        self.granted[bin] = self.cut[bin] = 0
        self.learn(bin, float(agreed), audit)
        return True

    def learn(self, bin: int, x: float, audit: bool, told: float | None = None) -> None:
        def page(total: float, suspected: float, usual: float) -> float:
            ratio = math.log(suspected / usual) if x else math.log((1 - suspected) / (1 - usual))
            return max(0.0, total + ratio)

        self.audited = audit
        q, usual, fit = told or self.q, (self.a[bin] + 1) / (self.n[bin] + 2), self.mean(bin, self.q)
        if audit:
            believed = min(max(self.mean(bin, q), usual, q), 1 - SUREST * (1 - q))
            self.audits, self.by_bin[bin] = page(self.audits, q, believed), page(self.by_bin[bin], q, believed)
        elif usual < q:
            self.rising[bin] = page(self.rising[bin], q, usual)
            self.since_n[bin], self.since_a[bin] = self.since_n[bin] + 1, self.since_a[bin] + x
            if self.rising[bin] > RISE + RISE_GROWTH * math.log(self.n[bin] + 1):
                self.n[bin], self.a[bin] = self.since_n[bin] - 1, self.since_a[bin] - x
                self.rising[bin] = self.by_bin[bin] = 0.0
        else:
            self.rising[bin] = 0.0
        if self.rising[bin] == 0.0:
            self.since_n[bin] = self.since_a[bin] = 0.0
        if fit > 0.0 and usual < self.q:
            self.misfit = page(self.misfit, usual, fit)
        self.offloads = min(page(self.offloads, FALL * usual, usual), 2 * FALLEN)
        self.n[bin], self.a[bin] = self.n[bin] + 1, self.a[bin] + x
        if self.audits > ALARM:
            self.start()
            self.alarms += 1
            return
        if self.audits > SUSPECTED or self.offloads > FALLEN:
            for i in range(self.bins):
                if self.left[i] > HURRY:
                    self.cut[i] += (self.left[i] - HURRY) * (self.fineness >= 2)
                    self.granted[i] -= self.left[i] - HURRY
                    self.left[i] = HURRY
        if audit and told is None:
            self.left[bin] = self.granted[bin] = self.licence(bin)


def agreement(bin: int, bins: int) -> float:
    return 0.15 + 0.83 * (bin / (bins - 1) if bins > 1 else 1.0)


CURVES: dict[str, Callable[[int, int], float]] = {
    "rising": agreement,
    "falling": lambda bin, bins: agreement(bins - 1 - bin, bins),
    "top overconfident": lambda bin, bins: agreement(bin, bins) if bin < bins - 1 else 0.2,
}


@pytest.mark.parametrize("cost", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize(
    ("curve", "bins"), [*product(["rising"], [1, 4, 16, 24, 50]), *product([*CURVES][1:], [4, 16])]
)
def test_decides_as_its_rules_say(curve: str, bins: int, cost: float) -> None:
    chance, policy = random.Random(bins * 100 + round(10 * cost)), Sentinel(bins, offload_cost=cost)
    literal, agreement = Literal(bins, cost), CURVES[curve]
    offloaded, refuted = 0, False
    for time in range(12_000):
        bin = min(chance.randrange(bins), chance.randrange(bins)) if time % 3 else bins - 1
        factor = 0.45 if 5_000 <= time < 8_000 else 1.0  # a fall, and a rise
        agreed = chance.random() < factor * agreement(bin, bins)
        decision = policy.decide(bin)
        assert decision.offload == literal.sample(bin, agreed), time
        if decision.offload:
            assert policy.is_audit(decision) == literal.audited, time
            policy.learn(decision, agreed)
            offloaded += 1
            refuted |= literal.refuted()
    assert policy.alarms["agreement"] == literal.alarms
    assert 0 < offloaded < 12_000 or (curve, bins, cost) == ("top overconfident", 4, 0.1)  # no bin is good enough
    assert refuted or curve != "falling" or cost < 0.5  # break-even above most that there is


@pytest.mark.parametrize("gap", [0.02, 0.05, 0.1])
def test_many_bins_just_below_break_even_are_offloaded(gap: float) -> None:
    """Each of many bins is a chance for luck; after as many alarms as that took, half of all samples were accepted."""
    regrets = [played(Sentinel(64, offload_cost=0.5), [0.5 - gap] * 64, 50_000, seed) for seed in range(8)]
    assert sum(regrets) / 8 < 250.0


def audited(policy: Sentinel, bin: int, agreed: bool) -> int:
    """Let a bin's licence run out, and learn from the sample that checks it; how many were accepted."""
    accepted = 0
    while not (decision := policy.decide(bin)).offload:
        accepted += 1
    policy.learn(decision, agreed)
    return accepted


def test_a_licence_that_was_cut_short_goes_on_once_the_suspicion_has_passed() -> None:
    policy = Sentinel(64, offload_cost=0.9)
    for _ in range(4):
        for bin in (45, 50, 55, 60):
            audited(policy, bin, agreed=True)
    long, _ = policy.countdown(50)
    assert long > HURRY
    audited(policy, 60, agreed=False)
    audited(policy, 60, agreed=False)
    assert policy.countdown(50)[0] == HURRY
    for _ in range(3):
        audited(policy, 60, agreed=True)
    assert audited(policy, 50, agreed=True) >= long


def test_no_reason_names_an_agreement_above_one_while_the_cost_is_learned() -> None:
    policy = Sentinel(16)
    policy.learn(policy.decide(12), agreed=True, cost=0.3)
    assert policy.explain(12).reason.endswith("; what an offload costs is not known well enough yet.")


def played(policy: Policy, curve: list[float], samples: int, seed: int, later: list[float] | None = None) -> float:
    """The regret of a policy of known cost; what lies above its top bin counts as that. `later`: in the last half."""
    chance, q, regret = random.Random(seed), 1.0 - (policy.offload_cost or 0.0), 0.0
    for time in range(samples):
        drawn = chance.randrange(len(curve))
        f = (curve if later is None or time < samples // 2 else later)[drawn]
        decision = policy.decide(min(drawn, policy.bins - 1))
        regret += max(0.0, f - q) if decision.offload else max(0.0, q - f)
        if decision.offload:
            policy.learn(decision, chance.random() < f)
    return regret


CURVE = [0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 0.99]


@pytest.mark.slow
def test_an_overconfident_top_bin_is_found_out() -> None:
    curve, accepted_for_good = [*CURVE, *[0.3] * 8], 40_000 / 2 * (0.6 - 0.3)  # half of the samples are of this bin
    regrets = [played(Sentinel(9, offload_cost=0.4), curve, 40_000, seed) for seed in range(8)]
    assert sum(regrets) < 0.1 * 8 * accepted_for_good
    assert max(regrets) < 0.5 * accepted_for_good


@pytest.mark.slow
def test_a_fall_and_a_rise_are_noticed_and_isotonic_misses_them() -> None:
    fallen = [0.55 * f for f in CURVE]
    for first, then in ((CURVE, fallen), (fallen, CURVE)):
        ours = sum(played(Sentinel(8, offload_cost=0.4), first, 20_000, seed, then) for seed in range(4))
        others = sum(played(Isotonic(8, offload_cost=0.4), first, 20_000, seed, then) for seed in range(4))
        assert ours < 0.4 * others


def test_audits_grow_like_a_square_root() -> None:
    chance, policy, offloads = random.Random(4), Sentinel(4, offload_cost=0.5), []
    for time in range(160_000):
        decision = policy.decide(3)
        if decision.offload:
            policy.learn(decision, chance.random() < 0.99)
            offloads.append(time)
    first = sum(time < 40_000 for time in offloads)
    assert len(offloads) < 100
    assert len(offloads) - first < 3 * first  # four times the samples, about twice the audits


def test_a_licence_survives_late_feedback_of_its_audit() -> None:
    policy, waiting = Sentinel(1, offload_cost=0.5), []
    for _ in range(20_000):
        decision = policy.decide(0)
        if decision.offload and policy.time < 15_000:
            policy.learn(decision, True)
        elif decision.offload:
            waiting.append(decision)
    assert 0 < len(waiting) < 30  # audits are asked for, and samples between them accepted without their feedback
    for decision in reversed(waiting):
        policy.learn(decision, True)
    assert not policy.decide(0).offload


def test_a_budget_that_refuses_an_audit_leaves_it_due() -> None:
    limited = at_most(Sentinel(2, offload_cost=0.5), offloads=0.01, window=1000)
    for _ in range(5_000):
        decision = limited.decide(1)
        if decision.offload:
            limited.learn(decision, True)
    assert 0 < limited.learned <= 50


# -- a cost known beforehand ------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("told", [1.0, 0.5], ids=["always told", "told at times"])
@pytest.mark.parametrize("bins", [1, 4, 16])
def test_decides_by_the_cost_of_the_sample_as_its_rules_say(bins: int, told: float) -> None:
    chance, policy, literal = random.Random(bins), Sentinel(bins, offload_cost=0.4), Literal(bins, 0.4)
    counts = {True: 0, False: 0}
    for time in range(6_000):
        bin = min(chance.randrange(bins), chance.randrange(bins)) if time % 3 else bins - 1
        factor = 0.45 if 3_000 <= time < 4_500 else 1.0
        agreed = chance.random() < factor * agreement(bin, bins)
        if chance.random() < told:
            cost = chance.choice((0.0, 0.15, 0.4, 0.8, 1.0, chance.random()))
            decision = policy.decide(bin, cost)
            assert decision.offload == literal.sample_at(bin, agreed, cost), time
        else:
            decision = policy.decide(bin)
            assert decision.offload == literal.sample(bin, agreed), time
        counts[decision.offload] += 1
        if decision.offload:
            assert policy.is_audit(decision) == literal.audited, time
            policy.learn(decision, agreed)
        if time % 1_500 == 1_499:  # with the same feedback, a restored policy goes on alike
            policy = Sentinel.restore(policy.state())
    assert policy.alarms["agreement"] == literal.alarms
    assert min(counts.values()) > 500


def costs_paid(policy: Policy, told: bool, seed: int) -> float:
    chance, paid = random.Random(seed), 0.0
    for _ in range(10_000):
        bin, cost = chance.randrange(len(CURVE)), chance.choice((0.2, 0.8))
        agreed = chance.random() < CURVE[bin]
        decision = policy.decide(bin, cost) if told else policy.decide(bin)
        paid += cost if decision.offload else 1.0 - agreed
        if decision.offload:
            policy.learn(decision, agreed, cost)
    return paid


@pytest.mark.medium
@pytest.mark.parametrize("cost", [None, 0.5], ids=["learned", "known"])
def test_a_cost_known_beforehand_saves_what_it_can(cost: float | None) -> None:
    """At costs 0.2 and 0.8: the best rule that knows the cost pays Σ min(cost, 1 - f), the other Σ min(½, 1 - f)."""
    knows = 10_000 / len(CURVE) * sum(min(c, 1.0 - f) / 2 for f in CURVE for c in (0.2, 0.8))
    mean = 10_000 / len(CURVE) * sum(min(0.5, 1.0 - f) for f in CURVE)
    told = sum(costs_paid(Sentinel(8, offload_cost=cost), True, seed) for seed in range(2)) / 2
    untold = sum(costs_paid(Sentinel(8, offload_cost=cost), False, seed) for seed in range(2)) / 2
    assert 0.95 * knows < told < 1.05 * knows
    assert 0.98 * mean < untold
    assert told < 0.9 * untold


def test_a_cost_told_is_of_no_use_to_others() -> None:
    for policy in (Isotonic(4, offload_cost=0.5), build("thompson", bins=4), on_budget(Sentinel(4), 0.2)):
        before = policy.state()
        with pytest.raises(TypeError, match=f"{type(policy).__name__}: cost cannot be used before an offload"):
            policy.decide(2, cost=0.3)
        assert policy.state() == before


def test_a_wrong_cost_is_refused_and_changes_nothing() -> None:
    policy = Sentinel(4, offload_cost=0.5)
    before = policy.state()
    for cost in (-0.1, 1.1, math.nan, "1"):
        with pytest.raises((TypeError, ValueError), match="cost"):
            policy.decide(2, cost=cost)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="bin"):
        policy.decide(9, cost=0.5)
    assert policy.state() == before


def test_a_limit_passes_the_cost_on_and_keeps_its_window() -> None:
    limited, free = at_most(Sentinel(2, offload_cost=0.5), offloads=0.1, window=100), Sentinel(2, offload_cost=0.5)
    offloads = [limited.decide(1, cost=0.2).offload for _ in range(1_000)]
    assert sum(offloads) == 100
    assert [limited.decide(1, cost=1.0).offload, free.decide(1, cost=1.0).offload] == [False, False]


@pytest.mark.medium
def test_a_batch_is_decided_by_its_costs() -> None:
    one, other = Sentinel(8, offload_cost=0.4), Sentinel(8, offload_cost=0.4)
    for policy in (one, other):
        costs_paid(policy, True, 1)
    chance = random.Random(2)
    bins, costs = [chance.randrange(8) for _ in range(200)], [chance.random() for _ in range(200)]
    batch = one.decide_many(bins, costs)
    assert batch.offload.tolist() == [other.decide(bin, cost).offload for bin, cost in zip(bins, costs, strict=True)]
    assert 0 < batch.offload.sum() < 200


@pytest.mark.parametrize("costs", [[0.2], [0.2] * 4, [0.2, 0.2, 1.5], [0.2, None, "1"]])
def test_a_batch_with_wrong_costs_is_refused_before_its_first_decision(costs: Any) -> None:
    for policy in (Sentinel(4, offload_cost=0.5), at_most(Sentinel(4, offload_cost=0.5), 0.5)):
        before = policy.state()
        with pytest.raises((TypeError, ValueError), match=f"{type(policy).__name__}: .*cost"):
            policy.decide_many([1, 2, 3], costs)
        assert policy.state() == before
    unable = Isotonic(4, offload_cost=0.5)
    with pytest.raises(TypeError, match="cost cannot be used before an offload"):
        unable.decide_many([1, 2], [None, 0.2])
    assert unable.time == 0


def run(policy: Policy, samples: int, agreed: Callable[[int], bool], seed: int = 1) -> int:
    """Offloads in so many samples, whose bins come alike often."""
    chance, offloads = random.Random(seed), 0
    for _ in range(samples):
        bin = chance.randrange(policy.bins)
        decision = policy.decide(bin)
        if decision.offload:
            offloads += 1
            policy.learn(decision, agreed=agreed(bin), cost=0.1)
    return offloads


@pytest.mark.medium
def test_a_learned_cost_that_was_too_high_gives_no_endless_licence() -> None:
    policy = on_budget(Sentinel(16), offloads=0.2)
    run(policy, 20_000, lambda _: False)
    assert 1_500 < run(policy, 10_000, lambda _: False, seed=2) < 2_500
    assert policy.price > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("cost", [0.3, 0.5])
def test_an_overconfident_bin_is_found_though_the_bins_below_testify_for_it(cost: float) -> None:
    chance, wrong = random.Random(4), []
    for seed in range(8):
        policy = Sentinel(16, offload_cost=cost)
        run(policy, 40_000, lambda bin: chance.random() < (0.3 if bin == 15 else (bin + 0.5) / 16), seed)
        wrong.append(not policy.explain(15).offload_probability)
    assert sum(wrong) <= 2


# -- misfit, and what comes as counts ---------------------------------------------------------------------------------


def offload_all(policy: Policy, bin: int, outcomes: list[bool]) -> None:
    """Learn these outcomes, however many samples are accepted in between."""
    for agreed in outcomes:
        decision = policy.decide(bin)
        while not decision.offload:
            decision = policy.decide(bin)
        policy.learn(decision, agreed)


def report(policy: Sentinel, bin: int, agreements: int, disagreements: int) -> None:
    """Learn from offloads of a bin, those that agreed first; what costs nothing is always offloaded."""
    for agreed in [True] * agreements + [False] * disagreements:
        policy.learn(policy.decide(bin, cost=0.0), agreed)


def test_bins_are_judged_alone_while_agreement_falls_with_confidence() -> None:
    policy = Sentinel(4, offload_cost=0.5)
    report(policy, 0, 30, 0)
    assert "(bin 0: 30 of 30)" in policy.explain(3).reason
    assert min(policy.countdown(bin)[1] for bin in range(4)) > 0
    report(policy, 3, 0, 4)
    assert [policy.countdown(bin)[1] > 0 for bin in range(4)] == [True, False, False, False]
    assert "by this bin alone, as bins below foretold bins above them badly" in policy.explain(3).reason
    report(policy, 2, 6, 0)
    assert [policy.countdown(bin)[1] > 0 for bin in range(4)] == [True, False, True, False]


def test_bins_are_pooled_again_once_agreement_rises_with_confidence() -> None:
    policy = Sentinel(4, offload_cost=0.5)
    report(policy, 0, 30, 0)
    report(policy, 3, 0, 3)
    assert policy.table.sums[MISFIT] > REFUTED
    report(policy, 3, 3, 0)
    assert policy.table.sums[MISFIT] < REFUTED
    assert policy.countdown(2)[1] > 0


def test_bins_are_pooled_where_agreement_falls_and_stays_above_break_even() -> None:
    policy, chance = Sentinel(4, offload_cost=0.5), random.Random(2)
    run(policy, 5_000, lambda bin: chance.random() < (0.95, 0.95, 0.7, 0.7)[bin], 2)
    assert policy.table.sums[MISFIT] < REFUTED
    assert policy.alarms["agreement"] == 0


def falling() -> Sentinel:
    """With evidence that the top bin is bad and all bins below it are good."""
    kind = Sentinel(16, offload_cost=0.5)
    for bin in range(16):
        report(kind, bin, *((190, 10) if bin < 15 else (10, 190)))
    return kind


@pytest.mark.parametrize(("way", "wrapped"), [*product(["merged", "from a log"], [False, True])])
def test_counts_alone_refute_the_fit(way: str, wrapped: bool) -> None:
    source, policy = falling(), Sentinel(16, offload_cost=0.5)
    outer = at_most(policy) if wrapped else policy
    if way == "merged":
        outer.merge((at_most(source) if wrapped else source).state())
    else:
        rows = [(bin, k < (190 if bin < 15 else 10)) for k in range(200) for bin in range(16)]
        outer.learn_log([bin for bin, _ in rows], [agreed for _, agreed in rows], weight=1.0)
    assert policy.table.sums[MISFIT] > REFUTED
    assert policy.countdown(15)[1] == 0
    assert policy.countdown(14)[1] > 0


@pytest.mark.parametrize("seed", range(5))
def test_the_misfit_of_counts_is_a_ratio_of_likelihoods(seed: int) -> None:
    """That of any agreement alike, a! (n - a)! / (n + 1)!, over that of the fit's, in exact numbers."""
    chance, policy, literal = random.Random(seed), Sentinel(6, offload_cost=0.5), Literal(6, 0.5)
    for bin in range(6):
        literal.n[bin] = chance.randrange(20)
        literal.a[bin] = chance.randrange(int(literal.n[bin]) + 1)
    state = Sentinel(6, offload_cost=0.5).state()
    state["time"] = state["learned"] = int(sum(literal.n))
    state["evidence"] |= {"offloads": literal.n, "agreements": literal.a}
    policy.merge(state)
    expected = 0.0
    for bin, (n, a) in enumerate(zip(map(int, literal.n), map(int, literal.a), strict=True)):
        fit = Fraction(literal.mean(bin, 0.5)).limit_denominator(1000)
        if fit and 2 * (a + 1) < n + 2:
            alone = Fraction(math.factorial(a) * math.factorial(n - a), math.factorial(n + 1))
            expected += math.log(alone / (fit**a * (1 - fit) ** (n - a)))
    assert policy.table.sums[MISFIT] == pytest.approx(max(expected, 0.0), abs=1e-9)


def refuted_while_running() -> Sentinel:
    policy = Sentinel(4, offload_cost=0.5)
    report(policy, 0, 30, 0)
    report(policy, 3, 0, 40)  # by now the fit has learned it too: counts alone would not refute it
    assert policy.table.sums[MISFIT] > REFUTED
    return policy


def test_merging_what_is_known_or_nothing_changes_nothing() -> None:
    policy, other = refuted_while_running(), Sentinel(4, offload_cost=0.5)
    report(other, 1, 3, 1)
    policy.merge(other.state())
    before = policy.state()
    for state in (Sentinel(4, offload_cost=0.5).state(), before, other.state()):
        policy.merge(state)
        assert policy.state()["carried"] == before["carried"]
        assert policy.state()["evidence"] == before["evidence"]


def test_a_state_that_merged_after_an_alarm_opens() -> None:
    policy = Sentinel(2, offload_cost=0.5)
    for _ in range(50):
        audited(policy, 1, agreed=True)
    while not policy.alarms["agreement"]:
        audited(policy, 1, agreed=False)
    policy.merge(Sentinel(2, offload_cost=0.5).state())
    assert restore(policy.state()).state() == policy.state()


def test_a_licence_goes_on_with_what_other_bins_have_taught_since_once_its_bin_has_proved_itself() -> None:
    lengths = {}
    for proved in (3, 6):
        policy = Sentinel(2, offload_cost=0.5)
        report(policy, 1, proved, 0)
        first = policy.countdown(1)[1]
        assert first > 0
        for _ in range(first):
            assert not policy.decide(1).offload
        offload_all(policy, 0, [True] * 30)
        lengths[proved] = accepted_until_checked(policy, 1, 10_000)
    assert lengths[3] == 0
    assert lengths[6] > 0


def accepted_until_checked(policy: Policy, bin: int, most: int) -> int:
    """How many samples of a bin are accepted in a row, if nothing is learned."""
    return next((samples for samples in range(most) if policy.decide(bin).offload), most)


@pytest.mark.parametrize("bins", [4, 64])
def test_as_many_samples_are_accepted_as_an_explanation_says(bins: int) -> None:
    policy, chance, longer = Sentinel(bins, offload_cost=0.3), random.Random(bins), 0
    for time in range(8_000):
        bin = chance.randrange(bins)
        left = policy.explain(bin).samples_left
        if time % 20 == 0 and left is not None and left < 2_000:
            assert accepted_until_checked(restore(policy.state()), bin, 2_001) == left
            longer += left > policy.table.left[bin] > 0
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, chance.random() < agreement(bin, bins) * (0.5 if 3_000 < time < 4_000 else 1.0))
    assert longer > 0 or bins < 2 * PARTS


def test_a_bin_that_is_accepted_for_good_says_so_also_where_it_has_a_licence() -> None:
    policy = on_budget(Sentinel(4, offload_cost=0.9), offloads=0.02)
    chance, free = random.Random(1), 0
    for _ in range(4_000):
        bin = chance.randrange(4)
        said = policy.explain(bin).offload_probability
        inside = policy.unlimited
        assert isinstance(inside, Sentinel)
        free += inside.countdown(bin)[0] == FOREVER and inside.table.granted[bin] > 0
        decision = policy.decide(bin)
        assert decision.offload == (said == 1.0)
        if decision.offload:
            policy.learn(decision, chance.random() < 0.5)
    assert free > 0


def test_counts_alone_do_not_refute_a_fit_that_is_right() -> None:
    policy, source = Sentinel(16, offload_cost=0.5), Sentinel(16, offload_cost=0.5)
    for bin in range(16):
        report(source, bin, 12 * bin, 200 - 12 * bin)
    policy.merge(source.state())
    assert policy.table.sums[MISFIT] == 0.0
