"""Summaries of run tables by hand: means, paired changes, denominators, spread over
seeds, recovery and chosen λ.

That many things are compared is met by intervals over users, and by the correction of
the p-values of paired differences for their number.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from lastitem.report.pooling import Bootstrap, against_ordered, summarize
from lastitem.report.summaries import (
    WITHOUT_COLD,
    accuracy_of_ranks,
    attention_maps,
    chosen_scales,
    last_item_hit_rates,
    mixing_at_readout,
    model_comparisons,
    recovery_curves,
    recovery_sweep,
    residual_sweep,
)
from lastitem.report.summaries import (
    comparisons as all_comparisons,
)
from lastitem.study.interventions import TESTED
from lastitem.study.runs import Run, read_run_tables, write_run_table
from tests import literal

FEW = Bootstrap(resamples=200, seed=0)


def run_columns(model="m", seed=1, dataset="d", split="loo"):
    return {"dataset": dataset, "split": split, "model": model, "seed": seed}


def frame_of(columns, **run):
    return pd.DataFrame({**columns}).assign(**run_columns(**run))


def measured(summary, **conditions):
    """The one row of a summary that meets the conditions."""
    for column, value in conditions.items():
        summary = summary[summary[column] == value]
    assert len(summary) == 1
    return summary.iloc[0]


def no_rows(folder, model="gru4rec"):
    """What a script leaves for a model its diagnostic has no meaning for."""
    write_run_table(
        folder / f"{model}.parquet", Run("d", "loo", model, 1), {}, note="no attention block"
    )
    return read_run_tables([folder / f"{model}.parquet"]).rows


# summarize


def test_value_is_the_ratio_of_sums():
    """(1 + 2 + 6) / (1 + 1 + 2), not a mean of ratios; a case with denominator 0 is out
    of the counts.
    """
    frame = frame_of(
        {
            "user": [1, 2, 3, 4],
            "c": "x",
            "numerator": [1.0, 2.0, 6.0, 0.0],
            "denominator": [1.0, 1.0, 2.0, 0.0],
        }
    )
    row = measured(summarize(frame, ["c"], FEW))
    assert row["value"] == 9 / 4
    assert (row["users"], row["cases"], row["trainings"]) == (3, 3, 1)
    assert math.isnan(row["sd_seeds"])


def test_seeds_give_their_spread():
    """Values 0.25 and 0.75 per seed: mean 0.5, sd √0.125; cases are those
    of one seed.
    """
    frame = pd.concat(
        [
            frame_of(
                {"user": [1, 2, 3, 4], "c": "x", "numerator": hit, "denominator": 1.0}, seed=seed
            )
            for seed, hit in ((1, [1.0, 0, 0, 0]), (2, [1.0, 1, 1, 0]))
        ]
    )
    row = measured(summarize(frame, ["c"], FEW))
    assert row["value"] == 0.5
    assert row["sd_seeds"] == pytest.approx(math.sqrt(0.125))
    assert (row["users"], row["cases"], row["trainings"]) == (4, 4, 2)


def test_a_user_with_several_targets_counts_once_as_a_user():
    frame = frame_of(
        {"user": [1, 1, 1, 2], "c": "x", "numerator": [1.0, 0, 1, 1], "denominator": 1.0}
    )
    row = measured(summarize(frame, ["c"], FEW))
    assert (row["value"], row["users"], row["cases"]) == (0.75, 2, 4)


def test_interval_holds_the_value_and_draws_whole_users():
    """Without spread among users there is none in the interval, however much a user's
    own cases differ.
    """
    mixed = frame_of(
        {
            "user": np.repeat(np.arange(50), 2),
            "c": "x",
            "numerator": [1.0, 0.0] * 50,
            "denominator": 1.0,
        }
    )
    row = measured(summarize(mixed, ["c"], FEW))
    assert row["ci_low"] == row["value"] == row["ci_high"] == 0.5
    split = frame_of(
        {"user": np.arange(100), "c": "x", "numerator": [1.0, 0.0] * 50, "denominator": 1.0}
    )
    row = measured(summarize(split, ["c"], FEW))
    assert 0.35 < row["ci_low"] < 0.5 < row["ci_high"] < 0.65


def test_studies_and_conditions_stay_apart():
    """Same users in two models and two conditions: four rows in order of appearance."""
    frame = pd.concat(
        frame_of({"user": [1, 2], "c": c, "numerator": [v, v], "denominator": 1.0}, model=model)
        for model, c, v in (("b", "y", 1.0), ("b", "x", 2.0), ("a", "y", 3.0), ("a", "x", 4.0))
    )
    summary = summarize(frame, ["c"], FEW)
    assert summary[["model", "c", "value"]].to_numpy().tolist() == [
        ["b", "y", 1.0],
        ["b", "x", 2.0],
        ["a", "y", 3.0],
        ["a", "x", 4.0],
    ]


def test_same_seed_same_interval():
    frame = frame_of(
        {"user": np.arange(30), "c": "x", "numerator": np.linspace(0, 1, 30), "denominator": 1.0}
    )
    pd.testing.assert_frame_equal(summarize(frame, ["c"], FEW), summarize(frame, ["c"], FEW))
    assert (
        measured(summarize(frame, ["c"], FEW))["ci_low"]
        != measured(summarize(frame, ["c"], Bootstrap(200, 1)))["ci_low"]
    )


def test_no_rows_give_no_rows():
    empty = summarize(
        frame_of({"user": [], "c": [], "numerator": [], "denominator": []}), ["c"], FEW
    )
    assert list(empty.columns) == [
        "dataset",
        "split",
        "model",
        "c",
        "value",
        "ci_low",
        "ci_high",
        "sd_seeds",
        "trainings",
        "users",
        "cases",
    ]
    assert empty.empty


# accuracy and last items


def test_accuracy_by_hand():
    """Ranks 1, 3, 11 and 0 (filtered) at K = 10 and 20, every one in the
    denominator.
    """
    summary = accuracy_of_ranks(
        frame_of({"user": [1, 2, 3, 4], "target_rank": [1, 3, 11, 0]}), [10, 20], FEW
    )
    assert measured(summary, metric="hr", cutoff=10)["value"] == 0.5
    assert measured(summary, metric="ndcg", cutoff=10)["value"] == pytest.approx((1 + 0.5) / 4)
    assert measured(summary, metric="mrr", cutoff=10)["value"] == pytest.approx((1 + 1 / 3) / 4)
    assert measured(summary, metric="hr", cutoff=20)["value"] == 0.75
    assert measured(summary, metric="ndcg", cutoff=20)["value"] == pytest.approx(
        (1 + 0.5 + 1 / math.log2(12)) / 4
    )
    assert set(summary["users"]) == {4}


def test_accuracy_without_cold_targets_by_hand():
    """Ranks 1, 3, 11 and 0, the first and the last of them cold: ndcg over the two
    others; only the ndcg is shown without them, at each cutoff.
    """
    ranks = frame_of(
        {
            "user": [1, 2, 3, 4],
            "target_rank": [1, 3, 11, 0],
            "cold": [True, False, False, True],
        }
    )
    summary = accuracy_of_ranks(ranks, [10, 20], FEW)
    short, long = (measured(summary, metric=WITHOUT_COLD, cutoff=cutoff) for cutoff in (10, 20))
    assert short["value"] == pytest.approx(0.5 / 2)
    assert long["value"] == pytest.approx((0.5 + 1 / math.log2(12)) / 2)
    assert (short["users"], short["cases"]) == (2, 2)
    assert measured(summary, metric="ndcg", cutoff=10)["value"] == pytest.approx(1.5 / 4)
    assert set(summary["metric"]) == {"ndcg", "hr", "mrr", WITHOUT_COLD}
    for cold in (False, True):
        found = accuracy_of_ranks(ranks.assign(cold=cold), [10], FEW)
        assert set(found["metric"]) == {"ndcg", "hr", "mrr"}, "all or none are cold"


def test_a_log_without_cold_targets_has_the_accuracy_of_all_beside_one_with():
    ranks = pd.concat(
        frame_of({"user": [1, 2], "target_rank": [1, 3], "cold": cold}, dataset=dataset)
        for dataset, cold in (("d", [True, False]), ("e", [False, False]))
    )
    summary = accuracy_of_ranks(ranks, [10], FEW)
    without = summary[summary["metric"] == WITHOUT_COLD].set_index("dataset")
    assert without["value"].to_dict() == pytest.approx({"d": 0.5, "e": 0.75})


def test_one_item_inputs_are_out_of_the_second_rate():
    """Five users, two of them with one input item: HRLI over five, HRL2I over three."""
    ranks = frame_of(
        {
            "user": [1, 2, 3, 4, 5],
            "last_rank": [1, 10, 11, 2, 50],
            "last_but_one_rank": [0, 10, 0, 12, 3],
        }
    )
    summary = last_item_hit_rates(ranks, 10, FEW)
    first, second = measured(summary, measure="HRLI"), measured(summary, measure="HRL2I")
    assert (first["value"], first["users"]) == (3 / 5, 5)
    assert (second["value"], second["users"]) == (pytest.approx(2 / 3), 3)


def test_only_one_item_inputs_leave_the_second_rate_empty():
    summary = last_item_hit_rates(
        frame_of({"user": [1, 2], "last_rank": [1, 20], "last_but_one_rank": [0, 0]}), 10, FEW
    )
    row = measured(summary, measure="HRL2I")
    assert math.isnan(row["value"])
    assert row["users"] == 0


# against the ordered input


def effects_of(model, by_intervention, ordered=None, seed=1):
    """Rows of interventions.parquet: intervention → ranks of each repeat, the same on
    both candidates; ``ordered`` on the common ones, if these differ.
    """
    plain = by_intervention["ordered"][0]
    rows = [
        frame_of(
            {
                "case": range(len(ranks)),
                "user": range(len(ranks)),
                "intervention": name,
                "repeat": repeat,
                "target_rank": ranks,
                "common_target_rank": ranks,
                "common_ordered_rank": plain if ordered is None else ordered,
            },
            model=model,
            seed=seed,
        )
        for name, repeats in by_intervention.items()
        for repeat, ranks in enumerate(repeats)
    ]
    return pd.concat(rows, ignore_index=True)


def test_a_case_is_held_against_its_own_ordered_input():
    """Of the same model and seed; the mean over the repeats of a case is one value."""
    effects = pd.concat(
        [
            effects_of("a", {"ordered": [[1, 3]], "full": [[3, 1], [0, 1]]}),
            effects_of("b", {"ordered": [[3, 0]], "full": [[1, 3]]}),
            effects_of("a", {"ordered": [[0, 1]], "full": [[1, 1], [0, 1]]}, seed=2),
        ]
    )
    found = against_ordered(effects, "ndcg", 10)
    assert len(found) == 12
    full = found[found["intervention"] == "full"].set_index(["model", "seed", "case"])
    assert full["metric_value"].to_dict() == pytest.approx(
        {
            ("a", 1, 0): 0.25,
            ("a", 1, 1): 1.0,
            ("b", 1, 0): 1.0,
            ("b", 1, 1): 0.5,
            ("a", 2, 0): 0.5,
            ("a", 2, 1): 1.0,
        }
    )
    assert full["metric_value_ordered"].to_dict() == pytest.approx(
        {
            ("a", 1, 0): 1.0,
            ("a", 1, 1): 0.5,
            ("b", 1, 0): 0.5,
            ("b", 1, 1): 0.0,
            ("a", 2, 0): 0.0,
            ("a", 2, 1): 1.0,
        }
    )
    ordered = found[found["intervention"] == "ordered"]
    assert (ordered["metric_value"] == ordered["metric_value_ordered"]).all()
    assert (
        against_ordered(effects, "hr", 1).set_index(["model", "seed", "intervention", "case"])[
            "metric_value"
        ]["a", 1, "full", 0]
        == 0
    )


# mixing and maps


def test_mixing_leaves_out_ratios_without_a_meaning():
    """Two users of three have a ratio; the third is NaN."""
    users = frame_of({"user": [1, 2, 3], "layer": 1, "part": "Attn", "latest": [0.2, 0.4, np.nan]})
    row = measured(mixing_at_readout(users, FEW), layer=1, part="Attn")
    assert (row["value"], row["users"]) == (pytest.approx(0.3), 2)


def test_maps_average_over_seeds():
    cells = pd.concat(
        frame_of(
            {
                "layer": 1,
                "query": [0, -1],
                "source": [0, 0],
                "attention": [a, 0.0],
                "norm": [b, np.nan],
                "n": [7, 0],
            },
            seed=seed,
        )
        for seed, a, b in ((1, 0.2, 3.0), (2, 0.6, 5.0))
    )
    maps = attention_maps(cells).set_index(["query", "source"])
    assert maps.loc[(0, 0), ["attention", "norm", "n", "trainings"]].tolist() == pytest.approx(
        [0.4, 4.0, 7, 2]
    )
    assert math.isnan(maps.loc[(-1, 0), "norm"])


@pytest.mark.parametrize(
    "summary",
    [
        lambda frame: mixing_at_readout(frame, FEW),
        attention_maps,
        lambda frame: recovery_curves(frame, 10),
        lambda frame: chosen_scales(recovery_curves(frame, 10), [0.01]),
        lambda frame: residual_sweep(frame, 10, FEW),
        lambda frame: recovery_sweep(frame, 10, FEW),
    ],
    ids=["mixing", "maps", "recovery", "choice", "sweep", "recovery sweep"],
)
def test_a_study_of_models_without_attention_only(tmp_path, summary):
    """Every file has no rows and no columns but those of the run: the summary is empty,
    not an error.
    """
    assert summary(no_rows(tmp_path)).empty


# the sweep over λ


def swept(rows, **run):
    """Rows of (part, λ, order, case, target rank, last, last but one, ranks moved back
    by 1, 2, 3).
    """
    names = [
        "part",
        "residual_scale",
        "order",
        "case",
        "target_rank",
        "last_rank",
        "last_but_one_rank",
    ]
    names += [f"target_rank_back_{offset}" for offset in (1, 2, 3)]
    table = pd.DataFrame(rows, columns=names)
    return frame_of(table.assign(repeat=0, user=table["case"] + 10), **run)


NONE = (-1, -1, -1)


def study(**run):
    """Four users, λ 0.5 and 1, on both parts; on validation users 0 and 1 are
    recoverable, on test user 2 alone.
    """
    rows = []
    for part, at_one, back, at_half in (
        (
            "validation",
            (20, 20, 20, 1),
            ((1, 0, 0), (50, 50, 10), (50, 50, 50), (1, 1, 1)),
            (3, 20, 1, 1),
        ),
        ("test", (1, 5, 20, 20), ((1, 1, 1), (1, 1, 1), (0, 2, 0), (11, 50, 50)), (1, 20, 2, 20)),
    ):
        rows += [(part, 1.0, "ordered", case, at_one[case], 1, 2, *back[case]) for case in range(4)]
        rows += [
            (part, 0.5, "ordered", case, at_half[case], 30, 0 if case == 0 else 1, *NONE)
            for case in range(4)
        ]
    for scale in (0.5, 1.0):
        rows += [("test", scale, "partial", case, 1, 1, 1, *NONE) for case in range(4)]
        rows += [("test", scale, "full", case, 50, 1, 1, *NONE) for case in range(4)]
    return swept(rows, **run)


def test_sweep_by_hand():
    """Accuracy of the ordered and the shuffled test inputs, last-item rates of the
    ordered; validation is not in it.
    """
    summary = residual_sweep(study(), 10, FEW)
    assert measured(summary, residual_scale=1.0, measure="HR")["value"] == 0.5
    assert measured(summary, residual_scale=0.5, measure="HR")["value"] == 0.5
    assert measured(summary, residual_scale=1.0, measure="NDCG")["value"] == pytest.approx(
        (1 + 1 / math.log2(6)) / 4
    )
    assert measured(summary, residual_scale=1.0, measure="NDCG partial")["value"] == 1.0
    assert measured(summary, residual_scale=1.0, measure="NDCG full")["value"] == 0.0
    assert measured(summary, residual_scale=1.0, measure="HRLI")["value"] == 1.0
    assert measured(summary, residual_scale=0.5, measure="HRLI")["value"] == 0.0
    assert measured(summary, residual_scale=0.5, measure="HRL2I")["users"] == 3


def test_recovery_curves_by_hand():
    curves = recovery_curves(study(), 10)
    expected = {
        # part, λ: cases, hit rate, that over λ = 1, |R|, recovered, recovery, won, lost
        ("validation", 1.0): (4, 0.25, 1.0, 2, 0, 0.0, 0, 0),
        ("validation", 0.5): (4, 0.75, 3.0, 2, 1, 0.5, 2, 0),
        ("test", 1.0): (4, 0.5, 1.0, 1, 0, 0.0, 0, 0),
        ("test", 0.5): (4, 0.5, 1.0, 1, 1, 1.0, 1, 1),
    }
    names = [
        "cases",
        "hit_rate",
        "hit_rate_kept",
        "recoverable",
        "recovered",
        "recovery",
        "hits_won",
        "hits_lost",
    ]
    assert len(curves) == 4
    for (part, scale), values in expected.items():
        assert tuple(measured(curves, part=part, residual_scale=scale)[names]) == values
    assert measured(curves, part="test", residual_scale=0.5)["ndcg"] == pytest.approx(
        (1 + 1 / math.log2(3)) / 4
    )


def test_recovery_goes_by_case_not_by_order_of_rows():
    """The rows of a file in another order give the same curve."""
    turned = study().sample(frac=1, random_state=0)
    key = ["part", "residual_scale"]
    pd.testing.assert_frame_equal(
        recovery_curves(turned, 10).sort_values(key, ignore_index=True),
        recovery_curves(study(), 10).sort_values(key, ignore_index=True),
    )


def test_runs_keep_their_own_recoverable_sets():
    """Two seeds of one model: no set of one is held against ranks of the other."""
    both = pd.concat(
        [
            study(seed=1),
            study(seed=2).assign(
                target_rank_back_1=lambda t: t["target_rank_back_1"].clip(upper=0)
            ),
        ]
    )
    curves = recovery_curves(both, 10)
    assert measured(curves, part="validation", residual_scale=1.0, seed=1)["recoverable"] == 2
    assert measured(curves, part="validation", residual_scale=1.0, seed=2)["recoverable"] == 1


def test_recovery_sweep_by_hand():
    """On test: hits kept 2 of 2 (one lost, one won) at λ 0.5, recovery 1 of 1; the
    counts are those of the two denominators.
    """
    summary = recovery_sweep(study(), 10, FEW)
    assert len(summary) == 4
    kept, recovered = (
        measured(summary, residual_scale=0.5, measure=measure)
        for measure in ("hit_rate_kept", "recovery")
    )
    assert (kept["value"], kept["users"]) == (1.0, 2)
    assert (recovered["value"], recovered["users"]) == (1.0, 1)
    assert measured(summary, residual_scale=1.0, measure="hit_rate_kept")["value"] == 1.0
    assert measured(summary, residual_scale=1.0, measure="recovery")["value"] == 0.0


def test_recovery_sweep_leaves_out_models_without_earlier_predictions():
    """BERT4Rec's moved-back ranks are −1: it is left out, and does not end as "nothing
    recovered".
    """
    bidirectional = study(model="bert4rec").assign(
        target_rank_back_1=-1, target_rank_back_2=-1, target_rank_back_3=-1
    )
    assert set(recovery_sweep(pd.concat([study(), bidirectional]), 10, FEW)["model"]) == {"m"}
    assert recovery_sweep(bidirectional, 10, FEW).empty


def curves_of(validation, test, **run):
    """Curves from {λ: (hit rate, recovery)} with |R| 10 on validation and
    20 on test.
    """
    rows = []
    for part, values, members in (("validation", validation, 10), ("test", test, 20)):
        for scale, (rate, recovered) in values.items():
            rows.append(
                (
                    part,
                    scale,
                    100,
                    rate,
                    rate / values[1.0][0],
                    rate / 2,
                    members,
                    members * recovered,
                    recovered,
                    3,
                    4,
                )
            )
    names = [
        "part",
        "residual_scale",
        "cases",
        "hit_rate",
        "hit_rate_kept",
        "ndcg",
        "recoverable",
        "recovered",
        "recovery",
        "hits_won",
        "hits_lost",
    ]
    return frame_of(pd.DataFrame(rows, columns=names), **run)


def test_the_scale_is_chosen_on_validation_and_read_on_test():
    """Validation prefers 0.5, test would have preferred 0.8: the choice is 0.5 with its
    test values; the oracle is labelled.
    """
    curves = curves_of(
        {0.5: (0.5, 0.6), 0.8: (0.5, 0.3), 1.0: (0.5, 0.0)},
        {0.5: (0.35, 0.2), 0.8: (0.39, 0.7), 1.0: (0.4, 0.0)},
    )
    choices = chosen_scales(curves, [0.01, 0.05])
    assert len(choices) == 4
    chosen = measured(choices, tolerance=0.01, selection="validation")
    assert chosen["residual_scale"] == 0.5
    assert (chosen["hit_rate"], chosen["recovery"], chosen["recoverable"], chosen["recovered"]) == (
        0.35,
        0.2,
        20,
        4,
    )
    assert (chosen["hit_rate_at_1"], chosen["ndcg_at_1"], chosen["validation_recoverable"]) == (
        0.4,
        0.2,
        10,
    )
    assert (chosen["hits_won"], chosen["hits_lost"]) == (3, 4)
    assert measured(choices, tolerance=0.01, selection="oracle (test)")["residual_scale"] == 1.0
    assert measured(choices, tolerance=0.05, selection="oracle (test)")["residual_scale"] == 0.8


def test_a_scale_above_one_is_never_chosen():
    """Neither on validation nor by the oracle, though it would keep and recover most;
    the validation hit rate at 1 stands beside the choice.
    """
    best = {1.0: (0.5, 0.0), 0.5: (0.5, 0.1), 1.5: (0.9, 0.9)}
    choices = chosen_scales(curves_of(best, {**best, 0.5: (0.5, 0.2)}), [0.0, 0.05])
    assert choices["residual_scale"].tolist() == [0.5] * 4
    assert choices["validation_hit_rate_at_1"].tolist() == [0.5] * 4
    alone = {1.0: (0.4, 0.0), 1.5: (0.9, 0.9)}
    choices = chosen_scales(curves_of(alone, best), [0.0])
    assert measured(choices, selection="validation")["residual_scale"] == 1.0
    assert choices["validation_hit_rate_at_1"].tolist() == [0.4] * 2


def test_an_empty_validation_set_chooses_one():
    """Nothing recoverable on validation: λ = 1, whatever could be won on test."""
    curves = curves_of({0.0: (0.5, 0.0), 1.0: (0.5, 0.0)}, {0.0: (0.5, 0.9), 1.0: (0.5, 0.0)})
    curves.loc[curves["part"] == "validation", "recoverable"] = 0
    choices = chosen_scales(curves, [0.01])
    assert measured(choices, selection="validation")["residual_scale"] == 1.0
    assert measured(choices, selection="oracle (test)")["residual_scale"] == 0.0


def test_models_without_recovery_are_not_chosen_for():
    """BERT4Rec's recovery is empty: no row, while the other model keeps its own."""
    curves = pd.concat(
        [
            curves_of({1.0: (0.5, 0.0)}, {1.0: (0.5, 0.0)}, model=model)
            for model in ("sasrec", "bert4rec")
        ]
    )
    curves.loc[curves["model"] == "bert4rec", ["recoverable", "recovered", "recovery"]] = np.nan
    assert set(chosen_scales(curves, [0.01])["model"]) == {"sasrec"}


# Comparisons


def ranks_of(model, target, last, seed=1):
    count = len(target)
    columns = {"case": range(count), "user": range(count), "target_rank": target, "last_rank": last}
    return frame_of(columns, model=model, seed=seed)


def literal_holm(p_values):
    """Name → p: the i-th smallest of m times m − i + 1, never below the one before."""
    found, least = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.get)):
        least = max(least, min(1.0, p_values[name] * (len(p_values) - place)))
        found[name] = least
    return found


def literal_p(differences):
    """The share of all choices of signs whose sum is as far from zero."""
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(found >= abs(sum(differences)) - 1e-9 for found in sums) / len(sums)


def comparisons(ranks, effects, scaled, cutoff, bootstrap, permutations):
    """All contrasts of a study, those of models from their own summary."""
    models = model_comparisons(ranks, cutoff, bootstrap, permutations)
    return all_comparisons(effects, scaled, models, cutoff, bootstrap, permutations)


def test_comparisons_by_hand():
    """Ranks 1 and 3 are worth 1 and ½: differences of means over users, each pair once,
    the reference subtracted.
    """
    ranks = pd.concat(
        [ranks_of("a", [1, 1, 3, 0], [1, 2, 30, 40]), ranks_of("b", [3, 0, 3, 0], [11, 1, 50, 60])]
    )
    effects = pd.concat(
        [
            effects_of(
                "a",
                {
                    "ordered": [[1, 1, 3, 0]],
                    "partial": [[1, 3, 3, 0], [3, 1, 3, 0]],
                    "full": [[0, 0, 3, 0]] * 2,
                },
            ),
            effects_of(
                "b",
                {
                    "ordered": [[3, 0, 3, 0]],
                    "partial": [[3, 0, 3, 0]],
                    "full": [[3, 0, 3, 1]],
                    "newest_3": [[1, 1, 1, 1]],
                },
            ),
            effects_of(
                "b", {"ordered": [[3, 0, 3, 0]], "stranger": [[3, 3, 3, 3]]}, ordered=[1, 1, 3, 3]
            ).query("intervention == 'stranger'"),
        ]
    )
    scaled = pd.concat(
        frame_of(
            {
                "case": range(4),
                "user": range(4),
                "part": part,
                "order": "ordered",
                "residual_scale": scale,
                "target_rank": target,
                "last_rank": last,
            },
            model="a",
        )
        for part, scale, target, last in (
            ("test", 1.0, [1, 1, 3, 0], [1, 2, 30, 40]),
            ("test", 0.5, [1, 3, 3, 3], [11, 12, 13, 14]),
            ("validation", 0.5, [0, 0, 0, 0], [1, 1, 1, 1]),
        )
    )
    found = comparisons(ranks, [effects], scaled, 10, FEW, permutations=99)
    value = found.set_index(["model", "contrast", "condition", "reference", "measure"])[
        "value"
    ].to_dict()
    assert value == pytest.approx(
        {
            ("a", "intervention", "partial", "ordered", "NDCG"): (-0.25 - 0.25) / 4,
            ("a", "intervention", "full", "ordered", "NDCG"): -2 / 4,
            ("b", "intervention", "partial", "ordered", "NDCG"): 0.0,
            ("b", "intervention", "full", "ordered", "NDCG"): 1 / 4,
            # On candidates where the ordered input has ranks of its own.
            ("b", "intervention", "stranger", "ordered", "NDCG"): -1 / 4,
            ("a", "residual scale", "0.5", "1.0", "NDCG"): (-0.5 + 0.5) / 4,
            ("a", "residual scale", "0.5", "1.0", "HRLI"): -2 / 4,
            ("a", "model", "a", "b", "NDCG"): (0.5 + 1.0) / 4,
            ("a", "model", "a", "b", "HRLI"): (1 + 0) / 4,
        }
    )
    p = found.set_index(["model", "contrast", "condition", "measure"])["p"].to_dict()
    assert p["a", "intervention", "full", "NDCG"] == 0.5, (
        "two users, both lose the same: one of four choices of signs each way"
    )
    assert p["b", "intervention", "partial", "NDCG"] == 1.0
    assert (found["users"] == 4).all() and (found["trainings"] == 1).all()


def random_effects(generator, seeds=(1, 2), users=6):
    """Rows of interventions.parquet of two models on two logs: users with one to three
    targets, two draws or one, none of some cases without the last item.
    """
    rows = []
    for dataset, model in itertools.product(("d", "e"), ("a", "b")):
        cases = [user for user in range(users) for _ in range(int(generator.integers(1, 4)))]
        for name, seed in itertools.product(("ordered", *TESTED, "newest_3"), seeds):
            for case, user in enumerate(cases):
                if name == "without_last" and case % 4 == 1:
                    continue
                for repeat in range(int(generator.integers(1, 3))):
                    target, ordered = generator.integers(0, 15, 2).tolist()
                    run = run_columns(model, seed, dataset)
                    rows.append(
                        {
                            **run,
                            "intervention": name,
                            "repeat": repeat,
                            "case": case,
                            "user": 5 * user + 2,
                            "target_rank": 1,
                            "common_target_rank": target,
                            "common_ordered_rank": ordered,
                        }
                    )
    return pd.DataFrame(rows)


def worth(rank):
    return 1 / math.log2(rank + 1) if 1 <= rank <= 10 else 0.0


def test_interventions_are_compared_as_a_loop_over_cases_does():
    """Value, interval over the same drawn users, p of all choices of signs, and the
    p-values corrected apart from those of the models, over all logs and models.
    """
    frame = random_effects(np.random.default_rng(1))
    ranks = pd.concat(
        ranks_of(model, np.random.default_rng(place).integers(0, 20, 9), [1] * 9).assign(
            dataset=dataset
        )
        for place, (dataset, model) in enumerate(itertools.product(("d", "e"), ("a", "b")))
    )
    found = comparisons(ranks, [frame], pd.DataFrame(), 10, FEW, permutations=99)
    own = found[found["contrast"] == "intervention"]
    assert set(own["condition"]) == {*TESTED} and set(own["reference"]) == {"ordered"}
    assert set(own["measure"]) == {"NDCG"} and len(own) == 4 * len(TESTED)
    for row in own.to_dict("records"):
        repeats = {}
        for each in frame.to_dict("records"):
            if [each[name] for name in ("dataset", "model", "intervention")] == [
                row[name] for name in ("dataset", "model", "condition")
            ]:
                gain = worth(each["common_target_rank"]) - worth(each["common_ordered_rank"])
                repeats.setdefault((each["user"], each["seed"], each["case"]), []).append(gain)
        total, count = {}, {}
        for (user, _, _), gains in repeats.items():
            total[user] = total.get(user, 0.0) + sum(gains) / len(gains)
            count[user] = count.get(user, 0) + 1
        assert row["value"] == pytest.approx(sum(total.values()) / sum(count.values()))
        assert row["p"] == pytest.approx(literal_p(list(total.values())))
        assert (row["users"], row["trainings"]) == (len(total), 2)
        assert row["cases"] == sum(count.values()) / 2
    families = [own, found[found["contrast"] == "model"]]
    assert sum(map(len, families)) == len(found)
    for family in families:
        corrected = literal_holm(dict(family["p"]))
        assert family["p_holm"].to_dict() == pytest.approx(corrected)
    together = literal_holm(dict(found["p"]))
    assert found["p_holm"].to_dict() != pytest.approx(together), "not one family"


def test_the_interval_of_an_intervention_is_over_the_drawn_users():
    frame = random_effects(np.random.default_rng(2))
    frame = frame[(frame["dataset"] == "d") & (frame["model"] == "a")]
    own = frame[frame["intervention"].isin(["ordered", "full"])]
    found = comparisons(
        ranks_of("a", [1], [1]), [own], pd.DataFrame(), 10, Bootstrap(70, 8), permutations=99
    )
    row, full = measured(found), frame[frame["intervention"] == "full"]
    gain = full["common_target_rank"].map(worth) - full["common_ordered_rank"].map(worth)
    of_cases = gain.groupby([full["user"], full["seed"], full["case"]]).mean()
    top, bottom = (getattr(of_cases.groupby("user"), name)().to_numpy() for name in ("sum", "size"))
    times = np.random.default_rng(8).multinomial(6, np.full(6, 1 / 6), size=70)
    drawn = [np.repeat(np.arange(6), count).tolist() for count in times]
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(
        literal.bootstrap(top, bottom, drawn, 0.95)
    )


def test_a_second_seed_alike_changes_neither_p_nor_interval():
    """Users are what is drawn and what has a sign: the same training twice is no more
    evidence than once.
    """
    generator = np.random.default_rng(3)
    users, rank = np.arange(40), generator.integers(1, 30, (2, 40))
    seeds = [
        effects_of("m", {"ordered": [rank[0]], "full": [rank[1]], "partial": [rank[0]]}, seed=seed)
        for seed in (1, 2)
    ]
    ranks = [
        frame_of({"case": users, "user": users, "target_rank": rank[0], "last_rank": 1}, seed=seed)
        for seed in (1, 2)
    ]
    once, twice = (
        comparisons(
            pd.concat(ranks[:count]),
            [pd.concat(seeds[:count])],
            pd.DataFrame(),
            10,
            FEW,
            permutations=999,
        )
        for count in (1, 2)
    )
    names = ["value", "ci_low", "ci_high", "p", "p_holm", "users"]
    pd.testing.assert_frame_equal(once[names], twice[names])
    assert 0.001 < measured(once, condition="full")["p"] < 1 and set(twice["trainings"]) == {2}


def test_something_gained_over_nothing_is_no_ratio():
    frame = frame_of({"user": [1, 2], "c": "x", "numerator": [1.0, 0.0], "denominator": [0.0, 0.0]})
    row = summarize(frame, ["c"], FEW).iloc[0]
    assert np.isnan(row["value"]) and np.isnan(row["ci_low"])


def test_models_are_compared_on_the_seeds_both_have():
    ranks = pd.concat(
        [
            ranks_of("a", [1, 1], [1, 1], seed=1),
            ranks_of("a", [0, 0], [1, 1], seed=2),
            ranks_of("b", [0, 1], [1, 1], seed=1),
        ]
    )
    effects = effects_of("a", {"ordered": [[1, 1]], "partial": [[1, 1]], "full": [[1, 1]]})
    found = comparisons(ranks, [effects], pd.DataFrame(), 10, FEW, permutations=99)
    row = found[(found["contrast"] == "model") & (found["measure"] == "NDCG")].iloc[0]
    assert (row["value"], row["trainings"], row["cases"]) == (0.5, 1, 2) and pd.isna(
        row["sd_seeds"]
    )


def test_seeds_of_a_comparison_are_counted_for_itself():
    """Three seeds of one model, two of the other: two stand behind their difference,
    with the spread of the two.
    """
    ranks = pd.concat(
        [
            *(ranks_of("a", [1, 0, 1], [1, 1, 1], seed=seed) for seed in (1, 2, 3)),
            ranks_of("b", [0, 0, 1], [1, 1, 1], seed=1),
            ranks_of("b", [0, 0, 0], [1, 1, 1], seed=2),
        ]
    )
    effects = pd.concat(
        effects_of(
            "a", {"ordered": [[1, 0, 1]], "partial": [[1, 0, 1]], "full": [[0, 0, 1]]}, seed=seed
        )
        for seed in (1, 2, 3)
    )
    found = comparisons(ranks, [effects], pd.DataFrame(), 10, FEW, permutations=99)
    row = found[(found["contrast"] == "model") & (found["measure"] == "NDCG")].iloc[0]
    assert (row["value"], row["trainings"], row["cases"]) == (pytest.approx(0.5), 2, 3)
    assert row["sd_seeds"] == pytest.approx(np.std([1 / 3, 2 / 3], ddof=1))
    assert set(found.loc[found["contrast"] == "intervention", "trainings"]) == {3}
