"""Full-catalogue ranking against a literal full sort, its seen filter, last-item ranks
and earlier read-outs.

Not tried, because it does not exist here: a sampled ranking, and a matrix of seen items
padded with 0 (seen items are a flat list).
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import evaluate as evaluate_script
from lastitem.errors import InputError
from lastitem.evaluation import ranking
from lastitem.evaluation.metrics import coverage, per_user
from lastitem.evaluation.ranking import rank, recommend
from lastitem.files import write_parquet
from lastitem.models.popularity import Popularity
from lastitem.models.registry import build, save
from lastitem.report.summaries import Bootstrap, last_item_hit_rates
from lastitem.study.runs import read_run_tables
from tests import literal

MODELS = {
    "sasrec post": ("sasrec", {"block_order": "post"}),
    "sasrec pre": ("sasrec", {"block_order": "pre"}),
    "bert4rec": ("bert4rec", {}),
    "gru4rec": ("gru4rec", {"layers": 2}),
    "bsarec": ("bsarec", {"filter_share": 0.6}),
    "duorec": ("duorec", {}),
}


def untrained(name: str, items: int, maximum_length: int = 9):
    """A small model with spread-out weights, so that the order of the input matters to
    its scores.
    """
    architecture, settings = MODELS[name]
    torch.manual_seed(1)
    sizes = (
        {"hidden_size": 8}
        if architecture == "gru4rec"
        else {"hidden_size": 8, "blocks": 2, "heads": 2}
    )
    model = build(architecture, items, {**settings, **sizes, "maximum_length": maximum_length})
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.5)
    return model


def random_cases(generator: np.random.Generator, items: int, count: int, longest: int):
    """Random histories and targets: (cases, histories, targets)."""
    histories = [
        generator.integers(1, items + 1, generator.integers(1, longest + 1)).tolist()
        for _ in range(count)
    ]
    targets = generator.integers(1, items + 1, count).tolist()
    return literal.held_out(histories, targets), histories, targets


def files(
    folder,
    model,
    architecture: str,
    settings: dict,
    histories: list[list[int]],
    targets: list[int],
    **options: object,
) -> list[str]:
    """Write a model and a test part, and give the arguments of evaluate.py."""
    description = {"architecture": architecture, "items": model.items, "settings": settings}
    save(model, description, folder / "model.safetensors", folder / "model.json")
    whole = [[*history, target] for history, target in zip(histories, targets, strict=True)]
    length = np.array([len(sequence) for sequence in whole])
    flat = np.array([item for sequence in whole for item in sequence], dtype=np.int32)
    offsets = np.concatenate(([0], np.cumsum(length)))
    literal.write_part(
        folder / "test.parquet",
        flat,
        np.arange(len(flat)),
        offsets,
        length,
        (np.arange(len(whole)), length - 1),
    )
    literal.write_part(folder / "train.parquet", flat, np.arange(len(flat)), offsets, length - 1)
    write_parquet(
        folder / "users.parquet",
        pa.table({"user_id": [f"user {user}" for user in range(len(whole))]}),
    )
    write_parquet(
        folder / "items.parquet",
        pa.table({"item_id": [f"item {item}" for item in range(1, model.items + 1)]}),
    )
    named = {
        **{"dataset": "toy", "split": "loo", "model": "some", "seed": 1, "threads": 1},
        **{"weights": folder / "model.safetensors", "description": folder / "model.json"},
        **{
            "test": folder / "test.parquet",
            "train": folder / "train.parquet",
            "filter-seen": "true",
        },
        **{
            "users": folder / "users.parquet",
            "items": folder / "items.parquet",
            "recommendation-length": 4,
        },
        **{
            "ranks": folder / "ranks.parquet",
            "recommendations": folder / "recommendations.parquet",
        },
        **{"summary": folder / "summary.json", **options},
    }
    return [str(part) for name, value in named.items() for part in (f"--{name}", value)]


class TestAgainstFullSort:
    @pytest.mark.parametrize("at_once", [3, 1 << 14])
    @pytest.mark.parametrize("filter_seen", [False, True])
    def test_hand_set_scores_with_many_ties(self, filter_seen, at_once, monkeypatch):
        """Random whole-number tables: ranks at four read-outs, lists, scores, last
        items; exact, ties by item id, however many items are compared at once.
        """
        monkeypatch.setattr(ranking, "_COLUMNS", at_once)
        generator = np.random.default_rng(3)
        for _ in range(60):
            items, maximum_length = int(generator.integers(1, 20)), int(generator.integers(1, 7))
            table = generator.integers(0, generator.integers(1, 6), (items + 1, items))
            cases, histories, targets = random_cases(
                generator, items, count=int(generator.integers(1, 12)), longest=9
            )
            list_length = int(generator.integers(1, 25))
            found = rank(
                literal.TableModel(table, maximum_length),
                cases,
                filter_seen=filter_seen,
                offsets=(0, 1, 2, 3),
                list_length=list_length,
            )
            for case, (history, target) in enumerate(zip(histories, targets, strict=True)):
                kept, removed = history[-maximum_length:], set(history) if filter_seen else set()
                for offset in range(4):
                    readable = offset < len(kept)
                    order = (
                        literal.ranking(table[kept[len(kept) - 1 - offset]].tolist(), removed)
                        if readable
                        else []
                    )
                    assert found.target[case, offset] == literal.rank_in(order, target)
                order = literal.ranking(table[kept[-1]].tolist(), removed)[:list_length]
                assert found.lists[case].tolist() == order + [0] * (list_length - len(order))
                assert found.scores[case, : len(order)].tolist() == [
                    table[kept[-1], item - 1] for item in order
                ]
                assert np.isnan(found.scores[case, len(order) :]).all()
                unfiltered = literal.ranking(table[kept[-1]].tolist())
                assert found.last[case] == literal.rank_in(unfiltered, history[-1])
                assert found.last_but_one[case] == (
                    literal.rank_in(unfiltered, history[-2]) if len(history) > 1 else 0
                )

    @pytest.mark.parametrize("filter_seen", [False, True])
    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_real_models_without_padding(self, name, filter_seen):
        """Every history encoded alone and sorted in full gives the ranks and lists of
        the batched ranking.
        """
        model = untrained(name, items=40)
        cases, histories, targets = random_cases(np.random.default_rng(4), 40, count=60, longest=14)
        found = rank(model, cases, filter_seen=filter_seen, list_length=10)
        for case, (history, target) in enumerate(zip(histories, targets, strict=True)):
            scores, removed = literal.scores(model, history), set(history) if filter_seen else set()
            order = literal.ranking(scores, removed)
            assert found.target[case, 0] == literal.rank_in(order, target)
            assert found.lists[case].tolist() == order[:10]
            assert found.scores[case] == pytest.approx(
                [scores[item - 1] for item in order[:10]], abs=1e-4
            )
            assert found.last[case] == literal.rank_in(literal.ranking(scores), history[-1])
            assert found.last_but_one[case] == (
                literal.rank_in(literal.ranking(scores), history[-2]) if len(history) > 1 else 0
            )
        assert len(set(map(tuple, found.lists.tolist()))) > 30  # Users do not all get one list

    @pytest.mark.parametrize(
        "name", [name for name in sorted(MODELS) if name not in ("bert4rec", "bsarec")]
    )
    def test_earlier_readouts_are_earlier_predictions(self, name):
        """Of a causal model: moving the read-out back by o reads the position o before
        the end, which has not seen the newest o items.
        """
        model = untrained(name, items=40)
        assert model.reads_prefixes
        cases, histories, targets = random_cases(np.random.default_rng(5), 40, count=40, longest=12)
        found = rank(model, cases, filter_seen=True, offsets=(0, 1, 2, 3))
        for case, (history, target) in enumerate(zip(histories, targets, strict=True)):
            for offset in range(4):
                if offset < min(len(history), model.input_length):
                    order = literal.ranking(
                        literal.scores(model, history, back=offset), set(history)
                    )
                    assert found.target[case, offset] == literal.rank_in(order, target)
                else:
                    assert found.target[case, offset] == 0
        assert (found.target[:, 3] == 0).sum() > (found.target[:, 0] == 0).sum()
        other = literal.held_out(
            [[*history[:-1], history[-1] % 40 + 1] for history in histories], targets
        )
        changed = rank(model, other, filter_seen=False, offsets=(0, 1, 2, 3)).target
        same = rank(model, cases, filter_seen=False, offsets=(0, 1, 2, 3)).target
        assert (changed[:, 1:] == same[:, 1:]).all() and (changed[:, 0] != same[:, 0]).any()

    def test_popularity_ranks_by_count_then_id(self):
        model = Popularity(5)
        model.counts[:] = torch.tensor([3.0, 9.0, 3.0, 0.0, 9.0])
        found = rank(model, literal.held_out([[2], [4]], [5, 3]), filter_seen=True, list_length=5)
        assert found.lists.tolist() == [[5, 1, 3, 4, 0], [2, 5, 1, 3, 0]]
        assert found.target.tolist() == [[1], [4]]


class TestInvariance:
    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_other_users_do_not_change_anything(self, name):
        """All at once, shuffled, one alone, some, each twice: the same ranks, lists
        and, bit for bit, scores for every user.
        """
        model = untrained(name, items=60)
        generator = np.random.default_rng(6)
        cases, _, _ = random_cases(generator, 60, count=200, longest=14)
        offsets = (0, 1) if model.reads_prefixes else (0,)
        keywords = {"filter_seen": True, "offsets": offsets, "list_length": 20}
        whole = rank(model, cases, **keywords)
        mixed = generator.permutation(200)
        for chosen in (mixed, mixed[:1], mixed[:65], np.sort(mixed[:100]), np.repeat(mixed, 2)):
            found = rank(model, cases.select(chosen), **keywords)
            for part in ("target", "last", "last_but_one", "unchanged", "lists", "scores"):
                assert np.array_equal(
                    getattr(found, part), getattr(whole, part)[chosen], equal_nan=part == "scores"
                ), part

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("name", ["sasrec post", "bert4rec", "gru4rec", "bsarec"])
    def test_bit_for_bit_at_real_sizes(self, name, threads):
        """64 dimensions, 5,000 items, one and two threads: where products of different
        shapes do round differently.
        """
        architecture, settings = MODELS[name]
        sizes = {} if architecture == "gru4rec" else {"heads": 2}
        torch.manual_seed(1)
        model = build(
            architecture, 5000, {**settings, **sizes, "hidden_size": 64, "maximum_length": 50}
        )
        generator = np.random.default_rng(6)
        cases, _, _ = random_cases(generator, 5000, count=150, longest=60)
        try:
            torch.set_num_threads(threads)
            whole = rank(model, cases, filter_seen=True, list_length=100)
            for chosen in (generator.permutation(150), generator.permutation(150)[:3]):
                found = rank(model, cases.select(chosen), filter_seen=True, list_length=100)
                for part in ("target", "last", "lists", "scores"):
                    assert np.array_equal(getattr(found, part), getattr(whole, part)[chosen]), part
        finally:
            torch.set_num_threads(1)

    def test_dropout_is_off_and_twice_is_the_same(self):
        """Also for a model that was left in training mode with a high dropout."""
        torch.manual_seed(0)
        model = build("sasrec", 30, {"hidden_size": 8, "dropout": 0.7, "maximum_length": 8}).train()
        cases, _, _ = random_cases(np.random.default_rng(8), 30, count=30, longest=8)
        first, second = (
            rank(model.train(), cases, filter_seen=False, list_length=5) for _ in range(2)
        )
        assert np.array_equal(first.target, second.target)
        assert np.array_equal(first.scores, second.scores)


class TestTies:
    def test_all_equal_scores_rank_by_id_and_do_not_favour_the_target(self):
        """Every item as target once under a zeroed model: its rank is its id, and HR@10
        is 10 of 50.
        """
        model = untrained("sasrec post", items=50)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        cases = literal.held_out([[1, 2, 3]] * 50, list(range(1, 51)))
        found = rank(model, cases, filter_seen=False, list_length=50)
        assert found.target[:, 0].tolist() == list(range(1, 51))
        assert per_user("hr", found.target[:, 0], 10).mean() == pytest.approx(10 / 50)
        assert (found.lists == np.arange(1, 51)).all()

    @pytest.mark.parametrize(("items", "size"), [(5, 64), (50, 8), (97, 64), (1683, 8)])
    def test_equal_item_vectors_tie(self, items, size):
        """Items with one and the same vector have one and the same score, also where
        the product is rounded.
        """
        torch.manual_seed(0)
        model = build("gru4rec", items, {"hidden_size": size, "maximum_length": 12})
        with torch.no_grad():
            model.embedding.weight[1:] = torch.randn(size)
        histories = [[1] * length for length in range(1, 12)]
        found = rank(
            model, literal.held_out(histories, [items] * 11), filter_seen=False, list_length=items
        )
        assert found.target[:, 0].tolist() == [items] * 11
        assert found.last.tolist() == [1] * 11
        assert (found.lists == np.arange(1, items + 1)).all()

    @pytest.mark.parametrize("items", [5, 13, 97, 1683])
    def test_two_items_with_one_vector_tie_wherever_they_stand(self, items):
        """The second and the last of a catalogue of otherwise different ones: the last
        follows the second at once, in every list.
        """
        torch.manual_seed(0)
        model = build("gru4rec", items, {"hidden_size": 64, "maximum_length": 12})
        with torch.no_grad():
            model.embedding.weight[1:] = torch.randn(items, 64)
            model.embedding.weight[items] = model.embedding.weight[2]
        histories = [[item] * length for item in (1, 3, 4) for length in range(1, 12)]
        found = [
            rank(
                model,
                literal.held_out(histories, [target] * 33),
                filter_seen=False,
                list_length=items,
            )
            for target in (2, items)
        ]
        assert (found[1].target == found[0].target + 1).all()
        assert (
            np.array_equal(found[0].lists, found[1].lists)
            and (np.diff(np.sort(found[0].lists)) == 1).all()
        )
        assert (
            np.argmax(found[0].lists == items, axis=1) == np.argmax(found[0].lists == 2, axis=1) + 1
        ).all()


class TestSeenFilter:
    @staticmethod
    def prefer(*order: int, items: int = 8) -> literal.TableModel:
        """A model that ranks ``order`` first, then the others by id."""
        table = np.zeros((items + 1, items))
        for place, item in enumerate(order):
            table[:, item - 1] = len(order) - place
        return literal.TableModel(table, maximum_length=2)

    def test_removes_the_whole_history_not_only_what_the_model_sees(self):
        """The model reads two items; the two before them are seen as well."""
        found = rank(
            self.prefer(1, 2, 3, 4, 5),
            literal.held_out([[1, 2, 3, 4]], [5]),
            filter_seen=True,
            list_length=3,
        )
        assert found.target.tolist() == [[1]]
        assert found.lists.tolist() == [[5, 6, 7]]

    def test_a_target_seen_before_is_lost_to_the_filter_and_only_to_it(self):
        """Item 3 comes back: a hit without the filter, impossible with it; its own last
        occurrence filters nothing.
        """
        cases = literal.held_out([[3, 1], [1, 2]], [3, 3])
        model = self.prefer(3)
        assert rank(model, cases, filter_seen=False).target.tolist() == [[1], [1]]
        assert rank(model, cases, filter_seen=True).target.tolist() == [[0], [1]]

    def test_targets_lost_and_cold_are_counted_in_the_summary(self, tmp_path):
        """Of four targets one was seen before by its user, and one is in no user's
        training part.
        """
        torch.manual_seed(0)
        settings = {"hidden_size": 8, "maximum_length": 5}
        model = build("gru4rec", 12, settings)
        histories, targets = [[1, 2], [3, 4], [5, 3, 4], [9, 2]], [9, 3, 9, 12]
        evaluate_script.main(
            files(tmp_path, model, "gru4rec", settings, histories, targets, cutoffs=10)
        )
        summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
        assert summary["ranking"] == "full catalogue"
        assert summary["filter_seen"] is True
        assert (summary["users"], summary["targets"], summary["items"]) == (4, 4, 12)
        assert summary["targets_lost_to_filter"] == 1
        assert summary["cold_targets"] == 1
        table = pd.read_parquet(tmp_path / "ranks.parquet")
        assert table["target"].tolist() == targets
        assert (table["target_rank"] == 0).tolist() == [False, True, False, False]
        assert table["cold"].tolist() == [False, False, False, True]
        assert table["input_length"].tolist() == [2, 2, 3, 2]

    def test_last_item_hit_rates_ignore_the_filter(self):
        """A model that copies the last item: HRLI is 1 with the filter on, though the
        lists never hold that item.
        """
        cases, histories, _ = random_cases(np.random.default_rng(9), 15, count=30, longest=6)
        model = literal.TableModel(literal.copying_table(15))
        on, off = (
            rank(model, cases, filter_seen=filter_seen, list_length=10)
            for filter_seen in (True, False)
        )
        assert on.last.tolist() == off.last.tolist() == [1] * 30
        assert on.last_but_one.tolist() == off.last_but_one.tolist()
        for seen, listed in zip(histories, on.lists.tolist(), strict=True):
            assert not set(seen) & set(listed)
        assert (on.target <= off.target).all()

    def test_one_item_inputs_are_out_of_the_second_hit_rates_denominator(self, tmp_path):
        """Two users with one input item among five: HRLI counts five users, HRL2I
        three.
        """
        torch.manual_seed(0)
        settings = {"hidden_size": 8, "maximum_length": 5}
        model = build("sasrec", 8, settings)
        histories = [[1], [2, 3], [4], [5, 6, 7], [1, 2]]
        evaluate_script.main(
            files(tmp_path, model, "sasrec", settings, histories, [8] * 5, cutoffs=8)
        )
        ranks = read_run_tables([tmp_path / "ranks.parquet"]).rows
        assert (ranks["last_but_one_rank"] == 0).tolist() == [True, False, True, False, False]
        rates = last_item_hit_rates(ranks, 8, Bootstrap(resamples=20)).set_index("measure")
        assert rates["users"].to_dict() == {"HRLI": 5, "HRL2I": 3}
        assert rates["value"].to_dict() == {"HRLI": 1.0, "HRL2I": 1.0}


class TestLists:
    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_lists_of_everything_cover_the_catalogue_without_padding_or_mask(self, name):
        """Also when the vectors of padding and mask point where every user's vector
        points.
        """
        model = untrained(name, items=30)
        with torch.no_grad():
            model.embedding.weight *= 0.01
            model.embedding.weight[0] = 100.0
            if name == "bert4rec":
                model.embedding.weight[31] = 100.0
        cases, _, _ = random_cases(np.random.default_rng(10), 30, count=12, longest=6)
        found = rank(model, cases, filter_seen=False, list_length=30)
        assert (np.sort(found.lists, axis=1) == np.arange(1, 31)).all()
        assert coverage(found.lists, items=30, cutoff=30) == 1.0

    def test_catalogue_smaller_than_k_and_almost_all_items_seen(self, tmp_path):
        """12 items, K 10 and 100, a user who saw 11: short lists, and evaluate.py ends
        well.
        """
        torch.manual_seed(0)
        settings = {"hidden_size": 8, "maximum_length": 20}
        model = build("bert4rec", 12, settings)
        histories = [list(range(1, 12)), [3, 3, 3], list(range(1, 13))]
        found = rank(
            model, literal.held_out(histories, [12, 1, 1]), filter_seen=True, list_length=100
        )
        assert [int((row > 0).sum()) for row in found.lists] == [1, 11, 0]
        assert found.lists[0, 0] == 12
        assert found.target[:, 0].tolist()[::2] == [1, 0]
        arguments = files(tmp_path, model, "bert4rec", settings, histories, [12, 1, 1])
        evaluate_script.main([*arguments, "--cutoffs", "10", "100"])
        shown = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["coverage"]
        assert shown["100"] == pytest.approx(11 / 12)
        assert 10 / 12 <= shown["10"] <= 11 / 12


class TestBadScores:
    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_one_nan_weight_in_a_checkpoint_is_an_error_and_nothing_is_written(
        self, name, tmp_path
    ):
        architecture, settings = MODELS[name]
        settings = {**settings, "hidden_size": 8, "maximum_length": 6}
        torch.manual_seed(0)
        model = build(architecture, 15, settings)
        with torch.no_grad():
            model.embedding.weight[7, 3] = float("nan")
        # Item 7 is in no history: it would only be an item that cannot be compared with
        # any other.
        arguments = files(
            tmp_path, model, architecture, settings, [[1, 2, 3], [4]], [5, 6], cutoffs=10
        )
        with pytest.raises(InputError, match="NaN scores"):
            evaluate_script.main(arguments)
        assert not (tmp_path / "ranks.parquet").exists()
        assert not (tmp_path / "summary.json").exists()

    def test_nan_at_an_earlier_readout_is_an_error_too(self):
        model = literal.TableModel(np.zeros((6, 5)))
        model.table[2] = float("nan")
        cases = literal.held_out([[1, 2, 3]], [4])
        assert rank(model, cases, filter_seen=False).target.tolist() == [[4]]
        with pytest.raises(InputError, match="NaN scores"):
            rank(model, cases, filter_seen=False, offsets=(0, 1))


def test_an_attention_model_gets_the_residual_scale():
    """λ changes the ranks of a model with attention; 1 is the plain model."""
    cases, _, _ = random_cases(np.random.default_rng(12), 60, count=40, longest=9)
    model = untrained("sasrec post", items=60)
    plain, one, none = (
        rank(model, cases, filter_seen=False, **scale).target
        for scale in ({}, {"residual_scale": 1.0}, {"residual_scale": 0.0})
    )
    assert np.array_equal(plain, one)
    assert (plain != none).mean() > 0.5


MEANINGLESS = {
    "a residual scale": ({"residual_scale": 0.5}, "no attention block"),
    "a look into the blocks": (
        {"inspect": lambda traces: traces[0].before_norm},
        "no attention block",
    ),
    "an earlier read-out": ({"offsets": (0, 1)}, r"offsets must be \(0,\)"),
}


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("a residual scale", "gru4rec"),
        ("a residual scale", "popularity"),
        ("a look into the blocks", "gru4rec"),
        ("a look into the blocks", "popularity"),
        ("an earlier read-out", "bert4rec"),
        ("an earlier read-out", "bsarec"),
        ("an earlier read-out", "popularity"),
    ],
)
def test_what_has_no_meaning_for_a_model_is_refused(asked, name):
    """Nothing is ranked as if it had not been asked for; λ = 1 and no offset are."""
    cases, _, _ = random_cases(np.random.default_rng(12), 60, count=40, longest=9)
    model = Popularity(60) if name == "popularity" else untrained(name, items=60)
    keywords, words = MEANINGLESS[asked]
    kind = type(model).__name__
    with pytest.raises(InputError, match=f"{kind}.* {words}"):
        rank(model, cases, filter_seen=False, **keywords)
    plain = rank(model, cases, filter_seen=False)
    same = rank(model, cases, filter_seen=False, residual_scale=1.0, offsets=(0,))
    assert np.array_equal(plain.target, same.target)


def test_the_probe_is_gone_after_a_ranking():
    """Also after one that failed: what follows is the plain model, bit for bit."""
    cases, _, _ = random_cases(np.random.default_rng(12), 60, count=40, longest=9)
    model = untrained("sasrec post", items=60)
    plain = rank(model, cases, filter_seen=False, list_length=5)

    def failing(traces):
        raise ArithmeticError("of the reader")

    rank(model, cases, filter_seen=False, residual_scale=0.3)
    with pytest.raises(ArithmeticError, match="of the reader"):
        rank(model, cases, filter_seen=False, residual_scale=0.3, inspect=failing)
    again = rank(model, cases, filter_seen=False, list_length=5)
    assert np.array_equal(again.scores, plain.scores)


class TestRecommendations:
    @pytest.mark.parametrize("filter_seen", ["true", "false"])
    def test_the_file_holds_the_lists_with_original_ids(self, tmp_path, filter_seen):
        """Against a full sort of the scores; a catalogue of five leaves some users
        fewer than four unseen items.
        """
        torch.manual_seed(1)
        settings = {"hidden_size": 8, "maximum_length": 6}
        model = build("sasrec", 5, settings)
        _, histories, targets = random_cases(np.random.default_rng(2), 5, count=30, longest=6)
        evaluate_script.main(
            [
                *files(tmp_path, model, "sasrec", settings, histories, targets, cutoffs=1),
                "--filter-seen",
                filter_seen,
            ]
        )
        found = pd.read_parquet(tmp_path / "recommendations.parquet")
        ranks = pd.read_parquet(tmp_path / "ranks.parquet")
        assert found["user_id"].tolist() == [f"user {user}" for user in range(30)]
        assert found["target"].tolist() == [f"item {item}" for item in targets]
        assert found["target_rank"].fillna(0).astype(int).tolist() == ranks["target_rank"].tolist()
        lengths = set()
        for row, history in zip(found.itertuples(), histories, strict=True):
            scores = literal.scores(model, history)
            order = literal.ranking(scores, history if filter_seen == "true" else ())[:4]
            assert list(row.items) == [f"item {item}" for item in order]
            assert list(row.scores) == pytest.approx([scores[item - 1] for item in order], abs=1e-5)
            lengths.add(len(order))
        assert lengths == {4} if filter_seen == "false" else len(lengths) > 1

    def test_recommend_equals_the_lists_of_the_ranking(self):
        torch.manual_seed(1)
        model = build("gru4rec", 30, {"hidden_size": 8, "maximum_length": 6})
        cases, histories, _ = random_cases(np.random.default_rng(2), 30, count=20, longest=9)
        items, scores = recommend(model, histories, 5)
        expected = rank(model, cases, filter_seen=True, list_length=5)
        assert items.tolist() == expected.lists.tolist()
        assert scores.tolist() == expected.scores.tolist()

    @pytest.mark.parametrize("history", [[], [0, 1], [1, 31], ["SKU-001"], [1.5], [[1, 2]], 3])
    def test_recommend_names_a_history_that_cannot_be_read(self, history):
        model = build("gru4rec", 30, {"hidden_size": 8, "maximum_length": 6})
        with pytest.raises(InputError, match=r"history 1: .*between 1 and 30"):
            recommend(model, [[1, 2], history], 5)

    @pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
    def test_senseless_arguments_are_named(self, scale):
        model = build("sasrec", 30, {"hidden_size": 8, "maximum_length": 6})
        with pytest.raises(InputError, match="count: 0 must be at least 1"):
            recommend(model, [[1, 2]], 0)
        with pytest.raises(InputError, match="histories: there is none"):
            recommend(model, [], 5)
        with pytest.raises(InputError, match="residual_scale"):
            rank(
                model,
                random_cases(np.random.default_rng(2), 30, count=2, longest=9)[0],
                filter_seen=False,
                residual_scale=scale,
            )
