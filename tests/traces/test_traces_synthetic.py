"""The synthetic traces: the same bits every time, with the stated accuracies, agreement rising with confidence."""

import os
from pathlib import Path

import numpy as np
import pytest

from hinge.bins import EdgeBins
from hinge.traces import load_trace, read_trace
from tools.synthetic_traces import SAMPLES, SETTINGS, Setting, main, synthesise

every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
ACCURACIES = {  # local and remote, as stated
    "synthetic-cifar10": (0.68, 0.95),
    "synthetic-cifar100": (0.53, 0.82),
    "synthetic-imagenet": (0.59, 0.78),
}


@every_setting
def test_the_script_makes_the_shipped_bits(setting: Setting) -> None:
    made, shipped = synthesise(setting), load_trace(setting.name)
    assert made == shipped
    for name, values in made.columns.items():
        assert values.tobytes() == shipped.columns[name].tobytes()


@every_setting
def test_accuracies_are_as_stated(setting: Setting) -> None:
    trace = load_trace(setting.name)
    local, remote = ACCURACIES[setting.name]
    # At least three standard errors of 10 000 samples.
    assert trace.local_accuracy == pytest.approx(local, abs=0.015)
    assert trace.remote_accuracy == pytest.approx(remote, abs=0.0125)
    assert trace.about["local accuracy"] == f"{trace.local_accuracy:.1%}"


@every_setting
def test_agreement_rises_with_confidence(setting: Setting) -> None:
    trace = load_trace(setting.name)
    bins = trace.bins_by(EdgeBins(np.quantile(trace.confidence, np.arange(1, 8) / 8)))
    agreement = [trace.agreed[bins == bin].mean() for bin in range(8)]
    assert (np.diff(agreement) > 0).all()
    assert agreement[0] < 0.5 < agreement[-1]


@every_setting
def test_labels_and_confidences_fill_their_ranges(setting: Setting) -> None:
    trace = load_trace(setting.name)
    assert len(trace) == SAMPLES
    assert trace.label is not None
    assert len(np.unique(trace.label)) == setting.classes
    assert (trace.label.min(), trace.label.max()) == (0, setting.classes - 1)
    assert trace.confidence.min() >= 1 / setting.classes
    assert trace.confidence.max() > 0.999
    assert len(np.unique(trace.confidence)) == SAMPLES  # full precision: no two alike


def test_cifar10_confidences_bunch_near_1() -> None:
    assert (load_trace("synthetic-cifar10").confidence > 0.9).mean() > 0.4


@every_setting
def test_they_say_that_they_are_synthetic(setting: Setting) -> None:
    about = load_trace(setting.name).about
    assert about["kind"].startswith("synthetic: ")
    assert about["script"] == f"python -m tools.synthetic_traces, seed {setting.seed}"


def test_the_command_writes_every_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    assert sorted(os.listdir(tmp_path)) == sorted(f"{setting.name}.npz" for setting in SETTINGS)
    assert read_trace(tmp_path / "synthetic-imagenet.npz") == load_trace("synthetic-imagenet")
    assert "synthetic-imagenet" in capsys.readouterr().out
