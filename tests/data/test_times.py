"""Reading points in time: numbers of every unit, ISO text, patterns, typed columns, and
times relative to a sequence's start.

Python's datetime and fractions are the truth that the fast code is compared with. What
times do to the order of events is in test_core.py.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastitem.data.core import core_filter
from lastitem.data.splits import global_temporal_split
from lastitem.data.times import (
    NANOSECONDS,
    coarsest_unit,
    detect_unit,
    is_plausible,
    to_nanoseconds,
)
from lastitem.errors import InputError
from tests import literal

START = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(texts: list, unit: str, kind: pa.DataType | None = None) -> list[int | None]:
    """Nanoseconds of each value, None where it could not be read."""
    nanoseconds, is_read = to_nanoseconds(pa.array(texts, kind or pa.string()), unit)
    return [
        time if good else None
        for time, good in zip(nanoseconds.tolist(), is_read.tolist(), strict=True)
    ]


def since_epoch(moment: datetime) -> int:
    """Nanoseconds since 1970, by whole microseconds; without a zone the
    moment is UTC.
    """
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1) * 1000


def random_moments(count: int, seed: int) -> list[datetime]:
    """Moments from 1990 to 2034, to the microsecond."""
    drawn = (
        np.random.default_rng(seed)
        .integers(631_152_000_000_000, 2_051_222_400_000_000, count)
        .tolist()
    )
    return [EPOCH.replace(tzinfo=None) + timedelta(microseconds=moment) for moment in drawn]


class TestNumbers:
    @pytest.mark.parametrize("unit", list(NANOSECONDS))
    def test_decimal_text_equals_fractions(self, unit):
        """Signs, leading zeros, spaces and fractions of any length; digits below a
        nanosecond are cut.
        """
        generator = np.random.default_rng(1)
        texts = []
        for _ in range(2000):
            whole = str(
                generator.integers(
                    0, 10 ** int(generator.integers(1, 10)) * 10**9 // NANOSECONDS[unit] + 1
                )
            )
            rest = "".join(map(str, generator.integers(0, 10, generator.integers(0, 14))))
            zeros, point = (
                "0" * generator.integers(0, 2),
                "." * bool(rest or generator.integers(0, 2)),
            )
            texts.append(f"{generator.choice(['', '', '-', '+'])}{zeros}{whole}{point}{rest}")
        expected = [int(Fraction(text.rstrip(".")) * NANOSECONDS[unit]) for text in texts]
        assert read(texts, unit) == expected
        assert read([f" {text}\t" for text in texts], unit) == expected
        whole = [text for text in texts if text.isdigit()]
        assert read(whole, unit) == [int(text) * NANOSECONDS[unit] for text in whole]

    @pytest.mark.parametrize("unit", list(NANOSECONDS))
    def test_scientific_text_equals_fractions_to_a_microsecond(self, unit):
        """It goes through doubles."""
        for text in (
            "1e9",
            "1E+9",
            "1.25e9",
            "1.234567890123e9",
            "-1e5",
            "+1.5E+3",
            "12345e5",
            "1e-3",
        ):
            scaled = Fraction(text) * NANOSECONDS[unit]
            assert abs(read([text], unit)[0] - scaled) <= 1000

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "NaN",
            "inf",
            "1_000",
            "1,5",
            "1.5.0",
            ".5",
            "1e",
            "e5",
            "12x",
            "--1",
            "2001-09-09",
            None,
        ],
    )
    def test_what_is_no_number_is_not_read(self, text):
        """Among numbers, which are read all the same."""
        assert read(["5", text, "7.5"], "s") == [5_000_000_000, None, 7_500_000_000]

    def test_numbers_too_large_for_any_time_stay_implausible(self):
        """They may not wrap around into the present."""
        for texts, kind in (
            (["9" * 19, "-" + "9" * 19, "1e30", "-1e30"], pa.string()),
            ([2**63 - 1, -(2**63), 2**62], pa.int64()),
            ([2**64 - 1, 2**63], pa.uint64()),
            ([1e300, -1e300, float("inf")], pa.float64()),
        ):
            for unit in NANOSECONDS:
                nanoseconds, is_read = to_nanoseconds(pa.array(texts, kind), unit)
                assert not (is_plausible(nanoseconds) & is_read).any()

    def test_numbers_of_typed_columns(self):
        """Integers, doubles and decimals; null and NaN are not read."""
        assert read([START, None], "s", pa.int32()) == [START * 10**9, None]
        assert read([START * 1000, None], "ms", pa.uint64()) == [START * 10**9, None]
        assert read([START + 0.25, float("nan"), None], "s", pa.float64()) == [
            START * 10**9 + 250_000_000,
            None,
            None,
        ]
        assert read([Decimal("1000000000.5")], "s", pa.decimal128(20, 3)) == [
            START * 10**9 + 500_000_000
        ]

    def test_doubles_are_exact_to_a_microsecond(self):
        """Finer digits of today's seconds are noise of the double."""
        for moment in random_moments(300, 3):
            assert read([since_epoch(moment) / 1e9], "s", pa.float64()) == [since_epoch(moment)]


class TestIso:
    ZONES = (
        ("", 0),
        ("Z", 0),
        ("UTC", 0),
        ("+00:00", 0),
        ("+05:30", 330),
        ("-0800", -480),
        ("+02", 120),
    )

    def test_dates_and_times_equal_datetime(self):
        """T or a space, with or without a zone and a space before it, minutes to
        nanoseconds.
        """
        generator = np.random.default_rng(5)
        texts, expected = [], []
        for moment in random_moments(3000, 4):
            zone, minutes = self.ZONES[generator.integers(len(self.ZONES))]
            moment = moment.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=minutes)))
            text = moment.replace(tzinfo=None).isoformat("T "[generator.integers(2)])
            digits = "".join(map(str, generator.integers(0, 10, generator.integers(0, 10))))
            if generator.integers(4) == 0:
                moment, text, digits = moment.replace(second=0), text[:-3], ""
            texts.append(
                text
                + "." * bool(digits)
                + digits
                + " " * (zone != "" and int(generator.integers(2)))
                + zone
            )
            expected.append(since_epoch(moment) + int(digits.ljust(9, "0")))
        assert read(texts, "iso") == expected
        assert read([f"  {text} " for text in texts], "iso") == expected

    def test_dates_equal_datetime(self):
        """A date alone is its midnight."""
        moments = random_moments(300, 6)
        midnight = [
            since_epoch(datetime(moment.year, moment.month, moment.day)) for moment in moments
        ]
        assert read([moment.date().isoformat() for moment in moments], "iso") == midnight

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "2001-02-30",
                "2001-02-29",
                "2001-13-01",
                "2001-00-10",
                "2001-1-1",
                "9999-12-31",
                "0001-01-01",
                "01.01.2001",
                "1000000000",
                "today",
            ),
            *(
                "2001-01-01T24:00:00",
                "2001-01-01T10:60:00",
                "2001-01-01T10:00:00+25:00",
                "2001-01-01T",
                "2001-01-01Z",
                "",
                None,
            ),
        ],
    )
    def test_what_is_no_date_is_not_read(self, text):
        """30 February and years out of reach among them; the good rows beside them are
        read.
        """
        assert read(["2001-02-28", text, "2004-02-29 00:00:01Z"], "iso") == [
            983318400 * 10**9,
            None,
            1078012801 * 10**9,
        ]

    def test_every_day_of_every_month_is_taken_or_refused_as_datetime_does(self):
        """Also days and months that are none, as ISO text and by a pattern."""
        texts, expected = [], []
        for year in (1999, 2000, 2001, 2004):
            for month in range(14):
                for day in range(33):
                    texts.append(f"{year}-{month:02}-{day:02}")
                    try:
                        expected.append(since_epoch(datetime(year, month, day)))
                    except ValueError:
                        expected.append(None)
        assert read(texts, "iso") == expected
        assert read(["/".join(reversed(text.split("-"))) for text in texts], "%d/%m/%Y") == expected


class TestPatterns:
    PATTERNS = (
        *(
            "%d.%m.%Y",
            "%Y%m%d",
            "%m/%d/%y",
            "%b %d, %Y",
            "%d %B %Y",
            "%Y-%m-%d %H:%M:%S.%f",
            "%Y%m%d%H%M%S",
            "%m/%d/%Y %I:%M %p",
        ),
        *(
            "%a %b %d %H:%M:%S %z %Y",
            "%A, %d-%b-%y %H:%M:%S UTC",
            "[%d/%b/%Y:%H:%M:%S %z]",
            "100%% on %Y-%m",
            "%Y",
            "%H.%M on %d.%m.%Y",
        ),
    )

    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_equal_strptime(self, pattern):
        """Random moments written by strftime, and with a character changed: read and
        refused as Python does, in reach of nanoseconds.
        """
        generator = np.random.default_rng(7)
        texts = [
            moment.replace(tzinfo=timezone(timedelta(hours=-3))).strftime(pattern)
            for moment in random_moments(150, 8)
        ]
        for text in texts[:100]:
            place = int(generator.integers(len(text)))
            texts.append(text[:place] + generator.choice(list("0123456789.x ")) + text[place + 1 :])
        expected = []
        for text in texts:
            try:
                moment = datetime.strptime(text, pattern)
                expected.append(since_epoch(moment) if 1678 <= moment.year <= 2261 else None)
            except ValueError:
                expected.append(None)
        found = read([*texts, None], pattern)
        assert found.pop() is None
        assert found == expected

    def test_fractions_go_to_nanoseconds(self):
        """Finer than Python's own %f."""
        assert read(["28.02.2001 10:00:00.123456789"], "%d.%m.%Y %H:%M:%S.%f") == [
            983354400_123456789
        ]

    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("%d.%m.%Y", "now"),
            ("%d.%m.%Y", "today"),
            ("%Y-%m-%d", "today"),
            ("%Y-%m-%d %H:%M:%S", "2001-02-28 10:00:60"),
            ("%d.%m.%Y %H:%M:%S", "28.02.2001 10:00:60"),
            ("%d.%m.%Y %H:%M:%S.%f", "28.02.2001 10:00:00.1234567891"),
            ("%d.%m.%Y %z", "28.02.2001 +02:00:30"),
            ("%d.%m.%Y %Z", "28.02.2001 CET"),
            ("%d.%m.%Y", "28.02.9999"),
            ("%d.%m.%Y", "28.02.0000"),
        ],
    )
    def test_what_a_library_would_make_a_time_of_is_not_read(self, pattern, text):
        """Words for the present, leap seconds, digits finer than a nanosecond, zones
        by other names, years out of reach.
        """
        good = datetime(2001, 2, 28, tzinfo=UTC).strftime(pattern)
        assert read([text, good, None, text], pattern) == [None, 983318400 * 10**9, None, None]

    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("%d.%m.%Y %H %z", "28.02.2001 00 Z"),
            ("%d.%m.%Y %H %z", "28.02.2001 02 +02"),
            ("%z %d-%m-%Y %H", "+02 28-02-2001 02"),
            ("%d.%m.%Y %H %z", "28.02.2001 02 +0200"),
            ("%d.%m.%Y %H %z", "27.02.2001 20 -04:00"),
            ("%a, %d %b %Y %H:%M:%S %Z", "Wed, 28 Feb 2001 00:00:00 GMT"),
            ("%d.%m.%Y %Z", "28.02.2001 utc"),
            ("%d.%m.%Y %Z", "28.02.2001 gmt"),
            ("%d %b %Y", "28 FEB 2001"),
            ("%d.%m.%Y %I %p", "28.02.2001 12 am"),
        ],
    )
    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_zones_and_names_in_every_spelling(self, pattern, text, kind):
        """Zones of hours alone among them, which Python's own %z refuses."""
        assert read([text, f" {text}\t"], pattern, kind) == [983318400 * 10**9] * 2

    def test_a_column_without_a_readable_text(self):
        """None at all, or nothing but blanks."""
        assert read([], "%d.%m.%Y") == []
        assert read([None, "", " "], "%d.%m.%Y %H:%M:%S") == [None] * 3

    def test_numbers_of_a_typed_column_may_be_dates(self):
        """Such as 20010228."""
        assert read([20010228, None, 20010230], "%Y%m%d", pa.int64()) == [
            983318400 * 10**9,
            None,
            None,
        ]

    @pytest.mark.parametrize(
        ("pattern", "message"),
        [
            ("%Q.%Y", "because of '%Q'.*%Y, %y, %m"),
            ("%Y%", "because of '%'"),
            ("%Y %Y", "because of '%Y'.*once"),
            ("%d.%m", "holds no year"),
            ("%d.%M.%Y", "leaves out a part"),
            ("%Y-%m-%d %M:%S", "leaves out a part"),
            ("%Y-%m-%d %H:%S", "leaves out a part"),
            ("%d.%m.%Y %I:%M", "one of %I and %p without the other"),
            ("%d.%m.%Y %H:%M %p", "one of %I and %p without the other"),
        ],
    )
    def test_a_pattern_that_cannot_be_used_is_named(self, tmp_path, pattern, message):
        """An unknown directive, one that occurs twice, no year, or a part missing
        between others, such as %M where %m was meant.
        """
        with pytest.raises(InputError, match=rf"log: `time`: the pattern {pattern!r} .*{message}"):
            literal.read_bytes(tmp_path, b"user,item,time\nx,a,2001\n", time=pattern)


class TestTypedColumns:
    @pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
    @pytest.mark.parametrize("unit", list(NANOSECONDS))
    def test_timestamps(self, unit, zone):
        """Of a typed column the type decides, whatever ``time`` says."""
        nanoseconds = START * 10**9 + 123456789
        column = pa.array([nanoseconds // NANOSECONDS[unit], None], pa.int64()).cast(
            pa.timestamp(unit, zone)
        )
        assert detect_unit(column) == "iso"
        for time in ("iso", "s", "%Y"):
            assert read(column, time, column.type) == [
                nanoseconds // NANOSECONDS[unit] * NANOSECONDS[unit],
                None,
            ]

    @pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
    def test_dates(self, kind):
        """Date columns of both widths."""
        assert read([date(2001, 9, 9), None], "iso", kind) == [999993600 * 10**9, None]

    def test_years_out_of_reach_of_nanoseconds_stay_implausible(self):
        """31 August 2604 would wrap around to 2020."""
        moments = [datetime(2604, 8, 31), datetime(9999, 12, 31), datetime(1, 1, 1)]
        for unit in ("s", "ms", "us"):
            assert not is_plausible(
                to_nanoseconds(pa.array(moments, pa.timestamp(unit)), "iso")[0]
            ).any()

    @pytest.mark.parametrize(
        "values",
        [[True], [[1]], [{"a": 1}], [timedelta(1)], [datetime(2001, 1, 1).time()], [b"2001-01-01"]],
    )
    def test_what_cannot_be_a_time_is_an_error(self, tmp_path, values):
        """The message names the type."""
        table = io.BytesIO()
        pyarrow.parquet.write_table(pa.table({"user": ["x"], "item": ["a"], "time": values}), table)
        with pytest.raises(InputError, match=r"log: a column of type .* cannot be a time"):
            literal.read_bytes(tmp_path, table.getvalue())


class TestPlausibility:
    @pytest.mark.parametrize("unit", list(NANOSECONDS))
    def test_the_years_1990_to_2034(self, tmp_path, unit):
        """The bounds themselves, to the last unit."""
        first, last = (
            int((datetime(year, 1, 1) - datetime(1970, 1, 1)).total_seconds())
            * 10**9
            // NANOSECONDS[unit]
            for year in (1990, 2035)
        )
        times = [first - 1, first, last - 1, last]
        content = "\n".join(["user,item,time", *(f"x,i{time},{time}" for time in times)]).encode()
        log = literal.read_bytes(tmp_path, content, maximum_bad_share=0.5)
        assert log.item_ids.to_pylist() == sorted([f"i{first}", f"i{last - 1}"])
        assert log.bad_rows == {"time outside 1990 to 2034": 2}
        assert log.time_format == unit

    @pytest.mark.parametrize(
        ("times", "form", "message"),
        [
            (
                ["5", "4"],
                {},
                (
                    "time outside 1990 to 2034: 2(?s:.)*read as 's'.*`time`: s, ms, us, ns,"
                    " iso(?s:.)*line 2: .*timestamp '5'"
                ),
            ),
            (["-1000000000"] * 2, {}, "time outside 1990 to 2034: 2"),
            (
                ["1000000000000"] * 2,
                {"time": "s"},
                "time outside 1990 to 2034: 2(?s:.)*read as 's'",
            ),
            (
                ["09.09.2001"] * 2,
                {},
                "time cannot be read: 2(?s:.)*read as 'iso'.*pattern such as '%d.%m.%Y'",
            ),
            (
                ["2001-09-09"] * 2,
                {"time": "%d.%m.%Y"},
                "time cannot be read: 2(?s:.)*read as '%d.%m.%Y'",
            ),
            (
                ["2001-09-09", "soon"],
                {"time": "iso"},
                "1 of 2 rows.*time cannot be read: 1(?s:.)*line 3: .*timestamp 'soon'",
            ),
        ],
    )
    def test_times_read_the_wrong_way_are_an_error_that_says_how_they_were_read(
        self, tmp_path, times, form, message
    ):
        """And how to say it."""
        with pytest.raises(InputError, match=message):
            literal.read_bytes(
                tmp_path,
                "\n".join(["user,item,time", *(f"x,a,{time}" for time in times)]).encode(),
                **form,
            )


class TestUnits:
    @pytest.mark.parametrize(
        ("values", "unit"),
        [
            (["1000000000", "1e9"], "s"),
            (["1000000000000"], "ms"),
            (["1000000000000000.5"], "us"),
            (["1000000000000000000"], "ns"),
            (["5", "3"], "s"),
            (["", " 1000000000000 ", None, "", "", "x"], "ms"),
            (["2001-09-09", "1000000000"], "s"),
            (["2001-09-09", "2001-09-09", "1000000000"], "iso"),
            (["", None], "iso"),
            ([1000000000000, None], "ms"),
            ([1e15, float("nan")], "us"),
            ([631152000, 631152000000, 631152000001], "ms"),
        ],
    )
    def test_told_by_most_of_the_values(self, values, unit):
        """Blank and other values do not count; seconds where nothing is plausible."""
        assert detect_unit(pa.array(values)) == unit

    def test_the_coarsest_unit_that_holds_every_time(self):
        """Over several blocks, an empty one among them."""
        second = 10**9
        for last, unit in (
            (0, "s"),
            (second, "s"),
            (5_000_000, "ms"),
            (7_000, "us"),
            (1, "ns"),
            (-1, "ns"),
        ):
            assert (
                coarsest_unit(
                    [np.array([second]), np.array([], dtype=np.int64), np.array([3 * second, last])]
                )
                == unit
            )

    def test_the_same_events_in_every_unit_and_form_make_the_same_parts(self, tmp_path):
        """As text, as numbers of JSON, and as typed columns of Parquet."""
        generator = np.random.default_rng(17)
        rows = [
            (f"u{user}", f"i{item}", int(day))
            for user, item, day in generator.integers((0, 0, 9000), (6, 9, 9060), (120, 3))
        ]
        midnights = [datetime(1970, 1, 1) + timedelta(days=day) for _, _, day in rows]
        seconds = [86_400 * day for _, _, day in rows]
        east = timezone(timedelta(hours=2))
        texts = {
            **{
                unit: [str(second * 10**9 // NANOSECONDS[unit]) for second in seconds]
                for unit in NANOSECONDS
            },
            "decimal": [f"{second}.000" for second in seconds],
            "date": [midnight.date().isoformat() for midnight in midnights],
            "iso": [midnight.isoformat() for midnight in midnights],
            "zone": [
                midnight.replace(tzinfo=UTC).astimezone(east).isoformat(" ")
                for midnight in midnights
            ],
        }
        typed = {
            **{f"int {unit}": pa.array(map(int, texts[unit]), pa.int64()) for unit in NANOSECONDS},
            **{
                f"timestamp {unit}": pa.array(midnights, pa.timestamp(unit)) for unit in NANOSECONDS
            },
            "zone": (
                pa.array(midnights, pa.timestamp("us", "UTC")).cast(
                    pa.timestamp("us", "Asia/Tokyo")
                )
            ),
            "date": pa.array([midnight.date() for midnight in midnights]),
            "double": pa.array(seconds, pa.float64()),
            "dictionary": pa.array(texts["iso"]).dictionary_encode(),
        }
        users, items = [user for user, _, _ in rows], [item for _, item, _ in rows]
        files = [
            "\n".join(
                ["user,item,time", *map(",".join, zip(users, items, times, strict=True))]
            ).encode()
            for times in texts.values()
        ]
        for unit in NANOSECONDS:
            records = zip(users, items, map(int, texts[unit]), strict=True)
            files.append(
                "\n".join(
                    json.dumps(dict(zip(("user", "item", "time"), record, strict=True)))
                    for record in records
                ).encode()
            )
        for times in typed.values():
            table = io.BytesIO()
            pyarrow.parquet.write_table(
                pa.table({"user": users, "item": items, "time": times}), table
            )
            files.append(table.getvalue())
        logs = [literal.read_bytes(tmp_path, content) for content in files]
        assert all(literal.is_same(logs[0], log) for log in logs)
        assert logs[0].unit == "s" and logs[0].time.tolist() == seconds
        cores = [core_filter(log, minimum_events=3) for log in logs]
        splits = [global_temporal_split(core.offsets, core.timestamp) for core in cores]
        for split in splits:
            assert split.thresholds == splits[0].thresholds
            for part in ("train", "validation", "test"):
                for field in ("length", "held_out_from"):
                    assert (
                        getattr(getattr(split, part), field).tolist()
                        == getattr(getattr(splits[0], part), field).tolist()
                    )
        assert splits[0].test.length.any() and splits[0].train.length.any()

    @pytest.mark.parametrize(
        ("text", "unit", "time"),
        [
            ("1000000000.5", "ms", START * 1000 + 500),
            ("1000000000000001", "us", START * 10**6 + 1),
            ("1000000000000000001", "ns", START * 10**9 + 1),
        ],
    )
    def test_finer_times_are_kept_exactly(self, tmp_path, text, unit, time):
        """Beyond 2^53, where a double would round."""
        log = literal.read_bytes(tmp_path, f"user,item,time\nx,a,{text}\n".encode())
        assert (log.unit, log.time.tolist(), log.time.dtype) == (unit, [time], np.int64)


class TestElapsed:
    def read(self, tmp_path, *rows: str, **form):
        """A log of user, item, date and time since the start of the session."""
        columns = {**literal.FORM["columns"], "elapsed": "timeframe"}
        return literal.read_bytes(
            tmp_path,
            "\n".join(["user,item,time,timeframe", *rows]).encode(),
            columns=columns,
            **form,
        )

    def test_views_of_a_session_follow_the_time_since_its_start(self, tmp_path):
        """One day, 30, 10 and 20 ms."""
        rows = ("s,c,2016-05-09,30", "s,a,2016-05-09,10", "s,b,2016-05-09,20")
        log = self.read(tmp_path, *rows)
        assert core_filter(log, minimum_events=1).item.tolist() == [1, 2, 3]
        assert (log.unit, log.time.tolist()) == (
            "ms",
            [1462752000_000 + elapsed for elapsed in (30, 10, 20)],
        )

    def test_a_session_over_midnight_counts_from_its_earliest_date(self, tmp_path):
        """By date plus elapsed time the event after midnight would be a day late;
        another session is not touched.
        """
        rows = (
            "s,c,2016-05-10,30000",
            "s,a,2016-05-09,10000",
            "t,d,2016-05-10,5",
            "s,b,2016-05-09,20000",
        )
        log = self.read(tmp_path, *rows)
        assert log.time.tolist() == [
            1462752000_000 + elapsed for elapsed in (30_000, 10_000, 86_400_005, 20_000)
        ]

    @pytest.mark.parametrize("unit", list(NANOSECONDS))
    def test_elapsed_time_of_each_unit(self, tmp_path, unit):
        """7 units apart."""
        log = self.read(tmp_path, "s,a,2016-05-09,7", "s,b,2016-05-09,0", elapsed_unit=unit)
        assert log.unit == unit
        assert np.diff(log.time).tolist() == [-7]

    def test_unusable_elapsed_times_are_counted(self, tmp_path):
        """Missing, no number, negative, or so large that the sum would overflow; a bad
        row gives no start.
        """
        good = [f"s,i{k},2016-05-09,{k}" for k in range(6)]
        bad = [
            f"s,x,2016-05-08,{elapsed}" for elapsed in ("", "soon", "-5", "9000000000000000000")
        ] + ["s,x,,5", ",x,2016-05-08,x"]
        log = self.read(tmp_path, *bad, *good, maximum_bad_share=0.5)
        assert log.bad_rows == {
            "empty user or item": 1,
            "time cannot be read": 1,
            "elapsed time cannot be read": 2,
            "elapsed time negative or above 45 years": 2,
        }
        assert log.time.tolist() == [1462752000_000 + k for k in range(6)]
