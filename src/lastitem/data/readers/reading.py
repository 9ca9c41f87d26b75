"""Raw logs as they are found in the world, read as a stream of users, items and times.

Delimited text, JSON lines, lines of Python literals and Parquet, each plain, gzipped or
as a member of a zip archive. Nothing in a file is ever evaluated. Ids stay the text
that stands in the file.
"""

import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lastitem.data.readers.delimited import read_delimited
from lastitem.data.readers.parquet import read_parquet
from lastitem.data.readers.records import read_json_lines, read_python_literals
from lastitem.data.readers.rows import BadRows, RawLog, Rows
from lastitem.data.readers.unpacking import format_of, unpacked
from lastitem.errors import InputError

#: Format → its reader, a generator of :class:`lastitem.data.readers.rows.Rows`.
READERS = {
    "delimited": read_delimited,
    "json-lines": read_json_lines,
    "python-literals": read_python_literals,
    "parquet": read_parquet,
}


def read_rows(path: str | Path, form: Mapping[str, Any], bad: BadRows) -> Iterator[Rows]:
    """Read a raw log piece by piece, in file order.

    Parameters
    ----------
    path : the file as it was downloaded or as the user has it.
    form : how to read it: ``columns`` (role → column name, key of a record, or 0-based
        position if ``header`` is false), and optionally ``format`` (one of
        :data:`READERS`; else told by the content), ``member`` (the file inside a zip
        archive), ``encoding`` (default UTF-8) and, for delimited text, ``separator``
        (default: whichever of :data:`lastitem.data.readers.delimited.SEPARATORS` makes
        the header hold the columns), ``header`` (default true), ``quotes`` (default:
        true for a separator of one character). Blank lines are left out.
    bad : is told of rows that cannot be taken apart.

    Raises
    ------
    InputError if the file, its member or a column is missing (the message lists what
    there is), if the encoding is unknown, or if the file is damaged or of a format that
    is not read.
    """
    path = Path(path)
    kind = form.get("format")
    try:
        with unpacked(path, form.get("member")) as (file, stream):
            log = RawLog(path, stream, form, bad)
            try:
                b" ".decode(log.encoding, "ignore")
            except LookupError as error:
                raise InputError(
                    f"{error}; name an encoding of text, such as utf-8 or latin-1"
                ) from None
            kind = kind or format_of(stream, log.encoding)
            for rows in READERS[kind](log):
                rows.done = rows.done or file.tell()
                yield rows
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    # gzip.BadGzipFile is an OSError, which the second clause would take.
    except (gzip.BadGzipFile, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise InputError(
            f"{path}: the archive is damaged ({error}); replace it at its source, or delete"
            " this copy to have it fetched again"
        ) from None
    except (pa.ArrowException, OSError, UnicodeError) as error:
        said = " ".join(str(error).split())
        if "straddl" in said:
            said = (
                "a row is longer than 8 MB; is a quote opened and never closed? `quotes: false`"
                " takes them as ordinary characters"
            )
        raise InputError(f"{path}: cannot be read{f' as {kind}' if kind else ''}: {said}") from None
