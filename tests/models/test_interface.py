"""What ranking and training ask of a model: the catalogue's vectors are kept no longer
than they hold, and a model that only scores and fits goes everywhere.
"""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch

from lastitem.errors import InputError
from lastitem.evaluation.interventions import intervention
from lastitem.evaluation.metrics import per_user
from lastitem.evaluation.ranking import rank, recommend
from lastitem.models import interface
from lastitem.models.interface import Recommender, SequenceModel, distinct_vectors
from lastitem.models.registry import load, save
from lastitem.models.sasrec import SASRec
from lastitem.study.settings import TrainingSettings
from lastitem.training.loop import train
from tests import literal
from tests.models.batches import draw_parameters, padded

ITEMS = 12
HISTORIES = [[1, 2, 3], [4, 12], [7, 7, 2, 9, 5], [11], [3, 8, 1, 10]]
TARGETS = [4, 5, 6, 1, 12]
CASES = literal.held_out(HISTORIES, TARGETS)


class Counting(SASRec):
    """Counts how often its item vectors are asked for."""

    asked = 0

    def item_vectors(self):
        self.asked += 1
        return super().item_vectors()


def model_of():
    sizes = {"hidden_size": 8, "maximum_length": 6}
    return draw_parameters(Counting(ITEMS, **sizes)).eval()


def test_rankings_in_a_row_ask_for_the_item_vectors_once():
    model = model_of()
    first = rank(model, CASES, filter_seen=True, list_length=3, offsets=(0, 1))
    second = rank(model, CASES, filter_seen=True, list_length=3, residual_scale=1.0)
    shuffled = rank(model, CASES, filter_seen=True, change=intervention("full", CASES, 99, seed=1))
    assert model.asked == 1
    assert np.array_equal(first.scores, second.scores)
    assert len(shuffled.target) == len(CASES)
    anew = rank(copy.deepcopy(model), CASES, filter_seen=True, list_length=3)
    assert np.array_equal(first.scores, anew.scores)


def step_of(kind, **settings):
    def step(model):
        optimizer = kind(model.train().parameters(), lr=0.1, **settings)
        with torch.enable_grad():
            model.item_vectors().square().sum().backward()
        optimizer.step()
        model.eval()

    return step


def copied(model):
    with torch.no_grad():
        model.embedding.weight.copy_(model.embedding.weight.flip(0))


def copied_in_inference(model):
    with torch.inference_mode():
        model.embedding.weight.copy_(model.embedding.weight.flip(0))


def loaded(model, **how):
    other = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    model.load_state_dict(other, **how)


def replaced(model):
    model.embedding.weight = torch.nn.Parameter(model.embedding.weight.detach() + 1)


CHANGES = {
    "a step of SGD": step_of(torch.optim.SGD),
    "a step of Adam": step_of(torch.optim.Adam),
    "a fused step of Adam, as in training": step_of(torch.optim.Adam, fused=True),
    "values copied": copied,
    "values copied in inference mode": copied_in_inference,
    "one value set": lambda model: model.embedding.weight.detach()[3, 0].fill_(9.0),
    "other weights loaded": loaded,
    "other weights assigned": lambda model: loaded(model, assign=True),
    "another parameter": replaced,
    "twice the precision": lambda model: model.double(),
    "half the precision and back": lambda model: model.half().float(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_noticed(change):
    model = model_of()
    with torch.no_grad():
        kept = model.score(torch.ones(2, 8))
        CHANGES[change](model)
        vectors = torch.ones(2, 8, dtype=model.embedding.weight.dtype)
        found = model.score(vectors)
        anew = copy.deepcopy(model).score(vectors)
        expected = vectors @ model.embedding.weight[1:].T
    assert found.dtype == anew.dtype and torch.equal(found, anew)
    torch.testing.assert_close(found, expected)
    assert not torch.equal(found.double(), kept.double())


def test_each_validation_step_scores_with_the_weights_of_its_epoch():
    """A copy of the model has nothing kept: its NDCG is that of the curve."""
    model = SASRec(ITEMS, hidden_size=8, maximum_length=6)
    settings = TrainingSettings(maximum_epochs=5, round_updates=1, batch_size=2)
    anew = []

    def report(curve, seconds):
        ranks = rank(copy.deepcopy(model), CASES, filter_seen=False)
        anew.append(float(per_user("ndcg", ranks.target[:, 0], 10).mean()))

    curve = train(model, TRAINING, CASES, settings, filter_seen=False, seed=1, report=report)
    assert [line.validation_ndcg for line in curve] == anew and len(set(anew)) > 1


def test_a_changed_buffer_is_noticed():
    """What a model has learned may lie in buffers alone."""

    class Held(SequenceModel):
        Settings = literal.TableSettings

        def __init__(self, vectors):
            super().__init__(len(vectors))
            self.register_buffer("vectors", vectors)

        def item_vectors(self):
            return self.vectors

    model = Held(torch.eye(3))
    with torch.inference_mode():
        assert model.score(torch.eye(3)).tolist() == torch.eye(3).tolist()
        model.vectors.mul_(2)
        assert model.score(torch.eye(3)).tolist() == (2 * torch.eye(3)).tolist()


def test_a_gradient_reaches_the_item_vectors_whatever_was_scored_before():
    """Twice, and a model that has scored can be copied: nothing of a gradient is
    kept.
    """
    model = model_of()
    vectors = torch.ones(2, 8)
    with torch.no_grad():
        plain = model.score(vectors)
    for _ in range(2):
        model.zero_grad()
        scores = model.score(vectors)
        assert torch.equal(scores, plain)
        scores.sum().backward()
        expected = torch.full((ITEMS, 8), 2.0)
        assert torch.equal(model.embedding.weight.grad[1:], expected)
        assert torch.equal(copy.deepcopy(model).score(vectors), plain)


def test_items_with_one_vector_have_one_score():
    """0 and −0 are one number; which of equal vectors is taken does not matter."""
    vectors = torch.tensor([[1.0, 0.0], [2.0, 3.0], [1.0, -0.0], [2.0, 3.0], [0.0, 1.0]])
    distinct, place = distinct_vectors(vectors)
    assert len(distinct) == 3
    assert torch.equal(distinct[place], vectors)
    kept, place = distinct_vectors(vectors[:2])
    assert torch.equal(kept, vectors[:2]) and place is None
    model = model_of()
    with torch.no_grad():
        model.embedding.weight[5] = model.embedding.weight[12]
        scores = model.scores(*padded(HISTORIES))
    assert scores.shape == (5, ITEMS)
    assert torch.equal(scores[:, 4], scores[:, 11])


def test_vectors_that_only_look_equal_are_told_apart(monkeypatch):
    """Where the quick comparison takes different vectors for equal."""
    monkeypatch.setattr(interface, "_keys", lambda vectors: torch.zeros(len(vectors)))
    vectors = torch.tensor([[1.0, 2.0], [0.0, 3.0], [1.0, 2.0], [2.0, 1.0]])
    distinct, place = distinct_vectors(vectors)
    assert len(distinct) == 3 and torch.equal(distinct[place], vectors)
    distinct, place = distinct_vectors(vectors[1:])
    assert torch.equal(distinct if place is None else distinct[place], vectors[1:])


class Followers(Recommender):
    """How often an item came right behind the last one: no gradient, no vectors."""

    dtype = torch.int64

    def __init__(self, items):
        super().__init__(items)
        self.register_buffer("counts", torch.zeros(items + 1, items, dtype=self.dtype))

    def scores(self, items, length):
        return self.counts[items.gather(1, length[:, None] - 1)[:, 0]]

    def fit(self, sequences):
        for start, end in zip(sequences.start, sequences.end, strict=True):
            own = sequences.items[start:end].tolist()
            for before, after in pairwise(own):
                self.counts[before, after - 1] += 1


class FloatingFollowers(Followers):
    dtype = torch.float64


class NarrowFollowers(Followers):
    dtype = torch.int32


TRAINING = literal.held_out(
    [[1, 3, 5, 5, 2], [2, 3, 4, 12, 6], [9, 5, 3, 6], [3, 4, 1], [1], [10, 12]], [1] * 6
)


@pytest.mark.parametrize("kind", [Followers, NarrowFollowers, FloatingFollowers])
def test_a_model_that_scores_and_fits_goes_everywhere(tmp_path, kind):
    """Trained, ranked, shuffled, asked for recommendations, saved and read; whole
    numbers are scores, too, and no score is changed by the filter of seen items.
    """
    model = kind(ITEMS)
    curve = train(model, TRAINING, CASES, TrainingSettings(), filter_seen=True, seed=1)
    assert len(curve) == 1 and not model.reads_last_item_only
    counts = model.counts.clone()
    assert counts.sum() == 14 and counts[3].tolist() == [0, 0, 0, 2, 1, 1] + [0] * 6

    def ranks(inputs, removed):
        orders = [
            literal.ranking(counts[own[-1]].tolist(), set(gone))
            for own, gone in zip(inputs, removed, strict=True)
        ]
        return orders, [
            literal.rank_in(order, item) for order, item in zip(orders, TARGETS, strict=True)
        ]

    for filter_seen in (False, True):
        removed = HISTORIES if filter_seen else [[]] * len(HISTORIES)
        found = rank(model, CASES, filter_seen=filter_seen, list_length=ITEMS)
        orders, expected = ranks(HISTORIES, removed)
        assert found.target[:, 0].tolist() == expected
        lists, _ = recommend(model, HISTORIES, 4, filter_seen=filter_seen)
        for row, order in enumerate(orders):
            assert found.lists[row].tolist() == order + [0] * (ITEMS - len(order))
            assert lists[row].tolist() == order[:4]
        change = intervention("full", CASES, 99, seed=1, repeat=2)
        mixed, _ = change(*padded(HISTORIES), np.arange(len(HISTORIES)))
        inputs = [row[: len(own)] for row, own in zip(mixed.tolist(), HISTORIES, strict=True)]
        assert inputs != HISTORIES
        shuffled = rank(model, CASES, filter_seen=filter_seen, change=change)
        assert shuffled.target[:, 0].tolist() == ranks(inputs, removed)[1]
    assert torch.equal(model.counts, counts)

    architecture = f"{__name__}:{kind.__name__}"
    files = tmp_path / "model.safetensors", tmp_path / "model.json"
    save(model, {"architecture": architecture, "items": ITEMS, "settings": {}}, *files)
    again, _ = load(*files)
    assert type(again) is kind and torch.equal(again.counts, counts)


def test_what_a_narrow_model_lacks_is_said():
    with pytest.raises(InputError, match="Recommender defines no scores"):
        Recommender(3).scores(*padded([[1]]))
    with pytest.raises(InputError, match="Recommender defines no fit"):
        Recommender(3).fit(TRAINING)
