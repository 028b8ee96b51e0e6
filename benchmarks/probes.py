"""The operations that are timed: an empty call, the policies, the paper's formulas taken literally."""

import math
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hinge
from benchmarks.timing import Probe, Reading, clock
from benchmarks.workload import (
    ALPHA,
    COST,
    PLENTY,
    Samples,
    Stream,
    Subject,
    at_the_edge,
    counted,
    knowing,
    lower_bins,
    plenty,
    time_at_the_edge,
    upper_bins,
)
from hinge.policies import ExpiryPolicy

BATCH = 1_000_000  # decisions of one call of decide_many
OUTLIVES = 10**9  # samples that a licence must last so as not to run out while it is measured
SLOW_S = 1.0  # an operation slower than this is left out


# -- references -------------------------------------------------------------------------------------------------------


class Empty:
    """The unit: a method that does nothing."""

    def nothing(self, bin: int) -> None:
        pass


def timed_calls(call: Callable[[int], object], bins: Sequence[int]) -> Reading:
    """One call for each bin. The unit and the accepted samples are timed here, loop included."""
    started = clock()
    for bin in bins:
        call(bin)
    return Reading(clock() - started, len(bins))


def timed_loop(bins: Sequence[int]) -> Reading:
    """The loop alone, for who wants to take it off."""
    started = clock()
    for _ in bins:
        pass
    return Reading(clock() - started, len(bins))


def unit_probe(bins: Sequence[int]) -> Probe:
    call = Empty().nothing
    return Probe(lambda size: timed_calls(call, bins[:size]), most=len(bins))


def loop_probe(bins: Sequence[int]) -> Probe:
    return Probe(lambda size: timed_loop(bins[:size]), most=len(bins))


# -- policies ---------------------------------------------------------------------------------------------------------


@dataclass
class Probes:
    """What is timed of one policy at one number of bins; None where it does not apply or takes too long."""

    accepted: Probe | None = None
    offload: Probe | None = None
    mix: Probe | None = None

    def all(self) -> list[Probe]:
        return [probe for probe in (self.accepted, self.offload, self.mix) if probe]

    def mix_ns(self) -> float:
        """The price of an offload in the mix: what is left when the accepted samples are paid for."""
        accepted = self.accepted.best_ns() if self.accepted else 0.0
        return self.mix.typical_ns(accepted) if self.mix else math.nan


def policy_probes(subject: Subject, bins: int, drawn: Samples, mix_least: int) -> Probes:
    built = subject.build(bins)
    licensed = knowing(built, plenty(bins), PLENTY * bins)
    working = knowing(built.fresh(), at_the_edge(bins), time_at_the_edge(bins))
    lower, mixed = Stream(bins, seed=2), Stream(bins, seed=3)
    probes = Probes()
    if subject.name != "always-remote":
        probes.accepted = accepted_probe(licensed, drawn)
    if subject.name != "always-local":
        probes.offload = Probe(lambda size: timed_samples(working, lower.draw(size, *lower_bins(bins))))
        probes.mix = mix_probe(lambda size: timed_samples(working, mixed.draw(size, 0, bins)), mix_least)
    return probes


def mix_probe(run: Callable[[int], Reading], least: int) -> Probe:
    """Long batches, as some offloads move many licences."""
    return Probe(run, least=least, longer=5.0)


def accepted_probe(policy: hinge.Policy, drawn: Samples) -> Probe:
    """Samples of licensed bins, with whatever the policy must be told about a sample that it accepts."""
    bins = drawn[0]
    if policy.needs:
        return Probe(lambda size: all_counted(timed_samples(policy, first(drawn, size))))
    if not isinstance(policy, ExpiryPolicy):
        return Probe(lambda size: timed_decisions(policy, first(drawn, size)))
    for bin in sorted(set(bins), reverse=True):  # from the top: some policies then find all the licences at once
        if policy.expiry(bin) < policy.time + OUTLIVES:
            raise RuntimeError(f"{policy.name}: bin {bin} of {policy.bins} holds no licence to measure")
    return Probe(lambda size: timed_calls(policy.decide, bins[:size]), most=len(bins))


def timed_decisions(policy: hinge.Policy, samples: Samples) -> Reading:
    """The decisions alone of a policy that may, by chance, offload any bin; it learns off the clock."""
    decide = policy.decide
    started = clock()
    decisions = [decide(bin) for bin in samples[0]]
    seconds = clock() - started
    for decision, agreed, cost in zip(decisions, *samples[1:], strict=True):
        if decision.offload:
            policy.learn(decision, agreed, cost)
    return Reading(seconds, len(decisions))


def timed_samples(policy: hinge.Policy, samples: Samples) -> Reading:
    """Whole samples: decide, and learn where there is something to learn. Counts those that are offloaded."""
    decide, learn, always = policy.decide, policy.learn, bool(policy.needs)
    bins, agreements, costs = samples
    told: Sequence[float | None] = costs if policy.offload_cost is None else [None] * len(bins)
    offloaded = 0
    started = clock()
    for bin, agreed, cost in zip(bins, agreements, told, strict=True):
        decision = decide(bin)
        if decision.offload:
            offloaded += 1
            learn(decision, agreed, cost)
        elif always:
            learn(decision, agreed, cost)
    return Reading(clock() - started, offloaded, len(bins) - offloaded)


def learn_probe(subject: Subject, bins: int) -> Probe:
    """What `learn` takes alone, of offloads of low bins; they are decided off the clock."""
    policy, stream = knowing(subject.build(bins), at_the_edge(bins), time_at_the_edge(bins)), Stream(bins, seed=6)

    def run(size: int) -> Reading:
        drawn, agreements, _ = stream.draw(size, *lower_bins(bins))
        told = [pair for pair in zip(map(policy.decide, drawn), agreements, strict=True) if pair[0].offload]
        started = clock()
        for decision, agreed in told:
            policy.learn(decision, agreed)
        return Reading(clock() - started, len(told))

    return Probe(run)


def all_counted(reading: Reading) -> Reading:
    return Reading(reading.seconds, reading.operations + reading.accepted)


def first(samples: Samples, size: int) -> Samples:
    return samples[0][:size], samples[1][:size], samples[2][:size]


def seconds_at(subject: Subject, bins: int) -> float:
    """What one sample will take at that many bins, extrapolated as a power law from 64 and 256."""
    took = []
    for few in (64, 256):
        policy = knowing(subject.build(few), at_the_edge(few), time_at_the_edge(few))
        stream = Stream(few, seed=4)
        took.append(min(timed_samples(policy, stream.draw(32, 0, few)).seconds / 32 for _ in range(4)))
    return took[1] * math.pow(max(1.0, took[1] / took[0]), math.log(bins / 256, 4))


def bytes_per_bin(subject: Subject) -> float:
    """By how much a new policy grows in memory for each further bin, as tracemalloc sees it."""
    sizes = []
    for bins in (4_096, 8_192):
        subject.build(bins)  # imports and caches, before the count
        tracemalloc.start()
        policy = subject.build(bins)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del policy
    return (sizes[1] - sizes[0]) / 4_096


def batch_probe(bins: int) -> Probe:
    """`decide_many` of a million samples, all accepted."""
    policy = knowing(Subject("hi-lcb").build(bins), plenty(bins), PLENTY * bins)
    drawn = np.random.default_rng(5).integers(*upper_bins(bins), BATCH)

    def run(size: int) -> Reading:
        started = clock()
        decisions = policy.decide_many(drawn)
        seconds = clock() - started
        if decisions.offload.any():
            raise RuntimeError(f"decide_many: {bins} bins are not all licensed")
        return Reading(seconds, BATCH)

    return Probe(run, most=1)


# -- the paper, literally ---------------------------------------------------------------------------------------------


def literal_probes(literal: Any, offload_cost: float | None, bins: int, drawn: Samples, mix_least: int) -> Probes:
    """A policy of tests/policies/literal.py, with the same evidence as the policies above."""

    def prepared(offloads: "np.ndarray[Any, np.dtype[np.int64]]", now: int) -> Any:
        policy = literal(bins, ALPHA, offload_cost)
        policy.offloads[:] = offloads
        policy.agreement[:] = np.array(counted(offloads)["agreements"]) / offloads
        policy.t, policy.offloads_all, policy.mean_cost = now, int(offloads.sum()), COST
        return policy

    def samples(policy: Any, samples: Samples) -> Reading:
        decide, learn, offloaded = policy.decide, policy.learn, 0
        started = clock()
        for bin, agreed, cost in zip(*samples, strict=True):
            if decide(bin)[0]:
                offloaded += 1
                learn(bin, agreed, cost)
        return Reading(clock() - started, offloaded, len(samples[0]) - offloaded)

    licensed = prepared(plenty(bins), PLENTY * bins)
    working = prepared(at_the_edge(bins), time_at_the_edge(bins))
    lower, mixed = Stream(bins, seed=2), Stream(bins, seed=3)
    return Probes(
        Probe(lambda size: timed_calls(licensed.decide, drawn[0][:size])),
        Probe(lambda size: samples(working, lower.draw(size, *lower_bins(bins)))),
        mix_probe(lambda size: samples(working, mixed.draw(size, 0, bins)), mix_least),
    )
