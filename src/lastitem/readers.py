"""Raw logs as they are found in the world, read as a stream of batches of users, items and times.

Delimited text, JSON lines, lines of Python literals and Parquet, each plain, gzipped or as a member of a zip archive.
Nothing in a file is ever evaluated. Ids stay the text that stands in the file.
"""

from __future__ import annotations

import ast
import codecs
import csv
import gzip
import io
import json
import re
import shutil
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from lastitem.errors import InputError

FORMATS = ("delimited", "json-lines", "python-literals", "parquet")
SEPARATORS = (",", "\t", ";", "|")
_QUOTED_EXAMPLES = 5
_BLOCK = 8 << 20
_LINES = 1 << 17
_ROWS = 1 << 20
_BYTE_ORDER_MARK = codecs.BOM_UTF8
# A separator of several characters is replaced by the unit separator of ASCII before the text is parsed.
_UNIT_SEPARATOR = b"\x1f"
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
    """Counts unusable rows by cause, and keeps the first ones of the file to quote them."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, cause: str, lines: Sequence[int], texts: Sequence[str], count: int | None = None) -> None:
        """Count rows (as many as there are ``lines``, unless ``count`` says otherwise) and keep the first ones."""
        if len(lines):
            self.counts[cause] = self.counts.get(cause, 0) + (len(lines) if count is None else count)
            self.examples += [(int(line), cause, text[:200]) for line, text in islice(zip(lines, texts, strict=False), _QUOTED_EXAMPLES)]
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
    columns : ``user``, ``item``, ``timestamp`` and, if asked for, ``elapsed`` → array as the file holds it: text, or
        numbers; null or empty where a row has no value.
    lines : line (Parquet: row) of the file each row stands in, from 1; a range or an int64 array, n in all.
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
    form : how to read it: ``columns`` (role → column name, key of a record, or 0-based position if ``header`` is
        false), and optionally ``format`` (one of :data:`FORMATS`; else told by the content), ``member`` (the file
        inside a zip archive), ``encoding`` (default UTF-8) and, for delimited text, ``separator`` (default: whichever
        of :data:`SEPARATORS` makes the header hold the columns), ``header`` (default true), ``quotes`` (default true).
    bad : is told of rows that cannot be taken apart.

    Raises
    ------
    InputError if the file, its member or a column is missing (the message lists what there is), or if the file is
    damaged or of a format that is not read.
    """
    path = Path(path)
    readers = {"delimited": _delimited, "json-lines": _json_lines, "python-literals": _python_literals, "parquet": _parquet}
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb", buffering=1 << 20))
        except OSError as error:
            raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        try:
            stream = _unpacked(path, file, form.get("member"), stack)
            kind = form.get("format") or _format_of(path, stream)
            for batch in readers[kind](path, stream, form, bad):
                if kind != "parquet":
                    batch.done = file.tell()
                yield batch
        except (gzip.BadGzipFile, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(
                f"{path}: the archive is damaged ({error}); replace it at its source, or delete this copy to have it fetched again"
            ) from None
        except UnicodeError as error:
            raise InputError(f"{path}: is not text in the encoding {form.get('encoding', 'utf-8')!r}: {error}") from None
        except pa.ArrowInvalid as error:
            remedy = "is a quote opened and never closed? `quotes: false` takes them as ordinary characters"
            raise InputError(f"{path}: cannot be read as {kind}: {error}" + (f"; {remedy}" if "straddl" in str(error) else "")) from None


def _unpacked(path: Path, stream: IO[bytes], member: str | None, stack: ExitStack) -> io.BufferedReader:
    """Take off gzip and zip, also one inside the other."""
    while True:
        buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, 1 << 20)  # type: ignore[arg-type]
        magic = buffered.peek(8)[:8]
        if magic.startswith(b"\x1f\x8b"):
            stream = stack.enter_context(gzip.GzipFile(fileobj=buffered))
        elif magic.startswith(b"PK\x03\x04"):
            stream = stack.enter_context(_member_of(path, buffered, member, stack))
        else:
            break
    for start, name in _OTHER_COMPRESSIONS.items():
        if magic.startswith(start):
            raise InputError(f"{path}: is compressed with {name}; gzip, zip and plain files are read, so unpack it or pack it anew")
    return buffered


def _member_of(path: Path, stream: IO[bytes], member: str | None, stack: ExitStack) -> IO[bytes]:
    archive = stack.enter_context(zipfile.ZipFile(stream))
    files = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if member is None and len(files) == 1:
        member = files[0]
    if member not in files:
        wanted = "which member to read is not said" if member is None else f"no member {member!r}"
        raise InputError(f"{path}: {wanted} in this zip archive; found: {', '.join(files[:20]) or 'nothing'}; name one as `member`")
    try:
        return archive.open(member)
    except (RuntimeError, NotImplementedError) as error:
        raise InputError(f"{path}: the member {member!r} cannot be unpacked: {error}; unpack it by hand") from None


def _format_of(path: Path, stream: io.BufferedReader) -> str:
    head = stream.peek(1 << 16)
    if head.startswith(b"PAR1"):
        return "parquet"
    start = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if re.match(rb"\{\s*[uU]?'", start):
        return "python-literals"
    if start.startswith(b"{"):
        return "json-lines"
    if re.match(rb"\[\s*[\[{]", start):
        raise InputError(f"{path}: is one JSON array; write one record per line, for example with jq -c '.[]'")
    if re.match(rb"<(!doctype|html)", start, re.IGNORECASE):
        raise InputError(f"{path}: is a web page, not a log")
    return "delimited"


# Delimited text


class _Transcoded(io.RawIOBase):
    """Text as pyarrow reads it: UTF-8, a separator of one character; counts line breaks on the way."""

    def __init__(self, source: IO[bytes], encoding: str, separator: bytes) -> None:
        self._source, self._separator = source, separator
        self._decoder = None if codecs.lookup(encoding).name == "utf-8" else codecs.getincrementaldecoder(encoding)()
        self._waiting = b""
        self._ended = False
        self.line_breaks = 0
        self.has_quotes = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting and not self._ended:
            self._fill(len(buffer))
        taken, self._waiting = self._waiting[: len(buffer)], self._waiting[len(buffer) :]
        buffer[: len(taken)] = taken
        self.line_breaks += taken.count(b"\n")
        self.has_quotes = self.has_quotes or b'"' in taken
        return len(taken)

    def _fill(self, size: int) -> None:
        block = self._source.read(size)
        self._ended = not block
        if self._decoder is not None:
            block = self._decoder.decode(block, final=self._ended).encode("utf-8")
        if len(self._separator) > 1:
            # A block may end within a separator: then the separator's beginning waits for its rest.
            while not self._ended and self._begins_separator(block):
                more = self._source.read(1)
                self._ended = not more
                block += more if self._decoder is None else self._decoder.decode(more, final=self._ended).encode("utf-8")
            block = block.replace(self._separator, _UNIT_SEPARATOR)
        self._waiting = block

    def _begins_separator(self, block: bytes) -> bool:
        rest = block.replace(self._separator, _UNIT_SEPARATOR)
        return any(rest.endswith(self._separator[:length]) for length in range(1, len(self._separator)))


def _delimited(path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows) -> Iterator[Batch]:
    header, separator = form.get("header", True), form.get("separator")
    several = separator is not None and len(separator) > 1
    text = _Transcoded(stream, form.get("encoding", "utf-8"), separator.encode() if several else b",")
    lines = io.BufferedReader(text, _BLOCK)
    separator = _UNIT_SEPARATOR.decode() if several else separator
    quotes = form.get("quotes", not several)
    first = lines.readline() if header else lines.peek(1).split(b"\n", 1)[0]
    if not first.strip():
        raise InputError(f"{path}: " + ("the first line, which should name the columns, is empty" if header else "holds no rows"))
    names, separator = _columns(path, first, form["columns"], separator, quotes, header)
    positions = {role: names.index(column) if header else column for role, column in form["columns"].items()}
    skipped: list[int] = []

    def skip(row: Any) -> str:
        skipped.append(row.number)
        # A quote that is never closed takes all lines up to the next one with it: each of them is lost.
        bad.add("wrong number of fields", [row.number + header], [row.text], count=1 + row.text.rstrip("\n").count("\n"))
        return "skip"

    kept = sorted(set(positions.values()))
    reader = pyarrow.csv.open_csv(
        lines,
        read_options=pyarrow.csv.ReadOptions(
            column_names=[str(position) for position in range(len(names))], use_threads=False, block_size=_BLOCK
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
            column_types={str(position): pa.binary() for position in kept},
            strings_can_be_null=False,
        ),
    )
    next_row = 1
    for found in reader:
        numbers = np.arange(next_row, next_row + found.num_rows + len(skipped))
        if skipped:
            numbers = np.setdiff1d(numbers, skipped)[: found.num_rows]
            skipped = [row for row in skipped if row > numbers[-1]] if len(numbers) else skipped
        next_row = int(numbers[-1]) + 1 if len(numbers) else next_row
        columns = {role: found.column(str(position)) for role, position in positions.items()}
        yield _text_batch(columns, numbers + header, text.has_quotes, bad)


def _columns(
    path: Path, first: bytes, columns: Mapping[str, Any], separator: str | None, quotes: bool, header: bool
) -> tuple[list[str], str]:
    """The column names (or, without a header, as many empty ones) of a first line, and the separator that gives them."""
    line = first.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", errors="replace").rstrip("\r\n")
    quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    splits = {
        candidate: next(csv.reader([line], delimiter=candidate, quoting=quoting))
        for candidate in ([separator] if separator else SEPARATORS)
    }
    most = max(splits, key=lambda candidate: len(splits[candidate]))
    if not header:
        for role, column in columns.items():
            if column >= len(splits[most]):
                raise InputError(f"{path}: no column {column!r} for {role}; found: {len(splits[most])} columns, numbered from 0")
        return [""] * len(splits[most]), most
    for candidate, names in splits.items():
        if all(column in names for column in columns.values()):
            for role, column in columns.items():
                if names.count(column) > 1:
                    raise InputError(f"{path}: the column {column!r} for {role} occurs more than once in the header; rename all but one")
            return names, candidate
    role, column = next((role, column) for role, column in columns.items() if column not in splits[most])
    found = ", ".join(splits[most])
    raise InputError(f"{path}: no column {column!r} for {role}; found, with the separator {most!r}: {found}")


def _text_batch(columns: Mapping[str, pa.Array], lines: NDArray[np.int64], has_quotes: bool, bad: BadRows) -> Batch:
    """Drop empty lines, and rows whose ids or time are not UTF-8 or go over several lines."""
    empty = np.ones(len(lines), dtype=bool)
    for column in columns.values():
        empty &= pc.equal(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    wrong = np.zeros(len(lines), dtype=bool)
    texts = {}
    for role, column in columns.items():
        try:
            texts[role] = column.cast(pa.string())
        except pa.ArrowInvalid:
            readable = np.array([_is_utf8(value) for value in column.to_pylist()])
            bad.add("not UTF-8", lines[~readable], [repr(value) for value in column.filter(pa.array(~readable)).to_pylist()])
            wrong |= ~readable
            texts[role] = pc.if_else(pa.array(readable), column, b"").cast(pa.string())
    if has_quotes:
        for role, column in texts.items():
            broken = pc.match_substring(column, "\n").to_numpy(zero_copy_only=False) & ~wrong
            if broken.any():
                values = column.filter(pa.array(broken)).to_pylist()
                breaks = sum(value.count("\n") for value in values)
                bad.add(f"line break inside the {role}", lines[broken], [repr(value) for value in values], count=len(values) + breaks)
                wrong |= broken
    drop = empty | wrong
    if drop.any():
        keep = pa.array(~drop)
        return Batch({role: column.filter(keep) for role, column in texts.items()}, lines[~drop], 0)
    return Batch(texts, lines, 0)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# One record per line


def _json_lines(path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows) -> Iterator[Batch]:
    # Numbers stay the text they are written in: an id such as 1E5, or one of 19 digits, is no quantity.
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=lambda _: None)
    return _records(path, stream, form, bad, decoder.decode, "not JSON")


def _python_literals(path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows) -> Iterator[Batch]:
    wanted = frozenset(form["columns"].values())
    with warnings.catch_warnings():
        # Free text full of backslashes is no reason to warn of invalid escapes.
        warnings.simplefilter("ignore")
        yield from _records(path, stream, form, bad, lambda line: parse_python_record(line, wanted), "not a Python literal")


def _records(
    path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows, parse: Callable[[str], Any], fault: str
) -> Iterator[Batch]:
    columns, encoding = form["columns"], form.get("encoding", "utf-8")
    found_keys: set[str] = set()
    unseen = set(columns.values())
    first = 1
    while chunk := list(islice(stream, _LINES)):
        lines, values = [], {role: [] for role in columns}
        for number, line in enumerate(chunk, first):
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            try:
                text = line.decode(encoding).strip()
                if not text:
                    continue
                record = parse(text)
                if not isinstance(record, dict):
                    raise ValueError
                row = {role: _text_of(record.get(column)) for role, column in columns.items()}
            except UnicodeError:
                bad.add(f"not {encoding.upper()}", [number], [repr(line)])
            except TypeError:
                bad.add("id or time is neither text nor a number", [number], [text])
            except (ValueError, RecursionError, MemoryError):
                bad.add(fault, [number], [text])
            else:
                if unseen:
                    unseen -= record.keys()
                    found_keys |= record.keys()
                lines.append(number)
                for role, value in row.items():
                    values[role].append(value)
        first += len(chunk)
        if lines and unseen:
            role, column = next((role, column) for role, column in columns.items() if column in unseen)
            raise InputError(f"{path}: no record has {column!r} for {role}; found: {', '.join(sorted(found_keys)[:40])}")
        yield Batch({role: pa.array(value, pa.string()) for role, value in values.items()}, np.array(lines, dtype=np.int64), 0)


def _text_of(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        # Half of a surrogate pair is no character and cannot be stored.
        value.encode("utf-8")
        return value
    raise TypeError


_STRING = r"""[uU]?(?:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")"""
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PAIR = re.compile(rf"\s*({_STRING})\s*:\s*({_STRING}|{_NUMBER}|True|False|None)\s*(?:,|(?=\}}))")


def parse_python_record(line: str, wanted: frozenset[str]) -> dict[str, Any]:
    """Read a line that holds one Python dictionary of literals, without evaluating anything.

    Flat dictionaries, which nearly all are, are taken apart by a pattern; whatever it does not match to the end goes
    through Python's own parser, which is five times slower.

    Parameters
    ----------
    wanted : keys whose values are needed; the values of other keys may come back as they are written.

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
    if line[:1] == "{" and line[at:].strip() == "}" and not any("\\" in key for key in tokens):
        return {key: _value(token) if key in wanted else token for key, token in tokens.items()}
    try:
        tree = ast.parse(line, mode="eval").body
        ast.literal_eval(tree)
    except SyntaxError:
        raise ValueError from None
    if not isinstance(tree, ast.Dict):
        raise ValueError
    return {
        key.value: _value(ast.get_source_segment(line, value) or "")
        for key, value in zip(tree.keys, tree.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _value(token: str) -> Any:
    if re.fullmatch(r"[+-]?[0-9].*|[+-]?\.[0-9].*", token):
        return token
    value = ast.literal_eval(token)
    return value if value is None or isinstance(value, str) else (value,)


# Parquet


def _parquet(path: Path, stream: io.BufferedReader, form: Mapping[str, Any], bad: BadRows) -> Iterator[Batch]:
    with tempfile.TemporaryFile() as unpacked:
        if not isinstance(stream.raw, io.FileIO):
            # Parquet is read from its end; out of an archive it has to be unpacked first.
            shutil.copyfileobj(stream, unpacked)
        file = pyarrow.parquet.ParquetFile(unpacked if unpacked.tell() else stream)
        names = file.schema_arrow.names
        for role, column in form["columns"].items():
            if column not in names:
                raise InputError(f"{path}: no column {column!r} for {role}; found: {', '.join(names)}")
        first, total, size = 1, max(1, file.metadata.num_rows), path.stat().st_size
        for found in file.iter_batches(batch_size=_ROWS, columns=sorted(set(form["columns"].values()))):
            columns = {role: found.column(column) for role, column in form["columns"].items()}
            first += found.num_rows
            yield Batch(columns, range(first - found.num_rows, first), size * (first - 1) // total)
