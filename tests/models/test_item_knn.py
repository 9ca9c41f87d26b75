"""Nearest neighbours of the items of a history, against a literal version."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
import torch

from lastitem.evaluation.ranking import rank
from lastitem.models import item_knn
from lastitem.models.item_knn import ItemKNN
from lastitem.models.registry import load, save
from tests import literal
from tests.models.batches import padded

ITEMS = 9


def fitted(histories, items=ITEMS, users=None, **settings):
    model = ItemKNN(items, **settings)
    model.fit(literal.held_out(histories, [1] * len(histories), users))
    return model.eval()


def drawn(random, count=25, longest=8):
    """Histories in which item 9 never occurs; some have one item, or one twice."""
    lengths = random.integers(1, longest, count)
    return [random.integers(1, ITEMS, length).tolist() for length in lengths]


def literal_similarities(histories, kept):
    """{(i, j): cosine} of the nearest neighbours, which are chosen by exact
    fractions.
    """
    everything = range(1, ITEMS + 1)
    users = {item: {u for u, own in enumerate(histories) if item in own} for item in everything}
    events = {item: sum(own.count(item) for own in histories) for item in everything}
    found = {}
    for i in everything:
        others = [j for j in everything if j != i and users[i] & users[j]]
        squared = {
            j: Fraction(len(users[i] & users[j]) ** 2, len(users[i]) * len(users[j]))
            for j in others
        }
        for j in sorted(others, key=lambda j: (-squared[j], -events[j], j))[:kept]:
            found[i, j] = len(users[i] & users[j]) / sqrt(len(users[i]) * len(users[j]))
    return found


def literal_ranking(histories, history, newest, kept=1000):
    similarities = literal_similarities(histories, kept)
    read = set(history[-newest:] if newest else history)
    everything = range(1, ITEMS + 1)
    events = {item: sum(own.count(item) for own in histories) for item in everything}
    score = {
        j: float(np.float32(sum(similarities.get((i, j), 0.0) for i in sorted(read, reverse=True))))
        for j in everything
    }
    return score, sorted(everything, key=lambda j: (-score[j], -events[j], j))


def test_scores_are_those_counted_by_hand():
    """Users of item 1: two; of 2: three; both: two. Items 4 and 5 are had by one user
    alone, who has 5 twice.
    """
    model = fitted([[1, 2], [1, 2, 3], [2, 2], [5, 4, 5]], items=6)
    similar = 2 / sqrt(6), 1 / sqrt(2), 1 / sqrt(3)
    value = dict(zip(["12", "13", "23"], similar, strict=True))
    rows = [value["12"], value["13"], value["12"], value["23"], value["13"], value["23"], 1, 1]
    assert model.similarities.value.tolist() == pytest.approx(rows, abs=1e-12)
    assert model.similarities.start.tolist() == [0, 2, 4, 6, 7, 8, 8]
    # Events: 2, 4, 1, 1, 2, 0, so the places are 2, 3, 1, 1, 2, 0 of 4.
    assert model.popularity.tolist() == [0.5, 0.75, 0.25, 0.25, 0.5, 0]
    found = model.scores(*padded([[1, 5, 3]]))[0]
    assert found.dtype == torch.float64
    expected = [value["13"], value["12"] + value["23"], value["13"], 1, 0, 0]
    for item, (score, place) in enumerate(zip(expected, model.popularity.tolist(), strict=True)):
        single = float(np.float32(score))
        assert found[item] == single * (1 + place * 2**-26) + place * 2**-100
    assert (found[4], found[5]) == (2**-101, 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("newest", [0, 1, 3])
@pytest.mark.parametrize("kept", [1000, 3])
def test_scores_and_order_are_the_literal_ones(monkeypatch, seed, newest, kept):
    """Also where neighbours are cut, and co-occurrences are found in several blocks."""
    monkeypatch.setattr(item_knn, "NEIGHBOURS", kept)
    monkeypatch.setattr(item_knn, "_BLOCK", 20)
    random = np.random.default_rng(seed)
    histories, inputs = drawn(random), drawn(random)
    model = fitted(histories, newest=newest)
    own = literal_similarities(histories, kept)
    start, column = model.similarities.start, model.similarities.column
    row = torch.arange(ITEMS).repeat_interleave(start.diff())
    pairs = zip((row + 1).tolist(), (column + 1).tolist(), strict=True)
    assert dict(zip(pairs, model.similarities.value.tolist(), strict=True)) == pytest.approx(own)
    found = model.scores(*padded(inputs))
    ranks = rank(
        model, literal.held_out(inputs, [1] * len(inputs)), filter_seen=False, list_length=ITEMS
    )
    for place, history in enumerate(inputs):
        score, order = literal_ranking(histories, history, newest, kept)
        assert found[place].tolist() == pytest.approx(list(score.values()), abs=1e-7)
        assert ranks.lists[place].tolist() == order


def test_a_user_counts_once_whatever_his_sequences():
    histories = [[1, 2], [2, 1], [2, 3]]
    once = fitted(histories, users=[4, 4, 7]).similarities
    assert once.value.tolist() == pytest.approx(
        fitted([[1, 2, 2, 1], [2, 3]]).similarities.value.tolist(), abs=1e-15
    )


def test_equal_scores_go_by_events_then_id():
    """After 1 the items 2, 3 and 4 are alike; 4 has most events. Of those with no score
    5 has most.
    """
    histories = [[1, 2, 3, 4, 4], [5, 5], [6], [7, 7, 7]]
    ranks = rank(fitted(histories), literal.held_out([[1]], [2]), filter_seen=False, list_length=9)
    assert ranks.lists.tolist() == [[4, 2, 3, 7, 5, 1, 6, 8, 9]]


def test_sums_that_differ_by_rounding_alone_are_equal():
    """Items 1 and 2, summed from the same similarities in another order."""
    model = ItemKNN(5)
    parts = [0.1, 0.2, 0.3]
    assert sum(parts) != sum(parts[::-1])
    column = np.array([0, 1] * 3, dtype=np.int32)
    values = [value for pair in zip(parts, parts[::-1], strict=True) for value in pair]
    model.similarities.fill(np.array([0, 0, 2, 2, 2]), column, np.array(values))
    scores = model.scores(*padded([[3, 4, 5]]))[0]
    assert scores[0] == scores[1] == float(np.float32(0.6))


def test_an_item_counts_once_and_only_the_newest_ones_do():
    random = np.random.default_rng(3)
    histories = drawn(random)
    everything, three = fitted(histories), fitted(histories, newest=3)
    asked, length = padded([[1, 2, 1, 3, 3], [3, 2, 1], [4, 1, 2, 3], [1, 3, 3]])
    found = everything.scores(asked, length)
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    found = three.scores(asked, length)
    assert torch.equal(found[0], found[3]), "the newest three are 1, 3, 3"
    assert torch.equal(found[1], found[2])


@pytest.mark.parametrize("newest", [0, 1, 3])
def test_the_order_and_the_other_cases_change_no_bit(newest):
    """In any order where all are read; whatever stands before the last item where it is
    read alone.
    """
    random = np.random.default_rng(5)
    model, inputs = fitted(drawn(random), newest=newest), drawn(random, count=40, longest=15)
    targets = random.integers(1, ITEMS + 1, len(inputs)).tolist()
    assert model.reads_last_item_only == (newest == 1)
    own = rank(model, literal.held_out(inputs, targets), filter_seen=False, list_length=9)

    def same(others):
        found = rank(model, literal.held_out(others, targets), filter_seen=False, list_length=9)
        return np.array_equal(found.target, own.target) and np.array_equal(found.lists, own.lists)

    permuted = [random.permutation(history).tolist() for history in inputs]
    replaced = [[*random.integers(1, ITEMS + 1, 5).tolist(), own[-1]] for own in inputs]
    assert same(permuted) == (newest == 0)
    assert same(replaced) == same([own[-1:] for own in inputs]) == (newest == 1)
    together = model.scores(*padded(inputs))
    if newest == 0:
        assert torch.equal(model.scores(*padded(permuted)), together)
    for row, history in enumerate(inputs):
        assert torch.equal(together[row], model.scores(*padded([history]))[0])


def test_a_log_without_common_users_has_no_neighbours():
    model = fitted([[1, 1], [2]])
    assert len(model.similarities.value) == 0
    assert model.scores(*padded([[1]]))[0].argmax() == 0


def test_a_saved_model_scores_the_same(tmp_path):
    model = fitted(drawn(np.random.default_rng(1)), newest=2)
    files = tmp_path / "model.safetensors", tmp_path / "model.json"
    description = {"architecture": "item-knn", "items": ITEMS, "settings": {"newest": 2}}
    save(model, description, *files)
    inputs = padded([[item, 3, 2] for item in range(1, ITEMS + 1)])
    assert torch.equal(load(*files)[0].scores(*inputs), model.scores(*inputs))
