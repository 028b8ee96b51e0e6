"""Traces as CSV: a header with confidence,local,remote[,label][,cost] in any order, then one line per sample.

Numbers are written so that they read back bit by bit. Fields are stripped of surrounding blanks. Labels are integers
where every label in the file is one (without leading zeros, as 01 and 1 may differ), else all of them are text; 3.0 is
the 3 that another program has written as a float. Other columns are ignored. Name and provenance have no place in a
CSV; a trace that is read is named after its file.

Reading converts whole columns, a block of lines at a time. Only if something is wrong it goes through the file again,
line by line, to say where.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from reprlib import Repr
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hinge.errors import InvalidTrace
from hinge.traces.columns import INTEGERS, NEEDED, OPTIONAL, Floats, Labels, check_names, label_problem
from hinge.traces.trace import Trace

_BLOCK = 16_384  # lines converted at a time: enough for speed, few enough for memory
_KNOWN = (*NEEDED, *OPTIONAL)
_FRACTIONS = ("confidence", "cost")
_INTEGER_DIGITS = 20  # of the longest int64, its sign included
_FLOAT = re.compile(r"(0|-?[1-9][0-9]*)\.0+")  # an integer, as frames write it where another is missing
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60

Row = list[str]


def read_csv(where: str, stream: IO[bytes]) -> Trace:
    """The trace in a CSV file; `where` stands at the front of errors."""
    try:
        with _text(stream) as text:
            reader = _reader(text)
            names = _header(where, reader)
            columns = _columns(names, _blocks(reader, len(names)))
    except InvalidTrace:
        raise
    except (ValueError, csv.Error) as error:
        stream.seek(0)
        _explain(where, stream, error)
    return Trace(**columns, name=Path(where).stem)


def write_csv(trace: Trace, stream: IO[bytes]) -> None:
    """The trace as CSV; a label that a CSV cannot hold unchanged is an error."""
    columns = {name: values.tolist() for name, values in trace.columns.items()}
    for name, values in columns.items():
        if trace.columns[name].dtype.kind == "U":
            _check_kept(name, values)
    with _text(stream, encoding="utf-8") as text:
        text.write(",".join(columns) + "\n")
        # Text in quotes, as a bare carriage return would end the line; floats as repr, the shortest exact form.
        writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerows(zip(*columns.values(), strict=True))


def _check_kept(name: str, values: Sequence[str]) -> None:
    if any(text != _plain(text) for text in set(values)):
        row, text = next((row, text) for row, text in enumerate(values) if text != _plain(text))
        lost = "has blanks around it, which CSV loses" if text != text.strip() else "reads back from CSV as an integer"
        raise InvalidTrace(f"write_trace: {name} in row {row} {lost}, got {text!r}; write .npz or .parquet")


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


def _reader(text: io.TextIOWrapper) -> Any:
    return csv.reader(text, skipinitialspace=True, strict=True)


def _header(where: str, reader: Iterator[Row]) -> list[str]:
    names = [name.strip() for name in next(reader, [])]
    if not any(names):
        raise InvalidTrace(f"{where}, line 1: there must be a header, {','.join(NEEDED)}[,{'][,'.join(OPTIONAL)}]")
    check_names(f"{where}, line 1", names, NEEDED, OPTIONAL)
    return names


def _blocks(reader: Iterator[Row], width: int) -> Iterator[list[Row]]:
    while rows := list(islice(reader, _BLOCK)):
        if set(map(len, rows)) != {width}:
            end = next(k for k, row in enumerate(rows) if len(row) != width)
            if not all(map(_blank, chain(rows[end:], reader))):
                raise ValueError("a line with too few or too many fields")
            rows = rows[:end]
        if rows:
            yield rows


def _blank(row: Row) -> bool:
    return len(row) <= 1 and not "".join(row).strip()


def _columns(names: Sequence[str], blocks: Iterator[list[Row]]) -> dict[str, Any]:
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names if name in _KNOWN}
    for rows in blocks:
        for name, texts in zip(names, zip(*rows, strict=True), strict=True):
            if name not in _KNOWN:
                continue
            parts[name].append(_fractions(texts) if name in _FRACTIONS else _labels(texts))
    if not all(parts.values()):
        raise ValueError("there are no samples")
    return {name: np.concatenate(arrays) for name, arrays in _of_one_kind(parts).items()}


def _of_one_kind(parts: dict[str, list[NDArray[Any]]]) -> dict[str, list[NDArray[Any]]]:
    """Where some labels are text, all are. An integer turns into the very text it was read from: see `_labels`."""
    answers = [name for name in parts if name not in _FRACTIONS]
    if len({part.dtype.kind for name in answers for part in parts[name]}) == 1:
        return parts
    return {**parts, **{name: [part.astype(np.str_) for part in parts[name]] for name in answers}}


def _fractions(texts: Sequence[str]) -> Floats:
    numbers = np.fromiter(map(float, texts), np.float64, len(texts))
    if not ((numbers >= 0) & (numbers <= 1)).all() or "_" in "".join(texts):  # float() takes 0.2_5
        raise ValueError("a number out of range")
    return numbers


def _labels(texts: Sequence[str]) -> Labels:
    plain = {text: _plain(text) for text in set(texts)}
    if any(map(label_problem, plain.values())):
        raise ValueError("an odd label")
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


def _explain(where: str, stream: IO[bytes], error: Exception) -> NoReturn:
    """Says where the file is wrong, of which only is known that it is."""
    with _text(stream, errors="surrogateescape") as text:
        lines = _numbered(where, _reader(text))
        names = _header(where, (row for _, row in lines))
        end = None
        for line, row in lines:
            if _blank(row):
                end = end or line
                continue
            if end:
                raise InvalidTrace(f"{where}, line {end}: is blank, and not at the end")
            _check_row(f"{where}, line {line}", names, row)
    raise InvalidTrace(f"{where}: {error}") from error


def _numbered(where: str, reader: Any) -> Iterator[tuple[int, Row]]:
    """Every row with the line that it begins on: a quoted field may go over several."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InvalidTrace(f"{where}, line {line}: {error}") from None
        yield line, row


def _check_row(where: str, names: Sequence[str], row: Row) -> None:
    if len(row) != len(names):
        raise InvalidTrace(f"{where}: {len(row)} fields where the header has {len(names)}")
    for name, text in zip(names, row, strict=True):
        if name not in _KNOWN:
            continue
        problem = _fraction_problem(text) if name in _FRACTIONS else label_problem(text.strip())
        if problem:
            raise InvalidTrace(f"{where}, column {name}: {_SHORT.repr(text)} {problem}")


def _fraction_problem(text: str) -> str | None:
    try:
        if 0 <= float(text) <= 1 and "_" not in text:
            return None
    except ValueError:
        pass
    return "is not a number from 0 to 1"
