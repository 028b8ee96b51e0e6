"""The simulator's kernel and the policy object decide alike, sample for sample, on every source."""

import math
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain

import numpy as np
import pytest

from hinge import Isotonic, Policy, at_most, on_budget
from hinge.policies import ExpiryPolicy
from hinge.simulation import Run, run_seeds, simulate
from hinge.simulation.engine import policy_seed
from hinge.simulation.sources import Adaptive, Source
from hinge.testing import tell
from tests.simulation.streams import ADAPTIVE, deterministic, policy_for, sources, variants

Sample = tuple[int, bool, float, float]  # bin, agreed, cost, gap
Pair = tuple[str, bool, str]  # policy, learned cost, source

SEED = 20
ENOUGH = 100_000
# ENOUGH on every single source
THOROUGH = ("hi-lcb", "hi-lcb-lite", "kl", "thompson", "hedge-hi", "isotonic", "discounted-isotonic")
BITWISE = ("hi-lcb", "kl", "hedge-hi", "thompson")
BIT_LENGTH = 20_000


def pairs() -> list[Pair]:
    """Every policy with every source that can play with it."""
    everything = [(name, learned, source) for name, learned in variants() for source in sources(6)]
    return [pair for pair in everything if deterministic(pair[0]) or pair[2] != ADAPTIVE]


def length_of(pair: Pair) -> int:
    """Known and learned cost share ENOUGH on each source; the other policies gather it over all of them."""
    return ENOUGH // 2 if pair[0] in THOROUGH else 8_000


def bins_of(name: str, learned: bool) -> int:
    return 4 if name == "pooled-kl" and learned else 6  # it is slow in Python, the more so the more bins there are


def every_sample(source: Source, policy: Policy, run_seed: int, horizon: int) -> Iterator[Sample]:
    """The samples of a run, one by one; an adversary looks at the policy before each."""
    for chunk in source.stream(run_seed, horizon):
        if isinstance(source, Adaptive):
            yield from attack(source, policy, chunk.agreed.tolist(), chunk.costs.tolist())
        else:
            columns = (chunk.bins, chunk.agreed.astype(bool), chunk.costs, chunk.gaps)
            yield from zip(*(column.tolist() for column in columns), strict=True)


def attack(source: Adaptive, policy: Policy, uniforms: list[float], costs: list[float]) -> Iterator[Sample]:
    """Send the bin of the largest expected regret, the lowest of equals, as the adversary's definition says."""
    assert isinstance(policy, ExpiryPolicy)
    agreement, mean_cost = source.agreement.tolist(), source.mean_offload_cost
    for uniform, cost in zip(uniforms, costs, strict=True):
        losses: list[float] = []
        for f in agreement:
            gap = 1.0 - f - mean_cost
            offloads = policy.functions.offloads(policy.table, len(losses), policy.time + 1)
            losses.append(max(0.0, -gap if offloads else gap))
        bin = losses.index(max(losses))
        yield bin, uniform < agreement[bin], cost, 1.0 - agreement[bin] - mean_cost


def drive(policy: Policy, samples: Iterator[Sample]) -> tuple[list[bool], list[float]]:
    """The decisions of the object, and what each of them costs more than the oracle's, in expectation."""
    decisions, losses = [], []
    for bin, agreed, cost, gap in samples:
        decision = policy.decide(bin)
        tell(policy, decision, (bin, agreed, cost))
        decisions.append(decision.offload)
        losses.append(abs(gap) if decision.offload == (gap < 0) else 0.0)
    return decisions, losses


def first_difference(one: list[bool], other: list[bool]) -> int | None:
    if len(one) != len(other):
        return min(len(one), len(other))
    return next((i for i, (left, right) in enumerate(zip(one, other, strict=True)) if left != right), None)


def label(pair: Pair) -> str:
    return f"{pair[0]}, {'learned' if pair[1] else 'known'} cost, {pair[2]}"


@pytest.mark.parametrize("pair", pairs(), ids=label)
def test_kernel_and_object_decide_alike(pair: Pair) -> None:
    name, learned, kind = pair
    source, horizon = sources(bins_of(name, learned))[kind], length_of(pair)
    policy = policy_for(name, learned, source, horizon)
    run = simulate({name: policy}, source, horizon, seed=SEED, record_decisions=True)[name].runs[0]

    run_seed = run_seeds(SEED, 1)[0]
    driven = policy.fresh(policy_seed(run_seed))
    decisions, losses = drive(driven, every_sample(source, driven, run_seed, horizon))

    assert run.decisions is not None
    assert len(decisions) == horizon
    assert first_difference(run.decisions.tolist(), decisions) is None
    assert run.offloads[-1] == sum(decisions)
    assert run.regret[-1] == pytest.approx(math.fsum(losses), rel=1e-9, abs=1e-9)


def budgeted(name: str, learned: bool) -> Policy:
    """A policy within a limit, at a price, or both."""
    policy: Policy = Isotonic(6, offload_cost=None if learned else 0.3)
    if name != "at most":
        policy = on_budget(policy, 0.25)
    return policy if name == "on budget" else at_most(policy, 0.3, 200)


@pytest.mark.parametrize("learned", [False, True], ids=["known", "learned"])
@pytest.mark.parametrize("kind", ["resampled", "in order", "blocks", "sudden drift"])
@pytest.mark.parametrize("name", ["at most", "on budget", "both"])
def test_kernel_and_object_decide_alike_within_a_budget(name: str, kind: str, learned: bool) -> None:
    source, policy, horizon = sources(6)[kind], budgeted(name, learned), 10_000
    run = simulate({name: policy}, source, horizon, seed=SEED, record_decisions=True)[name].runs[0]
    run_seed = run_seeds(SEED, 1)[0]
    decisions, _ = drive(policy, every_sample(source, policy, run_seed, horizon))
    assert run.decisions is not None
    assert first_difference(run.decisions.tolist(), decisions) is None
    assert 0 < sum(decisions) < horizon


def test_every_policy_and_every_source_sees_enough() -> None:
    assert len({name for name, _ in variants()}) >= 23
    seen: dict[object, int] = {}
    for pair in pairs():
        name, learned, kind = pair
        keys: tuple[object, ...] = ((name, learned), kind, (name, kind))
        for key in keys:
            seen[key] = seen.get(key, 0) + length_of(pair)
    for key in chain(variants(), sources(6)):
        assert seen[key] >= ENOUGH, key
    for name in THOROUGH:
        for kind in sources(6):
            assert seen.get((name, kind), 0) >= ENOUGH or (kind == ADAPTIVE and not deterministic(name)), (name, kind)


def bitwise_pairs() -> list[Pair]:
    """Every policy on a source with true labels, and a few on sources of every other shape."""
    everywhere = [(name, learned, "resampled") for name, learned in variants()]
    kinds = ("in order", "shuffled", "blocks", "gradual drift", ADAPTIVE)
    elsewhere = [(name, learned, kind) for name in BITWISE for learned in (False, True) for kind in kinds]
    return everywhere + [pair for pair in elsewhere if pair in pairs()]


@pytest.mark.parametrize("pair", bitwise_pairs(), ids=label)
def test_machine_code_and_python_give_the_same_bits(pair: Pair) -> None:
    name, learned, kind = pair
    source = sources(bins_of(name, learned))[kind]
    policies = {name: policy_for(name, learned, source, BIT_LENGTH)}
    compiled, interpreted = (
        simulate(policies, source, BIT_LENGTH, seed=SEED, record_decisions=True, machine_code=machine_code)[name]
        for machine_code in (True, False)
    )
    assert compiled.times.tobytes() == interpreted.times.tobytes()
    for field in fields(Run):
        one, other = (np.asarray(getattr(record.runs[0], field.name)) for record in (compiled, interpreted))
        assert (one.dtype, one.shape) == (other.dtype, other.shape), field.name
        assert one.tobytes() == other.tobytes(), field.name
