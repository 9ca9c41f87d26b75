"""SASRec in both block orders against a literal forward pass, one history at a time."""

import math

import numpy as np
import pytest
import torch

from lastitem.data.padding import pad
from lastitem.data.sequences import HeldOut
from lastitem.evaluation.ranking import rank
from lastitem.models.sasrec import SASRec
from tests.models.batches import draw_parameters, padded, scaled

ITEMS, SIZE, HEADS, LENGTH = 30, 8, 2, 12


def model_of(order="post", seed=0, **settings):
    """A small model with every parameter drawn, the padding row too: nothing may depend
    on it being zero.
    """
    model = SASRec(
        ITEMS,
        **{
            "maximum_length": LENGTH,
            "hidden_size": SIZE,
            "heads": HEADS,
            "block_order": order,
            **settings,
        },
    )
    return draw_parameters(model, seed)


def cases_of(histories, targets=None):
    """The histories as test inputs, in the form that ranking reads."""
    ends = np.cumsum([len(history) for history in histories])
    count = len(histories)
    return HeldOut(
        np.concatenate(histories).astype(np.int32),
        np.concatenate(([0], ends[:-1])),
        ends,
        np.arange(count, dtype=np.int32),
        np.array(targets if targets is not None else [1] * count, dtype=np.int32),
        np.zeros(count, dtype=bool),
    )


def normalized(vector, norm):
    deviation = torch.sqrt(((vector - vector.mean()) ** 2).mean() + norm.eps)
    return norm.weight * (vector - vector.mean()) / deviation + norm.bias


def literal(model, history, order, scale=1.0):
    """In loops over blocks, positions, heads and sources: one vector per position of
    one history, the newest item at the last place.
    """
    width = SIZE // HEADS
    places = range(LENGTH - len(history), LENGTH)
    stream = [
        model.embedding.weight[item] * math.sqrt(SIZE) + model.position.weight[i]
        for i, item in zip(places, history, strict=True)
    ]
    if order == "post":
        stream = [normalized(x, model.input_norm) for x in stream]
    for block in model.blocks:
        attention = block.attention
        query = [normalized(x, block.other_norm) for x in stream] if order == "pre" else stream
        after = []
        for i, vector in enumerate(query):
            mixed = torch.zeros(SIZE, dtype=vector.dtype)
            for h in range(HEADS):
                part = slice(h * width, (h + 1) * width)
                q = (attention.query.weight @ vector + attention.query.bias)[part]
                score = [
                    q
                    @ (attention.key.weight @ stream[j] + attention.key.bias)[part]
                    / math.sqrt(width)
                    for j in range(i + 1)
                ]
                total = sum(math.exp(value) for value in score)
                for j in range(i + 1):
                    mixed[part] += (
                        math.exp(score[j])
                        / total
                        * (attention.value.weight @ stream[j] + attention.value.bias)[part]
                    )
            attended = attention.output.weight @ mixed + attention.output.bias
            h = normalized(scale * vector + attended, block.attention_norm)
            inner = torch.clamp(
                block.feed_forward.inner.weight @ h + block.feed_forward.inner.bias, min=0
            )
            out = h + block.feed_forward.outer.weight @ inner + block.feed_forward.outer.bias
            after.append(normalized(out, block.other_norm) if order == "post" else out)
        stream = after
    return torch.stack([normalized(x, model.output_norm) for x in stream])


@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("order", ["post", "pre"])
def test_forward_equals_literal(order, scale):
    model = model_of(order).double()
    histories = [[3, 7, 7, 1, 30], [5], [9, 2, 4, 8, 6, 1, 3]]
    with torch.no_grad():
        found = scaled(model, *padded(histories), scale)
        for row, history in enumerate(histories):
            torch.testing.assert_close(
                found[row, : len(history)],
                literal(model, history, order, scale),
                rtol=0,
                atol=1e-10,
            )


def test_the_orders_differ():
    """The same weights in the two orders: if both gave the same, one of them would not
    be what it says.
    """
    post, pre = model_of("post"), model_of("pre")
    pre.load_state_dict(
        {
            name: tensor
            for name, tensor in post.state_dict().items()
            if not name.startswith("input_norm")
        }
    )
    batch = padded([[1, 2, 3, 4]])
    assert not torch.allclose(post.encode(*batch), pre.encode(*batch), atol=1e-2)


def test_the_newest_item_has_the_last_place():
    """Whatever the length and the padding; of a full input the oldest has the first."""
    assert model_of().places(torch.tensor([1, 3, LENGTH]), LENGTH).tolist() == [
        [11] * 12,
        [9, 10, 11, *[11] * 9],
        list(range(12)),
    ]


@pytest.mark.parametrize("order", ["post", "pre"])
def test_future_items_change_nothing_earlier(order):
    model = model_of(order)
    first = model.encode(*padded([[4, 8, 15, 16, 23]]))
    second = model.encode(*padded([[4, 8, 15, 29, 11]]))
    torch.testing.assert_close(first[:, :3], second[:, :3])
    assert not torch.allclose(first[:, 3], second[:, 3], atol=1e-3)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_earlier_items_change_what_follows(order):
    """Attention looks back: the oldest item is seen at the last position."""
    model = model_of(order)
    first, second = (
        model.encode(*padded([[4, 8, 15, 16, 23]])),
        model.encode(*padded([[5, 8, 15, 16, 23]])),
    )
    assert not torch.allclose(first[:, -1], second[:, -1], atol=1e-4)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_width_of_padding_changes_nothing(order):
    """The same history padded to 10 and to 50: same vectors, same ten best items."""
    model = model_of(order, maximum_length=50)
    history = [[4, 8, 15, 16, 23, 1, 2]]
    scores = []
    for width in (7, 10, 50):
        items, length = padded(history, width)
        scores.append(
            model.encode(items, length)[0, model.readout(length)[0]] @ model.item_vectors().T
        )
    for other in scores[1:]:
        torch.testing.assert_close(other, scores[0], rtol=0, atol=1e-5)
        assert torch.equal(other.topk(10).indices, scores[0].topk(10).indices)


def test_real_items_whose_vector_sums_to_zero_are_seen():
    """A mask made from sums of vectors would drop them; ours comes from lengths."""
    model = model_of()
    with torch.no_grad():
        model.embedding.weight[4] -= model.embedding.weight[4].mean()
        model.embedding.weight[5] = 0.0
    with_item = model.encode(*padded([[4, 5, 6]]))[0, 2]
    assert not torch.allclose(with_item, model.encode(*padded([[7, 5, 6]]))[0, 2], atol=1e-4)
    assert not torch.allclose(with_item, model.encode(*padded([[4, 8, 6]]))[0, 2], atol=1e-4)


def test_different_short_histories_give_different_lists():
    """Read at the last real position, not at the last column, where both rows hold
    padding.
    """
    model = model_of()
    items, length = padded([[4, 8], [15, 16, 23]], width=10)
    hidden = model.encode(items, length)
    vectors = hidden[torch.arange(2), model.readout(length)]
    assert model.readout(length).tolist() == [1, 2]
    lists = (vectors @ model.item_vectors().T).topk(10).indices
    assert lists[0].tolist() != lists[1].tolist()


@pytest.mark.parametrize("length", [LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH])
def test_the_newest_items_fit_the_position_table(length):
    """The oldest are cut: the input equals the one that never held them; the newest is
    the last position.
    """
    model = model_of()
    history = [1 + (7 * place) % ITEMS for place in range(length)]
    kept = history[-LENGTH:]
    items, lengths = pad(cases_of([history]), np.array([0]), model.input_length)
    assert items.tolist() == [kept]
    torch.testing.assert_close(model.encode(items, lengths), model.encode(*padded([kept])))
    ranks = rank(model, cases_of([history, kept], [2, 2]), filter_seen=False)
    assert ranks.target[0, 0] == ranks.target[1, 0] >= 1


def test_evaluating_twice_is_identical():
    model = model_of(dropout=0.5)
    batch = padded([[4, 8, 15], [1]])
    assert torch.equal(model.encode(*batch), model.encode(*batch))
    model.train()
    assert not torch.equal(model.encode(*batch), model.encode(*batch)), (
        "dropout must act in training, or this test says nothing"
    )


@pytest.mark.parametrize("order", ["post", "pre"])
def test_scale_one_is_the_plain_call_bit_for_bit(order):
    model = model_of(order)
    batch = padded([[4, 8, 15, 16], [1, 2]])
    assert torch.equal(model.encode(*batch), scaled(model, *batch, 1.0))
    assert not torch.allclose(model.encode(*batch), scaled(model, *batch, 0.5), atol=1e-3)


def test_every_item_has_its_own_vector():
    """Item 1 is row 0 of the item vectors; padding has no row, so it can be recommended
    by no score.
    """
    model = model_of()
    assert model.item_vectors().shape == (ITEMS, SIZE)
    assert torch.equal(model.item_vectors()[0], model.embedding.weight[1])
    with torch.no_grad():
        model.embedding.weight[1] = 100 * model.encode(*padded([[4, 8]]))[0, 1]
    assert rank(model, cases_of([[4, 8]], [1]), filter_seen=False).target[0, 0] == 1


def test_fresh_model_has_a_zero_padding_row():
    """It takes no gradient either, so it stays zero in training."""
    model = SASRec(ITEMS, maximum_length=LENGTH, hidden_size=SIZE)
    assert bool((model.embedding.weight[0] == 0).all())
    model.encode(*padded([[1, 2, 3], [4]])).sum().backward()
    assert bool((model.embedding.weight.grad[0] == 0).all())


def test_sizes_of_the_paper_are_the_defaults():
    """d 64, two blocks, two heads, length 200."""
    model = SASRec(ITEMS)
    assert (model.embedding.embedding_dim, len(model.blocks), model.blocks[0].attention.heads) == (
        64,
        2,
        2,
    )
    assert model.maximum_length == model.input_length == 200
    assert all(block.order == "post" for block in model.blocks)
