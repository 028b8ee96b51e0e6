"""A device over a replayed trace decides as the simulator does, sample for sample, through a server on loopback."""

import numpy as np
import pytest

from hinge import Device, OpenInference, Policy, UniformBins, load_trace, simulate
from hinge.gate.local.recorded import Recorded
from hinge.simulation import lineup, run_seeds
from hinge.simulation.engine import policy_seed
from hinge.sources import FixedCosts, InOrder
from tests.gate.loopback import OipServer
from tests.gate.worlds import recorded

HORIZON = 100_000


@pytest.mark.parametrize(
    ("name", "trace_name", "horizon"),
    [
        ("isotonic", "cifar10-vgg16", HORIZON),
        ("hi-lcb", "cifar10-vgg16", 10_000),
        ("hi-lcb-lite", "fashion", 10_000),
        ("thompson", "imagenet-mobilenet", 5_000),
        ("discounted-isotonic", "fashion", 10_000),
    ],
)
def test_decision_for_decision(name: str, trace_name: str, horizon: int) -> None:
    trace = load_trace(trace_name)
    source = InOrder(trace, UniformBins(16), FixedCosts(0.5))
    policy: Policy = lineup([name], source, offload_cost=0.5, horizon=horizon)[name]
    run = simulate({name: policy}, source, horizon, seed=1, record_decisions=True)[name].runs[0]
    assert run.decisions is not None
    labels, classes = trace.remote.astype(int), int(trace.remote.max()) + 1
    with OipServer.of_labels(labels.tolist(), classes, binary=True) as server:
        remote = OpenInference(server.url, model="remote")
        with Device(Recorded(trace), remote, policy.fresh(policy_seed(run_seeds(1, 1)[0])), deadline_s=30) as device:
            rows = np.array(recorded(trace, horizon))[:, None]
            answers = [device.infer(row) for row in rows]
        inferences = server.inferences
    offloads = np.array([answer.decision.offload for answer in answers])
    assert np.array_equal(offloads, run.decisions)
    assert 0 < offloads.sum() < horizon
    assert inferences == offloads.sum() == sum(answer.source == "remote" for answer in answers)
    expected = np.where(offloads, trace.remote[rows[:, 0]], trace.local[rows[:, 0]])
    assert [answer.label for answer in answers] == expected.tolist()
