"""BSARec against a literal forward pass, sums of cosines beside looped attention.

Inputs are moved to the end of a fixed length, so the last column is never padding. Its
ranking, shuffles, decomposition and training in whole are tested beside those of the
other models.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from lastitem.data.padding import pad
from lastitem.evaluation.probing import attention_blocks, probing
from lastitem.evaluation.ranking import rank
from lastitem.models.bsarec import BSARec, FrequencyFilter, low_pass_matrix
from lastitem.study.settings import TrainingSettings
from lastitem.training.batches import make_batch
from lastitem.training.loop import train
from lastitem.training.step import loss_of, update
from tests.literal import held_out
from tests.models.batches import draw_parameters, padded, scaled
from tests.models.test_attention import fed_forward, looped_attention, normalized
from tests.training.test_loop import hopeless_validation, sequences_of

ITEMS, SIZE, LENGTH = 30, 6, 7
SOFTMAX = TrainingSettings()


def model_of(seed=0, **settings):
    return draw_parameters(
        BSARec(ITEMS, **{"maximum_length": LENGTH, "hidden_size": SIZE, "heads": 2, **settings}),
        seed,
    )


def filter_of(cutoff, dropout=0.0, length=8):
    return draw_parameters(
        FrequencyFilter(length, SIZE, cutoff, dropout, 1e-12), seed=cutoff
    ).double()


def literal_low(x, cutoff):
    """Sums of cosines: frequency k of L positions is kept if it, or its mirror image L
    − k, is at most ⌊c/2⌋.
    """
    length = len(x)
    kept = [k for k in range(length) if min(k, length - k) <= cutoff // 2]
    low = torch.zeros_like(x)
    for n in range(length):
        for m in range(length):
            low[n] += (
                x[m] * sum(math.cos(2 * math.pi * k * (n - m) / length) for k in kept) / length
            )
    return low


def literal_filter(layer, x, cutoff):
    """F = LN(x + low + β²·(x − low)), dropout being off."""
    low = literal_low(x, cutoff)
    return torch.stack([normalized(row, layer.norm) for row in x + low + layer.beta**2 * (x - low)])


@torch.no_grad()
def literal(model, history, cutoff, share, scale=1.0):
    """One history alone: padding in front up to the fixed length, then α·F + (1 − α)·A
    and feed-forward, each with its LN.
    """
    codes = [0] * (model.maximum_length - len(history)) + history
    x = torch.stack(
        [
            normalized(model.embedding.weight[c] + model.position.weight[i], model.input_norm)
            for i, c in enumerate(codes)
        ]
    )
    for block in model.blocks:
        _, attended = looped_attention(
            block.attention, x[None], x[None], lambda _, i, j: j <= i and (codes[j] != 0 or j == i)
        )
        attention = torch.stack(
            [normalized(row, block.attention_norm) for row in scale * x + attended[0]]
        )
        h = share * literal_filter(block.other_branch, x, cutoff) + (1 - share) * attention
        x = torch.stack(
            [
                normalized(row + fed_forward(row, block.feed_forward, "gelu"), block.other_norm)
                for row in h
            ]
        )
    return x


# The filter


@pytest.mark.parametrize(
    ("cutoff", "low"),
    [
        (1, [3.0, 3.0, 3.0, 3.0]),
        (2, [2.0, 1.0, 4.0, 5.0]),
        (3, [2.0, 1.0, 4.0, 5.0]),
        (4, [1.0, 2.0, 3.0, 6.0]),
    ],
)
@torch.no_grad()
def test_filter_by_hand(cutoff, low):
    """Positions 1, 2, 3, 6: the mean is 3; the alternating part, −1, 1, −1, 1, is the
    highest frequency and the first to go.
    """
    layer = FrequencyFilter(4, 1, cutoff, 0.0, 1e-12)
    layer.norm = nn.Identity()
    layer.beta.fill_(-2.0)
    found = layer(torch.tensor([1.0, 2.0, 3.0, 6.0]).view(1, 4, 1)).flatten().tolist()
    assert found == pytest.approx(
        [x + part + 4 * (x - part) for x, part in zip([1.0, 2.0, 3.0, 6.0], low, strict=True)],
        abs=1e-5,
    )


@pytest.mark.parametrize("length", [1, 2, 7, 8])
@pytest.mark.parametrize("cutoff", [1, 2, 5, 6, 7, 8, 50])
@torch.no_grad()
def test_filter_equals_sums_of_cosines(length, cutoff):
    """Odd and even lengths; from the mean alone to every frequency and beyond; each
    sequence and dimension for itself.
    """
    layer = filter_of(cutoff, length=length)
    x = torch.randn(
        3, length, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    found = layer(x)
    for row in range(3):
        torch.testing.assert_close(
            found[row], literal_filter(layer, x[row], cutoff), rtol=0, atol=1e-10
        )
    at = torch.tensor([0, length, 3 * length - 1])
    torch.testing.assert_close(layer(x, at), found.flatten(0, 1)[at])
    if cutoff // 2 >= length // 2:
        layer.beta.add_(1.0)
        (
            torch.testing.assert_close(layer(x), found),
            "with every frequency in the low part β has nothing to scale",
        )


@pytest.mark.parametrize(("length", "cutoff"), [(7, 5), (8, 5), (8, 8), (50, 5)])
def test_low_pass_equals_the_fourier_transform(length, cutoff):
    x = torch.randn(
        2, length, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    spectrum = torch.fft.rfft(x, dim=1)
    spectrum[:, cutoff // 2 + 1 :] = 0
    torch.testing.assert_close(
        low_pass_matrix(length, cutoff // 2 + 1) @ x, torch.fft.irfft(spectrum, n=length, dim=1)
    )


def test_filter_drops_the_filtered_part_only():
    """In training each filtered number is zeroed or doubled (p = 0.5); x itself, in
    front of the normalization, never is.
    """
    layer = filter_of(5, dropout=0.5)
    layer.norm = nn.Identity()
    x = torch.randn(50, 8, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    filtered = layer(x) - x
    layer.train()
    torch.manual_seed(0)
    ratio = ((layer(x) - x) / filtered).detach()
    dropped = ratio.abs() < 1e-9
    torch.testing.assert_close(ratio[~dropped], torch.full_like(ratio[~dropped], 2.0))
    assert 0.45 < float(dropped.double().mean()) < 0.55


# The model


@pytest.mark.parametrize("length", [LENGTH, LENGTH + 1])
@pytest.mark.parametrize(("share", "cutoff"), [(0.0, 5), (0.3, 1), (0.7, 5), (1.0, 3)])
@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0])
def test_forward_equals_literal(length, share, cutoff, scale):
    """Every position, those of the padding too: odd and even fixed length, one item,
    one less than all, all.
    """
    model = model_of(maximum_length=length, filter_share=share, filter_cutoff=cutoff).double()
    histories = [
        [5],
        [3, 7, 7],
        [1 + 4 * i for i in range(length - 1)],
        [2 + 3 * i for i in range(length)],
    ]
    with torch.no_grad():
        found = scaled(model, *padded(histories), scale)
    assert found.shape == (4, length, SIZE)
    for row, history in enumerate(histories):
        torch.testing.assert_close(
            found[row], literal(model, history, cutoff, share, scale), rtol=0, atol=1e-10
        )


def test_readout_and_input_start_by_hand():
    """Inputs end at the fixed length: one item stands at its last position, a full
    input begins at 0.
    """
    model, length = model_of(), torch.tensor([1, 2, LENGTH])
    assert model.readout(length).tolist() == [LENGTH - 1] * 3
    assert model.input_start(length).tolist() == [LENGTH - 1, LENGTH - 2, 0]
    assert model.reads_prefixes is False, (
        "no position holds a prediction that has not seen what follows"
    )


@pytest.mark.parametrize("length", [1, LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH])
def test_the_newest_items_fit_the_position_table(length):
    model = model_of()
    history = [1 + (7 * place) % ITEMS for place in range(length)]
    kept = history[-LENGTH:]
    cases = held_out([history, kept], [2, 2])
    items, lengths = pad(cases, np.array([0]), model.input_length)
    assert items.tolist() == [kept]
    torch.testing.assert_close(model.encode(items, lengths), model.encode(*padded([kept])))
    ranks = rank(model, cases, filter_seen=False)
    assert ranks.target[0, 0] == ranks.target[1, 0] >= 1


def test_other_rows_and_the_width_of_padding_change_nothing():
    """Alone, wider, and beside shorter and longer inputs: the same vectors at every
    position.
    """
    model, history = model_of(), [4, 8, 15, 16]
    alone = model.encode(*padded([history]))[0]
    for others, width in (([], LENGTH), ([[1]], 4), ([[1], [2, 3, 4, 5, 6, 7, 8]], LENGTH)):
        torch.testing.assert_close(
            model.encode(*padded([history, *others], width))[0], alone, rtol=0, atol=1e-5
        )


def test_attention_reads_no_padding_and_no_later_item():
    """The weights themselves, in every block and head; a padding position keeps only
    itself.
    """
    lengths = [1, 3, LENGTH]
    items, length = padded([list(range(1, count + 1)) for count in lengths])
    model = model_of()
    with probing(model, query="every") as traces:
        model.encode(items, length)
    assert len(traces) == len(attention_blocks(model)) == 2
    for block in traces:
        for row, count in enumerate(lengths):
            start = LENGTH - count
            for query in range(LENGTH):
                sources = range(start, query + 1) if query >= start else [query]
                weights = block.attention[row, :, query]
                assert bool((weights[:, list(sources)] > 0).all())
                torch.testing.assert_close(weights[:, list(sources)].sum(dim=1), torch.ones(2))
                assert int((weights > 0).sum()) == 2 * len(sources)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_the_filter_alone_carries_later_items_back(place):
    """With α = 0 a changed item changes nothing in front of it; with α = 1 and with
    both it does: no loss may stand there.
    """
    first, second = [4, 8, 15, 16], [4, 8, 15, 16]
    second[place] = 29
    at = LENGTH - 4 + place
    for share in (0.0, 0.7, 1.0):
        model = model_of(filter_share=share)
        one, other = model.encode(*padded([first]))[0], model.encode(*padded([second]))[0]
        assert not torch.allclose(one[at], other[at], atol=1e-3)
        assert not torch.allclose(one[-1], other[-1], atol=1e-4)
        if share:
            assert bool(((one[:at] - other[:at]).abs().amax(dim=1) > 1e-4).all())
        else:
            torch.testing.assert_close(one[:at], other[:at])


def test_scale_one_is_the_plain_call_bit_for_bit():
    model = model_of()
    batch = padded([[4, 8, 15, 16], [1, 2]])
    assert torch.equal(model.encode(*batch), scaled(model, *batch, 1.0))
    assert not torch.allclose(model.encode(*batch), scaled(model, *batch, 0.5), atol=1e-3)


def test_the_trace_is_that_of_the_attention_branch_and_changes_nothing():
    """Without the filter's share what leaves the branch is what the feed-forward gets;
    with it the trace stays that of attention.
    """
    history = padded([[4, 8, 15, 16]])
    traces = []
    for share in (0.0, 0.7):
        model = model_of(filter_share=share)
        plain = model.encode(*history)
        with probing(model, query="every") as found:
            torch.testing.assert_close(model.encode(*history), plain)
        traces.append(found[0])
    torch.testing.assert_close(traces[0].after_norm, traces[1].after_norm)
    torch.testing.assert_close(traces[0].residual, traces[1].residual)


def test_evaluating_twice_is_identical():
    model, batch = model_of(), padded([[4, 8, 15], [1]])
    assert torch.equal(model.encode(*batch), model.encode(*batch))
    model.train()
    assert not torch.equal(model.encode(*batch), model.encode(*batch)), (
        "dropout must act in training, or this test says nothing"
    )


def test_every_item_has_its_own_vector():
    model = model_of()
    assert torch.equal(model.item_vectors(), model.embedding.weight[1:])
    with torch.no_grad():
        model.embedding.weight[1] = 100 * model.encode(*padded([[4, 8]]))[0, -1]
    assert rank(model, held_out([[4, 8]], [1]), filter_seen=False).target[0, 0] == 1


def test_sizes_of_the_authors_are_the_defaults():
    """Their Beauty setting: length 50, α 0.7, c 5, one head."""
    model = BSARec(ITEMS)
    assert (model.maximum_length, len(model.blocks), model.blocks[0].attention.heads) == (50, 2, 1)
    assert all(
        block.other_share == 0.7 and round(float(block.other_branch.low_pass.trace())) == 5
        for block in model.blocks
    )


# Prefix samples


def test_prefixes_by_hand():
    """Every prefix of at least two items, in the order of the sequences; those of one
    item have none.
    """
    found = sequences_of([[5, 6, 7], [8], [1, 2], [3, 3, 3, 9]]).prefixes()
    assert [found.items[a:b].tolist() for a, b in zip(found.start, found.end, strict=True)] == [
        *([5, 6], [5, 6, 7]),
        [1, 2],
        *([3, 3], [3, 3, 3], [3, 3, 3, 9]),
    ]
    assert found.user.tolist() == [0, 0, 2, 3, 3, 3]
    assert len(sequences_of([[4], [5]]).prefixes()) == 0


def test_a_sample_reads_all_but_its_label():
    """Distinct items, so that a label in any input would show: the newest items before
    it are read, it alone is asked for.
    """
    histories = [
        [1, 2],
        list(range(3, 3 + LENGTH)),
        list(range(10, 11 + LENGTH)),
        list(range(1, 13 + LENGTH)),
    ]
    samples = sequences_of(histories).prefixes()
    assert len(samples) == sum(len(history) - 1 for history in histories)
    index = np.random.default_rng(0).permutation(len(samples))
    batch = make_batch(model_of(), samples, index, 0, torch.Generator())
    assert batch.labelled.shape == (len(samples), LENGTH)
    assert batch.labelled.nonzero().tolist() == [
        [row, LENGTH - 1] for row in range(len(samples))
    ], "one label a sample"
    for row, sample in enumerate(index):
        prefix = samples.items[samples.start[sample] : samples.end[sample]].tolist()
        read = batch.items[row].tolist()
        assert read == prefix[:-1][-LENGTH:] + [0] * (len(read) - min(len(prefix) - 1, LENGTH))
        assert int(batch.length[row]) == min(len(prefix) - 1, LENGTH)
        assert int(batch.label[row]) == prefix[-1] not in read


def test_the_loss_of_prefixes_by_hand():
    """−log softmax of each next item after the items before it alone: what is later
    cannot help (no leak), padding costs nothing.
    """
    model = model_of().double()
    histories = [[3, 1, 4, 1, 5], [9, 2], list(range(1, LENGTH + 4))]
    samples = sequences_of(histories).prefixes()
    found = loss_of(
        model, [make_batch(model, samples, np.arange(len(samples)), 0, torch.Generator())], SOFTMAX
    )
    expected = 0.0
    for history in histories:
        for place in range(1, len(history)):
            hidden = model.encode(*padded([history[max(0, place - LENGTH) : place]]))[0, -1]
            expected -= float(
                (model.item_vectors() @ hidden).log_softmax(dim=0)[history[place] - 1].detach()
            )
    assert float(found.detach()) == pytest.approx(expected, rel=1e-10)


def test_groups_of_length_change_no_gradient():
    """Groups save the transformers padding; here they save nothing, and must not cost
    anything either.
    """
    model = model_of(dropout=0.0).double().train()
    samples = sequences_of([[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7, 9, 3]]).prefixes()
    found = []
    for groups in (1, 3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        total, labels = update(
            model,
            optimizer,
            samples,
            np.arange(len(samples)),
            TrainingSettings(length_groups=groups),
            torch.Generator(),
            "cpu",
        )
        found.append((total, labels, [parameter.grad.clone() for parameter in model.parameters()]))
    assert found[0][1] == found[1][1] == len(samples)
    assert float(found[1][0]) == pytest.approx(float(found[0][0]), rel=1e-12)
    torch.testing.assert_close(found[1][2], found[0][2])
    names = dict(zip((name for name, _ in model.named_parameters()), found[0][2], strict=True))
    assert all(
        bool(names[f"blocks.{block}.other_branch.beta"].abs().min() > 0) for block in (0, 1)
    ), "β is learned"


def test_training_goes_through_every_prefix():
    """13 prefixes in batches of 4 are four updates an epoch; a sequence of one item has
    none.
    """
    settings = TrainingSettings(batch_size=4, round_updates=1, maximum_epochs=2)
    sequences = sequences_of([[1, 2, 3, 4, 5], [6], list(range(1, 11))])
    curve = train(model_of(), sequences, hopeless_validation(), settings, filter_seen=True, seed=0)
    assert [line.updates for line in curve] == [4, 8]
