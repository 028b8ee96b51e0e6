"""Many devices in regions: regret, messages and bytes, beside fleets of one region's size, and alone.

    python benchmarks/regions.py [--devices N] [--region N] [--horizon N] [--sampled N] [--only ROWS] [--markdown FILE]

Every device runs Sentinel on rows of a trace of its own, and tells what it has seen once that has grown by a fifth, as
in `hinge.simulation.fleet`. To pool for each device by itself what hundreds of others say would take days. So a region
pools once for each half of its devices, and a device borrows what the *other* half has pooled: nothing that it said
itself. Of the other regions it borrows what is pooled once for its region, without that. What contradicts its own
evidence it does not borrow. The first devices of the first region, `--sampled` of them, pool for themselves all others
of their region and all other regions, as a member does: they say whether that matters. Alone, and in fleets of a
region's size, a tenth of the devices is simulated, as fleets do not know of each other.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hinge import Sentinel, UniformBins, load_trace
from hinge.fleet.messages import build_evidence
from hinge.policies.sentinel import borrow_evidence
from hinge.simulation.fleet import GROWTH, Lie, believed, compare, log_marginals, pool_into, rounds_until, stacked, tell
from hinge.simulation.kernel import compiled
from hinge.simulation.sources import ConstantPrice, InOrder

BINS, COST, TRACE = 16, 0.5, "fashion"
LIARS = 10  # one in so many, where there are any
GATE = "0123456789abcdef"


class World(NamedTuple):
    """All devices, a row for each; of regions, a row for each and two halves."""

    tables: Any
    seeds: Any
    regret: Any
    lies: Any
    said_n: Any
    said_a: Any
    sent: Any
    half_n: Any  # region, half, bin: what each half of a region has pooled
    half_a: Any
    region_n: Any  # what the region has published
    region_a: Any
    region_sent: Any
    other_n: Any  # what the other regions lend to each
    other_a: Any


def player(
    offloads: Callable[..., bool],
    notes: Callable[..., None],
    learns: Callable[..., None],
    accepts: Callable[..., None],
) -> Callable[..., None]:
    def play(world: World, rows: Any, cost: float, start: int, end: int, first: int, last: int) -> None:
        """Run the devices of a region until the end of a round, and let them tell what they have seen."""
        bins, agreed, gaps = rows
        step, more, low, many = np.uint64(6364136223846793005), np.uint64(1442695040888963407), np.uint64(33), len(bins)
        for d in range(first, last):
            table, state, regret = world.tables[d], world.seeds[d], 0.0
            for t in range(start, end):
                state = state * step + more  # a linear congruential generator, of Knuth's constants
                k = np.int64(state >> low) % many
                bin, gap = bins[k], gaps[k]
                if offloads(table, bin, t + 1):
                    notes(table, bin, t + 1)
                    learns(table, bin, agreed[k], cost, t + 1, t + 1)
                    regret += max(0.0, -gap)
                else:
                    accepts(table, bin, t + 1)
                    regret += max(0.0, gap)
            world.seeds[d] = state
            world.regret[d] += regret
            seen, said = table.offloads.sum(), world.said_n[d].sum()
            if seen > GROWTH * said or seen < said:
                tell(world.lies[d], 0, 1.0 - COST, table.offloads, table.agreements, world.said_n[d], world.said_a[d])
                world.sent[d] += 1

    return play


def pool_region(world: World, region: int, first: int, last: int) -> None:
    """What the halves of a region pool, and the message of its hub."""
    none, width = np.zeros(BINS), world.said_n.shape[1]
    verdicts = np.zeros(last - first, np.int64)
    for half in range(2):
        n, a = np.zeros_like(world.said_n[first:last]), np.zeros_like(world.said_n[first:last])
        for d in range(first + half, last, 2):
            n[d - first], a[d - first] = world.said_n[d], world.said_a[d]
        pool_into(none, none, -1, n, a, verdicts, world.half_n[region, half], world.half_a[region, half])
    lent_n, lent_a = np.zeros(width), np.zeros(width)
    pool_into(none, none, -1, world.said_n[first:last], world.said_a[first:last], verdicts, lent_n, lent_a)
    seen, said = lent_n.sum(), world.region_n[region].sum()
    if seen > GROWTH * said or seen < said / GROWTH:
        world.region_n[region], world.region_a[region] = lent_n, lent_a
        world.region_sent[region] += 1


def pool_others(world: World, region: int) -> None:
    """What the other regions lend to the devices of a region."""
    none, verdicts = np.zeros(BINS), np.zeros(len(world.region_n), np.int64)
    out_n, out_a = world.other_n[region], world.other_a[region]
    pool_into(none, none, region, world.region_n, world.region_a, verdicts, out_n, out_a)


def borrow(world: World, sampled: int, regions: bool, region: int, first: int, last: int) -> None:
    """Let the devices of a region borrow; the first so many pool for themselves."""
    verdicts, above = np.zeros(last - first, np.int64), np.zeros(len(world.region_n), np.int64)
    lent: Any = np.zeros((4, BINS))
    lent_n, lent_a, more_n, more_a = lent[0], lent[1], lent[2], lent[3]
    for d in range(first, last):
        table = world.tables[d]
        n, a = table.offloads, table.agreements
        if d < sampled:
            region_n, region_a = world.said_n[first:last], world.said_a[first:last]
            pool_into(n, a, d - first, region_n, region_a, verdicts, lent_n, lent_a)
            if regions:
                pool_into(n, a, region, world.region_n, world.region_a, above, more_n, more_a)
            kin = believed(verdicts) + believed(above)
            borrow_evidence(table, lent_n + more_n, lent_a + more_a, kin, 0)  # a known cost has no time
            continue
        half = 1 - (d - first) % 2
        lent_n[:], lent_a[:] = world.half_n[region, half], world.half_a[region, half]
        if regions:
            lent_n += world.other_n[region]
            lent_a += world.other_a[region]
        if compare(n, a, log_marginals(n, a), lent_n, lent_a, np.zeros(BINS)) > 0.0:
            lent_n[:] = 0.0
            lent_a[:] = 0.0
        borrow_evidence(table, lent_n, lent_a, last - first, 0)


@cache
def machine() -> tuple[Callable[..., None], ...]:
    policy = Sentinel(BINS, COST)
    offloads, notes, learns, accepts, _ = policy.functions
    loops = player(offloads, notes, learns, accepts), pool_region, pool_others, borrow
    return tuple(compiled(loop, allocates=True) for loop in loops)


def created(devices: int, regions: int, liars: bool) -> World:
    def zeros(*shape: int) -> Any:
        return np.zeros(shape)

    lies = np.where(np.arange(devices) % LIARS == LIARS - 1, Lie.OVER if liars else Lie.HONEST, Lie.HONEST)
    return World(
        tables=stacked(Sentinel(BINS, COST).table, devices),
        seeds=np.random.default_rng(1).integers(0, 2**63, devices).astype(np.uint64),
        regret=zeros(devices),
        lies=lies.astype(np.int64),
        said_n=zeros(devices, BINS),
        said_a=zeros(devices, BINS),
        sent=np.zeros(devices, np.int64),
        half_n=zeros(regions, 2, BINS),
        half_a=zeros(regions, 2, BINS),
        region_n=zeros(regions, BINS),
        region_a=zeros(regions, BINS),
        region_sent=np.zeros(regions, np.int64),
        other_n=zeros(regions, BINS),
        other_a=zeros(regions, BINS),
    )


def run(devices: int, size: int, horizon: int, sampled: int, how: str) -> World:
    """Alone, each region by itself, or all regions; with liars, one device in so many lies, and one hub."""
    source = InOrder(load_trace(TRACE), UniformBins(BINS), ConstantPrice(COST))
    chunks = list(source.stream(0, len(source.trace)))
    rows = tuple(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("bins", "agreed", "gaps"))
    play, pool_one, pool_all, borrow = machine()
    numbers = range(devices // size)
    columns = numbers, [r * size for r in numbers], [(r + 1) * size for r in numbers]
    world = created(devices, len(numbers), "liars" in how)
    with ThreadPoolExecutor(2) as threads:
        for start, end in pairwise([0, *rounds_until(horizon).tolist()]):
            list(threads.map(partial(play, world, rows, COST, start, end), *columns[1:]))
            if how == "alone":
                continue
            list(threads.map(partial(pool_one, world), *columns))
            if "liars" in how:
                world.region_a[LIARS - 1 :: LIARS] = world.region_n[LIARS - 1 :: LIARS]
            if how != "fleets":
                list(threads.map(partial(pool_all, world), columns[0]))
            list(threads.map(partial(borrow, world, sampled, how != "fleets"), *columns))
    return world


def message_bytes(world: World) -> tuple[float, float]:
    """The mean length of the last message of a device, and of a region."""

    def length(n: Any, a: Any) -> int:
        return len(build_evidence("device-or-region", GATE, 10**6, 10**6, n.tolist(), a.tolist()))

    devices = [length(*sums) for sums in zip(world.said_n[:1000], world.said_a[:1000], strict=True)]
    regions = [length(*sums) for sums in zip(world.region_n, world.region_a, strict=True)]
    return float(np.mean(devices)), float(np.mean(regions))


def measured(given: argparse.Namespace) -> list[str]:
    lines, sampled = [], given.sampled
    for how in given.only.split(","):
        began, regions = time.perf_counter(), given.devices // given.region
        regions = regions if how.startswith("regions") else max(1, regions // 10)
        world = run(regions * given.region, given.region, given.horizon, sampled, how)
        honest = world.lies == Lie.HONEST
        few = world.regret[:sampled][honest[:sampled]]
        line = f"| {NAMES[how].format(**vars(given))} | {world.regret[honest].mean():.2f} |"
        if how == "alone":
            line += " | | | |"
        else:
            own, region = message_bytes(world)
            kin = world.sent.mean() * (given.region - 1)  # messages that a device reads of its region,
            above = 0.0 if how == "fleets" else world.region_sent.mean() * (len(world.region_n) - 1)  # and of others
            line += f" {few.mean():.2f} ± {1.96 * few.std() / len(few) ** 0.5:.2f} | {world.sent.mean():.1f} |"
            line += f" {kin + above:.0f} | {(kin * own + above * region) / 1e6:.2f} |"
        lines.append(line)
        print(line, f"{time.perf_counter() - began:.0f} s", flush=True)
    return lines


NAMES = {
    "alone": "alone",
    "fleets": "fleets of {region}",
    "regions": "{devices} devices in regions of {region}",
    "regions with liars": "the same; one device and one hub in ten say that local always agrees",
}
HEAD = """# {devices} devices in regions

Regret per honest device after {horizon} samples of `fashion`, cost 0.5, 16 bins, one run. Most devices borrow what the
other half of their region, and the other regions, have pooled; the {sampled} devices under *by itself* pool for
themselves, as a member does (± half of the 95 % interval). Then the messages that a device sent and read in all that
time, and how many megabytes it read. In one fleet without regions, a device would read what all {devices} send.

| | regret | by itself | sent | read | MB |
|---|--:|--:|--:|--:|--:|
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--devices", type=int, default=99_900)
    options.add_argument("--region", type=int, default=300)
    options.add_argument("--horizon", type=int, default=1_000)
    options.add_argument("--sampled", type=int, default=100)
    options.add_argument("--only", default=",".join(NAMES), help="rows, separated by commas: %(default)s")
    options.add_argument("--markdown", type=Path)
    given = options.parse_args()
    began = time.perf_counter()
    lines = measured(given)
    end = f"\n\nWritten by `benchmarks/regions.py` in {time.perf_counter() - began:.0f} s.\n"
    if given.markdown:
        given.markdown.write_text(HEAD.format(**vars(given)) + "\n".join(lines) + end, "utf-8")


if __name__ == "__main__":
    main()
