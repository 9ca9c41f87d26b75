"""What counts as an id, which look alike, and how they are numbered; that codes
follow the sorted ids of a core is in test_core.py.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lastitem.data.ids import (
    NumberEncoder,
    TextEncoder,
    as_ids,
    is_given,
    look_alikes,
    words_for_nothing,
)
from lastitem.errors import InputError


def test_nothing_and_blanks_are_no_id():
    given = is_given(pa.array(["a", "", None, " ", "\t", "  \t ", " a", "a b", "0", "\u00a0"]))
    assert given.tolist() == [True, False, False, False, False, False, True, True, True, False]
    assert is_given(pa.array([0, None, 7])).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("ids", "alike"),
    [
        (["a", "b"], 0),
        (["a", " a", "a ", "b"], 2),
        (["caf\u00e9", "cafe\u0301", "cafe"], 1),
        (["7", "07"], 0),
        (["7", "7.0", "7.5", "a.0", "a"], 1),
        ([], 0),
    ],
)
def test_ids_that_look_alike_are_counted(ids, alike):
    assert look_alikes(pa.array(ids, pa.large_string())) == alike


def test_numbers_have_one_form():
    assert look_alikes(pa.array(np.arange(3))) == 0


def test_decimals_without_fractions_and_bytes_of_text_are_ids():
    """What databases and older writers of Parquet make of them; nulls stay."""
    numbers = [Decimal("7"), None, Decimal("12345678901234567890")]
    for kind in (pa.decimal128(38, 0), pa.decimal128(38, 3), pa.decimal256(60, 0)):
        assert as_ids(pa.array(numbers, kind), "user").to_pylist() == [
            "7",
            None,
            "12345678901234567890",
        ]
    assert as_ids(pa.array(["é".encode(), None], pa.binary()), "item").to_pylist() == ["é", None]
    with pytest.raises(InputError, match="for user holds fractions"):
        as_ids(pa.array([Decimal("7.5")], pa.decimal128(38, 3)), "user")
    with pytest.raises(InputError, match="for item holds bytes that are no text"):
        as_ids(pa.array([b"\xe9"], pa.binary()), "item")


def test_words_for_nothing_are_found():
    ids = pa.array(
        ["NULL", "\\N", "nan", "None", "<NA>", "n", "nanna", "0", "na"], pa.large_string()
    )
    assert words_for_nothing(ids).tolist() == [0, 1, 2, 3, 4, 8]
    assert words_for_nothing(pa.array([0, 1])).tolist() == []


class TestEncoders:
    @pytest.mark.parametrize("text", [True, False])
    def test_many_distinct_ids_in_many_batches_keep_their_codes(self, monkeypatch, text):
        """Texts are merged several times in between; later batches bring known ids
        back.
        """
        monkeypatch.setattr("lastitem.data.ids.MERGED_AT", 2000)
        generator = np.random.default_rng(6)
        batches = [generator.integers(0, 15_000, 1000) for _ in range(60)]
        encoder = TextEncoder() if text else NumberEncoder()
        known = set()
        for batch in batches:
            encoder.add(pa.array(batch).cast(pa.string()) if text else pa.array(batch))
            known.add(encoder._known if text else 0)
        codes, ids = encoder.finish()
        everything = np.concatenate(batches)
        distinct = np.unique(everything)
        assert len(known) >= (3 if text else 1)
        assert ids.cast(pa.int64()).equals(pa.array(distinct))
        assert (codes == np.searchsorted(distinct, everything)).all()
        assert codes.dtype == np.int32

    @pytest.mark.parametrize(
        ("kind", "numbers"),
        [
            (pa.int8(), [-128, 127, 0, 5, 5]),
            (pa.int64(), [7, -(2**62), 2**62, 7, 0]),
            (pa.uint64(), [2**64 - 1, 2**63, 3, 2**64 - 1]),
            (pa.uint64(), [2**63 + 5, 2**63 + 7, 2**63 + 5]),
            (pa.int32(), [10, 9, 100, 9]),
            (pa.int16(), [-3, -3]),
        ],
    )
    def test_numbers_of_every_width_are_the_ids_they_are_as_text(self, kind, numbers):
        """Narrow and wide ranges, negative numbers (which sort as text) and the ends of
        each type, over two batches.
        """
        found = []
        for encoder, column in (
            (NumberEncoder(), pa.array(numbers, kind)),
            (TextEncoder(), pa.array([str(number) for number in numbers])),
        ):
            encoder.add(column[:2])
            encoder.add(column[2:])
            codes, ids = encoder.finish()
            found.append((codes.tolist(), ids.to_pylist()))
        assert found[0] == found[1]
        assert [found[0][1][code] for code in found[0][0]] == [str(number) for number in numbers]
