"""Policies: when to trust the local answer, learned from offloads.

`policy` has their contract, `probation` the default. A new one is a file here, and is imported below.
"""

from hinge._columns import Reals, Wholes, real_column, whole_column
from hinge.policies.baselines import HILF, HedgeHI, LyapunovEXP4
from hinge.policies.discounted import Discounted
from hinge.policies.expiry import ExpiryPolicy
from hinge.policies.hi_lcb import HILCB, HILCBLite
from hinge.policies.policy import (
    FOREVER,
    Decision,
    Explanation,
    Functions,
    Need,
    Policy,
    build,
    policy_class,
    policy_names,
    restore,
)
from hinge.policies.probation import Probation
from hinge.policies.random import RandomisedPolicy
from hinge.policies.target import Target
from hinge.policies.thompson import Thompson
from hinge.policies.threshold import AlwaysLocal, AlwaysRemote, FixedPolicy, Offline, Oracle, Threshold

__all__ = [
    "FOREVER",
    "HILCB",
    "HILF",
    "AlwaysLocal",
    "AlwaysRemote",
    "Decision",
    "Discounted",
    "ExpiryPolicy",
    "Explanation",
    "FixedPolicy",
    "Functions",
    "HILCBLite",
    "HedgeHI",
    "LyapunovEXP4",
    "Need",
    "Offline",
    "Oracle",
    "Policy",
    "Probation",
    "RandomisedPolicy",
    "Reals",
    "Target",
    "Thompson",
    "Threshold",
    "Wholes",
    "build",
    "policy_class",
    "policy_names",
    "real_column",
    "restore",
    "whole_column",
]
