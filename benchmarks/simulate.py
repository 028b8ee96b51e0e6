"""How fast the simulator is, as ratios measured in one run: against the literal formula in Python and in numba.

    python benchmarks/simulate.py [--quick] [--markdown FILE]

Timings are the best of several repetitions, taken in turns, so that a busy machine disturbs all of them alike; the
noise is the median over the best.
"""

import argparse
import math
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

from hinge import HILCB, HILCBLite, Policy
from hinge.policies import Oracle
from hinge.simulation import Threads, lineup, simulate
from hinge.simulation.engine import Player
from hinge.simulation.sources import ConstantPrice, Samples, Synthetic

ALPHA, COST = 0.52, 0.5


def literal_loop(bins: Any, agreed: Any, count: int, monotone: bool, offloads: Any, agreements: Any, start: int) -> int:
    """The paper's Algorithm 1 with a known cost, word for word: every bound anew at every sample."""
    offloaded = 0
    for position in range(count):
        t = start + position + 1
        phi = bins[position]
        bound = -math.inf
        for j in range(0 if monotone else phi, phi + 1):
            if offloads[j] > 0:
                candidate = agreements[j] / offloads[j] - math.sqrt(ALPHA * math.log(t) / offloads[j])
                if candidate > bound:
                    bound = candidate
        if 1.0 - bound >= COST or offloads[phi] == 0:
            offloads[phi] += 1
            agreements[phi] += agreed[position]
            offloaded += 1
    return offloaded


compiled_literal = numba.njit(nogil=True)(literal_loop)


def setting(bins: int) -> Synthetic:
    return Synthetic(np.linspace(0.2, 0.98, bins), ConstantPrice(COST))


def best_times(actions: dict[str, Callable[[], object]], repetitions: int) -> dict[str, tuple[float, float]]:
    """Seconds of each action, best and median, taken in turns after one round to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(repetitions):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            taken[name].append(time.perf_counter() - start)
    return {name: (min(values), statistics.median(values)) for name, values in taken.items()}


def run_kernel(policy: Policy, source: Synthetic, chunks: list[Samples]) -> None:
    player = Player(policy.fresh(), source, np.array([10**9]), 0, machine_code=True)
    for chunk in chunks:
        player.play(chunk)


def run_literal(chunks: list[Samples], bins: int, monotone: bool) -> None:
    offloads, agreements, start = np.zeros(bins, np.int64), np.zeros(bins), 0
    for chunk in chunks:
        compiled_literal(chunk.bins, chunk.agreed, len(chunk.bins), monotone, offloads, agreements, start)
        start += len(chunk.bins)


def run_python(samples: Samples, bins: int, count: int) -> None:
    literal_loop(samples.bins.tolist(), samples.agreed.tolist(), count, True, [0] * bins, [0.0] * bins, 0)


class Report:
    """Lines to print, and goals to judge."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)

    def goal(self, text: str, value: float, least: float | None = None, most: float | None = None) -> None:
        met = (least is None or value >= least) and (most is None or value <= most)
        wanted = f">= {least:g}" if least is not None else f"<= {most:g}"
        self.say(f"| {text} | {value:.2f} | {wanted} | {'met' if met else 'MISSED'} |")


def decisions(report: Report, length: int, repetitions: int) -> dict[int, dict[str, float]]:
    """Nanoseconds per decision of the compiled loops on the same samples."""
    report.say("| bins | policy | ns per decision | noise | literal, numba | times faster |")
    report.say("|---|---|---|---|---|---|")
    found: dict[int, dict[str, float]] = {}
    for bins in (16, 256, 1024):
        source = setting(bins)
        chunks = list(source.stream(1, length))
        policies = {
            "oracle": Oracle(source.agreement.tolist(), COST),
            "hi-lcb-lite": HILCBLite(bins, ALPHA, COST),
            "hi-lcb": HILCB(bins, ALPHA, COST),
        }
        actions: dict[str, Callable[[], object]] = {
            name: partial(run_kernel, policy, source, chunks) for name, policy in policies.items()
        }
        for name, monotone in (("literal hi-lcb-lite", False), ("literal hi-lcb", True)):
            actions[name] = partial(run_literal, chunks, bins, monotone)
        times = best_times(actions, repetitions)
        found[bins] = {name: seconds / length * 1e9 for name, (seconds, _) in times.items()}
        for name in policies:
            own, literal = found[bins][name], found[bins].get(f"literal {name}")
            ratio = ("", "") if literal is None else (f"{literal:.1f}", f"{literal / own:.1f}")
            noise = times[name][1] / times[name][0]
            report.say(f"| {bins} | {name} | {own:.1f} | {noise:.2f} | {ratio[0]} | {ratio[1]} |")
    report.say()
    return found


def python_literal(repetitions: int) -> float:
    """Nanoseconds per decision of the literal HI-LCB as a plain Python loop, at 16 bins."""
    count = 16_384
    samples = next(setting(16).stream(1, count))
    best, _ = best_times({"python": lambda: run_python(samples, 16, count)}, repetitions)["python"]
    return best / count * 1e9


def whole_simulations(length: int, repetitions: int) -> dict[int, dict[str, float]]:
    """Nanoseconds per sample of a whole simulation of one policy, its samples and checkpoints included."""
    found = {}
    for bins in (16, 1024):
        source = setting(bins)
        policies = lineup(["oracle", "hi-lcb-lite", "hi-lcb"], source, offload_cost=COST, horizon=length)
        actions: dict[str, Callable[[], object]] = {
            name: partial(simulate, [policy], source, length, executor=Threads(1)) for name, policy in policies.items()
        }
        found[bins] = {name: best / length * 1e9 for name, (best, _) in best_times(actions, repetitions).items()}
    return found


def scaling(length: int, repetitions: int) -> float:
    """How much faster two threads are than one."""
    source = setting(16)
    policies = lineup(["hi-lcb", "hi-lcb-lite", "kl"], source, offload_cost=COST, horizon=length)
    actions: dict[str, Callable[[], object]] = {
        str(count): partial(simulate, policies, source, length, 8, executor=Threads(count)) for count in (1, 2)
    }
    times = best_times(actions, repetitions)
    return times["1"][0] / times["2"][0]


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short version, without the long horizon")
    parser.add_argument("--markdown", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    length, repetitions = (200_000, 3) if options.quick else (1_000_000, 7)
    report = Report()
    report.say("# How fast the simulator is\n")
    report.say(f"Written by `benchmarks/simulate.py` (numba {numba.__version__}, numpy {np.__version__}).")
    report.say("Noise is the median over the best of the repetitions; f rises evenly, known cost 0.5, α = 0.52.\n")
    per_decision = decisions(report, length, repetitions)
    python, simulation = python_literal(repetitions), whole_simulations(length, repetitions)

    report.say("| goal | measured | wanted | |")
    report.say("|---|---|---|---|")
    hi_lcb = per_decision[16]["hi-lcb"]
    report.goal("hi-lcb against the literal Python loop, 16 bins", python / hi_lcb, least=150)
    report.goal("a whole simulation of it, samples generated too", python / simulation[16]["hi-lcb"], least=150)
    for bins, least in ((16, 4), (256, 20)):
        ratio = per_decision[bins]["literal hi-lcb"] / per_decision[bins]["hi-lcb"]
        report.goal(f"hi-lcb against the literal loop in numba, {bins} bins", ratio, least=least)
    for bins, times in simulation.items():
        ratio = max(times.values()) / min(times.values())
        report.goal(f"slowest over fastest simulation of oracle, lite, hi-lcb, {bins} bins", ratio, most=2)
    report.goal("two threads against one", scaling(length, repetitions), least=1.7)
    report.say()

    source, runs = setting(16), 10 if options.quick else 100
    everything = lineup(["all"], source, offload_cost=COST, horizon=100_000)
    simulate(everything, source, 1000, machine_code=True)  # compile
    start = time.perf_counter()
    simulate(everything, source, 100_000, runs)
    taken = time.perf_counter() - start
    report.say(f"{runs} runs × 100 000 samples × all {len(everything)} policies: {taken:.1f} s.\n")
    horizon = 10**7 if options.quick else 10**9
    before = peak_mib()
    start = time.perf_counter()
    record = simulate([HILCB(16, ALPHA, COST)], source, horizon)["hi-lcb"]
    taken, after = time.perf_counter() - start, peak_mib()
    report.say(
        f"One run of hi-lcb over {horizon:.0e} samples: {taken:.0f} s, regret {record.regret[0, -1]:.0f}; "
        f"peak memory {after:.0f} MiB, {after - before:.0f} MiB of it for this run."
    )
    if options.markdown:
        options.markdown.write_text("\n".join(report.lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
