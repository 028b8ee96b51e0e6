"""Looks into a device's policy without keeping its samples waiting: at a copy, made while nobody changes it."""

from __future__ import annotations

from hinge.gate.core import Core
from hinge.policies.base import Policy
from hinge.policies.decision import Explanation
from hinge.policies.enclosing import Budgeted


def copy_of(device: Core) -> Policy:
    """The device's policy as it is now."""
    policy: Policy = type(device.policy).restore(device.state())
    return policy


def licences(policy: Policy) -> list[Explanation]:
    """What is known of every bin, and until when it is accepted, budgets aside.

    A budget explains a bin by trying on a copy of itself, which for many bins would take long.

    >>> from hinge import Isotonic, at_most
    >>> [licence.offload_probability for licence in licences(at_most(Isotonic(bins=2, offload_cost=0.5), 0.1))]
    [1.0, 1.0]
    """
    while isinstance(policy, Budgeted):
        policy = policy.inside
    return [policy.explain(bin) for bin in range(policy.bins)]
