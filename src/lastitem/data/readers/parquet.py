"""Logs in Parquet files."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from lastitem.data.readers.rows import BadRows, Rows
from lastitem.errors import InputError

_ROWS = 1 << 20


def read_parquet(
    path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows
) -> Iterator[Rows]:
    """See :func:`lastitem.data.readers.reading.read_rows`."""
    columns = form["columns"]
    with tempfile.TemporaryFile() as unpacked:
        if not isinstance(stream.raw, io.FileIO):
            # Parquet is read from its end; out of an archive it has to be unpacked
            # first.
            shutil.copyfileobj(stream, unpacked)
        file = pyarrow.parquet.ParquetFile(unpacked if unpacked.tell() else stream)
        names = file.schema_arrow.names
        for role, column in columns.items():
            if column not in names:
                raise InputError(
                    f"{path}: no column {column!r} for {role}; found: {', '.join(names)}"
                )
            if names.count(column) > 1:
                raise InputError(
                    f"{path}: the column {column!r} for {role} occurs more than once; rename all"
                    " but one"
                )
        first, total, size = 1, max(1, file.metadata.num_rows), path.stat().st_size
        for found in file.iter_batches(batch_size=_ROWS, columns=sorted(set(columns.values()))):
            # What stands in the file as text need not be UTF-8, and Arrow would take it
            # unseen.
            found.validate(full=True)
            behind = first + found.num_rows
            yield Rows(
                {role: _plain(found.column(column)) for role, column in columns.items()},
                range(first, behind),
                size * (behind - 1) // total,
            )
            first = behind


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column
