"""Typed columns of Parquet files, and damaged files."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastitem.data.interactions import read_interactions
from lastitem.errors import InputError
from tests import literal
from tests.data.readers.logs import (
    START,
    bad_lines,
    parquet,
    refusal,
)
from tests.literal import events, read_bytes


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
