"""The tie-order study by hand: draws as trainings, tied and untied targets, differences
paired by the users' ids.
"""

import numpy as np
import pandas as pd
import pytest

from lastitem.report.tie_order import tie_order
from lastitem.study.runs import TARGET_GROUPS, TIE_ORDER_MEASURES, TIES_DIFFERENCE
from tests.report.test_summaries import FEW, frame_of, measured


def tied_runs(dataset, seed, target, shuffled):
    """Ranks, and rows of interventions, of four users, the first two with a tied
    target; the last item is always first in its list. Interventions that are no
    shuffle are there, too.
    """
    count, run = len(target), {"dataset": dataset, "seed": seed, "model": "m"}
    ranks = frame_of(
        {
            "case": range(count),
            "user": range(count),
            "tied": [True, True, False, False],
            "target_rank": target,
            "last_rank": 1,
            "last_but_one_rank": [20, 20, 5, 0],
        },
        **run,
    )
    orders = {"ordered": target, "partial": target, "full": shuffled, "last_only": [1] * count}
    moved = pd.concat(
        frame_of(
            {
                "case": range(count),
                "user": range(count),
                "intervention": order,
                "repeat": 0,
                "target_rank": found,
                "unchanged": order == "ordered",
            },
            **run,
        )
        for order, found in orders.items()
    )
    return ranks, moved


def test_tie_order_by_hand():
    """Two draws of one seed count as two trainings; tied and untied targets apart; all
    of them together.
    """
    runs = [
        tied_runs("d.e.ties-item", 1, [1, 1, 3, 3], [0, 0, 3, 3]),
        tied_runs("d.e.ties-random-1", 1, [1, 3, 3, 3], [3, 3, 3, 3]),
        tied_runs("d.e.ties-random-2", 1, [3, 3, 3, 0], [3, 3, 3, 0]),
    ]
    ranks, shuffled = (pd.concat(frames, ignore_index=True) for frames in zip(*runs, strict=True))
    same = {name: ["u", "v", "w", "x"] for name in ranks["dataset"].unique()}
    found = tie_order(ranks, [shuffled], same, 10, FEW, permutations=99)
    assert (found["dataset"] == "d.e").all()
    assert list(found["targets"].unique()) == list(TARGET_GROUPS) and list(
        found["measure"].unique()
    ) == list(TIE_ORDER_MEASURES)
    value = found.set_index(["ties", "targets", "measure"])["value"]
    assert [value["item", name, "NDCG"] for name in TARGET_GROUPS] == [0.75, 1.0, 0.5]
    assert [value["item", name, "full shuffle, %"] for name in TARGET_GROUPS] == pytest.approx(
        [-100 * 2 / 3, -100, 0]
    )
    assert [value["random", name, "NDCG"] for name in TARGET_GROUPS] == pytest.approx(
        [4 / 8, 2.5 / 4, 1.5 / 4]
    )
    assert value["random", "tied", "full shuffle, %"] == pytest.approx(100 * (2 / 2.5 - 1))
    assert (
        (value["item", :, "HRLI"] == 1).all()
        and (value["random", :, "HRLI"] == 1).all()
        and (value[:, :, "partial shuffle, %"] == 0).all()
    )
    assert [value["item", name, "HRL2I"] for name in TARGET_GROUPS] == pytest.approx([1 / 3, 0, 1])
    row = measured(found, ties="random", targets="all", measure="NDCG")
    assert (row["trainings"], row["users"], row["sd_seeds"]) == (
        2,
        4,
        pytest.approx(np.std([2.5 / 4, 1.5 / 4], ddof=1)),
    )
    assert set(found.loc[found["ties"] == "item", "trainings"]) == {1}
    assert [value["item - random", name, "NDCG"] for name in TARGET_GROUPS] == pytest.approx(
        [0.75 - 4 / 8, 1.0 - 2.5 / 4, 0.5 - 1.5 / 4]
    )
    assert value["item - random", "tied", "full shuffle, %"] == pytest.approx(
        -100 - 100 * (2 / 2.5 - 1)
    )
    differences = found[found["ties"] == TIES_DIFFERENCE]
    assert differences["users"].tolist() == [4, 4, 3, 4, 4, 2, 2, 2, 2, 2, 2, 2, 1, 2, 2] and set(
        differences["trainings"]
    ) == {3}
    assert found.loc[found["ties"] != TIES_DIFFERENCE, ["p", "p_holm"]].isna().all().all()
    assert differences.loc[differences["measure"] == "HRLI", "p"].tolist() == [1.0] * 3
    assert (differences["p_holm"] >= differences["p"]).all()


def test_each_draw_with_each_seed_is_a_training():
    """Two seeds: two trainings with ties by item id, four with ties at random."""
    trainings = {
        ("item", 1): 1,
        ("item", 2): 3,
        ("random-1", 1): 1,
        ("random-2", 1): 3,
        ("random-1", 2): 0,
        ("random-2", 2): 0,
    }
    runs = [
        tied_runs(f"d.ties-{ties}", seed, [target] * 4, [target] * 4)
        for (ties, seed), target in trainings.items()
    ]
    ranks, shuffled = (pd.concat(frames, ignore_index=True) for frames in zip(*runs, strict=True))
    same = {name: ["u", "v", "w", "x"] for name in ranks["dataset"].unique()}
    found = tie_order(ranks, [shuffled], same, 10, FEW, permutations=99)
    item, random, difference = (
        measured(found, ties=ties, targets="all", measure="NDCG")
        for ties in ("item", "random", TIES_DIFFERENCE)
    )
    assert (item["trainings"], item["value"], item["sd_seeds"]) == (
        2,
        0.75,
        pytest.approx(np.std([1, 0.5], ddof=1)),
    )
    assert (random["trainings"], random["value"], random["sd_seeds"]) == (
        4,
        0.375,
        pytest.approx(np.std([1, 0.5, 0, 0], ddof=1)),
    )
    assert (difference["trainings"], difference["value"]) == (6, 0.375)


def test_tie_order_pairs_users_by_their_ids():
    """The random order has lost user u, so its codes are shifted by one: the difference
    is over v and w alone, each against himself.
    """
    item = tied_runs("d.ties-item", 1, [3, 1, 0, 3], [3, 1, 0, 3])
    random = tied_runs("d.ties-random-1", 1, [1, 0, 3, 1], [1, 0, 3, 1])
    ranks, shuffled = (
        pd.concat(frames, ignore_index=True) for frames in zip(item, random, strict=True)
    )
    ranks["tied"] = False
    ids = {"d.ties-item": ["u", "v", "w", "x"], "d.ties-random-1": ["v", "w", "y", "z"]}
    found = tie_order(ranks, [shuffled], ids, 10, FEW, permutations=99)
    row = measured(found, ties=TIES_DIFFERENCE, targets="all", measure="NDCG")
    assert (row["users"], row["value"], row["ci_low"], row["ci_high"], row["p"]) == (
        2,
        0.0,
        0.0,
        0.0,
        1.0,
    )
    assert measured(found, ties="random", targets="all", measure="NDCG")["users"] == 4


@pytest.mark.parametrize("left_out", [["partial"], ["partial", "full"]])
def test_tie_order_of_a_study_without_shuffles(left_out):
    """Accuracy and hit rates are there as ever, the shuffles are not."""
    runs = [
        tied_runs("d.ties-item", 1, [1, 1, 3, 3], [0, 0, 3, 3]),
        tied_runs("d.ties-random-1", 1, [1, 3, 3, 3], [3, 3, 3, 3]),
    ]
    ranks, effects = (pd.concat(frames, ignore_index=True) for frames in zip(*runs, strict=True))
    same = {name: ["u", "v", "w", "x"] for name in ranks["dataset"].unique()}
    whole = tie_order(ranks, [effects], same, 10, FEW, permutations=99)
    effects = effects[~effects["intervention"].isin(left_out)]
    found = tie_order(ranks, [effects], same, 10, FEW, permutations=99)
    gone = {f"{name} shuffle, %" for name in left_out}
    assert set(found["measure"]) == {*TIE_ORDER_MEASURES} - gone
    kept = whole[~whole["measure"].isin(gone)].drop(columns="p_holm")
    pd.testing.assert_frame_equal(found.drop(columns="p_holm"), kept.reset_index(drop=True))


def test_tie_order_of_one_order_alone_has_no_difference():
    ranks, shuffled = tied_runs("d.ties-item", 1, [3, 1, 0, 3], [3, 1, 0, 3])
    found = tie_order(
        ranks, [shuffled], {"d.ties-item": ["u", "v", "w", "x"]}, 10, FEW, permutations=99
    )
    assert set(found["ties"]) == {"item"} and found["p"].isna().all()
