"""How fast the simulator is: compiled decisions beside the literal formula in numba and in Python, and whole runs.

Agreement rises evenly, the cost is known to be 0.5, α = 0.52.
"""

import math
import time
from functools import partial
from typing import Any

import numba
import numpy as np

from benchmarks.report import Table, ratio, span
from benchmarks.timing import Batch, in_turn, noisiest, whole
from hinge import HILCB, HILCBLite, Policy, UniformBins, load_trace
from hinge.policies import Oracle
from hinge.simulation import Threads, lineup, simulate
from hinge.simulation.engine import Player
from hinge.simulation.sources import ConstantPrice, Resampled, Samples, Synthetic

ALPHA, COST = 0.52, 0.5
MILLIONS = 16  # samples of hi-lcb, in runs of 100 000


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


def run_kernel(policy: Policy, source: Synthetic, chunks: list[Samples]) -> None:
    player = Player(policy.fresh(), source, np.array([10**9]), 0, machine_code=True)
    for chunk in chunks:
        player.play(chunk)


def run_literal(chunks: list[Samples], bins: int, monotone: bool) -> None:
    offloads, agreements, start = np.zeros(bins, np.int64), np.zeros(bins), 0
    for chunk in chunks:
        compiled_literal(chunk.bins, chunk.agreed, len(chunk.bins), monotone, offloads, agreements, start)
        start += len(chunk.bins)


def run_python(samples: Samples) -> None:
    literal_loop(samples.bins.tolist(), samples.agreed.tolist(), len(samples.bins), True, [0] * 16, [0.0] * 16, 0)


def decisions(length: int, rounds: int) -> Table:
    """Time compiled decisions on the same samples, and the literal formula beside them."""
    table = Table("A decision in machine code", ["", "bins", "each", "literal, numba", "times faster"])
    samples = next(setting(16).stream(1, 16_384))
    python = in_turn({"": whole(partial(run_python, samples), len(samples.bins))}, rounds)[""]
    table.notes.append(f"The literal hi-lcb as a Python loop, 16 bins: {span(python.ns)}.")
    every = [python]
    for bins in (16, 256, 1024):
        source = setting(bins)
        chunks = list(source.stream(1, length))
        policies: dict[str, Policy] = {
            "oracle": Oracle(source.agreement.tolist(), COST),
            "hi-lcb-lite": HILCBLite(bins, ALPHA, COST),
            "hi-lcb": HILCB(bins, ALPHA, COST),
        }
        batches: dict[str, Batch] = {
            name: whole(partial(run_kernel, policy, source, chunks), length) for name, policy in policies.items()
        }
        for name, monotone in (("literal hi-lcb-lite", False), ("literal hi-lcb", True)):
            batches[name] = whole(partial(run_literal, chunks, bins, monotone), length)
        timed = in_turn(batches, rounds)
        every += timed.values()
        for name in policies:
            own, literal = timed[name].ns, timed[f"literal {name}"].ns if f"literal {name}" in timed else math.nan
            table.rows.append([name, str(bins), f"{own:.1f} ns", span(literal), ratio(literal / own)])
    table.notes.append(noisiest(every))
    return table


def runs(quick: bool) -> Table:
    """Time whole simulations, their samples included."""
    table = Table("Whole runs")
    source = Resampled(load_trace("fashion"), UniformBins(16), ConstantPrice(COST))
    one, most = [HILCB(16, ALPHA, COST)], 1 if quick else MILLIONS
    simulate(one, source, 1000)  # compile
    begun = time.perf_counter()
    simulate(one, source, 100_000, 10 * most, executor=Threads(1))
    took = time.perf_counter() - begun
    table.goal(f"{most} million samples of hi-lcb, one thread", "<= 1 s", f"{took:.2f} s", took <= 1)
    everything = lineup(["all"], setting(16), offload_cost=COST, horizon=100_000)
    simulate(everything, setting(16), 1000, machine_code=True)
    begun = time.perf_counter()
    simulate(everything, setting(16), 100_000, most)
    took = time.perf_counter() - begun
    table.goal(f"{most} runs of 100 000 samples of all {len(everything)} policies", "–", f"{took:.1f} s", None)
    return table


def report(quick: bool) -> list[Table]:
    """Measure how fast the simulator is."""
    return [decisions(*(200_000, 3) if quick else (1_000_000, 7)), runs(quick)]
