"""BERT4Rec with its appended mask against a literal forward pass."""

import math

import numpy as np
import pytest
import torch

from lastitem.data.padding import pad
from lastitem.data.sequences import HeldOut
from lastitem.evaluation.ranking import rank
from lastitem.models.bert4rec import BERT4Rec, waves
from tests.models.batches import draw_parameters, padded, scaled

ITEMS, SIZE, HEADS, LENGTH = 30, 8, 2, 12


def model_of(seed=0, items=ITEMS, **settings):
    model = BERT4Rec(
        items, **{"maximum_length": LENGTH, "hidden_size": SIZE, "heads": HEADS, **settings}
    )
    return draw_parameters(model, seed)


def cases_of(histories, targets, dtype=np.int32):
    ends = np.cumsum([len(history) for history in histories])
    users = np.arange(len(histories), dtype=np.int32)
    starts = np.concatenate(([0], ends[:-1]))
    return HeldOut(
        np.concatenate(histories).astype(dtype),
        starts,
        ends,
        users,
        np.array(targets, dtype=np.int32),
        np.zeros(len(users), dtype=bool),
    )


def normalized(vector, norm):
    deviation = torch.sqrt(((vector - vector.mean()) ** 2).mean() + norm.eps)
    return norm.weight * (vector - vector.mean()) / deviation + norm.bias


def gelu(vector):
    return torch.tensor(
        [0.5 * float(x) * (1 + math.erf(float(x) / math.sqrt(2))) for x in vector],
        dtype=vector.dtype,
    )


def literal(model, codes, scale=1.0):
    """Post-LN BERT blocks in loops: every position reads every position of ``codes``;
    GELU feed-forward of 2·d.
    """
    width = SIZE // HEADS
    stream = [
        normalized(model.embedding.weight[code] + model.position.weight[i], model.input_norm)
        for i, code in enumerate(codes)
    ]
    for block in model.blocks:
        attention = block.attention
        assert block.feed_forward.inner.out_features == 2 * SIZE
        after = []
        for vector in stream:
            mixed = torch.zeros(SIZE, dtype=vector.dtype)
            for h in range(HEADS):
                part = slice(h * width, (h + 1) * width)
                q = (attention.query.weight @ vector + attention.query.bias)[part]
                score = [
                    q @ (attention.key.weight @ x + attention.key.bias)[part] / math.sqrt(width)
                    for x in stream
                ]
                total = sum(math.exp(value) for value in score)
                for x, value in zip(stream, score, strict=True):
                    mixed[part] += (
                        math.exp(value)
                        / total
                        * (attention.value.weight @ x + attention.value.bias)[part]
                    )
            attended = attention.output.weight @ mixed + attention.output.bias
            h = normalized(scale * vector + attended, block.attention_norm)
            inner = gelu(block.feed_forward.inner.weight @ h + block.feed_forward.inner.bias)
            after.append(
                normalized(
                    h + block.feed_forward.outer.weight @ inner + block.feed_forward.outer.bias,
                    block.other_norm,
                )
            )
        stream = after
    head = model.output
    return torch.stack(
        [normalized(gelu(head[0].weight @ x + head[0].bias), head[2]) for x in stream]
    )


@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0])
def test_forward_equals_literal_with_the_mask_appended(scale):
    model = model_of().double()
    histories = [[3, 7, 7, 1, 30], [5], [9, 2, 4, 8, 6, 1, 3]]
    items, length = padded(histories)
    with torch.no_grad():
        found = scaled(model, items, length, scale)
        assert found.shape == (3, 8, SIZE)
        for row, history in enumerate(histories):
            expected = literal(model, [*history, ITEMS + 1], scale)
            torch.testing.assert_close(found[row, : len(history) + 1], expected, rtol=0, atol=1e-10)
        assert model.readout(length).tolist() == [5, 1, 7]


def test_encode_leaves_its_input_alone():
    model = model_of()
    items, length = padded([[3, 7], [5, 6]])
    before = items.clone()
    model.encode(items, length)
    assert torch.equal(items, before)


def test_every_position_sees_both_sides():
    """A changed last item changes position 0, and a changed first item changes the last
    position.
    """
    model = model_of()
    plain = model.encode(*padded([[4, 8, 15, 16]]))
    later, earlier = (
        model.encode(*padded([[4, 8, 15, 23]])),
        model.encode(*padded([[5, 8, 15, 16]])),
    )
    assert not torch.allclose(plain[:, 0], later[:, 0], atol=1e-4)
    assert not torch.allclose(plain[:, 3], earlier[:, 3], atol=1e-4)


def test_a_masked_item_is_restored_from_both_sides():
    """A mask in the middle: altering an item behind it, or one in front of it, changes
    what stands at the mask.
    """
    model = model_of()
    codes, length = padded([[4, 8, model.mask, 16, 23]])
    plain = model(codes, length)[:, 2]
    for place in (0, 4):
        changed = codes.clone()
        changed[0, place] = 29
        assert not torch.allclose(plain, model(changed, length)[:, 2], atol=1e-4)


def test_width_of_padding_changes_nothing():
    """Also where a batch mixes rows with and without padding, which take different
    paths through the attention.
    """
    model = model_of(maximum_length=60)
    history = [4, 8, 15, 16, 23, 1, 2]
    scores = []
    for others, width in (([], 7), ([], 10), ([], 50), ([[1, 2]], 10)):
        items, length = padded([history, *others], width)
        scores.append(
            model.encode(items, length)[0, model.readout(length)[0]] @ model.item_vectors().T
        )
    for other in scores[1:]:
        torch.testing.assert_close(other, scores[0], rtol=0, atol=1e-5)
        assert torch.equal(other.topk(10).indices, scores[0].topk(10).indices)


def test_different_short_histories_give_different_lists():
    model = model_of()
    items, length = padded([[4, 8], [15, 16, 23]], width=10)
    vectors = model.encode(items, length)[torch.arange(2), model.readout(length)]
    lists = (vectors @ model.item_vectors().T).topk(10).indices
    assert lists[0].tolist() != lists[1].tolist()


@pytest.mark.parametrize("length", [LENGTH - 2, LENGTH - 1, LENGTH, LENGTH + 1])
def test_the_mask_takes_one_position(length):
    """At most ``maximum_length`` − 1 items and the mask; the newest items are kept."""
    model = model_of()
    history = [1 + (7 * place) % ITEMS for place in range(length)]
    items, lengths = pad(cases_of([history], [1]), np.array([0]), model.input_length)
    assert items.tolist() == [history[-(LENGTH - 1) :]]
    hidden = model.encode(items, lengths)
    assert hidden.shape[1] == min(length, LENGTH - 1) + 1 <= LENGTH
    assert int(rank(model, cases_of([history], [1]), filter_seen=False).target[0, 0]) >= 1


@pytest.mark.parametrize("items", [126, 127, 128, 129, 32766, 32767, 32768, 32769])
def test_no_code_overflows_or_collides(items):
    """The highest item beside the mask, from the narrowest column Parquet could keep:
    padding 0 < items < mask.
    """
    narrow = next(kind for kind in (np.int8, np.int16, np.int32) if np.iinfo(kind).max >= items)
    model = BERT4Rec(
        items, maximum_length=8, hidden_size=4, heads=1, blocks=1, mask_probability=0.5
    ).eval()
    assert model.mask == items + 1
    assert model.embedding.num_embeddings == items + 2
    assert len(model.item_vectors()) == items
    cases = cases_of([[1, items, items - 1, items], [items]], [items, 1], dtype=narrow)
    batch = model.training_batch(cases, np.array([0, 1]), torch.Generator().manual_seed(0))
    codes, length, masked = batch.items, batch.length, batch.labelled
    real = torch.arange(4) < length[:, None]
    assert bool((codes[real] > 0).all())
    assert bool((codes[~real] == 0).all())
    assert set(codes[real & ~masked].tolist()) <= {1, items - 1, items}
    assert set(codes[masked].tolist()) == {items + 1}
    assert len(batch.label) == int(masked.sum())
    assert set(batch.label.tolist()) <= {1, items - 1, items}
    ranks = rank(model, cases, filter_seen=False, list_length=5)
    assert bool((ranks.target >= 1).all())
    assert ranks.lists.min() >= 1
    assert ranks.lists.max() <= items


def test_mask_and_padding_cannot_be_recommended():
    """Their rows are made the best possible answer; the lists still hold all items and
    nothing else.
    """
    model = model_of()
    with torch.no_grad():
        direction = model.encode(*padded([[4, 8]]))[0, 2]
        model.embedding.weight[0] = 50 * direction
    ranks = rank(model, cases_of([[4, 8]], [1]), filter_seen=False, list_length=ITEMS + 2)
    assert sorted(ranks.lists[0, :ITEMS].tolist()) == list(range(1, ITEMS + 1))
    assert ranks.lists[0, ITEMS:].tolist() == [0, 0]
    assert torch.equal(model.item_vectors(), model.embedding.weight[1 : ITEMS + 1])


def test_evaluating_twice_is_identical():
    model = model_of(dropout=0.5)
    batch = padded([[4, 8, 15], [1]])
    assert torch.equal(model.encode(*batch), model.encode(*batch))


def test_scale_one_is_the_plain_call_bit_for_bit():
    model = model_of()
    batch = padded([[4, 8, 15, 16], [1, 2]])
    assert torch.equal(model.encode(*batch), scaled(model, *batch, 1.0))
    assert not torch.allclose(model.encode(*batch), scaled(model, *batch, 0.5), atol=1e-3)


def test_its_positions_hold_no_earlier_prediction():
    """Recovery moves the read-out back to earlier predictions; a bidirectional model
    has none and must say so.
    """
    assert BERT4Rec.reads_prefixes is False


# Places


@pytest.mark.parametrize("size", [8, 5])
def test_positions_start_as_waves_by_hand(size):
    """Pairs of sine and cosine; a step to the next place turns each pair by the same
    angle, wherever it is taken.
    """
    found = waves(9, size)
    assert found.shape == (9, size)
    for place in range(9):
        for column in range(size):
            angle = place / 9 ** ((column - column % 2) / size)
            expected = math.sqrt(2) * (math.cos(angle) if column % 2 else math.sin(angle))
            assert float(found[place, column]) == pytest.approx(expected, abs=1e-5)
    model = BERT4Rec(ITEMS, maximum_length=9, hidden_size=8, heads=2)
    torch.testing.assert_close(model.position.weight.detach(), 0.05 * waves(9, 8))


def test_labels_are_counted_where_they_stand():
    """Over all batches, each under its own mask."""
    model, generator = model_of(mask_probability=0.4), torch.Generator().manual_seed(0)
    histories = [[1, 2, 3, 4], [5, 6], [7, 8, 9]]
    cases, counted = cases_of(histories, [1, 1, 1]), np.zeros(LENGTH, dtype=int)
    assert model.labels.tolist() == counted.tolist()
    for index in ([0, 1, 2], [1], [2, 0]):
        batch = model.training_batch(cases, np.array(index), generator)
        for _, place in batch.labelled.nonzero().tolist():
            counted[place] += 1
    assert model.labels.tolist() == counted.tolist()
    assert counted.sum() >= 6


@pytest.mark.parametrize(
    ("labels", "window"),
    [
        ([0] * 12, 11),  # not trained: what the settings say
        ([500] * 12, 11),
        ([500] * 10 + [0, 0], 9),
        ([900, 800, 120, 100, 99, 3, 0, 0, 0, 0, 0, 0], 3),
        ([60, 40, 30, 29, 0, 0, 0, 0, 0, 0, 0, 0], 2),  # short: half of the most
        ([500] + [0] * 11, 1),
    ],
)
def test_inputs_end_where_training_did(labels, window):
    """The mask stands at the last place with 100 labels, or with half of the most."""
    model = model_of()
    model.labels.copy_(torch.tensor(labels))
    assert model.input_length == window
    assert model.is_cut_short == (window < LENGTH - 1)
    read = model.readout_labels(torch.arange(1, window + 1))
    assert read.tolist() == labels[1 : window + 1]


def test_the_window_goes_with_the_weights():
    """A case is ranked as if its history had begun with what is read of it."""
    model, histories = model_of(), [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [5]]
    model.labels.copy_(torch.tensor([300] * 5 + [0] * 7))
    copy = model_of(seed=1)
    copy.load_state_dict(model.state_dict())
    whole = rank(copy, cases_of(histories, [8, 9, 3]), filter_seen=False)
    newest = rank(model, cases_of([h[-4:] for h in histories], [8, 9, 3]), filter_seen=False)
    assert whole.target.tolist() == newest.target.tolist()
    model.labels.fill_(300)
    further = rank(model, cases_of(histories, [8, 9, 3]), filter_seen=False, list_length=30)
    assert (
        further.lists[0].tolist()
        != rank(copy, cases_of(histories, [8, 9, 3]), filter_seen=False, list_length=30)
        .lists[0]
        .tolist()
    )
