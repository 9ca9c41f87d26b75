"""Delimited text: separators, columns, and rows that cannot be used."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastitem.data.interactions import read_interactions
from lastitem.data.readers import transcoding
from lastitem.data.readers.delimited import SEPARATORS
from lastitem.errors import InputError
from tests import literal
from tests.data.readers.logs import (
    HEADER,
    POSITIONS,
    ROW,
    START,
    bad_lines,
    bad_rows,
    parquet,
    refusal,
    written,
)
from tests.literal import events, read_bytes


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
