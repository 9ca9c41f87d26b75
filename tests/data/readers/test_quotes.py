"""Quoted values: what they hold, and quotes that are never closed."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter

import numpy as np
import pytest

from lastitem.data.readers import quotes, transcoding
from tests import literal
from tests.data.readers.logs import (
    HEADER,
    START,
    bad_lines,
    refusal,
)
from tests.literal import events, read_bytes


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
