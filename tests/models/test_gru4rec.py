"""GRU4Rec against the cell's equations, step by step.

There is no attention block and so no residual scale; asking for one is refused.
"""

import math

import numpy as np
import pytest
import torch

from lastitem.data.sequences import HeldOut
from lastitem.errors import InputError
from lastitem.evaluation.probing import attention_blocks, probing
from lastitem.evaluation.ranking import rank
from lastitem.models.gru4rec import GRU4Rec
from tests.models.batches import draw_parameters, padded

ITEMS, SIZE = 25, 5


def model_of(seed=0, **settings):
    model = GRU4Rec(ITEMS, **{"maximum_length": 20, "hidden_size": SIZE, **settings})
    return draw_parameters(model, seed, deviation=0.6)


def cases_of(histories, targets):
    ends = np.cumsum([len(history) for history in histories])
    users = np.arange(len(histories), dtype=np.int32)
    starts = np.concatenate(([0], ends[:-1]))
    return HeldOut(
        np.concatenate(histories).astype(np.int32),
        starts,
        ends,
        users,
        np.array(targets, dtype=np.int32),
        np.zeros(len(users), dtype=bool),
    )


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def literal(model, history, layers):
    """r = σ(W_r x + U_r h), z = σ(W_z x + U_z h), n = tanh(W_n x + r·(U_n h)), h' = (1
    − z)·n + z·h, with two biases each.
    """
    state = [[0.0] * SIZE for _ in range(layers)]
    outputs = []
    for item in history:
        x = model.embedding.weight[item].tolist()
        for layer in range(layers):
            w, u = (
                getattr(model.gru, f"weight_ih_l{layer}").tolist(),
                getattr(model.gru, f"weight_hh_l{layer}").tolist(),
            )
            b, c = (
                getattr(model.gru, f"bias_ih_l{layer}").tolist(),
                getattr(model.gru, f"bias_hh_l{layer}").tolist(),
            )
            from_input = [
                sum(w[row][k] * x[k] for k in range(SIZE)) + b[row] for row in range(3 * SIZE)
            ]
            from_state = [
                sum(u[row][k] * state[layer][k] for k in range(SIZE)) + c[row]
                for row in range(3 * SIZE)
            ]
            new = []
            for k in range(SIZE):
                reset = sigmoid(from_input[k] + from_state[k])
                keep = sigmoid(from_input[SIZE + k] + from_state[SIZE + k])
                candidate = math.tanh(from_input[2 * SIZE + k] + reset * from_state[2 * SIZE + k])
                new.append((1 - keep) * candidate + keep * state[layer][k])
            state[layer] = x = new
        outputs.append(
            [sum(row[k] * x[k] for k in range(SIZE)) for row in model.output.weight.tolist()]
        )
    return torch.tensor(outputs, dtype=torch.float64) + model.output.bias


@pytest.mark.parametrize("layers", [1, 2])
def test_forward_equals_the_cell_equations(layers):
    model = model_of(layers=layers).double()
    histories = [[3, 7, 7, 1, 25], [5], [9, 2, 4]]
    with torch.no_grad():
        found = model.encode(*padded(histories))
        for row, history in enumerate(histories):
            torch.testing.assert_close(
                found[row, : len(history)], literal(model, history, layers), rtol=0, atol=1e-12
            )


def test_a_position_reads_its_past_only():
    model = model_of()
    first, second = model.encode(*padded([[3, 7, 1, 25]])), model.encode(*padded([[3, 7, 1, 2]]))
    assert torch.equal(first[:, :3], second[:, :3])
    assert not torch.allclose(first[:, 3], second[:, 3], atol=1e-3)
    assert not torch.allclose(first[:, 3], model.encode(*padded([[4, 7, 1, 25]]))[:, 3], atol=1e-4)


def test_padding_is_neither_read_nor_counted():
    """The same history padded to 10 and to 50; two histories are read at their own
    ends.
    """
    model = model_of()
    vectors = []
    for width in (3, 10, 50):
        items, length = padded([[3, 7, 1], [4, 9]], width)
        vectors.append(model.encode(items, length)[torch.arange(2), model.readout(length)])
    torch.testing.assert_close(vectors[1], vectors[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(vectors[2], vectors[0], rtol=0, atol=1e-6)
    assert not torch.allclose(vectors[0][0], vectors[0][1], atol=1e-3)


def test_hidden_state_starts_anew_for_every_user():
    """Neither the order of users in a batch, nor the users beside one, nor an earlier
    batch changes a vector.
    """
    model = model_of()
    histories = [[3, 7, 1], [4, 9, 5, 6], [25], [2, 2, 8]]
    batch = model.encode(*padded(histories))
    turned = model.encode(*padded(histories[::-1]))
    for row, history in enumerate(histories):
        alone = model.encode(*padded([history]))[0]
        torch.testing.assert_close(batch[row, : len(history)], alone, rtol=0, atol=1e-6)
        torch.testing.assert_close(turned[-1 - row, : len(history)], alone, rtol=0, atol=1e-6)


def test_ranks_do_not_depend_on_order_or_chunks():
    model = model_of()
    generator = np.random.default_rng(0)
    cases = cases_of(
        [
            generator.integers(1, ITEMS + 1, size=n).tolist()
            for n in generator.integers(1, 30, size=40)
        ],
        [1] * 40,
    )
    plain = rank(model, cases, filter_seen=False)
    order = generator.permutation(40)
    turned = rank(model, cases.select(order), filter_seen=False)
    assert np.array_equal(turned.target, plain.target[order])
    assert np.array_equal(turned.last, plain.last[order])


def test_dropout_acts_with_one_layer():
    """nn.GRU's own dropout does nothing there; the embedding's and the output's do, and
    differ with the probability.
    """
    batch = padded([[3, 7, 1, 25]])
    outputs = []
    for probability in (0.0, 0.2, 0.6):
        model = model_of(dropout=probability, layers=1).train()
        torch.manual_seed(0)
        outputs.append(model.encode(*batch))
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[1], outputs[2])


def test_dropout_falls_in_front_of_the_output_map():
    """What is compared with item vectors is never zeroed itself; with everything
    dropped the map's bias is left.
    """
    model = model_of(dropout=0.5).train()
    torch.manual_seed(0)
    assert bool((model.encode(*padded([[3, 7, 1, 25]] * 20)) != 0).all())
    model.dropout.probability = 1.0
    torch.testing.assert_close(model.encode(*padded([[3, 7]])), model.output.bias.expand(1, 2, -1))


def test_one_layer_gives_no_warning(recwarn):
    """Torch warns when its own dropout is asked for with one layer; the model must
    not ask.
    """
    GRU4Rec(ITEMS, layers=1, dropout=0.4)
    assert not recwarn.list


def test_evaluating_twice_is_identical():
    model = model_of(dropout=0.5, layers=2)
    batch = padded([[3, 7, 1], [4]])
    assert torch.equal(model.encode(*batch), model.encode(*batch))


def test_scale_and_trace_are_refused():
    """They have no meaning here; silence would report a plain run as a rescaled one."""
    model = model_of()
    assert attention_blocks(model) == []
    for asked in ({"residual_scale": 0.5}, {"query": "every"}, {}):
        with (
            pytest.raises(InputError, match="GRU4Rec has no attention block"),
            probing(model, **asked),
        ):
            pass


def test_item_vectors_are_tied_and_hold_no_padding():
    model = model_of()
    assert torch.equal(model.item_vectors(), model.embedding.weight[1:])
    assert len(model.item_vectors()) == ITEMS
