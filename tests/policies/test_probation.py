"""Probation decides as its description says: against `literal_probation`, which its mutants do not survive."""

import random
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hinge.policies.probation
from hinge import Probation
from hinge.policies import Decision
from hinge.policies.evidence import page
from tests.policies.literal_probation import LiteralProbation


class World(NamedTuple):
    """What happens to a policy; each world lacks or exaggerates something."""

    bins: int = 16
    price: float = 0.15
    delay: int = 0  # samples until feedback comes, at most
    told: float = 0.0  # share of samples whose price is told
    moves: float = 0.0  # of the price, for each sample
    extra: float = 0.0  # what a budget adds to the price, at most
    looks: float = 0.0  # samples that are offloaded for another reason
    fails: float = 0.0  # offloads that fail
    real: bool = False  # agreement is any number from 0 to 1
    turns: int = 10_000  # samples until agreement is another, in all bins


WORLDS = {
    "plain": World(),
    "even price": World(price=0.5, bins=4, turns=3_000),
    "dear": World(price=0.9, turns=2_000),
    "cheap": World(price=0.02),
    "free": World(price=0.0, bins=3),
    "dearer than wrong": World(price=1.0, bins=3, told=0.3),
    "one bin": World(bins=1, price=0.4, turns=700),
    "late": World(delay=400, price=0.2),
    "very late": World(delay=3_000, price=0.3, bins=5, turns=4_000),
    "told": World(told=0.5, price=0.2),
    "told and late": World(told=0.2, delay=200, fails=0.1),
    "moving": World(moves=0.01, price=0.3),
    "moving, told and late": World(moves=0.003, told=0.2, delay=100, looks=0.01),
    "budget": World(extra=0.3, moves=0.02, looks=0.02, fails=0.02),
    "real": World(real=True, price=0.4, delay=50, turns=2_000),
    "turning": World(turns=150, price=0.5, bins=2),
}
PRICES = (0.02, 0.05, 0.1, 0.15, 0.151, 0.2, 0.3, 0.5, 0.9, 1.0)


def agreements(world: World, chance: random.Random) -> list[float]:
    """Of the bins: rising, falling, all alike, or any."""
    kind, bins = chance.randrange(4), world.bins
    rising = sorted(chance.random() ** chance.choice((0.1, 0.5, 1.0)) for _ in range(bins))
    return (rising, rising[::-1], [chance.random()] * bins, chance.sample(rising, bins))[kind]


def run(make: Callable[[int, float], Any], world: World, samples: int, seed: int) -> Iterator[tuple[bool, bool]]:
    """What a policy and the literal one decide, sample by sample."""
    chance = random.Random(seed)
    policy, literal = make(world.bins, world.price), LiteralProbation(world.bins, world.price)
    waiting: list[tuple[int, Decision, float]] = []
    for time in range(samples):
        if time % world.turns == 0:
            rates = agreements(world, chance)
        if chance.random() < world.moves:
            price, extra = chance.choice(PRICES) * chance.choice((1.0, 1.0, 1.01)), world.extra * chance.random()
            policy.reprice(min(1.0, price), extra)
            literal.reprice(min(1.0, price), extra)
        bin = int(world.bins * chance.random() ** 0.7)
        if chance.random() < world.looks:
            decision, offload = policy.overrule(bin, True), True
            literal.look()
        else:
            told = chance.choice(PRICES) if chance.random() < world.told else None
            decision, offload = policy.decide(bin, told), literal.decide(bin, told)
            yield decision.offload, offload
        if offload:
            agreed = chance.random() ** 2 * rates[bin] if world.real else float(chance.random() < rates[bin])
            waiting.append((time + int(world.delay * chance.random()), decision, agreed))
        while waiting and waiting[0][0] <= time:
            _, decided, agreed = waiting.pop(0)
            if chance.random() < world.fails:
                policy.forget(decided)
            else:
                policy.learn(decided, agreed)
                literal.learn(decided.bin or 0, agreed)


def differs(make: Callable[[int, float], Any], world: World, samples: int, seed: int = 1) -> bool:
    return any(decided != expected for decided, expected in run(make, world, samples, seed))


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_it_decides_as_the_formulas_say(world: World) -> None:
    for time, (decided, expected) in enumerate(run(Probation, world, 100_000 // len(WORLDS), seed=1)):
        assert decided == expected, time


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_it_decides_as_the_formulas_say_in_a_million_samples(world: World) -> None:
    for time, (decided, expected) in enumerate(run(Probation, world, 1_000_000 // len(WORLDS), seed=2)):
        assert decided == expected, time


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=20), st.floats(0.02, 0.98), st.floats(0.02, 0.98))
def test_a_step_of_pages_sum_is_no_larger_in_the_mean_than_that_of_a_coin(
    values: list[float], suspected: float, weight: float
) -> None:
    """E e^step ≤ 1 for any X in [0, 1] with the usual mean, which is what bounds false alarms."""
    chances = np.array([weight] + [(1.0 - weight) / (len(values) - 1)] * (len(values) - 1))
    usual = float(chances @ values)
    if 0.01 < usual < 0.99:
        steps = [page(1e6, value, suspected, usual) - 1e6 for value in values]
        assert float(chances @ np.exp(steps)) <= 1.0 + 1e-6


# -- what it says -----------------------------------------------------------------------------------------------------


def taught(policy: Probation, bin: int, *answers: bool) -> Probation:
    for agreed in answers:
        policy.learn(policy.overrule(bin, True), agreed)
    return policy


def test_it_says_why_in_one_sentence() -> None:
    policy = Probation(4, 0.25)
    assert str(policy.explain(1)) == "Bin 1 is offloaded: not yet compared; too few to tell whether accepting pays."
    taught(policy, 1, True, False, False)
    assert str(policy.explain(1)) == "Bin 1 is offloaded: 1 of 3 agreed; accepting pays above 75 %."
    taught(policy, 2, *[True] * 30)
    explanation = policy.explain(2)
    left = explanation.samples_left
    assert left is not None
    assert (
        str(explanation) == f"Bin 2 is accepted for {left} more samples: 30 of 30 agreed, and 1 of 3 in the bins below."
    )
    for _ in range(left):
        assert not policy.decide(2).offload
    assert str(policy.explain(2)) == "Bin 2 is due for an audit: 30 of 30 agreed."
    assert policy.decide(2).offload
    assert not policy.decide(2).offload, "the last licence is granted again until the audit's feedback comes"
    policy.reprice(1.0)
    taught(policy, 0, False)
    assert str(policy.explain(0)) == "Bin 0 is accepted: a wrong answer costs no more than an offload."


def test_it_counts_how_often_agreement_fell_everywhere() -> None:
    policy = Probation(2, 0.2)
    for answer in (True, False):
        for bin in (0, 1) * 60:
            decision = policy.decide(bin)
            if decision.offload:
                policy.learn(decision, answer)
    for _ in range(40):
        taught(policy, 0, False)
    assert policy.alarms == {"agreement fell": 1}


def test_a_price_that_moves_cuts_licences_and_never_lengthens_them() -> None:
    policy = taught(Probation(1, 0.2), 0, *[True] * 50)
    left = [policy.explain(0).samples_left or 0]
    for price, extra in ((0.201, 0.0), (0.2, 0.5), (0.4, 0.0), (0.1, 0.0), (0.4, 0.0)):
        policy.reprice(price, extra)
        left.append(policy.explain(0).samples_left or 0)
    assert left[0] == left[1] == left[2] == left[3] > left[4] == left[5] > 0


# -- mutants ----------------------------------------------------------------------------------------------------------

SOURCE = Path(hinge.policies.probation.__file__).read_text(encoding="utf-8")
MUTANTS = {
    "scale": ("SCALE = 20.0", "SCALE = 21.0"),
    "doubt": ("DOUBT = 3.0", "DOUBT = 3.3"),
    "fall": ("FALL = 0.75", "FALL = 0.7"),
    "moved": ("MOVED = 0.02", "MOVED = 0.005"),
    "moved more": ("MOVED = 0.02", "MOVED = 0.4"),
    "break-even itself": ("if a < q * n", "if a <= q * n"),
    "record below break-even": ("if a < q * n", "if a < 0.9 * q * n"),
    "evidence that is held": ("min(held, audits, probation)", "min(audits, probation)"),
    "worth of audits": ("min(held, audits, probation)", "min(held, probation)"),
    "probation": ("min(held, audits, probation)", "min(held, audits)"),
    "samples seen": ("CERTAIN)) - seen", "CERTAIN))"),
    "expm1": ("number * expm1", "number * exp"),
    "first own offload": ("SCALE * (1.0 + n)", "SCALE * n"),
    "lies": (" - table.sums[MISLED], CERTAIN", ", CERTAIN"),
    "doubt in the bin": ("* exp(-table.changed[bin])", ""),
    "at least one": ("max(int(samples), 1)", "int(samples)"),
    "testimony": ("range(bin, -1, -1)", "range(bin, max(bin - 2, -1), -1)"),
    "strongest": ("if evidence > strongest", "if evidence > 0.0"),
    "in flight": ("table.left[bin] = table.granted[bin]\n    table.passed", "table.passed"),
    "in flight, counted": ("    table.samples[bin] += table.granted[bin] - table.left[bin]\n", ""),
    "told, one longer": ("return since >= samples", "return since > samples"),
    "told licences are used": ("table.passed[bin] += 1\n    table.samples[bin] += 1.0", "table.left[bin] -= 1"),
    "told samples are not seen": ("    table.samples[bin] += 1.0\n\n", "\n"),
    "told changes the mean": ("    table.predicted[bin] = mean\n    return since", "    return since"),
    "drops of all": ("DOUBT + log(sums[LEARNED])", "DOUBT"),
    "drops of one": ("DOUBT + log(table.offloads[bin] + 1.0)", "DOUBT"),
    "no drop": ("outcome = DROPPED\n        drop(table, bin)", "outcome = DROPPED"),
    "clock after a drop": ("    table.sums[BEGUN] = time\n", ""),
    "cuts lengthen": ("min(table.left[bin], grant(", "max(table.left[bin], grant("),
    "extra cuts": ("abs(price - table.sums[CUT_AT])", "abs(price + extra - table.sums[CUT_AT])"),
    "extra is left out": ("table.price[0] = price + extra", "table.price[0] = price"),
    "who was misled": ("if table.predicted[bin] > 0.0", "if table.predicted[bin] > 2.0"),
}


def mutant(old: str, new: str) -> Any:
    """The class as it would be with a change; it has no name, so that it is not registered."""
    assert SOURCE.count(old) == 1, old
    module = types.ModuleType("mutant")
    changed = SOURCE.replace(old, new).replace('    name = "probation"\n', "")
    exec(compile(changed, "mutant", "exec"), module.__dict__)
    return module.Probation


@pytest.mark.medium
@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_changed_rule_would_be_noticed(old: str, new: str) -> None:
    changed = mutant(old, new)
    assert any(differs(changed, world, 12_000, seed) for seed in (1, 2) for world in WORLDS.values())
