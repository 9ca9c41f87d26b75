"""Writing files so that a name never stands for half of its content, and reading what
we wrote.
"""

import errno
import glob
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet

from lastitem.errors import InputError

#: What the system says when a file cannot be written → what to do.
REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        "make room and run again: what is complete is kept, and a training goes on from its last"
        " epoch",
    ),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "run in a folder that you may write to, or name one: snakemake --directory FOLDER",
    ),
}


@contextmanager
def write_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` once the block has
    ended well.

    The temporary name carries the process id, so that two processes never write the
    same one, and keeps the suffix of ``path``, by which some writers choose their
    format. Leftovers of processes that were killed are removed on the way.

    Raises
    ------
    InputError if the disk is full or the folder cannot be written to; it names
    ``path``.
    """
    path = Path(path)
    prefix = f".{path.name}."
    aside = path.with_name(f"{prefix}{os.getpid()}.partial{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(
            f"{glob.escape(prefix)}*.partial{glob.escape(path.suffix)}"
        ):
            process = leftover.name[len(prefix) :].split(".")[0]
            if process.isdigit() and not psutil.pid_exists(int(process)):
                leftover.unlink(missing_ok=True)
        try:
            yield aside
            # Else a machine that goes down may keep the new name and not the content.
            with aside.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        # A file with another name is one that the block reads.
        if error.filename not in (None, os.fspath(aside), *map(os.fspath, path.parents)):
            raise
        raise cannot_write(path, error) from None


def cannot_write(path: str | os.PathLike[str], error: OSError) -> Exception:
    """An :class:`InputError` with what to do; the error itself where it is none of
    :data:`REMEDIES`, and a fault of this program.
    """
    remedy = REMEDIES.get(error.errno or 0)
    return (
        InputError(f"{os.fspath(path)}: cannot be written: {error.strerror}; {remedy}")
        if remedy
        else error
    )


def write_parquet(path: str | os.PathLike[str], table: pa.Table) -> None:
    """Write a Parquet file aside and rename it.

    The file is opened here and not by pyarrow, which cannot take a path with other than
    ASCII letters in every locale.
    """
    with write_aside(path) as aside, aside.open("wb") as stream:
        pyarrow.parquet.write_table(table, stream, write_page_checksum=True)


def read_column(path: str | os.PathLike[str], column: str) -> pa.Array:
    """One column of a Parquet file (:func:`read_parquet`) in one piece."""
    return read_parquet(path)[column].combine_chunks()


def read_parquet(path: str | os.PathLike[str]) -> pa.Table:
    """Read a Parquet file; :class:`InputError` names it if it is missing or damaged.

    Read in the calling thread alone: a thread of pyarrow that lets go of the stream
    while Python already ends aborts the process
    (https://github.com/apache/arrow/issues/34314).
    """
    try:
        with open(path, "rb") as stream:
            return pyarrow.parquet.ParquetFile(
                stream, pre_buffer=False, page_checksum_verification=True
            ).read(use_threads=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            # The system's own errors; damage that pyarrow finds is an OSError, too, but
            # has no number.
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        raise InputError(
            f"{path}: not a readable Parquet file ({error}); delete it to have it made anew"
        ) from None


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write ``content`` as indented UTF-8 JSON with a final newline, aside and renamed;
    NaN is refused.
    """
    with write_aside(path) as aside:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        aside.write_text(text + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; :class:`InputError` names the file and line if it is not JSON,
    or says that there is none.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not JSON in UTF-8 ({error}); delete the file to have it made anew"
        ) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}: not JSON ({error.msg}); delete the file to have it made anew"
        ) from None
