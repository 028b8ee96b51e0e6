"""The tables of times."""

from statistics import median

from benchmarks.plan import Plan
from benchmarks.probes import SLOW_S
from benchmarks.report import ABSENT, Table, ratio, span
from benchmarks.timing import Probe
from benchmarks.workload import HORIZON


def noise(probes: list[Probe | None]) -> str:
    """The median, over the probes of a row, of their median reading over their shortest."""
    measured = [probe.noise() for probe in probes if probe]
    return f"{median(measured):.2f}" if measured else ABSENT


def accepted_table(plan: Plan) -> Table:
    unit = plan.unit.best_ns()
    table = Table(
        "An accepted sample",
        ["", *(f"{bins} bins" for bins in plan.bins), "empty calls", "growth", "noise", "bytes/bin"],
        notes=[
            "Bins drawn from the highest quarter, all licensed by restored evidence; shortest of many batches.",
            "Empty calls: at 16 bins, in units of the first row. Growth: most bins against 16.",
            "HIL-F must be told about accepted samples too: decide + learn. Other randomised policies: decide alone,",
            "though some of these samples are offloaded by chance. Literal: the paper's formulas, computed anew for",
            "every sample (tests/policies/literal.py).",
            "Bytes per bin: tracemalloc, 8192 bins against 4096; decide_many adds a copy of the expiries, 8 bytes.",
        ],
    )
    blank = [ABSENT] * (len(plan.bins) - 1)
    table.rows.append(["empty method call", span(unit), *blank, "1.00x", ABSENT, noise([plan.unit]), ABSENT])
    table.rows.append(["the loop alone", span(plan.loop.best_ns()), *blank, *[ABSENT] * 2, noise([plan.loop]), ABSENT])
    for label, row in (plan.policies | plan.literals).items():
        probes = [row[bins].accepted for bins in plan.bins]
        times = [probe.best_ns() if probe else float("nan") for probe in probes]
        size = f"{plan.bytes[label]:.0f}" if label in plan.bytes else ABSENT
        cells = [*map(span, times), ratio(times[0] / unit), ratio(times[-1] / times[0]), noise(probes), size]
        table.rows.append([label, *cells])
    return table


def offload_table(plan: Plan) -> Table:
    table = Table(
        "An offload: decide + learn",
        ["", *(f"{bins} bins" for bins in plan.bins), "growth", "noise"],
        notes=[
            "Bins drawn from the lowest quarter, which are always offloaded; shortest of many batches.",
            "It is the least that an offload costs; the next table has those that move licences.",
        ],
    )
    for label, row in (plan.policies | plan.literals).items():
        probes = [row[bins].offload for bins in plan.bins]
        times = [probe.best_ns() if probe else float("nan") for probe in probes]
        table.rows.append([label, *map(span, times), ratio(times[-1] / times[0]), noise(probes)])
    return table


def mix_table(plan: Plan) -> Table:
    table = Table(
        "An offload in a realistic mix",
        ["", *(f"{bins} bins" for bins in plan.bins), "growth", "noise"],
        notes=[
            f"Bins drawn from all, in the midst of work ({HORIZON:,} samples or 100 per bin so far): licences run",
            "out, are renewed and withdrawn. The time of a long batch, less its accepted samples at the price above,",
            "per offload, so that an offload pays for all the licences that it moves. Shortest batch; the median one",
            f"where an offload takes so long that batches are small. {ABSENT}: over {SLOW_S:g} s each.",
        ],
    )
    for label, row in (plan.policies | plan.literals).items():
        probes = [row[bins].mix for bins in plan.bins]
        times = [row[bins].mix_ns() for bins in plan.bins]
        table.rows.append([label, *map(span, times), ratio(times[-1] / times[0]), noise(probes)])
    return table


def peer_table(plan: Plan) -> Table:
    table = Table(
        "Other libraries, 16 bins",
        ["", "decide", "decide + update", "noise"],
        notes=["Two arms for each bin, and the reward of every pulled arm is told.", *map(absence, plan.missing)],
    )
    for peer in plan.peers:
        times = span(peer.decide.best_ns()), span(peer.both.best_ns())
        table.rows.append([peer.label, *times, noise([peer.decide, peer.both])])
    return table


def absence(package: str) -> str:
    return f"not installed: {package}"


def batch_table(plan: Plan) -> Table:
    table = Table("decide_many: a million accepted samples, hi-lcb", ["", "million/s", "noise"])
    for bins, probe in plan.batches.items():
        table.rows.append([f"{bins} bins", f"{1e3 / probe.best_ns():.0f}", noise([probe])])
    return table
