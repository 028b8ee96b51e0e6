"""Traces on disk: whatever is written reads back bit by bit, and what is damaged is never taken for a trace."""

import builtins
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
from hinge.traces import Trace, files, read_trace, write_trace

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


class Interrupted(Trace):
    """A trace whose writing is interrupted half way."""

    @property
    def columns(self) -> dict[str, Any]:
        if sys._getframe(1).f_code.co_name.startswith("write_"):
            raise KeyboardInterrupt
        return super().columns


@every_format
def test_an_interrupted_write_leaves_the_old_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log{suffix}"
    write_trace(TRACE, path)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_trace(Interrupted([0.1], [1], [1]), path)
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
    with pytest.raises(InvalidTrace, match=r"log\.npz: array local cannot be read as npz \(Object arrays"):
        read_trace(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InvalidTrace, match=r"log\.npz: it cannot be read as npz"):
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
        ({"lable": [1]}, "unknown column 'lable'; did you mean 'label'?"),
        ({"confidence": [1.5]}, "Trace: confidence in row 0 must be from 0 to 1, got 1.5"),
        ({"confidence": [[0.5]]}, "Trace: confidence must have one value per row, got shape (1, 1)"),
        ({"metadata": "{"}, "the metadata is not JSON"),
        ({"metadata": "[" * 100_000}, "the metadata is not JSON"),
        ({"metadata": '{"name": "log"}'}, "the metadata must have 'name' and 'about', nothing else"),
        ({"metadata": '{"name": 1, "about": {}}'}, "Trace: name must be text, got 1"),
    ],
)
def test_npz_refuses(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "log.npz", **{"confidence": [0.5], "local": [1], "remote": [1], **arrays})
    with pytest.raises(InvalidTrace) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_single_array_is_no_trace(tmp_path: Path) -> None:
    with open(tmp_path / "log.npz", "wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(InvalidTrace, match=r"it cannot be read as npz \(it is a single array\)"):
        read_trace(tmp_path / "log.npz")


def test_labels_take_few_bytes_in_npz(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    for low, high, dtype in [(0, 255, "|u1"), (-1, 9, "|i1"), (0, 999, "<u2"), (-9, 999, "<i2"), (0, 70_000, "<i4")]:
        write_trace(Trace([0, 1], [low, high], [low, low]), path)
        with zipfile.ZipFile(path) as archive:
            assert np.load(io.BytesIO(archive.read("local.npy"))).dtype.str == dtype


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
    assert str(caught.value) == f"{path}: Trace: local in row 1 must be an integer or text, got nan"


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(TRACE, tmp_path / "log.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (
        lambda: read_trace(tmp_path / "log.parquet"),
        lambda: write_trace(TRACE, tmp_path / "new.parquet"),
    ):
        with pytest.raises(ModuleNotFoundError) as caught:
            call()
        assert str(caught.value) == "traces in .parquet need pyarrow: pip install 'hinge-gate[parquet]'"
    assert os.listdir(tmp_path) == ["log.parquet"]


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


# Files of strangers


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


def test_a_header_of_many_columns_is_read_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    names = [f"feature {number}" for number in range(10_000)]
    row = ",".join(["0.5", "1", "1", *["0"] * len(names)])
    path.write_text(",".join(["confidence", "local", "remote", *names]) + "\n" + row + "\n")
    assert len(read_trace(path)) == 1
    path.write_text(",".join(["confidence", "local", "remote", *names, *names]) + "\n")
    with pytest.raises(InvalidTrace, match=r"line 1: there may be 16384 columns, got 20003$"):
        read_trace(path)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 2**22)


@pytest.mark.usefixtures("little_room")
def test_an_npz_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path, rows = tmp_path / "log.npz", 2**18
    np.savez_compressed(path, confidence=np.zeros(rows), local=np.zeros(rows, int), remote=np.zeros(rows, int))
    assert path.stat().st_size < 2**16
    with pytest.raises(InvalidTrace, match=r"may take 4194304 bytes of memory, this one takes 6\d{6}$"):
        read_trace(path)


def test_an_npz_array_that_holds_less_than_it_says_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as file:
        for name in ("confidence", "local", "remote"):
            file.writestr(f"{name}.npy", header.getvalue() + bytes(80))
    with pytest.raises(InvalidTrace, match=r"array confidence cannot be read as npz \(it holds less than it says\)"):
        read_trace(tmp_path / "log.npz")


@pytest.mark.usefixtures("little_room")
def test_a_parquet_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    rows, path = 2**15, tmp_path / "log.parquet"
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    answers = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int32)), arrow.array(["x" * 1000]))
    long = {"confidence": np.zeros(rows), "local": answers, "remote": answers}
    wide = {f"c{number}": np.zeros(rows, np.int8) for number in range(20)}
    for columns in (long, wide):
        parquet.write_table(arrow.table(columns), path)
        assert path.stat().st_size < 2**15
        with pytest.raises(InvalidTrace, match=r"may take 4194304 bytes of memory, this one takes \d+$"):
            read_trace(path)
