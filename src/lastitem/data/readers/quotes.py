"""Quoted values of delimited text: which line a row begins in, and which rows a quote
that is never closed takes in.
"""

import io
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastitem.arrays import Bools, Ints

_SAMPLED_LINES = 100  # among which a first row is looked for


class _Value(NamedTuple):
    """A quoted value: the line it begins in, the beginning of its row, the line breaks
    in it, and whether one of its lines is a row by its looks.
    """

    line: int
    beginning: str
    breaks: int
    has_row: bool


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
        # The value that is still open; its last line so far, unless that is its first.
        self._open: _Value | None = None
        self._begun: bytes | None = None
        # pyarrow reads ahead in a thread of its own.
        self._new_breaks: deque[Ints] = deque()
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
            # The end of the last line loses nothing.
            breaks -= self._before == b"\n"
            self.lost += [(line, beginning, breaks)] if breaks else []
            self._open = None
        return block

    def lines(self, rows: Ints) -> Ints:
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
        """Take in ``text``, of which the first ``start`` bytes only say how it goes on:
        the byte before, or a quote that opens the value that is still open.
        """

        def value_at(begin: int, end: int) -> _Value:
            """What is known of a value, with what earlier blocks held of it."""
            first, last = np.searchsorted(breaks, (begin, end)).tolist()
            has_row = bisect_left(rows, begin) < bisect_left(rows, end)
            if self._open and begin == start:
                line, beginning, lost, _ = self._open
                return _Value(line, beginning, lost + last - first, had_row or has_row)
            row = text.rfind(b"\n", 0, begin) + 1
            beginning = text[row : row + 200].decode("utf-8", "ignore")
            return _Value(self._line + first, beginning, last - first, has_row)

        codes = np.frombuffer(text, dtype=np.uint8)
        quotes = np.flatnonzero(codes == ord('"'))
        breaks = start + np.flatnonzero(codes[start:] == ord("\n"))
        # If every quote opens, closes or doubles, what is inside of a value has an odd
        # number of them before it.
        regular = self._is_regular(codes, quotes)
        inside = np.searchsorted(quotes, breaks) % 2 == 1
        rows = self._rows_inside(text, start, breaks, inside) if regular else []
        had_row = self._open is not None and self._open.has_row
        still_open = None
        if regular and not rows and not had_row:
            if len(quotes) % 2:
                # The value was opened by the last opening quote that doubles none.
                opening = quotes[::2]
                begin = int(opening[codes[opening - 1] != ord('"')][-1]) + 1
                still_open = value_at(begin, len(text))
        else:
            values = list(self._value.finditer(text))
            # A break is inside if more values begin before it than end before it.
            begins, ends = [match.start(1) for match in values], [match.end(1) for match in values]
            inside = np.searchsorted(begins, breaks, "right") > np.searchsorted(
                ends, breaks, "right"
            )
            rows = self._rows_inside(text, start, breaks, inside)
            for match in values:
                # Text behind the closing quote: it was meant to open another value.
                unclosed = match[2] != b'"'
                if match[2] is None:
                    still_open = value_at(*match.span(1))
                # Only a value of several lines, perhaps of earlier blocks, loses rows.
                elif (b"\n" in match[1] or self._open) and (unclosed or rows or had_row):
                    value = value_at(*match.span(1))
                    if value.breaks and (unclosed or value.has_row):
                        self.lost.append(value[:3])
        self._begun = self._beginning(text, start) if still_open else None
        self._open = still_open
        # A break inside of a value ends no row; it is kept as the number of its row.
        self._new_breaks.append(self._row + np.cumsum(~inside)[inside])
        self._row += int(np.count_nonzero(~inside))
        self._line += len(breaks)

    def _is_regular(self, codes: NDArray[np.uint8], quotes: Ints) -> bool:
        """Whether every quote stands beside a separator, an end of a line or another
        quote: before it if it opens, behind it if it closes.
        """
        beside = np.append(quotes[::2] - 1, quotes[1::2] + 1)
        # Behind the end of the text "clip" finds the quote itself.
        return bool(self._beside_quotes[codes.take(beside, mode="clip")].all())

    def _rows_inside(self, text: bytes, start: int, breaks: Ints, inside: Bools) -> list[int]:
        """Where in ``text`` lines that look like rows begin inside of values."""
        if self._like_a_row is None or not len(breaks):
            return []
        found = []
        # A line begins inside if the break before it is inside. The first line of the
        # text does if it goes on with one of an earlier block.
        begins_inside = np.append(self._begun is not None, inside[:-1])
        for end in np.flatnonzero(begins_inside).tolist():
            place = int(breaks[end - 1]) + 1 if end else start
            line = text[place : breaks[end]]
            if not end and self._begun is not None:
                line = self._begun + line
            if not inside[end]:
                # Its last line holds the closing quote; what stands before it is the
                # value's.
                if not self._ends_like_a_row or line.find(self._separator) >= line.find(b'"'):
                    continue
                line = line.replace(b'"', b"", 1)
            if self._like_a_row.fullmatch(line):
                # The place of the break before it: a line begins inside of the value
                # that holds that break.
                found.append(place - 1 if end else place)
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
        sign = b'[^"%b\r]' % re.escape(between)
        patterns = [sign + b"*"] * fields
        patterns[positions["user"]] = patterns[positions["item"]] = sign + b"+"
        time = re.sub(rb"[A-Za-z]+", b"[A-Za-z]+", re.escape(time))
        patterns[positions["timestamp"]] = re.sub(rb"[0-9]+", b"[0-9]+", time)
        return re.compile(re.escape(between).join(patterns) + b"\r?")
    return None
