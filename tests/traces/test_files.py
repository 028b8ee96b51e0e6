"""Traces on disk: whatever is written reads back bit by bit, and what is damaged is never taken for a trace."""

import builtins
import gzip
import io
import os
import pickle
import stat
import sys
import tempfile
import zipfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge._files import replacing, write_whole
from hinge.errors import InvalidTrace
from hinge.traces import Trace, read_trace, write_trace

pandas: Any = import_module("pandas")
polars: Any = import_module("polars")
pyarrow: Any = import_module("pyarrow")
parquet: Any = import_module("pyarrow.parquet")

every_format = pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
TRACE = Trace([0.9, 0.4], [3, 1], [3, 2], label=[3, 2], cost=[0.5, 0.25], name="log", about={"date": "2026-01-31"})

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
integers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9)


@st.composite
def traces(draw: st.DrawFn, labels: st.SearchStrategy[Any]) -> Trace:
    rows = draw(st.integers(1, 20))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=rows, max_size=rows))

    fractions = st.floats(0, 1)
    return Trace(
        column(fractions),
        column(labels),
        column(labels),
        label=column(labels) if draw(st.booleans()) else None,
        cost=column(fractions) if draw(st.booleans()) else None,
        name=draw(st.text()),
        about=draw(st.dictionaries(st.text(), st.text(), max_size=3)),
    )


def through_disk(trace: Trace, suffix: str) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"log{suffix}")
        write_trace(trace, path)
        return read_trace(path)


def bits(trace: Trace) -> dict[str, tuple[str, bytes]]:
    return {name: (values.dtype.str, values.tobytes()) for name, values in trace.columns.items()}


@given(traces(integers) | traces(texts), st.sampled_from([".npz", ".parquet"]))
def test_reads_back_bit_by_bit(trace: Trace, suffix: str) -> None:
    again = through_disk(trace, suffix)
    assert again == trace
    assert bits(again) == bits(trace)


@given(traces(integers) | traces(texts.map(str.strip).filter(lambda text: text and not text.lstrip("-").isdecimal())))
def test_csv_reads_back_bit_by_bit_but_for_name_and_provenance(trace: Trace) -> None:
    again = through_disk(trace, ".csv")
    assert bits(again) == bits(trace)
    assert (again.name, again.about) == ("log", {})


@given(traces(st.sampled_from(["1", "01", "-1", "1.5", "x"])))
def test_csv_keeps_what_agrees_whatever_the_labels_look_like(trace: Trace) -> None:
    assert through_disk(trace, ".csv").agreed.tolist() == trace.agreed.tolist()


@every_format
def test_takes_paths_and_strings_in_any_case(suffix: str, tmp_path: Path) -> None:
    write_trace(TRACE, str(tmp_path / f"log{suffix.upper()}"))
    assert bits(read_trace(str(tmp_path / f"log{suffix.upper()}"))) == bits(TRACE)


@every_format
def test_replaces_an_old_file_and_leaves_nothing_else(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log{suffix}"
    write_trace(Trace([0.1], [1], [1]), path)
    write_trace(TRACE, path)
    assert bits(read_trace(path)) == bits(TRACE)
    assert os.listdir(tmp_path) == [path.name]


@every_format
@pytest.mark.parametrize("failing", ["os.replace", "os.fsync"])
def test_a_failed_write_leaves_the_old_file(
    suffix: str, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"log{suffix}"
    write_trace(TRACE, path)
    before = path.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(failing, fail)
        with pytest.raises(OSError, match="No space left"):
            write_trace(Trace([0.1], [1], [1]), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_keeps_the_permissions_and_follows_links(tmp_path: Path) -> None:
    path, link = tmp_path / "log.npz", tmp_path / "link.npz"
    write_trace(Trace([0.1], [1], [1]), path)
    path.chmod(0o600)
    link.symlink_to(path)
    write_trace(TRACE, link)
    assert link.is_symlink()
    assert read_trace(path) == TRACE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@every_format
def test_reading_changes_nothing(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log{suffix}"
    write_trace(TRACE, path)
    path.chmod(0o400)
    before = path.stat().st_mtime_ns, path.read_bytes(), os.listdir(tmp_path)
    read_trace(path)
    assert (path.stat().st_mtime_ns, path.read_bytes(), os.listdir(tmp_path)) == before


@every_format
def test_a_missing_file_or_folder_is_named_as_given(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "missing" / f"log{suffix}"
    for call in (lambda: read_trace(path), lambda: write_trace(TRACE, path)):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert caught.value.filename == str(path) or caught.value.filename == path


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "log.npz").mkdir()
    with pytest.raises(IsADirectoryError):
        write_trace(TRACE, tmp_path / "log.npz")
    assert os.listdir(tmp_path) == ["log.npz"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("log.cvs", "log.cvs: no format of traces ends in '.cvs'; did you mean '.csv'?"),
        ("log", "log: no format of traces ends in ''; there are .csv, .jsonl, .npz, .parquet, .tsv"),
    ],
)
def test_an_unknown_format_is_an_error(name: str, message: str) -> None:
    for owner, call in (("read_trace", lambda: read_trace(name)), ("write_trace", lambda: write_trace(TRACE, name))):
        with pytest.raises(ValueError, match="no format") as caught:
            call()
        assert str(caught.value) == f"{owner}: {message}"


def test_only_traces_are_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="write_trace: trace must be a Trace, got 3"):
        write_trace(3, tmp_path / "log.npz")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_truncated_file_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log{suffix}"
    write_trace(TRACE, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidTrace, match=rf"log\{suffix}: .*cannot be read as (npz|Parquet)"):
            read_trace(path)


@pytest.mark.medium
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_damaged_file_never_raises_anything_else(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log{suffix}"
    write_trace(TRACE, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with suppress(InvalidTrace):  # none where the byte is in a place that nobody reads
            read_trace(path)


class Bomb:
    """Runs when unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return builtins.exec, ("raise SystemExit('unpickled')",)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    np.savez(path, confidence=[0.5], local=np.array([Bomb()], object), remote=[1])
    with pytest.raises(InvalidTrace, match=r"log\.npz: cannot be read as npz \(Object arrays"):
        read_trace(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InvalidTrace, match=r"log\.npz: cannot be read as npz"):
        read_trace(path)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_reads_arrays_that_numpy_saved(tmp_path: Path) -> None:
    path = saved(tmp_path / "log.npz", confidence=[0.5], local=[1], remote=[2])
    assert read_trace(path) == Trace([0.5], [1], [2], name="log")


def test_reads_saved_logits(tmp_path: Path) -> None:
    local, remote = np.array([[1.0, 2.0], [3.0, 1.0]], np.float32), np.array([[1.0, 0.0], [3.0, 1.0]], np.float32)
    path = saved(tmp_path / "log.npz", local_logits=local, remote_logits=remote, labels=[0, 0])
    assert read_trace(path) == Trace.from_scores(local, remote, [0, 0], name="log")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"lable": [1]}, ": unknown column 'lable'; did you mean 'label'?"),
        ({"confidence": [1.5]}, ", row 0: confidence must be from 0 to 1, got 1.5"),
        ({"confidence": [[0.5]]}, ": Trace: confidence must have one value per row, got shape (1, 1)"),
        ({"metadata": "{"}, ": the metadata is not JSON"),
        ({"metadata": "[" * 100_000}, ": the metadata is not JSON"),
        ({"metadata": '{"name": "log"}'}, ": the metadata must have 'name' and 'about', nothing else"),
        ({"metadata": '{"name": 1, "about": {}}'}, ": Trace: name must be text, got 1"),
    ],
)
def test_npz_refuses(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "log.npz", **{"confidence": [0.5], "local": [1], "remote": [1], **arrays})
    with pytest.raises(InvalidTrace) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_single_array_is_no_trace(tmp_path: Path) -> None:
    with open(tmp_path / "log.npz", "wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(InvalidTrace, match=r"cannot be read as npz \(it is a single array\)"):
        read_trace(tmp_path / "log.npz")


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_reads_parquet_that_frames_wrote(frame: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    made = frame({"confidence": [0.5, 1.0], "local": ["cat", "dog"], "remote": ["cat", "cat"]})
    (made.write_parquet if hasattr(made, "write_parquet") else made.to_parquet)(path)
    assert read_trace(path) == Trace([0.5, 1.0], ["cat", "dog"], ["cat", "cat"], name="log")


def test_reads_parquet_with_categories_float32_and_logits(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    answers = pyarrow.array(["cat", "dog"]).dictionary_encode()
    confidence = pyarrow.array([0.5, 0.25], pyarrow.float32())
    parquet.write_table(pyarrow.table({"confidence": confidence, "local": answers, "remote": answers}), path)
    assert read_trace(path) == Trace([0.5, 0.25], ["cat", "dog"], ["cat", "dog"], name="log")
    scores = [[1.0, 2.0], [3.0, 1.0]]
    parquet.write_table(pyarrow.table({"local_logits": scores, "remote_logits": scores, "label": [0, 0]}), path)
    assert read_trace(path) == Trace.from_scores(scores, scores, [0, 0], name="log")


def test_parquet_refuses_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(pyarrow.table({"confidence": [0.5, 0.5], "local": [1, None], "remote": [1, 1]}), path)
    with pytest.raises(InvalidTrace) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}, row 1: local is missing"


def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replacing(pipe) as stream:
            stream.write(b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_of_several_files_all_are_written_or_none(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "folder" / "other"
    one.write_text("old")
    with pytest.raises(FileNotFoundError, match="other"):
        write_whole({one: "new", other: b"new"})
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("one", "old")]
    other.parent.mkdir()
    write_whole({one: "neu", other: "für"})
    assert (one.read_bytes(), other.read_bytes()) == (b"neu", "für".encode())


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(InvalidTrace, match=r"log\.csv: not a file$"):
        read_trace(tmp_path / "log.csv")


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
def test_a_file_name_is_shown_without_what_controls_a_terminal(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"\x1b]0;title\x07{suffix}"
    path.write_text("confidence,local\n")
    with pytest.raises(InvalidTrace) as caught:
        read_trace(path)
    assert str(caught.value).isprintable()
    with pytest.raises(ValueError, match="no format") as refused:
        read_trace(tmp_path / "\x1b[2J.txt")
    assert str(refused.value).isprintable()


def test_an_npz_array_that_holds_less_than_it_says_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as file:
        for name in ("confidence", "local", "remote"):
            file.writestr(f"{name}.npy", header.getvalue() + bytes(80))
    with pytest.raises(InvalidTrace, match=r"cannot be read as npz \(Unable to allocate"):
        read_trace(tmp_path / "log.npz")


# -- odd files --------------------------------------------------------------------------------------------------------

HEADER = "confidence,local,remote\n"
TWO = Trace([0.5, 1.0], [1, 3], [2, 4], name="log")
JSON = '{"confidence": 0.5, "local": 1, "remote": 2}\n'
JSON_2 = '{"confidence": 1, "local": 3, "remote": 4}\n'

READ: dict[str, tuple[str, str | bytes, Trace]] = {
    "plain": ("csv", f"{HEADER}0.5,1,2\n1,3,4\n", TWO),
    "other order": ("csv", "remote,confidence,local\n2,0.5,1\n4,1,3\n", TWO),
    "byte order mark": ("csv", f"\ufeff{HEADER}0.5,1,2\n1,3,4\n", TWO),
    "CRLF": ("csv", f"{HEADER}0.5,1,2\n1,3,4\n".replace("\n", "\r\n"), TWO),
    "CR": ("csv", f"{HEADER}0.5,1,2\n1,3,4\n".replace("\n", "\r"), TWO),
    "no last newline": ("csv", f"{HEADER}0.5,1,2\n1,3,4", TWO),
    "blank lines": ("csv", f"{HEADER}0.5,1,2\n\n1,3,4\n\n  \n\r\n", TWO),
    "blanks around": ("csv", "confidence, local, remote\n 0.5 , 1 , 2 \n1.0e0,\t3,4\n", TWO),
    "quotes": ("csv", '"confidence","local","remote"\n"0.5","1","2"\n1,3,4\n', TWO),
    "case": ("csv", "Confidence,LOCAL, Remote \n0.5,1,2\n1,3,4\n", TWO),
    "semicolons": ("csv", "confidence;local;remote\n0.5;1;2\n1;3;4\n", TWO),
    "decimal commas": ("csv", "confidence;local;remote\n0,5;1;2\n1,0;3;4\n", TWO),
    "bars": ("csv", "confidence|local|remote\n0.5|1|2\n1|3|4\n", TWO),
    "tabs": ("tsv", "confidence\tlocal\tremote\n0.5\t1\t2\n1\t3\t4\n", TWO),
    "gzip": ("csv.gz", f"{HEADER}0.5,1,2\n1,3,4\n", TWO),
    "tsv.gz": ("tsv.gz", "confidence\tlocal\tremote\n0.5\t1\t2\n1\t3\t4\n", TWO),
    "JSON": ("jsonl", f"{JSON}\n{JSON_2}", TWO),
    "json.gz": ("jsonl.gz", f"{JSON}\n{JSON_2}", TWO),
    "dates": ("csv", "time,confidence,local,remote\n2026-01-02T00:00:01Z,1,3,4\n2026-01-02T00:00:00Z,0.5,1,2\n", TWO),
    "times": ("csv", "time,confidence,local,remote\n10,1,3,4\n9,0.5,1,2\n", TWO),
    "floats": ("csv", f"{HEADER}0.5,1.0,2\n1,3.00,4\n", TWO),
    "other columns": ("csv", "day,confidence,local,remote,camera\n1,0.5,1,2,\n2,1,3,4,caf\u00e9\n", TWO),
    "exact names first": ("csv", "timestamp,time,confidence,local,remote\n1,2,1,3,4\n2,1,0.5,1,2\n", TWO),
    "words": ("csv", "confidence,agreed\n0.9,true\n0.4,No\n", Trace([0.9, 0.4], agreed=[1, 0], name="log")),
    "one row": ("csv", f"{HEADER}0.5,1,2\n", Trace([0.5], [1], [2], name="log")),
    "one class": ("csv", f"{HEADER}0.5,1,1\n1,1,1\n", Trace([0.5, 1.0], [1, 1], [1, 1], name="log")),
    "edges": ("csv", f"{HEADER}-0,1,2\n1.0,3,4\n", Trace([0.0, 1.0], [1, 3], [2, 4], name="log")),
    "text beside integers": (
        "csv",
        f"{HEADER}0.5,1,cat\n1,3,4\n",
        Trace([0.5, 1], ["1", "3"], ["cat", "4"], name="log"),
    ),
    "lines in labels": ("csv", f'{HEADER}0.5,"a\r\nb",c\n', Trace([0.5], ["a\r\nb"], ["c"], name="log")),
    "gaps in labels": (
        "csv",
        "confidence,local,remote,truth\n0.5,a,b,\n1,c,c,c\n",
        Trace([0.5, 1.0], ["a", "c"], ["b", "c"], label=[None, "c"], name="log"),
    ),
    **{
        f"no integer: {odd}": ("csv", f"{HEADER}0.5,1,{odd}\n", Trace([0.5], ["1"], [odd], name="log"))
        for odd in ("01", "+1", "--1", "-0", "1.5", "01.0", "1.", "1_0", "0x10", "\u0661", str(2**63), "9" * 30)
    },
    **{
        f"integer: {number}": ("csv", f"{HEADER}0.5,{number},1\n", Trace([0.5], [number], [1], name="log"))
        for number in (-(2**63), 2**63 - 1, -1, 0)
    },
}

REFUSED: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("csv", "", ", line 1: there must be a header, confidence,local,remote[,label][,cost]"),
    "no header": ("csv", "\n0.5,1,1\n", ", line 1: there must be a header, confidence,local,remote[,label][,cost]"),
    "only a header": ("csv", HEADER, ": there are no samples"),
    "blank below": ("csv", f"{HEADER}\n\n", ": there are no samples"),
    "no remote": ("csv", "confidence,local\n0.5,1\n", ", line 1: column 'remote' is missing; needed are..."),
    "misspelt": ("csv", "confidence,local,remote,lable\n", ", line 1: unknown column 'lable'; did you mean 'label'?"),
    "numbers above": ("csv", "0.5,1,1\n", ", line 1: column 'confidence' is missing; needed are..."),
    "others": ("csv", "conf,local_label,remote\n", ", line 1: column 'confidence' is missing (is it 'conf'?);..."),
    "long names": (
        "csv",
        ",".join("x" * 60 + str(k) for k in range(99)),
        ", line 1: column 'confidence' is missing;...",
    ),
    "twice": ("csv", "confidence,local,remote,local\n", ", line 1: column 'local' comes twice"),
    "twice but for case": (
        "csv",
        "confidence,local,remote,Remote\n",
        ", line 1: columns 'remote' and 'Remote' are the same",
    ),
    "UTF-16": (
        "csv",
        f"{HEADER}0.5,1,1\n".encode("utf-16"),
        ", line 1: is not UTF-8, as a CSV must be: save it as UTF-8",
    ),
    "UTF-16-LE": ("csv", f"{HEADER}0.5,1,1\n".encode("utf-16-le"), ", line 1: is not UTF-8, as a CSV must be..."),
    "UTF-32": ("csv", f"{HEADER}0.5,1,1\n".encode("utf-32"), ", line 1: is not UTF-8, as a CSV must be..."),
    "Latin-1": (
        "csv",
        f"{HEADER}0.5,a,b\n0.5,caf\u00e9,b\n".encode("latin-1"),
        ", line 3: is not UTF-8, as a CSV must...",
    ),
    "NUL": ("csv", f"{HEADER}0.5,a,b\n0.5,a,b\0\n", ", line 3: remote is not Unicode text, got 'b\\x00'"),
    "too short": ("csv", f"{HEADER}0.5,1,1\n0.5,1\n", ", line 3: 2 fields where the header has 3"),
    "too long": ("csv", f"{HEADER}0.5,1,1\n\n  \n0.5,1,1,1\n", ", line 5: 4 fields where the header has 3"),
    "below lines in labels": (
        "csv",
        f'{HEADER}0.5,"a\nb",c\n0.5,"d\ne",f\nx,g,h\n',
        ", line 6: confidence must be a number...",
    ),
    "open quote": ("csv", f'{HEADER}0.5,"a\nb",c\n0.5,"d\ne\n', ", line 4: 2 fields where the header has 3"),
    "blank before a quote": ("csv", f'{HEADER}0.5, "1","2"\n', ", line 2: local has blanks before its quotes"),
    "no answer": ("csv", f"{HEADER}0.5,1,1\n0.5,,1\n", ", line 3: local is missing"),
    "gaps": (
        "csv",
        f"{HEADER}0.5,1,1\n0.5,1,  \n",
        ": the remote's answer is missing in 1 of 2 rows; read_log reads such...",
    ),
    "long label": ("csv", f"{HEADER}0.5,{'a' * 257},b\n", ", line 2: local is longer than 256 characters, got 'aaa..."),
    "very long label": ("csv", f"{HEADER}0.5,{'a' * 200_000},b\n", ", row 0: local is longer than 256 characters..."),
    "noon": (
        "csv",
        "time,confidence,local,remote\n1,0.5,a,b\nnoon,0.5,a,b\n",
        ": column time must be all numbers or all dates,...",
    ),
    "no time": (
        "csv",
        "time,confidence,local,remote\n1,0.5,a,b\n,0.5,a,b\n",
        ": column time must be all numbers or all...",
    ),
    "zones": (
        "csv",
        "time,confidence,local,remote\n2026-01-02T00:00:01Z,1,3,4\n2026-01-02T00:00:00,0.5,1,2\n",
        ": column time must be all numbers or all dates, as in ISO 8601 (can't compare...",
    ),
    "no words": ("csv", "confidence,agreed\n0.9,maybe\n", ", line 2: agreed must be a number from 0 to 1, got 'maybe'"),
    "words of confidence": (
        "csv",
        "confidence,agreed\nyes,1\n",
        ", line 2: confidence must be a number from 0 to 1, got 'yes'",
    ),
    "no gzip": ("csv.gz", b"confidence,local,remote\n", ": cannot be read as gzip..."),
    "cut gzip": ("csv.gz", gzip.compress(f"{HEADER}0.5,1,2\n".encode() * 9)[:-9], ": cannot be read as gzip..."),
    "no object": ("jsonl", f"{JSON}[1]\n", ", line 2: is not a JSON object (Expected `object`..."),
    "no lines": ("jsonl", "\n", ": there are no samples"),
    "too sure": (
        "jsonl",
        f'{JSON}\n{{"confidence": 2, "local": 1, "remote": 1}}',
        ", line 3: confidence must be from 0 to 1, got 2.0",
    ),
    "not asked": ("jsonl", '{"confidence": 1, "local": 1}', ": column 'remote' is missing; needed are..."),
    "no npz": ("npz", b"junk", ": cannot be read as npz..."),
    "no Parquet": ("parquet", b"junk", ": cannot be read as Parquet..."),
    **{
        f"no fraction: {odd!r}": (
            "csv",
            f'confidence,local,remote,cost\n1,1,1,1\n1,1,1,"{odd}"\n',
            ", line 3: cost must be...",
        )
        for odd in (
            "",
            "nan",
            "inf",
            "-inf",
            "-0.1",
            "-1e-9",
            "1.0000001",
            "1e400",
            "0,5",
            "0.2_5",
            "1_0",
            "0x1p-1",
            "half",
        )
    },
}


def put(name: str, content: str | bytes) -> Path:
    path, text = Path(f"log.{name}"), content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") and isinstance(content, str) else text)
    return path


@pytest.mark.parametrize("kind", READ)
def test_an_odd_file_is_read_rightly(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, content, expected = READ[kind]
    assert read_trace(put(name, content)) == expected


@pytest.mark.parametrize("kind", REFUSED)
def test_an_odd_file_is_refused_in_one_line_with_its_row(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, content, message = REFUSED[kind]
    with pytest.raises(InvalidTrace) as caught:
        read_trace(put(name, content))
    said = str(caught.value).removeprefix(f"log.{name}")
    assert said.startswith(message.removesuffix("..."))
    assert message.endswith("...") or said == message
    assert said.isprintable()
    assert len(said) < 200


def test_a_row_is_named_however_many_are_before_it(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "0.5,cat,dog\n" * 100_000 + "abc,cat,dog\n")
    with pytest.raises(InvalidTrace, match=r"log\.csv, line 100002: confidence must be a number .*, got 'abc'$"):
        read_trace(path)


def test_labels_that_are_empty_in_all_rows_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log.csv"
    path.write_text("confidence,local,remote,label\n0.5,1,2,\n1,3,4,\n")
    assert read_trace(path).label is None
    assert caplog.messages == [f"{path}: column label is empty in all rows"]


def test_csv_is_written_plainly(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    write_trace(Trace([0.1, 1 / 3], [1, -2], [1, 5], cost=[1, 0]), path)
    assert path.read_bytes() == b"confidence,local,remote,cost\n0.1,1,1,1.0\n0.3333333333333333,-2,5,0.0\n"
    write_trace(Trace([1e-17, 1], ["a,b", 'say "a"'], ["ö", "b\r\nc"]), path)
    expected = 'confidence,local,remote\n1e-17,"a,b","ö"\n1.0,"say ""a""","b\r\nc"\n'
    assert path.read_bytes() == expected.encode()


@pytest.mark.parametrize("label", [" the", "3.0"])
def test_csv_refuses_to_write_what_it_would_change(label: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match=f"remote in row 1 would change in CSV, got '{label}'; write"):
        write_trace(Trace([0.5, 0.5], ["a", "b"], ["a", label]), tmp_path / "log.csv")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_without_pyarrow_its_extra_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(TRACE, tmp_path / name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"need pyarrow: pip install 'hinge-gate\[sim\]'$"):
        read_trace(tmp_path / name)
