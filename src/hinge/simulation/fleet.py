"""Fleets in simulation: devices that tell each other what they have seen; some lie, some are away, some are unlike.

Every device runs Sentinel on a stream of its own. It tells its broker what it has seen whenever that has grown by
`GROWTH`, and pools what others have told whenever anybody has, or it has learned something itself. Liars run as honest
devices do, and tell something else. Time goes in rounds, short ones at first, and devices exchange between rounds.

The ways to pool are `Pooling.ROBUST`, that of `hinge.fleet`, and to compare with

- `ALONE`: nobody believes anybody;
- `MERGE`: what `Policy.merge` does;
- `MEDIAN_OF_MEANS`: the estimate of Fed-MoM-UCB (arXiv 2205.04134), of five groups of devices, or enough for a fifth of
  them to lie;
- `FILTERED`: in the manner of DeMABAR's filter (arXiv 2511.10344): of the witnesses of a bin a fifth, rounded up, is
  dropped at each end, and the rest averaged.

The last two were made for bandits that see what every choice is worth; only their estimates are taken here. What these
three pool counts as own, as it does in `merge`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hinge.fleet.pooling import ALIKE, OUTLIER, SHIFTED, UNLIKE, UNLIKE_BIN, Verdict
from hinge.policies import Sentinel
from hinge.policies.policy import Functions
from hinge.policies.sentinel import borrow_evidence, rebuild_watched, recount_misfit
from hinge.simulation.engine import Executor, Threads, run_seeds
from hinge.simulation.kernel import compiled, pays
from hinge.simulation.sources import Source

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]
_KNOWN = np.array([math.lgamma(k + 1.0) for k in range(2048)])  # log k!: most counts are small whole numbers
GROWTH = 1.2  # what a device has seen has grown by this factor when it tells so


class Pooling(IntEnum):
    """What a device makes of what others tell."""

    ALONE = 0
    MERGE = 1
    MEDIAN_OF_MEANS = 2
    FILTERED = 3
    ROBUST = 4


class Lie(IntEnum):
    """What a device tells in place of what it has seen."""

    HONEST = 0
    OVER = 1  # local always agrees
    UNDER = 2  # never
    FLIPPED = 3
    SLY = 4  # a quarter more often
    HUGE = 5  # a million offloads in each bin, all agreed
    COLLUSION = 6  # the truth, but for one rare bin
    EDGE = 7  # a little above break-even, everywhere
    DENIAL = 8  # the truth, but that bins above break-even never agree


@dataclass(frozen=True)
class SimulatedFleet:
    """Devices, each with a stream; the first ones may lie, and a device may be away or at a broker of its own.

    `brokers` says for each time (a row) at which broker every device is; -1: at none.
    """

    sources: Sequence[Source]
    lies: Sequence[Lie] = ()
    rare: int = 2  # the bin that colluders lie about
    brokers: Callable[[Wholes], Wholes] | None = None


class FleetRun(NamedTuple):
    """A run of a fleet: the regret of each honest device by time, and how many messages each device sent."""

    regret: Reals
    messages: Wholes


def merge(me: int, n: Any, a: Any, lent_n: Any, lent_a: Any) -> None:
    """Add up what all others say."""
    for i in range(n.shape[1]):
        lent_n[i] = n[:, i].sum() - n[me, i]
        lent_a[i] = a[:, i].sum() - a[me, i]


def median_of_means(me: int, n: Any, a: Any, lent_n: Any, lent_a: Any) -> None:
    """The median of the means of groups of devices, for all that the others have seen."""
    groups = max(5, 2 * (len(n) // 5) + 1)
    counts, means = [0.0] * groups, [0.0] * groups
    for i in range(len(lent_n)):
        for group in range(groups):
            counts[group] = means[group] = 0.0
        for d in range(len(n)):
            counts[d % groups] += n[d, i]
            means[d % groups] += a[d, i]
        for group in range(groups):
            means[group] /= counts[group] if counts[group] > 0.0 else 1.0
        seen = [group for group in range(groups) if counts[group] > 0.0]
        rank(seen, means, means, means)
        lent_n[i], lent_a[i] = -n[me, i], 0.0
        for group in seen:
            lent_n[i] += counts[group]
        if len(seen) > 0:
            lent_a[i] = lent_n[i] * ((means[seen[(len(seen) - 1) // 2]] + means[seen[len(seen) // 2]]) / 2.0)


def filtered(me: int, n: Any, a: Any, lent_n: Any, lent_a: Any) -> None:
    """Drop the witnesses with the highest and the lowest shares of each bin, a fifth at each end."""
    for i in range(len(lent_n)):
        seen = [k for k in range(len(n)) if n[k, i] > 0.0]
        shares, dropped = np.zeros(len(seen)), -(-len(seen) // 5)
        for position, k in enumerate(seen):
            shares[position] = a[k, i] / n[k, i]
        order = np.argsort(shares)
        lent_n[i] = lent_a[i] = 0.0
        for position in range(dropped, len(seen) - dropped):
            k = seen[order[position]]
            if k != me:
                lent_n[i] += n[k, i]
                lent_a[i] += a[k, i]


def rank(order: Any, first: Any, second: Any, third: Any) -> None:
    """Sort positions by three keys, one after another; by insertion, as `sorted` takes seconds to compile."""
    for end in range(1, len(order)):
        k, place = order[end], end
        while place > 0:
            j = order[place - 1]
            if first[j] < first[k] or (first[j] == first[k] and second[j] < second[k]):
                break
            if first[j] == first[k] and second[j] == second[k] and third[j] <= third[k]:
                break
            order[place] = j
            place -= 1
        order[place] = k


def pool_by(
    pooling: int, own_n: Any, own_a: Any, me: int, n: Any, a: Any, verdicts: Any, lent_n: Any, lent_a: Any
) -> None:
    """What a device borrows, by one of the ways to pool."""
    if pooling == Pooling.MERGE:
        merge(me, n, a, lent_n, lent_a)
    elif pooling == Pooling.MEDIAN_OF_MEANS:
        median_of_means(me, n, a, lent_n, lent_a)
    elif pooling == Pooling.FILTERED:
        filtered(me, n, a, lent_n, lent_a)
    elif pooling == Pooling.ROBUST:
        pool_into(own_n, own_a, me, n, a, verdicts, lent_n, lent_a)


def tell(lie: int, rare: int, q: float, n: Any, a: Any, told_n: Any, told_a: Any) -> None:
    """What a device says that has seen a agreements in n offloads of each bin, where q is break-even."""
    for i in range(len(n)):
        told_n[i], told_a[i] = n[i], a[i]
        if lie == Lie.OVER:
            told_a[i] = n[i]
        elif lie == Lie.UNDER:
            told_a[i] = 0.0
        elif lie == Lie.FLIPPED:
            told_a[i] = n[i] - a[i]
        elif lie == Lie.SLY:
            told_a[i] = min(n[i], a[i] + 0.25 * n[i])
        elif lie == Lie.HUGE:
            told_n[i] = told_a[i] = 1e6
        elif lie == Lie.COLLUSION and i == rare:
            told_n[i] = told_a[i] = 200.0
        elif lie == Lie.EDGE:
            told_a[i] = min(1.0, q + 0.12) * n[i]
        elif lie == Lie.DENIAL and a[i] > q * n[i]:
            told_a[i] = 0.0


# -- robust pooling ---------------------------------------------------------------------------------------------------

# What `hinge.fleet.pooling` does with arrays, in loops: compiled they are several times as fast as arrays are, and as
# Python, on a device, several times as slow.


def log_factorial(x: float) -> float:
    """log Γ(x + 1)."""
    whole = int(x)
    return float(_KNOWN[whole]) if whole == x and whole < len(_KNOWN) else math.lgamma(x + 1.0)


def log_marginal(offloads: float, agreements: float) -> float:
    """log B(a + 1, n - a + 1), the likelihood of what was seen under a uniform agreement."""
    return log_factorial(agreements) + log_factorial(offloads - agreements) - log_factorial(offloads + 1.0)


def log_marginals(n: Any, a: Any) -> Any:
    """`log_marginal` of each bin."""
    return [log_marginal(n[i], a[i]) for i in range(len(n))]


def compare(n: Any, a: Any, marginals: Any, m: Any, b: Any, factors: Any) -> float:
    """`hinge.fleet.pooling.unlikeness` of two, with the log marginals of n and a at hand; `factors` gets that of each
    bin that both have seen."""
    total, score, spread = 0.0, 0.0, 0.0
    for i in range(len(n)):
        if n[i] > 0.0 and m[i] > 0.0:
            offloads, agreements = n[i] + m[i], a[i] + b[i]
            factors[i] = marginals[i] + log_marginal(m[i], b[i]) - log_marginal(offloads, agreements)
            total += math.inf if factors[i] > UNLIKE_BIN else max(factors[i], -ALIKE)
            share = agreements / offloads
            score += a[i] - n[i] * share
            spread += n[i] * m[i] * share * (1.0 - share) / max(offloads - 1.0, 1.0)
    shift = 0.5 * (score * score / (spread + 1.0) - math.log(spread + 1.0))
    return max(total - UNLIKE, shift - SHIFTED)


def pool_into(own_n: Any, own_a: Any, me: int, n: Any, a: Any, verdicts: Any, lent_n: Any, lent_a: Any) -> None:
    """`hinge.fleet.pool` in place, device by bin; row `me` is one's own, if any."""
    scores, limit, marginals, factors = [math.inf] * len(n), 0.0, log_marginals(own_n, own_a), [0.0] * len(own_n)
    for k in range(len(n)):
        verdicts[k] = Verdict.SILENT
        if k != me and max(n[k]) > 0.0:
            verdicts[k], scores[k] = Verdict.UNLIKE_US, compare(own_n, own_a, marginals, n[k], a[k], factors)
    while True:
        kin = [k for k in range(len(n)) if scores[k] <= limit]
        lend(kin, n, a, verdicts, lent_n, lent_a)
        if len(kin) == 0 or compare(own_n, own_a, marginals, lent_n, lent_a, factors) <= 0.0:
            return
        for k in kin:  # some of them must be unlike us: the half that is least alike is believed no longer
            verdicts[k] = Verdict.UNLIKE_US
        rank(kin, scores, scores, scores)
        limit = scores[kin[len(kin) // 2 - 1]]
        if limit == scores[kin[-1]]:
            limit = -math.inf


def lend(kin: Any, n: Any, a: Any, verdicts: Any, lent_n: Any, lent_a: Any) -> None:
    """What kin lend: all that they have seen, but for outliers."""
    trim, bins = (len(kin) + 1) // 4, len(lent_n)
    reference_n, reference_a, most = [0.0] * bins, [0.0] * bins, [0.0] * bins
    block_n, block_a, shares = [0.0] * len(kin), [0.0] * len(kin), [0.0] * len(kin)
    for i in range(bins):
        for j, k in enumerate(kin):
            block_n[j] += n[k][i]
            block_a[j] += a[k][i]
        seen = [j for j in range(len(kin)) if block_n[j] > 0.0]
        if len(seen) > 2 * trim:
            rank(seen, block_n, block_n, block_n)
            most[i] = block_n[seen[(len(seen) - 1) // 2]] + block_n[seen[len(seen) // 2]]
            for j in seen:
                shares[j] = block_a[j] / block_n[j]
            rank(seen, shares, block_n, block_a)
            for position in range(trim, len(seen) - trim):
                j = seen[position]
                weight = most[i] / max(block_n[j], most[i])
                reference_n[i] += weight * block_n[j]
                reference_a[i] += weight * block_a[j]
            for j in range(len(kin)):
                block_n[j] = block_a[j] = 0.0
    marginals = log_marginals(reference_n, reference_a)
    row_n, row_a, factors = [0.0] * bins, [0.0] * bins, [0.0] * bins
    for i in range(bins):
        lent_n[i] = lent_a[i] = 0.0
    for k in kin:
        offloads, agreements = 0.0, 0.0
        for i in range(bins):
            offloads, agreements, row_n[i], row_a[i] = offloads + n[k][i], agreements + a[k][i], 0.0, 0.0
            if most[i] > 0.0:
                offloads, agreements, row_n[i], row_a[i] = 0.0, 0.0, offloads, agreements
        if compare(reference_n, reference_a, marginals, row_n, row_a, factors) > 0.0:
            verdicts[k] = Verdict.UNLIKE_FLEET
            continue
        verdicts[k] = Verdict.KIN
        for i in range(bins):
            if row_n[i] > 0.0 and factors[i] <= OUTLIER:
                weight = most[i] / max(row_n[i], most[i])
                lent_n[i] += weight * row_n[i]
                lent_a[i] += weight * row_a[i]


def believed(verdicts: Any) -> int:
    """How many are kin."""
    return len([verdict for verdict in verdicts if verdict == Verdict.KIN])


# -- rounds -----------------------------------------------------------------------------------------------------------


class Shared(NamedTuple):
    """What devices have told each other, and what each has of its own and from others; by device and bin."""

    told_n: Any  # by broker, too
    told_a: Any
    heard: Any  # the brokers that were told anything in this round
    own_n: Any
    own_a: Any
    lent_n: Any
    lent_a: Any
    kin: Any  # how many lend it
    renewed: Any  # the devices that have pooled anew
    said: Any  # how many offloads each device has told of
    pooled: Any  # and with how many it has pooled
    sent: Any


def nothing_shared(brokers: int, devices: int, bins: int) -> Shared:
    """What there is before the first round."""
    heard, renewed = np.zeros(brokers, np.bool_), np.zeros(devices, np.bool_)
    told_n, told_a = np.zeros((2, brokers, devices, bins))
    own_n, own_a, lent_n, lent_a = np.zeros((4, devices, bins))
    kin, said, pooled = np.zeros((3, devices))
    sent = np.zeros(devices, np.int64)
    return Shared(told_n, told_a, heard, own_n, own_a, lent_n, lent_a, kin, renewed, said, pooled, sent)


def round_player(functions: Functions, width: int) -> Callable[..., None]:
    """The loop over the samples of a round, by the functions of a policy with so many bins."""
    offloads, notes, learns, accepts, _ = functions

    def play_round(
        tables: Any, streams: Any, cost: float, start: int, end: int, shared: Shared, as_own: bool, regrets: Any
    ) -> None:
        """Give every device what it borrows, and let it run from `start` to `end`."""
        bins, agreed, gaps = streams
        for d in range(len(regrets)):
            table, regret = tables[d], regrets[d]
            if shared.renewed[d]:
                shared.renewed[d] = False
                if as_own:
                    for i in range(width):
                        table.offloads[i] = shared.own_n[d, i] + shared.lent_n[d, i]
                        table.agreements[i] = shared.own_a[d, i] + shared.lent_a[d, i]
                    rebuild_watched(table)
                    recount_misfit(table, start + 1)
                else:
                    borrow_evidence(table, shared.lent_n[d], shared.lent_a[d], shared.kin[d], start)
            for t in range(start, end):
                bin, gap = bins[d, t], gaps[d, t]
                if table.left[bin] > 0:  # the short cut of `Sentinel.decide`
                    table.left[bin] -= 1
                    regret += max(0.0, gap)
                elif offloads(table, bin, t + 1):
                    notes(table, bin, t + 1)
                    learns(table, bin, agreed[d, t], cost, t + 1, t + 1)
                    regret += max(0.0, -gap)
                else:
                    accepts(table, bin, t + 1)
                    regret += max(0.0, gap)
            regrets[d] = regret

    return play_round


def exchange(
    offloads: Any,
    agreements: Any,
    brokers: Any,
    lies: Any,
    rare: int,
    q: float,
    pooling: int,
    as_own: bool,
    shared: Shared,
) -> None:
    """Let devices tell their brokers what they have seen, and pool what these have been told."""
    devices, width = offloads.shape
    verdicts = np.zeros(devices, np.int64)
    shared.heard[:] = False
    for d in range(devices):
        own_n, own_a, broker = shared.own_n[d], shared.own_a[d], brokers[d]
        for i in range(width):  # what was pooled as one's own was not seen by oneself
            own_n[i] = max(0.0, offloads[d, i] - (shared.lent_n[d, i] if as_own else 0.0))
            own_a[i] = max(0.0, min(own_n[i], agreements[d, i] - (shared.lent_a[d, i] if as_own else 0.0)))
        seen = own_n.sum()
        if broker >= 0 and (seen > GROWTH * shared.said[d] or seen < shared.said[d]):
            tell(lies[d], rare, q, own_n, own_a, shared.told_n[broker, d], shared.told_a[broker, d])
            shared.said[d], shared.heard[broker] = seen, True
            shared.sent[d] += 1
    for d in range(devices):
        broker, seen = brokers[d], shared.own_n[d].sum()
        news = broker >= 0 and (shared.heard[broker] or seen != shared.pooled[d])
        if news and pooling != Pooling.ALONE and lies[d] == Lie.HONEST:
            shared.pooled[d], shared.renewed[d] = seen, True
            told_n, told_a = shared.told_n[broker], shared.told_a[broker]
            own_n, own_a, lent_n, lent_a = shared.own_n[d], shared.own_a[d], shared.lent_n[d], shared.lent_a[d]
            pool_by(pooling, own_n, own_a, d, told_n, told_a, verdicts, lent_n, lent_a)
            shared.kin[d] = believed(verdicts)


def stacked(table: Any, devices: int) -> Any:
    """The tables of many devices as records of one array: compiled code hands on their addresses, not all columns."""
    return np.array([table] * devices, _record(table)).view(np.recarray)


def _record(part: Any) -> np.dtype[Any]:
    if hasattr(part, "_fields"):
        return np.dtype([(name, _record(value)) for name, value in part._asdict().items()])
    column = np.array(part)
    return np.dtype((column.dtype, column.shape))


@cache
def _player(bins: int, machine_code: bool) -> Callable[..., None]:
    """What devices do in a round: compiled for every number of bins, as these size the records."""
    play_round = round_player(Sentinel(bins, 0.5).functions, bins)
    return compiled(play_round) if machine_code else play_round


@cache
def _exchange(machine_code: bool) -> Callable[..., None]:
    """What they do between two."""
    return compiled(exchange, allocates=True) if machine_code else exchange


def rounds_until(horizon: int, times: Sequence[int] = ()) -> Wholes:
    """When devices exchange: after every sample at first, and at last when time has grown by a tenth.

    >>> rounds_until(24).tolist()[-4:]
    [19, 20, 22, 24]
    """
    rounds, time = {horizon, *times}, 0
    while time < horizon:
        time = min(horizon, max(time + 1, min(time + 1000, int(1.1 * time))))
        rounds.add(time)
    return np.array(sorted(rounds), np.int64)


def simulate_fleet(
    fleet: SimulatedFleet,
    offload_cost: float,
    pooling: Pooling = Pooling.ROBUST,
    *,
    horizon: int,
    runs: int = 1,
    seed: int = 0,
    times: Sequence[int] = (),
    executor: Executor | None = None,
    machine_code: bool | None = None,
) -> list[FleetRun]:
    """Run a fleet whose devices pool in this way; regret is at `times` and at the horizon.

    >>> from hinge.simulation.sources import ConstantPrice, Synthetic
    >>> fleet = SimulatedFleet([Synthetic([0.1, 0.3, 0.8, 0.95], ConstantPrice(0.5))] * 8, lies=[Lie.OVER])
    >>> def regret(pooling):
    ...     return simulate_fleet(fleet, 0.5, pooling, horizon=300, machine_code=False)[0].regret.mean()
    >>> bool(regret(Pooling.ROBUST) < regret(Pooling.ALONE) < regret(Pooling.MERGE))
    True
    """
    rounds, devices, bins = rounds_until(horizon, times), len(fleet.sources), fleet.sources[0].bins
    if machine_code is None:
        machine_code = pays(devices * devices * horizon * runs)  # each pools what all have told
    play_round, share = _player(bins, machine_code), _exchange(machine_code)
    marked = np.searchsorted(rounds, sorted({*times, horizon}))
    lies = np.array([*fleet.lies, *[Lie.HONEST] * (devices - len(fleet.lies))], np.int64)
    brokers = fleet.brokers(rounds) if fleet.brokers else np.zeros((len(rounds), devices), np.int64)
    as_own = pooling not in (Pooling.ALONE, Pooling.ROBUST)

    def run(run_seed: int) -> FleetRun:
        tables = stacked(Sentinel(bins, offload_cost).table, devices)
        streams = _streams(fleet.sources, run_seed, horizon)
        shared = nothing_shared(int(brokers.max()) + 1, devices, bins)
        regrets, marks, start = np.zeros(devices), np.zeros((len(rounds), devices)), 0
        for r, end in enumerate(rounds.tolist()):
            play_round(tables, streams, offload_cost, start, end, shared, as_own, regrets)
            columns = tables.offloads, tables.agreements
            share(*columns, brokers[r], lies, fleet.rare, 1.0 - offload_cost, int(pooling), as_own, shared)
            marks[r], start = regrets, end
        return FleetRun(marks[marked][:, lies == Lie.HONEST], shared.sent)

    return list((executor or Threads()).map([partial(run, run_seed) for run_seed in run_seeds(seed, runs)]))


def _streams(sources: Sequence[Source], seed: int, horizon: int) -> tuple[Wholes, Reals, Reals]:
    """Bins, agreements and gaps of every device."""
    chunks = [
        list(source.stream(own, horizon)) for source, own in zip(sources, run_seeds(seed, len(sources)), strict=True)
    ]
    bins, agreed, gaps = (
        np.stack([np.concatenate([getattr(chunk, field) for chunk in each]) for each in chunks])
        for field in ("bins", "agreed", "gaps")
    )
    return bins, agreed, gaps
