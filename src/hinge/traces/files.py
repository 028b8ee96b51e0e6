"""Traces and logs in files, by the end of the file's name.

    .csv .tsv   readable anywhere; keeps the columns bit by bit, but neither name nor provenance
    .jsonl      an object in every line, as `hinge device --json` prints; is read, not written
    .npz        compact; keeps everything
    .parquet    for data frames; keeps everything; needs `hinge-gate[parquet]`

A text file may be compressed: .csv.gz, .tsv.gz, .jsonl.gz. Columns are confidence,local,remote[,label][,cost] in any
order and case, or as `columns` says; `truth` is another name for `label`. Of tasks other than classification they are
confidence,agreed[,local_right,remote_right][,cost], and answers are read where all of them are labels; `agreement` is
another name for `agreed`. Rows are put in order of `time` (also `timestamp`), where there is one. Other columns are
ignored; what is read is named after its file.

CSV: a header, then one line per sample; fields are separated by commas, semicolons, tabs or bars, whichever cut the
header into most names, and stripped of surrounding blanks. Numbers are written so that they read back bit by bit;
where semicolons separate, a comma may be the decimal point. Labels are integers where every label in the file is one
(without leading zeros, as 01 and 1 may differ), else all of them are text; 3.0 is the 3 that another program has
written as a float. Reading converts whole columns, a block of lines at a time; only if something in a block is wrong it
is looked through line by line.

npz: one compressed array per column, and `metadata` for name and provenance, as JSON. Also reads what `numpy.savez`
makes of two models' saved outputs: local_logits, remote_logits and, if known, labels. Nothing is ever unpickled.

Parquet: one column each, name and provenance in the schema's metadata.

Where the remote's answer is missing in some rows (empty, or null) the file holds a `Log`: the remote was asked only
about the others. Where the truth is missing in some rows, accuracies are those of the others. A small file may stand
for a large table. What it would take once it is unpacked is checked before it is (`MAX_BYTES`).
"""

import csv
import gzip
import io
import json
import logging
import math
import os
import re
import stat
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, compress, islice
from os import PathLike
from pathlib import Path, PurePath
from reprlib import Repr
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from numpy.lib import format
from numpy.typing import NDArray

from hinge._checks import did_you_mean
from hinge._files import replacing
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.errors import InvalidTrace, UnknownName, printable
from hinge.traces import trace as traces
from hinge.traces.log import Log
from hinge.traces.trace import BESIDE, FRACTIONS, INTEGERS, NEEDED, OPTIONAL, Frame, Trace, answered, label_problem

_log = logging.getLogger(__name__)
MAX_BYTES = 2**31  # of a table, unpacked
MAX_COLUMNS = 2**14


def packed(trace: Trace) -> str:
    """Name and provenance, as JSON.

    >>> packed(Trace([0.5], [1], [2], name="log", about={"date": "2026-01-31"}))
    '{"name": "log", "about": {"date": "2026-01-31"}}'
    """
    return json.dumps({"name": trace.name, "about": dict(trace.about)})


class Reading(NamedTuple):
    """What a table is read with."""

    columns: Mapping[str, str] | None = None  # their names for our columns
    measure: ConfidenceMeasure = max_softmax  # of scores that stand in place of answers


AS_IT_IS = Reading()


def recorded_in(where: str, names: Sequence[str], table: Frame, metadata: str | None, reading: Reading) -> Trace | Log:
    """The trace or log that a table holds; it is called as the file if it has no metadata, as one made elsewhere."""
    _check_width(where, len(names))
    unnamed = {"name": PurePath(where.removesuffix(".gz")).stem, "about": None}
    more: dict[str, Any] = unnamed if metadata is None else _unpacked(where, metadata)
    try:
        found = traces.standard_columns(where, names, table, *reading)
        audit, bin = (found.pop(column, None) for column in ("audit", "bin"))
        if not _has_gaps(found["agreed" if "agreed" in found else "remote"]):
            return Trace(**found, **more)
        for name in ("label", "local_right", "remote_right"):
            found.pop(name, None)
        return Log(**found, audit=audit, bin=bin, name=more["name"])
    except (TypeError, ValueError) as error:
        named = str(error).startswith(where)
        raise InvalidTrace(str(error) if named else f"{where}: {error}") from error


def _has_gaps(values: Any) -> bool:
    """Whether answers are missing: a column of integers has none."""
    return getattr(values, "dtype", np.dtype(object)) != np.int64 and not answered(values)[0].all()


def _check_width(where: str, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise InvalidTrace(f"{where}: there may be {MAX_COLUMNS} columns, got {columns}")


def _check_size(where: str, size: int) -> None:
    if size > MAX_BYTES:
        raise InvalidTrace(f"{where}: a trace may take {MAX_BYTES} bytes of memory, this one takes {size}")


def _unpacked(where: str, metadata: str) -> dict[str, Any]:
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        raise InvalidTrace(f"{where}: the metadata is not JSON") from None
    if not isinstance(found, dict) or found.keys() != {"name", "about"}:
        raise InvalidTrace(f"{where}: the metadata must have 'name' and 'about', nothing else")
    return found


_BLOCK = 16_384  # lines converted at a time: enough for speed, few enough for memory
_KNOWN = (*NEEDED, *OPTIONAL, *BESIDE)
_TOLD = {"remote": "remote?", "label": "label?"}  # columns beside: where there is one; these hold no others until all
# are read
_IN_WORDS = {"true": "1", "yes": "1", "false": "0", "no": "0"}  # how far something agrees, or is right
_INTEGER_DIGITS = 20  # of the longest int64, its sign included
_FOREIGN = re.compile("[\0\udc80-\udcff]")  # in text that is no UTF-8: a byte that none has, or a zero of UTF-16
_FLOAT = re.compile(r"(0|-?[1-9][0-9]*)\.0+")  # an integer, as frames write it where another is missing
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def read_csv(where: str, stream: IO[bytes], reading: Reading = AS_IT_IS) -> Trace | Log:
    """The trace or log in a CSV file; `where` stands at the front of errors."""
    with _text(stream, errors="surrogateescape") as text:  # a field that is no UTF-8 is found out by its check
        first = text.readline()
        text.seek(0)
        delimiter = max(",;\t|", key=first.count)  # that cuts the first line into most fields
        lines = _lines(where, csv.reader(text, delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True))
        names = _header(where, next(lines, (1, []))[1], reading)
        columns = _columns(where, names, lines, decimal_comma=delimiter == ";")
    return recorded_in(where, list(columns), columns, None, AS_IT_IS)


def write_csv(trace: Trace, stream: IO[bytes]) -> None:
    """The trace as CSV; a label that a CSV cannot hold unchanged is an error."""
    columns = {name: values.tolist() for name, values in trace.columns.items()}
    for name, values in columns.items():
        changed = {text for text in set(values) if isinstance(text, str) and text != _plain(text)}
        if changed:
            row, text = next((row, text) for row, text in enumerate(values) if text in changed)
            blanks = text != text.strip()
            lost = "has blanks around it, which CSV loses" if blanks else "reads back from CSV as an integer"
            raise InvalidTrace(f"write_trace: {name} in row {row} {lost}, got {text!r}; write .npz or .parquet")
    with _text(stream, encoding="utf-8") as text:
        text.write(",".join(columns) + "\n")
        # Text in quotes, as a bare carriage return would end the line; floats as repr, the shortest exact form.
        writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerows(zip(*columns.values(), strict=True))


def _plain(text: str) -> str:
    """A label without blanks around it, and a whole number without its zeros."""
    text = text.strip()
    number = _FLOAT.fullmatch(text)
    return number[1] if number else text


@contextmanager
def _text(stream: IO[bytes], encoding: str = "utf-8-sig", errors: str = "strict") -> Iterator[io.TextIOWrapper]:
    text = io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="")  # -sig: Excel puts a mark in front
    try:
        yield text
    finally:
        text.detach()  # else it would close the stream, which is not ours


def _lines(where: str, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Every row, with the line that it begins on: a quoted field may go over several. Blank lines are for the end."""
    line, blank = 1, 0
    try:
        for row in reader:
            if len(row) <= 1 and line > 1 and not "".join(row).strip():
                blank = blank or line
            elif blank:
                raise InvalidTrace(f"{where}, line {blank}: is blank, and not at the end")
            else:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise InvalidTrace(f"{where}, line {line}: {error}") from None


def _header(where: str, row: list[str], reading: Reading) -> list[str]:
    names = [name.strip() for name in row]
    if not any(names):
        raise InvalidTrace(f"{where}, line 1: there must be a header, {','.join(NEEDED)}[,{'][,'.join(OPTIONAL[:2])}]")
    _check_width(f"{where}, line 1", len(names))
    try:
        names = traces.renamed(f"{where}, line 1", names, reading.columns)
        traces.check_names(f"{where}, line 1", names, NEEDED, OPTIONAL)
    except InvalidTrace:
        if _FOREIGN.search("".join(row)):
            raise InvalidTrace(f"{where}, line 1: is not UTF-8, as a CSV must be: save it as UTF-8") from None
        raise
    return names


def _columns(
    where: str, names: Sequence[str], lines: Iterator[tuple[int, list[str]]], decimal_comma: bool
) -> dict[str, NDArray[Any]]:
    parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
    while block := list(islice(lines, _BLOCK)):
        try:
            found = _converted(names, [row for _, row in block], decimal_comma)
        except ValueError as failed:  # only then a line at a time
            for line, row in block:
                if len(row) != len(names):
                    fields = f"{len(row)} fields where the header has {len(names)}"
                    raise InvalidTrace(f"{where}, line {line}: {fields}") from None
                try:
                    _converted(names, [row], decimal_comma)
                except ValueError as error:
                    raise InvalidTrace(f"{where}, line {line}, {error}") from None
            raise InvalidTrace(f"{where}: {failed}") from failed
        for name, values in found.items():
            parts[name].append(values)
    if not parts:
        raise InvalidTrace(f"{where}: there are no samples")
    columns = {name: np.concatenate(arrays) for name, arrays in _of_one_kind(parts).items()}
    for name, beside in _TOLD.items():
        told = columns.pop(beside, None)
        if told is not None and not told.all():
            answers = np.full(len(told), None, object)
            answers[told] = columns[name]
            columns[name] = answers
    return columns


def _converted(names: Sequence[str], rows: Sequence[list[str]], decimal_comma: bool) -> dict[str, NDArray[Any]]:
    """The columns of some lines; raises `ValueError` where one of them is wrong, which says what if it is the first."""
    columns = {name: texts for name, texts in zip(names, zip(*rows, strict=True), strict=True) if name in _KNOWN}
    asked = _given(columns["agreed" if "agreed" in names else "remote"])
    found: dict[str, NDArray[Any]] = {}
    for name, texts in columns.items():
        try:
            if name in FRACTIONS:
                if name not in ("confidence", "cost"):
                    texts = tuple(_IN_WORDS.get(text.strip().lower(), text) for text in texts)
                needed = asked | (name == "confidence")
                found[name] = _fractions(texts, decimal_comma, needed & (name not in ("local_right", "remote_right")))
            elif name in _TOLD:
                told = found[_TOLD[name]] = _given(texts) if name == "label" or "agreed" in names else asked
                found[name] = _labels(texts if told.all() else list(compress(texts, told)))
            else:
                found[name] = np.array(texts, object) if name in BESIDE else _labels(texts)
        except ValueError as error:
            problem = "is not a number from 0 to 1" if name in FRACTIONS else error
            raise ValueError(f"column {name}: {_SHORT.repr(texts[0])} {problem}") from None
    return found


def _given(texts: Sequence[str]) -> NDArray[np.bool_]:
    return np.fromiter(map(str.strip, texts), np.bool_, len(texts))


def _of_one_kind(parts: dict[str, list[NDArray[Any]]]) -> dict[str, list[NDArray[Any]]]:
    """Where some labels are text, all are. An integer turns into the very text it was read from: see `_labels`."""
    answers = [name for name in parts if name in ("local", "remote", "label")]
    if len({part.dtype.kind for name in answers for part in parts[name] if part.size}) <= 1:
        return parts
    return {**parts, **{name: [part.astype(np.str_) for part in parts[name]] for name in answers}}


def _fractions(texts: Sequence[str], decimal_comma: bool, needed: NDArray[np.bool_]) -> traces.Floats:
    if decimal_comma:
        texts = [text.replace(",", ".") for text in texts]
    if not needed.all():  # NaN says what is missing
        texts = [text if text.strip() else "nan" for text in texts]
    numbers = np.fromiter(map(float, texts), np.float64, len(texts))
    in_range = (numbers >= 0) & (numbers <= 1) | (np.isnan(numbers) & ~needed)
    if not in_range.all() or "_" in "".join(texts):  # float() takes 0.2_5
        raise ValueError("a number out of range")
    return numbers


def _labels(texts: Sequence[str]) -> traces.Labels:
    plain = {text: _plain(text) for text in set(texts)}
    if problem := next(filter(None, map(label_problem, plain.values())), None):
        raise ValueError(problem)
    if all(map(_plain_integer, plain.values())):
        integers = {text: int(label) for text, label in plain.items()}
        return np.fromiter(map(integers.__getitem__, texts), np.int64, len(texts))
    return np.array(list(map(plain.__getitem__, texts)), np.str_)


def _plain_integer(text: str) -> bool:
    if len(text) > _INTEGER_DIGITS or not text.lstrip("-").isdecimal():
        return False
    try:
        return str(int(text)) == text and INTEGERS.min <= int(text) <= INTEGERS.max
    except ValueError:  # --1
        return False


def read_jsonl(where: str, stream: IO[bytes], reading: Reading = AS_IT_IS) -> Trace | Log:
    """The trace or log in a file with a JSON object in every line; blank lines and a summary are passed over.

    So is a last line that was cut, as of a log that is being written: a warning says so.
    """
    rows: list[dict[str, Any]] = []
    names: dict[str, None] = {}
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
        if row.keys() != {"summary"}:  # the last line of `hinge device --json`
            rows.append(row)
            names.update(dict.fromkeys(row))
    if not rows:
        raise InvalidTrace(f"{where}: there are no samples")
    return recorded_in(where, list(names), _Rows(rows), None, reading)


class _Rows:
    """Objects, by column: made when one is asked for, as there may be a great many that nobody does."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = rows

    def __getitem__(self, name: str, /) -> list[Any]:
        return [row.get(name) for row in self._rows]


_METADATA = "metadata"
_SMALL = (np.uint8, np.int8, np.uint16, np.int16, np.int32)


def read_npz(where: str, stream: IO[bytes], reading: Reading = AS_IT_IS) -> Trace | Log:
    """The trace in an npz file; `where` stands at the front of errors."""
    arrays = _Arrays(where, stream)
    metadata = str(arrays[_METADATA]) if _METADATA in arrays.names else None
    names = [name for name in arrays.names if name != _METADATA]
    return recorded_in(where, names, arrays, metadata, reading)


def write_npz(trace: Trace, stream: IO[bytes]) -> None:
    """The trace as npz, labels in as few bytes as they need."""
    arrays: dict[str, Any] = {name: _small(values) for name, values in trace.columns.items()}
    arrays[_METADATA] = np.array(packed(trace))
    np.savez_compressed(stream, **arrays)


def _small(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind == "O":  # labels that are missing in rows: nothing is pickled
        text = traces.kind(values) == "text"
        return np.array([("" if text else np.nan) if label is None else label for label in values])
    if values.dtype.kind == "i":
        low, high = values.min(), values.max()
        for small in _SMALL:
            if np.iinfo(small).min <= low and high <= np.iinfo(small).max:
                return values.astype(small)
    return values


class _Arrays:
    """The arrays of an npz file, whose every defect is an `InvalidTrace`."""

    def __init__(self, where: str, stream: IO[bytes]) -> None:
        self._where = where
        content = io.BytesIO(stream.read())  # after this, an error is the file's, not the disk's
        try:
            if content.getvalue().startswith(format.MAGIC_PREFIX):
                raise ValueError("it is a single array")
            self._file = zipfile.ZipFile(content)
            members = self._file.infolist()
        except Exception as error:
            raise self._damaged("it", error) from error
        self._members = {member.filename.removesuffix(".npy"): member for member in members}
        self.names: Sequence[str] = list(self._members)
        _check_size(where, sum(member.file_size for member in members))

    def __getitem__(self, name: str, /) -> NDArray[Any]:
        try:
            member = self._members[name]
            with self._file.open(member) as stream:
                version = format.read_magic(stream)
                read = format.read_array_header_1_0 if version == (1, 0) else format.read_array_header_2_0
                shape, _, dtype = read(stream)
            if math.prod(shape) * dtype.itemsize > member.file_size and not dtype.hasobject:
                raise ValueError("it holds less than it says")
            with self._file.open(member) as stream:
                array: NDArray[Any] = format.read_array(stream, allow_pickle=False)
        except Exception as error:
            raise self._damaged(f"array {printable(name, 60)}", error) from error
        return array

    def _damaged(self, what: str, error: Exception) -> InvalidTrace:
        # Broken bytes surface anywhere in numpy, zipfile and zlib, with an error of any class.
        problem = printable(error) or type(error).__name__
        return InvalidTrace(f"{self._where}: {what} cannot be read as npz ({problem})")


_SCHEMA_KEY = b"hinge"


def read_parquet(where: str, stream: IO[bytes], reading: Reading = AS_IT_IS) -> Trace | Log:
    """The trace or log in a Parquet file; `where` stands at the front of errors."""
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    content = io.BytesIO(stream.read())  # after this, an error is the file's, not the disk's
    try:
        schema = parquet.ParquetFile(content).schema_arrow
        texts = [field.name for field in schema if field.type in (arrow.string(), arrow.large_string())]
        file = parquet.ParquetFile(content, read_dictionary=texts)  # text that repeats is kept once
        found = file.metadata
        groups = sum(found.row_group(number).total_byte_size for number in range(found.num_row_groups))
        _check_size(where, max(groups, found.num_rows * found.num_columns * np.dtype(np.float64).itemsize))
        table = file.read()
        metadata = (table.schema.metadata or {}).get(_SCHEMA_KEY)
        text = None if metadata is None else metadata.decode()
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _no_parquet(where, error) from error
    return recorded_in(where, table.column_names, _Columns(where, arrow, table), text, reading)


def _no_parquet(where: str, error: Exception) -> InvalidTrace:
    return InvalidTrace(f"{where}: cannot be read as Parquet ({printable(error)})")


def write_parquet(trace: Trace, stream: IO[bytes]) -> None:
    """The trace as Parquet."""
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    table = arrow.table(trace.columns).replace_schema_metadata({_SCHEMA_KEY: packed(trace).encode()})
    parquet.write_table(table, stream)


class _Columns:
    """The columns of a table of Arrow as arrays, whose every defect is an `InvalidTrace`."""

    def __init__(self, where: str, arrow: Any, table: Any) -> None:
        self._where, self._arrow, self._table = where, arrow, table

    def __getitem__(self, name: str, /) -> Any:
        try:
            column = self._table.column(name)
            if self._arrow.types.is_dictionary(column.type):  # categories, as frames keep repeated text
                texts = chain.from_iterable(part.dictionary.to_pylist() for part in column.chunks)
                longest = max((len(str(text)) for text in texts), default=0)
                _check_size(self._where, len(column) * longest * np.dtype("U1").itemsize)
                column = column.cast(column.type.value_type)
            return column.to_numpy(zero_copy_only=False)
        except (self._arrow.ArrowException, KeyError) as error:  # KeyError: two columns of one name
            raise _no_parquet(self._where, error) from error


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        missing = "traces in .parquet need pyarrow: pip install 'hinge-gate[parquet]'"
        raise ModuleNotFoundError(missing, name=module) from None


class _Format(NamedTuple):
    read: Callable[[str, IO[bytes], Reading], Trace | Log]
    write: Callable[[Trace, IO[bytes]], None] | None = None


_FORMATS = {
    ".csv": _Format(read_csv, write_csv),
    ".tsv": _Format(read_csv),
    ".jsonl": _Format(read_jsonl),
    ".npz": _Format(read_npz, write_npz),
    ".parquet": _Format(read_parquet, write_parquet),
}
_TEXTS = (".csv", ".tsv", ".jsonl")  # which may be compressed
Origin = str | PathLike[str] | Frame


def read_trace(
    source: Origin, columns: Mapping[str, str] | None = None, measure: ConfidenceMeasure = max_softmax
) -> Trace:
    """The trace in a file, or in a pandas or polars frame; one that is damaged raises `InvalidTrace`, which says where.

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


def read_log(source: Origin, columns: Mapping[str, str] | None = None, measure: ConfidenceMeasure = max_softmax) -> Log:
    """The log in a file or frame as for `read_trace`, in which the remote's answer may be missing (empty, or null).

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


def read_recorded(
    source: Origin, columns: Mapping[str, str] | None = None, measure: ConfidenceMeasure = max_softmax
) -> Trace | Log:
    """The trace in a file or frame; or the log, where the remote's answer is missing in some rows."""
    reading = Reading(columns, measure)
    if not isinstance(source, str | PathLike):
        names: Any = getattr(source, "columns", source)
        return recorded_in("frame", list(names), source, '{"name": "", "about": {}}', reading)
    form = _format("read_trace", source)
    where = printable(os.fspath(source), 4096)  # which may hold anything but zeros
    with open(source, "rb", opener=_open_at_once) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise InvalidTrace(f"{where}: not a file")
        return form.read(where, _decompressed(where, stream), reading)


def _decompressed(where: str, stream: IO[bytes]) -> IO[bytes]:
    if not where.lower().endswith(".gz"):
        return stream
    try:
        content = gzip.GzipFile(fileobj=stream).read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidTrace(f"{where}: cannot be read as gzip ({printable(error)})") from error
    _check_size(where, len(content))
    return io.BytesIO(content)


def _open_at_once(path: str, flags: int) -> int:
    """A pipe is opened without waiting for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def write_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Writes the trace to a file, whole or not at all: a write that fails leaves an old file as it was.

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
    """What writes a trace to a file of that name."""
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
