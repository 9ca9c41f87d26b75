"""Raw logs as they are found in the world, read as a stream of batches of users, items
and times.

Delimited text, JSON lines, lines of Python literals and Parquet, each plain, gzipped or
as a member of a zip archive. Nothing in a file is ever evaluated. Ids stay the text
that stands in the file.
"""

from __future__ import annotations

import ast
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import shutil
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from lastitem.data.readers.quotes import QuotesFollowed, like_a_row
from lastitem.errors import InputError

FORMATS = ("delimited", "json-lines", "python-literals", "parquet")
SEPARATORS = (",", "\t", ";", "|")
_QUOTED_EXAMPLES = 5
_BLOCK = 8 << 20
_LINES = 1 << 17
_ROWS = 1 << 20
# A separator of several characters is replaced by the unit separator of ASCII before
# the text is parsed.
_UNIT_SEPARATOR = "\x1f"
# A byte that is no text in the file's encoding becomes a character for private use, so
# that only the value it stands in is lost.
_MARK_UNREADABLE = "lastitem.mark-unreadable"
_FIRST_UNREADABLE = 0x10FF00
_UNREADABLE = "[\U0010ff00-\U0010ffff]"
_UNREADABLE_START = chr(_FIRST_UNREADABLE).encode("utf-8")[:2]
_OTHER_COMPRESSIONS = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"(\xb5/\xfd": "zstd",
    b"7z\xbc\xaf": "7-Zip",
    b"Rar!": "RAR",
    b"\x04\x22M\x18": "lz4",
}


@dataclass
class BadRows:
    """Counts unusable rows by cause, and keeps the first ones of the file to quote
    them.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[int, str, str]] = field(default_factory=list)

    def add(
        self, cause: str, lines: Sequence[int], texts: Sequence[str], count: int | None = None
    ) -> None:
        """Count rows (as many as there are ``lines``, unless ``count`` says otherwise)
        and keep the first ones.
        """
        if len(lines):
            self.counts[cause] = self.counts.get(cause, 0) + (
                len(lines) if count is None else count
            )
            self.examples += [
                (int(line), cause, text[:200])
                for line, text in islice(zip(lines, texts, strict=False), _QUOTED_EXAMPLES)
            ]
            self.examples = sorted(self.examples)[:_QUOTED_EXAMPLES]

    @property
    def total(self) -> int:
        """Number of unusable rows."""
        return sum(self.counts.values())


@dataclass
class Batch:
    """Some rows of a raw log.

    Attributes
    ----------
    columns : ``user``, ``item``, ``timestamp`` and, if asked for, ``elapsed`` → array
        as the file holds it: text, or numbers; null or empty where a row has no value.
    lines : line (Parquet: row) of the file each row stands in, from 1; a range or an
        int64 array, n in all.
    done : bytes of the file read so far.
    """

    columns: dict[str, pa.Array]
    lines: range | NDArray[np.int64]
    done: int


def read_batches(path: str | Path, form: Mapping[str, Any], bad: BadRows) -> Iterator[Batch]:
    """Read a raw log batch by batch, in file order.

    Parameters
    ----------
    path : the file as it was downloaded or as the user has it.
    form : how to read it: ``columns`` (role → column name, key of a record, or 0-based
        position if ``header`` is false), and optionally ``format`` (one of
        :data:`FORMATS`; else told by the content), ``member`` (the file inside a zip
        archive), ``encoding`` (default UTF-8) and, for delimited text, ``separator``
        (default: whichever of :data:`SEPARATORS` makes the header hold the columns),
        ``header`` (default true), ``quotes`` (default: true for a separator of one
        character). Blank lines are left out.
    bad : is told of rows that cannot be taken apart.

    Raises
    ------
    InputError if the file, its member or a column is missing (the message lists what
    there is), if the encoding is unknown, or if the file is damaged or of a format that
    is not read.
    """
    path = Path(path)
    kind, encoding = form.get("format"), form.get("encoding", "utf-8")
    try:
        b" ".decode(encoding, "ignore")
    except LookupError as error:
        raise InputError(
            f"{path}: {error}; name an encoding of text, such as utf-8 or latin-1"
        ) from None
    readers = {
        "delimited": _delimited,
        "json-lines": _json_lines,
        "python-literals": _python_literals,
        "parquet": _parquet,
    }
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb", buffering=1 << 20))
        except OSError as error:
            raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        try:
            stream = _unpacked(path, file, form.get("member"), stack)
            kind = kind or _format_of(path, stream, encoding)
            for batch in readers[kind](path, stream, form, bad):
                if kind != "parquet":
                    batch.done = file.tell()
                yield batch
        except (
            gzip.BadGzipFile,
            EOFError,
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
        ) as error:
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
            raise InputError(
                f"{path}: cannot be read{f' as {kind}' if kind else ''}: {said}"
            ) from None


def _unpacked(
    path: Path, stream: IO[bytes], member: str | None, stack: ExitStack
) -> io.BufferedReader:
    """Take off gzip and zip, also one inside the other."""
    while True:
        buffered = (
            stream
            if isinstance(stream, io.BufferedReader)
            else io.BufferedReader(cast(io.RawIOBase, stream), 1 << 20)
        )
        magic = buffered.peek(8)[:8]
        if magic.startswith(b"\x1f\x8b"):
            stream = cast(
                IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=buffered, mode="rb"))
            )
        elif magic.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            stream = stack.enter_context(_member_of(path, buffered, member, stack))
        else:
            break
    for start, name in _OTHER_COMPRESSIONS.items():
        if magic.startswith(start):
            raise InputError(
                f"{path}: is compressed with {name}; gzip, zip and plain files are read, so unpack"
                " it or pack it anew"
            )
    return buffered


def _member_of(path: Path, stream: IO[bytes], member: str | None, stack: ExitStack) -> IO[bytes]:
    try:
        archive = stack.enter_context(zipfile.ZipFile(stream))
    except (RuntimeError, ValueError, struct.error) as error:
        raise zipfile.BadZipFile(str(error)) from None
    if "[Content_Types].xml" in archive.namelist():
        raise InputError(f"{path}: is an Office document; export the sheet as CSV")
    files = [
        name
        for name in archive.namelist()
        if not name.endswith("/") and not name.startswith("__MACOSX/")
    ]
    if member is None and len(files) == 1:
        member = files[0]
    if member not in files:
        wanted = "which member to read is not said" if member is None else f"no member {member!r}"
        raise InputError(
            f"{path}: {wanted} in this zip archive; found: {', '.join(files[:20]) or 'nothing'};"
            " name one as `member`"
        )
    try:
        return archive.open(member)
    except (RuntimeError, NotImplementedError) as error:
        raise InputError(
            f"{path}: the member {member!r} cannot be unpacked: {error}; unpack it by hand"
        ) from None


def _format_of(path: Path, stream: io.BufferedReader, encoding: str) -> str:
    head = stream.peek(1 << 16)
    if not head:
        raise InputError(f"{path}: is empty")
    if head.startswith(b"PAR1"):
        return "parquet"
    if (
        head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        and codecs.lookup(encoding).name == "utf-8"
    ):
        raise InputError(f"{path}: is UTF-16, not UTF-8; say so with `encoding: utf-16`")
    start = head.decode(encoding, errors="ignore").removeprefix("\ufeff").lstrip()
    if re.match(r"\{\s*('|[uU]['\"])", start):
        return "python-literals"
    if start.startswith("{"):
        return "json-lines"
    if re.match(r"\[\s*[\[{]", start):
        raise InputError(
            f"{path}: is one JSON array; write one record per line, for example with jq -c '.[]'"
        )
    if re.match(r"<(!doctype|html|\?xml)", start, re.IGNORECASE):
        raise InputError(f"{path}: is a web page or XML, not a log")
    if b"\0" in head and b"\0" not in "a".encode(encoding):
        raise InputError(
            f"{path}: is neither text nor Parquet (it holds zero bytes); delimited text, records"
            " and Parquet are read"
        )
    return "delimited"


class _Transcoded(io.RawIOBase):
    """Text in UTF-8 without a byte order mark, a separator of several characters
    replaced by one.
    """

    def __init__(self, source: IO[bytes], encoding: str, separator: str = ",") -> None:
        self._source, self._separator = source, separator.encode("utf-8")
        self._decoder = codecs.getincrementaldecoder(encoding)(_MARK_UNREADABLE)
        self._waiting = b""
        self._begun = self._ended = False
        self.has_unreadable = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting and not self._ended:
            self._fill(len(buffer))
        taken, self._waiting = self._waiting[: len(buffer)], self._waiting[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def _fill(self, size: int) -> None:
        block = self._read(size)
        if len(self._separator) > 1:
            # A block may end within a separator: then the separator's beginning waits
            # for its rest.
            while not self._ended and self._begins_separator(block):
                block += self._read(1)
            block = block.replace(self._separator, _UNIT_SEPARATOR.encode())
        self.has_unreadable = self.has_unreadable or _UNREADABLE_START in block
        self._waiting = block

    def _read(self, size: int) -> bytes:
        block = self._source.read(size)
        self._ended = not block
        text = self._decoder.decode(block, final=self._ended)
        if text and not self._begun:
            text = text.removeprefix("\ufeff")
            self._begun = True
        return text.encode("utf-8")

    def _begins_separator(self, block: bytes) -> bool:
        rest = block.replace(self._separator, _UNIT_SEPARATOR.encode())
        return any(
            rest.endswith(self._separator[:length]) for length in range(1, len(self._separator))
        )


def _mark_unreadable(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return (
        "".join(chr(_FIRST_UNREADABLE + byte) for byte in error.object[error.start : error.end]),
        error.end,
    )


codecs.register_error(_MARK_UNREADABLE, _mark_unreadable)


def _shown(text: str) -> str:
    """Text for a message: on one line, bytes that are no text as escapes."""
    return re.sub(
        _UNREADABLE, lambda mark: f"\\x{ord(mark[0]) - _FIRST_UNREADABLE:02x}", text
    ).replace("\n", "\\n")


# Delimited text


def _delimited(
    path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows
) -> Iterator[Batch]:
    header, separator, encoding = (
        form.get("header", True),
        form.get("separator"),
        form.get("encoding", "utf-8"),
    )
    replaced = separator if separator is not None and len(separator.encode()) > 1 else None
    text = _Transcoded(stream, encoding, replaced or ",")
    start = io.BufferedReader(text, _BLOCK)
    quotes = form.get("quotes", separator is None or len(separator) == 1)
    first = start.readline() if header else start.peek(1).lstrip(b"\r\n").split(b"\n", 1)[0]
    if not first.strip():
        raise InputError(
            f"{path}: "
            + (
                "the first line, which should name the columns, is empty"
                if header
                else "holds no rows"
            )
        )
    names, separator = _columns(
        path, first, form["columns"], _UNIT_SEPARATOR if replaced else separator, quotes, header
    )
    positions = {
        role: names.index(column) if header else column for role, column in form["columns"].items()
    }
    if not start.peek(1):
        return
    followed = QuotesFollowed(
        start, separator, 1 + header, like_a_row(start.peek(1), separator, len(names), positions)
    )
    # Appended to by pyarrow, which may parse ahead in a thread of its own.
    skipped: deque[tuple[int, str]] = deque()

    def skip(row: Any) -> str:
        skipped.append((row.number - 1, row.text[:200]))
        return "skip"

    def written(value: str) -> str:
        return _shown(value.replace(_UNIT_SEPARATOR, replaced) if replaced else value)

    def tell_skipped(before: float) -> None:
        while skipped and skipped[0][0] < before:
            number, row = skipped.popleft()
            if row.strip():
                bad.add(
                    "wrong number of fields",
                    [int(followed.lines(np.array([number]))[0])],
                    [written(row)],
                )

    kept = sorted(set(positions.values()))
    reader = pyarrow.csv.open_csv(
        followed if quotes else start,
        read_options=pyarrow.csv.ReadOptions(
            column_names=[str(position) for position in range(len(names))],
            use_threads=False,
            block_size=_BLOCK,
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=separator,
            quote_char='"' if quotes else False,
            newlines_in_values=quotes,
            # An empty line is a row, too, so that rows can be numbered.
            ignore_empty_lines=False,
            invalid_row_handler=skip,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=[str(position) for position in kept],
            column_types={str(position): pa.string() for position in kept},
            strings_can_be_null=False,
        ),
    )
    next_row, empty = 0, list[NDArray[np.int64]]()
    for found in reader:
        rows = np.arange(next_row, next_row + found.num_rows)
        if missing := [row for row, _ in list(skipped)]:
            rows = np.setdiff1d(
                np.arange(next_row, next_row + found.num_rows + len(missing)), missing
            )
            rows = rows[: found.num_rows]
        next_row = int(rows[-1]) + 1 if len(rows) else next_row
        columns = {role: found.column(str(position)) for role, position in positions.items()}
        if replaced and followed.has_quotes:
            columns = {
                role: pc.replace_substring(column, _UNIT_SEPARATOR, replaced)
                for role, column in columns.items()
            }
        reasons = {}
        if text.has_unreadable:
            reasons[_UNREADABLE] = f"{{role}} is not {encoding.upper()}"
        if followed.has_quotes:
            reasons["\n"] = "line break inside the {role}"
        yield _text_batch(columns, followed.lines(rows), reasons, bad, empty)
        tell_skipped(next_row)
        followed.forget(next_row)
    tell_skipped(np.inf)
    for line, row, lost in followed.lost:
        bad.add("inside a quote that is never closed", [line], [written(row)], count=lost)
    if empty:
        _add_what_is_not_blank(path, form, np.concatenate(empty), bad)


def _add_what_is_not_blank(
    path: Path, form: Mapping[str, Any], lines: NDArray[np.int64], bad: BadRows
) -> None:
    """Count those of these lines that are not blank, but hold no user, item and time;
    it takes another pass through the file.
    """
    found, texts = list[int](), list[str]()
    with ExitStack() as stack:
        stream = _unpacked(
            path, stack.enter_context(path.open("rb", buffering=1 << 20)), form.get("member"), stack
        )
        text = enumerate(
            io.BufferedReader(_Transcoded(stream, form.get("encoding", "utf-8")), _BLOCK), 1
        )
        for wanted in lines.tolist():
            line = next(line for number, line in text if number == wanted).strip()
            if line:
                found.append(wanted)
                texts += [_shown(line.decode("utf-8"))] if len(texts) < _QUOTED_EXAMPLES else []
    bad.add("no user, item and time", found, texts)


def _columns(
    path: Path,
    first: bytes,
    columns: Mapping[str, Any],
    separator: str | None,
    quotes: bool,
    header: bool,
) -> tuple[list[str], str]:
    """The column names (or, without a header, as many empty ones) of a first line, and
    the separator that gives them.
    """
    line = first.decode("utf-8", errors="replace").rstrip("\r\n")
    if "\r" in line:
        raise InputError(
            f"{path}: has CR alone at the end of lines; convert it, for example with tr '\\r' '\\n'"
        )
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    try:
        splits = {
            candidate: next(csv.reader([line], delimiter=candidate, quoting=quoting))
            for candidate in ([separator] if separator else SEPARATORS)
        }
    except csv.Error as error:
        raise InputError(f"{path}: the first line is no row of delimited text: {error}") from None
    most = max(splits, key=lambda candidate: len(splits[candidate]))
    if not header:
        for role, column in columns.items():
            if column not in range(len(splits[most])):
                raise InputError(
                    f"{path}: no column {column!r} for {role}; found: {len(splits[most])} columns,"
                    " numbered from 0"
                )
        return [""] * len(splits[most]), most
    for candidate, names in splits.items():
        if all(column in names for column in columns.values()):
            for role, column in columns.items():
                if names.count(column) > 1:
                    raise InputError(
                        f"{path}: the column {column!r} for {role} occurs more than once in the"
                        " header; rename all but one"
                    )
            return names, candidate
    role, column = next(
        (role, column) for role, column in columns.items() if column not in splits[most]
    )
    found = _shown(", ".join(splits[most][:40]))
    unreadable = re.search(_UNREADABLE, "".join(splits[most]))
    hint = (
        r"; where bytes stand as \x…, they are no text in this encoding: name the file's"
        r" `encoding`, such as latin-1"
        if unreadable
        else ""
    )
    raise InputError(
        f"{path}: no column {column!r} for {role}; found, with the separator {most!r}:"
        f" {found}{hint}"
    )


def _text_batch(
    columns: Mapping[str, pa.Array],
    lines: NDArray[np.int64],
    reasons: Mapping[str, str],
    bad: BadRows,
    empty: list[NDArray[np.int64]],
) -> Batch:
    """Drop rows that hold nothing, whose lines go into ``empty``, and rows in which an
    id or time matches a pattern of ``reasons``.
    """
    drop = np.ones(len(lines), dtype=bool)
    for column in columns.values():
        drop &= pc.equal(column, "").to_numpy(zero_copy_only=False)
    if drop.any():
        empty.append(lines[drop])
    for pattern, reason in reasons.items():
        for role, column in columns.items():
            found = pc.match_substring_regex(column, pattern).to_numpy(zero_copy_only=False) & ~drop
            bad.add(
                reason.format(role=role),
                lines[found],
                [_shown(value) for value in column.filter(pa.array(found)).to_pylist()],
            )
            drop |= found
    if not drop.any():
        return Batch(dict(columns), lines, 0)
    keep = pa.array(~drop)
    return Batch({role: column.filter(keep) for role, column in columns.items()}, lines[~drop], 0)


# One record per line


def _json_lines(
    path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows
) -> Iterator[Batch]:
    # Numbers stay the text they are written in: an id such as 1E5, or one of 19 digits,
    # is no quantity.
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=lambda _: None)
    return _records(path, stream, form, bad, decoder.decode, "not a JSON object")


def _python_literals(
    path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows
) -> Iterator[Batch]:
    wanted = frozenset(form["columns"].values())
    with warnings.catch_warnings():
        # Free text full of backslashes is no reason to warn of invalid escapes.
        warnings.simplefilter("ignore")
        yield from _records(
            path,
            stream,
            form,
            bad,
            lambda line: parse_python_record(line, wanted),
            "not a dictionary of Python literals",
        )


def _records(
    path: Path,
    stream: io.BufferedReader,
    form: Mapping[str, Any],
    bad: BadRows,
    parse: Callable[[str], Any],
    fault: str,
) -> Iterator[Batch]:
    columns, encoding = form["columns"], form.get("encoding", "utf-8")
    file_lines = io.BufferedReader(_Transcoded(stream, encoding), _BLOCK)
    found_keys: set[str] = set()
    unseen = set(columns.values())
    first = 1
    while chunk := list(islice(file_lines, _LINES)):
        lines: list[int] = []
        values: dict[str, list[Any]] = {role: [] for role in columns}
        for number, line in enumerate(chunk, first):
            text = line.decode("utf-8").strip()
            if not text:
                continue
            try:
                record = parse(text)
                if not isinstance(record, dict):
                    raise ValueError
                row = {role: _text_of(record.get(column)) for role, column in columns.items()}
            except UnicodeError:
                bad.add(f"id or time is not {encoding.upper()}", [number], [_shown(text)])
            except TypeError:
                bad.add("id or time is neither text nor a number", [number], [_shown(text)])
            except (ValueError, RecursionError, MemoryError):
                bad.add(fault, [number], [_shown(text)])
            else:
                if unseen:
                    unseen -= record.keys()
                    found_keys |= record.keys()
                lines.append(number)
                for role, value in row.items():
                    values[role].append(value)
        first += len(chunk)
        if lines and unseen:
            role, column = next(
                (role, column) for role, column in columns.items() if column in unseen
            )
            none = (
                f"none of the first {first - 1:,} lines has"
                if len(chunk) == _LINES
                else "no record has"
            )
            raise InputError(
                f"{path}: {none} {column!r} for {role}; found: {', '.join(sorted(found_keys)[:40])}"
            )
        yield Batch(
            {role: pa.array(value, pa.string()) for role, value in values.items()},
            np.array(lines, dtype=np.int64),
            0,
        )


def _text_of(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        # Half of a surrogate pair is no character and cannot be stored.
        if not value.isascii() and re.search(f"[\ud800-\udfff]|{_UNREADABLE}", value):
            raise UnicodeError
        return value
    raise TypeError


_STRING = r"""[uU]?(?:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")"""
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PAIR = re.compile(
    rf"[ \t]*({_STRING})[ \t]*:[ \t]*({_STRING}|{_NUMBER}|True|False|None)[ \t]*(?:,|(?=\}}))"
)


def parse_python_record(line: str, wanted: frozenset[str]) -> dict[str, Any]:
    """Read a line that holds one Python dictionary of literals, without evaluating
    anything.

    Flat dictionaries, which nearly all are, are taken apart by a pattern; whatever it
    does not match to the end goes through Python's own parser, which is five times
    slower.

    Parameters
    ----------
    wanted : keys whose values are needed; the values of other keys may come back as
        they are written.

    Returns
    -------
    key → text (a number as it is written), None, or something else that is no id.

    Raises
    ------
    ValueError if the line is no dictionary of literals.
    """
    tokens: dict[str, str] = {}
    at = 1
    while (pair := _PAIR.match(line, at)) is not None:
        tokens[pair[1].lstrip("uU")[1:-1]] = pair[2]
        at = pair.end()
    try:
        if line[:1] == "{" and line[at:].strip() == "}" and not any("\\" in key for key in tokens):
            return {key: _value(token) if key in wanted else token for key, token in tokens.items()}
        tree = ast.parse(line, mode="eval").body
        ast.literal_eval(tree)
        if not isinstance(tree, ast.Dict):
            raise ValueError
        return {
            key.value: _value(ast.get_source_segment(line, value) or "")
            for key, value in zip(tree.keys, tree.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    except (SyntaxError, TypeError):
        # A TypeError is a key that cannot be one, such as a list.
        raise ValueError from None


def _value(token: str) -> Any:
    if re.fullmatch(r"[+-]?[0-9].*|[+-]?\.[0-9].*", token):
        return token
    value = ast.literal_eval(token)
    return value if value is None or isinstance(value, str) else (value,)


# Parquet


def _parquet(
    path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows
) -> Iterator[Batch]:
    with tempfile.TemporaryFile() as unpacked:
        if not isinstance(stream.raw, io.FileIO):
            # Parquet is read from its end; out of an archive it has to be unpacked
            # first.
            shutil.copyfileobj(stream, unpacked)
        file = pyarrow.parquet.ParquetFile(unpacked if unpacked.tell() else stream)
        names = file.schema_arrow.names
        for role, column in form["columns"].items():
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
        for found in file.iter_batches(
            batch_size=_ROWS, columns=sorted(set(form["columns"].values()))
        ):
            # What stands in the file as text need not be UTF-8, and Arrow would take it
            # unseen.
            found.validate(full=True)
            columns = {
                role: _plain(found.column(column)) for role, column in form["columns"].items()
            }
            first += found.num_rows
            yield Batch(columns, range(first - found.num_rows, first), size * (first - 1) // total)


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column
