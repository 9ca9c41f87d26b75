"""What counts as an id, and which look alike; that codes follow the sorted ids is in
test_interactions.py.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lastitem.data.ids import as_ids, is_given, look_alikes, words_for_nothing
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
