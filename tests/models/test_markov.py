"""The Markov chain of first order, against counts by hand and a literal version."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from lastitem.evaluation.ranking import rank
from lastitem.models.markov import Markov
from lastitem.models.registry import load, save
from tests import literal
from tests.models.batches import padded

ITEMS = 9


def fitted(histories, items=ITEMS):
    model = Markov(items)
    model.fit(literal.held_out(histories, [1] * len(histories)))
    return model.eval()


def drawn(random, count=30, longest=12):
    """Histories in which item 9 never occurs; some have one item."""
    lengths = random.integers(1, longest, count)
    return [random.integers(1, ITEMS, length).tolist() for length in lengths]


def literal_scores(histories, last):
    pairs = [pair for history in histories for pair in pairwise(history)]
    events = [item for history in histories for item in history]
    behind = sum(before == last for before, _ in pairs)
    return [
        (pairs.count((last, item)) + events.count(item) / len(events)) / (behind + 1)
        for item in range(1, ITEMS + 1)
    ]


def test_scores_are_those_counted_by_hand():
    """Item 1 is followed by 2, 2 and 1; eight events, four of item 1."""
    model = fitted([[1, 2, 3, 1, 2], [1, 1], [4]], items=5)
    assert model.followers.value.tolist() == [1, 2, 1, 1]
    found = model.scores(*padded([[3, 1], [4]]))
    assert found[0].tolist() == [(1 + 4 / 8) / 4, (2 + 2 / 8) / 4, 1 / 32, 1 / 32, 0]
    assert found[1].tolist() == [4 / 8, 2 / 8, 1 / 8, 1 / 8, 0], "never followed: the popularity"
    assert found.dtype == torch.float64


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_the_literal_ones(seed):
    random = np.random.default_rng(seed)
    histories, inputs = drawn(random), [[item] for item in range(1, ITEMS + 1)]
    found = fitted(histories).scores(*padded(inputs))
    for row, (last,) in enumerate(inputs):
        assert found[row].tolist() == pytest.approx(literal_scores(histories, last), abs=1e-15)


def test_only_the_given_slices_are_counted():
    """The flat array may hold events of other parts between the sequences."""
    sequences = literal.held_out([[1, 2], [6, 6, 6], [3, 2]], [1] * 3).select(np.array([0, 2]))
    model = Markov(6)
    model.fit(sequences)
    assert model.followed.tolist() == [1, 0, 1, 0, 0, 0]
    assert model.share.tolist() == [0.25, 0.5, 0.25, 0, 0, 0]


def test_equal_scores_go_by_id():
    model, cases = fitted([[1, 3], [1, 2], [5]]), literal.held_out([[1]], [4])
    ranks = rank(model, cases, filter_seen=False, list_length=ITEMS)
    assert ranks.lists.tolist() == [[2, 3, 1, 5, 4, 6, 7, 8, 9]]


def test_nothing_before_the_last_item_changes_a_rank():
    """Others before it, or none; nor do the other cases."""
    random = np.random.default_rng(0)
    model, inputs = fitted(drawn(random)), drawn(random)
    targets = random.integers(1, ITEMS + 1, len(inputs)).tolist()
    assert model.reads_last_item_only
    own = rank(model, literal.held_out(inputs, targets), filter_seen=False, list_length=5)
    for other in (
        [[*random.integers(1, ITEMS + 1, 4).tolist(), own[-1]] for own in inputs],
        [own[-1:] for own in inputs],
    ):
        found = rank(model, literal.held_out(other, targets), filter_seen=False, list_length=5)
        assert np.array_equal(found.target, own.target) and np.array_equal(found.scores, own.scores)
    together = model.scores(*padded(inputs))
    for row, history in enumerate(inputs):
        assert torch.equal(together[row], model.scores(*padded([history]))[0])


def test_a_saved_model_scores_the_same(tmp_path):
    model = fitted(drawn(np.random.default_rng(1)))
    files = tmp_path / "model.safetensors", tmp_path / "model.json"
    save(model, {"architecture": "markov", "items": ITEMS, "settings": {}}, *files)
    inputs = padded([[item] for item in range(1, ITEMS + 1)])
    assert torch.equal(load(*files)[0].scores(*inputs), model.scores(*inputs))
