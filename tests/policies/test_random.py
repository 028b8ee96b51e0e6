"""The randomised policies: laws of chance with stated tolerances, and their formulas recomputed independently.

Seeds are fixed, so nothing here is flaky; a tolerance of five standard deviations says how surprised we would be.
"""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hinge import Decision, Thompson
from hinge.policies import HILF, HedgeHI, Need, RandomisedPolicy
from hinge.policies.random import philox, uniform
from tests.policies.exponential_weights import Experts, centre, hedge_hi_rates

BINS = 5
KNOWN: dict[str, Callable[[], RandomisedPolicy]] = {
    "thompson": lambda: Thompson(BINS, 0.4),
    "hedge-hi": lambda: HedgeHI(500, BINS, 0.4),
    "hedge-hi-coin": lambda: HedgeHI(500, BINS, 0.4, "N ln 2"),
    "hil-f": lambda: HILF(500, BINS, 0.4),
}
TOLD: dict[str, Callable[[], RandomisedPolicy]] = {
    "hedge-hi": lambda: HedgeHI(500, BINS),
    "hedge-hi-coin": lambda: HedgeHI(500, BINS, complexity="N ln 2"),
    "hil-f": lambda: HILF(500, BINS),
}
EVERY = [pytest.param(make, id=f"{name}-known") for name, make in KNOWN.items()]
EVERY += [pytest.param(make, id=f"{name}-told") for name, make in TOLD.items()]
THRESHOLDS = [case for case in EVERY if "thompson" not in str(case.id)]


def tell(policy: RandomisedPolicy, decision: Decision, agreed: bool, cost: float) -> None:
    """Give a policy all that it may see of a slot, and no more."""
    if decision.offload or Need.AGREEMENT in policy.needs:
        policy.learn(decision, agreed, cost)
    elif Need.COST in policy.needs:
        policy.learn(decision, cost=cost)


def drive(policy: RandomisedPolicy, slots: int, seed: int = 1) -> RandomisedPolicy:
    rng = np.random.default_rng(seed)
    for _ in range(slots):
        bin = int(rng.integers(policy.bins))
        agreed = bool(rng.random() < 0.3 + 0.6 * centre(bin, policy.bins))
        tell(policy, policy.decide(bin), agreed, float(rng.choice([0.2, 0.6])))
    return policy


def reseeded(state: dict[str, Any], seed: int) -> Any:
    return state | {"parameters": state["parameters"] | {"seed": seed}}


def within(observed: float, expected: float, deviation: float, sigmas: float = 5.0) -> bool:
    return abs(observed - expected) <= sigmas * deviation + 1e-12


# -- how often they offload -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("slots", [0, 7, 63, 64, 300])
@pytest.mark.parametrize("make", EVERY)
def test_offloads_as_often_as_it_says(make: Callable[[], RandomisedPolicy], slots: int) -> None:
    policy = drive(make(), slots)
    state, kind, bin, draws = policy.state(), type(policy), slots % BINS, 2_000
    chance = policy.offload_probability(bin)
    assert chance == policy.explain(bin).offload_probability
    offloads = sum(kind.restore(reseeded(state, seed)).decide(bin).offload for seed in range(draws))
    assert within(offloads / draws, chance, math.sqrt(chance * (1 - chance) / draws))


# -- exponential weights, recomputed ----------------------------------------------------------------------------------


def all_thresholds(bins: int) -> Experts:
    """One expert between each two neighbouring confidences, all equally likely."""
    return Experts([0.0, *(centre(bin, bins) for bin in range(bins)), 1.0], [1.0] * (bins + 1))


class Story:
    """Slots of a run: bin, confidence, error and cost, and what the policy's exploration coin showed."""

    def __init__(self, policy: RandomisedPolicy, slots: int, fixed_cost: float | None) -> None:
        self.policy, self.slots, self.rng = policy, slots, np.random.default_rng(slots)
        self.fixed_cost = fixed_cost

    def __iter__(self) -> Any:
        for time in range(1, self.slots + 1):
            bin = int(min(self.policy.bins - 1, self.rng.geometric(0.25) - 1))
            error = float(self.rng.random() > 0.2 + 0.7 * centre(bin, self.policy.bins))
            cost = float(self.rng.uniform(0.1, 0.7)) if self.fixed_cost is None else self.fixed_cost
            yield time, bin, centre(bin, self.policy.bins), error, cost

    def step(self, bin: int, error: float, cost: float, share: float) -> None:
        """Decide and learn; the draw of the slot falls below the share of the weight, or it does not."""
        decision = self.policy.decide(bin)
        assert decision.offload == (uniform(self.policy.seed, self.policy.time, 0) < share)
        tell(self.policy, decision, error == 0.0, cost)


every_cost = pytest.mark.parametrize("cost", [0.35, None], ids=["known", "told"])
every_size = pytest.mark.parametrize("bins", [1, 2, 16])


@every_cost
@every_size
@pytest.mark.parametrize("complexity", ["N", "N ln 2", "ln(N+1)"])
def test_hedge_hi_is_exponential_weights(bins: int, cost: float | None, complexity: str) -> None:
    policy = HedgeHI(2_000, bins, cost, complexity, seed=9)
    amount = {"N": bins, "N ln 2": bins * math.log(2), "ln(N+1)": math.log(bins + 1)}[complexity]
    rate, exploration = hedge_hi_rates(amount, 2_000)
    assert (policy.learning_rate, policy.exploration) == pytest.approx((rate, exploration), rel=1e-12)
    experts = all_thresholds(bins)
    for time, bin, confidence, error, price in Story(policy, 400, cost):
        share = experts.share(confidence, rate)
        assert policy.offload_probability(bin) == pytest.approx(exploration + (1 - exploration) * share, rel=1e-9)
        coin = uniform(policy.seed, time, 1) < exploration
        drawn = uniform(policy.seed, time, 0) < share
        decision = policy.decide(bin)
        assert decision.offload == (drawn or coin)
        tell(policy, decision, error == 0.0, price)
        experts.charge(confidence, price, error / exploration if coin else 0.0)


@every_cost
@every_size
def test_hedge_hi_weighs_every_offload_by_its_chance(bins: int, cost: float | None) -> None:
    policy, experts = HedgeHI(2_000, bins, cost, seed=9), all_thresholds(bins)
    rate, exploration = 0.005 * 50 ** (2 / 3), 0.005 * 50 ** (1 / 3)
    assert (policy.learning_rate, policy.exploration) == pytest.approx((rate, exploration), rel=1e-12)
    for time, bin, confidence, error, price in Story(policy, 400, cost):
        share = experts.share(confidence, rate)
        chance = exploration + (1 - exploration) * share
        assert policy.offload_probability(bin) == pytest.approx(chance, rel=1e-9)
        decision = policy.decide(bin)
        assert decision.offload == (uniform(9, time, 0) < share or uniform(9, time, 1) < exploration)
        tell(policy, decision, error == 0.0, price)
        experts.charge(confidence, price, error / chance if decision.offload else 0.0)


@every_cost
@pytest.mark.parametrize("bins", [2, 16])
def test_hil_f_is_exponential_weights_on_a_continuum(bins: int, cost: float | None) -> None:
    policy, experts = HILF(1_000, bins, cost), Experts([0.0, 1.0], [1.0])
    rate = math.sqrt(8 * math.log(bins) / 1_000)
    assert policy.learning_rate == pytest.approx(rate, rel=1e-12)
    story = Story(policy, 400, cost)
    for _, bin, confidence, error, price in story:
        experts.split(confidence)
        share = experts.share(confidence, rate)
        assert policy.offload_probability(bin) == pytest.approx(share, rel=1e-9)
        story.step(bin, error, price, share)
        experts.charge(confidence, price, error)


# -- ten million samples and beyond -----------------------------------------------------------------------------------

TOTALS = [
    [0.0, 0.0, 0.0],
    [1e7, 1e7, 1e7],
    [0.0, 4e6, 1e7],  # the losses after 10⁷ samples that one expert gets all right and another all wrong
    [1e7, 4e6, 0.0],
    [1e7 / 0.004, 4e6, 1e7],  # pseudo-losses of 1/ε each
    [1e12, 1e12 + 1.0, 0.0],
    [0.0, 1e12, 1e300],
]


@pytest.mark.parametrize("losses", TOTALS, ids=str)
@pytest.mark.parametrize("make", THRESHOLDS)
def test_weights_neither_overflow_nor_vanish(make: Callable[[], RandomisedPolicy], losses: list[float]) -> None:
    """From the losses that 10⁷ samples and more add up to, at the policy's own rate and at far larger ones."""
    template = make()
    for learning_rate in (None, 1e-12, 50.0, 1e12):
        settings = template.parameters | {"bins": 2}
        if learning_rate is not None and "learning_rate" in settings:
            settings["learning_rate"] = learning_rate
        state = type(template)(**settings).state() | {"time": 10**7, "learned": 10**7}
        state["table"] |= {"losses": losses}
        policy = type(template).restore(state)
        for slot in range(30):
            chances = [policy.offload_probability(bin) for bin in range(2)]
            assert 0 <= chances[1] <= chances[0] <= 1
            tell(policy, policy.decide(slot % 2), slot % 3 == 0, 0.5)
        json.dumps(policy.state(), allow_nan=False)


# -- the source of chance ---------------------------------------------------------------------------------------------

VECTORS = [  # Random123's known answers for philox2x32: rounds, counter, key, output
    (7, (0x00000000, 0x00000000), 0x00000000, (0x257A3673, 0xCD26BE2A)),
    (7, (0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0xAB302C4D, 0x3DC9D239)),
    (7, (0x243F6A88, 0x85A308D3), 0x13198A2E, (0xBEDBBE6B, 0xE4C770B3)),
    (10, (0x00000000, 0x00000000), 0x00000000, (0xFF1DAE59, 0x6CD10DF2)),
    (10, (0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
    (10, (0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
]


@pytest.mark.parametrize(("rounds", "counter", "key", "words"), VECTORS)
def test_philox_gives_the_published_answers(
    rounds: int, counter: tuple[int, int], key: int, words: tuple[int, int]
) -> None:
    assert philox(*counter, key, rounds) == words


def test_uniform_is_made_of_53_bits_of_philox() -> None:
    rng = np.random.default_rng(6)
    for draw in [0, 1] * 250:
        seed, time = int(rng.integers(2**32)), int(rng.integers(2**56))
        low, high = philox(time % 2**32, (time // 2**32 * 256 + draw) % 2**32, seed, 7)
        expected = Fraction(low // 2**5 * 2**26 + high // 2**6, 2**53)
        assert Fraction(uniform(seed, time, draw)) == expected < 1


def chi_square(counts: Any) -> float:
    """Standard deviations by which a chi-square statistic of equally likely cells exceeds its mean."""
    cells = np.asarray(counts, float).ravel()
    expected = cells.sum() / cells.size
    statistic = float(((cells - expected) ** 2).sum() / expected)
    return (statistic - (cells.size - 1)) / math.sqrt(2 * (cells.size - 1))


STREAMS = {
    "times": lambda k: (7, k, 0),
    "second draws": lambda k: (7, k, 1),
    "late times": lambda k: (7, 2**32 - 20_000 + k, 0),
    "seeds": lambda k: (k, 12, 0),
    "distant seeds": lambda k: ((k * 2654435761) % 2**32, 1, 0),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_uniform_is_uniform_and_serially_independent(stream: Callable[[int], tuple[int, int, int]]) -> None:
    numbers = np.array([uniform(*stream(k)) for k in range(1, 40_001)])
    assert 0 <= numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1
    assert abs(chi_square(np.histogram(numbers, 250, (0, 1))[0])) < 5
    assert within(float(numbers.mean()), 0.5, math.sqrt(1 / 12 / len(numbers)))
    for lag in (1, 2, 3, 64):
        independent(numbers[:-lag], numbers[lag:])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (STREAMS["times"], STREAMS["second draws"]),
        (STREAMS["times"], lambda k: (8, k, 0)),
        (STREAMS["times"], lambda k: (7 + 2**31, k, 0)),
        (STREAMS["times"], lambda k: (7, k + 2**32, 0)),
        (STREAMS["times"], lambda k: (7, 2 * k, 0)),
    ],
    ids=["draws", "neighbouring seeds", "seeds one bit apart", "times 2^32 apart", "doubled times"],
)
def test_streams_are_independent(one: Callable[[int], Any], other: Callable[[int], Any]) -> None:
    columns = [np.array([uniform(*stream(k)) for k in range(1, 20_001)]) for stream in (one, other)]
    independent(*columns)


def independent(one: Any, other: Any) -> None:
    assert within(float(np.corrcoef(one, other)[0, 1]), 0, 1 / math.sqrt(len(one)))
    assert abs(chi_square(np.histogram2d(one, other, 16, ((0, 1), (0, 1)))[0])) < 5
