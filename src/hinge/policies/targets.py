"""A target in place of a price: answers agree with the remote's at least so often, by as few offloads as possible.

Derived here; grade A. An answer that was offloaded agrees by definition, so up to time t the answers have

    L_t = Σ accepted · (1 - agreed)     errors,      and the target a says     L_t ≤ (1 - a) t.

Nobody sees L_t. Every sample is offloaded with a probability p > 0 that is chosen before its coin is thrown, and what
the coin lets pass is as a rule like what it catches. Fix λ > 0. A disagreement multiplies

    exp(λ L_t - S_t)    by    e^λ    if it is missed, with probability 1 - p,
                        and by    e^-μ    if it is seen, with probability p,   μ(p) = -log((1 - (1 - p) e^λ) / p),

where S is charged μ(p) for every disagreement that is seen. That factor is 1 on average, for any p > 1 - e^-λ, so this
is a nonnegative martingale which starts at 1, whatever samples come and however they depend on what was done before.
By Ville's inequality (1939), with probability 1 - δ, for all t at once,

    λ L_t ≤ log(1 / δ) + S_t.

With J values of λ, each with δ / J, all of these bounds hold together. The policy takes one λ after the other, from the
largest, which proves soonest, to the smallest, which audits least, and never lets p be so small that seeing one more
disagreement could break

    log(J / δ) + S_t ≤ λ (1 - a) t.                                                                                  (1)

Hence **L_t ≤ (1 - a) t for all t at once, with probability `confidence`, against any input**: agreement may change,
need not rise with confidence, and may answer what the policy does; only the coins must not be known beforehand. Until
(1) holds for the first time everything is offloaded.

Which p is cheapest is a guess that only costs offloads where it is wrong. With d the share of disagreements in a bin,
an accepted sample uses up d (1 - p) (1 + λ / 2p) of the errors allowed. The fewest offloads for what is used up have

    p = √(λ/2 · νd / (1 - νd)),      and    p = 1    where that exceeds 1:                                            (2)

a threshold at d = 1/ν, below which bins are audited, the rarer the surer they are. ν is found by dual steps, so that
what is used up comes to what is allowed and (1) leaves unused.

An offload is charged as a disagreement, and as an error, until its feedback arrives, and so is one that a budget
around this policy refused: a remote that fails, or a budget that is too small, makes (1) false, never unnoticed.
"""

import math
from typing import NamedTuple

from hinge._checks import real
from hinge.policies.policy import Reals, Wholes, real_column, whole_column
from hinge.policies.random import RandomisedPolicy, uniform

RATES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # λ
MEMORY = 4096  # samples after which feedback is too late to take back what an offload was charged
STEP = 0.01
PULL = 10.0
STEEPEST = 7.0  # of |log ν|
SWITCH = 1.0
AIM = 2.0
SHIFT = 2.0/3.0
RAREST = 1.2
RESERVE = 0.05
FLOOR = 0.1


class TargetTable(NamedTuple):
    """Evidence, and what was charged."""

    offloads: Reals
    agreements: Reals
    charges: Reals  # S, for each λ
    stage: Wholes  # which λ is in use
    multiplier: Reals  # log ν
    chances: Reals  # with which probability a sample was offloaded, by time modulo MEMORY; 0: it was not
    entry: float  # log(J / δ)
    allowed: float  # 1 - a
    seed: int


def margin(table: TargetTable, stage: int, time: int) -> float:
    """What (1) leaves, in nats."""
    return RATES[stage] * table.allowed * time - table.entry - table.charges[stage]


def disagreement(table: TargetTable, bin: int) -> float:
    """The share of disagreements in a bin, with one of each kind added."""
    return (table.offloads[bin] - table.agreements[bin] + 1.0) / (table.offloads[bin] + 2.0)


def cheapest(table: TargetTable, bin: int) -> float:
    """The probability of (2)."""
    x = math.exp(table.multiplier[0]) * disagreement(table, bin)
    if x >= 1.0:
        return 1.0
    rate = RATES[table.stage[0]]
    return min(1.0, max(RAREST * rate, SHIFT * rate + math.sqrt(rate / 2.0 * x / (1.0 - x))))


def chance(table: TargetTable, bin: int, time: int) -> float:
    """With which probability a sample is offloaded: the cheapest that one more disagreement leaves room for."""
    rate = RATES[table.stage[0]]
    room = margin(table, table.stage[0], time) - rate
    if room <= 0.0:
        return 1.0
    least = math.expm1(rate) / (math.exp(rate) - math.exp(-room))
    return min(1.0, max(least, cheapest(table, bin)))


def charge(rate: float, p: float, disagreed: float) -> float:
    """μ: what seeing a disagreement says about those that were missed, in nats."""
    if p >= 1.0:
        return 0.0
    return -math.log((1.0 - (1.0 - p) * math.exp(rate * disagreed)) / p)


def plan(table: TargetTable, bin: int, time: int) -> None:
    """The next λ once it leaves more, and a dual step."""
    stage = table.stage[0]
    if stage + 1 < len(RATES) and margin(table, stage + 1, time) >= SWITCH:
        stage += 1
        table.stage[0] = stage
    p, rate = cheapest(table, bin), RATES[table.stage[0]]
    used = disagreement(table, bin) * (1.0 - p) * (1.0 + rate / (2.0 * (p - SHIFT * rate)))
    spare = margin(table, stage, time) / RATES[stage] - max(AIM / RATES[stage], RESERVE * table.allowed * time)
    goal = max(FLOOR * table.allowed, table.allowed + PULL * spare / time)
    step = STEP * (used - goal) / table.allowed
    table.multiplier[0] = min(max(table.multiplier[0] + step, -STEEPEST), STEEPEST)


def book(table: TargetTable, bin: int, time: int, p: float) -> None:
    """Charge a disagreement that is seen, and an error."""
    for j in range(table.stage[0], len(RATES)):
        table.charges[j] += RATES[j] + charge(RATES[j], p, 1.0)


def offloads_towards(table: TargetTable, bin: int, time: int) -> bool:
    """Throw the coin of this sample."""
    return uniform(table.seed, time, 0) < chance(table, bin, time)


def note_towards(table: TargetTable, bin: int, time: int) -> None:
    """Charge an offload until its feedback arrives."""
    p = chance(table, bin, time)
    table.chances[time % len(table.chances)] = p
    book(table, bin, time, p)
    plan(table, bin, time)


def accept_towards(table: TargetTable, bin: int, time: int) -> None:
    """An accepted sample costs nothing; one that a budget made accepted was never seen."""
    p = chance(table, bin, time)
    if uniform(table.seed, time, 0) < p:
        book(table, bin, time, p)
    plan(table, bin, time)


def learn_towards(table: TargetTable, bin: int, agreed: float, cost: float, time: int, now: int) -> None:
    """Count an offload, and charge what it was in place of the worst."""
    table.offloads[bin] += 1.0
    table.agreements[bin] += agreed
    slot = time % len(table.chances)
    p = table.chances[slot]
    if now - time < len(table.chances) and p > 0.0:
        for j in range(table.stage[0], len(RATES)):
            table.charges[j] += charge(RATES[j], p, 1.0 - agreed) - charge(RATES[j], p, 1.0) - RATES[j]
        table.chances[slot] = 0.0


class Target(RandomisedPolicy):
    """At least this share of answers agrees with the remote's, with this probability, by as few offloads as possible."""

    name = "target"
    weighs_cost = False
    keeps_budget = True
    evidence = ("offloads", "agreements")
    carried = spent = ("charges", "stage", "multiplier", "chances")

    def __init__(self, agreement: float = 0.97, bins: int = 16, confidence: float = 0.95, seed: int = 0) -> None:
        super().__init__(bins, None, seed)
        owner = type(self).__name__
        self.agreement = real(owner, "agreement", agreement, 0, 1)
        self.confidence = real(owner, "confidence", confidence, 0, 1)
        table = TargetTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            charges=real_column(len(RATES)),
            stage=whole_column(1),
            multiplier=real_column(1),
            chances=real_column(MEMORY),
            entry=math.log(len(RATES) / (1.0 - self.confidence)),
            allowed=1.0 - self.agreement,
            seed=self.seed,
        )
        self.start(table, offloads_towards, learn_towards, notes=note_towards, accepts=accept_towards)

    def offload_probability(self, bin: int) -> float:
        return chance(self.table, self._checked_bin(bin), self.time + 1)

    def _ground(self, bin: int) -> str:
        return ""
