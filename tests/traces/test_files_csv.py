"""Traces as CSV: what reads back, and what every kind of damage is called."""

from pathlib import Path

import numpy as np
import pytest

from hinge.errors import InvalidTrace
from hinge.traces import Trace, read_log, read_trace, write_trace
from hinge.traces import files as csv_format

HEADER = "confidence,local,remote\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path as a user types it."""
    monkeypatch.chdir(tmp_path)
    return Path("log.csv")


def test_is_written_plainly(log: Path) -> None:
    write_trace(Trace([0.1, 1 / 3], [1, -2], [1, 5], cost=[1, 0]), log)
    assert log.read_bytes() == b"confidence,local,remote,cost\n0.1,1,1,1.0\n0.3333333333333333,-2,5,0.0\n"
    write_trace(Trace([1e-17, 1], ["a,b", 'say "a"'], ["ö", "b\r\nc"]), log)
    expected = 'confidence,local,remote\n1e-17,"a,b","ö"\n1.0,"say ""a""","b\r\nc"\n'
    assert log.read_bytes() == expected.encode()


@pytest.mark.parametrize(
    "text",
    [
        "confidence,local,remote\n0.5,1,2\n1,3,4\n",
        "remote,confidence,local\n2,0.5,1\n4,1,3\n",
        "\ufeffconfidence,local,remote\n0.5,1,2\n1,3,4\n",
        "confidence,local,remote\r\n0.5,1,2\r\n1,3,4\r\n",
        "confidence,local,remote\n0.5,1,2\n1,3,4",
        "confidence,local,remote\n0.5,1,2\n1,3,4\n\n  \n\r\n",
        "confidence, local, remote\n 0.5 , 1 , 2 \n1.0e0,\t3,4\n",
        '"confidence","local","remote"\n"0.5","1", "2"\n1,3,4\n',
    ],
    ids=["plain", "other order", "byte order mark", "CRLF", "no last newline", "blank end", "spaces", "quotes"],
)
def test_reads(log: Path, text: str) -> None:
    log.write_bytes(text.encode())
    assert read_trace(log) == Trace([0.5, 1.0], [1, 3], [2, 4], name="log")


def test_labels_are_text_where_one_is(log: Path) -> None:
    log.write_text("confidence,local,remote,label\n0.5,1,2,3\n0.5,1,2,cat\n")
    trace = read_trace(log)
    assert trace.local.tolist() == ["1", "1"]
    assert trace.label is not None
    assert trace.label.tolist() == ["3", "cat"]


ODD = ["01", "+1", "--1", "-0", "1.5", "01.0", "-0.0", "1.", "1_0", "\u0661", str(2**63), "9" * 30]


@pytest.mark.parametrize("odd", ODD)
def test_only_plain_integers_count_as_integers(log: Path, odd: str) -> None:
    log.write_text(f"{HEADER}0.5,1,{odd}\n", encoding="utf-8")
    trace = read_trace(log)
    assert (trace.local.tolist(), trace.remote.tolist()) == (["1"], [odd])


@pytest.mark.parametrize("block", [1, 100])
@pytest.mark.parametrize("other", ["7", "dog"])
def test_a_whole_number_is_the_same_label_with_and_without_its_zeros(
    log: Path, other: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    log.write_text(f"{HEADER}0.5,3,3.0\n0.5,-12.00,-12\n0.5,{other},0.0\n0.5,10.0,1.0\n")
    assert read_trace(log).agreed.tolist() == [True, True, False, False]


@pytest.mark.parametrize("extreme", [-(2**63), 2**63 - 1, -1, 0])
def test_every_int64_is_an_integer(log: Path, extreme: int) -> None:
    trace = Trace([0.5], [extreme], [extreme], name="log")
    write_trace(trace, log)
    assert read_trace(log) == trace


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_blocks_leave_no_trace(log: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    log.write_text(f"{HEADER}0.1,1,7\n0.2,2,2\n0.3,3,dog\n0.4,4,4\n0.5,5,parrot\n\n\n\n")
    assert read_trace(log) == Trace(
        [0.1, 0.2, 0.3, 0.4, 0.5], list("12345"), ["7", "2", "dog", "4", "parrot"], name="log"
    )
    log.write_text(f"{HEADER}0.1,1,7\n0.2,2,2\n\n\n0.3,3\n")
    with pytest.raises(InvalidTrace, match=r"^log\.csv, line 4: is blank, and not at the end$"):
        read_trace(log)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_names_line_column_and_text(log: Path, newline: str) -> None:
    lines = [HEADER.strip(), *["0.5,cat,dog"] * 15, "abc,cat,dog", "0.5,cat"]
    log.write_bytes(newline.join(lines).encode())
    with pytest.raises(InvalidTrace) as caught:
        read_trace(log)
    assert str(caught.value) == "log.csv, line 17, column confidence: 'abc' is not a number from 0 to 1"


@pytest.mark.parametrize("text", ["", "nan", "inf", "-0.1", "1.0000001", "0,5", "0.2_5", "1e999", "half"])
def test_what_is_no_number_from_0_to_1(log: Path, text: str) -> None:
    log.write_text(f'{HEADER.strip()},cost\n1,1,1,1\n1,1,1,"{text}"\n')
    with pytest.raises(InvalidTrace) as caught:
        read_trace(log)
    assert str(caught.value) == f"log.csv, line 3, column cost: {text!r} is not a number from 0 to 1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "log.csv, line 1: there must be a header, confidence,local,remote[,label][,cost]"),
        ("\n0.5,1,1\n", "log.csv, line 1: there must be a header, confidence,local,remote[,label][,cost]"),
        (HEADER, "log.csv: there are no samples"),
        (f"{HEADER}\n\n", "log.csv: there are no samples"),
        ("confidence,local\n0.5,1\n", "log.csv, line 1: column 'remote' is missing; needed are ..."),
        ("confidence,local,remote,lable\n", "log.csv, line 1: unknown column 'lable'; did you mean 'label'?"),
        ("confidense,local,remote\n", "log.csv, line 1: unknown column 'confidense'; did you mean 'confidence'?"),
        (
            "0.5,1,1\n",
            "log.csv, line 1: column 'confidence' is missing; needed are confidence, local, remote, found are "
            "0.5, 1, 1",
        ),
        (
            "conf,local_label,remote\n",
            "log.csv, line 1: column 'confidence' is missing (is it 'conf'?); needed are confidence, local, remote, "
            "found are conf, local_label, remote",
        ),
        (
            ",".join(f"{k}{'x' * 60}" for k in range(99)) + "\n",
            "log.csv, line 1: column 'confidence' is missing; needed are confidence, local, remote, found are 0xx...",
        ),
        ("confidence,local,remote,local\n", "log.csv, line 1: column 'local' comes twice"),
        (f"{HEADER}0.5,1,1\n0.5,1\n", "log.csv, line 3: 2 fields where the header has 3"),
        (f"{HEADER}0.5,1,1\n0.5,1,1,1\n", "log.csv, line 3: 4 fields where the header has 3"),
        (f"{HEADER}0.5,1,1\n\n0.5,1,1\n", "log.csv, line 3: is blank, and not at the end"),
        (f"{HEADER}0.5,1,1\n0.5,,1\n", "log.csv, line 3, column local: '' is empty"),
        (
            f"{HEADER}0.5,1,1\n0.5,1,  \n",
            "log.csv: the remote's answer is missing in 1 of 2 rows; read_log reads such a log, and evaluate takes it",
        ),
        (f'{HEADER}0.5,"a\nb",c\n0.5,"d\ne",f\nx,g,h\n', "log.csv, line 6, column confidence: 'x' is not a number..."),
        (f'{HEADER}0.5,"a\nb",c\n0.5,"d\ne\n', "log.csv, line 4: unexpected end of data"),
        (f'{HEADER}0.5,"a"b,c\n', "log.csv, line 2: ',' expected after '\"'"),
        (f"{HEADER}0.5,{'a' * 257},b\n", "log.csv, line 2, column local: 'aaaaaaaaa..."),
        (f"{HEADER}0.5,{'a' * 200_000},b\n", "log.csv, line 2: field larger than field limit (131072)"),
    ],
)
def test_refuses(log: Path, content: str, message: str) -> None:
    log.write_bytes(content.encode())
    with pytest.raises(InvalidTrace) as caught:
        read_trace(log)
    assert str(caught.value).startswith(message.removesuffix("..."))
    assert message.endswith("...") or str(caught.value) == message
    assert len(str(caught.value)) < 200


def test_agreement_may_be_given_beside_a_remote_that_is_empty(log: Path) -> None:
    log.write_text("confidence,local,remote,agreed\n0.5,1,,1\n0.6,2,,0.5\n")
    trace = read_trace(log)
    assert ([*trace.columns], trace.agreed.tolist()) == (["confidence", "local", "agreed"], [1.0, 0.5])
    log.write_text("confidence,local,remote,agreed\n0.5,1,,1\n0.6,2,,\n")
    assert read_log(log).offloaded.tolist() == [True, False]


@pytest.mark.parametrize("rows", ["0.5,1,,1\n0.6,2,2,\n", "0.5,1,1,1\n0.6,2,2,\n", "0.5,1,1,\n0.6,2,,1\n0.7,2,2,1\n"])
def test_an_answer_stays_in_its_row(log: Path, rows: str) -> None:
    log.write_text(f"confidence,local,remote,agreed\n{rows}")
    with pytest.raises(InvalidTrace, match=r"^log\.csv: Log: remote and agreed must be missing in the same rows$"):
        read_log(log)


@pytest.mark.medium
@pytest.mark.parametrize("rows", [1, 100_000])
def test_names_the_line_that_is_not_utf8(log: Path, rows: int) -> None:
    log.write_bytes(HEADER.encode() + b"0.5,a,b\n" * rows + b"0.5,caf\xe9,b\n")
    with pytest.raises(InvalidTrace) as caught:
        read_trace(log)
    assert str(caught.value) == rf"log.csv, line {rows + 2}, column local: 'caf\udce9' is not Unicode text"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_refused(log: Path, encoding: str) -> None:
    log.write_text(f"{HEADER}0.5,1,1\n", encoding=encoding)
    with pytest.raises(InvalidTrace, match=r"^log\.csv, line 1: is not UTF-8, as a CSV must be: save it as UTF-8$"):
        read_trace(log)


def test_refuses_to_write_what_it_would_lose(log: Path) -> None:
    with pytest.raises(InvalidTrace) as caught:
        write_trace(Trace([0.5, 0.5], ["a", "b"], ["a", " the"]), log)
    assert str(caught.value) == (
        "write_trace: remote in row 1 has blanks around it, which CSV loses, got ' the'; write .npz or .parquet"
    )
    with pytest.raises(InvalidTrace, match=r"remote in row 1 reads back from CSV as an integer, got '3\.0'; write"):
        write_trace(Trace([0.5, 0.5], ["a", "b"], ["a", "3.0"]), log)
    assert not log.exists()


@pytest.mark.medium
def test_many_rows_read_back_bit_by_bit(log: Path) -> None:
    rng = np.random.default_rng(1)
    names = np.array([f"class {k}" for k in range(300)])
    local, remote, label = names[rng.integers(0, 300, (3, 50_000))]
    trace = Trace(rng.random(50_000), local, remote, label, cost=rng.random(50_000))
    write_trace(trace, log)
    again = read_trace(log)
    assert [values.tobytes() for values in again.columns.values()] == [
        values.tobytes() for values in trace.columns.values()
    ]


def test_other_columns_are_ignored(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("timestamp,confidence,local,remote,camera\n2026-01-01,0.5,1,1,\n2026-01-02,0.25,1,2,north\n")
    trace = read_trace(log)
    assert trace == Trace([0.5, 0.25], [1, 1], [1, 2], name="log")


def test_agreement_may_be_in_words(log: Path) -> None:
    log.write_text("confidence,agreed,local_right,remote_right\n0.9,true,Yes,1\n0.4,False,no,0.5\n0.5,TRUE, yes,true\n")
    trace = read_trace(log)
    assert trace.agreed.tolist() == [1, 0, 1]
    assert trace.local_right is not None
    assert trace.remote_right is not None
    assert (trace.local_right.tolist(), trace.remote_right.tolist()) == ([1, 0, 1], [1, 0.5, 1])
    log.write_text("confidence,agreed\n0.9,maybe\n")
    with pytest.raises(InvalidTrace, match="line 2, column agreed: 'maybe' is not a number from 0 to 1"):
        read_trace(log)
    log.write_text("confidence,agreed\nyes,1\n")
    with pytest.raises(InvalidTrace, match="column confidence: 'yes' is not a number from 0 to 1"):
        read_trace(log)


def test_labels_is_another_name_for_label(log: Path) -> None:
    log.write_text("confidence,local,remote,labels\n0.9,1,1,2\n")
    assert read_trace(log).columns["label"].tolist() == [2]
    log.write_text("confidence,local,remote,label,labels\n0.9,1,1,2,3\n")
    assert read_trace(log).columns["label"].tolist() == [2]
