"""The losses against torch's own and by hand; negatives that end.

No ``ignore_index`` exists here: only labelled positions reach a loss, so padding cannot
be a class.
"""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from lastitem.data.sequences import Sequences
from lastitem.models.bert4rec import BERT4Rec
from lastitem.models.gru4rec import GRU4Rec
from lastitem.models.interface import TrainingBatch
from lastitem.models.sasrec import SASRec
from lastitem.study.settings import TrainingSettings, schema_of
from lastitem.training import losses
from lastitem.training.batches import draw_negatives, make_batch
from lastitem.training.losses import (
    binary_cross_entropy,
    generalized_binary_cross_entropy,
    sampled_softmax_cross_entropy,
    softmax_cross_entropy,
)
from lastitem.training.step import loss_of, update

SOURCE = Path(__file__).parents[2] / "src"
LOSSES = schema_of(TrainingSettings)["loss"]["enum"]


def scored(positions=23, items=11, size=5, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = (
        scale * torch.randn(positions, size, generator=generator, dtype=torch.float64)
    ).requires_grad_()
    vectors = (
        scale * torch.randn(items, size, generator=generator, dtype=torch.float64)
    ).requires_grad_()
    return hidden, vectors, torch.randint(1, items + 1, (positions,), generator=generator)


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("chunk_scores", [1, 11, 50, 22 * 11, 23 * 11, 1_000_000])
@pytest.mark.parametrize("outer", [1.0, -0.37])
def test_softmax_equals_torch_in_value_and_gradients(monkeypatch, chunk_scores, outer):
    """Chunks of one position, of some with a rest, of all; the outer factor is the
    division by the number of labels.
    """
    monkeypatch.setattr(losses, "CHUNK_SCORES", chunk_scores)
    hidden, vectors, label = scored()
    expected = outer * functional.cross_entropy(hidden @ vectors.T, label - 1, reduction="sum")
    found = outer * softmax_cross_entropy(hidden, vectors, label)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for ours, theirs in zip(
        gradients(found, hidden, vectors), gradients(expected, hidden, vectors), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_softmax_by_hand():
    """Scores 0, log 2, log 3 and label 3: the probability is 3/6."""
    hidden = torch.tensor([[1.0]], dtype=torch.float64)
    vectors = torch.tensor([[0.0], [math.log(2)], [math.log(3)]], dtype=torch.float64)
    assert float(softmax_cross_entropy(hidden, vectors, torch.tensor([3]))) == pytest.approx(
        math.log(2), abs=1e-15
    )


def test_softmax_passes_finite_differences():
    """Independent of torch's formula: both gradients against differences
    of the value.
    """
    hidden, vectors, label = scored(positions=4, items=6, size=3)
    assert torch.autograd.gradcheck(
        lambda h, v: softmax_cross_entropy(h, v, label), (hidden, vectors)
    )


def test_softmax_survives_huge_scores():
    """Scores in the millions must give a finite loss (the largest score is taken
    off first).
    """
    hidden, vectors, label = scored(scale=1e3)
    found = softmax_cross_entropy(hidden, vectors, label)
    torch.testing.assert_close(
        found, functional.cross_entropy(hidden @ vectors.T, label - 1, reduction="sum")
    )
    assert all(
        bool(torch.isfinite(gradient).all()) for gradient in gradients(found, hidden, vectors)
    )


@pytest.mark.parametrize("length", [1.0, 7.7, 7.8])
def test_softmax_of_short_vectors_needs_no_shift(length):
    """Below 60 the product of the longest vectors bounds all scores, whose exponentials
    then stay in the range of float32; the shift changes the rounding alone.
    """
    hidden = torch.full((3, 4), length / 2)
    vectors = torch.stack((hidden[0], -hidden[0], torch.zeros(4))).repeat(5, 1)
    label = torch.tensor([1, 2, 3])
    assert losses._may_overflow(hidden, vectors) == (length**2 > 60)
    assert losses._may_overflow(hidden * torch.nan, vectors)
    found = []
    for bound in (0.0, 1e9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(losses, "_SMALL_SCORE", bound)
            leaves = hidden.clone().requires_grad_(), vectors.clone().requires_grad_()
            total = softmax_cross_entropy(*leaves, label)
            found.append((total.detach(), gradients(total, *leaves)))
    torch.testing.assert_close(found[1], found[0])
    doubles = hidden.double() @ vectors.double().T
    expected = functional.cross_entropy(doubles, label - 1, reduction="sum")
    torch.testing.assert_close(found[1][0].double(), expected, rtol=1e-6, atol=1e-6)


def test_softmax_of_no_label_is_zero():
    hidden, vectors = torch.zeros(0, 3), torch.ones(4, 3)
    assert float(softmax_cross_entropy(hidden, vectors, torch.zeros(0, dtype=torch.int64))) == 0


def test_softmax_leaves_its_inputs_alone():
    """The pass works in place on its own buffers only."""
    hidden, vectors, label = scored()
    before = hidden.detach().clone(), vectors.detach().clone(), label.clone()
    softmax_cross_entropy(hidden, vectors, label).backward()
    for now, then in zip((hidden, vectors, label), before, strict=True):
        assert torch.equal(now.detach(), then)


@pytest.mark.parametrize(
    ("loss", "size"),
    [
        ("softmax_cross_entropy(hidden, vectors, label)", 2),
        ("sampled_softmax_cross_entropy(hidden, vectors, label, negative[: len(label)])", 64),
        ("binary_cross_entropy(hidden, vectors, label, negative[: len(label)])", 64),
        (
            (
                "generalized_binary_cross_entropy(hidden, vectors, label, negative[: len(label)],"
                " 0.75)"
            ),
            64,
        ),
    ],
)
def test_no_loss_holds_all_it_looks_at(loss, size):
    """2,000 positions × 100,000 items would be 0.8 GB of scores, 2,000 × 1,000
    negatives of 64 dimensions 0.5 GB of vectors; and as much again for their gradient.
    """
    program = (
        "import resource, torch\nfrom lastitem.training.losses import binary_cross_entropy,"
        " generalized_binary_cross_entropy\nfrom lastitem.training.losses import"
        " sampled_softmax_cross_entropy, softmax_cross_entropy\ntorch.set_num_threads(1)\nvectors"
        f" = torch.randn(100_000, {size}, requires_grad=True)\nnegative = torch.randint(1, 100_001,"
        " (2000, 1000))\npeaks = []\nfor count in (8, 2000):\n    hidden, label ="
        f" torch.randn(count, {size}, requires_grad=True), torch.ones(count, dtype=torch.int64)\n  "
        f"  {loss}.backward()\n   "
        " peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\nprint(peaks[1] -"
        " peaks[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE)},
        check=True,
    )
    assert int(done.stdout) < 150_000, "kilobytes above the small call"


def test_bce_by_hand():
    """Scores 0 and 0 give 2·log 2; scores +3 and −2 give log(1 + e⁻³) +
    log(1 + e⁻²).
    """
    hidden = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
    vectors = torch.tensor([[0.0], [3.0], [-2.0], [0.0]], dtype=torch.float64)
    found = binary_cross_entropy(hidden, vectors, torch.tensor([1, 2]), torch.tensor([[4], [3]]))
    assert float(found) == pytest.approx(
        2 * math.log(2) + math.log1p(math.exp(-3)) + math.log1p(math.exp(-2)), abs=1e-12
    )


def test_bce_equals_torch():
    hidden, vectors, label = scored()
    negative = label % len(vectors) + 1
    scores = torch.cat(
        ((hidden * vectors[label - 1]).sum(1), (hidden * vectors[negative - 1]).sum(1))
    )
    truth = torch.cat((torch.ones(len(label)), torch.zeros(len(label)))).double()
    expected = functional.binary_cross_entropy_with_logits(scores, truth, reduction="sum")
    found = binary_cross_entropy(hidden, vectors, label, negative[:, None])
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        gradients(found, hidden, vectors), gradients(expected, hidden, vectors), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_bce_is_finite_where_a_probability_rounds_to_zero():
    """Log(0)."""
    hidden = torch.tensor([[1000.0]])
    found = binary_cross_entropy(
        hidden, torch.tensor([[-1.0], [1.0]]), torch.tensor([1]), torch.tensor([[2]])
    )
    assert float(found) == pytest.approx(2000.0)


SAMPLED = {
    "bce": binary_cross_entropy,
    "sampled_softmax": sampled_softmax_cross_entropy,
    "gbce": lambda *tensors: generalized_binary_cross_entropy(*tensors, 0.6),
}


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("bound", [1, 40, 10**6])
def test_sampled_losses_pass_finite_differences(name, bound, monkeypatch):
    """Both gradients against differences of the value: one position at a time, a few,
    all at once; negatives may repeat.
    """
    monkeypatch.setattr("lastitem.training.losses.CHUNK_SCORES", bound)
    hidden, vectors, label = scored(positions=7, items=6, size=3)
    negative = all_others(label, 6)[:, [0, 2, 2, 4]]
    assert torch.autograd.gradcheck(
        lambda h, v: SAMPLED[name](h, v, label, negative), (hidden, vectors)
    )


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_losses_are_the_same_in_chunks(name, monkeypatch):
    hidden, vectors, label = scored()
    negative = all_others(label, len(vectors))
    whole = SAMPLED[name](hidden, vectors, label, negative)
    monkeypatch.setattr(
        "lastitem.training.losses.CHUNK_SCORES", 2 * negative.shape[1] * hidden.shape[1]
    )
    chunked = SAMPLED[name](hidden, vectors, label, negative)
    torch.testing.assert_close(chunked, whole)
    for ours, theirs in zip(
        gradients(chunked, hidden, vectors), gradients(whole, hidden, vectors), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def all_others(label, items):
    """Every item but the label, once each."""
    return torch.stack(
        [
            torch.tensor([item for item in range(1, items + 1) if item != wanted])
            for wanted in label.tolist()
        ]
    )


def test_sampled_softmax_with_all_others_is_the_full_softmax():
    hidden, vectors, label = scored()
    found = sampled_softmax_cross_entropy(hidden, vectors, label, all_others(label, len(vectors)))
    expected = softmax_cross_entropy(hidden, vectors, label)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        gradients(found, hidden, vectors), gradients(expected, hidden, vectors), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_sampled_softmax_by_hand():
    """Scores 1 (label), 0 and 2 (of 4 other items): −1 + log(e + (4 / 2)·(1 + e²))."""
    vectors = torch.tensor([[1.0], [0.0], [2.0], [5.0], [7.0]], dtype=torch.float64)
    found = sampled_softmax_cross_entropy(
        torch.ones(1, 1, dtype=torch.float64), vectors, torch.tensor([1]), torch.tensor([[2, 3]])
    )
    assert float(found) == pytest.approx(-1 + math.log(math.e + 2 * (1 + math.exp(2))), abs=1e-12)


def test_gbce_by_hand():
    """Rate 2/4, t = 0.5: β = 0.5·(0.5·(1 − 2) + 2) = 0.75; the sum over three scores
    divided by three.
    """
    vectors = torch.tensor([[1.0], [0.0], [2.0], [5.0], [7.0]], dtype=torch.float64)
    label, negative = torch.tensor([1]), torch.tensor([[2, 3]])
    found = generalized_binary_cross_entropy(
        torch.ones(1, 1, dtype=torch.float64), vectors, label, negative, 0.5
    )
    expected = 0.75 * math.log1p(math.exp(-1)) + math.log(2) + math.log1p(math.exp(2))
    assert float(found) == pytest.approx(expected / 3, abs=1e-12)


@pytest.mark.parametrize("count", [1, 3])
def test_gbce_without_calibration_is_bce(count):
    hidden, vectors, label = scored()
    negative = all_others(label, len(vectors))[:, :count]
    found = generalized_binary_cross_entropy(hidden, vectors, label, negative, 0.0)
    torch.testing.assert_close(
        found * (count + 1), binary_cross_entropy(hidden, vectors, label, negative)
    )


def drawn(seen, label, items, count=1, seed=0):
    """Negatives of every label of every row, as a list per row."""
    labelled = label != 0
    row = labelled.nonzero()[:, 0]
    torch.manual_seed(seed)
    negative = draw_negatives(seen, row, label[labelled], items, count)
    return [negative[row == place] for place in range(len(seen))]


def test_negatives_are_uniform_over_the_unseen():
    """Row 0 saw 1, 2, 3 and row 1 saw 7 of ten items: each unseen item comes equally
    often, no seen one at all.
    """
    seen = torch.tensor([[1, 2, 3, 0], [7, 7, 0, 0]])
    found = drawn(seen, torch.tensor([[2, 0], [7, 0]]), 10, count=6000)
    for row, unseen in ((0, {4, 5, 6, 7, 8, 9, 10}), (1, {1, 2, 3, 4, 5, 6, 8, 9, 10})):
        counts = torch.bincount(found[row][0], minlength=11)
        assert {item for item in range(11) if counts[item]} == unseen
        expected = 6000 / len(unseen)
        assert all(abs(int(counts[item]) - expected) < 5 * math.sqrt(expected) for item in unseen)


@pytest.mark.parametrize("items", [2, 3, 4, 5])
def test_tiny_catalogues_end_and_never_give_the_label(items):
    """One user saw everything, one everything but the last item, one a single
    item.
    """
    everything = list(range(1, items + 1))
    seen = torch.tensor([everything, [*everything[:-1], 0], [1] + [0] * (items - 1)])
    found = drawn(seen, seen, items, count=200)
    for row, labels in enumerate(seen.tolist()):
        for label, negative in zip([label for label in labels if label], found[row], strict=True):
            assert bool(((negative >= 1) & (negative <= items) & (negative != label)).all())
    assert bool((found[2] != 1).all())
    assert set(found[0][0].tolist()) == set(everything[1:])


def test_the_one_unseen_item_is_always_found():
    seen = torch.tensor([[1, 2, 3, 5]])
    assert bool((drawn(seen, seen, 5, count=500)[0] == 4).all())


def test_negatives_repeat_with_the_seed():
    seen = torch.tensor([[1, 2, 3, 4]])
    first, second, other = (drawn(seen, seen, 1000, count=5, seed=seed)[0] for seed in (3, 3, 4))
    assert torch.equal(first, second) and not torch.equal(first, other)


def sequences_of(histories):
    ends = np.cumsum([len(history) for history in histories])
    return Sequences(
        np.concatenate(histories).astype(np.int32),
        np.concatenate(([0], ends[:-1])),
        ends,
        np.arange(len(histories), dtype=np.int32),
    )


def models(items=12):
    settings = {"maximum_length": 16, "hidden_size": 8, "dropout": 0.0}
    torch.manual_seed(0)
    made = [
        SASRec(items, **settings),
        SASRec(items, block_order="pre", **settings),
        GRU4Rec(items, **settings),
        BERT4Rec(items, **settings),
    ]
    for model in made:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return [model.double().train() for model in made]


HISTORIES = [
    [1, 2, 3],
    [4, 5, 6, 7, 8, 9, 10, 11, 12, 1],
    [3, 9],
    [5, 5, 7, 2],
    [12, 11, 10, 9, 8, 7],
    [2, 1, 2, 1, 2],
]


SOFTMAX = TrainingSettings()


@pytest.mark.parametrize("loss", LOSSES)
def test_extra_padding_changes_neither_loss_nor_gradient(loss):
    """The same batch with seven more columns of padding."""
    settings = TrainingSettings(loss=loss, num_negatives=3)
    for model in models():
        batch = make_batch(
            model,
            sequences_of(HISTORIES[2:]),
            np.arange(4),
            settings.drawn_negatives,
            torch.Generator().manual_seed(0),
        )
        wide = TrainingBatch(
            functional.pad(batch.items, (0, 7)),
            batch.length,
            functional.pad(batch.labelled, (0, 7)),
            batch.label,
            batch.negative,
        )
        values = []
        for each in (batch, wide):
            found = loss_of(model, [each], settings)
            values.append((found.detach(), gradients(found, *model.parameters())))
        torch.testing.assert_close(values[1], values[0])


def test_the_loss_is_the_sum_over_sequences():
    """A short sequence costs the same alone and beside a long one, so its padding is no
    target and no context.
    """
    for model in models()[:3]:
        sequences = sequences_of(HISTORIES)
        together = loss_of(
            model, [make_batch(model, sequences, np.arange(6), 0, torch.Generator())], SOFTMAX
        )
        alone = [
            loss_of(
                model, [make_batch(model, sequences, np.array([i]), 0, torch.Generator())], SOFTMAX
            )
            for i in range(6)
        ]
        torch.testing.assert_close(torch.stack(alone).sum(), together)


def test_softmax_loss_of_a_model_by_hand():
    """Position i of a history is asked for item i + 1, nothing else: −log softmax
    summed over positions in a loop.
    """
    for model in models()[:3]:
        history = [3, 1, 4, 1, 5]
        found = loss_of(
            model,
            [make_batch(model, sequences_of([history]), np.array([0]), 0, torch.Generator())],
            SOFTMAX,
        )
        expected = 0.0
        for place in range(1, 5):
            scores = (
                model.encode(torch.tensor([history[:-1]]), torch.tensor([4]))[0, place - 1]
                @ model.item_vectors().T
            ).tolist()
            expected += (
                math.log(sum(math.exp(score) for score in scores)) - scores[history[place] - 1]
            )
        assert float(found.detach()) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("groups", [2, 3, 4, 100])
def test_groups_of_length_change_no_gradient(groups):
    """One step's loss and gradient with the batch in one piece and in groups of similar
    length (dropout 0).
    """
    for model in models()[:3]:
        found = []
        for count in (1, groups):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            settings = TrainingSettings(length_groups=count)
            total, labels = update(
                model,
                optimizer,
                sequences_of(HISTORIES),
                np.arange(6),
                settings,
                torch.Generator(),
                "cpu",
            )
            found.append(
                (total, labels, [parameter.grad.clone() for parameter in model.parameters()])
            )
        assert found[0][1] == found[1][1] == sum(len(history) - 1 for history in HISTORIES)
        assert float(found[1][0]) == pytest.approx(float(found[0][0]), rel=1e-12)
        torch.testing.assert_close(found[1][2], found[0][2])


def test_the_gradient_is_that_of_the_mean_over_labels():
    """``update`` divides the sum by the number of labels of the whole batch, not of
    each group.
    """
    model = models()[0]
    batch = make_batch(model, sequences_of(HISTORIES), np.arange(6), 0, torch.Generator())
    expected = gradients(loss_of(model, [batch], SOFTMAX) / len(batch.label), *model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    update(
        model,
        optimizer,
        sequences_of(HISTORIES),
        np.arange(6),
        TrainingSettings(length_groups=3),
        torch.Generator(),
        "cpu",
    )
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], list(expected))
