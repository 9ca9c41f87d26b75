"""Delimited text, in which a quoted value may hold separators and line breaks."""

import csv
import io
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions, CSVStreamingReader, ParseOptions, ReadOptions, open_csv

from lastitem.arrays import Ints
from lastitem.data.columns import matches
from lastitem.data.readers import transcoding
from lastitem.data.readers.quotes import QuotesFollowed, like_a_row
from lastitem.data.readers.rows import BadRows, RawLog, Rows
from lastitem.data.readers.transcoding import UNIT_SEPARATOR, UNREADABLE, as_text, shown
from lastitem.data.readers.unpacking import unpacked
from lastitem.errors import InputError

SEPARATORS = (",", "\t", ";", "|")


def read_delimited(log: RawLog) -> Iterator[Rows]:
    """See :func:`lastitem.data.readers.reading.read_rows`."""
    header, separator = log.form.get("header", True), log.form.get("separator")
    quotes = log.form.get("quotes", separator is None or len(separator) == 1)
    replaced = separator if separator and len(separator.encode()) > 1 else ""
    text = as_text(log.stream, log.encoding, replaced)
    first = text.readline() if header else text.peek(1).lstrip(b"\r\n").partition(b"\n")[0]
    if not first.strip():
        fault = "the first line, which should name the columns, is empty"
        raise InputError(fault if header else "holds no rows")
    width, positions, separator = _columns(
        first, log.columns, UNIT_SEPARATOR if replaced else separator, quotes, header
    )
    if not text.peek(1):
        return
    followed = QuotesFollowed(
        text, separator, 1 + header, like_a_row(text.peek(1), separator, width, positions)
    )

    def written(value: str) -> str:
        return shown(value.replace(UNIT_SEPARATOR, replaced or UNIT_SEPARATOR))

    skipped = _Skipped(followed, written, log.bad)
    pieces = _open(followed if quotes else text, separator, quotes, width, positions, skipped.take)
    next_row, empty = 0, list[Ints]()
    for piece in pieces:
        numbers = skipped.numbers_between(next_row, piece.num_rows)
        next_row = int(numbers[-1]) + 1 if len(numbers) else next_row
        columns = {role: piece.column(str(position)) for role, position in positions.items()}
        reasons = {}
        if text.raw.has_unreadable:
            reasons[UNREADABLE] = f"{{role}} is not {log.encoding.upper()}"
        if followed.has_quotes:
            reasons["\n"] = "line break inside the {role}"
            if replaced:
                columns = {
                    role: pc.replace_substring(column, UNIT_SEPARATOR, replaced)
                    for role, column in columns.items()
                }
        yield _usable(columns, followed.lines(numbers), reasons, log.bad, empty)
        skipped.report(next_row)
        followed.forget(next_row)
    skipped.report(np.inf)
    for line, row, lost in followed.lost:
        log.bad.add("inside a quote that is never closed", [line], [written(row)], count=lost)
    if empty:
        _add_what_is_not_blank(log, np.concatenate(empty))


def _open(
    text: io.IOBase,
    separator: str,
    quotes: bool,
    width: int,
    positions: Mapping[str, int],
    skip: Callable[[Any], str],
) -> CSVStreamingReader:
    """Parse text of ``width`` columns; those at ``positions`` are kept, as text under
    their position. ``skip`` is told of rows with another number of fields.
    """
    kept = {str(position): pa.string() for position in positions.values()}
    return open_csv(
        text,
        read_options=ReadOptions(
            column_names=[*map(str, range(width))], use_threads=False, block_size=transcoding.BLOCK
        ),
        parse_options=ParseOptions(
            delimiter=separator,
            quote_char='"' if quotes else False,
            newlines_in_values=quotes,
            # An empty line is a row, too, so that rows can be numbered.
            ignore_empty_lines=False,
            invalid_row_handler=skip,
        ),
        convert_options=ConvertOptions(
            include_columns=[*kept], column_types=kept, strings_can_be_null=False
        ),
    )


@dataclass
class _Skipped:
    """Rows that pyarrow skips, because they have another number of fields.

    Attributes
    ----------
    rows : appended to by pyarrow, which may parse ahead in a thread of its own.
    """

    followed: QuotesFollowed
    written: Callable[[str], str]
    bad: BadRows
    rows: deque[tuple[int, str]] = field(default_factory=deque)

    def take(self, row: Any) -> str:
        """Called by pyarrow; it numbers rows from 1."""
        self.rows.append((row.number - 1, row.text[:200]))
        return "skip"

    def numbers_between(self, first: int, count: int) -> Ints:
        """The numbers of the ``count`` rows from ``first`` that are not skipped."""
        missing = [row for row, _ in list(self.rows)]
        numbers = np.arange(first, first + count + len(missing))
        return np.setdiff1d(numbers, missing, assume_unique=True)[:count] if missing else numbers

    def report(self, before: float) -> None:
        """Count the rows skipped so far up to number ``before``, but for blank ones."""
        while self.rows and self.rows[0][0] < before:
            number, row = self.rows.popleft()
            if row.strip():
                lines = self.followed.lines(np.array([number])).tolist()
                self.bad.add("wrong number of fields", lines, [self.written(row)])


def _usable(
    columns: dict[str, pa.Array],
    lines: Ints,
    reasons: Mapping[str, str],
    bad: BadRows,
    empty: list[Ints],
) -> Rows:
    """Drop rows that hold nothing, whose lines go into ``empty``, and rows in which an
    id or time matches a pattern of ``reasons``.
    """
    drop = np.ones(len(lines), dtype=bool)
    for column in columns.values():
        drop &= np.asarray(pc.equal(column, ""))
    if drop.any():
        empty.append(lines[drop])
    for pattern, reason in reasons.items():
        for role, column in columns.items():
            found = matches(column, pattern) & ~drop
            texts = [*map(shown, column.filter(found).to_pylist())]
            bad.add(reason.format(role=role), lines[found].tolist(), texts)
            drop |= found
    if not drop.any():
        return Rows(columns, lines)
    return Rows({role: column.filter(~drop) for role, column in columns.items()}, lines[~drop])


def _add_what_is_not_blank(log: RawLog, lines: Ints) -> None:
    """Count those of these lines that are not blank, but hold no user, item and time;
    it takes another pass through the file.
    """
    with unpacked(log.path, log.form.get("member")) as (_, stream):
        numbered = enumerate(as_text(stream, log.encoding), 1)
        for wanted in lines.tolist():
            if line := next(line for number, line in numbered if number == wanted).strip():
                log.bad.add("no user, item and time", [wanted], [shown(line.decode())])


def _columns(
    first: bytes,
    columns: Mapping[str, Any],
    separator: str | None,
    quotes: bool,
    header: bool,
) -> tuple[int, dict[str, int], str]:
    """The number of columns of a first line, the positions of those that are read, and
    the separator that gives them.
    """
    line = first.decode("utf-8", errors="replace").rstrip("\r\n")
    if "\r" in line:
        raise InputError(
            "has CR alone at the end of lines; convert it, for example with tr '\\r' '\\n'"
        )
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    try:
        splits = {
            candidate: next(csv.reader([line], delimiter=candidate, quoting=quoting))
            for candidate in ([separator] if separator else SEPARATORS)
        }
    except csv.Error as error:
        raise InputError(f"the first line is no row of delimited text: {error}") from None
    if header:
        for candidate, names in splits.items():
            if all(column in names for column in columns.values()):
                for role, column in columns.items():
                    if names.count(column) > 1:
                        raise InputError(
                            f"the column {column!r} for {role} occurs more than once in the header;"
                            " rename all but one"
                        )
                found = {role: names.index(column) for role, column in columns.items()}
                return len(names), found, candidate
    most, names = max(splits.items(), key=lambda split: len(split[1]))
    there = names if header else range(len(names))
    missing = [role for role, column in columns.items() if column not in there]
    if not missing:
        return len(names), dict(columns), most
    wanted = f"no column {columns[missing[0]]!r} for {missing[0]}; found"
    if not header:
        raise InputError(f"{wanted}: {len(names)} columns, numbered from 0")
    hint = (
        r"; where bytes stand as \x…, they are no text in this encoding: name the file's"
        r" `encoding`, such as latin-1"
        if re.search(UNREADABLE, "".join(names))
        else ""
    )
    raise InputError(f"{wanted}, with the separator {most!r}: {shown(', '.join(names[:40]))}{hint}")
