"""Text of every encoding, and bytes that are no text."""

from __future__ import annotations

import json
import re

import pytest

from lastitem.data.readers import transcoding
from tests.data.readers.logs import (
    HEADER,
    POSITIONS,
    ROW,
    START,
    bad_lines,
    bad_rows,
    refusal,
    written,
)
from tests.literal import events, read_bytes


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
