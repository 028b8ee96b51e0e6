"""A device over a replayed trace decides as the simulator does, sample for sample, through `hinge serve`."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hinge import Device, OpenInference, UniformBins, load_trace, simulate
from hinge.models import RecordedModel
from hinge.server import Server
from hinge.simulation import lineup, run_seeds
from hinge.simulation.engine import policy_seed
from hinge.simulation.sources import ConstantPrice, InOrder
from tests.device.worlds import recorded

HORIZON = 100_000


def looking_up(labels: list[int], path: Path) -> Path:
    """A model that answers a row's number with the label that was recorded for it."""
    table = numpy_helper.from_array(np.array(labels, np.int64), "table")
    sample = helper.make_tensor_value_info("sample", TensorProto.INT64, ["batch", 1])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, ["batch", 1])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "sample"], ["label"])], "recorded", [sample], [label], [table]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("name", "trace_name", "horizon"),
    [
        ("probation", "cifar10-vgg16", HORIZON),
        ("hi-lcb", "cifar10-vgg16", 10_000),
        ("hi-lcb-lite", "fashion", 10_000),
        ("thompson", "imagenet-mobilenet", 5_000),
        ("discounted", "fashion", 10_000),
    ],
)
def test_decision_for_decision(name: str, trace_name: str, horizon: int, tmp_path: Path) -> None:
    trace = load_trace(trace_name)
    source = InOrder(trace, UniformBins(16), ConstantPrice(0.5))
    fitted = name in ("probation", "discounted")
    policy = lineup([name], source, offload_cost=0.5, horizon=horizon, fitted=fitted)[name]
    run = simulate({name: policy}, source, horizon, seed=1, record_decisions=True)[name].runs[0]
    assert run.decisions is not None
    model = looking_up(trace.remote.astype(int).tolist(), tmp_path / "remote.onnx")
    with Server([model]) as server:
        remote = OpenInference(server.url, model="remote")
        fresh = policy.fresh(policy_seed(run_seeds(1, 1)[0]))
        with Device(RecordedModel(trace), remote, fresh, deadline_s=30) as device:
            rows = np.array(recorded(trace, horizon))[:, None]
            answers = [device.infer(row) for row in rows]
            inferences = device.status.attempts.attempts
    offloads = np.array([answer.decision.offload for answer in answers])
    assert np.array_equal(offloads, run.decisions)
    assert 0 < offloads.sum() < horizon
    assert inferences == offloads.sum() == sum(answer.source == "remote" for answer in answers)
    expected = np.where(offloads, trace.remote[rows[:, 0]], trace.local[rows[:, 0]])
    assert [answer.label for answer in answers] == expected.tolist()
