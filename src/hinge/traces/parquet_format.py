"""Traces as Parquet: one column each, name and provenance in the schema's metadata. Needs pyarrow."""

import io
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from hinge.errors import InvalidTrace
from hinge.traces.metadata import packed, trace_in_file
from hinge.traces.trace import Trace

_METADATA = b"hinge"


def read_parquet(where: str, stream: IO[bytes]) -> Trace:
    """The trace in a Parquet file; `where` stands at the front of errors."""
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    content = io.BytesIO(stream.read())  # so that whatever fails from here on is the file's fault, not the disk's
    try:
        table = parquet.ParquetFile(content).read()
        metadata = (table.schema.metadata or {}).get(_METADATA)
        text = None if metadata is None else metadata.decode()
        columns = _Columns(arrow, table)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidTrace(f"{where}: cannot be read as Parquet ({error})") from error
    return trace_in_file(where, table.column_names, columns, text, Path(where).stem)


def write_parquet(trace: Trace, stream: IO[bytes]) -> None:
    """The trace as Parquet."""
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    table = arrow.table(trace.columns).replace_schema_metadata({_METADATA: packed(trace).encode()})
    parquet.write_table(table, stream)


class _Columns:
    """The columns of a table of Arrow as arrays."""

    def __init__(self, arrow: Any, table: Any) -> None:
        self._arrow, self._table = arrow, table

    def __getitem__(self, name: str, /) -> Any:
        column = self._table.column(name)
        if self._arrow.types.is_dictionary(column.type):  # categories, as frames keep repeated text
            column = column.cast(column.type.value_type)
        return column.to_numpy(zero_copy_only=False)


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        missing = "traces in .parquet need pyarrow: pip install 'hinge[parquet]'"
        raise ModuleNotFoundError(missing, name=module) from None
