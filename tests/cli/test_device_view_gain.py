"""What a run gained, by what the device saw, against what is known of the whole trace."""

import json
import re
from pathlib import Path

import pytest

from hinge import load_trace
from hinge.cli.app import run
from hinge.traces import Trace, write_trace
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


@pytest.mark.medium
def test_in_the_shadow_of_local_it_is_what_the_answers_would_have_gained(capsys: Captured) -> None:
    trace, settings = load_trace("cifar10-vgg16"), ["cifar10-vgg16", "--offload-cost", "0.3", "--limit", "3000"]
    found = json.loads(json.dumps(summary(capsys, *settings, "--shadow", "local")))
    gain, compared = found["gain"], found["answered_by_remote"]
    assert gain["answers"] == compared > 0
    assert gain["spared"] == round(compared * (1.0 - found["agreement"]))
    assert gain["saved_on_local"] == pytest.approx((gain["spared"] - found["offload_cost"]) / 3000)
    assert found["offloads"] == compared + found["dropped"] + sum(found["fell_back"].values())
    differ = (trace.local != trace.remote)[:3000]
    assert gain["cost_low"] < (differ.sum() - gain["spared"] + found["offload_cost"]) / 3000 < gain["cost_high"]
    assert gain["local_true_accuracy"] == found["true_accuracy"]
    said = " ".join(shown(capsys, "device", *settings, "--shadow", "local").split())
    assert re.search(r"Asking cost [\d.]+ and would have spared \d+ answers", said)
    assert "this device would have cost" in said
    assert "Right by the true labels" not in said


def test_a_loss_is_called_one(capsys: Captured) -> None:
    assert "a sample more than local alone" in shown(
        capsys, "device", "fashion", "--policy", "always-remote", "--limit", "50", "--offload-cost", "0.5"
    )


@pytest.mark.medium
def test_with_a_target_and_no_price_agreement_is_told_and_no_cost(capsys: Captured) -> None:
    settings = ["cifar10-vgg16", "--target", "0.9", "--limit", "5000"]
    found = json.loads(json.dumps(summary(capsys, *settings)))
    assert {found[key] for key in found if "cost" in key} == {None}
    gain = found["gain"]
    assert {gain[key] for key in gain if "cost" in key or "saved" in key} == {None}
    assert gain["accuracy_low"] < found["accuracy"] < gain["accuracy_high"]
    said = " ".join(shown(capsys, "device", *settings).split())
    assert f"offloads {found['offloads']} " in said
    assert f"{gain['accuracy_low']:.2%} to {gain['accuracy_high']:.2%} agree with the remote's" in said
    assert not re.search("cost|sentinel|price", said)
    assert "a sample more than local alone" in shown(capsys, "device", *settings, "--offload-cost", "0.5")


@pytest.mark.medium
def test_a_remote_with_its_classes_in_another_order_is_noticed_and_said_to_do_harm(
    capsys: Captured, tmp_path: Path
) -> None:
    trace = load_trace("cifar10-vgg16")
    assert trace.label is not None
    remote = (trace.remote + 1) % 10
    write_trace(Trace(trace.confidence, trace.local, remote, label=trace.label), tmp_path / "permuted.npz")
    assert run(["device", str(tmp_path / "permuted.npz"), "--limit", "500"]) == 0
    captured = capsys.readouterr()
    assert "local hardly ever agrees with remote: in " in " ".join(captured.err.split())
    assert re.search("local alone 6.*%, this device .*: asking the remote made the answers worse", captured.out)
    assert "worse" not in shown(capsys, "device", "cifar10-vgg16", "--limit", "500")


def test_without_an_answer_of_the_remote_nothing_is_said(capsys: Captured) -> None:
    settings = ["fashion", "--policy", "always-local", "--limit", "200"]
    assert summary(capsys, *settings)["gain"] is None
    assert "local alone" not in shown(capsys, "device", *settings)
