"""Every policy, one family per file; `base` says what a policy is, `expiry` what the deterministic ones share."""

from hinge.policies.budgets import AtMost, OnBudget, at_most, on_budget
from hinge.policies.drift import (
    DiscountedHILCB,
    DiscountedIsotonic,
    SlidingWindowHILCB,
    SlidingWindowIsotonic,
)
from hinge.policies.expiry import FOREVER, ExpiryPolicy
from hinge.policies.hedge import HILF, HILN, AdaHedgeG, HedgeG, HedgeHI, HedgeHIRestart
from hinge.policies.hi_lcb import HILCB, HILCBLite
from hinge.policies.isotonic import Isotonic
from hinge.policies.kl import KL, PooledKL
from hinge.policies.lyapunov import LyapunovEXP4
from hinge.policies.policy import (
    ACCEPTED,
    Decision,
    Decisions,
    Explanation,
    Need,
    Policy,
    build,
    policy_class,
    policy_names,
    restore,
)
from hinge.policies.random import RandomisedPolicy
from hinge.policies.static import AlwaysLocal, AlwaysRemote, Logistic, Offline, Oracle, Static
from hinge.policies.thompson import Thompson

__all__ = [
    "ACCEPTED",
    "FOREVER",
    "HILCB",
    "HILF",
    "HILN",
    "KL",
    "AdaHedgeG",
    "AlwaysLocal",
    "AlwaysRemote",
    "AtMost",
    "Decision",
    "Decisions",
    "DiscountedHILCB",
    "DiscountedIsotonic",
    "ExpiryPolicy",
    "Explanation",
    "HILCBLite",
    "HedgeG",
    "HedgeHI",
    "HedgeHIRestart",
    "Isotonic",
    "Logistic",
    "LyapunovEXP4",
    "Need",
    "Offline",
    "OnBudget",
    "Oracle",
    "Policy",
    "PooledKL",
    "RandomisedPolicy",
    "SlidingWindowHILCB",
    "SlidingWindowIsotonic",
    "Static",
    "Thompson",
    "at_most",
    "build",
    "on_budget",
    "policy_class",
    "policy_names",
    "restore",
]
