"""What counts as an id, and which look alike; that codes follow the sorted ids is in test_interactions.py."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lastitem.ids import is_given, look_alikes


def test_nothing_and_blanks_are_no_id():
    given = is_given(pa.array(["a", "", None, " ", "\t", "  \t ", " a", "a b", "0"]))
    assert given.tolist() == [True, False, False, False, False, False, True, True, True]
    assert is_given(pa.array([0, None, 7])).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("ids", "alike"),
    [
        (["a", "b"], 0),
        (["a", " a", "a ", "b"], 2),
        (["caf\u00e9", "cafe\u0301", "cafe"], 1),
        (["7", "07"], 0),
        ([], 0),
    ],
)
def test_ids_that_look_alike_are_counted(ids, alike):
    assert look_alikes(pa.array(ids, pa.large_string())) == alike


def test_numbers_have_one_form():
    assert look_alikes(pa.array(np.arange(3))) == 0
