"""Shuffled histories at inference."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

import shuffle as shuffle_script
from lastitem.evaluation.ranking import rank
from lastitem.evaluation.shuffling import ORDERS, permute, reorder
from lastitem.models.registry import build
from tests import literal
from tests.evaluation.test_ranking import MODELS, files, random_cases, untrained


def batch(histories: list[list[int]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded items and lengths."""
    items = torch.tensor([history + [0] * (width - len(history)) for history in histories])
    return items, torch.tensor([len(history) for history in histories])


def inputs_of(model) -> list[torch.Tensor]:
    """A list that fills with what the model's embedding is asked for."""
    seen: list[torch.Tensor] = []
    model.embedding.register_forward_hook(
        lambda _, arguments, __: seen.append(arguments[0].clone())
    )
    return seen


class TestPermute:
    def test_full_keeps_the_items_and_the_padding(self):
        generator = np.random.default_rng(0)
        histories = [
            generator.integers(1, 50, generator.integers(1, 12)).tolist() for _ in range(200)
        ]
        items, length = batch(histories, 13)
        shuffled, unchanged = permute(
            items, length, np.arange(200), keep_last=False, seed=1, repeat=0
        )
        for row, history in enumerate(histories):
            out = shuffled[row].tolist()
            assert sorted(out[: len(history)]) == sorted(history)
            assert out[len(history) :] == [0] * (13 - len(history))
            assert unchanged[row] == (out[: len(history)] == history)
        moved = [
            shuffled[row, len(h) - 1] != h[-1] for row, h in enumerate(histories) if len(h) > 5
        ]
        assert np.mean(moved) > 0.6

    def test_partial_keeps_the_last_item_in_its_place(self):
        generator = np.random.default_rng(1)
        histories = [
            generator.integers(1, 50, generator.integers(1, 12)).tolist() for _ in range(200)
        ]
        items, length = batch(histories, 13)
        shuffled, unchanged = permute(
            items, length, np.arange(200), keep_last=True, seed=1, repeat=0
        )
        for row, history in enumerate(histories):
            out = shuffled[row].tolist()
            assert out[len(history) - 1] == history[-1]
            assert sorted(out[: len(history) - 1]) == sorted(history[:-1])
            assert out[len(history) :] == [0] * (13 - len(history))
            if len(history) <= 2:
                assert unchanged[row]

    def test_depends_on_seed_user_and_repeat_only(self):
        """Not on the other rows, their order, or the width of the padding."""
        generator = np.random.default_rng(2)
        histories = [
            generator.permutation(50)[: generator.integers(1, 12)].tolist() for _ in range(100)
        ]
        users = generator.permutation(1000)[:100].astype(np.int32)
        for keep_last in (False, True):
            keywords = {"keep_last": keep_last, "seed": 5, "repeat": 2}
            wide, unchanged = permute(*batch(histories, 30), users, **keywords)
            order = generator.permutation(100)
            mixed, mixed_unchanged = permute(
                *batch([histories[row] for row in order], 12), users[order], **keywords
            )
            assert torch.equal(mixed, wide[order][:, :12])
            assert np.array_equal(mixed_unchanged, unchanged[order])
            for row in range(0, 100, 9):
                alone, _ = permute(
                    *batch([histories[row]], len(histories[row])), users[[row]], **keywords
                )
                assert alone[0].tolist() == wide[row, : len(histories[row])].tolist()

    def test_another_seed_user_or_repeat_gives_another_permutation(self):
        items, length = batch([list(range(1, 31))], 30)

        def out(user: int, seed: int, repeat: int) -> tuple[int, ...]:
            return tuple(
                permute(items, length, np.array([user]), keep_last=False, seed=seed, repeat=repeat)[
                    0
                ][0].tolist()
            )

        keys = [
            (user, seed, repeat) for user in range(4) for seed in range(4) for repeat in range(4)
        ]
        assert len({out(*key) for key in keys}) == len(keys)
        assert out(1, 2, 3) == out(1, 2, 3)

    @pytest.mark.parametrize(("keep_last", "count"), [(False, 24), (True, 6)])
    def test_every_permutation_is_equally_likely(self, keep_last, count):
        """24,000 users with four items: χ² below its mean + 5 standard deviations, over
        users and over repeats.
        """
        items, length = batch([[1, 2, 3, 4]] * 12_000, 6)
        drawn = Counter()
        for repeat in (0, 1):
            shuffled, _ = permute(
                items, length, np.arange(12_000), keep_last=keep_last, seed=0, repeat=repeat
            )
            drawn.update(map(tuple, shuffled[:, :4].tolist()))
        assert len(drawn) == count
        expected, freedom = 24_000 / count, count - 1
        assert (
            sum((seen - expected) ** 2 / expected for seen in drawn.values())
            < freedom + 5 * (2 * freedom) ** 0.5
        )

    def test_unchanged_share(self):
        """One item never changes, two change half the time, equal items cannot change,
        partial needs three to change any.
        """
        users = np.arange(4000)
        for history, keep_last, expected in (
            ([1], False, 1.0),
            ([1, 2], False, 0.5),
            ([1, 2, 3], False, 1 / 6),
            ([7, 7, 7], False, 1.0),
            ([1, 2], True, 1.0),
            ([1, 2, 3], True, 0.5),
        ):
            items, length = batch([history] * 4000, 5)
            shuffled, unchanged = permute(
                items, length, users, keep_last=keep_last, seed=0, repeat=0
            )
            assert unchanged.mean() == pytest.approx(expected, abs=0.04)
            assert np.array_equal(unchanged, (shuffled == items).all(dim=1).numpy())

    def test_the_input_itself_is_left_alone(self):
        items, length = batch([[1, 2, 3, 4, 5]] * 3, 5)
        before = items.clone()
        permute(items, length, np.arange(3), keep_last=False, seed=0, repeat=0)
        assert torch.equal(items, before)

    def test_unknown_order_and_the_ordered_one(self):
        assert reorder("ordered", 0, 0) is None
        with pytest.raises(ValueError, match="'reversed' is not one of"):
            reorder("reversed", 0, 0)


class TestRankingShuffled:
    @pytest.mark.parametrize("order", ["partial", "full"])
    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_other_users_do_not_change_anything(self, name, order):
        model = untrained(name, items=60)
        generator = np.random.default_rng(3)
        cases, _, _ = random_cases(generator, 60, count=60, longest=14)
        whole = rank(model, cases, filter_seen=True, reorder=reorder(order, 1, 0))
        mixed = generator.permutation(60)
        for selection in (mixed, mixed[:1], np.sort(mixed[:30])):
            found = rank(
                model, cases.select(selection), filter_seen=True, reorder=reorder(order, 1, 0)
            )
            for part in ("target", "last", "last_but_one", "unchanged"):
                assert np.array_equal(getattr(found, part), getattr(whole, part)[selection]), part
        assert 0.05 < whole.unchanged.mean() < 0.6

    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_ranks_are_those_of_the_shuffled_history(self, name):
        """The literal way: permute each truncated history alone, then rank it as an
        ordinary one.
        """
        model = untrained(name, items=40)
        cases, histories, targets = random_cases(np.random.default_rng(4), 40, count=40, longest=14)
        for order in ("partial", "full"):
            found = rank(model, cases, filter_seen=True, reorder=reorder(order, 7, 3))
            for case, (history, target) in enumerate(zip(histories, targets, strict=True)):
                kept = history[-model.input_length :]
                items, length = batch([kept], len(kept))
                shuffled, unchanged = permute(
                    items, length, np.array([case]), keep_last=order == "partial", seed=7, repeat=3
                )
                scores = literal.scores(model, shuffled[0].tolist())
                assert found.target[case, 0] == literal.rank_in(
                    literal.ranking(scores, set(history)), target
                )
                assert found.unchanged[case] == unchanged[0]

    def test_last_means_the_last_item_in_true_order(self):
        """History 1 … 5 fully shuffled before a model that copies its last input: 5 is
        first only where it came out last.
        """
        count = 200
        cases = literal.held_out([[1, 2, 3, 4, 5]] * count, [6] * count)
        found = rank(
            literal.TableModel(literal.copying_table(9)),
            cases,
            filter_seen=False,
            reorder=reorder("full", 0, 0),
        )
        items, length = batch([[1, 2, 3, 4, 5]] * count, 5)
        came_last = permute(items, length, np.arange(count), keep_last=False, seed=0, repeat=0)[0][
            :, -1
        ].tolist()
        assert set(came_last) == {1, 2, 3, 4, 5}
        # The copying model ranks i, i − 1, …, 1, 9, 8, … after item i.
        assert found.last.tolist() == [(item - 5) % 9 + 1 for item in came_last]
        assert found.last_but_one.tolist() == [(item - 4) % 9 + 1 for item in came_last]
        partial = rank(
            literal.TableModel(literal.copying_table(9)),
            cases,
            filter_seen=False,
            reorder=reorder("partial", 0, 0),
        )
        assert partial.last.tolist() == [1] * count
        assert partial.last_but_one.tolist() == [2] * count

    @pytest.mark.parametrize("order", ["partial", "full"])
    def test_the_mask_stays_behind_the_history(self, order):
        """What BERT4Rec's embedding is asked for: the newest items in some order, then
        the mask, then padding.
        """
        model = untrained("bert4rec", items=40, maximum_length=7)
        seen = inputs_of(model)
        cases, histories, _ = random_cases(np.random.default_rng(5), 40, count=30, longest=11)
        rank(model, cases, filter_seen=False, reorder=reorder(order, 0, 0))
        kept = [history[-6:] for history in histories]
        found = []
        # The rows that fill a tile repeat a case, so rows and histories are compared as
        # sets.
        for row in (row.tolist() for items in seen for row in items):
            at = row.index(model.mask)
            assert row.count(model.mask) == 1
            assert row[at + 1 :] == [0] * (len(row) - at - 1)
            found.append(row[:at])
        assert {tuple(sorted(row)) for row in found} == {tuple(sorted(history)) for history in kept}
        if order == "partial":
            assert {(*sorted(row), row[-1]) for row in found} == {
                (*sorted(history), history[-1]) for history in kept
            }

    def test_only_what_the_model_sees_is_shuffled(self):
        """Of ten items a model reads four: after truncation no older item comes in."""
        model = untrained("sasrec post", items=40, maximum_length=4)
        seen = inputs_of(model)
        rank(
            model,
            literal.held_out([list(range(1, 11))] * 50, [20] * 50),
            filter_seen=False,
            reorder=reorder("full", 0, 0),
        )
        rows = [row for items in seen for row in items.tolist()][:50]
        assert {tuple(sorted(row)) for row in rows} == {(7, 8, 9, 10)}
        assert len(set(map(tuple, rows))) > 10

    def test_targets_and_histories_are_the_same_under_every_order(self):
        """The cases' arrays hash to the same before and after, and the filter removes
        the same items whatever the order.
        """
        model = untrained("sasrec post", items=40)
        cases, histories, _ = random_cases(np.random.default_rng(6), 40, count=50, longest=9)

        def digest() -> str:
            return hashlib.sha256(
                b"".join(
                    a.tobytes()
                    for a in (cases.items, cases.start, cases.end, cases.target, cases.user)
                )
            ).hexdigest()

        before, lost = digest(), []
        for order in ORDERS:
            found = rank(
                model, cases, filter_seen=True, reorder=reorder(order, 0, 0), list_length=5
            )
            assert digest() == before
            lost.append((found.target == 0).tolist())
            assert not any(
                set(history) & set(row)
                for history, row in zip(histories, found.lists.tolist(), strict=True)
            )
        assert lost[0] == lost[1] == lost[2]


def test_the_script_writes_every_order_and_repeat_of_every_case(tmp_path):
    """shuffle.py: ordered once, the others three times; a case's rows agree with the
    ranking of that permutation alone.
    """
    torch.manual_seed(0)
    settings = {"hidden_size": 8, "maximum_length": 6}
    model = build("sasrec", 30, settings)
    cases, histories, targets = random_cases(np.random.default_rng(7), 30, count=25, longest=9)
    arguments = files(tmp_path, model, "sasrec", settings, histories, targets)
    for name in (
        "--train",
        "--ranks",
        "--summary",
        "--users",
        "--items",
        "--recommendation-length",
        "--recommendations",
    ):
        at = arguments.index(name)
        del arguments[at : at + 2]
    shuffle_script.main(
        [
            *arguments,
            "--repeats",
            "3",
            "--shuffle-seed",
            "11",
            "--out",
            str(tmp_path / "shuffled.parquet"),
        ]
    )
    table = pd.read_parquet(tmp_path / "shuffled.parquet")
    assert table.groupby(["order", "repeat"]).size().to_dict() == {
        ("ordered", 0): 25,
        **{(order, repeat): 25 for order in ("partial", "full") for repeat in range(3)},
    }
    for (order, repeat), rows in table.groupby(["order", "repeat"]):
        found = rank(model, cases, filter_seen=True, reorder=reorder(order, 11, repeat))
        assert rows["case"].tolist() == rows["user"].tolist() == list(range(25))
        assert rows["target_rank"].tolist() == found.target[:, 0].tolist()
        assert rows["unchanged"].tolist() == found.unchanged.tolist()
    assert table.loc[table["order"] == "ordered", "unchanged"].all()
    full = table[table["order"] == "full"].pivot(
        index="case", columns="repeat", values="target_rank"
    )
    assert (full[0] != full[1]).any()
