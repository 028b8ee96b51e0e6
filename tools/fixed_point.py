"""Print how much more regret the twins of `hinge.h` have than their originals, on every shipped trace of yes and no.

python -m tools.fixed_point
"""

import numpy as np

from hinge import HILCB, HILCBLite, Policy, Probation, UniformBins, load_trace
from hinge.embedded.twin import Twin, twin_of
from hinge.traces import trace_names

HORIZON, RUNS = 100_000, 5
# On a microcontroller agreement is yes or no: the traces in which it is a number are none of its.
YES_OR_NO = [name for name in trace_names() if load_trace(name).agreed.dtype == np.bool_]
COSTS = (0.1, 0.3, 0.5)
POLICIES = (Probation, HILCB, HILCBLite)


def main() -> None:
    """Measure and print: for each trace, the worst of all costs; and over all of them."""
    print("| trace | " + " | ".join(policy.name for policy in POLICIES) + " |\n|---|" + "--:|" * len(POLICIES))
    sums = np.zeros((len(POLICIES), 2))
    for name in YES_OR_NO:
        found = np.array([[regrets(policy, name, cost) for policy in POLICIES] for cost in COSTS])
        sums += found.sum(axis=0)
        ratios = found[..., 1] / found[..., 0] - 1
        worst = np.take_along_axis(ratios, np.abs(ratios).argmax(axis=0)[None], axis=0)[0]
        print(f"| {name} | " + " | ".join(f"{100 * ratio:+.2f} %" for ratio in worst) + " |", flush=True)
    print("| all | " + " | ".join(f"{100 * (twin / original - 1):+.2f} %" for original, twin in sums) + " |")


def regrets(
    kind: type[Policy], name: str, cost: float, horizon: int = HORIZON, runs: int = RUNS
) -> tuple[float, float]:
    """Return the mean regret of a policy and of its twin on the same samples of a trace, in 16 uniform bins."""
    trace, totals = load_trace(name), np.zeros(2)
    bins = UniformBins(16).bin_many(trace.confidence)
    agreement = np.bincount(bins, trace.agreed, 16) / np.maximum(np.bincount(bins, minlength=16), 1)
    wrong = (1.0 - agreement - cost).tolist()  # what accepting costs more than offloading, by bin
    for run in range(runs):
        rows = np.random.default_rng(run).integers(0, len(bins), horizon)
        samples = list(zip(bins[rows].tolist(), trace.agreed[rows].tolist(), strict=True))
        policy = kind.from_settings({"bins": 16, "alpha": 0.52, "offload_cost": cost})
        twin = twin_of(policy)
        totals += _of_policy(policy, samples, wrong), _of_twin(twin, samples, wrong)
    return float(totals[0] / runs), float(totals[1] / runs)


def _of_policy(policy: Policy, samples: list[tuple[int, bool]], wrong: list[float]) -> float:
    regret = 0.0
    for bin, agreed in samples:
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agreed)
            regret += max(-wrong[bin], 0.0)
        else:
            regret += max(wrong[bin], 0.0)
    return regret


def _of_twin(twin: Twin, samples: list[tuple[int, bool]], wrong: list[float]) -> float:
    regret = 0.0
    for bin, agreed in samples:
        if twin.decide(bin):
            twin.learn(bin, agreed)
            regret += max(-wrong[bin], 0.0)
        else:
            regret += max(wrong[bin], 0.0)
    return regret


if __name__ == "__main__":
    main()
