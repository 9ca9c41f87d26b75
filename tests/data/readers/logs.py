"""Logs of a few rows in every format, and what reading them says."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile

import pyarrow as pa
import pyarrow.parquet
import pytest

from lastitem.errors import InputError
from tests.literal import read_bytes

START = 1_000_000_000

HEADER = b"user,item,time\n"

ROW = b"x,a,1000000000\n"

POSITIONS = {"header": False, "columns": {"user": 0, "item": 1, "timestamp": 2}}

FORMATS = ("delimited", "json-lines", "python-literals", "parquet")


def refusal(tmp_path, content: bytes, **form) -> str:
    """The error of reading, without the path that it begins with."""
    with pytest.raises(InputError) as error:
        read_bytes(tmp_path, content, **form)
    assert str(error.value).startswith(f"{tmp_path / 'log'}: ")
    return str(error.value).removeprefix(f"{tmp_path / 'log'}: ")


def bad_lines(tmp_path, content: bytes, **form) -> list[tuple[int, str]]:
    """The lines that are quoted, with what is said of them, where no bad row is
    tolerated.
    """
    return [
        (int(line), said)
        for line, said in re.findall(
            r"\n  line (\d+): (.*)", refusal(tmp_path, content, maximum_bad_share=0, **form)
        )
    ]


def bad_rows(tmp_path, content: bytes, **form) -> dict[str, int]:
    """Counts of bad rows by cause, where they are tolerated."""
    return read_bytes(tmp_path, content, maximum_bad_share=0.99, **form).bad_rows


def parquet(columns: dict, **options) -> bytes:
    """Columns as the bytes of a Parquet file."""
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def written(kind: str, rows: list[tuple[str, str, int]]) -> bytes:
    """Rows of (user, item, seconds) in one of the four formats."""
    if kind == "parquet":
        return parquet(dict(zip(("user", "item", "time"), zip(*rows, strict=True), strict=True)))
    if kind == "delimited":
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerows([("user", "item", "time"), *rows])
        return sink.getvalue().encode()
    records = [dict(zip(("user", "item", "time"), row, strict=True)) for row in rows]
    return "".join(
        f"{json.dumps(record) if kind == 'json-lines' else record}\n" for record in records
    ).encode()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive; a name that ends with a slash is a folder."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()
