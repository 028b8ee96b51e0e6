"""The conformance suite: what every policy promises, clause by clause, for your own policies too.

    from hinge.testing import check_policy
    check_policy(MyPolicy(bins=16))

or, one test for each clause:

    @pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
    def test_my_policy(clause):
        clause(MyPolicy(bins=16))

A clause takes any instance of the policy, works on fresh copies of it, and raises `NotConforming` with what went wrong.
"""

from hinge.policies import Policy
from hinge.testing.clauses import CLAUSES, Clause
from hinge.testing.drivers import NotConforming, Sample, play, samples, tell

__all__ = ["CLAUSES", "Clause", "NotConforming", "Sample", "check_policy", "play", "samples", "tell"]


def check_policy(policy: Policy) -> None:
    """Run every clause against a policy; raises `NotConforming` at the first that it does not keep.

    >>> from hinge import HILCB
    >>> check_policy(HILCB(bins=4, offload_cost=0.5))
    """
    if not isinstance(policy, Policy):
        raise TypeError(f"check_policy: policy must be an instance of a policy, got {policy!r}")
    for clause in CLAUSES:
        try:
            clause(policy)
        except NotConforming as error:
            raise NotConforming(f"{clause.__name__}: {error}") from error
