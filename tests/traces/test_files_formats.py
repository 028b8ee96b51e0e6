"""What other programs write: delimiters, cases, other names, lines of JSON, compressed files, times, scores."""

import gzip
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge.confidence import entropy
from hinge.errors import InvalidTrace, UnknownName
from hinge.traces import Trace, read_log, read_trace, write_trace

TRACE = Trace([0.5, 1.0], ["a", "c"], ["b", "c"], name="log")
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file, compressed if its name says so, and returns its path as a user types it."""
    monkeypatch.chdir(tmp_path)

    def writes(name: str, text: str) -> Path:
        Path(name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return Path(name)

    return writes


def test_columns_may_have_other_names(write: Write) -> None:
    path = write("log.csv", "score,pred,remote,local\n0.5,a,b,x\n1,c,c,y\n")
    assert read_trace(path, columns={"confidence": "score", "local": "pred"}) == TRACE
    with pytest.raises(InvalidTrace, match=r"^log.csv, line 1: there is no column 'scores' to take for confidence; "):
        read_trace(path, columns={"confidence": "scores"})
    with pytest.raises(InvalidTrace, match=r"^log.csv, line 1: no column of a trace is called 'confidenc'; did you"):
        read_trace(path, columns={"confidenc": "score"})


def test_the_truth_may_be_called_truth_and_the_answer_label(write: Write) -> None:
    """As in what `hinge device --json` prints."""
    rows: list[dict[str, Any]] = [
        {"label": "b", "source": "remote", "confidence": 0.5, "local": "a", "remote": "b", "truth": "a", "cost": 0.5},
        {"label": "c", "source": "local", "confidence": 1.0, "local": "c", "remote": None, "truth": "a", "cost": 0.0},
        {"summary": {"samples": 2}},
    ]
    path = write("log.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    log = read_log(path)
    assert (len(log), log.offloads.remote.tolist(), log.offloads.mean_offload_cost) == (2, ["b"], 0.5)
    complete = "".join(json.dumps({**row, "remote": "b"}) + "\n" for row in rows[:2])
    label = read_trace(write("log.jsonl", complete)).label
    assert label is not None
    assert label.tolist() == ["a", "a"]
    without = write("log.csv", "label,source,confidence,local,remote\na,remote,0.5,a,b\n")
    assert read_trace(without).label is None


def test_a_csv_with_gaps_is_a_log(write: Write) -> None:
    lines = ["confidence,local,remote,cost,audit", "0.9,cat,,,", "0.4,7,7,0.5,false", "0.8,cat,,,"]
    lines += ["0.7,cat,dog,1,True"]
    log = read_log(write("log.csv", "\n".join(lines)))
    assert log.offloaded.tolist() == [False, True, False, True]
    assert log.offloads == Trace([0.4, 0.7], ["7", "cat"], ["7", "dog"], cost=[0.5, 1.0], name="log")
    assert log.audit is not None
    assert log.audit.tolist() == [False, False, False, True]
    with pytest.raises(InvalidTrace, match=r"^log.csv, line 3: cost must be a number where the remote answered$"):
        read_log(write("log.csv", "confidence,local,remote,cost\n0.9,a,,\n0.9,a,b,\n"))


def test_parquet_and_npz_with_gaps_are_logs(tmp_path: Path) -> None:
    pandas = import_module("pandas")
    frame = pandas.DataFrame({"confidence": [0.5, 1.0], "local": [3, 4], "remote": [3, None]})
    frame.to_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", confidence=[0.5, 1.0], local=[3, 4], remote=[3.0, np.nan])
    for path in (tmp_path / "a.parquet", tmp_path / "a.npz"):
        log = read_log(path)
        assert (log.offloaded.tolist(), log.offloads.agreed.tolist(), log.name) == ([True, False], [True], "a")


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "jsonl", "array"])
def test_probabilities_stand_for_an_answer_and_its_confidence(kind: str, write: Write) -> None:
    table: dict[str, Any] = {"local": [[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]], "remote": [[0.2, 0.8], None, [0.3, 0.7]]}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    path = write("log.jsonl", "\n".join(map(json.dumps, rows)))
    sources: dict[str, Any] = {"dict": table, "jsonl": path, "array": {**table, "local": np.array(table["local"])}}
    source = sources[kind] if kind in sources else import_module(kind).DataFrame(table)
    log = read_log(source)
    assert log.confidence == pytest.approx([0.9, 0.8, 0.5])
    assert (log.local.tolist(), log.offloads.remote.tolist()) == ([1, 0, 0], [1, 1])
    entropies = [entropy(np.log(row)) for row in table["local"]]
    assert read_log(source, measure=entropy).confidence == pytest.approx(entropies)


def test_scores_that_are_no_probabilities_go_through_a_softmax() -> None:
    scores, probabilities = [[2.0, 1.0, 0.0], [0.0, 0.1, 0.0]], [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3]]
    assert read_trace({"local": scores, "remote": [0, 1]}) == Trace.from_scores(scores, [[1, 0, 0], [0, 1, 0]])
    assert Trace.from_scores(probabilities, scores).confidence == pytest.approx([0.7, 0.4])


def test_rows_from_before_times_were_logged_stay_first(write: Write) -> None:
    rows = [(0.1, None), (0.2, None), (0.4, "2026-01-02T00:00:02Z"), (0.3, "2026-01-02T00:00:01Z")]
    lines = [{"confidence": c, "local": "a", "remote": "b"} | ({"time": t} if t else {}) for c, t in rows]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert read_trace(write("log.jsonl", text)).confidence.tolist() == [0.1, 0.2, 0.3, 0.4]
    late = "".join(json.dumps(lines[k]) + "\n" for k in (2, 0, 3))
    with pytest.raises(InvalidTrace, match="one is missing"):
        read_trace(write("log.jsonl", late))


@pytest.mark.parametrize("name", ["log.jsonl", "log.tsv", "log.csv.gz"])
def test_what_is_only_read_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownName, match=r"is read, not written; written are \.csv, \.npz, \.parquet$"):
        write_trace(TRACE, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_last_line_that_is_cut_is_left_out_and_said(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    lines = ['{"confidence": 0.9, "local": 1, "remote": 1}\n', '{"confidence": 0.4, "local": 2, "remote": 1}']
    assert len(read_trace(write("whole.jsonl", "".join(lines)))) == 2
    assert caplog.text == ""
    for cut in (1, 20, len(lines[1]) - 1):
        path = write("cut.jsonl", lines[0] + lines[1][:cut])
        assert len(read_trace(path)) == 1
        assert caplog.messages == [f"{path}, line 2: is cut, and left out; is the file being written?"]
        caplog.clear()
    for text in (lines[1][:20] + "\n" + lines[0], lines[0] + lines[1][:20] + "\n", lines[1][:20]):
        with pytest.raises(InvalidTrace, match="is not a JSON object"):  # what a writer has ended, or all there is
            read_trace(write("damaged.jsonl", text))


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
@pytest.mark.parametrize("answers", [["1", "a", "é"], [0, 1, -3]], ids=["text", "integers"])
def test_labels_that_are_missing_are_written(suffix: str, answers: list[Any], tmp_path: Path) -> None:
    path = tmp_path / f"log{suffix}"
    label = Trace([0.5, 0.25, 1.0], answers, answers[::-1], label=[answers[0], None, answers[2]], name="log")
    rights = Trace([0.5, 0.25], agreed=[0.5, 1.0], local_right=[0.5, None], remote_right=[1.0, None], name="log")
    for trace in (label, rights):
        write_trace(trace, path)
        assert read_trace(path) == trace


def test_labels_in_a_frame_may_be_missing() -> None:
    columns = {"confidence": [0.5, 1.0, 0.25], "local": [1, 2, 3], "remote": [1, 2, 2], "label": [1, None, 2]}
    expected = Trace(**columns)  # type: ignore[arg-type]  # columns of several types
    assert expected.labelled == 2
    for frame in ("pandas", "polars"):
        assert Trace.from_frame(import_module(frame).DataFrame(columns)) == expected


def test_labels_of_a_production_log_are_not_used(write: Write) -> None:
    rows = "confidence,local,remote,label\n0.5,a,b,b\n1,c,,\n0.7,c,,c\n0.6,a,a,\n"
    assert len(read_log(write("log.csv", rows))) == 4


def test_agreement_may_be_given_beside_a_remote_that_is_empty(write: Write) -> None:
    trace = read_trace(write("log.csv", "confidence,local,remote,agreed\n0.5,1,,1\n0.6,2,,0.5\n"))
    assert ([*trace.columns], trace.agreed.tolist()) == (["confidence", "local", "agreed"], [1.0, 0.5])
    log = read_log(write("log.csv", "confidence,local,remote,agreed\n0.5,1,,1\n0.6,2,,\n"))
    assert log.offloaded.tolist() == [True, False]


@pytest.mark.parametrize("rows", ["0.5,1,,1\n0.6,2,2,\n", "0.5,1,1,1\n0.6,2,2,\n", "0.5,1,1,\n0.6,2,,1\n0.7,2,2,1\n"])
def test_an_answer_stays_in_its_row(write: Write, rows: str) -> None:
    with pytest.raises(InvalidTrace, match=r"^log\.csv: Log: remote and agreed must be missing in the same rows$"):
        read_log(write("log.csv", f"confidence,local,remote,agreed\n{rows}"))
