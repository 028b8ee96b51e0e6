"""Every policy, one family per file; `base` says what a policy is, `expiry` what the deterministic ones share."""

from hinge.policies.base import Need, Policy
from hinge.policies.decision import ACCEPTED, Decision, Decisions, Explanation
from hinge.policies.expiry import FOREVER, ExpiryPolicy
from hinge.policies.fitted import Logistic, Offline
from hinge.policies.forgetting import (
    DiscountedHILCB,
    DiscountedIsotonic,
    SlidingWindowHILCB,
    SlidingWindowIsotonic,
)
from hinge.policies.hedge_g import AdaHedgeG, HedgeG
from hinge.policies.hedge_hi import HedgeHI, HedgeHIRestart
from hinge.policies.hi_lcb import HILCB, HILCBLite
from hinge.policies.hil import HILF, HILN
from hinge.policies.isotonic import Isotonic
from hinge.policies.kl import KL, PooledKL
from hinge.policies.limits import AtMost, at_most
from hinge.policies.lyapunov import LyapunovEXP4
from hinge.policies.prices import OnBudget, on_budget
from hinge.policies.randomised import RandomisedPolicy
from hinge.policies.registry import build, policy_class, policy_names, restore
from hinge.policies.static import AlwaysLocal, AlwaysRemote, Oracle, Static
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
