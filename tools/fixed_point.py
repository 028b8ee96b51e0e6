"""Print what docs/microcontrollers.md says about twins and their originals, on every shipped trace of yes and no.

python -m tools.fixed_point
"""

import numpy as np
from numpy.typing import NDArray

from hinge import HILCB, HILCBLite, Policy, UniformBins, load_trace, simulate
from hinge.embedded.twin import LiteTwin, MonotoneTwin, SentinelTwin
from hinge.policies import Sentinel
from hinge.simulation import Record
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Resampled
from hinge.traces import trace_names

HORIZON, RUNS = 100_000, 20
SENTINEL_COSTS = (0.1, 0.3, 0.5)
# On a microcontroller agreement is yes or no: the traces in which it is a number are none of its.
YES_OR_NO = [name for name in trace_names() if load_trace(name).agreed.dtype == np.bool_]
COSTS: tuple[float | None, ...] = (0.3, 0.5, None)  # None: 0.45 or 0.55 by chance, to be learned


def main() -> None:
    """Measure and print: for each trace, the worst of all costs."""
    print("| trace | decisions that differ | regret, hi-lcb-lite | regret, hi-lcb |\n|---|--:|--:|--:|")
    for name in YES_OR_NO:
        rows = [compared(name, offload_cost) for offload_cost in COSTS]
        differing = max(row[0] for row in rows)
        regrets = [max((row[1 + policy] for row in rows), key=abs) for policy in range(2)]
        lite, monotone = (f"{100 * regret:+.2f} %" for regret in regrets)
        print(f"| {name} | {100 * differing:.3f} % | {lite} | {monotone} |")
    differing = sum(differing_sentinels(name, cost, 20_000) for name in YES_OR_NO for cost in SENTINEL_COSTS)
    print(f"\nSentinel: {differing} of {20_000 * len(YES_OR_NO) * len(SENTINEL_COSTS)} decisions differ")


def compared(name: str, offload_cost: float | None) -> tuple[float, float, float]:
    """The larger share of decisions that differ, and how much more regret fixed point has in either policy."""
    costs = BimodalPrice() if offload_cost is None else ConstantPrice(offload_cost)
    source = Resampled(load_trace(name), UniformBins(16), costs)
    settings = {"bins": 16, "alpha": 0.52, "offload_cost": offload_cost}
    kinds = {"lite": HILCBLite, "lite twin": LiteTwin, "monotone": HILCB, "monotone twin": MonotoneTwin}
    policies: dict[str, Policy] = {key: kind(**settings) for key, kind in kinds.items()}
    results = simulate(policies, source, HORIZON, RUNS, record_decisions=True)
    pairs = [(results[key], results[f"{key} twin"]) for key in ("lite", "monotone")]
    differing = max(float((decisions(one) != decisions(other)).mean()) for one, other in pairs)
    lite, monotone = (float(other.regret[:, -1].mean() / one.regret[:, -1].mean()) - 1 for one, other in pairs)
    return differing, lite, monotone


def differing_sentinels(name: str, offload_cost: float, samples: int) -> int:
    """Decisions in which Sentinel and its twin differ, on a trace whose agreement halves halfway."""
    trace, bins, chance = load_trace(name), UniformBins(16), np.random.default_rng(6)
    chosen, kept = chance.integers(0, len(trace.confidence), samples), chance.random(samples) < 0.5
    policies, differing = (Sentinel(16, offload_cost=offload_cost), SentinelTwin(16, offload_cost=offload_cost)), 0
    for sample, row in enumerate(chosen):
        bin, agreed = bins.bin(float(trace.confidence[row])), bool(trace.agreed[row])
        decided = [policy.decide(bin) for policy in policies]
        for policy, decision in zip(policies, decided, strict=True):
            if decision.offload:
                policy.learn(decision, agreed=agreed and (sample < samples // 2 or bool(kept[sample])))
        differing += decided[0].offload != decided[1].offload
    return differing


def decisions(record: Record) -> NDArray[np.bool_]:
    """Runs × samples."""
    return np.stack([run.decisions for run in record.runs if run.decisions is not None])


if __name__ == "__main__":
    main()
