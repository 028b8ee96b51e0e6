"""H2T2 against all pairs of thresholds, weighed one by one."""

import math
from itertools import product

import numpy as np
import pytest

from hinge.policies import H2T2
from hinge.policies.random import uniform


class Pairs:
    """Every pair (j, k) with its own loss: class 0 is offloaded below bin j, class 1 below bin k of its own."""

    def __init__(self, sizes: tuple[int, int], rate: float) -> None:
        self.split, self.rate = sizes[0], rate
        self.losses = dict.fromkeys(product(range(sizes[0] + 1), range(sizes[1] + 1)), 0.0)

    def offloads(self, pair: tuple[int, int], bin: int) -> bool:
        return bin < pair[0] if bin < self.split else bin - self.split < pair[1]

    def share(self, bin: int) -> float:
        weights = {pair: math.exp(-self.rate * loss) for pair, loss in self.losses.items()}
        return sum(weight for pair, weight in weights.items() if self.offloads(pair, bin)) / sum(weights.values())

    def charge(self, bin: int, cost: float, error: float) -> None:
        for pair in self.losses:
            self.losses[pair] += cost if self.offloads(pair, bin) else error


@pytest.mark.parametrize("cost", [0.3, None], ids=["known", "told"])
@pytest.mark.parametrize("bins", [1, 2, 7, 10])
def test_it_weighs_every_pair_of_thresholds(bins: int, cost: float | None) -> None:
    policy, chance = H2T2(3_000, bins, cost, seed=4), np.random.default_rng(bins)
    rate, exploration = 0.005 * (100 / 3) ** (2 / 3), 0.005 * (100 / 3) ** (1 / 3)
    assert (policy.learning_rate, policy.exploration) == pytest.approx((rate, exploration), rel=1e-12)
    pairs = Pairs((bins // 2, bins - bins // 2), rate)
    for time in range(1, 501):
        bin, price = int(chance.integers(bins)), float(chance.uniform(0.1, 0.6)) if cost is None else cost
        wrong = float(chance.choice([0.0, 0.1, 1.0]))
        share = pairs.share(bin)
        seen = exploration + (1 - exploration) * share
        assert policy.offload_probability(bin) == pytest.approx(seen, rel=1e-9)
        decision = policy.decide(bin)
        assert decision.offload == (uniform(4, time, 0) < share or uniform(4, time, 1) < exploration)
        if decision.offload:
            policy.learn(decision, 1.0 - wrong, price)
        elif cost is None:
            policy.learn(decision, cost=price)
        pairs.charge(bin, price, wrong / seen if decision.offload else 0.0)


def test_a_class_whose_mistakes_are_cheap_is_accepted_and_the_other_is_not() -> None:
    policy, chance = H2T2(20_000, 8, 0.2, seed=1), np.random.default_rng(5)
    for bin in chance.integers(8, size=20_000).tolist():
        decision = policy.decide(bin)
        if decision.offload:
            wrong = chance.random() < 0.4
            policy.learn(decision, 1.0 - wrong * (1.0 if bin < 4 else 0.1))  # 0.4 and 0.04 a sample, where 0.2 is asked
    assert min(policy.offload_probability(bin) for bin in range(4)) > 0.9
    assert max(policy.offload_probability(bin) for bin in range(4, 8)) < 0.1
