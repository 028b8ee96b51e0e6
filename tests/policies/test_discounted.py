"""Discounted HI-LCB against its formula, every offload weighed anew at every sample."""

import math
import random

import pytest

from hinge.policies import Discounted

NO_TIE = 1e-9


def bound(history: list[tuple[int, int, float]], bin: int, time: int, price: float, memory: float) -> float:
    """max over j ≤ i of n_j ((f_j + γ - 1)⁺)², where an offload of s samples ago counts e^(-s / memory)."""
    best = 0.0
    for below in range(bin + 1):
        rows = [(math.exp((then - time) / memory), agreed) for then, where, agreed in history if where == below]
        n = sum(weight for weight, _ in rows)
        if n > 0.0:
            f = sum(weight * agreed for weight, agreed in rows) / n
            best = max(best, n * max(0.0, f + price - 1.0) ** 2)
    return best


@pytest.mark.parametrize("memory", [20.0, 300.0, 5_000.0])
def test_it_decides_as_the_formula(memory: float) -> None:
    chance, policy = random.Random(int(memory)), Discounted(4, alpha=0.3, offload_cost=0.4, memory=memory)
    history: list[tuple[int, int, float]] = []
    price, compared = 0.4, 0
    for time in range(1, 1_200):
        if time % 400 == 0:
            price = chance.choice((0.1, 0.3, 0.7))
            policy.reprice(price)
        bin, told = chance.randrange(4), chance.random() if chance.random() < 0.2 else None
        evidence = bound(history, bin, time, price if told is None else told, memory)
        threshold = 0.3 * math.log(min(time, 1.0 / -math.expm1(-1.0 / memory)))
        decision = policy.decide(bin, told)
        if abs(evidence - threshold) > NO_TIE:
            compared += 1
            assert decision.offload == (evidence <= threshold), time
        if decision.offload:
            agreed = float(chance.random() < (0.3 + 0.2 * bin if time < 700 else 0.4))
            policy.learn(decision, agreed)
            history.append((time, bin, agreed))
    assert compared > 1_000
    for bin in range(4):
        weights = [math.exp((then - policy.time) / memory) for then, where, _ in history if where == bin]
        assert policy.counts(bin)[0] == pytest.approx(sum(weights), rel=1e-9)
