"""The popularity baseline: items by number of training events."""

import numpy as np
import pytest
import torch

from lastitem.data.sequences import HeldOut, Sequences
from lastitem.errors import InputError
from lastitem.evaluation.ranking import rank
from lastitem.models.popularity import Popularity
from lastitem.study.settings import TrainingSettings
from lastitem.training.loop import train


def cases_of(histories, targets):
    ends = np.cumsum([len(history) for history in histories])
    starts = np.concatenate(([0], ends[:-1]))
    users = np.arange(len(histories), dtype=np.int32)
    return HeldOut(
        np.concatenate(histories).astype(np.int32),
        starts,
        ends,
        users,
        np.array(targets, dtype=np.int32),
        np.zeros(len(users), dtype=bool),
    )


def trained(histories, items=6):
    ends = np.cumsum([len(history) for history in histories])
    starts = np.concatenate(([0], ends[:-1]))
    sequences = Sequences(
        np.concatenate(histories).astype(np.int32),
        starts,
        ends,
        np.arange(len(histories), dtype=np.int32),
    )
    model = Popularity(items)
    train(model, sequences, cases_of([[1, 2]], [3]), TrainingSettings(), filter_seen=False, seed=1)
    return model


def test_counts_are_those_of_the_training_events():
    """Hand-counted; item 6 never occurs, and the one-item sequence counts too."""
    model = trained([[1, 2, 3], [2, 3, 2], [5], [4, 2]])
    assert model.counts.tolist() == [1, 4, 2, 1, 1, 0]


def test_only_the_given_slices_are_counted():
    """The flat array may hold events of other parts between the sequences; those are
    not training events.
    """
    sequences = Sequences(
        np.array([1, 2, 6, 6, 6, 3, 2], dtype=np.int32),
        np.array([0, 5]),
        np.array([2, 7]),
        np.arange(2, dtype=np.int32),
    )
    model = Popularity(6)
    train(model, sequences, cases_of([[1, 2]], [3]), TrainingSettings(), filter_seen=False, seed=1)
    assert model.counts.tolist() == [1, 2, 1, 0, 0, 0]


def test_lists_go_by_count_then_id():
    model = trained([[1, 2, 3], [2, 3, 2], [5], [4, 2]])
    ranks = rank(model, cases_of([[6, 5], [1]], [5, 6]), filter_seen=False, list_length=6)
    assert ranks.lists.tolist() == [[2, 3, 1, 4, 5, 6]] * 2
    assert ranks.target[:, 0].tolist() == [5, 6]
    assert ranks.last.tolist() == [5, 3]


def test_seen_items_are_filtered_from_the_whole_history():
    model = trained([[1, 2, 3], [2, 3, 2], [5], [4, 2]])
    ranks = rank(model, cases_of([[2, 3, 1]], [4]), filter_seen=True, list_length=6)
    assert ranks.lists.tolist() == [[4, 5, 6, 0, 0, 0]]
    assert ranks.target[0, 0] == 1


def test_large_counts_stay_exact():
    """Counts beyond 2²⁴ would tie in single precision; the rarer item
    must stay behind.
    """
    model = Popularity(2)
    model.counts.copy_(torch.tensor([16_777_216, 16_777_217], dtype=torch.float64))
    assert rank(model, cases_of([[1]], [2]), filter_seen=False).target[0, 0] == 1


def test_the_last_but_one_item_has_a_rank():
    """Only inputs with one item are out of HRL2I's denominator."""
    model = trained([[1, 2, 3], [2, 3, 2], [5], [4, 2]])
    ranks = rank(model, cases_of([[4, 3, 2], [1]], [5, 5]), filter_seen=False)
    assert ranks.last_but_one.tolist() == [2, 0]


def test_no_history_changes_a_rank():
    """Shuffled, replaced or cut; it is given all of it, and reads nothing."""
    model = trained([[1, 2, 3], [2, 3, 2], [5], [4, 2]])
    own = rank(model, cases_of([[4, 3, 2, 6], [1, 5]], [5, 1]), filter_seen=False, list_length=6)
    for other in ([[6, 2, 4, 3], [5, 1]], [[1, 1, 5], [3]], [[6], [5]]):
        found = rank(model, cases_of(other, [5, 1]), filter_seen=False, list_length=6)
        assert np.array_equal(found.target, own.target) and np.array_equal(found.scores, own.scores)


def test_nothing_to_train_on_is_said():
    with pytest.raises(InputError, match="no training sequence has two items"):
        trained([[1], [2]])
