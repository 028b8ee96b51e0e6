"""The package as a whole: its public names, and what it runs without."""

import operator
import subprocess
import sys

import pytest

import hinge

WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import hinge
from hinge import HILCB, UniformBins, build, policy_names
for name in policy_names():
    history, agreed = [0, 1, 2, 3], [False, False, True, True]
    settings = dict(bins=4, offload_cost=0.5, horizon=100, agreement=[0.1, 0.2, 0.8, 0.9])
    policy = build(name, history=history, agreed=agreed, **settings)
    for bin in (0, 3, 3, 1):
        decision = policy.decide(bin)
        if decision.offload or policy.needs:
            policy.learn(decision, agreed=True, cost=0.5)
    type(policy).restore(policy.state()).explain(UniformBins(4).bin(0.9))
print(len(policy_names()))
"""


def test_policies_run_without_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert int(done.stdout) == len(hinge.policy_names())


@pytest.mark.parametrize("name", dir(hinge))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(hinge, name) is not None
    assert name in dir(hinge)


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'HILBC'"):
        operator.attrgetter("HILBC")(hinge)


def test_the_version_is_public() -> None:
    assert hinge.__version__.count(".") == 2
