"""Batches, early stopping, repeatability, failure, and that a real training learns.

Killed trainings that go on are in test_checkpoints.py; here, that a rerun without a
state ends in the same file. There is no shuffle in training to test; its inputs are the
sequences' own order, held by the tests of batches.
"""

import inspect
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import choose
import train as script
from lastitem import __version__
from lastitem.data.sequences import HeldOut, Sequences, read_held_out
from lastitem.errors import InputError
from lastitem.evaluation.metrics import per_user
from lastitem.evaluation.ranking import rank
from lastitem.models.bert4rec import BERT4Rec
from lastitem.models.registry import build, load
from lastitem.models.sasrec import SASRec
from lastitem.models.settings import ARCHITECTURES
from lastitem.report import answers
from lastitem.study.settings import TrainingSettings, checked
from lastitem.training.batches import make_batch
from lastitem.training.loop import Round, epochs_left, train
from lastitem.training.step import averaged_weights, move_average, update
from tests import literal

ITEMS = 12
FITTED = ["popularity", "markov", "item-knn"]
TRAINED = [name for name in ARCHITECTURES if name not in FITTED]


def sequences_of(histories):
    ends = np.cumsum([len(history) for history in histories])
    return Sequences(
        np.concatenate(histories).astype(np.int32),
        np.concatenate(([0], ends[:-1])),
        ends,
        np.arange(len(histories), dtype=np.int32),
    )


def held_out_of(histories, targets):
    plain = sequences_of(histories)
    count = len(histories)
    return HeldOut(
        plain.items,
        plain.start,
        plain.end,
        plain.user,
        np.array(targets, dtype=np.int32),
        np.zeros(count, dtype=bool),
    )


def random_histories(count, seed=0, items=ITEMS):
    generator = np.random.default_rng(seed)
    return [
        generator.integers(1, items + 1, size=generator.integers(2, 9)).tolist()
        for _ in range(count)
    ]


def small(architecture="sasrec", seed=0, dropout=0.3, items=ITEMS):
    torch.manual_seed(seed)
    return build(architecture, items, {"hidden_size": 8, "maximum_length": 10, "dropout": dropout})


def cycle(count, items, seed):
    """Histories in which the next item is always the last one plus one, so that a model
    can be right every time.
    """
    generator = np.random.default_rng(seed)
    starts, lengths = generator.integers(items, size=count), generator.integers(6, 9, size=count)
    return [
        [(start + step) % items + 1 for step in range(length)]
        for start, length in zip(starts, lengths, strict=True)
    ]


def continued(histories):
    """Held-out cases that ask for each history's last item."""
    return held_out_of(
        [history[:-1] for history in histories], [history[-1] for history in histories]
    )


def ndcg(model, cases, filter_seen=False):
    return float(
        per_user("ndcg", rank(model, cases, filter_seen=filter_seen).target[:, 0], 10).mean()
    )


# Batches


def labels_of(batch):
    """The label of each position, 0 where there is none."""
    label = torch.zeros(batch.labelled.shape, dtype=torch.int64)
    return label.masked_scatter(batch.labelled, batch.label).tolist()


def test_next_item_batch_by_hand():
    batch = small().training_batch(
        sequences_of([[5, 6, 7], [8, 9], [1, 2, 3, 4]]), np.array([2, 0, 1]), torch.Generator()
    )
    assert batch.items.tolist() == [[1, 2, 3], [5, 6, 0], [8, 0, 0]]
    assert labels_of(batch) == [[2, 3, 4], [6, 7, 0], [9, 0, 0]]
    assert batch.label.tolist() == [2, 3, 4, 6, 7, 9]
    assert batch.labelled.tolist() == [
        [True, True, True],
        [True, True, False],
        [True, False, False],
    ]
    assert batch.length.tolist() == [3, 2, 1]
    assert batch.negative is None


@pytest.mark.parametrize(
    ("count", "read", "asked"),
    [
        (3, [1, 2], [2, 3]),
        (4, [1, 2, 3], [2, 3, 4]),
        (5, [1, 2, 3, 4], [2, 3, 4, 5]),
        (6, [2, 3, 4, 5], [3, 4, 5, 6]),
        (9, [5, 6, 7, 8], [6, 7, 8, 9]),
    ],
)
def test_next_item_lengths(count, read, asked):
    """``maximum_length`` 4: four inputs and four labels need five items; of longer
    histories the newest are kept.
    """
    batch = SASRec(ITEMS, maximum_length=4, hidden_size=4).training_batch(
        sequences_of([list(range(1, count + 1))]), np.array([0]), torch.Generator()
    )
    assert batch.items.tolist() == [read]
    assert labels_of(batch) == [asked]
    assert batch.length.tolist() == [len(read)]
    assert bool(batch.labelled.all())


@pytest.mark.parametrize("architecture", TRAINED)
@pytest.mark.parametrize("count", [9, 10, 11, 12, 40])
def test_every_length_trains_and_ranks(architecture, count):
    """Around ``maximum_length`` 10: no position table is overrun, in training and in
    ranking.
    """
    history = [1 + place % ITEMS for place in range(count)]
    curve = train(
        small(architecture),
        sequences_of([history, [1, 2]]),
        held_out_of([history], [1]),
        TrainingSettings(maximum_epochs=1),
        filter_seen=False,
        seed=0,
    )
    assert np.isfinite(curve[0].loss)


def test_cloze_batch_by_hand():
    """The masks are those of the generator's draws; the label is the item under each
    mask, and only there.
    """
    histories = [[5, 6, 7, 1, 2], [8, 9], [1, 2, 3, 4, 5, 6, 7, 8]]
    model = BERT4Rec(ITEMS, maximum_length=6, hidden_size=4, mask_probability=0.4)
    batch = model.training_batch(
        sequences_of(histories), np.array([0, 1, 2]), torch.Generator().manual_seed(5)
    )
    items, length, masked, label = batch.items, batch.length, batch.labelled, labels_of(batch)
    draws = torch.rand((3, 6), generator=torch.Generator().manual_seed(5))
    assert length.tolist() == [5, 2, 6]
    some = 0
    for row, history in enumerate([histories[0], histories[1], histories[2][-6:]]):
        hidden = [bool(draws[row, place] < 0.4) for place in range(len(history))]
        if not any(hidden):
            hidden[int(draws[row, : len(history)].argmin())] = True
        some += sum(hidden)
        padding = [0] * (6 - len(history))
        assert (
            items[row].tolist()
            == [model.mask if hide else item for item, hide in zip(history, hidden, strict=True)]
            + padding
        )
        assert masked[row].tolist() == hidden + [False] * len(padding)
        assert (
            label[row]
            == [item if hide else 0 for item, hide in zip(history, hidden, strict=True)] + padding
        )
    assert 3 <= some < 13


def test_cloze_masks_any_one_item_where_none_was_drawn():
    """So that every sequence has a label, and each of its items the same chance to be
    it.
    """
    model = BERT4Rec(ITEMS, maximum_length=6, hidden_size=4, mask_probability=1e-12)
    histories, generator = [[5, 6, 7], [8]] * 3000, torch.Generator().manual_seed(0)
    batch = model.training_batch(sequences_of(histories), np.arange(6000), generator)
    masked = batch.labelled
    assert masked.sum(dim=1).tolist() == [1] * 6000
    assert batch.items[1].tolist() == [model.mask, 0, 0] and labels_of(batch)[1] == [8, 0, 0]
    assert (masked.nonzero()[:, 1] < batch.length).all()
    chosen = masked[::2].sum(dim=0)
    assert chosen.sum() == 3000 and (chosen - 1000).abs().max() < 130, "five standard deviations"


def test_cloze_masks_the_configured_share():
    model = BERT4Rec(ITEMS, maximum_length=100, hidden_size=4, mask_probability=0.2)
    sequences = sequences_of([[1 + place % ITEMS for place in range(100)]] * 100)
    batch = model.training_batch(sequences, np.arange(100), torch.Generator().manual_seed(0))
    assert abs(float(batch.labelled.double().mean()) - 0.2) < 0.02


def test_cloze_masks_anew_in_every_epoch():
    model, generator = (
        BERT4Rec(ITEMS, maximum_length=50, hidden_size=4),
        torch.Generator().manual_seed(0),
    )
    sequences = sequences_of([[1 + place % ITEMS for place in range(50)]])
    first, second = (
        model.training_batch(sequences, np.array([0]), generator).labelled for _ in range(2)
    )
    assert not torch.equal(first, second)


@pytest.mark.parametrize("architecture", ["sasrec", "bert4rec", "bsarec"])
@pytest.mark.parametrize(("loss", "count"), [("bce", 1), ("gbce", 7), ("sampled_softmax", 7)])
def test_negatives_stand_beside_their_labels(architecture, loss, count):
    """As many per label as asked for, never the label, never in the sequence."""
    settings = TrainingSettings(loss=loss, num_negatives=7)
    histories = random_histories(20, items=40)
    batch = make_batch(
        small(architecture, items=40),
        sequences_of(histories),
        np.arange(20),
        settings.drawn_negatives,
        torch.Generator().manual_seed(0),
    )
    assert batch.negative.shape == (len(batch.label), count)
    row = torch.nonzero(batch.labelled)[:, 0]
    for place, negative in zip(row.tolist(), batch.negative.tolist(), strict=True):
        assert not set(negative) & set(histories[place])
        assert all(1 <= item <= 40 for item in negative)


# Early stopping


def hopeless_validation():
    """The target is an item of the history and seen items are filtered: NDCG is 0
    whatever the model does.
    """
    return held_out_of([[1, 2, 3], [4, 5]], [2, 4])


def test_of_equal_bests_the_first_is_kept():
    """Constant validation: training stops after ``patience`` further rounds and returns
    to the state of the first.
    """
    sequences = sequences_of(random_histories(30))
    settings = {"batch_size": 10, "round_updates": 3, "learning_rate": 0.01}
    model = small()
    curve = train(
        model,
        sequences,
        hopeless_validation(),
        TrainingSettings(**settings, maximum_epochs=50, patience=4),
        filter_seen=True,
        seed=3,
    )
    assert [line.epoch for line in curve] == [1, 2, 3, 4, 5]
    assert [line.validation_ndcg for line in curve] == [0.0] * 5
    assert [line.best for line in curve] == [True, False, False, False, False]
    first = small()
    train(
        first,
        sequences,
        hopeless_validation(),
        TrainingSettings(**settings, maximum_epochs=1),
        filter_seen=True,
        seed=3,
    )
    fresh = small()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, first.state_dict()[name]), name
    assert not torch.equal(model.embedding.weight, fresh.embedding.weight)


def test_the_best_round_is_the_one_returned():
    """The validation NDCG of the model in hand is the highest of the curve, at the
    first round that reached it.
    """
    model, validation = small(dropout=0.0), continued(cycle(20, ITEMS, seed=1))
    settings = TrainingSettings(
        batch_size=20, round_updates=4, learning_rate=0.01, maximum_epochs=60, patience=3
    )
    curve = train(
        model,
        sequences_of(cycle(60, ITEMS, seed=0)),
        validation,
        settings,
        filter_seen=False,
        seed=3,
    )
    values = [line.validation_ndcg for line in curve]
    best = values.index(max(values))
    assert best > 0, "the data must let a later round be the best, or this test says little"
    assert len(curve) == best + 4, "stopped after three rounds without a better one"
    assert [index for index, line in enumerate(curve) if line.best][-1] == best
    assert ndcg(model, validation) == max(values)
    assert not model.training


@pytest.mark.parametrize("architecture", TRAINED)
def test_each_update_reaches_the_scores(architecture):
    """What a model keeps of its item vectors for a ranking is made anew after every
    update, though the fused optimizer does not count its changes.
    """
    sequences, model = sequences_of(random_histories(40)), small(architecture)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    generator = torch.Generator().manual_seed(3)
    items, length = torch.tensor([[3, 1, 4], [1, 5, 0]]), torch.tensor([3, 2])
    before = None
    for _ in range(3):
        model.train()
        update(model, optimizer, sequences, np.arange(20), TrainingSettings(), generator, "cpu")
        model.eval()
        with torch.inference_mode():
            found = model.scores(items, length)
            expected = model.read(items, length)[0] @ model.item_vectors().T
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        assert before is None or not torch.allclose(found, before, rtol=0, atol=1e-4)
        before = found


def test_the_average_of_the_weights_by_hand():
    """After each update the average moves by 1 − min(decay, n / (n + 9)) of the way to
    the weight.
    """
    sequences, decay = sequences_of(random_histories(40)), 0.5
    settings = TrainingSettings(batch_size=5, learning_rate=0.01)
    model, literal = small(), {}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    generator = torch.Generator().manual_seed(3)
    for count in range(1, 13):
        update(model, optimizer, sequences, np.arange(count, count + 5), settings, generator, "cpu")
        move_average(optimizer, decay, count)
        share = min(decay, count / (count + 9))
        for name, weight in model.named_parameters():
            now = weight.detach().double()
            literal[name] = now if count == 1 else share * literal[name] + (1 - share) * now
    own = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with averaged_weights(optimizer):
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight.detach().double(), literal[name], rtol=0, atol=1e-6)
            assert name == "embedding.weight" or not torch.equal(weight, own[name])
    assert all(torch.equal(weight, own[name]) for name, weight in model.named_parameters()), (
        "the weights are put back"
    )


def test_the_average_is_what_is_validated_and_returned():
    """Training itself is the same with and without: only what is looked at differs."""
    sequences, validation = (
        sequences_of(cycle(60, ITEMS, seed=0)),
        continued(cycle(20, ITEMS, seed=1)),
    )
    settings = {
        "batch_size": 20,
        "round_updates": 3,
        "learning_rate": 0.01,
        "maximum_epochs": 12,
        "patience": 50,
    }
    curves, models = [], []
    for decay in (0.0, 0.9):
        models.append(small())
        made = TrainingSettings(**settings, ema_decay=decay)
        curves.append(train(models[-1], sequences, validation, made, filter_seen=False, seed=3))
    assert [line.loss for line in curves[0]] == [line.loss for line in curves[1]]
    assert ndcg(models[1], validation) == max(line.validation_ndcg for line in curves[1])
    assert [line.validation_ndcg for line in curves[0]] != [
        line.validation_ndcg for line in curves[1]
    ]


def test_best_marks_each_new_best():
    """A round is marked when it beats all before it."""
    validation = held_out_of(random_histories(40, seed=1), [1 + i % ITEMS for i in range(40)])
    settings = TrainingSettings(
        batch_size=20, round_updates=3, learning_rate=0.02, maximum_epochs=6, patience=50
    )
    curve = train(
        small(), sequences_of(random_histories(60)), validation, settings, filter_seen=False, seed=3
    )
    so_far = -1.0
    for line in curve:
        assert line.best == (line.validation_ndcg > so_far)
        so_far = max(so_far, line.validation_ndcg)


@pytest.mark.parametrize(
    ("round_updates", "maximum_epochs", "epochs"),
    [
        (1, 3, [1, 2, 3]),
        (3, 3, [1, 2, 3]),
        (4, 5, [2, 4, 5]),
        (6, 6, [2, 4, 6]),
        (7, 7, [3, 6, 7]),
        (1000, 4, [4]),
    ],
)
def test_a_round_ends_with_the_epoch_that_completes_its_updates(
    round_updates, maximum_epochs, epochs
):
    """30 sequences in batches of 10: three updates an epoch. The last epoch always ends
    a round.
    """
    settings = TrainingSettings(
        batch_size=10, round_updates=round_updates, maximum_epochs=maximum_epochs
    )
    curve = train(
        small(),
        sequences_of(random_histories(30)),
        hopeless_validation(),
        settings,
        filter_seen=True,
        seed=3,
    )
    assert [line.epoch for line in curve] == epochs
    assert [line.updates for line in curve] == [3 * epoch for epoch in epochs]


def test_the_curve_shows_the_mean_loss_per_label():
    """With a learning rate too small to matter and no dropout, every round's loss is
    that of the fresh model.
    """
    histories = random_histories(30)
    model = small(dropout=0.0)
    expected = 0.0
    for history in histories:
        scores = (
            model.encode(torch.tensor([history[:-1]]), torch.tensor([len(history) - 1]))[0]
            @ model.item_vectors().T
        )
        expected -= float(
            scores.log_softmax(dim=1)[range(len(history) - 1), torch.tensor(history[1:]) - 1]
            .detach()
            .sum()
        )
    settings = TrainingSettings(
        batch_size=10, round_updates=4, maximum_epochs=4, learning_rate=1e-12
    )
    curve = train(
        model, sequences_of(histories), hopeless_validation(), settings, filter_seen=True, seed=3
    )
    for line in curve:
        assert line.loss == pytest.approx(
            expected / sum(len(history) - 1 for history in histories), rel=1e-5
        )


def test_each_round_has_its_own_mean_loss():
    """Two rounds of one epoch, and one round of both: the mean of the two is the one,
    and the second is below it.
    """
    losses = []
    for round_updates in (2, 4):
        torch.manual_seed(0)
        settings = TrainingSettings(
            batch_size=32, round_updates=round_updates, maximum_epochs=2, learning_rate=0.01
        )
        model, sequences = small(dropout=0.0), sequences_of(cycle(64, ITEMS, seed=0))
        losses.append(
            [
                line.loss
                for line in train(
                    model, sequences, hopeless_validation(), settings, filter_seen=True, seed=3
                )
            ]
        )
    (first, second), (both,) = losses
    assert both == pytest.approx((first + second) / 2)
    assert second < both < first


def test_report_gets_every_line_as_it_is_made():
    lines = []
    settings = TrainingSettings(batch_size=10, round_updates=3, maximum_epochs=3)
    curve = train(
        small(),
        sequences_of(random_histories(30)),
        hopeless_validation(),
        settings,
        filter_seen=True,
        seed=3,
        report=lambda curve, seconds: lines.append((curve[-1].epoch, seconds)),
    )
    assert [epoch for epoch, _ in lines] == [line.epoch for line in curve]
    assert all(seconds >= 0 for _, seconds in lines)


def test_validation_is_capped_by_users_and_filtered_as_told():
    """Of 40 users 5 are ranked, the same for the same seed; the seen filter is that of
    the test.
    """
    histories = random_histories(40, seed=1)
    validation = held_out_of(histories, [history[0] for history in histories])
    settings = {
        "batch_size": 10,
        "maximum_epochs": 1,
        "learning_rate": 1e-12,
        "validation_cutoff": ITEMS,
    }
    sequences = sequences_of(random_histories(30))
    found = {}
    for users, filter_seen in ((5, False), (1000, False), (1000, True)):
        model = small()
        curve = train(
            model,
            sequences,
            validation,
            TrainingSettings(**settings, validation_users=users),
            filter_seen=filter_seen,
            seed=3,
        )
        chosen = validation.sample_users(users, 3)
        assert len(chosen) == min(users, 40)
        ranks = rank(model, chosen, filter_seen=filter_seen).target[:, 0]
        assert curve[0].validation_ndcg == pytest.approx(per_user("ndcg", ranks, ITEMS).mean())
        found[users, filter_seen] = curve[0].validation_ndcg
    assert found[1000, True] == 0.0 < found[1000, False] != found[5, False]


def test_how_much_is_left():
    """Rounds of two epochs, patience 3, at most 20 epochs: after the best two rounds
    ago one more round, or up to the limit.
    """
    settings = TrainingSettings(patience=3, maximum_epochs=20)

    def curve(*best: bool) -> list[Round]:
        return [
            Round(2 * number, 10 * number, 1.0, 0.1, flag) for number, flag in enumerate(best, 1)
        ]

    assert epochs_left(curve(True), settings) == (6, 18)
    assert epochs_left(curve(True, True, False, False), settings) == (2, 12)
    assert epochs_left(curve(True, False, False, False), settings) == (0, 12)
    assert epochs_left(curve(*[True] * 9), settings) == (2, 2)


# Repeatability


@pytest.mark.parametrize("architecture", TRAINED)
def test_same_seed_same_weights(architecture):
    """Dropout, masks and order of batches included; another seed gives
    other weights.
    """
    sequences, states = sequences_of(random_histories(30)), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model = build(architecture, ITEMS, {"hidden_size": 8, "maximum_length": 10, "dropout": 0.3})
        train(
            model,
            sequences,
            hopeless_validation(),
            TrainingSettings(batch_size=10, maximum_epochs=3),
            filter_seen=True,
            seed=seed,
        )
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["embedding.weight"], states[2]["embedding.weight"])


def test_the_seed_of_train_is_enough():
    """``train`` promises equal weights for equal seed and data; the state of torch's
    global generator must not matter.
    """
    sequences, states = sequences_of(random_histories(30)), []
    for before in (11, 22):
        model = small()
        torch.manual_seed(before)
        train(
            model,
            sequences,
            hopeless_validation(),
            TrainingSettings(batch_size=10, maximum_epochs=2),
            filter_seen=True,
            seed=3,
        )
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_sequences_with_one_item_change_nothing():
    """They hold no label: neither the loss nor the random order of the others may feel
    them.
    """
    histories, states = random_histories(30), []
    for extra in ([], [[3], [4]]):
        model = small()
        torch.manual_seed(0)
        settings = TrainingSettings(batch_size=10, maximum_epochs=2)
        train(
            model,
            sequences_of(histories + extra),
            hopeless_validation(),
            settings,
            filter_seen=True,
            seed=3,
        )
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_selection_never_sees_test_data():
    """Neither the function nor the script has an argument for it."""
    assert not [name for name in inspect.signature(train).parameters if "test" in name]
    with pytest.raises(SystemExit):
        script.main([*script_arguments("x"), "--test", "x"])


# Failure


def test_a_loss_that_is_not_finite_stops_with_a_message():
    model = small()
    with torch.no_grad():
        model.embedding.weight[3, 0] = torch.nan
    with pytest.raises(
        InputError, match=r"loss is nan at update 1 of epoch 1: lower learning_rate.*0\.001"
    ):
        train(
            model,
            sequences_of(random_histories(30)),
            hopeless_validation(),
            TrainingSettings(),
            filter_seen=True,
            seed=3,
        )


@pytest.mark.parametrize("architecture", TRAINED)
def test_a_diverging_training_never_ends_well(architecture):
    """Steps of 10³⁰ overflow at once, in the loss or in the validation scores; both are
    named, neither is kept as best.
    """
    settings = TrainingSettings(
        learning_rate=1e30, batch_size=10, round_updates=1, maximum_epochs=20
    )
    with pytest.raises(InputError, match=r"training loss is (nan|inf)|NaN scores"):
        train(
            small(architecture),
            sequences_of(random_histories(30)),
            hopeless_validation(),
            settings,
            filter_seen=True,
            seed=3,
        )


def test_nothing_to_train_or_validate_on_is_said():
    with pytest.raises(InputError, match="no training sequence has two items"):
        train(
            small(),
            sequences_of([[1], [2]]),
            hopeless_validation(),
            TrainingSettings(),
            filter_seen=True,
            seed=0,
        )
    empty = hopeless_validation().select(np.array([], dtype=np.int64))
    with pytest.raises(InputError, match="validation part holds no target"):
        train(small(), sequences_of([[1, 2]]), empty, TrainingSettings(), filter_seen=True, seed=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learningrate": 0.1}, ["learningrate", "learning_rate"]),
        ({"loss": "hinge"}, ["loss", "hinge", "softmax, sampled_softmax, bce, gbce"]),
        ({"batch_size": 0}, ["batch_size", "0"]),
        ({"learning_rate": -0.1}, ["learning_rate", "-0.1"]),
        ({"patience": 0}, ["patience", "0"]),
        ({"maximum_epochs": "ten"}, ["maximum_epochs", "ten"]),
        *(
            ({"num_negatives": value}, ["num_negatives", str(value)])
            for value in (0, -3, 2.5, True, "many", None)
        ),
        *(
            ({"calibration": value}, ["calibration", str(value)])
            for value in (-0.1, 1.01, float("nan"), True, "full", None)
        ),
        *(
            ({"ema_decay": value}, ["ema_decay", str(value)])
            for value in (-0.1, 1, 1.0, float("nan"), True, "most", None)
        ),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings, words):
    """Called without the workflow there is no schema in front of the script, so names
    and values are checked here.
    """
    with pytest.raises(InputError) as error:
        checked(TrainingSettings, settings, "training")
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_negatives": 1},
        {"calibration": 0},
        {"calibration": 0.0},
        {"calibration": 1},
        {"calibration": 0.3},
    ],
)
def test_the_ends_of_what_is_allowed_are_allowed(settings):
    """What the schema of the workflow allows, t = 0 (plain BCE) included."""
    made = checked(TrainingSettings, {"loss": "gbce", **settings}, "training")
    assert {name: getattr(made, name) for name in settings} == settings


# Learning


@pytest.mark.parametrize(
    ("architecture", "loss"),
    [("sasrec", "bce"), ("gru4rec", "bce"), ("sasrec", "sampled_softmax"), ("sasrec", "gbce")],
)
def test_a_loss_with_negatives_trains(architecture, loss):
    """The loss falls by half and unseen histories are continued; negatives are unseen
    items, so seen ones are filtered.
    """
    torch.manual_seed(0)
    model = build(architecture, 20, {"hidden_size": 16, "maximum_length": 12, "dropout": 0.0})
    settings = TrainingSettings(
        loss=loss,
        num_negatives=4,
        batch_size=32,
        round_updates=12,
        maximum_epochs=40,
        learning_rate=0.01,
    )
    validation, test = continued(cycle(25, 20, seed=1)), continued(cycle(25, 20, seed=2))
    before = ndcg(model, test, filter_seen=True)
    curve = train(
        model, sequences_of(cycle(128, 20, seed=0)), validation, settings, filter_seen=True, seed=0
    )
    assert curve[-1].loss < curve[0].loss / 2
    assert before < 0.6
    assert ndcg(model, test, filter_seen=True) > 0.9


@pytest.mark.parametrize(
    ("architecture", "settings", "epochs"),
    [
        ("sasrec", {"hidden_size": 16}, 18),
        ("sasrec", {"hidden_size": 16, "block_order": "pre"}, 18),
        ("gru4rec", {"hidden_size": 16}, 20),
        ("bert4rec", {"hidden_size": 32, "blocks": 1, "dropout": 0.0}, 60),
        ("bsarec", {"hidden_size": 16}, 6),
        ("duorec", {"hidden_size": 16}, 18),
    ],
)
def test_a_deterministic_cycle_is_learned(architecture, settings, epochs):
    """The next item is the last plus one: after seconds of training, unseen histories
    are continued almost without fault.
    """
    torch.manual_seed(0)
    model = build(architecture, 20, {"maximum_length": 12, "dropout": 0.1, **settings})
    validation, test = continued(cycle(25, 20, seed=1)), continued(cycle(25, 20, seed=2))
    training = TrainingSettings(
        batch_size=32, learning_rate=0.01, maximum_epochs=epochs, patience=20, round_updates=12
    )
    before = ndcg(model, test)
    train(
        model, sequences_of(cycle(128, 20, seed=0)), validation, training, filter_seen=False, seed=0
    )
    assert before < 0.6
    assert ndcg(model, test) > 0.9


def test_bert4rec_predicts_behind_the_longest_training_sequence():
    """All sequences are equally long: an input holds one item more than training did,
    and where the mask would stand there was no label.
    """
    random = np.random.default_rng(0)
    histories = [
        [1 + (start + step) % 20 for step in range(12)] for start in random.integers(20, size=200)
    ]
    torch.manual_seed(0)
    settings = {"hidden_size": 32, "blocks": 2, "dropout": 0.1, "maximum_length": 16}
    model = build("bert4rec", 20, settings)
    training = TrainingSettings(
        batch_size=32, learning_rate=0.005, maximum_epochs=60, round_updates=30, ema_decay=0.98
    )
    validation, test = (
        held_out_of([h[:-back] for h in histories], [h[-back] for h in histories])
        for back in (2, 1)
    )
    train(
        model,
        sequences_of([history[:-2] for history in histories]),
        validation,
        training,
        filter_seen=False,
        seed=0,
    )
    ranks = rank(model, test, filter_seen=False).target[:, 0]
    assert (ranks == 1).mean() > 0.9


def test_batches_and_dropout_are_drawn_apart(monkeypatch):
    """Neither starts from the seed, from which the first weights are drawn, nor both
    from one number.
    """
    started = []

    def noted(model, optimizer, examples, settings, generator, device, earlier):
        started.extend((generator.initial_seed(), torch.initial_seed()))
        return 1.0, 1

    monkeypatch.setattr("lastitem.training.loop.train_epoch", noted)
    sequences, settings = sequences_of(random_histories(30)), TrainingSettings(maximum_epochs=1)
    train(small(), sequences, hopeless_validation(), settings, filter_seen=True, seed=3)
    assert len({3, *started}) == 3


@pytest.mark.parametrize("architecture", ["sasrec", "bert4rec"])
def test_each_validation_ranks_with_the_weights_of_its_moment(architecture):
    """As a new model with the same weights does: nothing is kept from a ranking before
    the updates.
    """
    settings = {"maximum_length": 12, "hidden_size": 8, "blocks": 1}
    model, validation = build(architecture, 20, settings), continued(cycle(25, 20, seed=1))
    anew = []

    def report(curve, seconds):
        copy = build(architecture, 20, settings)
        copy.load_state_dict(model.state_dict())
        anew.append(ndcg(copy, validation))

    curve = train(
        model,
        sequences_of(cycle(128, 20, seed=0)),
        validation,
        TrainingSettings(batch_size=32, learning_rate=0.01, maximum_epochs=4, round_updates=1),
        filter_seen=False,
        seed=0,
        report=report,
    )
    assert [line.validation_ndcg for line in curve] == anew and len({*anew}) == 4


def test_padding_row_stays_zero():
    """Padding is never a target and takes no gradient, so its embedding is
    untouched by training.
    """
    for architecture in TRAINED:
        model = small(architecture)
        settings = TrainingSettings(batch_size=10, maximum_epochs=2)
        train(
            model,
            sequences_of(random_histories(30)),
            hopeless_validation(),
            settings,
            filter_seen=True,
            seed=3,
        )
        assert bool((model.embedding.weight[0] == 0).all())


# The script


def script_arguments(folder, **changed):
    values = {
        "dataset": "d",
        "split": "loo",
        "model": "sasrec",
        "seed": 4,
        "train": f"{folder}/train.parquet",
        "validation": f"{folder}/validation.parquet",
        "items": f"{folder}/items.parquet",
        "study": "0123456789ab",
        "architecture": "sasrec",
        "settings": json.dumps({"hidden_size": 8, "maximum_length": 10}),
        "training": json.dumps({"batch_size": 10, "round_updates": 3, "maximum_epochs": 2}),
        "filter-seen": "true",
        "device": "cpu",
        "threads": 1,
        "weights": f"{folder}/model.safetensors",
        "description": f"{folder}/model.json",
        "curve": f"{folder}/curve.csv",
        **changed,
    }
    return [str(part) for name, value in values.items() for part in (f"--{name}", value)]


def write_parts(folder, histories):
    """Leave-one-out by hand: the last item is kept out of training and is what
    validation asks for.
    """
    items, offsets = (
        np.concatenate(histories).astype(np.int32),
        np.concatenate(([0], np.cumsum([len(h) for h in histories]))),
    )
    times = np.arange(len(items), dtype=np.int64)
    length = np.diff(offsets)
    literal.write_part(folder / "train.parquet", items, times, offsets, length - 1)
    literal.write_part(
        folder / "validation.parquet",
        items,
        times,
        offsets,
        length,
        (np.arange(len(histories)), length - 1),
    )
    pyarrow.parquet.write_table(
        pa.table({"item": np.arange(1, ITEMS + 1)}), folder / "items.parquet"
    )


def test_the_script_writes_model_description_and_curve(tmp_path):
    """The loss that was used stands in the description, as do the patience and the most
    epochs; the curve says of which study it is, its seed, and what made it.
    """
    write_parts(tmp_path, [[*history, 3] for history in random_histories(30)])
    script.main(script_arguments(tmp_path))
    model, description = load(tmp_path / "model.safetensors", tmp_path / "model.json")
    assert isinstance(model, SASRec)
    assert description["items"] == ITEMS
    assert description["run"] == {"dataset": "d", "split": "loo", "model": "sasrec", "seed": 4}
    assert description["training"]["loss"] == "softmax"
    assert (description["training"]["patience"], description["training"]["maximum_epochs"]) == (
        10,
        2,
    )
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert curve["epoch"].tolist() == [1, 2]
    assert curve.columns.tolist() == [
        *("epoch", "updates", "loss", "validation_ndcg", "best"),
        *("study", "seeds", "versions"),
    ]
    assert (curve["study"] == "0123456789ab").all() and (curve["seeds"] == 4).all()
    versions = f"trained: lastitem {__version__} torch {torch.__version__}"
    assert (curve["versions"] == versions).all()
    assert description["best"]["epoch"] == curve.loc[curve["best"], "epoch"].iloc[-1]


def test_the_script_repeats_itself_bit_for_bit(tmp_path):
    """A rerun without a state ends in the same file."""
    write_parts(tmp_path, [[*history, 3] for history in random_histories(30)])
    written = []
    for _ in range(2):
        script.main(script_arguments(tmp_path))
        written.append((tmp_path / "model.safetensors").read_bytes())
        (tmp_path / "model.safetensors").unlink()
        torch.rand(1)
    script.main(script_arguments(tmp_path, seed=5))
    assert written[0] == written[1] != (tmp_path / "model.safetensors").read_bytes()


def test_the_script_leaves_no_model_of_a_diverged_training(tmp_path):
    write_parts(tmp_path, [[*history, 3] for history in random_histories(30)])
    training = json.dumps(
        {"batch_size": 10, "round_updates": 1, "maximum_epochs": 20, "learning_rate": 1e30}
    )
    with pytest.raises(InputError, match=r"NaN scores|training loss is"):
        script.main(script_arguments(tmp_path, training=training))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "items.parquet",
        "train.parquet",
        "validation.parquet",
    ]


def test_the_script_counts_for_popularity(tmp_path):
    histories = [[*history, 3] for history in random_histories(30)]
    write_parts(tmp_path, histories)
    script.main(script_arguments(tmp_path, architecture="popularity", settings="{}"))
    model, _ = load(tmp_path / "model.safetensors", tmp_path / "model.json")
    expected = np.bincount(
        np.concatenate([history[:-1] for history in histories]), minlength=ITEMS + 1
    )[1:]
    assert model.counts.tolist() == expected.tolist()


@pytest.mark.parametrize("architecture", FITTED)
def test_what_is_fitted_has_a_curve_of_one_line(tmp_path, capsys, architecture):
    """The NDCG of the validation users that a training would draw; no loss."""
    write_parts(tmp_path, [[*history, 3] for history in random_histories(30)])
    training = {"validation_users": 7, "validation_cutoff": ITEMS}
    changed = {"architecture": architecture, "settings": "{}", "training": json.dumps(training)}
    script.main(script_arguments(tmp_path, **changed))
    model, description = load(tmp_path / "model.safetensors", tmp_path / "model.json")
    cases = read_held_out(tmp_path / "validation.parquet").sample_users(7, seed=4)
    ranks = rank(model, cases, filter_seen=True)
    expected = float(per_user("ndcg", ranks.target[:, 0], ITEMS).mean())
    (line,) = pd.read_csv(tmp_path / "curve.csv").to_dict("records")
    assert (line["epoch"], line["updates"], line["best"]) == (0, 0, True)
    assert line["validation_ndcg"] == expected > 0 and np.isnan(line["loss"])
    best = {"epoch": 0, "updates": 0, "loss": None, "validation_ndcg": expected, "best": True}
    assert description["best"] == best
    assert not list(answers.training_warnings([description]))
    assert f"validation NDCG@{ITEMS} {expected:.4f}" in capsys.readouterr().out


def test_what_is_fitted_needs_no_validation(tmp_path):
    histories = [[*history, 3] for history in random_histories(30)]
    cases = held_out_of(histories, [1] * 30).select(np.zeros(0, dtype=np.int64))
    model = build("markov", ITEMS, {})
    settings = TrainingSettings()
    assert train(model, sequences_of(histories), cases, settings, filter_seen=True, seed=1) == []
    assert model.share.sum() == pytest.approx(1)


def test_a_grid_without_gradients_is_chosen_on_validation(tmp_path):
    """Item 3 follows 2 and 5 follows 4, whatever came earlier: the last item says more
    than all of them. A point without a validation step cannot be compared.
    """
    random = np.random.default_rng(0)
    ends = [[2, 3], [4, 5], [6, 7], [8, 9]]
    write_parts(
        tmp_path,
        [
            [*(other for place in random.permutation(4) for other in ends[place]), 10, *ends[n % 4]]
            for n in range(40)
        ],
    )
    curves = []
    for newest in (0, 1):
        curves.append(str(tmp_path / f"{newest}.csv"))
        settings = json.dumps({"newest": newest})
        changed = {"architecture": "item-knn", "settings": settings, "filter-seen": "false"}
        script.main(script_arguments(tmp_path, curve=curves[-1], **changed))
    points = {"newest=0": {"newest": 0}, "newest=1": {"newest": 1}}
    out = tmp_path / "choice.json"
    arguments = ["--points", json.dumps(points), "--curves", *curves, "--seed", "4"]
    choose.main([*arguments, "--out", str(out)])
    chosen = json.loads(out.read_text(encoding="utf-8"))
    found = [float(pd.read_csv(path)["validation_ndcg"].iloc[0]) for path in curves]
    assert list(chosen["validation_ndcg"].values()) == found
    assert found[0] != found[1]
    assert chosen["settings"] == {"newest": int(np.argmax(found))}
    pd.read_csv(curves[1])[:0].to_csv(curves[1], index=False)
    with pytest.raises(InputError, match=r"1\.csv: not all hold a validation step"):
        choose.main([*arguments, "--out", str(out)])


def test_the_script_names_a_missing_part(tmp_path):
    write_parts(tmp_path, [[*history, 3] for history in random_histories(30)])
    (tmp_path / "validation.parquet").unlink()
    with pytest.raises(InputError, match=r"validation\.parquet"):
        script.main(script_arguments(tmp_path))
