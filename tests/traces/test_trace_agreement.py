"""Traces and logs that hold how far answers agree, in place of the answers or beside them."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hinge
from hinge import Trace, UniformBins, read_trace, write_trace
from hinge.errors import InvalidTrace
from hinge.simulation.evaluate import fitted_cost
from hinge.simulation.sources import ConstantPrice, Resampled
from hinge.theory import Estimate
from hinge.traces import Log, read_log

CONFIDENCE, AGREED = [0.9, 0.4, 0.7], [1.0, 0.25, 1 / 3]
RIGHT = {"local_right": [1.0, 0.0, 0.5], "remote_right": [0.75, 1.0, 0.5]}
TRACE = Trace(CONFIDENCE, agreed=AGREED, cost=[0.1, 0.2, 0.3], name="boxes", about={"date": "today"}, **RIGHT)


def test_agreement_and_accuracies_are_means() -> None:
    assert TRACE.agreement == pytest.approx(sum(AGREED) / 3)
    assert (TRACE.local_accuracy, TRACE.remote_accuracy) == (0.5, 0.75)
    assert (TRACE.local, TRACE.remote, TRACE.label) == (None, None, None)


def test_a_remote_that_was_taken_for_the_truth_shows_agreement_alone() -> None:
    taken: Any = {"agreed": AGREED, "local_right": AGREED, "remote_right": [1.0, 1.0, 1.0]}
    trace = Trace(CONFIDENCE, **taken, about={"truth": "none is known: the remote's answer counts as right"})
    assert (trace.local_accuracy, trace.remote_accuracy) == (None, None)
    told = Trace(CONFIDENCE, **taken, about={"truth": "by hand"})
    assert (told.local_accuracy, told.remote_accuracy) == (told.agreement, 1.0)


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
def test_files_keep_agreement(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"boxes{suffix}"
    write_trace(TRACE, path)
    columns: Any = TRACE.columns
    assert read_trace(path) == (TRACE if suffix != ".csv" else Trace(**columns, name="boxes"))


def test_copies_stay_equal() -> None:
    for trace in (TRACE, Trace([0.5, 0.6], ["a", "b"], ["A", "b"], agreed=[1.0, 1.0])):
        for other in (pickle.loads(pickle.dumps(trace)), copy.deepcopy(trace)):
            assert other == trace
            assert not other.agreed.flags.writeable


def test_agreement_wins_over_answers_and_truth_over_labels() -> None:
    right: Any = {"local_right": [0.5, 0.5], "remote_right": [1, 1]}
    trace = Trace([0.5, 0.6], ["a", "b"], ["A", "c"], ["a", "c"], agreed=[True, False], **right)
    assert trace.agreed.tolist() == [1.0, 0.0]
    assert (trace.local_accuracy, trace.remote_accuracy) == (0.5, 1.0)
    assert [*trace.columns] == ["confidence", "local", "remote", "label", "agreed", "local_right", "remote_right"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "Trace: local and remote must be given, the answers, or agreed"),
        ({"local": [1, 2, 3]}, "Trace: local and remote must be given, the answers, or agreed"),
        ({"agreed": [0.5, 2.0, 1.0]}, "Trace: agreed in row 1 must be from 0 to 1, got 2.0"),
        ({"agreed": [0.5, 1.0]}, "Trace: agreed has 2 rows where confidence has 3"),
        ({"agreed": AGREED, "local_right": AGREED}, "Trace: local_right and remote_right must be given together"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_named(columns: Any, message: str) -> None:
    with pytest.raises(InvalidTrace, match=message):
        Trace(CONFIDENCE, **columns)


def test_agreement_is_another_name_unless_it_is_that_of_the_bin() -> None:
    assert read_trace({"confidence": CONFIDENCE, "agreement": AGREED}).agreed.tolist() == AGREED
    of_bins: dict[str, Any] = {"confidence": CONFIDENCE, "agreed": AGREED, "agreement": [0.1] * 3}
    assert read_trace(of_bins).agreed.tolist() == AGREED
    answers = {"local": [1, 2, 3], "remote": [1, 1, 3], "source": ["local"] * 3}
    assert read_trace({"confidence": CONFIDENCE, **answers, "agreement": AGREED}).agreed.tolist() == [True, False, True]


def test_answers_that_are_no_labels_are_left_out() -> None:
    boxes: Any = [[{"box": [0, 0, 1, 1]}], [], []]
    for others in (boxes, ["a", ["b"], None], ["a", 1, "c"], ["a", "", "c"], [0.5, 1.5, 2.0]):
        trace = read_trace({"confidence": CONFIDENCE, "agreed": AGREED, "local": others, "remote": ["a", "b", "c"]})
        assert [*trace.columns] == ["confidence", "remote", "agreed"]


# -- logs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "dict"])
def test_a_log_knows_where_the_remote_was_asked(suffix: str, tmp_path: Path) -> None:
    rows = [{"confidence": c, "agreed": a} for c, a in zip(CONFIDENCE, [1.0, None, 0.25], strict=True)]
    path: Any = tmp_path / f"log.{suffix}"
    if suffix == "csv":
        path.write_text("confidence,agreed\n0.9,1.0\n0.4,\n0.7,0.25\n")
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path = {name: [row[name] for row in rows] for name in ("confidence", "agreed")}
    log = read_log(path)
    assert (log.offloaded.tolist(), log.offloads.agreed.tolist()) == ([True, False, True], [1.0, 0.25])
    assert repr(log).endswith("3 samples, 2 of them offloaded, 1.25 of which agreed>")


def test_gaps_must_be_those_of_the_remote() -> None:
    with pytest.raises(InvalidTrace, match="Log: remote and agreed must be missing in the same rows"):
        Log([0.5, 0.6], [1, 2], [1, None], agreed=[None, 1.0])
    with pytest.raises(InvalidTrace, match="Log: local and remote must be given"):
        Log([0.5, 0.6], [1, 2])


# -- evaluation -------------------------------------------------------------------------------------------------------


def blurred(rows: int, seed: int) -> Trace:
    chance = np.random.default_rng(seed)
    confidence = chance.random(rows)
    agreed = np.clip(confidence + chance.uniform(-0.3, 0.3, rows), 0.0, 1.0)
    return Trace(confidence, agreed=agreed, local_right=agreed, remote_right=np.ones(rows))


def test_fixed_rules_cost_what_the_sums_say() -> None:
    trace = blurred(2000, 1)
    local, remote = hinge.evaluate(trace, ["always-local", "always-remote"], offload_cost=0.3, runs=1).figures()
    assert local["cost_per_sample"] == pytest.approx(1.0 - trace.agreed.mean())
    assert local["true_accuracy"] == pytest.approx(trace.agreed.mean())
    assert (remote["cost_per_sample"], remote["accuracy"], remote["true_accuracy"]) == pytest.approx((0.3, 1.0, 1.0))


def test_the_agreement_of_a_bin_is_the_mean_of_its_rows() -> None:
    trace, bins = blurred(500, 2), UniformBins(4)
    source = Resampled(trace, bins, ConstantPrice(0.3))
    rows = trace.bins_by(bins)
    assert source.agreement.tolist() == pytest.approx([trace.agreed[rows == bin].mean() for bin in range(4)])


def test_true_labels_shift_the_cost_by_fractions() -> None:
    trace = Trace([0.5] * 40, agreed=[0.5] * 40, local_right=[0.5] * 40, remote_right=[0.75] * 40)
    # 20 disagreements, in which the remote gains 10: κ = (10 + 10) / (10 + 20).
    assert fitted_cost(trace, 0.2) == pytest.approx(0.2 * 30 / 20)


def test_an_estimate_of_fractions_holds_the_mean_and_is_as_wide_as_that_of_coins() -> None:
    coins, parts = Estimate([100], [60], [30]), Estimate([100], [60], [30.0])
    assert coins.bounds[0].tolist() == parts.bounds[0].tolist()
    held = 0
    for seed in range(200):
        agreed = np.random.default_rng(seed).beta(2.0, 1.0, 50)
        low, high = Estimate([1000], [50], [float(agreed.sum())]).bounds
        held += low[0] <= 2 / 3 <= high[0]
    assert held >= 190  # 95 % of them; the spread of a fraction is less than a coin's
