"""What we promise about speed, held against what was measured."""

import math

from benchmarks.plan import KEYS, Plan
from benchmarks.probes import Probes
from benchmarks.report import ABSENT, Table, ratio, span
from benchmarks.timing import Probe

CALLS = 4.0  # empty method calls for an accepted sample
FLAT = 1.3  # an accepted sample at 65 536 bins against 16
PEER = 20.0  # the fastest peer against an accepted sample
OFFLOAD_NS = 3_000.0  # an offload of HI-LCB at 16 bins
LEARN_NS = 6_000.0  # a learn of the default at 16 bins
GROWTH = 4_096 / 100  # an offload of HI-LCB at 65 536 bins against 16, where the bins grow 4096 times
MILLIONS = 100.0  # accepted samples per second in a batch


def goal_table(plan: Plan) -> Table:
    table = Table("Goals", ["", "goal", "measured", "", "detail"])
    for name in KEYS:
        add_accepted(table, plan, name)
    for name in KEYS:
        add_peers(table, plan, name)
    add_offloads(table, plan)
    learn = plan.learn.best_ns()
    add(table, "sentinel: learn, 16 bins", f"<= {span(LEARN_NS)}", span(learn), learn <= LEARN_NS, "in low bins")
    for bins, probe in plan.batches.items():
        speed = 1e3 / probe.best_ns()
        add(table, f"decide_many, {bins} bins", f">= {MILLIONS:g} M/s", f"{speed:.0f} M/s", speed >= MILLIONS)
    table.notes.append("Without the loop: the empty loop taken off both sides, which only makes the ratio worse.")
    return table


def add(table: Table, what: str, goal: str, measured: str, met: bool | None, detail: str = "") -> None:
    verdict = ABSENT if met is None else "ok" if met else "MISSED"
    table.rows.append([what, goal, measured, verdict, detail])


def best(probe: Probe | None) -> float:
    return probe.best_ns() if probe else math.nan


def add_accepted(table: Table, plan: Plan, name: str) -> None:
    few, many = (best(plan.policies[name][bins].accepted) for bins in (16, 65_536))
    unit, loop = plan.unit.best_ns(), plan.loop.best_ns()
    calls, growth = few / unit, many / few
    bare = f"{ratio((few - loop) / (unit - loop))} without the loop; {span(few)} against {span(unit)}"
    add(table, f"{name}: accepted sample, in empty calls", f"<= {CALLS:g}x", ratio(calls), calls <= CALLS, bare)
    add(table, f"{name}: the same, 65536 bins against 16", f"<= {FLAT:g}x", ratio(growth), growth <= FLAT, span(many))


def add_peers(table: Table, plan: Plan, name: str) -> None:
    if not plan.peers:
        return
    probes = plan.policies[name][16]
    accepted = best(probes.accepted)
    decide = min(plan.peers, key=lambda peer: peer.decide.best_ns())
    both = min(plan.peers, key=lambda peer: peer.both.best_ns())
    faster, whole = decide.decide.best_ns() / accepted, both.both.best_ns() / accepted
    learning = both.both.best_ns() / probes.mix_ns()
    goal, start = f">= {PEER:g}x", f"{name}: accepted sample against"
    add(table, f"{start} fastest decide", goal, ratio(faster), faster >= PEER, decide.label)
    add(table, f"{start} fastest decide + update", goal, ratio(whole), whole >= PEER, both.label)
    add(table, f"{name}: offload in the mix against the same", ABSENT, ratio(learning), None, "for the record")


def add_offloads(table: Table, plan: Plan) -> None:
    few, many = plan.policies["hi-lcb"][16], plan.policies["hi-lcb"][65_536]
    price = few.mix_ns()
    detail = f"in the mix; {span(best(few.offload))} in low bins only"
    goal = f"<= {span(OFFLOAD_NS)}"
    add(table, "hi-lcb: offload + learn, 16 bins", goal, span(price), price <= OFFLOAD_NS, detail)
    growth = many.mix_ns() / few.mix_ns()
    detail = f"bins grow 4096x; {literal_growth(plan)}"
    add(table, "hi-lcb: the same, 65536 bins against 16", f"<= {GROWTH:.0f}x", ratio(growth), growth <= GROWTH, detail)


def literal_growth(plan: Plan) -> str:
    row: dict[int, Probes] | None = plan.literals.get("literal hi-lcb")
    if row is None:
        return "tests/policies/literal.py not found"
    return f"the literal formulas grow {ratio(row[65_536].mix_ns() / row[16].mix_ns())}"
