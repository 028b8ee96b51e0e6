"""Thompson sampling: its posterior in fractions, term by term, and drawn."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hinge import Thompson
from hinge.policies.thompson import beta_cdf


def binomial_tail(trials: int, chance: Fraction, at_least: int) -> Fraction:
    terms = (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(at_least, trials + 1))
    return sum(terms, Fraction(0))


def posterior(offloads: int, agreements: int, cost: float) -> Thompson:
    state = Thompson(1, cost).state() | {"time": offloads, "learned": offloads}
    state["table"] |= {"offloads": [offloads], "agreements": [float(agreements)]}
    return Thompson.restore(state)


@pytest.mark.parametrize("cost", [0.0, 1.0, 0.5, 0.25, 0.1, 0.9, 0.01])
def test_thompson_offloads_by_the_exact_posterior(cost: float) -> None:
    """P(Beta(1 + a, 1 + n - a) ≤ q) = P(Binomial(n + 1, q) ≥ a + 1), in fractions."""
    q = Fraction(1.0 - cost)
    for offloads in (0, 1, 2, 5, 20, 60):
        for agreements in range(offloads + 1):
            exact = float(binomial_tail(offloads + 1, q, agreements + 1))
            chance = posterior(offloads, agreements, cost).offload_probability(0)
            assert chance == pytest.approx(exact, rel=1e-9, abs=1e-15)


def test_thompson_offloads_as_often_as_a_sampled_agreement_falls_short() -> None:
    rng, draws = np.random.default_rng(4), 400_000
    for offloads, agreements, cost in ((0, 0, 0.3), (3, 2, 0.5), (40, 31, 0.2), (500, 260, 0.5), (2_000, 1_790, 0.1)):
        chance = posterior(offloads, agreements, cost).offload_probability(0)
        short = float((rng.beta(1 + agreements, 1 + offloads - agreements, draws) <= 1 - cost).mean())
        assert short == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / draws))


def test_a_price_that_moves_or_is_told_is_that_of_the_posterior() -> None:
    for offloads, agreements in ((0, 0), (12, 9), (60, 30)):
        moved = posterior(offloads, agreements, 0.9)
        for price in (0.0, 0.1, 0.25, 0.5, 1.0):
            moved.reprice(price)
            assert moved.offload_probability(0) == posterior(offloads, agreements, price).offload_probability(0)
            draws = [posterior(offloads, agreements, 0.9).fresh(seed) for seed in range(300)]
            chance = 1.0 - price  # before the first offload, the posterior is uniform
            offloaded = sum(policy.decide(0, price).offload for policy in draws) / len(draws)
            assert abs(offloaded - chance) <= 5 * math.sqrt(chance * (1 - chance) / len(draws))


def test_posterior_of_large_counts() -> None:
    """Against the binomial tail summed term by term in logarithms."""
    for offloads, agreements, q in ((10_000, 8_000, 0.8), (10_000, 8_100, 0.8), (100_000, 50_100, 0.5)):
        trials = offloads + 1
        logs = [
            math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
            + k * math.log(q) + (trials - k) * math.log1p(-q)
            for k in range(agreements + 1, trials + 1)
        ]  # fmt: skip  # several to a line
        tail = math.fsum(math.exp(term) for term in logs)
        assert beta_cdf(q, 1 + agreements, 1 + offloads - agreements) == pytest.approx(tail, rel=1e-7)
    for agreements in (0, 1, 500_000, 999_999, 1_000_000):
        assert 0 <= beta_cdf(0.5, 1 + agreements, 1 + 1_000_000 - agreements) <= 1


def test_it_throws_a_coin_of_the_chance_that_agreement_is() -> None:
    total, learned, chance = 0.0, 0, 0.3
    for seed in range(200):
        policy = Thompson(1, offload_cost=0.5, seed=seed)
        for decision in [each for each in (policy.decide(0) for _ in range(40)) if each.offload]:
            before = policy.counts(0) or (0.0, 0.0)
            policy.learn(decision, chance)
            after = policy.counts(0) or (0.0, 0.0)
            assert after[0] == before[0] + 1.0
            assert after[1] - before[1] in (0.0, 1.0)
        total, learned = total + after[1], learned + policy.learned
    assert abs(total - chance * learned) < 4.0 * math.sqrt(learned * chance * (1.0 - chance))


def test_its_coins_do_not_depend_on_the_order_of_feedback() -> None:
    one, other, chance = Thompson(6, 0.5, seed=3), Thompson(6, 0.5, seed=3), np.random.default_rng(4)
    samples = [(int(chance.integers(6)), float(chance.random())) for _ in range(300)]
    for policy, turn in ((one, 1), (other, -1)):
        waiting = [(policy.decide(bin), agreed) for bin, agreed in samples]
        for decision, agreed in waiting[::turn]:
            if decision.offload:
                policy.learn(decision, agreed)
    assert one.state()["table"] == other.state()["table"]
