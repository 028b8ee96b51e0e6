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

With several values of λ, each with a part w of δ, Σ w = 1, all of these bounds hold together. The policy takes one λ
after the other, from the largest, which proves soonest, to the smallest, which audits least, and never lets p be so
small that seeing one more disagreement could break

    log(1 / wδ) + S_t ≤ λ (1 - a) t.                                                                                 (1)

The two smallest have smaller parts: they come into use when so much is allowed that the logarithm hardly counts.

Hence **L_t ≤ (1 - a) t for all t at once, with probability `confidence`, against any input**: agreement may change,
need not rise with confidence, and may answer what the policy does; only the coins must not be known beforehand. Until
(1) holds for the first time everything is offloaded.

Which p is cheapest is a guess that only costs offloads where it is wrong. With d the share of disagreements in a bin,
an accepted sample uses up d (1 - p) (1 + λ / 2p) of the errors allowed. The fewest offloads for what is used up have

    p = √(λ/2 · νd / (1 - νd)),      and    p = 1    where that exceeds 1:                                           (2)

a threshold at d = 1/ν, below which bins are audited, the more rarely the surer they are (for p near λ, p - 2λ/3 in
place of p is closer). ν is found by dual steps, so that what is used up comes to what is allowed, or to less while (1)
leaves fewer nats than a reserve. What luck leaves above the reserve is not spent: it brings the next λ sooner.

An offload is charged as a disagreement, and as an error, until its feedback arrives, and so is one that a budget
around this policy refused. So a remote that fails, or a budget that is too small, makes (1) false: `warning` says so.

The constants of the plan were chosen by simulation on four of the shipped traces. A wrong plan costs offloads, not the
target.
"""

import math
from array import array
from typing import NamedTuple

from hinge._checks import real
from hinge._columns import Reals, Wholes, real_column, whole_column
from hinge.errors import InvalidState, InvalidValue
from hinge.policies.policy import (
    KEPT,
    Functions,
    add_cells,
)
from hinge.policies.random import RandomisedPolicy, uniform

RATES = (0.2, 0.08, 0.03, 0.01, 0.004, 0.001)  # λ
PARTS = (4 / 19, 4 / 19, 4 / 19, 4 / 19, 2 / 19, 1 / 19)  # w
ENOUGH = 1.0  # nats that (1) must leave for the next λ to be taken
RESERVE = 2.0  # nats that (1) is to leave: with fewer, less is used up than is allowed
RAREST = 1.2  # the smallest p that is planned, in parts of λ
SHIFT = 2.0 / 3.0
STEP = 0.0067  # of ν, in parts of √λ: smaller λ are in use for longer
STEEPEST = 1000.0  # ν, and 1 / ν, at most
MEMORY = 1024  # samples after which feedback is too late to take back what an offload was charged


class TargetTable(NamedTuple):
    """Evidence, and what was charged."""

    offloads: Reals
    agreements: Reals
    charges: Reals  # S, for each λ from that in use on
    stage: Wholes  # which λ is in use
    multiplier: Reals  # ν
    chances: Reals  # p of each offload that waits for feedback, by its time modulo MEMORY
    entries: Reals  # log(1 / wδ), for each λ
    allowed: float  # 1 - a
    seed: int


# -- the promise ------------------------------------------------------------------------------------------------------


def margin(table: TargetTable, stage: int, time: int) -> float:
    """What (1) leaves, in nats."""
    return RATES[stage] * table.allowed * time - table.entries[stage] - table.charges[stage]


def charge(rate: float, p: float, disagreed: float) -> float:
    """μ(p), for a disagreement that may be a fraction of one."""
    return 0.0 if p >= 1.0 else -math.log((1.0 - (1.0 - p) * math.exp(rate * disagreed)) / p)


def chance(table: TargetTable, bin: int, time: int) -> float:
    """The probability of an offload: the cheapest one after which (1) still holds if it shows a disagreement."""
    rate = RATES[table.stage[0]]
    room = margin(table, table.stage[0], time) - rate
    if room <= 0.0:
        return 1.0
    least = math.expm1(rate) / (math.exp(rate) - math.exp(-room))  # μ(least) = room
    return min(1.0, max(least, cheapest(table, bin)))


def book(table: TargetTable, p: float) -> None:
    """Charge an offload as a disagreement and an error."""
    for j in range(table.stage[0], len(RATES)):
        table.charges[j] += RATES[j] + charge(RATES[j], p, 1.0)


def offloads_towards(table: TargetTable, bin: int, time: int) -> bool:
    """Throw the coin of this sample."""
    return uniform(table.seed, time, 0) < chance(table, bin, time)


def note_towards(table: TargetTable, bin: int, time: int) -> None:
    """Charge the worst until the feedback arrives."""
    p = chance(table, bin, time)
    plan(table, bin, time)
    table.chances[time % len(table.chances)] = p
    book(table, p)


def accept_towards(table: TargetTable, bin: int, time: int) -> None:
    """Charge a sample that should have been offloaded, and that a budget made accepted."""
    p = chance(table, bin, time)
    plan(table, bin, time)
    if uniform(table.seed, time, 0) < p:
        book(table, p)


def learn_towards(table: TargetTable, bin: int, agreed: float, cost: float, time: int, now: int) -> int:
    """Count an offload, and charge what it showed in place of the worst."""
    table.offloads[bin] += 1.0
    table.agreements[bin] += agreed
    slot = time % len(table.chances)
    p = table.chances[slot]
    if p > 0.0 and now - time < len(table.chances):
        for j in range(table.stage[0], len(RATES)):
            shown = charge(RATES[j], p, 1.0 - agreed) - charge(RATES[j], p, 1.0) - RATES[j]
            table.charges[j] = max(0.0, table.charges[j] + shown)
        table.chances[slot] = 0.0
    return KEPT


# -- the plan ---------------------------------------------------------------------------------------------------------


def disagreement(table: TargetTable, bin: int) -> float:
    """The share of disagreements in a bin, with one of each kind added."""
    return (table.offloads[bin] - table.agreements[bin] + 1.0) / (table.offloads[bin] + 2.0)


def cheapest(table: TargetTable, bin: int) -> float:
    """The probability of (2)."""
    rate, x = RATES[table.stage[0]], table.multiplier[0] * disagreement(table, bin)
    if x >= 1.0:
        return 1.0
    return min(1.0, max(RAREST * rate, SHIFT * rate + math.sqrt(rate / 2.0 * x / (1.0 - x))))


def plan(table: TargetTable, bin: int, time: int) -> None:
    """Take the next λ once it leaves enough, and move ν by a dual step."""
    stage = table.stage[0]
    if stage + 1 < len(RATES) and margin(table, stage + 1, time) >= ENOUGH:
        stage += 1
        table.stage[0] = stage
    rate, p = RATES[stage], cheapest(table, bin)
    used = disagreement(table, bin) * (1.0 - p) * (1.0 + rate / (2.0 * (p - SHIFT * rate))) / table.allowed
    wanted = min(1.0, margin(table, stage, time) / RESERVE)
    nu = table.multiplier[0] * math.exp(min(1.0, STEP * math.sqrt(rate) * (used - wanted)))
    table.multiplier[0] = min(max(nu, 1.0 / STEEPEST), STEEPEST)


class Target(RandomisedPolicy):
    """Agreement of at least `target` with the remote, with probability `confidence`, by as few offloads as possible.

    All answers count, accepted or offloaded, from the first to any later one. Agreement of 0.99 is accuracy at most one
    point below the remote's, as an answer that agrees is right where the remote's is.

    >>> policy = Target(0.9, bins=2)
    >>> for time in range(5000):
    ...     decision = policy.decide(time % 2)
    ...     if decision.offload:
    ...         _ = policy.learn(decision, agreed=time % 2 == 1 or time % 4 == 0)
    >>> print(policy.explain(0).reason[:84])
    Bin 0 is offloaded with probability 0.633: 881 of 1760 agreed; 500 of 5000 answers m
    >>> policy.most_errors < 0.1 * 5000
    True
    """

    name = "target"
    weighs_price = False
    evidence = ("offloads", "agreements")
    saved = ("charges", "stage", "multiplier", "chances")

    def __init__(self, target: float = 0.97, bins: int = 16, confidence: float = 0.95, seed: int = 0) -> None:
        super().__init__(bins, None, seed)
        self.target, self.confidence = self._share("target", target), self._share("confidence", confidence)
        self.table = TargetTable(
            offloads=real_column(self.bins),
            agreements=real_column(self.bins),
            charges=real_column(len(RATES)),
            stage=whole_column(1),
            multiplier=real_column(1, 1.0),
            chances=real_column(MEMORY),
            entries=array("d", [-math.log(part * (1.0 - self.confidence)) for part in PARTS]),
            allowed=1.0 - self.target,
            seed=self.seed,
        )
        self.functions = Functions(
            offloads=offloads_towards,
            learns=learn_towards,
            asks=note_towards,
            accepts=accept_towards,
            passes=accept_towards,
            regroups=add_cells,
        )

    def _share(self, name: str, value: float) -> float:
        share = real(type(self).__name__, name, value, 0, 1)
        if share in (0.0, 1.0):
            raise InvalidValue(type(self).__name__, name, f"must be above 0 and below 1, got {value!r}")
        return share

    @property
    def most_errors(self) -> float:
        """How many answers so far disagree with the remote's at most, with probability `confidence`."""
        stage = self.table.stage[0]
        return float((self.table.entries[stage] + self.table.charges[stage]) / RATES[stage])

    @property
    def warning(self) -> str | None:
        stage, waiting = self.table.stage[0], len(self.pending)
        charged = self.table.charges[stage] / RATES[stage] > waiting + 0.5  # more than what is on its way
        if charged and margin(self.table, stage, self.time) / RATES[stage] + waiting < 0.0:
            return "the agreement target cannot be met: offloads fail, or are refused"
        return None

    def offload_probability(self, bin: int) -> float:
        return chance(self.table, self._checked_bin(bin), self.time + 1)

    def _ground(self, bin: int) -> str:
        seen = self._seen(bin)
        may = f"{self.table.allowed * self.time:.0f} of {self.time} answers may disagree"
        if self.warning:
            return f"{seen}; {may}, and {self.warning}"
        sure = f"{100 * self.confidence:g} % sure"
        known = f"{seen}; {may}, and at most {self.most_errors:.0f} do ({sure})"
        if margin(self.table, self.table.stage[0], self.time) < 0.0:
            return f"{seen}; {may}, too few to judge by"
        if self.table.multiplier[0] < 0.5:  # the threshold is beyond any disagreement
            return f"{known}, so that nothing needs to be offloaded but audits"
        return known

    def _check_table(self) -> None:
        table, owner = self.table, type(self).__name__
        if table.stage[0] >= len(RATES):
            raise InvalidState(f"{owner}: state has {table.stage[0]} as 'stage'")
        if not 1.0 / STEEPEST <= table.multiplier[0] <= STEEPEST:
            raise InvalidState(f"{owner}: state has {table.multiplier[0]} as 'multiplier'")
        least = -math.expm1(-RATES[table.stage[0]])
        if any(p != 0.0 and not least < p <= 1.0 for p in table.chances):
            raise InvalidState(f"{owner}: state has an impossible probability in 'chances'")
