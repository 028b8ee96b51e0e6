"""Logs: the remote's answer where the sample was offloaded, and nothing made up elsewhere."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import UniformBins
from hinge.bins import EdgeBins
from hinge.errors import InvalidTrace
from hinge.traces import Log, read_log, read_trace

pandas: Any = import_module("pandas")  # its types come in a package of their own, which we do not need
polars: Any = import_module("polars")

CONFIDENCE, LOCAL = [0.9, 0.4, 0.7], ["cat", "dog", "cat"]


def test_what_was_offloaded_is_a_trace() -> None:
    costs: Any = [None, 0.25, 0.5]
    log = Log(CONFIDENCE, LOCAL, [None, "cat", "cat"], costs, audit=[False, False, True], name="log")
    assert log.offloaded.tolist() == [False, True, True]
    assert log.offloads.remote.tolist() == ["cat", "cat"]
    assert log.offloads.agreed.tolist() == [False, True]
    assert log.offloads.mean_offload_cost == 0.375
    assert log.audit is not None
    assert log.audit.tolist() == [False, False, True]
    assert log.bins_by(UniformBins(10)).tolist() == [9, 4, 7]
    assert (len(log), log.name, log.offloads.label) == (3, "log", None)


@pytest.mark.parametrize(
    "remote",
    [
        [3, None, 5],
        np.array([3, None, 5], object),
        np.array([3.0, np.nan, 5.0]),
        pandas.Series([3, None, 5]),
        pandas.Series([3, None, 5], dtype="Int64"),
        polars.Series([3, None, 5]),
    ],
    ids=["list", "objects", "floats", "pandas", "nullable", "polars"],
)
def test_every_way_to_say_that_an_answer_is_missing(remote: Any) -> None:
    log = Log(CONFIDENCE, [3, 4, 4], remote)
    assert log.offloaded.tolist() == [True, False, True]
    assert log.offloads.remote.tolist() == [3, 5]


@pytest.mark.parametrize(
    "remote", [["cat", "", "dog"], pandas.Series(["cat", None, "dog"]), polars.Series(["cat", None, "dog"])]
)
def test_text_may_be_missing_too(remote: Any) -> None:
    assert Log(CONFIDENCE, LOCAL, remote).offloads.agreed.tolist() == [True, False]


UNEVEN = "Log: confidence, local, remote, agreed, cost, audit and bin must have one value per row each"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((CONFIDENCE, LOCAL, [None] * 3), "Log: the remote answered none of the samples, so nothing is known about it"),
        ((CONFIDENCE, LOCAL, ["cat", None]), UNEVEN),
        ((CONFIDENCE, LOCAL, ["cat", None, "cat"], [0.1]), UNEVEN),
        ((CONFIDENCE, LOCAL, ["cat", None, "cat"], None, [True]), UNEVEN),
        (([0.9, 0.4, 1.5], LOCAL, ["a", None, "b"]), "Trace: confidence in row 2 must be from 0 to 1, got 1.5"),
        (
            (CONFIDENCE, LOCAL, [1, None, 2]),
            "Trace: remote holds integers where local holds text: number the classes in all, or name them in all",
        ),
        ((CONFIDENCE, [1, 2, 3], [1.5, None, 2.0]), "Trace: remote in row 0 must be an integer or text, got 1.5"),
    ],
)
def test_refuses(columns: Any, message: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        Log(*columns)
    assert str(caught.value) == message


@pytest.mark.parametrize("audit", [["no", "Yes", None], [0, 1, 0], [0.0, 1.0, float("nan")], [False, True, None]])
def test_every_way_to_say_that_an_offload_was_an_audit(audit: Any) -> None:
    log = Log(CONFIDENCE, LOCAL, ["cat", "cat", None], audit=audit)
    assert log.audit is not None
    assert log.audit.tolist() == [False, True, False]


@pytest.mark.parametrize("frame", [dict, pandas.DataFrame, polars.DataFrame], ids=["dict", "pandas", "polars"])
def test_a_frame_with_gaps_is_a_log_and_no_trace(frame: Any) -> None:
    made = frame({"confidence": CONFIDENCE, "local": LOCAL, "remote": ["cat", None, "cat"], "label": LOCAL})
    assert read_log(made).offloaded.tolist() == [True, False, True]
    with pytest.raises(InvalidTrace, match=r"^read_trace: the remote's answer is missing in 1 of 3 rows; read_log "):
        read_trace(made)


def test_a_complete_trace_is_a_log_in_which_all_were_offloaded() -> None:
    log = read_log({"confidence": CONFIDENCE, "local": LOCAL, "remote": LOCAL, "cost": [0.1, 0.2, 0.3]})
    assert log.offloaded.all()
    assert log.offloads.mean_offload_cost == pytest.approx(0.2)


@pytest.mark.parametrize("bin", [[0, 1, 1], ["0", "1", "1"], np.array([0.0, 1.0, 1.0]), pandas.Series([0, 1, 1])])
def test_the_bin_in_which_a_sample_was_decided(bin: Any) -> None:
    log = Log([0.2, 0.3, 0.9], agreed=[1, 0, None], bin=bin)
    assert log.bin is not None
    assert log.bin.tolist() == [0, 1, 1]
    assert log.mixed(EdgeBins([0.5])) == [0]
    assert log.unmixed(EdgeBins([0.5])) == EdgeBins([0.3])
    assert log.unmixed(EdgeBins([0.25, 0.5])) == EdgeBins([0.25, 0.5])


def test_bins_keep_the_numbers_of_the_device_also_where_some_have_no_samples() -> None:
    device = UniformBins(38)
    confidence = [0.4, 0.41, 0.9, 0.99, 0.7]
    log = Log(confidence, agreed=[1, 0, None, 1, 1], bin=device.bin_many(confidence))
    assert log.bin is not None
    assert log.bins_by(log.unmixed(UniformBins(2))).tolist() == log.bin.tolist()
    assert log.unmixed(UniformBins(2)).bins == max(log.bin) + 1


def test_of_very_many_bins_those_without_samples_are_left_out() -> None:
    log = Log([0.2, 0.3, 0.9], agreed=[1, 0, None], bin=[5, 70_000, 2**31 - 1])
    assert log.unmixed(EdgeBins([0.5])) == EdgeBins([0.3, 0.9])


def test_a_bin_that_cannot_be_above_others_is_something_else() -> None:
    log = Log([0.0, 0.3, 0.9], agreed=[1, 0, None], bin=[5, 6, 7])
    assert log.unmixed(EdgeBins([0.5])) == EdgeBins([0.5])


@pytest.mark.parametrize("bin", [["a", "b", "c"], [0, None, 1], [0, -1, 1], [0, 0.5, 1], [0, float("nan"), 1]])
def test_a_column_of_that_name_may_be_something_else(bin: Any) -> None:
    log = Log([0.2, 0.3, 0.9], agreed=[1, 0, None], bin=bin)
    assert log.bin is None
    assert log.unmixed(EdgeBins([0.5])) == EdgeBins([0.5])


@pytest.mark.parametrize(("confidence", "bin"), [([0.2, 0.3, 0.9], [1, 0, 2]), ([0.3, 0.3, 0.9], [0, 1, 2])])
def test_where_confidence_alone_did_not_decide_the_usual_bins_mix(confidence: list[float], bin: list[int]) -> None:
    log = Log(confidence, agreed=[1, 0, None], bin=bin)
    assert log.unmixed(EdgeBins([0.5])) == EdgeBins([0.5])
    assert log.mixed(EdgeBins([0.5])) == [0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.csv", "confidence,local,remote,bin\n0.2,1,1,0\n0.9,1,,7\n"),
        ("log.jsonl", '{"confidence": 0.2, "agreed": 1, "bin": 0}\n{"confidence": 0.9, "agreed": null, "bin": 7}\n'),
    ],
)
def test_files_say_the_bin(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    bins = read_log(path).bin
    assert bins is not None
    assert bins.tolist() == [0, 7]
