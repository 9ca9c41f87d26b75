"""Sparse rows: added to scores, written, read, and refused where they are damaged."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from lastitem.errors import InputError
from lastitem.models import sparse_rows
from lastitem.models.markov import Markov
from lastitem.models.registry import load, save
from lastitem.models.sparse_rows import SparseRows
from tests import literal

DENSE = [[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, -3.0, 0.5]]


def rows_of(dense):
    rows, array = SparseRows(len(dense)), np.array(dense)
    row, column = np.nonzero(array)
    counts = np.bincount(row, minlength=len(dense))
    rows.fill(counts, column.astype(np.int32), array[row, column])
    return rows


def test_rows_are_added_in_place():
    scores = torch.ones(5, 3, dtype=torch.float64)
    rows_of(DENSE).add_to(scores, torch.tensor([3, 0, 1, 2, 3]))
    added = [DENSE[2], [0.0] * 3, DENSE[0], DENSE[1], DENSE[2]]
    assert scores.tolist() == [[1 + value for value in row] for row in added]


def test_rows_of_another_number_of_entries_are_read():
    rows = SparseRows(3)
    rows.load_state_dict(rows_of(DENSE).state_dict())
    assert rows.value.tolist() == [2, 1, -3, 0.5] and rows.column.tolist() == [1, 0, 1, 2]
    rows.load_state_dict(SparseRows(3).state_dict())
    assert rows.start.tolist() == [0] * 4 and len(rows.value) == 0


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("start", [0, 2, 1, 4], "start does not part 4 numbers into rows"),
        ("start", [1, 1, 1, 4], "start does not part"),
        ("start", [0, 1, 1, 3], "start does not part"),
        ("start", [0, 1, 4], "start: 2 rows for 3 items"),
        ("start", [[0, 1, 1, 4]], r"start is torch.int64 of shape \(1, 4\)"),
        ("start", torch.tensor([0.0, 1, 1, 4]), "start is torch.float32"),
        ("column", [1, 0, 1, 3], r"column: not all are in 0 … 2"),
        ("column", [1, -1, 1, 2], r"column: not all are in 0 … 2"),
        ("column", [1, 0, 1, 1], "column: not rising within a row"),
        ("column", [1, 0, 1], "columns without a value"),
        ("value", [2, 1, torch.nan, 0.5], "value: not all are finite"),
        ("value", [2, 1, torch.inf, 0.5], "value: not all are finite"),
        ("value", None, "Missing key"),
    ],
)
def test_damaged_rows_are_refused_with_the_name_of_the_file(tmp_path, name, values, words):
    """The digest is right: what is wrong was written so."""
    model = Markov(3)
    model.followers = rows_of(DENSE)
    if values is None:
        delattr(model.followers, name)
    else:
        dtype = values.dtype if torch.is_tensor(values) else getattr(model.followers, name).dtype
        setattr(model.followers, name, torch.as_tensor(values, dtype=dtype))
    files = tmp_path / "model.safetensors", tmp_path / "model.json"
    save(model, {"architecture": "markov", "items": 3, "settings": {}}, *files)
    with pytest.raises(InputError, match=rf"(?s)model\.safetensors: not the weights.*{words}"):
        load(*files)


def test_a_model_can_be_fitted_again():
    model = Markov(4)
    model.fit(literal.held_out([[1, 2, 3, 1], [4, 4]], [1, 1]))
    model.fit(literal.held_out([[3, 4]], [1]))
    assert model.followers.start.tolist() == [0, 0, 0, 1, 1]


def test_sums_are_the_same_bits_dense_or_sparse(monkeypatch):
    """Of multiples of 2⁻⁴⁰, against sums of fractions."""
    random = np.random.default_rng(3)
    items, rows = 30, SparseRows(30)
    dense = (random.random((items, items)) < 0.4) * np.round(random.random((items, items)) * 2**40)
    row, column = np.nonzero(dense)
    counts = np.bincount(row, minlength=items)
    rows.fill(counts, column.astype(np.int32), dense[row, column] / 2**40)
    chosen = [random.choice(items, size, replace=False) + 1 for size in (1, 30, 7)]
    padded = torch.zeros(3, 30, dtype=torch.int64)
    for place, codes in enumerate(chosen):
        padded[place, : len(codes)] = torch.from_numpy(codes)
    exact = [
        [
            float(sum(Fraction(dense[code - 1, item]) for code in codes) / 2**40)
            for item in range(items)
        ]
        for codes in chosen
    ]
    assert rows.sums(padded).tolist() == exact
    monkeypatch.setattr(sparse_rows, "_DENSE_ITEMS", 0)
    assert rows.sums(padded).tolist() == exact
    assert rows.sums(padded.flip(1)).tolist() == exact
