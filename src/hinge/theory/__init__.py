"""The paper's quantities: the problem, what the oracle costs, and what the theorems promise.

- `Problem`: agreement f, mean offload cost γ (for all bins or for each), arrival weights w; the gaps Δ, Φ_H and Φ_L.
- `oracle_cost`, `threshold_costs`, `best_threshold`: what the policies that know the problem pay.
- `Estimate`: agreement by bin, and what a policy would have cost, from a log of offloads alone, with intervals.
- `best_thresholds`: all that are best on a log, at some price each.
- `significant_dips`: where a log's agreement falls with confidence, by more than chance explains.
- `adversarial_bound`: Theorem 1, both policies, and Theorem 2 (b, d), HI-LCB-lite.
- `stochastic_bound`, `stochastic_bound_printed`: Theorem 2 (a, c), HI-LCB, as its lemmas prove it and as it is printed.
- `forced_offload_regret`: what Algorithm 1's "or O = 0" adds to Theorem 2 (a, c).
- `adversarial_wrong_offloads`, `stochastic_wrong_offloads`, `wrong_accepts`: the lemmas behind them, in decisions.
- `single_bin_lower_bound`: Theorem 3. `unstructured_lower_bound`, `structured_lower_bound`: the same over many bins.
- `stopping_floor`: the least Bayes regret in one bin, exactly.
"""

from hinge.theory.agreement import Dip, Estimate, best_thresholds, significant_dips
from hinge.theory.bounds import (
    adversarial_bound,
    adversarial_wrong_offloads,
    forced_offload_regret,
    single_bin_lower_bound,
    stochastic_bound,
    stochastic_bound_printed,
    stochastic_wrong_offloads,
    stopping_floor,
    structured_lower_bound,
    unstructured_lower_bound,
    wrong_accepts,
)
from hinge.theory.problem import Problem, best_threshold, oracle_cost, threshold_costs

__all__ = [
    "Dip", "Estimate", "Problem", "adversarial_bound", "adversarial_wrong_offloads", "best_threshold",
    "best_thresholds", "forced_offload_regret", "oracle_cost", "significant_dips", "single_bin_lower_bound",
    "stochastic_bound", "stochastic_bound_printed", "stochastic_wrong_offloads", "stopping_floor",
    "structured_lower_bound", "threshold_costs", "unstructured_lower_bound", "wrong_accepts",
]
