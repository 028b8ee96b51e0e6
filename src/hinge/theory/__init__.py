"""The paper's quantities: the problem, what the oracle costs, and what the theorems promise (docs/theory.md)."""

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
