"""The paper's quantities: the problem, what the oracle costs, and what the theorems promise (docs/theory.md)."""

from hinge.theory.agreement import Estimate, fit_threshold, monotone
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
    "Estimate", "Problem", "adversarial_bound", "adversarial_wrong_offloads", "best_threshold",
    "fit_threshold", "forced_offload_regret", "monotone", "oracle_cost", "single_bin_lower_bound",
    "stochastic_bound", "stochastic_bound_printed", "stochastic_wrong_offloads", "stopping_floor",
    "structured_lower_bound", "threshold_costs", "unstructured_lower_bound", "wrong_accepts",
]
