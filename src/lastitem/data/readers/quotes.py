"""Quoted values of delimited text: which line a row begins in, and which rows a quote
that is never closed takes in.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import IO

import numpy as np
from numpy.typing import NDArray

_SAMPLED_LINES = 100  # among which a first row is looked for


class QuotesFollowed(io.RawIOBase):
    """Hands text on to pyarrow and finds the line breaks inside of quoted values, which
    end a line but no row.

    Where a value of several lines has text behind its closing quote, or a line inside
    of it is a row by its looks (``row``), its quote was never closed; it was the next
    quoted value that closed it. The rows in between are lost.

    Attributes
    ----------
    has_quotes : whether there was one so far.
    lost : of each value whose quote is never closed: the line it begins in, its row's
        beginning, the number of lost lines.
    """

    def __init__(
        self, source: IO[bytes], separator: str, first_line: int, row: re.Pattern[bytes] | None
    ) -> None:
        ends = separator.encode() + b"\r\n"
        self._value = re.compile(
            rb'(?<=[%b])"((?:[^"]++|"")*+)("[^%b]?)?' % (re.escape(ends), re.escape(ends))
        )
        self._beside_quotes = np.isin(np.arange(256), list(ends + b'"'))
        self._source, self._separator, self._like_a_row = source, separator.encode(), row
        # Text in which a separator is nothing unusual ends a value as a row would; only
        # commas and semicolons are that usual.
        self._ends_like_a_row = separator not in ",;"
        self._before, self._waiting = b"\n", b""
        self._first_line = self._line = first_line
        self._row = 0
        # A value that is still open, as in ``lost``, and whether a row was seen inside;
        # its last line so far, unless that is its first.
        self._open: tuple[int, str, int, bool] | None = None
        self._begun: bytes | None = None
        # pyarrow reads ahead in a thread of its own.
        self._new_breaks: deque[NDArray[np.int64]] = deque()
        self._breaks, self._forgotten = np.zeros(0, dtype=np.int64), 0
        self.has_quotes = False
        self.lost: list[tuple[int, str, int]] = []

    def readable(self) -> bool:
        """As every stream that is read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next block of the source as it is; what is known of its quotes is known
        from then on.
        """
        block = self._source.read(size)
        text = self._waiting + block
        # What a quote at the end means is told by the byte behind it.
        self._waiting = text[len(text.rstrip(b'"')) :] if block else b""
        text = text[: len(text) - len(self._waiting)]
        if self._open or b'"' in text:
            self.has_quotes = True
            start = b'\n"' if self._open else self._before
            self._follow(start + text, len(start))
        else:
            self._row += text.count(b"\n")
            self._line += text.count(b"\n")
        self._before = text[-1:] or self._before
        if not block and self._open:
            line, beginning, breaks, _ = self._open
            breaks -= self._before == b"\n"
            self.lost += [(line, beginning, breaks)] if breaks else []
            self._open = None
        return block

    def lines(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The line each row (from 0) begins in."""
        while self._new_breaks:
            self._breaks = np.concatenate([self._breaks, self._new_breaks.popleft()])
        return self._first_line + rows + self._forgotten + np.searchsorted(self._breaks, rows)

    def forget(self, row: int) -> None:
        """Let go of what is known of the rows before ``row``: :meth:`lines` is not
        asked for them again.
        """
        passed = int(np.searchsorted(self._breaks, row))
        self._breaks, self._forgotten = self._breaks[passed:], self._forgotten + passed

    def _follow(self, text: bytes, start: int) -> None:
        codes = np.frombuffer(text, dtype=np.uint8)
        quotes, breaks = (
            np.flatnonzero(codes == ord('"')),
            start + np.flatnonzero(codes[start:] == ord("\n")),
        )

        def value(begin: int, end: int) -> tuple[int, str, int, bool]:
            first, last = np.searchsorted(breaks, (begin, end)).tolist()
            has_row = bisect_left(rows, begin) < bisect_left(rows, end)
            if self._open and begin == start:
                return (*self._open[:2], self._open[2] + last - first, self._open[3] or has_row)
            row = text.rfind(b"\n", 0, begin) + 1
            return (
                self._line + first,
                text[row : row + 200].decode("utf-8", "ignore"),
                last - first,
                has_row,
            )

        still_open = None
        opening, closing = quotes[::2], quotes[1::2]
        behind = closing[closing + 1 < len(codes)] + 1
        regular = bool(
            self._beside_quotes[codes[opening - 1]].all()
            and self._beside_quotes[codes[behind]].all()
        )
        if regular:
            # Every quote opens, closes or doubles: inside of a value is what an odd
            # number of them precedes.
            inside = np.searchsorted(quotes, breaks) % 2 == 1
            rows = self._rows_inside(text, start, breaks, inside)
        holds_rows = self._open is not None and self._open[3]
        if regular and not rows and not holds_rows:
            if len(quotes) % 2:
                still_open = value(int(opening[codes[opening - 1] != ord('"')][-1]) + 1, len(text))
        else:
            values = list(self._value.finditer(text))
            begins, ends = [found.start(1) for found in values], [found.end(1) for found in values]
            inside = np.searchsorted(begins, breaks, "right") > np.searchsorted(
                ends, breaks, "right"
            )
            rows = self._rows_inside(text, start, breaks, inside)
            for found in values:
                if found[2] is None:
                    still_open = value(*found.span(1))
                elif (b"\n" in found[1] or self._open) and (found[2] != b'"' or rows or holds_rows):
                    line, beginning, lost, has_row = value(*found.span(1))
                    self.lost += (
                        [(line, beginning, lost)] if lost and (has_row or found[2] != b'"') else []
                    )
        self._begun = self._beginning(text, start) if still_open else None
        self._open = still_open
        self._new_breaks.append(self._row + np.cumsum(~inside)[inside])
        self._row += int(np.count_nonzero(~inside))
        self._line += len(breaks)

    def _rows_inside(
        self, text: bytes, start: int, breaks: NDArray[np.int64], inside: NDArray[np.bool_]
    ) -> list[int]:
        """Where in ``text`` lines that look like rows begin inside of values."""
        if self._like_a_row is None:
            return []
        found = []
        for end in (
            np.flatnonzero(np.append(self._begun is not None, inside[:-1])).tolist()
            if len(breaks)
            else ()
        ):
            place = start if end == 0 else int(breaks[end - 1]) + 1
            line = text[place : breaks[end]]
            if end == 0 and self._begun is not None:
                line = self._begun + line
            if not inside[end]:
                # Its last line holds the closing quote; what stands before it is the
                # value's.
                if not self._ends_like_a_row or line.find(self._separator) >= line.find(b'"'):
                    continue
                line = line.replace(b'"', b"", 1)
            if self._like_a_row.fullmatch(line):
                found.append(place if end == 0 else place - 1)
        return found

    def _beginning(self, text: bytes, start: int) -> bytes | None:
        """What there is of the last line of a value that is open at the end of
        ``text``; None if it is the value's first.
        """
        begin = text.rfind(b"\n", start) + 1
        if begin and text.count(b'"', begin) == 0:
            return text[begin:]
        return self._begun + text[start:] if not begin and self._begun is not None else None


def like_a_row(
    sample: bytes, separator: str, fields: int, positions: Mapping[str, int]
) -> re.Pattern[bytes] | None:
    """A pattern of lines without quotes that are rows by their looks: as many fields,
    ids, a time written like that of the first row.

    None if there is no such row at the beginning of the file.
    """
    between = separator.encode()
    for line in sample.split(b"\n", _SAMPLED_LINES)[:_SAMPLED_LINES]:
        values = line.replace(b'"', b"").rstrip(b"\r").split(between)
        if len(values) != fields or not re.search(
            rb"[0-9]", time := values[positions["timestamp"]]
        ):
            continue
        parts = re.findall(rb"[0-9]+|[A-Za-z]+|[^0-9A-Za-z]+", time)
        shape = b"".join(
            b"[0-9]+" if part.isdigit() else b"[A-Za-z]+" if part.isalpha() else re.escape(part)
            for part in parts
        )
        patterns = [b'[^"%b\r]*' % re.escape(between)] * fields
        for role in ("user", "item"):
            patterns[positions[role]] = b'[^"%b\r]+' % re.escape(between)
        patterns[positions["timestamp"]] = shape
        return re.compile(re.escape(between).join(patterns) + b"\r?")
    return None
