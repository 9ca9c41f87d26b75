"""Reading raw logs: delimited text, JSON lines, Python literals and Parquet, plain and
out of archives.

Cases of the fault catalogue that touch this code: A1, A5, A7 and A9 (in
test_interactions.py, as they go through scripts), A11, A13, A15, A17 and A19 (in
test_times.py). A3 does not apply: no column of labels is read.
"""

from __future__ import annotations

import ast
import bz2
import csv
import gzip
import io
import json
import lzma
import re
import zipfile
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastitem.data.interactions import read_interactions
from lastitem.data.readers import quotes, transcoding
from lastitem.data.readers.delimited import SEPARATORS
from lastitem.data.readers.records import parse_python_record
from lastitem.errors import InputError
from tests import literal
from tests.literal import events, read_bytes

START = 1_000_000_000
HEADER = b"user,item,time\n"
ROW = b"x,a,1000000000\n"
POSITIONS = {"header": False, "columns": {"user": 0, "item": 1, "timestamp": 2}}


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


class TestSeparators:
    ROWS = (
        ("user", "rating", "item", "time"),
        ("x", "5", "a b", str(START)),
        ("y", "", "é", str(START + 1)),
    )

    @pytest.mark.parametrize(
        "separator", [",", "\t", ";", "|", "^", "\x01", "::", "||", "\t\t", "<->", "§", "→→"]
    )
    def test_of_one_and_of_several_characters(self, tmp_path, separator):
        """Separators that are said, with a header and with positions; some are not
        ASCII.
        """
        expected = [("x", "a b", START), ("y", "é", START + 1)]
        names, *rows = map(separator.join, self.ROWS)
        positions = {"header": False, "columns": {"user": 0, "item": 2, "timestamp": 3}}
        assert (
            events(read_bytes(tmp_path, "\n".join([names, *rows]).encode(), separator=separator))
            == expected
        )
        assert (
            events(read_bytes(tmp_path, "\n".join(rows).encode(), separator=separator, **positions))
            == expected
        )

    @pytest.mark.parametrize("separator", SEPARATORS)
    def test_told_by_the_first_line(self, tmp_path, separator):
        """The header tells by the names that are asked for, a first row by making most
        columns.
        """
        other = next(candidate for candidate in SEPARATORS if candidate != separator)
        lines = [
            separator.join(row)
            for row in (("user", "item", "time", f"a{other}b"), ("x", "a", str(START), other * 9))
        ]
        assert events(read_bytes(tmp_path, "\n".join(lines).encode())) == [("x", "a", START)]
        assert events(read_bytes(tmp_path, lines[1].replace(other, "").encode(), **POSITIONS)) == [
            ("x", "a", START)
        ]

    def test_several_characters_that_lie_across_blocks(self, tmp_path, monkeypatch):
        """Blocks of many sizes; single colons belong to values, and of three the first
        two separate.
        """
        rows = [(f"u:{k}", ":" * (k % 3 == 0) + f"i{k}", START + k) for k in range(60)]
        content = "user::item::time\n" + "".join(
            f"{user}::{item}::{time}\n" for user, item, time in rows
        )
        for block in range(40, 58):
            monkeypatch.setattr(transcoding, "BLOCK", block)
            assert events(read_bytes(tmp_path, content.encode(), separator="::")) == rows

    def test_several_characters_within_quotes(self, tmp_path):
        """Quotes are off unless asked for; then a separator within them belongs to the
        value, and messages show it as written.
        """
        content = b'user::item::time\n"x::y"::a::1000000000\nx::y\n'
        assert events(
            read_bytes(tmp_path, content, separator="::", quotes=True, maximum_bad_share=0.5)
        ) == [("x::y", "a", START)]
        assert bad_lines(tmp_path, content, separator="::") == [
            (2, 'wrong number of fields: "x::y"::a::1000000000'),
            (3, "wrong number of fields: x::y"),
        ]


class TestColumns:
    def test_by_name_among_others(self, tmp_path):
        """The columns' own order does not matter."""
        log = read_bytes(tmp_path, b"rating,time,item,user\n5,1000000000,b,x\n1,1000000060,a,x\n")
        assert events(log) == [("x", "b", START), ("x", "a", START + 60)]
        assert (log.user.dtype, log.item.dtype, log.time.dtype) == (np.int32, np.int32, np.int64)

    def test_by_position(self, tmp_path):
        """The shape of ml-100k's u.data, and of ml-1m's ratings.dat."""
        form = {"columns": {"user": 0, "item": 1, "timestamp": 3}, "header": False}
        for separator in ("\t", "::"):
            content = "196\t242\t3\t881250949\n186\t302\t3\t891717742\n".replace("\t", separator)
            assert events(read_bytes(tmp_path, content.encode(), separator=separator, **form)) == [
                ("196", "242", 881250949),
                ("186", "302", 891717742),
            ]

    @pytest.mark.parametrize(
        ("content", "form", "message"),
        [
            (
                b"user_id,item,time\nx,a,1\n",
                {},
                "no column 'user' for user; found, with the separator ',': user_id, item, time",
            ),
            (
                b"user;item;when\nx;a;1\n",
                {},
                "no column 'time' for timestamp; found, with the separator ';': user, item, when",
            ),
            (
                b"us\xe9r,item,time\nx,a,1\n",
                {},
                (
                    r"no column 'user' for user; found, with the separator ',': us\\xe9r, item,"
                    r" time; .*name the file's `encoding`"
                ),
            ),
            (
                HEADER + ROW,
                {"columns": POSITIONS["columns"]},
                "no column 0 for user; found, .*: user, item, time",
            ),
            (
                ROW,
                {**POSITIONS, "columns": {"user": 0, "item": 7, "timestamp": 2}},
                "no column 7 for item; found: 3 columns, numbered from 0",
            ),
            (
                ROW,
                {**POSITIONS, "columns": {"user": 0, "item": -1, "timestamp": 2}},
                "no column -1 for item; found: 3 columns",
            ),
            (
                ROW,
                {"header": False},
                "no column 'user' for user; found: 3 columns, numbered from 0",
            ),
            (
                b"user,item,time,user\nx,a,1,y\n",
                {},
                (
                    "the column 'user' for user occurs more than once in the header; rename all"
                    " but one"
                ),
            ),
            (b"\n" + HEADER + ROW, {}, "the first line, which should name the columns, is empty"),
            (
                b"x" * 200_000,
                {},
                "the first line is no row of delimited text: field larger than field limit",
            ),
            ((HEADER + ROW).replace(b"\n", b"\r"), {}, "has CR alone at the end of lines"),
            (b'{"a": 1, "b": 2}\n', {}, "no record has 'user' for user; found: a, b"),
            (
                b"{'user': 'x', 'item': 'a'}\n",
                {},
                "no record has 'time' for timestamp; found: item, user",
            ),
            (parquet({"a": [1], "b": [2]}), {}, "no column 'user' for user; found: a, b"),
        ],
    )
    def test_missing_or_ambiguous_ones_are_named_with_what_there_is(
        self, tmp_path, content, form, message
    ):
        """In each format, and a first line that cannot be one."""
        assert re.match(message, refusal(tmp_path, content, **form))

    def test_a_name_that_occurs_twice_in_parquet(self, tmp_path):
        """Only by way of a table can such a file be made."""
        table = pa.Table.from_arrays([pa.array(["x"])] * 4, names=["user", "item", "user", "time"])
        pyarrow.parquet.write_table(table, tmp_path / "twice")
        with pytest.raises(InputError, match="the column 'user' for user occurs more than once"):
            read_interactions(tmp_path / "twice", literal.FORM)


class TestQuotes:
    TITLED = b"title,user,item,time\n"

    def test_hold_separators_quotes_and_line_breaks(self, tmp_path):
        """In a used and in an unused column."""
        rows = b'"a, ""b""\nc","x,y","a ""quoted"" one",1000000000\n"",z,"b","1000000001"\n'
        log = read_bytes(tmp_path, self.TITLED + rows)
        assert events(log) == [("x,y", 'a "quoted" one', START), ("z", "b", START + 1)]
        assert log.bad_rows == {}

    def test_may_be_ordinary_characters(self, tmp_path):
        """``quotes: false``."""
        assert events(read_bytes(tmp_path, HEADER + b'"x,"a",1000000000\n', quotes=False)) == [
            ('"x', '"a"', START)
        ]

    def test_within_a_value_are_ordinary_characters(self, tmp_path):
        """They begin no quoted value, so nothing behind them is lost."""
        rows = (
            b'5" disk,x,a",1000000000\n"q" and more,y,b"c"d,1000000001\nit""s,z,"e"f,1000000002\n'
        )
        log = read_bytes(tmp_path, self.TITLED + rows)
        assert events(log) == [
            ("x", 'a"', START),
            ("y", 'b"c"d', START + 1),
            ("z", "ef", START + 2),
        ]
        assert log.bad_rows == {}

    @pytest.mark.parametrize(
        ("rows", "kept", "causes", "quoted"),
        [
            # Closed by the next quoted value of an unused column: all rows until there.
            (
                ['"t,u1,a,1', "t,u2,b,2", '"t",u3,c,3', "t,u4,d,4"],
                ["u3", "u4"],
                {"never closed": 2},
                2,
            ),
            # The same, and nothing stands behind the quote that closes it: there are
            # lines inside that look like rows.
            (
                ["t,u1,a,1", '"t,u2,b,2', "t,u3,c,3", 't",u4,d,4', "t,u5,e,5"],
                ["u1", "u4", "u5"],
                {"never closed": 2},
                3,
            ),
            # Never closed: all rows to the end.
            (
                ["t,u1,a,1", 't,u2,"b,2', "t,u3,c,3", "t,u4,d,4"],
                ["u1"],
                {"wrong number of fields": 1, "never closed": 2},
                3,
            ),
            # A line break within an id, all quotes closed.
            (
                ["t,u1,a,1", 't,"u', '2",b,2', "t,u3,c,3"],
                ["u1", "u3"],
                {"line break inside the user": 1},
                3,
            ),
            (
                ["t,u1,a,1", 't,"u', '2","b', '",2', "t,u3,c,3"],
                ["u1", "u3"],
                {"line break inside the user": 1},
                3,
            ),
        ],
    )
    def test_that_are_not_closed_swallow_nothing_silently(
        self, tmp_path, rows, kept, causes, quoted
    ):
        """Rows that a quote takes in are counted, and the line it stands
        in is quoted.
        """
        content = (
            self.TITLED
            + "\n".join(re.sub(r"\b([1-5])$", r"100000000\1", row) for row in rows).encode()
        )
        log = read_bytes(tmp_path, content, maximum_bad_share=0.9)
        assert [user for user, _, _ in events(log)] == kept
        assert {
            cause.removeprefix("inside a quote that is "): count
            for cause, count in log.bad_rows.items()
        } == causes
        assert min(line for line, _ in bad_lines(tmp_path, content)) == quoted

    def test_of_several_lines_hold_text_with_as_many_separators_as_a_row(self, tmp_path):
        rows = (
            f't,u1,a,{START}\n"so, many, of, them\nand, again, of, 4\nso,,,{START}\n,x,'
            f' ,4",u2,b,{START}\n'
        )
        log = read_bytes(tmp_path, self.TITLED + rows.encode())
        assert [user for user, _, _ in events(log)] == ["u1", "u2"] and log.bad_rows == {}

    def test_of_two_neighbours_close_each_other(self, tmp_path):
        """Inch marks at the beginning of one title and the end of the next: between
        tabs that is told from a text of two lines.
        """
        rows = (
            f'u1\ta\t{START}\tt\nu2\tb\t{START}\t"t\nu3\tc\t{START}\tt"\nu4\td\t{START}\t"t\nu"\n'
        )
        log = read_bytes(
            tmp_path, b"user\titem\ttime\ttitle\n" + rows.encode(), maximum_bad_share=0.5
        )
        assert [user for user, _, _ in events(log)] == ["u1", "u2", "u4"]
        assert log.bad_rows == {"inside a quote that is never closed": 1}

    def test_not_closed_in_a_long_file_are_an_error_with_a_remedy(self, tmp_path, monkeypatch):
        """What goes over more than a block cannot be held."""
        monkeypatch.setattr(transcoding, "BLOCK", 256)
        content = (
            self.TITLED + b't,x,a,1000000000\n"t,x,a,1000000000\n' + b"t,x,a,1000000000\n" * 99
        )
        assert re.match(
            r"cannot be read as delimited: a row is longer than .*never closed\? `quotes: false`",
            refusal(tmp_path, content),
        )

    LIKE_A_ROW = '[^",]*,[^",]+,[^",]+,[0-9]+'

    def random_text(self, generator, *, broken: bool) -> str:
        """Rows with blank, wrong and quoted ones among them, a good one first;
        ``broken`` puts quotes and line breaks anywhere.
        """
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        for k in range(int(generator.integers(1, 25))):
            title = "".join(generator.choice(list('ab,"\n é'), generator.integers(0, 6)))
            row = [title, f"u{k}", f"i{k}", START + k]
            kind = generator.integers(9)
            if kind == 0:
                sink.write("\n")
            elif kind == 1:
                writer.writerow([*row, "more"])
            elif kind == 2:
                writer.writerow([*row[:3], "soon"])
            else:
                writer.writerow(row)
        text = sink.getvalue()
        for _ in range(int(generator.integers(1, 4)) if broken else 0):
            place = int(generator.integers(len(text) + 1))
            text = (
                text[:place]
                + generator.choice(['"', '"', '"', '""', ',"', '",', "\n"])
                + text[place:]
            )
        return f"t,u,i,{START}\n" + text.strip("\n") + generator.choice(["", "\n"])

    def expected(self, text: str) -> tuple[list[tuple[str, str, int]], Counter, set[int]]:
        """Events, bad rows by cause and bad lines of text behind the header, by the
        literal state machine.
        """
        kept, causes, lines = [], Counter(), set()
        for line, row, fields, lost in literal.csv_rows(text, re.compile(self.LIKE_A_ROW)):
            causes["inside a quote that is never closed"] += lost
            user, item, time = (*fields, "", "", "")[1:4]
            broken = [
                name
                for name, value in (("user", user), ("item", item), ("timestamp", time))
                if "\n" in value
            ]
            if not row.strip():
                continue
            if len(fields) != 4:
                causes["wrong number of fields"] += 1
            elif broken:
                causes[f"line break inside the {broken[0]}"] += 1
            elif not user + item + time:
                causes["no user, item and time"] += 1
            elif not user or not item:
                causes["empty user or item"] += 1
            elif not re.fullmatch(r"\d+", time):
                causes["time cannot be read"] += 1
            elif len(time) != 10:
                causes["time outside 1990 to 2034"] += 1
            else:
                kept.append((user, item, int(time)))
                continue
            lines.add(line + 1)
        return kept, +causes, lines

    def test_whole_files_equal_a_state_machine_whatever_the_blocks(self, tmp_path, monkeypatch):
        """Events, counts and line numbers of bad rows; line breaks in unused columns
        and blank lines shift none.
        """
        generator = np.random.default_rng(2)
        for _ in range(30):
            text = self.random_text(generator, broken=False)
            kept, causes, lines = self.expected(text)
            if not kept:
                continue
            for block in (60, 64, 71, 8 << 20):
                monkeypatch.setattr(transcoding, "BLOCK", block)
                log = read_bytes(
                    tmp_path, self.TITLED + text.encode(), maximum_bad_share=0.99, time="s"
                )
                assert (events(log), log.bad_rows) == (kept, causes)
                if lines:
                    assert [
                        line
                        for line, _ in bad_lines(tmp_path, self.TITLED + text.encode(), time="s")
                    ] == sorted(lines)[:5]

    def test_broken_quotes_equal_a_state_machine(self, tmp_path):
        """Quotes and line breaks put in anywhere: events and counts."""
        generator = np.random.default_rng(3)
        swallowed = 0
        for _ in range(250):
            text = self.random_text(generator, broken=True)
            kept, causes, lines = self.expected(text)
            if not kept:
                continue
            log = read_bytes(
                tmp_path, self.TITLED + text.encode(), maximum_bad_share=0.999, time="s"
            )
            assert (events(log), log.bad_rows) == (kept, causes)
            swallowed += "inside a quote that is never closed" in causes
            if lines and "inside a quote that is never closed" not in causes:
                assert [
                    line for line, _ in bad_lines(tmp_path, self.TITLED + text.encode(), time="s")
                ] == sorted(lines)[:5]
        assert swallowed > 25

    def test_broken_quotes_are_followed_the_same_way_through_blocks_of_any_size(self):
        """Lines of rows and swallowed lines, from blocks that end within values and
        quotes.
        """
        generator = np.random.default_rng(4)
        for _ in range(300):
            text = self.random_text(generator, broken=True)
            rows = literal.csv_rows(text, re.compile(self.LIKE_A_ROW))
            followed = quotes.QuotesFollowed(
                io.BytesIO(text.encode()), ",", 1, re.compile(self.LIKE_A_ROW.encode())
            )
            size = int(generator.integers(1, 30))
            while followed.read(size):
                pass
            assert followed.lines(np.arange(len(rows))).tolist() == [line for line, *_ in rows]
            assert sum(lost for _, _, lost in followed.lost) == sum(lost for *_, lost in rows)
            begins = np.array([line for line, *_ in rows])
            swallowing = {
                int(begins[np.searchsorted(begins, line, "right") - 1])
                for line, _, _ in followed.lost
            }
            assert swallowing == {line for line, *_, lost in rows if lost}


class TestText:
    @pytest.mark.parametrize(
        ("content", "form"),
        [
            (b"\xef\xbb\xbf" + HEADER + ROW, {}),
            (b"\xef\xbb\xbf" + ROW, POSITIONS),
            (b"\xef\xbb\xbf" + b'"x","a",1000000000', POSITIONS),
            ((HEADER + ROW).decode().encode("utf-16"), {"encoding": "utf-16"}),
            (b'\xef\xbb\xbf{"user": "x", "item": "a", "time": 1000000000}', {}),
            (b"\xef\xbb\xbf{'user': 'x', 'item': 'a', 'time': 1000000000}", {}),
        ],
    )
    def test_a_byte_order_mark_is_no_part_of_it(self, tmp_path, content, form):
        """With a header, without, before a quote, and before records."""
        assert events(read_bytes(tmp_path, content, **form)) == [("x", "a", START)]

    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    @pytest.mark.parametrize("kind", ["delimited", "json-lines", "python-literals"])
    def test_ends_of_lines(self, tmp_path, kind, end):
        """LF or CRLF, behind the last line or not, with blank lines, which are no bad
        rows, between and behind.
        """
        rows = [("x", "a", START), ("y", "b", START + 1)]
        lines = written(kind, rows).rstrip().split(b"\n")
        for last in (b"", end, end * 3):
            log = read_bytes(tmp_path, (end * 2).join(lines) + last)
            assert (events(log), log.bad_rows) == (rows, {})

    def test_blank_rows_are_not_bad(self, tmp_path):
        """Nor spaces alone. Rows of separators, which spreadsheets append, are counted:
        another column may hold something.
        """
        log = read_bytes(tmp_path, HEADER + b"   \n" + ROW + b"\n" + ROW)
        assert (len(log.user), log.bad_rows) == (2, {})
        log = read_bytes(tmp_path, HEADER + ROW + b",,\n,,\n", maximum_bad_share=0.7)
        assert (len(log.user), log.bad_rows) == (1, {"no user, item and time": 2})
        assert events(read_bytes(tmp_path, b"\n\r\n" + ROW, **POSITIONS)) == [("x", "a", START)]

    @pytest.mark.parametrize(
        "encoding",
        ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "UTF8", "utf-8-sig"],
    )
    @pytest.mark.parametrize("kind", ["delimited", "json-lines", "python-literals"])
    def test_encodings(self, tmp_path, kind, encoding):
        """Also of two and four bytes a character, in which the format has to be told,
        too.
        """
        rows = [("usér", "ö,x", START)]
        content = written(kind, rows).decode()
        content = (
            content if kind != "json-lines" else json.dumps(json.loads(content), ensure_ascii=False)
        )
        assert events(read_bytes(tmp_path, content.encode(encoding), encoding=encoding)) == rows

    def test_gbk(self, tmp_path, monkeypatch):
        """Characters of two bytes, also across blocks and with a separator of several
        characters.
        """
        rows = [(f"用户{k}", f"商品{k}", START + k) for k in range(30)]
        for block in (60, 61, 62, 63, 8 << 20):
            monkeypatch.setattr(transcoding, "BLOCK", block)
            for separator in (",", "，，"):
                lines = [separator.join(map(str, row)) for row in [("user", "item", "time"), *rows]]
                assert (
                    events(
                        read_bytes(
                            tmp_path,
                            "\n".join(lines).encode("gbk"),
                            encoding="gbk",
                            separator=separator,
                        )
                    )
                    == rows
                )

    @pytest.mark.parametrize("encoding", ["nonsense", "rot13"])
    def test_an_unknown_encoding_is_named(self, tmp_path, encoding):
        """And a codec that is none of text."""
        assert re.match(
            f".*{encoding}.*; name an encoding of text",
            refusal(tmp_path, HEADER + ROW, encoding=encoding),
        )

    def test_utf_16_that_is_not_said_is_recognised(self, tmp_path):
        """By its byte order mark."""
        assert (
            refusal(tmp_path, (HEADER + ROW).decode().encode("utf-16"))
            == "is UTF-16, not UTF-8; say so with `encoding: utf-16`"
        )

    def test_bytes_that_are_no_text_do_no_harm_in_an_unused_column(self, tmp_path):
        """Nor in the name of one."""
        for title in (b"caf\xe9", b"\xff\xfe", b'"\xe9\n\xe9"'):
            log = read_bytes(tmp_path, b"user,item,time,t\xe9\nx,a,1000000000," + title + b"\n")
            assert (events(log), log.bad_rows) == ([("x", "a", START)], {})
        for record in (
            b'{"user": "x", "item": "a", "time": 1000000000, "t": "\xe9"}',
            b"{'user': 'x', 'item': 'a', 'time': 1000000000, 't': '\xe9'}",
        ):
            assert events(read_bytes(tmp_path, record)) == [("x", "a", START)]

    @pytest.mark.parametrize("encoding", ["utf-8", "gbk", "ascii"])
    def test_bytes_that_are_no_text_in_an_id_are_counted_and_quoted_with_their_line(
        self, tmp_path, encoding
    ):
        """Once for a row, even if user, item and time are hit, and also where the
        number of fields is wrong.
        """
        content = HEADER + ROW + b"caf\xff,a,1000000000\n\n\xff,\xff,\xff\nx,\xff\n" + ROW
        name = encoding.upper()
        assert bad_rows(tmp_path, content, encoding=encoding) == {
            "wrong number of fields": 1,
            f"user is not {name}": 2,
        }
        quoted = [
            rf"user is not {name}: caf\xff",
            rf"user is not {name}: \xff",
            r"wrong number of fields: x,\xff",
        ]
        assert bad_lines(tmp_path, content, encoding=encoding) == list(
            zip((3, 5, 6), quoted, strict=True)
        )
        record = b'{"user": "caf\xff", "item": "a", "time": 1000000000}'
        assert bad_lines(tmp_path, record, encoding=encoding) == [
            (1, f"id or time is not {name}: " + record.decode("ascii", "backslashreplace"))
        ]


class TestRows:
    def test_bad_ones_are_counted_by_cause_and_quoted_with_their_line(self, tmp_path):
        """The first five of the file; blank lines, bad lines and line breaks within
        values shift no number.
        """
        rows = [
            "x,a,1000000000,t",
            "",
            "x,y",
            "x,a,1000000000,t,z",
            '"x",a,1000000000,"t',
            't"',
            "x,y,soon,t",
            "",
            ",y,1000000000,t",
            "x,y,5,t",
            "z",
        ]
        content = "\n".join(["user,item,time,title", *rows]).encode()
        assert bad_rows(tmp_path, content) == {
            "wrong number of fields": 3,
            "empty user or item": 1,
            "time cannot be read": 1,
            "time outside 1990 to 2034": 1,
        }
        assert bad_lines(tmp_path, content) == [
            (4, "wrong number of fields: x,y"),
            (5, "wrong number of fields: x,a,1000000000,t,z"),
            (8, "time cannot be read: user 'x', item 'y', timestamp 'soon'"),
            (10, "empty user or item: user '', item 'y', timestamp '1000000000'"),
            (11, "time outside 1990 to 2034: user 'x', item 'y', timestamp '5'"),
        ]

    def test_few_are_left_out(self, tmp_path):
        """1 % of rows may be bad."""
        good = [f"u{k},i{k},{START + k}" for k in range(400)]
        lines = [
            "user,item,time",
            *good[:100],
            "x,y",
            *good[100:200],
            f"x,y,{START},z",
            *good[200:],
            "x,y,soon",
            f",y,{START}",
        ]
        log = read_bytes(tmp_path, "\n".join(lines).encode())
        assert events(log) == [(f"u{k}", f"i{k}", START + k) for k in range(400)]
        assert log.bad_rows == {
            "wrong number of fields": 2,
            "empty user or item": 1,
            "time cannot be read": 1,
        }

    @pytest.mark.parametrize(
        ("share", "good", "bad", "tolerated"),
        [
            *(
                (None, 99, 1, True),
                (None, 98, 1, False),
                (0, 9, 0, True),
                (0, 999, 1, False),
                (0.5, 3, 3, True),
                (0.5, 3, 4, False),
            ),
            *(
                (0.29, 71, 29, True),
                (0.07, 93, 7, True),
                (0.3, 7, 3, True),
                (0.99, 1, 99, True),
                (0.99, 0, 5, False),
            ),
        ],
    )
    def test_the_share_that_may_be_bad(self, tmp_path, share, good, bad, tolerated):
        """Exactly the limit is tolerated; a log without a usable row never is."""
        content = HEADER + ROW * good + b"x\n" * bad
        form = {} if share is None else {"maximum_bad_share": share}
        if tolerated:
            assert sum(read_bytes(tmp_path, content, **form).bad_rows.values()) == bad
        else:
            expected = (
                f"{bad} of {good + bad:,} rows cannot be used (wrong number of fields: {bad}); at"
                f" most {0.01 if share is None else share} "
            )
            assert refusal(tmp_path, content, **form).startswith(expected)

    def test_words_for_missing_values_are_ids(self, tmp_path):
        """NA, null, nan and None are text like any other."""
        log = read_bytes(tmp_path, b"user,item,time\nNA,null,1000000000\nnan,None,1000000000\n")
        assert events(log) == [("NA", "null", START), ("nan", "None", START)]

    def test_ids_are_text_in_every_block_of_a_long_file(self, tmp_path):
        """200,000 rows of numbers only, over several blocks, then letters: the earlier
        numeric id and the later one are one item.
        """
        numbers = b"".join(
            b"1,%010d,1000000000,5,an unused column to fill the block\n" % (k % 1000)
            for k in range(200_000)
        )
        assert len(numbers) > transcoding.BLOCK
        log = read_bytes(
            tmp_path,
            b"user,item,time,rating,text\n"
            + numbers
            + b"1,B0001,1000000000,4.5,x\n1,0000000007,1000000000,x,x\n",
        )
        assert len(log.item) == 200_002
        assert len(log.item_ids) == 1001
        assert log.item[-1] == log.item[7]

    @pytest.mark.parametrize("kind", ["delimited", "json-lines", "python-literals", "parquet"])
    def test_a_missing_item_is_counted_and_ids_stay_whole_numbers(self, tmp_path, kind):
        """In Parquet by way of NaN, as pandas writes it."""
        rows = [("1", "1", START), ("2", "", START), ("3", "3", START)]
        content = written(kind, rows)
        if kind == "parquet":
            content = parquet(
                {"user": [1, 2, 3], "item": [1.0, float("nan"), 3.0], "time": [START] * 3}
            )
        log = read_bytes(tmp_path, content, maximum_bad_share=0.5)
        assert log.bad_rows == {"empty user or item": 1}
        assert (log.user_ids.to_pylist(), log.item_ids.to_pylist()) == (["1", "3"], ["1", "3"])
        assert re.match(
            r"1 of 3 rows cannot be used \(empty user or item: 1\)", refusal(tmp_path, content)
        )


class TestJsonLines:
    @pytest.mark.parametrize(
        ("value", "identifier"),
        [
            *[
                ('"a"', "a"),
                ('"007"', "007"),
                ('"null"', "null"),
                ('"\\u00e9\\n\\""', 'é\n"'),
                ('"\\ud83d\\ude00"', "😀"),
            ],
            *[
                (number, number)
                for number in ("5", "1E5", "1.0", "-0", "1234567890123456789", "9" * 5000)
            ],
        ],
    )
    def test_ids_are_as_they_are_written(self, tmp_path, value, identifier):
        """Numbers of JSON are not computed with: neither 1E5, nor 1.0,
        nor many digits.
        """
        log = read_bytes(
            tmp_path, f'{{"time": "1000000000", "item": {value}, "user": {value}}}'.encode()
        )
        assert events(log) == [(identifier, identifier, START)]

    @pytest.mark.parametrize(
        "time", ["1000000000", "1e9", "1000000000.0", '"1000000000"', '"2001-09-09T01:46:40Z"']
    )
    def test_times_are_numbers_or_text(self, tmp_path, time):
        """One time in several ways."""
        assert events(
            read_bytes(tmp_path, f'{{"user": "x", "item": "a", "time": {time}}}'.encode())
        ) == [("x", "a", START)]

    def test_other_keys_may_hold_anything_and_the_last_of_equal_ones_counts(self, tmp_path):
        """Nested values, NaN and half a surrogate pair where they are not used."""
        unused = rb'"t": {"user": [1, {"a": null}]}, "n": NaN, "i": Infinity, "s": "\ud800"'
        record = b'{"user": "y", ' + unused + b', "item": "a", "user": "x", "time": 1000000000}'
        assert events(read_bytes(tmp_path, record)) == [("x", "a", START)]

    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            ('{"item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": null, "item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": NaN, "item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": "", "item": "a", "time": 1000000000}', "empty user or item"),
            ('{"user": "x", "item": "a"}', "time cannot be read"),
            ('{"user": "x", "item": "a", "time": Infinity}', "time cannot be read"),
            (
                '{"user": "x", "item": ["a"], "time": 1000000000}',
                "id or time is neither text nor a number",
            ),
            (
                '{"user": {"id": 1}, "item": "a", "time": 1000000000}',
                "id or time is neither text nor a number",
            ),
            (
                '{"user": true, "item": "a", "time": 1000000000}',
                "id or time is neither text nor a number",
            ),
            ('{"user": "\\ud800", "item": "a", "time": 1000000000}', "id or time is not UTF-8"),
            ('["x", "a", 1000000000]', "not a JSON object"),
            ('"x"', "not a JSON object"),
            ("null", "not a JSON object"),
            ("{'user': 'x'}", "not a JSON object"),
            ('{"user": "x", "item": "a", "time": 1000000000} {}', "not a JSON object"),
            ('{"user": ' + "[" * 100_000, "not a JSON object"),
            ('{"user": "x", "item": "a", "ti', "not a JSON object"),
        ],
        ids=range(17),
    )
    def test_bad_lines_are_counted_and_quoted(self, tmp_path, line, cause):
        """The last of them also as the truncated end of a file."""
        good = '{"user": "x", "item": "a", "time": 1000000000}'
        for content in (f"{good}\n\n{line}\n{good}\n", f"{good}\n \n{line}"):
            assert bad_rows(tmp_path, content.encode()) == {cause: 1}
            assert [
                (number, said[: len(cause)])
                for number, said in bad_lines(tmp_path, content.encode())
            ] == [(3, cause)]

    @pytest.mark.parametrize(
        "content", [b'[{"user": "x"}]', b'\xef\xbb\xbf [\n {"user": "x"},\n', b"[[1, 2], [3, 4]]"]
    )
    def test_one_array_is_an_error_with_a_remedy(self, tmp_path, content):
        """On one line or on several."""
        assert re.match(
            r"is one JSON array; write one record per line, for example with jq -c '\.\[\]'",
            refusal(tmp_path, content),
        )


class TestPythonLiterals:
    GOOD = "{'user': 'x', 'item': 'a', 'time': 1000000000}"

    def test_rows_are_read_and_nothing_is_run(self, tmp_path, monkeypatch):
        """As in the catalogue: an apostrophe within double quotes, a call, and a
        truncated last line, gzipped.
        """
        monkeypatch.chdir(tmp_path)
        call = "__import__('os').system('touch pwned')"
        lines = [
            """{u'user_id': u'u1', u'item': 1, 'time': 1000000000, 'text': "it's"}""",
            f"{{'user_id': 'u2', 'item': 2, 'time': 1000000001, 'text': {call}}}",
            f"{{'user_id': {call}, 'item': 2, 'time': 1000000001}}",
            """{'user_id': "u'3", 'item': 3, 'time': 1000000002, 'text': 'it\\'s'}""",
            call,
            """{'user_id': 'u4', 'item': 4, 'ti""",
        ]
        content, columns = (
            gzip.compress("\n".join(lines).encode()),
            {
                **literal.FORM["columns"],
                "user": "user_id",
            },
        )
        log = read_bytes(tmp_path, content, columns=columns, maximum_bad_share=0.9)
        assert events(log) == [("u1", "1", START), ("u'3", "3", START + 2)]
        assert log.bad_rows == {"not a dictionary of Python literals": 4}
        assert [line for line, _ in bad_lines(tmp_path, content, columns=columns)] == [2, 3, 5, 6]
        assert not (tmp_path / "pwned").exists()

    @pytest.mark.parametrize(
        ("value", "identifier"),
        [
            *[
                ("'a'", "a"),
                ("u'é'", "é"),
                ('"it\'s"', "it's"),
                ("'say \"x\"'", 'say "x"'),
                (r"'\x41\n\\\''", "A\n\\'"),
                (r"'\u00e9'", "é"),
            ],
            *[
                ("5", "5"),
                ("-5", "-5"),
                ("1E5", "1E5"),
                ("1.0", "1.0"),
                ("9" * 25, "9" * 25),
                ("1e999999999", "1e999999999"),
                ("'a' 'b'", "ab"),
            ],
        ],
    )
    def test_ids_are_text_or_numbers_as_they_are_written(self, tmp_path, value, identifier):
        """By the pattern, and by Python's own parser, which a nested
        value brings in.
        """
        for nested in ("", ", 'more': [{'a': (1, 2.5)}, None, True]"):
            record = f"{{'user': {value}, 'item': {value}, 'time': 1000000000{nested}}}"
            assert events(read_bytes(tmp_path, record.encode())) == [
                (identifier, identifier, START)
            ]

    @pytest.mark.parametrize(
        "value",
        [
            *(
                "f()",
                "os",
                "[x for x in (1,)]",
                "f'{1}'",
                "().__class__",
                "9**9**9",
                "lambda: 1",
                "1 if 1 else 2",
                "(x := 1)",
                "x[0]",
                "{**{}}",
            ),
            *(
                "{[]: 1}",
                "'a",
                "'\\x'",
                "'\0'",
                "'a\rb'",
                "007",
                "-" * 20_000 + "1",
                "[" * 20_000,
                "a" + ".b" * 20_000,
                "1" + "+1" * 20_000,
                "",
            ),
        ],
        ids=range(22),
    )
    def test_nothing_else_is_evaluated(self, tmp_path, value):
        """Neither as an id nor, but for text, in an unused column; deep nesting and
        huge powers end at once.
        """
        for key in ("user", "more") if not value.startswith("'") else ("user",):
            record = f"{{'item': 'a', 'time': 1000000000, 'user': 'x', '{key}': {value}}}"
            content = f"{self.GOOD}\n{record}\n".encode()
            assert bad_rows(tmp_path, content) == {"not a dictionary of Python literals": 1}
            assert [line for line, _ in bad_lines(tmp_path, content)] == [2]

    @pytest.mark.parametrize("value", ["True", "[1]", "{'a': 1}", "(1, 2)", "b'x'", "..."])
    def test_other_literals_are_no_ids(self, tmp_path, value):
        """They are counted, None as a missing id."""
        record = f"{{'user': {value}, 'item': 'a', 'time': 1000000000}}"
        assert bad_rows(tmp_path, f"{self.GOOD}\n{record}".encode()) == {
            "id or time is neither text nor a number": 1
        }
        assert bad_rows(tmp_path, f"{self.GOOD}\n{record.replace(value, 'None')}".encode()) == {
            "empty user or item": 1
        }

    @staticmethod
    def random_value(generator, depth: int = 0) -> str:
        """A literal as Python or people write it."""
        text = "".join(generator.choice(list("ab'\"\\,:{} é\n1"), generator.integers(0, 6)))
        kinds = [
            repr(text),
            json.dumps(text),
            "u" + repr(text),
            str(int(generator.integers(-9, 10**12))),
            repr(float(generator.normal() * 10.0 ** generator.integers(-20, 20))),
            str(
                generator.choice(
                    [
                        "True",
                        "False",
                        "None",
                        "1e5",
                        "0x1F",
                        "1_000",
                        "+5",
                        "00",
                        "b'x'",
                        "'a' 'b'",
                        "-0.0",
                        "2j",
                    ]
                )
            ),
        ]
        if depth < 2 and generator.integers(4) == 0:
            inner = [TestPythonLiterals.random_value(generator, depth + 1) for _ in range(3)]
            return str(
                generator.choice(["[{}, {}, {}]", "({}, {}, {})", "{{'k': {}, 'l': [{}, {}]}}"])
            ).format(*inner)
        return kinds[generator.integers(len(kinds))]

    @pytest.mark.filterwarnings("ignore:invalid escape")
    def test_equals_literal_eval_on_random_and_mutated_records(self):
        """The same values of wanted keys, and the same acceptance but for unwanted text
        that is no literal.
        """
        generator = np.random.default_rng(1)
        wanted = frozenset(("user", "item", "time"))
        outcomes = Counter()
        for _ in range(3000):
            keys = generator.permutation(["user", "item", "time", "text", "more"])[
                : generator.integers(1, 6)
            ]
            space = ["", " ", "\t"][generator.integers(3)]
            pairs = [
                f"{generator.choice(['', 'u'])}'{key}'{space}:{space}{self.random_value(generator)}"
                for key in keys
            ]
            record = "{" + f"{space},{space}".join(pairs) + "}"
            for mutate in (False, True):
                if mutate:
                    place = int(generator.integers(len(record)))
                    record = (
                        record[:place]
                        + generator.choice(list("'\"\\{}[](),: 1ax"))
                        + record[place + int(generator.integers(2)) :]
                    )
                    record = record.strip()
                try:
                    expected = ast.literal_eval(record)
                except (ValueError, SyntaxError, TypeError):
                    expected = None
                try:
                    found = parse_python_record(record, wanted)
                except ValueError:
                    found = None
                if isinstance(expected, dict):
                    assert found is not None, record
                    assert {key for key in expected if isinstance(key, str)} == set(found)
                    assert all(
                        self.is_same(expected[key], found[key]) for key in wanted & set(found)
                    ), record
                elif found is not None:
                    assert any(self.is_malformed(found[key]) for key in set(found) - wanted), record
                outcomes[mutate, isinstance(expected, dict)] += 1
        assert min(outcomes[False, True], outcomes[True, True], outcomes[True, False]) > 300

    @staticmethod
    def is_same(expected, found) -> bool:
        """Whether a value is what it should be: text, nothing, a number as it is
        written, or something that is no id.
        """
        if expected is None or isinstance(expected, str):
            return found == expected
        if isinstance(expected, (int, float, complex)) and not isinstance(expected, bool):
            return found == (expected,) or ast.literal_eval(found) == expected
        return found is not None and not isinstance(found, str)

    @staticmethod
    def is_malformed(text) -> bool:
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return True
        return False


class TestParquet:
    @pytest.mark.parametrize(
        ("kind", "bits"), [(pa.float16(), 11), (pa.float32(), 24), (pa.float64(), 53)]
    )
    def test_ids_whose_last_digits_a_type_has_lost_are_refused(self, tmp_path, kind, bits):
        for number, fits in ((2**bits, True), (2**bits + 4, False)):
            content = parquet(
                {
                    "user": pa.array([float(number)], pa.float64()).cast(kind),
                    "item": ["a"],
                    "time": [START],
                }
            )
            if fits:
                assert read_bytes(tmp_path, content).user_ids.to_pylist() == [str(number)]
            else:
                with pytest.raises(InputError, match=rf"user holds numbers above 2\^{bits}"):
                    read_bytes(tmp_path, content)

    def test_seconds_in_single_precision_are_refused(self, tmp_path):
        content = parquet(
            {"user": ["u"], "item": ["a"], "time": pa.array([float(START)], pa.float32())}
        )
        with pytest.raises(InputError, match=r"a time of type float.*only to two minutes"):
            read_bytes(tmp_path, content)

    @pytest.mark.parametrize(
        "kind",
        [
            *(
                pa.string(),
                pa.large_string(),
                pa.string_view(),
                pa.dictionary(pa.int32(), pa.string()),
                pa.dictionary(pa.int8(), pa.int64()),
            ),
            *(
                pa.int8(),
                pa.int32(),
                pa.int64(),
                pa.uint64(),
                pa.float16(),
                pa.float32(),
                pa.float64(),
            ),
        ],
        ids=str,
    )
    def test_ids_of_each_type(self, tmp_path, kind):
        """Text or whole numbers; null, and NaN in its place, is a missing id. Several
        row groups are one file.
        """
        identifiers = pa.array([10, 9, 10, None, 100], pa.int64())
        column = (
            identifiers.cast(kind.value_type).dictionary_encode()
            if pa.types.is_dictionary(kind)
            else identifiers.cast(kind)
        )
        if pa.types.is_floating(kind):
            column = pa.array([10, 9, 10, float("nan"), 100], kind)
        content = parquet({"user": column, "item": column, "time": [START] * 5}, row_group_size=2)
        log = read_bytes(tmp_path, content, maximum_bad_share=0.5)
        assert events(log) == [(text, text, START) for text in ("10", "9", "10", "100")]
        assert log.bad_rows == {"empty user or item": 1}
        assert bad_lines(tmp_path, content)[0][0] == 4

    def test_numbers_at_the_end_of_their_range(self, tmp_path):
        """The largest unsigned and the smallest signed one."""
        content = parquet(
            {
                "user": pa.array([2**64 - 1], pa.uint64()),
                "item": pa.array([-(2**63)]),
                "time": [START],
            }
        )
        assert events(read_bytes(tmp_path, content)) == [(str(2**64 - 1), str(-(2**63)), START)]

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (
                [1.5, 2.0],
                "the column of type double for user holds fractions; ids are text or whole numbers",
            ),
            ([1e300, 2.0], r"the column of type double for user holds numbers above 2\^53"),
            (
                [True, False],
                "a column of type bool cannot be the user; ids are text or whole numbers",
            ),
            ([Decimal("1.5"), Decimal(2)], "the column of type decimal.* for user holds fractions"),
            (
                [b"x", b"\xe9"],
                "the column of type binary for user holds bytes that are no text in UTF-8",
            ),
            ([["x"], ["y"]], "a column of type list.* cannot be the user"),
            ([{"a": 1}, {"a": 2}], "a column of type struct.* cannot be the user"),
        ],
    )
    def test_ids_of_other_types_are_an_error(self, tmp_path, values, message):
        """The message names the type and the role."""
        assert re.match(
            message,
            refusal(tmp_path, parquet({"user": values, "item": ["a", "b"], "time": [START] * 2})),
        )

    def test_damaged_files_are_an_error_that_names_them(self, tmp_path):
        """Cut short, with a byte flipped anywhere, no Parquet at all, and text that is
        not UTF-8: refused, or read; no traceback.
        """
        generator = np.random.default_rng(0)
        user = generator.integers(0, 99, 500).astype(str)
        content = parquet(
            {"user": user, "item": user, "time": [START] * 500},
            compression="snappy",
            write_page_checksum=True,
        )
        for damaged in (content[:-10], content[:4], b""):
            assert refusal(tmp_path, damaged, format="parquet").startswith(
                "cannot be read as parquet: Parquet "
            )
        refused = 0
        for place in generator.integers(4, len(content), 150).tolist():
            (tmp_path / "log").write_bytes(
                content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
            )
            try:
                read_interactions(tmp_path / "log", {**literal.FORM, "time": "s"})
            except InputError:
                refused += 1
        assert refused > 75
        latin = parquet(
            {"user": ["café"], "item": ["a"], "time": [START]}, compression="none"
        ).replace("é".encode(), b"\xe9 ")
        assert re.match("cannot be read as parquet: .*UTF8", refusal(tmp_path, latin))


FORMATS = ("delimited", "json-lines", "python-literals", "parquet")
CONTAINERS = {
    "plain": lambda content: content,
    "gzip": gzip.compress,
    "gzip of two parts": lambda content: gzip.compress(content[:9]) + gzip.compress(content[9:]),
    "zip": lambda content: zipped({"log": content}),
    "zip, stored": lambda content: zipped({"log": content}, zipfile.ZIP_STORED),
    "zip, bzip2": lambda content: zipped({"log": content}, zipfile.ZIP_BZIP2),
    "zip of gzip": lambda content: zipped({"log.gz": gzip.compress(content)}),
    "gzip of gzip": lambda content: gzip.compress(gzip.compress(content)),
    "gzip of zip": lambda content: gzip.compress(zipped({"log": content})),
    "zip among folders": lambda content: zipped(
        {"data/": b"", "data/log": content, "__MACOSX/": b"", "__MACOSX/data/._log": b"x"}
    ),
}


class TestContainers:
    @pytest.mark.parametrize("container", CONTAINERS)
    @pytest.mark.parametrize("kind", FORMATS)
    def test_hold_each_format_which_is_told_by_the_content(self, tmp_path, kind, container):
        """The file's name says nothing."""
        rows = [("x", "a", START), ("y", "b", START + 1), ("x", "é", START + 2)]
        content = CONTAINERS[container](written(kind, rows))
        assert events(read_bytes(tmp_path, content)) == rows
        assert events(read_bytes(tmp_path, content, format=kind)) == rows

    @pytest.mark.parametrize("kind", FORMATS)
    def test_with_several_members(self, tmp_path, kind):
        """One has to be named; the message lists them."""
        rows = [("x", "a", START)]
        content = zipped({"readme": b"nothing", "deep/log": written(kind, rows)})
        assert events(read_bytes(tmp_path, content, member="deep/log")) == rows
        assert (
            refusal(tmp_path, content)
            == "which member to read is not said in this zip archive; found: readme, deep/log; name"
            " one as `member`"
        )
        assert (
            refusal(tmp_path, content, member="log")
            == "no member 'log' in this zip archive; found: readme, deep/log; name one as `member`"
        )

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (gzip.compress(b""), "is empty"),
            (zipped({"log": b""}), "is empty"),
            (zipped({}), "which member to read is not said in this zip archive; found: nothing"),
            (HEADER, "holds no rows"),
            (HEADER.strip(), "holds no rows"),
            (HEADER + b"\n\n", "holds no rows"),
            (parquet({"user": [], "item": [], "time": []}), "holds no rows"),
            (
                bz2.compress(HEADER + ROW),
                (
                    "is compressed with bzip2; gzip, zip and plain files are read, so unpack it or"
                    " pack it anew"
                ),
            ),
            (gzip.compress(lzma.compress(HEADER + ROW)), "is compressed with xz; "),
            (b"(\xb5/\xfd\x04\x00", "is compressed with zstd; "),
            (b"7z\xbc\xaf\x27\x1c", "is compressed with 7-Zip; "),
            (b" <!DOCTYPE html>\n<html>", "is a web page or XML, not a log"),
            (gzip.compress(b"<html><body>404</body></html>"), "is a web page or XML, not a log"),
            (b"<?xml version='1.0'?>", "is a web page or XML, not a log"),
        ],
        ids=range(15),
    )
    def test_of_something_else_are_an_error_that_says_what_it_is(self, tmp_path, content, message):
        """Nothing, other compressions, web pages."""
        assert refusal(tmp_path, content).startswith(message)

    def test_an_encrypted_member_is_an_error(self, tmp_path):
        """The flag of encryption set in the member's own header and in the archive's
        directory.
        """
        content = bytearray(zipped({"log": HEADER + ROW}))
        content[6] |= 1
        content[content.index(b"PK\x01\x02") + 8] |= 1
        assert re.match(
            "the member 'log' cannot be unpacked: .*encrypted.*; unpack it by hand",
            refusal(tmp_path, bytes(content)),
        )

    def test_a_folder_and_a_missing_file_are_an_error(self, tmp_path):
        """In the words of the operating system."""
        for path, message in (
            (tmp_path, "is a directory"),
            (tmp_path / "absent", "no such file or directory"),
        ):
            with pytest.raises(InputError, match=f"^{path}: {message}$"):
                read_interactions(path, literal.FORM)

    @pytest.mark.parametrize(
        "method",
        ["gzip", zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA],
    )
    def test_damaged_ones_are_named_not_a_traceback(self, tmp_path, monkeypatch, method):
        """Cut short or with any one byte flipped, also far behind the first block, an
        archive is refused, or read right.
        """
        monkeypatch.setattr(transcoding, "BLOCK", 4096)
        generator = np.random.default_rng(0)
        rows = [
            (str(user), str(item), START) for user, item in generator.integers(0, 999, (2000, 2))
        ]
        content = written("delimited", rows)
        whole = (
            gzip.compress(content, mtime=0)
            if method == "gzip"
            else zipped({"log": content}, method)
        )
        assert "the archive is damaged" in refusal(tmp_path, whole[: len(whole) // 2])
        for place in [
            *range(0, 60, 2),
            *generator.integers(60, len(whole), 30).tolist(),
            *range(len(whole) - 120, len(whole), 2),
        ]:
            (tmp_path / "log").write_bytes(
                whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
            )
            try:
                log = read_interactions(tmp_path / "log", literal.FORM)
            except InputError as error:
                assert str(error).startswith(f"{tmp_path / 'log'}: ")
            else:
                assert events(log) == rows


def test_the_same_events_are_the_same_log_in_every_format(tmp_path):
    """Random small logs with awkward ids and sub-second times, equal array by array."""
    generator = np.random.default_rng(9)
    letters = list("ab1 ,;\t'\"\\é😀{}:")
    for _ in range(40):
        ids = ["".join(generator.choice(letters, generator.integers(1, 6))) + "." for _ in range(8)]
        ids = (
            [str(number) for number in generator.integers(0, 10**12, 8)]
            if generator.integers(3) == 0
            else ids
        )
        factor = int(generator.choice([1, 10**3, 10**6]))
        rows = [
            (ids[user], ids[item], (START + second) * factor)
            for user, item, second in generator.integers(
                (0, 0, 0), (8, 8, 99), (int(generator.integers(1, 60)), 3)
            ).tolist()
        ]
        logs = [read_bytes(tmp_path, written(kind, rows)) for kind in FORMATS]
        assert events(logs[0]) == [(user, item, time // factor) for user, item, time in rows]
        assert all(literal.is_same(logs[0], log) for log in logs)
