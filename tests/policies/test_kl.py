"""KL against brute force: every bound computed anew at every sample."""

import json
import math
from decimal import Decimal as Exact
from decimal import localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from hinge import HILCBLite
from hinge.policies import KL
from hinge.policies.isotonic import divergence

Floats = NDArray[np.float64]
NO_TIE = 1e-10
every_cost = pytest.mark.parametrize("known", [True, False], ids=["known", "learned"])


def xlogy(x: Floats, y: Floats) -> Floats:
    """x log y, with 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x == 0, 0.0, x * np.log(y))


def kl(p: Floats, q: float) -> Floats:
    """Σ p log p - p log q over the two sides of a coin; ∞ where q rules out what p allows."""
    limit = np.full_like(p, q)
    return xlogy(p, p) + xlogy(1 - p, 1 - p) - xlogy(p, limit) - xlogy(1 - p, 1 - limit)


class BruteForce:
    """Accept iff the mean exceeds q and n kl(mean, q) exceeds 2α log t.

    q is 1 - γ, or, where the cost is learned, 1 - (γ̂ - √(α log t / m)).
    """

    def __init__(self, bins: int, alpha: float, offload_cost: float | None) -> None:
        self.alpha, self.offload_cost = alpha, offload_cost
        self.offloads, self.agreements, self.costs = np.zeros(bins), np.zeros(bins), [0.0]
        self.t = 0

    def q(self) -> float:
        if self.offload_cost is not None:
            return 1 - self.offload_cost
        m = len(self.costs) - 1
        return 1 - (sum(self.costs) / m - math.sqrt(self.alpha * math.log(self.t) / m)) if m else math.inf

    def evidence(self, bin: int) -> float:
        n, q = self.offloads[bin], self.q()
        mean = self.agreements[bin] / n if n else 0.0
        return float(n * kl(np.array(mean), q)) if mean > q else 0.0

    def decide(self, bin: int) -> tuple[bool, float]:
        """Whether to offload, and the margin by which the evidence exceeds what time demands.

        Ties do occur: n kl(1, ½) = n log 2 meets 2α log t at t = 2^(n/2α). Equality offloads, whatever its rounding.
        """
        self.t += 1
        margin = self.evidence(bin) - 2 * self.alpha * math.log(self.t)
        return not margin > NO_TIE, margin

    def learn(self, bin: int, agreed: float, cost: float) -> None:
        self.offloads[bin] += 1
        self.agreements[bin] += agreed
        self.costs.append(cost)


def world(bins: int, samples: int, seed: int) -> tuple[list[int], list[bool], list[float]]:
    """Bins, answers and costs; seeds cycle through rising, step, arbitrary, certain and hopeless agreement."""
    rng = np.random.default_rng([bins, seed])
    centres = (np.arange(bins) + 0.5) / bins
    shapes = [0.4 + 0.6 * centres, np.where(centres > 0.5, 0.97, 0.3), rng.random(bins), np.ones(bins), np.zeros(bins)]
    arrivals = rng.integers(0, bins, samples)
    spread = [0.0, 0.5, 0.05][seed % 3]
    costs = np.clip(rng.uniform(0.5 - spread, 0.5 + spread, samples), 0, 1)
    return arrivals.tolist(), (rng.random(samples) < shapes[seed % 5][arrivals]).tolist(), costs.tolist()


@pytest.mark.slow
@every_cost
@pytest.mark.parametrize(("bins", "samples", "runs"), [(1, 1_500, 10), (2, 2_000, 10), (8, 2_500, 8), (40, 1_500, 5)])
def test_decides_as_brute_force(bins: int, samples: int, runs: int, known: bool) -> None:
    choices = list(product([0.1, 0.52, 1.0, 3.0], [0.5, 0.2, 0.8, 0.02, 0.0, 1.0] if known else [None]))
    samples = samples if known or bins < 40 else samples // 5  # a learned cost is looked up by bisection
    for run in range(runs):
        alpha, cost = choices[(run * 5) % len(choices)]
        policy, brute = KL(bins, alpha, cost), BruteForce(bins, alpha, cost)
        for bin, agreed, price in zip(*world(bins, samples, run), strict=True):
            decision = policy.decide(bin)
            offload, margin = brute.decide(bin)
            assert decision.offload == offload, f"t={brute.t}, margin {margin}, {policy!r}"
            if offload:
                policy.learn(decision, agreed, price)
                brute.learn(bin, float(agreed), price)


def with_evidence(
    policy: KL | HILCBLite, offloads: list[int], agreements: list[int], time: int, mean_cost: float = 0.5
) -> KL | HILCBLite:
    """The policy as it is at that time after these offloads, which another device may have made."""
    total = sum(offloads)
    state = policy.state() | {"time": time}
    costs = [float(total), mean_cost * total, mean_cost**2 * total][: len(state["evidence"]["costs"])]
    state["evidence"] = {"offloads": offloads, "agreements": [float(a) for a in agreements], "costs": costs}
    other = {"time": total, "learned": total, "as_of": time, "alarms": [], "evidence": state["evidence"]}
    state["merged"] = {"another": other}
    return type(policy).restore(json.loads(json.dumps(state)))


@pytest.mark.medium
@every_cost
def test_the_end_of_a_licence_is_known_exactly(known: bool) -> None:
    """At the time that `explain` names, and not before, brute force, `decide` and `decide_many` offload again."""
    rng, checked = np.random.default_rng(8), 0
    for _ in range(500):
        offloads = int(rng.integers(5, 200))
        agreements = int(rng.integers(offloads // 2, offloads + 1))
        policy = with_evidence(KL(1, 0.52, 0.5 if known else None), [offloads], [agreements], offloads)
        expiry = policy.explain(0).expiry
        if expiry is None or not offloads + 3 < expiry < 3 * 10**6:
            continue
        brute = BruteForce(1, 0.52, 0.5 if known else None)
        brute.offloads[0], brute.agreements[0] = offloads, agreements
        brute.costs += [0.5] * offloads
        brute.t = expiry - 3
        expected = [brute.decide(0)[0] for _ in range(4)]  # at expiry - 2, expiry - 1, expiry, expiry + 1
        assert expected == [False, False, True, True]
        later = with_evidence(policy, [offloads], [agreements], expiry - 3)
        assert [later.decide(0).offload for _ in range(4)] == expected
        policy.decide_many(np.zeros(expiry - 3 - offloads, int))
        assert policy.decide_many([0] * 4).offload.tolist() == expected
        checked += 1
    assert checked >= 50


@pytest.mark.parametrize("cost", [0.5, 0.75])
@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.5, 1.0])
def test_equality_offloads(cost: float, alpha: float) -> None:
    """Where all n offloads agreed, n kl(1, q) = -n log q equals 2α log t at t = q^(-n/2α), often a whole number."""
    for offloads in range(1, 21):
        tie = (1 - cost) ** (-offloads / (2 * alpha))
        if tie == round(tie) and offloads < tie < 10**6:
            policy = with_evidence(KL(1, alpha, cost), [offloads], [offloads], round(tie) - 2)
            assert [policy.decide(0).offload, policy.decide(0).offload] == [False, True]


@pytest.mark.medium
def test_kl_licenses_whatever_lite_licenses() -> None:
    """Pinsker's inequality: kl(f, q) ≥ 2 (f - q)², so that KL asks for no more evidence than HI-LCB-lite."""
    licensed = 0
    for offloads, cost, alpha in product([1, 2, 7, 40, 300], [0.02, 0.2, 0.5, 0.8, 0.98, None], [0.1, 0.52, 3.0]):
        for agreements in range(offloads // 2, offloads + 1, max(1, offloads // 13)):
            for time in (offloads, 10 * offloads, 5_000):
                lite = with_evidence(HILCBLite(1, alpha, cost), [offloads], [agreements], time)
                kl_policy = with_evidence(KL(1, alpha, cost), [offloads], [agreements], time)
                if not lite.decide(0).offload:
                    assert not kl_policy.decide(0).offload
                    licensed += 1
                if cost is None:
                    continue
                if Fraction(agreements, offloads) == 1 - Fraction(str(cost)):  # a tie: rounding alone may decide time 1
                    assert lite.expiry(0) <= 2
                else:
                    assert kl_policy.expiry(0) >= lite.expiry(0)
    assert licensed >= 100


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.02, 0.3, 0.5, 0.5000001, 0.75, 0.98, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("q", [1e-12, 0.02, 0.3, 0.5, 0.7, 0.98, 1 - 1e-12])
def test_divergence_to_fifty_digits(p: float, q: float) -> None:
    with localcontext() as context:
        context.prec = 50
        sides = ((Exact(p), Exact(q)), (1 - Exact(p), 1 - Exact(q)))
        exact = sum(x * (x / y).ln() for x, y in sides if x > 0)
    assert divergence(p, q) == pytest.approx(float(exact), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.0), (1.0, 0.0), (1e-300, 0.0), (0.5, 1.0), (0.0, 1.0)])
def test_divergence_from_certainty_is_infinite(p: float, q: float) -> None:
    assert divergence(p, q) == math.inf


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_certainty_does_not_diverge_from_itself(p: float) -> None:
    assert divergence(p, p) == 0.0
