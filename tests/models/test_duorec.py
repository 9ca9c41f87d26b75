"""DuoRec: SASRec when its weights are zero, and its contrastive terms against loops
over single histories.

The encoder is SASRec's and is tested there; DuoRec's ranking, shuffles and resuming
beside those of the other models.
"""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from lastitem.data.sequences import Sequences
from lastitem.models.duorec import DuoRec, info_nce
from lastitem.models.sasrec import SASRec
from lastitem.study.settings import TrainingSettings
from lastitem.training.loop import train
from lastitem.training.losses import softmax_cross_entropy
from lastitem.training.step import _reader, update
from tests.models.batches import draw_parameters, padded
from tests.training.test_loop import hopeless_validation, random_histories, sequences_of

ITEMS, LENGTH = 12, 4
#: Targets 3 (five prefixes), 2, 5, 8 and 9 (one or two); lengths below, at and above
#: ``LENGTH`` + 1; a sequence without a prefix.
HISTORIES = [
    [1, 2, 3],
    [4, 3],
    [3],
    [3, 5],
    [7, 8, 3, 9],
    [5, 3, 3],
    [9, 8, 7, 6, 5, 2],
    [1, 2, 1, 2, 1, 2, 1, 5],
]
#: Those that hold two items, as training uses them.
USABLE = [0, 1, 3, 4, 5, 6, 7]


def model_of(kind=DuoRec, dropout=0.0, **settings):
    sizes = {"maximum_length": LENGTH, "hidden_size": 6, "heads": 2}
    return draw_parameters(kind(ITEMS, dropout=dropout, **sizes, **settings)).double().train()


def contrast(model, index, seed=0, groups=4, seen=None):
    """The auxiliary loss; the vectors that it reads go into ``seen``."""
    reader = _reader(model, TrainingSettings(length_groups=groups), "cpu")

    def read(sequences):
        vectors = reader(sequences)
        if seen is not None:
            seen.append(vectors)
        return vectors

    generator = torch.Generator().manual_seed(seed)
    return model.auxiliary_loss(sequences_of(HISTORIES), np.array(index), read, generator)


def listed(sequences: Sequences):
    return [
        tuple(sequences.items[a:b].tolist())
        for a, b in zip(sequences.start, sequences.end, strict=True)
    ]


def drawn(sequences, index, seed=0):
    return listed(sequences.draw_same_target(np.array(index), torch.Generator().manual_seed(seed)))


# InfoNCE


def looped_info_nce(first, second, temperature):
    """Over all 2B vectors: −log of the partner's share among everything but the vector
    itself.
    """
    vectors, count = [*first, *second], len(first)
    total, negatives = 0.0, []
    for i, vector in enumerate(vectors):
        partner = i + count if i < count else i - count
        similarity = {j: vector @ other / temperature for j, other in enumerate(vectors) if j != i}
        negatives.append(len(similarity) - 1)
        total = (
            total
            - similarity[partner]
            + torch.logsumexp(torch.stack(list(similarity.values())), dim=0)
        )
    assert negatives == [2 * count - 2] * (2 * count)
    return total / len(vectors)


@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("temperature", [1.0, 0.2, 5.0])
def test_info_nce_equals_loops_in_value_and_gradients(batch, temperature):
    generator = torch.Generator().manual_seed(batch)
    pair = [
        torch.randn(batch, 5, generator=generator, dtype=torch.float64).requires_grad_()
        for _ in range(2)
    ]
    found, expected = info_nce(*pair, temperature), looped_info_nce(*pair, temperature)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, pair), torch.autograd.grad(expected, pair), rtol=1e-6, atol=1e-10
    )


def test_info_nce_by_hand():
    """Temperature ½, vectors 1 and 0 with partners 2 and 0: 1 and 2 have similarity 4,
    everything else 0.
    """
    first, second = torch.tensor([[1.0], [0.0]]), torch.tensor([[2.0], [0.0]])
    from_one = math.log(math.exp(4) + 2) - 4
    assert float(info_nce(first, second, 0.5)) == pytest.approx(
        (2 * from_one + 2 * math.log(3)) / 4, abs=1e-6
    )


def test_info_nce_does_not_know_the_vector_itself():
    """Long vectors at right angles: were a vector its own negative, its own length
    would bury everything.
    """
    first, second = torch.eye(4)[:2] * 100, torch.eye(4)[2:] * 100
    assert float(info_nce(first, second, 1.0)) == pytest.approx(math.log(3), abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_info_nce_of_one_pair_is_zero_and_so_is_its_gradient(scale):
    """A last batch may hold a single sequence: there is no negative, nothing to learn,
    and no 0 · ∞.
    """
    pair = [(scale * torch.randn(1, 5)).requires_grad_() for _ in range(2)]
    loss = info_nce(*pair, 1.0)
    assert float(loss.detach()) == 0.0
    assert all(bool((gradient == 0).all()) for gradient in torch.autograd.grad(loss, pair))


# The supervised partner


TO_3 = [(1, 2, 3), (4, 3), (7, 8, 3), (5, 3), (5, 3, 3)]
#: What each usable sequence may be paired with: the same target, itself only where
#: nothing else ends so; a lone 3 is no prefix.
PARTNERS = {
    0: [prefix for prefix in TO_3 if prefix != (1, 2, 3)],
    1: [prefix for prefix in TO_3 if prefix != (4, 3)],
    3: [(9, 8, 7, 6, 5), (1, 2, 1, 2, 1, 2, 1, 5)],
    4: [(7, 8, 3, 9)],
    5: [prefix for prefix in TO_3 if prefix != (5, 3, 3)],
    6: [(1, 2), (1, 2), (1, 2, 1, 2), (1, 2, 1, 2, 1, 2)],
    7: [(3, 5), (9, 8, 7, 6, 5)],
}


def is_uniform(seen: Counter, choices: list) -> bool:
    """χ² of what was drawn from equally likely choices, at most its mean + 5 standard
    deviations; nothing else was drawn.
    """
    expected = {
        choice: seen.total() * count / len(choices) for choice, count in Counter(choices).items()
    }
    freedom = len(expected) - 1
    squares = sum((seen[choice] - count) ** 2 / count for choice, count in expected.items())
    return set(seen) <= set(expected) and squares <= freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("order", [range(len(HISTORIES)), [7, 2, 5, 0, 6, 3, 1, 4]])
@pytest.mark.parametrize("row", USABLE)
def test_partners_are_uniform_over_the_others(row, order):
    """6,000 draws for one sequence, wherever it stands in the log and among the
    prefixes of its target.
    """
    order = list(order)
    sequences = sequences_of(HISTORIES).select(np.array(order))
    found = Counter(drawn(sequences, [order.index(row)] * 6000))
    assert is_uniform(found, PARTNERS[row])


def test_partners_do_not_depend_on_the_batch():
    """Beside all other sequences each row draws as it does alone, independent of the
    other rows; and not only from the batch.
    """
    sequences = sequences_of(HISTORIES)
    rows = listed(
        sequences.draw_same_target(np.array(USABLE * 6000), torch.Generator().manual_seed(1))
    )
    batches = [
        dict(zip(USABLE, rows[first : first + len(USABLE)], strict=True))
        for first in range(0, len(rows), len(USABLE))
    ]
    for row in USABLE:
        assert is_uniform(Counter(batch[row] for batch in batches), PARTNERS[row])
    pairs = [(one, other) for one in PARTNERS[0] for other in PARTNERS[5]]
    assert is_uniform(Counter((batch[0], batch[5]) for batch in batches), pairs)


def test_partners_come_from_the_given_sequences_only():
    """Of a part of the log: what was left out is nobody's partner."""
    part = sequences_of(HISTORIES).select(np.array([5, 4, 0]))
    assert set(drawn(part, [2] * 200)) == {(5, 3), (5, 3, 3), (7, 8, 3)}


def test_partners_repeat_with_the_seed():
    sequences = sequences_of(HISTORIES)
    first, again, other = (drawn(sequences, USABLE * 10, seed) for seed in (3, 3, 4))
    assert first == again != other


# The contrastive terms


def literal_contrast(model, index, partners):
    """Single histories without padding: all but the last item of each, and of its
    partner; no dropout, so no two passes.
    """

    def vectors(histories):
        return [
            model.encode(*padded([list(history[:-1][-LENGTH:])]))[0, -1] for history in histories
        ]

    own, settings = vectors([HISTORIES[row] for row in index]), model.settings
    unsupervised = looped_info_nce(own, own, settings.temperature)
    supervised = looped_info_nce(own, vectors(partners), settings.temperature)
    return settings.unsupervised_weight * unsupervised + settings.supervised_weight * supervised


@pytest.mark.parametrize("groups", [1, 2, 4, 100])
@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("weights", [(0.3, 0.7), (0.3, 0.0), (0.0, 0.7)])
def test_contrast_equals_single_histories_in_value_and_gradient(groups, order, weights):
    """Inputs from one item to longer than the model reads, in an order that is
    not that of their lengths.
    """
    model = model_of(
        block_order=order,
        temperature=0.5,
        unsupervised_weight=weights[0],
        supervised_weight=weights[1],
    )
    index = [6, 0, 7, 3, 4, 1, 5]
    partners = drawn(sequences_of(HISTORIES), index, seed=8)
    found, expected = (
        contrast(model, index, seed=8, groups=groups),
        literal_contrast(model, index, partners),
    )
    torch.testing.assert_close(found, expected)
    wanted = list(model.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(found, wanted),
        torch.autograd.grad(expected, wanted),
        rtol=1e-6,
        atol=1e-10,
    )


def test_an_update_descends_on_both():
    """The gradient is that of the mean next-item loss plus the contrast; the reported
    sum divided by the labels is that loss.
    """
    model, index = model_of(unsupervised_weight=0.3, supervised_weight=0.7), [6, 0, 7, 3, 4, 1, 5]
    by_length = sorted(index, key=lambda row: len(HISTORIES[row]))
    partners = drawn(sequences_of(HISTORIES), by_length, seed=8)
    loss, labels = 0.0, 0
    for row in index:
        history = HISTORIES[row][-LENGTH - 1 :]
        hidden = model.encode(*padded([history[:-1]]))[0]
        loss, labels = (
            loss + softmax_cross_entropy(hidden, model.item_vectors(), torch.tensor(history[1:])),
            labels + len(history) - 1,
        )
    expected = loss / labels + literal_contrast(model, by_length, partners)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    total, count = update(
        model,
        optimizer,
        sequences_of(HISTORIES),
        np.array(index),
        TrainingSettings(),
        torch.Generator().manual_seed(8),
        "cpu",
    )
    assert count == labels
    assert total / labels == pytest.approx(float(expected.detach()), rel=1e-10)
    torch.testing.assert_close(
        [parameter.grad for parameter in model.parameters()], list(gradients), rtol=1e-6, atol=1e-10
    )


def passes_of(model):
    """The vectors of the inputs, of the same under other dropout, and of the partners;
    the loss is made of these three.
    """
    seen = []
    found = contrast(model, USABLE, seen=seen)
    anchor, again, partner = seen
    expected = 0.1 * info_nce(anchor, again, 1.0) + 0.1 * info_nce(anchor, partner, 1.0)
    assert torch.equal(found, expected), "one anchor serves both terms"
    return anchor, again, partner


def test_the_unsupervised_pass_has_other_dropout():
    """Without dropout both vectors are the same numbers; with it no row is, and both
    sides are dropped out.
    """
    first, second, _ = passes_of(model_of())
    assert torch.equal(first, second)
    plain = first
    first, second, _ = passes_of(model_of(dropout=0.3))
    for one, other in ((first, second), (first, plain), (second, plain)):
        assert bool(((one - other).abs().amax(dim=1) > 1e-3).all())


def test_temperature_reaches_the_terms():
    cold, warm = (
        float(contrast(model_of(temperature=temperature), USABLE).detach())
        for temperature in (0.1, 10.0)
    )
    assert warm == pytest.approx(0.2 * math.log(2 * len(USABLE) - 1), rel=0.2), (
        "all similarities alike"
    )
    assert cold > 2 * warm


# Whole trainings


def trained(kind, sequences, batch_size=10, epochs=3, dropout=0.3, **settings):
    torch.manual_seed(5)
    model = kind(ITEMS, maximum_length=10, hidden_size=8, dropout=dropout, **settings)
    training_settings = TrainingSettings(
        batch_size=batch_size, maximum_epochs=epochs, round_updates=1
    )
    curve = train(
        model, sequences, hopeless_validation(), training_settings, filter_seen=True, seed=3
    )
    return model.state_dict(), [line.loss for line in curve]


def test_both_weights_zero_is_sasrec_bit_for_bit():
    """Also the draws of dropout, batches and negatives must be the same, so nothing of
    the terms may be computed.
    """
    sequences = sequences_of(random_histories(30))
    plain, losses = trained(SASRec, sequences)
    found, same_losses = trained(DuoRec, sequences, unsupervised_weight=0.0, supervised_weight=0)
    assert same_losses == losses
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], plain[name]) for name in plain)
    for weights in ((0.1, 0.0), (0.0, 0.1)):
        other, _ = trained(
            DuoRec, sequences, unsupervised_weight=weights[0], supervised_weight=weights[1]
        )
        assert not torch.equal(other["embedding.weight"], plain["embedding.weight"])


def test_batches_of_one_add_nothing():
    """A pair without negatives has no gradient: an epoch of single sequences without
    dropout is SASRec's, and finite.
    """
    sequences = sequences_of(random_histories(12))
    plain, losses = trained(SASRec, sequences, batch_size=1, epochs=1, dropout=0.0)
    found, same_losses = trained(DuoRec, sequences, batch_size=1, epochs=1, dropout=0.0)
    assert same_losses == pytest.approx(losses, rel=1e-6)
    torch.testing.assert_close(found, plain)
