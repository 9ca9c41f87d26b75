"""Logs in Parquet files."""

import io
import shutil
import tempfile
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet

from lastitem.data.readers.rows import RawLog, Rows
from lastitem.errors import InputError

_ROWS = 1 << 20


def read_parquet(log: RawLog) -> Iterator[Rows]:
    """See :func:`lastitem.data.readers.reading.read_rows`."""
    with tempfile.TemporaryFile() as unpacked:
        if not isinstance(log.stream.raw, io.FileIO):
            # Parquet is read from its end; out of an archive it has to be unpacked
            # first.
            shutil.copyfileobj(log.stream, unpacked)
        file = pyarrow.parquet.ParquetFile(unpacked if unpacked.tell() else log.stream)
        names = file.schema_arrow.names
        for role, column in log.columns.items():
            if column not in names:
                raise InputError(f"no column {column!r} for {role}; found: {', '.join(names)}")
            if names.count(column) > 1:
                raise InputError(
                    f"the column {column!r} for {role} occurs more than once; rename all but one"
                )
        first, total, size = 1, max(1, file.metadata.num_rows), log.path.stat().st_size
        for found in file.iter_batches(batch_size=_ROWS, columns=sorted(set(log.columns.values()))):
            # What stands in the file as text need not be UTF-8, and Arrow would take it
            # unseen.
            found.validate(full=True)
            behind = first + found.num_rows
            yield Rows(
                {role: _plain(found.column(column)) for role, column in log.columns.items()},
                range(first, behind),
                size * (behind - 1) // total,
            )
            first = behind


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column
