"""Every policy, one family per file, and what a policy of your own is made of (docs/add-a-policy.md)."""

from hinge.policies.budgets import AtMost, OnBudget, at_most, on_budget
from hinge.policies.drift import DiscountedHILCB, DiscountedIsotonic
from hinge.policies.expiry import FOREVER, ExpiryPolicy, has_expired
from hinge.policies.hedge import HILF, HedgeHI
from hinge.policies.hi_lcb import HILCB, HILCBLite
from hinge.policies.isotonic import Isotonic
from hinge.policies.kl import KL
from hinge.policies.lyapunov import LyapunovEXP4
from hinge.policies.policy import (
    ACCEPTED,
    Decision,
    Decisions,
    Explanation,
    Functions,
    Need,
    Policy,
    Reals,
    State,
    Wholes,
    build,
    note_nothing,
    policy_class,
    policy_names,
    real_column,
    restore,
    whole_column,
)
from hinge.policies.random import RandomisedPolicy, uniform
from hinge.policies.sentinel import Sentinel
from hinge.policies.static import AlwaysLocal, AlwaysRemote, Offline, Oracle, Static
from hinge.policies.targets import Target
from hinge.policies.thompson import Thompson

__all__ = [
    "ACCEPTED", "FOREVER", "HILCB", "HILF", "KL", "AlwaysLocal", "AlwaysRemote", "AtMost", "Decision", "Decisions",
    "DiscountedHILCB", "DiscountedIsotonic", "ExpiryPolicy", "Explanation", "Functions", "HILCBLite", "HedgeHI",
    "Isotonic", "LyapunovEXP4", "Need", "Offline", "OnBudget", "Oracle", "Policy", "RandomisedPolicy", "Reals",
    "Sentinel", "State", "Static", "Target", "Thompson", "Wholes", "at_most", "build", "has_expired", "note_nothing",
    "on_budget", "policy_class", "policy_names", "real_column", "restore", "uniform", "whole_column",
]
