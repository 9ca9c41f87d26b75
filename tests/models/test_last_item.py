"""The yardstick that reads the last item alone, against a literal forward pass."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from lastitem.evaluation.ranking import rank
from lastitem.models.last_item import LastItem
from tests import literal
from tests.models.batches import draw_parameters, padded

ITEMS, SIZE = 20, 6


def model_of(seed=0, **settings):
    sizes = {"maximum_length": 7, "hidden_size": SIZE}
    return draw_parameters(LastItem(ITEMS, **sizes, **settings), seed).double()


def normalized(vector, norm):
    deviation = (vector.var(unbiased=False) + norm.eps).sqrt()
    return norm.weight * (vector - vector.mean()) / deviation + norm.bias


def vector_of(model, item):
    """x = LN(E·√d), then LN(x + W₂ relu(W₁ x)) block by block, then LN."""
    x = normalized(model.embedding.weight[item] * SIZE**0.5, model.input_norm)
    for block, norm in zip(model.blocks, model.norms, strict=True):
        inner = functional.relu(block.inner.weight @ x + block.inner.bias)
        x = normalized(x + block.outer.weight @ inner + block.outer.bias, norm)
    return normalized(x, model.output_norm)


@pytest.mark.parametrize("blocks", [1, 2])
def test_each_position_is_the_literal_vector_of_its_item(blocks):
    model, histories = model_of(blocks=blocks), [[3, 1, 4], [1, 5, 9, 2]]
    found = model.encode(*padded(histories))
    for row, history in enumerate(histories):
        for place, item in enumerate(history):
            torch.testing.assert_close(found[row, place], vector_of(model, item))


def test_asked_positions_are_those_of_all():
    model, (items, length) = model_of(), padded([[3, 1, 4], [1, 5, 9, 2]])
    at = torch.tensor([0, 2, 5, 7])
    torch.testing.assert_close(
        model.encode(items, length, at), model.encode(items, length).flatten(0, 1)[at]
    )


def test_nothing_before_the_last_item_changes_a_rank():
    """Others before it, or none."""
    model, random = model_of(), np.random.default_rng(0)
    assert model.reads_last_item_only
    histories = [random.integers(1, ITEMS + 1, random.integers(2, 12)).tolist() for _ in range(30)]
    targets = random.integers(1, ITEMS + 1, 30).tolist()
    own = rank(model, literal.held_out(histories, targets), filter_seen=False, list_length=5)
    for other in (
        [[*history[-2::-1], history[-1]] for history in histories],
        [h[-1:] for h in histories],
    ):
        found = rank(model, literal.held_out(other, targets), filter_seen=False, list_length=5)
        assert np.array_equal(found.target, own.target) and np.array_equal(found.lists, own.lists)
