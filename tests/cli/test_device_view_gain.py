"""What a run gained, by what the device saw, against what is known of the whole trace."""

import json

import pytest

from hinge import load_trace
from tests.support.commands import Captured, shown

SETTINGS = ["cifar100-resnet18-calibrated", "--offload-cost", "0.3", "--limit", "3000"]


def summary(capsys: Captured, *arguments: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(shown(capsys, "device", "--json", *arguments).splitlines()[-1])["summary"]
    return found


@pytest.mark.medium
def test_what_was_saved_on_local_alone_is_exact_and_the_rest_within_its_interval(capsys: Captured) -> None:
    trace = load_trace("cifar100-resnet18-calibrated")
    assert trace.local_right is not None
    found = json.loads(json.dumps(summary(capsys, *SETTINGS)))
    gain, cost = found["gain"], found["cost_per_sample"]
    assert cost + gain["saved_on_local"] == pytest.approx(1.0 - trace.agreed[:3000].mean())
    assert gain["cost_low"] < cost < gain["cost_high"]
    assert gain["local_true_accuracy"] == pytest.approx(trace.local_right[:3000].mean())
    assert gain["remote_cost_per_sample"] == pytest.approx(0.3)
    assert gain["answers"] == found["answered_by_remote"]


@pytest.mark.medium
def test_people_read_it_with_the_curve_of_other_prices(capsys: Captured) -> None:
    said = " ".join(shown(capsys, "device", *SETTINGS).split())
    assert "a sample less than local alone" in said
    assert "Remote alone would have cost 0.3 a sample" in said
    assert "Right by the true labels: local alone" in said
    assert "0.3 is the highest of these prices" in said


def test_a_loss_is_called_one(capsys: Captured) -> None:
    assert "a sample more than local alone" in shown(
        capsys, "device", "fashion", "--policy", "always-remote", "--limit", "50"
    )


def test_without_an_answer_of_the_remote_nothing_is_said(capsys: Captured) -> None:
    settings = ["fashion", "--policy", "always-local", "--limit", "200"]
    assert summary(capsys, *settings)["gain"] is None
    assert "local alone" not in shown(capsys, "device", *settings)
