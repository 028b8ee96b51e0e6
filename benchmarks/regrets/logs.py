"""Production logs: how often the interval of a policy's cost holds its true cost, and how wide it is.

From every shipped trace, samples are drawn with replacement and a policy decides. The log keeps the remote's answer
where it offloaded, and nothing else, and `hinge.evaluate` reads it. The true cost is the expected cost per sample of
the evaluated policy on as many samples of the trace.
"""

import inspect
import math
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hinge
from benchmarks import checkpoint
from hinge import UniformBins, build, evaluate, load_trace, simulate
from hinge.policies import policy_names
from hinge.simulation.engine import Threads, run_seeds
from hinge.simulation.evaluate import estimated, lineup
from hinge.simulation.sources import ConstantPrice, Resampled
from hinge.theory import Estimate
from hinge.theory.agreement import LEEWAY
from hinge.traces import Log, trace_names

BINS, COSTS, COST = 16, (0.1, 0.3, 0.5), 0.3
RUNS, FEWER, AT_ONCE = 200, 50, 10
LOGGER, OTHERS = "probation", ("hi-lcb", "thompson", "hedge-hi")
REPEATS, USUAL = 4, 20  # simulations of each policy on a curve: here, and by `hinge evaluate`
EVERY = tuple(  # always-remote costs the price, whatever agrees; what has a number of its own is no candidate
    name for name in policy_names() if name not in ("always-remote", "threshold", "target", "lyapunov-exp4")
)
FEW = ("always-local", "oracle", "probation")  # evaluated on the logs of others
HELD = 0.95  # of the logs, in every cell and for every policy
MEASURED = (
    "policies/*.py",
    "theory/agreement.py",
    *(f"simulation/{name}.py" for name in ("engine", "evaluate", "kernel", "sources")),
)
FIXED = 1.920729  # half of the 95 % point of χ² with one degree of freedom: for numbers of offloads that are fixed


class Kind(NamedTuple):
    """Logs of a policy on a trace at a cost, and how many simulations each is evaluated with; or 0: the true costs."""

    trace: str
    digest: int  # of its samples
    cost: float
    logger: str = LOGGER
    repeats: int = REPEATS

    @property
    def names(self) -> tuple[str, ...]:
        """The policies that are evaluated."""
        return EVERY if self.logger == LOGGER else FEW


class Part(NamedTuple):
    """A few logs of a kind."""

    number: int
    kind: Kind


@lru_cache(maxsize=4)
def recorded(trace: str, cost: float) -> Resampled:
    return Resampled(load_trace(trace), UniformBins(BINS), ConstantPrice(cost))


def digest(trace: str) -> int:
    found = load_trace(trace)
    return zlib.crc32(found.confidence.tobytes() + found.agreed.tobytes())


def measured(part: Part) -> list[dict[str, Any]]:
    """For each log the interval of every policy's cost, or of each run on the trace that cost."""
    trace, _, cost, logger, repeats = part.kind
    source = recorded(trace, cost)
    horizon = len(source.trace)
    seed = zlib.crc32(f"{trace} {cost} {logger} {part.number} {repeats > 0}".encode())
    if repeats == 0:
        ready = lineup(EVERY, source, offload_cost=cost, horizon=horizon)
        truth = simulate(ready, source, horizon, AT_ONCE, seed, executor=Threads(1))
        return [{name: float(truth[name].cost_per_sample[run, -1]) for name in EVERY} for run in range(AT_ONCE)]
    chosen = build(logger, bins=BINS, offload_cost=cost, alpha=0.52, horizon=horizon)
    runs = simulate([chosen], source, horizon, AT_ONCE, seed, record_decisions=True, executor=Threads(1))[logger].runs
    found = []
    for stream, run in zip(run_seeds(seed, AT_ONCE), runs, strict=True):
        asked, samples = np.asarray(run.decisions), list(source.stream(stream, horizon))
        bins, agreed = (np.concatenate([getattr(each, name) for each in samples]) for name in ("bins", "agreed"))
        log = Log((bins + 0.5) / BINS, agreed=np.where(asked, agreed, np.nan))
        intervals = evaluate(log, part.kind.names, cost, bins=BINS, runs=repeats, seed=stream).intervals
        known = estimated(log, UniformBins(BINS))
        fixed = Estimate(known.samples, known.offloads, known.agreements, leeway=FIXED).cost(np.ones(BINS), cost)
        found.append({"offloaded": float(asked.mean()), "fixed": fixed, **(intervals or {})})
    return found


def compiled(name: str) -> None:
    """The loop of a policy, for all processes."""
    source = recorded("fashion", 0.5)
    simulate(lineup([name], source, offload_cost=0.5, horizon=10), source, 10, machine_code=True)


class Cell(NamedTuple):
    """What was measured of a kind of logs, by name of the policies that were evaluated on them."""

    kind: Kind
    logs: int
    offloaded: float  # the share of the samples to which the log knows the remote's answer
    held: dict[str, float]  # the share of logs whose interval holds the true cost
    width: dict[str, float]  # of the interval, on average
    fixed: float  # as `held` of always-local, with the leeway for fixed numbers of offloads


def cell(kind: Kind, logs: list[dict[str, Any]], costs: list[dict[str, float]]) -> Cell:
    source = recorded(kind.trace, kind.cost)
    true = {name: float(np.mean([each[name] for each in costs])) for name in kind.names}
    true["always-local"] = true["fixed"] = float(source.weights @ (1.0 - source.agreement))
    held, width = {}, {}
    for name, cost in true.items():
        low, high = np.array([each[name] for each in logs]).T
        held[name], width[name] = float(np.mean((low <= cost) & (cost <= high))), float(np.mean(high - low))
    offloaded = float(np.mean([each["offloaded"] for each in logs]))
    return Cell(kind, len(logs), offloaded, held, width, held.pop("fixed"))


def cells_of(wanted: dict[Kind, int]) -> list[Cell]:
    """Kinds of logs, measured as often as is wanted, or as there was time for."""
    wanted = {kind._replace(logger=LOGGER, repeats=0): max(wanted.values()) for kind in wanted} | wanted
    parts = [Part(number, kind) for kind, runs in wanted.items() for number in range(runs // AT_ONCE)]
    files = [file for pattern in MEASURED for file in sorted(Path(hinge.__path__[0]).glob(pattern))]
    code = "".join(file.read_text("utf-8") for file in files) + inspect.getsource(measured)
    order = sorted(parts, key=lambda part: (part.kind.repeats == USUAL, part.number))  # what decides the goal is first
    loops = [partial(compiled, name) for name in EVERY]
    found: dict[Kind, list[dict[str, Any]]] = {}
    for part, figures in checkpoint.measured("logs", code, measured, order, prepare=loops).items():
        found.setdefault(part.kind, []).extend(figures)
    return [
        cell(kind, logs, found[kind._replace(logger=LOGGER, repeats=0)])
        for kind, logs in found.items()
        if kind.repeats > 0 and kind._replace(logger=LOGGER, repeats=0) in found
    ]


def lucky(trace: str, runs: int) -> list[float]:
    """Of always-local, the share of intervals that hold, for a log whose bins were asked about until they looked good.

    Each bin is offloaded until it agrees by 1.5 standard errors more often than it should, and never again: what no
    policy can do, as it does not know how often it should. Also for the leeway for fixed numbers of offloads.
    """
    source = Resampled(load_trace(trace), UniformBins(BINS), ConstantPrice(0.5))
    chance, held, true = np.random.default_rng(5), np.zeros(2), float(source.weights @ (1.0 - source.agreement))
    for _ in range(runs):
        samples = chance.multinomial(len(source.trace), source.weights)
        counts = np.zeros((2, BINS), np.int64)
        for bin in np.flatnonzero(samples):
            agreement, seen = source.agreement[bin], np.arange(1, samples[bin] + 1)
            agreements = np.cumsum(chance.random(samples[bin]) < agreement)
            excess = agreements - agreement * seen > 1.5 * np.sqrt(seen * agreement * (1.0 - agreement))
            stops = np.flatnonzero(excess & (seen >= 5))
            stop = int(stops[0]) if stops.size else samples[bin] - 1
            counts[:, bin] = seen[stop], agreements[stop]
        for column, leeway in enumerate((LEEWAY, FIXED)):
            low, high = Estimate(samples, *counts, leeway=leeway).cost(np.ones(BINS), 0.5)
            held[column] += low <= true <= high
    return [float(share) for share in held / runs]


def share(held: float, logs: int) -> str:
    """In %, with its standard error where the interval holds in 95 %."""
    return f"{100 * held:.1f} ± {100 * math.sqrt(HELD * (1 - HELD) / logs):.1f}"


def row(found: Cell) -> str:
    """A line of the table of cells."""
    worst = min(found.held, key=lambda name: found.held[name])
    widths = " | ".join(f"{found.width[name]:.3f}" for name in FEW)
    least = f"{share(found.held[worst], found.logs)} ({worst}) | {100 * float(np.mean([*found.held.values()])):.1f}"
    where = f"{found.kind.trace} | {found.kind.cost} | {found.logs} | {found.offloaded:.2f}"
    return f"| {where} | {least} | {widths} | {100 * found.fixed:.1f} |"


def by_policy(cells: Sequence[Cell]) -> list[str]:
    """A line for each policy."""
    costs = sorted({each.kind.cost for each in cells})
    heads = " | ".join(f"at {cost}: mean | largest" for cost in costs)
    lines = [f"| policy | least held, % | mean, % | width {heads} |", "|---" * (3 + 2 * len(costs)) + "|"]
    for name in EVERY:
        held = [each.held[name] for each in cells]
        widths = [[each.width[name] for each in cells if each.kind.cost == cost] for cost in costs]
        figures = " | ".join(f"{float(np.mean(each)):.3f} | {max(each):.3f}" for each in widths)
        lines.append(f"| {name} | {100 * min(held):.1f} | {100 * float(np.mean(held)):.1f} | {figures} |")
    return lines


def verdict(cells: Sequence[Cell]) -> list[str]:
    """Whether every policy's interval held often enough in every cell."""
    shares = [held for each in cells for held in each.held.values()]
    missed = [
        f"- {each.kind.trace} at {each.kind.cost}, {name}: {share(held, each.logs)} %"
        for each in cells
        for name, held in each.held.items()
        if held < HELD
    ]
    met = "met" if not missed else f"MISSED in {len(missed)}"
    least = f"least {100 * min(shares):.1f} %, {100 * float(np.mean(shares)):.1f} % in the mean"
    said = f"Held in at least {100 * HELD:g} % of the logs, of {len(shares)} cells and policies: {met} ({least})."
    return [said, "", *missed, *([""] if missed else [])]


def together(logger: str, repeats: int, cells: Iterable[Cell]) -> str:
    """A line for all traces at one cost."""
    found = [each for each in cells if (each.kind.logger, each.kind.repeats) == (logger, repeats)]
    if not found:
        return f"| {logger} | {repeats} | not measured" + " |" * 8
    held = [held for each in found for held in each.held.values()]
    evaluated = f"{logger} | {repeats} | {len(found[0].held)} | {min(each.logs for each in found)}"
    figures = f"{100 * min(held):.1f} | {100 * float(np.mean(held)):.1f}"
    widths = " | ".join(f"{float(np.mean([each.width[name] for each in found])):.3f}" for name in FEW)
    return f"| {evaluated} | {float(np.mean([each.offloaded for each in found])):.2f} | {figures} | {widths} |"


def report(quick: bool) -> list[str]:
    traces = ["fashion", "reading-tesseract"] if quick else trace_names()
    costs, runs, fewer = ((COST,), AT_ONCE, AT_ONCE) if quick else (COSTS, RUNS, FEWER)
    digests = {trace: digest(trace) for trace in traces}
    wanted = {Kind(trace, digests[trace], cost): runs for cost in costs for trace in traces}
    others = [(logger, REPEATS) for logger in OTHERS] + ([] if quick else [(LOGGER, USUAL)])
    wanted |= {Kind(trace, digests[trace], COST, *other): fewer for other in others for trace in traces}
    cells = cells_of(wanted)
    main = [each for each in cells if (each.kind.logger, each.kind.repeats) == (LOGGER, REPEATS)]
    if not main:
        return ["## Logs of offloads alone", "", "Stopped before any cell was measured.", ""]
    ours, theirs = (
        100 * float(np.mean(column)) for column in zip(*(lucky(each, runs) for each in traces), strict=True)
    )
    return [
        "## Logs of offloads alone",
        "",
        f"Logs of each of {len(traces)} shipped traces at each cost, as long as the trace, drawn from it with",
        f"replacement; {LOGGER} decides, {BINS} bins. From the remote's answers to what was offloaded, agreement is",
        f"estimated, and the cost per sample of {len(EVERY)} policies, with intervals: all curves at least",
        f"1/{math.exp(LEEWAY):.0f} as likely as the best are possible. *Held*: the share of logs whose interval holds",
        "the policy's expected cost on the trace, ± the standard error that the share of so many logs has if 95 % is",
        "true; *least* is that of the policy in parentheses. *Fixed*: the same, in %, of always-local with the leeway",
        f"that gives 95 % where numbers of offloads are fixed beforehand ({FIXED:.2f}, not {LEEWAY:.2f}).",
        f"Each policy runs {REPEATS} times on a curve. The true costs are means of as many runs as there are logs.",
        "",
        "| trace | cost | logs | offloaded | least held, % | mean, % "
        "| width: always-local | oracle | probation | fixed |",
        "|---" * 10 + "|",
        *map(row, main),
        "",
        *verdict(main),
        *by_policy(main),
        "",
        "### Other logs",
        "",
        f"At cost {COST}: logs of other policies, and as many runs on a curve as `hinge evaluate` has. Evaluated are",
        f"{', '.join(FEW)}, or all.",
        "",
        "| logged by | runs | evaluated | logs | offloaded | least held, % | mean, % "
        "| width: always-local | oracle | probation |",
        "|---" * 10 + "|",
        *(
            together(*other, (each for each in cells if each.kind.cost == COST))
            for other in [(LOGGER, REPEATS), *others]
        ),
        "",
        "### A log that cannot be",
        "",
        "Each bin is offloaded until it happens to agree by 1.5 standard errors more often than it should, and then",
        "never again. No policy can do that, as none knows how often it should; but to stop where it looks good is",
        f"what all do, a little. Always-local's interval holds in {ours:.0f} % of such logs, with the leeway of fixed",
        f"numbers in {theirs:.0f} %.",
        "",
    ]
