"""Traces and logs in files, by the end of the file's name, and in frames.

    .csv .tsv   readable anywhere; keeps the columns bit by bit, but neither name nor provenance
    .jsonl      an object in every line, as `hinge device --json` prints; is read, not written
    .npz        compact; keeps everything
    .parquet    for data frames; keeps everything

A text file may be compressed: .csv.gz, .tsv.gz, .jsonl.gz. Columns are confidence,local,remote[,label][,cost] in any
order and case, or as `columns` says; `truth` is another name for `label`. Of tasks other than classification they are
confidence,agreed[,local_right,remote_right][,cost], and answers are read where all of them are labels; `agreement` is
another name for `agreed`. Rows are put in order of `time` (also `timestamp`), where there is one. Other columns are
ignored; what is read is named after its file.

CSV and Parquet are read by pyarrow, which also takes frames of pandas, polars and others without a copy. In a CSV, a
header is followed by a line per sample; fields are separated by commas, semicolons, tabs or bars, whichever cut the
header into most names, and stripped of surrounding blanks; blank lines are passed over. Where semicolons separate, a
comma may be the decimal point. Labels are integers where every label in the file is one (without leading zeros, as 01
and 1 may differ), else all of them are text; 3.0 is the 3 that another program has written as a float.

npz: one compressed array per column, and `metadata` for name and provenance, as JSON. Also reads what `numpy.savez`
makes of two models' saved outputs: local_logits, remote_logits and, if known, labels. Nothing is ever unpickled.

Where the remote's answer is missing in some rows (empty, or null) the file holds a `Log`: the remote was asked only
about the others. Where the truth is missing in some rows, accuracies are those of the others.
"""

import csv
import gzip
import io
import json
import logging
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from os import PathLike
from pathlib import Path, PurePath
from typing import IO, Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from hinge._checks import did_you_mean
from hinge._files import replacing
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.errors import InvalidTrace, UnknownName, printable
from hinge.traces.columns import (
    ANSWERS,
    BESIDE,
    MAX_LABEL,
    NEEDED,
    OPTIONAL,
    InvalidValueIn,
    are_known,
    check_there,
    named,
    of_table,
)
from hinge.traces.log import Log
from hinge.traces.trace import Trace

_log = logging.getLogger(__name__)
Columns = Mapping[str, str] | None  # what columns are called in a file, by our names


class ArrowStream(Protocol):
    """A frame of pandas or polars, a table of Arrow, and whatever else has Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Table = Mapping[str, Any] | ArrowStream
Origin = str | PathLike[str] | Table


class _Content(NamedTuple):
    """What is in a file: all names of its columns, and the values of ours."""

    names: Sequence[str]
    columns: dict[str, Any]
    metadata: str | None = None  # name and provenance, as JSON


def _pyarrow(module: str = "pyarrow") -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        missing = "CSV and Parquet files and frames need pyarrow: pip install 'hinge-gate[sim]'"
        raise ModuleNotFoundError(missing, name=module) from None


# -- CSV --------------------------------------------------------------------------------------------------------------

_FLOAT = r"^(0|-?[1-9][0-9]*)\.0+$"  # an integer, as frames write it where another is missing
_CHANGED = rf"^\s|\s\Z|{_FLOAT}"  # what does not read back


def _read_csv(where: str, stream: IO[bytes], columns: Columns) -> _Content:
    arrow, reader = _pyarrow(), _pyarrow("pyarrow.csv")
    _check_utf8(where, stream)
    names, delimiter = _header(where, stream)
    found = named(f"{where}, line 1", names, columns)
    check_there(f"{where}, line 1", "confidence", found, names)
    stream.seek(0)
    odd: list[Any] = []  # rows with more or fewer fields than the header

    def skip(row: Any) -> str:
        odd.append(row)
        return "skip"

    places = {ours: str(names.index(theirs)) for ours, theirs in found.items()}
    batches = reader.open_csv(
        stream,
        reader.ReadOptions(
            use_threads=False, column_names=[*map(str, range(len(names)))], skip_rows=1, block_size=2**20
        ),
        reader.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
        reader.ConvertOptions(
            column_types=dict.fromkeys(places.values(), arrow.string()), include_columns=[*places.values()]
        ),
    )
    parts: dict[str, list[Any]] = {ours: [] for ours in places}
    rows = 0
    try:
        for batch in batches:
            for ours, place in places.items():
                parts[ours].append(_converted(ours, batch[place], decimal_comma=delimiter == ";"))
            rows += len(batch)
    except InvalidValueIn as bad:
        raise InvalidValueIn.at(bad.column, rows + bad.row, bad.problem) from None
    blank = [row.number for row in odd if not row.text.strip()]
    for row in odd:
        if row.number not in blank:
            line = _csv_line(stream, row.number - 2 - sum(number < row.number for number in blank))
            raise InvalidTrace(f"{where}, {line}: {row.actual_columns} fields where the header has {len(names)}")
    if not rows:
        raise InvalidTrace(f"{where}: there are no samples")
    values = {ours: np.concatenate(each) for ours, each in parts.items() if ours not in ANSWERS}
    return _Content(names, values | _labels({ours: each for ours, each in parts.items() if ours in ANSWERS}))


def _converted(column: str, fields: Any, decimal_comma: bool) -> Any:
    """Numbers of a column of numbers; of others the text, and of labels that in its distinct values."""
    texts = _texts(column, fields)
    if column in ANSWERS:
        return texts.dictionary_encode()
    return texts.to_numpy(zero_copy_only=False) if column in BESIDE else _numbers(column, texts, decimal_comma)


def _check_utf8(where: str, stream: IO[bytes]) -> None:
    for number, line in enumerate(stream, 1):
        try:
            is_text = line.isascii() or bool(line.decode())
        except UnicodeDecodeError:
            is_text = False
        if not is_text or (number == 1 and b"\0" in line):  # as every second byte of UTF-16 is
            raise InvalidTrace(f"{where}, line {number}: is not UTF-8, as a CSV must be: save it as UTF-8")


def _header(where: str, stream: IO[bytes]) -> tuple[list[str], str]:
    """The names in the first line, and what separates them."""
    row, delimiter = next(((row, mark) for _, row, mark in _csv_rows(stream)), ([], ","))
    names = [name.strip() for name in row]
    if not any(names):
        raise InvalidTrace(f"{where}, line 1: there must be a header, {','.join(NEEDED)}[,{'][,'.join(OPTIONAL[:2])}]")
    return names, delimiter


def _csv_rows(stream: IO[bytes]) -> Iterator[tuple[int, list[str], str]]:
    """Every row that is not blank, with the line that it begins on and what separates its fields."""
    stream.seek(0)
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")  # -sig: Excel puts a mark in front
    try:
        first = text.readline()
        delimiter = max(",;\t|", key=first.count)  # that cuts the first line into most fields
        text.seek(0)
        reader = csv.reader(text, delimiter=delimiter, skipinitialspace=delimiter != "\t")
        line = 1
        for row in reader:
            if line == 1 or "".join(row).strip():
                yield line, row, delimiter
            line = reader.line_num + 1
    finally:
        text.detach()  # else it would close the stream


def _csv_line(stream: IO[bytes], row: int) -> str:
    try:
        return f"line {next(islice(_csv_rows(stream), row + 1, None))[0]}"
    except csv.Error:  # a field that is larger than its limit
        return f"row {row}"


def _texts(column: str, values: Any) -> Any:
    """Fields without blanks around them."""
    compute = _pyarrow("pyarrow.compute")
    quoted = compute.match_substring_regex(values, r'^\s+"').to_numpy(zero_copy_only=False)
    if quoted.any():  # which would be part of the label
        raise InvalidValueIn.at(column, int(quoted.argmax()), "has blanks before its quotes")
    return compute.utf8_trim_whitespace(values)


def _numbers(column: str, texts: Any, decimal_comma: bool) -> NDArray[np.float64]:
    """Numbers, where some may be missing; of how far something agrees, or is right, also in words."""
    arrow, compute = _pyarrow(), _pyarrow("pyarrow.compute")
    plain = compute.replace_substring(texts, ",", ".") if decimal_comma else texts
    if column not in ("confidence", "cost"):
        lower = compute.utf8_lower(plain)
        yes, no = (compute.is_in(lower, arrow.array(words)) for words in (["true", "yes"], ["false", "no"]))
        plain = compute.if_else(yes, "1", compute.if_else(no, "0", plain))
    plain = compute.if_else(compute.equal(plain, ""), None, plain)
    try:
        numbers: NDArray[np.float64] = plain.cast(arrow.float64()).to_numpy(zero_copy_only=False)
    except arrow.ArrowInvalid:
        row = next(row for row, text in enumerate(plain) if not _casts(text, arrow.float64()))
        raise InvalidValueIn.at(column, row, f"must be a number from 0 to 1, got {texts[row].as_py()!r:.60}") from None
    return numbers


def _casts(value: Any, to: Any) -> bool:
    try:
        value.cast(to)
    except ValueError:  # which Arrow's errors are
        return False
    return True


def _labels(parts: Mapping[str, Sequence[Any]]) -> dict[str, NDArray[Any]]:
    """Labels, integers where all of them are."""
    arrow, compute = _pyarrow(), _pyarrow("pyarrow.compute")
    coded = {column: _joined(arrow.chunked_array(each)) for column, each in parts.items()}
    told = {column: compute.replace_substring_regex(each.dictionary, _FLOAT, r"\1") for column, each in coded.items()}
    told = {column: compute.if_else(compute.equal(each, ""), None, each) for column, each in told.items()}
    try:
        whole = {column: each.cast(arrow.int64()) for column, each in told.items()}
        if all(each.cast(arrow.string()).equals(told[column]) for column, each in whole.items()):  # 01 and 1 may differ
            told = whole
    except arrow.ArrowInvalid:
        pass
    return {column: _decoded(told[column], each.indices) for column, each in coded.items()}


def _write_csv(trace: Trace, stream: IO[bytes]) -> None:
    """Write the trace as CSV; a label that a CSV cannot hold unchanged is an error."""
    columns = {name: values.tolist() for name, values in trace.columns.items()}
    for name, values in columns.items():
        changed = {text for text in set(values) if isinstance(text, str) and re.search(_CHANGED, text)}
        if changed:
            row, text = next((row, text) for row, text in enumerate(values) if text in changed)
            raise InvalidTrace(
                f"write_trace: {name} in row {row} would change in CSV, got {text!r}; write .npz or .parquet"
            )
    text_stream = io.TextIOWrapper(stream, "utf-8", newline="")
    text_stream.write(",".join(columns) + "\n")
    # Text in quotes, as a bare carriage return would end the line; floats as repr, the shortest exact form.
    writer = csv.writer(text_stream, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerows(zip(*columns.values(), strict=True))
    text_stream.detach()


# -- lines of JSON ----------------------------------------------------------------------------------------------------


def _read_jsonl(where: str, stream: IO[bytes], columns: Columns) -> _Content:
    """An object in every line; blank lines and a summary are passed over.

    So is a last line that was cut, as of a log that is being written: a warning says so.
    """
    table: dict[str, list[Any]] = {}
    rows = 0
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict)
        except (ValueError, RecursionError) as error:
            if rows and not line.endswith(b"\n"):
                _log.warning("%s, line %d: is cut, and left out; is the file being written?", where, number)
                break
            raise InvalidTrace(f"{where}, line {number}: is not a JSON object ({printable(error)})") from None
        if row.keys() == {"summary"}:  # the last line of `hinge device --json`
            continue
        for name, value in row.items():
            values = table.setdefault(name, [])
            values.extend([None] * (rows - len(values)))
            values.append(value)
        rows += 1
    if not rows:
        raise InvalidTrace(f"{where}: there are no samples")
    found = named(where, list(table), columns)
    return _Content(
        list(table), {ours: table[name] + [None] * (rows - len(table[name])) for ours, name in found.items()}
    )


def _jsonl_line(stream: IO[bytes], row: int) -> str:
    stream.seek(0)
    lines = (number for number, line in enumerate(stream, 1) if line.strip())
    return f"line {next(islice(lines, row, None))}"


# -- npz --------------------------------------------------------------------------------------------------------------

_METADATA = "metadata"


def _read_npz(where: str, stream: IO[bytes], columns: Columns) -> _Content:
    content = io.BytesIO(stream.read())  # after this, an error is the file's, not the disk's
    try:
        arrays = np.load(content)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        metadata = str(arrays[_METADATA]) if _METADATA in arrays.files else None
        names = [name for name in arrays.files if name != _METADATA]
        return _Content(
            names, {ours: arrays[theirs] for ours, theirs in named(where, names, columns).items()}, metadata
        )
    except InvalidTrace:
        raise
    except Exception as error:  # broken bytes surface anywhere in numpy, zipfile and zlib, with an error of any class
        problem = printable(error) or type(error).__name__
        raise InvalidTrace(f"{where}: cannot be read as npz ({problem})") from error


def _write_npz(trace: Trace, stream: IO[bytes]) -> None:
    """Write the trace as npz, labels in as few bytes as they need."""
    arrays: dict[str, Any] = {name: _without_objects(values) for name, values in trace.columns.items()}
    arrays[_METADATA] = np.array(_packed(trace))
    np.savez_compressed(stream, **arrays)


def _without_objects(values: NDArray[Any]) -> NDArray[Any]:
    """Labels with gaps as text or floats, as nothing is pickled."""
    if values.dtype.kind != "O":
        return values
    gap = "" if any(isinstance(label, str) for label in values) else np.nan
    return np.array([gap if label is None else label for label in values])


# -- Parquet, and frames ----------------------------------------------------------------------------------------------

_SCHEMA_KEY = b"hinge"


def _read_parquet(where: str, stream: IO[bytes], columns: Columns) -> _Content:
    arrow, parquet = _pyarrow(), _pyarrow("pyarrow.parquet")
    content = io.BytesIO(stream.read())  # after this, an error is the file's, not the disk's
    try:
        file = parquet.ParquetFile(content)
        names = file.schema_arrow.names
        found = named(where, names, columns)
        table = file.read(columns=[*found.values()])
        values = {ours: _as_numpy(table[theirs]) for ours, theirs in found.items()}
        metadata = (file.schema_arrow.metadata or {}).get(_SCHEMA_KEY)
        return _Content(names, values, None if metadata is None else metadata.decode())
    except (arrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise InvalidTrace(f"{where}: cannot be read as Parquet ({printable(error)})") from error


def _write_parquet(trace: Trace, stream: IO[bytes]) -> None:
    arrow, parquet = _pyarrow(), _pyarrow("pyarrow.parquet")
    table = arrow.table(dict(trace.columns)).replace_schema_metadata({_SCHEMA_KEY: _packed(trace).encode()})
    parquet.write_table(table, stream)


def _as_numpy(column: Any) -> NDArray[Any]:
    """A column of Arrow; text and categories are made of their distinct values."""
    arrow, types = _pyarrow(), _pyarrow().types
    if types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    if column.null_count and types.is_integer(column.type):  # which numpy would turn into floats
        column = column.dictionary_encode()
    if types.is_string(column.type) or types.is_large_string(column.type) or types.is_string_view(column.type):
        column = column.cast(arrow.large_string()).dictionary_encode()
    if not types.is_dictionary(column.type):
        return np.asarray(column.to_numpy())
    coded = _joined(column)
    return _decoded(coded.dictionary, coded.indices)


def _joined(column: Any) -> Any:
    """A column of categories, in one piece."""
    return column.unify_dictionaries().combine_chunks()


def _decoded(distinct: Any, indices: Any) -> NDArray[Any]:
    told = [*distinct.to_pylist(), *[None] * bool(indices.null_count)]
    odd = (
        each is None or (isinstance(each, str) and (not 0 < len(each) <= MAX_LABEL or "\0" in each)) for each in told
    )
    values = np.array(told, object if any(odd) else None)  # numpy drops a NUL at an end
    return np.asarray(values[indices.fill_null(len(told) - 1).to_numpy(zero_copy_only=False)])


def frame_columns(where: str, frame: Table, columns: Columns, measure: ConfidenceMeasure) -> dict[str, NDArray[Any]]:
    """Return the columns of a trace, or of a log, in a frame or a dict: under our names, checked, in order of time.

    >>> table = {"Time": [2, 1], "local": [[0.1, 0.9], [0.8, 0.2]], "remote": [1, 0]}
    >>> {name: values.round(3).tolist() for name, values in frame_columns("log", table, None, max_softmax).items()}
    {'local': [0, 1], 'remote': [0, 1], 'confidence': [0.8, 0.9]}
    """
    if isinstance(frame, Mapping):
        names = list(frame)
        found = {ours: frame[theirs] for ours, theirs in named(where, names, columns).items()}
        return of_table(where, names, found, measure)
    if not hasattr(frame, "__arrow_c_stream__"):
        raise TypeError(f"{where}: must be a pandas or polars frame, or a dict of columns, got {frame!r:.200}")
    arrow = _pyarrow()
    try:
        table = arrow.table(frame)
    except (arrow.ArrowException, ValueError, TypeError) as error:  # columns of one name, or of mixed types
        raise InvalidTrace(f"{where}: {printable(error)}") from error
    values = {ours: _as_numpy(table[name]) for ours, name in named(where, table.column_names, columns).items()}
    return of_table(where, table.column_names, values, measure)


# -- all of them ------------------------------------------------------------------------------------------------------


def _in_row(stream: IO[bytes], row: int) -> str:
    return f"row {row}"


class _Format(NamedTuple):
    read: Callable[[str, IO[bytes], Columns], _Content]
    place: Callable[[IO[bytes], int], str]  # where a row is
    write: Callable[[Trace, IO[bytes]], None] | None = None


_FORMATS = {
    ".csv": _Format(_read_csv, _csv_line, _write_csv),
    ".tsv": _Format(_read_csv, _csv_line),
    ".jsonl": _Format(_read_jsonl, _jsonl_line),
    ".npz": _Format(_read_npz, _in_row, _write_npz),
    ".parquet": _Format(_read_parquet, _in_row, _write_parquet),
}
_TEXTS = (".csv", ".tsv", ".jsonl")  # which may be compressed


def read_trace(source: Origin, columns: Columns = None, measure: ConfidenceMeasure = max_softmax) -> Trace:
    """Read the trace in a file, or in a frame; one that is damaged raises `InvalidTrace`, which says where.

    Files end in .csv, .tsv, .jsonl (each also in .gz), .npz or .parquet. `columns` says what columns are called in the
    file where that is something else: `{"confidence": "score"}`. Where `local` holds scores, `measure` makes the
    confidence of them. The columns, and what they may hold: `hinge.traces.files`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "log.csv")
    >>> _ = path.write_text("score;Local;Remote\\n0.93;cat;cat\\n0.41;dog;cat\\n")
    >>> read_trace(path, columns={"confidence": "score"})
    <Trace 'log': 2 samples, confidence, local, remote, agreement 0.500>
    """
    found = read_recorded(source, columns, measure)
    if isinstance(found, Trace):
        return found
    name = printable(os.fspath(source), 4096) if isinstance(source, str | PathLike) else "read_trace"
    some = f"the remote's answer is missing in {len(found) - len(found.offloads)} of {len(found)} rows"
    raise InvalidTrace(f"{name}: {some}; read_log reads such a log, and evaluate takes it")


def read_log(source: Origin, columns: Columns = None, measure: ConfidenceMeasure = max_softmax) -> Log:
    """Read the log in a file or frame as for `read_trace`, in which answers of the remote may be missing (empty, null).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "answers.jsonl")
    >>> _ = path.write_text('{"confidence": 0.93, "local": 3}\\n{"confidence": 0.41, "local": 5, "remote": 3}\\n')
    >>> read_log(path)
    <Log 'answers': 2 samples, 1 of them offloaded, 0 of which agreed>
    """
    found = read_recorded(source, columns, measure)
    if isinstance(found, Log):
        return found
    return Log(found.confidence, found.local, found.remote, found.cost, agreed=found.columns.get("agreed"))


def read_recorded(source: Origin, columns: Columns = None, measure: ConfidenceMeasure = max_softmax) -> Trace | Log:
    """Read the trace in a file or frame; or the log, where the remote's answer is missing in some rows."""
    if not isinstance(source, str | PathLike):
        try:
            return _recorded(frame_columns("frame", source, columns, measure), {"name": ""})
        except InvalidTrace as error:
            raise InvalidTrace(f"frame: {str(error).removeprefix('frame: ')}") from error
    _format("read_trace", source)  # refuses another before the file is opened
    mode = os.stat(source).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a pipe would wait for a writer
        raise InvalidTrace(f"{printable(os.fspath(source), 4096)}: not a file")
    packed = str(source).lower().endswith(".gz")
    with gzip.open(source) if packed else open(source, "rb") as stream:
        return read_stream(printable(os.fspath(source), 4096), stream, columns, measure)


def read_stream(
    where: str, stream: Any, columns: Columns = None, measure: ConfidenceMeasure = max_softmax
) -> Trace | Log:
    """Read the trace or log in an open file of that name, which stands at the front of errors."""
    form = _format("read_trace", where)
    unnamed: dict[str, Any] = {"name": PurePath(where.removesuffix(".gz")).stem}
    try:
        content = form.read(where, stream, columns)
        found = of_table(where, content.names, content.columns, measure)
        told = unnamed if content.metadata is None else _unpacked(where, content.metadata)
        if "label" in content.columns and "label" not in found:
            _log.warning("%s: column label is empty in all rows", where)
        return _recorded(found, told)
    except InvalidValueIn as bad:
        raise InvalidTrace(f"{where}, {form.place(stream, bad.row)}: {bad.column} {bad.problem}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidTrace(f"{where}: cannot be read as gzip ({printable(error)})") from error
    except (TypeError, ValueError, csv.Error) as error:
        raise InvalidTrace(str(error) if str(error).startswith(where) else f"{where}: {printable(error)}") from error


def _recorded(found: dict[str, NDArray[Any]], told: dict[str, Any]) -> Trace | Log:
    """The trace that columns are; or the log, where answers of the remote are missing."""
    columns: dict[str, Any] = dict(found)
    audit, bin = (columns.pop(column, None) for column in ("audit", "bin"))
    if are_known(columns["agreed" if "agreed" in columns else "remote"]).all():
        return Trace(**columns, **told)
    for name in ("label", "local_right", "remote_right"):
        columns.pop(name, None)
    return Log(**columns, audit=audit, bin=bin, name=told["name"])


def _packed(trace: Trace) -> str:
    """Name and provenance, as JSON."""
    return json.dumps({"name": trace.name, "about": dict(trace.about)})


def _unpacked(where: str, metadata: str) -> dict[str, Any]:
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        raise InvalidTrace(f"{where}: the metadata is not JSON") from None
    if not isinstance(found, dict) or found.keys() != {"name", "about"}:
        raise InvalidTrace(f"{where}: the metadata must have 'name' and 'about', nothing else")
    return found


def write_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Write the trace to a file, whole or not at all: a write that fails leaves an old file as it was.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "log.npz")
    >>> trace = Trace([0.93, 0.41], [3, 5], [3, 3], name="log", about={"date": "2026-01-31"})
    >>> write_trace(trace, path)
    >>> read_trace(path) == trace
    True
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"write_trace: trace must be a Trace, got {trace!r}")
    write = writer_of("write_trace", path)
    with replacing(path) as stream:
        write(trace, stream)


def writer_of(owner: str, path: str | PathLike[str]) -> Callable[[Trace, IO[bytes]], None]:
    """Return what writes a trace to a file of that name."""
    write = _format(owner, path).write
    if write is None or str(path).lower().endswith(".gz"):
        written = ", ".join(suffix for suffix, form in _FORMATS.items() if form.write)
        raise UnknownName(f"{owner}: {printable(path, 4096)}: is read, not written; written are {written}")
    return write


def _format(owner: str, path: str | PathLike[str]) -> _Format:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = suffixes[-1:] == [".gz"] and suffixes[-2:-1] != [] and suffixes[-2] in _TEXTS
    suffix = (suffixes[-2] if packed else suffixes[-1]) if suffixes else ""
    if suffix not in _FORMATS:
        where = f"{owner}: {printable(path, 4096)}"
        raise UnknownName(f"{where}: no format of traces ends in {suffix!r}{did_you_mean(suffix, _FORMATS)}")
    return _FORMATS[suffix]
