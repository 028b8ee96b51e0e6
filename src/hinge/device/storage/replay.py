"""Doing again what a journal says was done, so that a policy comes out bit by bit as it was.

Most policies change by nothing but their clock while they accept, so that accepted samples need no record: the next
record says how far the clock has come. A budget's price is reviewed by the clock, for which the samples between two
records are gone through. Policies that note the bin of every sample (`hedge-hi` and its kin) have each recorded.
"""

from hinge.device.storage.journal import CLOCK, DECIDED, FORGOTTEN, Record
from hinge.errors import HingeError
from hinge.policies.budgets import Budgeted
from hinge.policies.expiry import ExpiryPolicy
from hinge.policies.policy import Decision, Policy
from hinge.policies.thompson import Thompson

LEAP = 10**8  # samples that are gone through between two records: minutes, and far more than a store lets pass


class Divergence(Exception):
    """A record does not follow from what came before it."""


def records_all(policy: Policy) -> bool:
    """Whether accepted samples, too, need a record, as they may change what the policy knows.

    >>> from hinge import HedgeHI, Isotonic, at_most
    >>> records_all(Isotonic(bins=16)), records_all(at_most(Isotonic(bins=16))), records_all(HedgeHI(1000, bins=16))
    (False, False, True)
    """
    if isinstance(policy, Budgeted):
        return records_all(policy.inside)
    return not isinstance(policy, ExpiryPolicy | Thompson)


def goes_through(policy: Policy) -> bool:
    """Whether the samples between two records have to be gone through."""
    return isinstance(policy, Budgeted)


def replay(policy: Policy, record: Record) -> None:
    """Do one thing again; raises `Divergence` where it does not follow, and then the policy is of no use any more."""
    try:
        if record.kind == DECIDED:
            _pass_time(policy, record.time - 1)
            if policy.decide(record.bin).offload != record.offload:
                raise Divergence("this Hinge decides otherwise than was decided")
            return
        _pass_time(policy, record.clock)
        decision = Decision(record.offload, record.bin, record.time, policy.id)
        if record.kind == FORGOTTEN:
            policy.forget(decision)
        elif record.kind != CLOCK:
            policy.learn(decision, record.agreed, record.cost)
    except (HingeError, TypeError, ValueError) as error:
        raise Divergence(str(error)) from error


def _pass_time(policy: Policy, clock: int) -> None:
    if clock < policy.time:
        raise Divergence(f"the clock goes back from {policy.time} to {clock}")
    if goes_through(policy):
        if clock - policy.time > LEAP:
            raise Divergence(f"the clock leaps from {policy.time} to {clock}")
        for time in range(policy.time + 1, clock + 1):
            policy._offloads(policy.table, 0, time)  # reviews the price where that is due, whichever the bin
    policy.time = clock
