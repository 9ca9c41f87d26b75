"""What is worth what, and how much a yardstick has, against loops over cases written
from the definitions.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from lastitem.report.pooling import Bootstrap
from lastitem.report.worths import (
    ACCOUNT,
    ACCURACY,
    BEFORE,
    BEYOND,
    CHANGE,
    CHANGE_OF_ACCURACY,
    HIT,
    INTERACTION,
    ITEMS,
    LARGER,
    LAST,
    LAST_FIRST,
    LAST_REPLACED_FIRST,
    LAST_REPLACED_SECOND,
    ORDER,
    OVERLAP,
    REST,
    UNCHANGED,
    worths,
    yardsticks,
)

CUTOFF = 5
SOME = Bootstrap(resamples=80, seed=4)
STUDY = ["dataset", "split", "model"]
REPEATS = {
    "ordered": 1,
    "partial": 3,
    "full": 3,
    "last_only": 1,
    "newest_3": 1,
    "without_last": 1,
    "strangers_context": 3,
    "strangers_last": 3,
    "stranger": 3,
}
OVERLAPS = ("last_only", "without_last", "stranger")


def effects_of(generator, model="m", seeds=(1, 2), users=11):
    """Rows as of interventions.parquet, ranks at random: users with one to three
    targets; a repeat is missing here and there, so that the mean within a case is not
    that of the rows.
    """
    cases = [user for user in range(users) for _ in range(int(generator.integers(1, 4)))]
    lengths, tied = generator.integers(1, 9, len(cases)), generator.random(len(cases)) < 0.4
    rows = []
    for seed in seeds:
        for name, repeats in REPEATS.items():
            for case, user in enumerate(cases):
                if name == "without_last" and lengths[case] == 1:
                    continue
                for repeat in range(repeats):
                    if repeat and generator.random() < 0.2:
                        continue
                    overlap = generator.random() if name in OVERLAPS else math.nan
                    if name == "without_last" and generator.random() < 0.2:
                        overlap = math.nan
                    rows.append(
                        {
                            "dataset": "d",
                            "split": "gts",
                            "model": model,
                            "seed": seed,
                            "intervention": name,
                            "repeat": repeat,
                            "case": case,
                            "user": 3 * user + 7,
                            "input_length": int(lengths[case]),
                            "length_group": 1 if lengths[case] == 1 else 2 + (lengths[case] > 4),
                            "tied": bool(tied[case]),
                            "target_rank": int(generator.integers(0, 9)),
                            "common_target_rank": int(generator.integers(0, 9)),
                            "common_ordered_rank": int(generator.integers(0, 8)),
                            "unchanged": bool(generator.random() < 0.3),
                            "overlap": overlap,
                        }
                    )
    return pd.DataFrame(rows)


def gain(rank):
    """NDCG@5 of one target."""
    return 1 / math.log2(rank + 1) if 1 <= rank <= CUTOFF else 0.0


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def literal_cases(rows):
    """Intervention → (seed, case) → what is known of it, repeats averaged."""
    repeats = {}
    for row in rows:
        key = (row["intervention"], row["seed"], row["case"])
        repeats.setdefault(key, []).append(row)
    found = {}
    for (name, seed, case), own in repeats.items():
        (ordered,) = repeats["ordered", seed, case]
        known = [row["overlap"] for row in own if not math.isnan(row["overlap"])]
        found.setdefault(name, {})[seed, case] = {
            "user": own[0]["user"],
            "value": mean(gain(row["target_rank"]) for row in own),
            "ordered": gain(ordered["target_rank"]),
            "common": mean(gain(row["common_target_rank"]) for row in own),
            "common_ordered": mean(gain(row["common_ordered_rank"]) for row in own),
            "unchanged": mean(row["unchanged"] for row in own),
            "hit": any(
                gain(row[rank])
                for row in own
                for rank in ("common_target_rank", "common_ordered_rank")
            ),
            "overlap": sum(known) / len(own),
            "has_overlap": len(known) / len(own),
            "one": 1.0,
        }
    return found


def literal_statements(cases, weight, seeds):
    """(reading, part) → its value when each user counts ``weight`` times, of some
    seeds.
    """

    def ratio(name, above, below):
        top = bottom = 0.0
        for (seed, _), case in cases[name].items():
            if seed in seeds:
                top += weight.get(case["user"], 0) * case[above]
                bottom += weight.get(case["user"], 0) * case[below]
        return top / bottom if bottom else math.nan

    def r(name):
        return ratio(name, "common", "common_ordered")

    found = {}
    for name in cases:
        found[ACCURACY, name] = ratio(name, "value", "one")
        if name == "ordered":
            continue
        found[CHANGE, name] = 100 * (r(name) - 1)
        found[CHANGE_OF_ACCURACY, name] = 100 * (ratio(name, "value", "ordered") - 1)
        found[UNCHANGED, name] = 100 * ratio(name, "unchanged", "one")
        found[HIT, name] = 100 * ratio(name, "hit", "one")
        if name in OVERLAPS:
            found[OVERLAP, name] = ratio(name, "overlap", "has_overlap")
    partial, both = r("partial"), r("stranger")
    context, last = r("strangers_context"), r("strangers_last")
    first_way, other_way = context - both, 1 - last
    return found | {
        (ACCOUNT, ORDER): 100 * (1 - partial),
        (ACCOUNT, ITEMS): 100 * (partial - context),
        (ACCOUNT, LAST): 100 * first_way,
        (ACCOUNT, REST): 100 * both,
        (LAST_FIRST, LAST): 100 * other_way,
        (LAST_FIRST, BEFORE): 100 * (last - both),
        (LAST_FIRST, REST): 100 * both,
        (INTERACTION, "of the last item and those before"): 100 * (1 - context - last + both),
        (BEYOND, "full"): 100 * (r("full") - partial),
        # The last item's share less that of the items before it and their order.
        (LARGER, LAST_REPLACED_SECOND): 100 * (first_way - (1 - context)),
        (LARGER, LAST_REPLACED_FIRST): 100 * (other_way - (last - both)),
    }


#: Whose cases are counted: of a sum, those of the ratio it names first.
COUNTED = {
    (ACCOUNT, ORDER): "partial",
    (ACCOUNT, ITEMS): "partial",
    (ACCOUNT, LAST): "strangers_context",
    (ACCOUNT, REST): "stranger",
    (LAST_FIRST, LAST): "strangers_last",
    (LAST_FIRST, BEFORE): "strangers_last",
    (LAST_FIRST, REST): "stranger",
    (INTERACTION, "of the last item and those before"): "strangers_context",
    (BEYOND, "full"): "full",
    (LARGER, LAST_REPLACED_SECOND): "strangers_context",
    (LARGER, LAST_REPLACED_FIRST): "strangers_last",
}


def literal_groups(rows):
    """Name → rows."""
    groups = {
        "all": rows,
        "tied": [row for row in rows if row["tied"]],
        "untied": [row for row in rows if not row["tied"]],
    }
    for number in {row["length_group"] for row in rows}:
        own = [row for row in rows if row["length_group"] == number]
        low, high = (end(row["input_length"] for row in own) for end in (min, max))
        groups["inputs of 1 item" if high == 1 else f"inputs of {low} to {high} items"] = own
    return groups


def literal_worths(rows, bootstrap):
    """(group, reading, part) → value, ends of the interval, deviation, counts."""
    found = {}
    for group, own in literal_groups(rows).items():
        cases = literal_cases(own)
        seeds = sorted({row["seed"] for row in own})
        users = sorted({row["user"] for row in own})
        whole = literal_statements(cases, dict.fromkeys(users, 1), seeds)
        of_seeds = [literal_statements(cases, dict.fromkeys(users, 1), [seed]) for seed in seeds]
        generator = np.random.default_rng(bootstrap.seed)
        share = np.full(len(users), 1 / len(users))
        drawn = []
        for _ in range(bootstrap.resamples):
            times = generator.multinomial(len(users), share).tolist()
            drawn.append(literal_statements(cases, dict(zip(users, times, strict=True)), seeds))
        for key, value in whole.items():
            some = [draw[key] for draw in drawn if not math.isnan(draw[key])]
            low, high = np.quantile(some, [0.025, 0.975])
            counted = cases[COUNTED.get(key, key[1])]
            trainings = {seed for seed, _ in counted}
            found[(group, *key)] = (
                value,
                low,
                high,
                np.std([of_seed[key] for of_seed in of_seeds], ddof=1),
                len(trainings),
                len({case["user"] for case in counted.values()}),
                round(len(counted) / len(trainings)),
            )
    return found


NUMBERS = ["value", "ci_low", "ci_high", "sd_seeds", "trainings", "users", "cases"]


def by_statement(table):
    keys = table[["group", "reading", "part"]].itertuples(index=False, name=None)
    return dict(zip(keys, table[NUMBERS].itertuples(index=False, name=None), strict=True))


@pytest.mark.parametrize("start", [0, 1])
def test_every_statement_is_that_of_a_loop_over_cases(start):
    """Two models with cases of their own, two seeds, users with several targets, groups
    by tie and length, draws that are missing, cases without a meaning.
    """
    generator = np.random.default_rng(start)
    frame = pd.concat([effects_of(generator, "m"), effects_of(generator, "other", users=9)])
    found = worths([frame.sample(frac=1, random_state=start)], CUTOFF, SOME)
    assert set(found["model"]) == {"m", "other"}
    for model in ("m", "other"):
        rows = frame[frame["model"] == model].to_dict("records")
        expected, own = literal_worths(rows, SOME), by_statement(found[found["model"] == model])
        assert own.keys() == expected.keys()
        for key, numbers in expected.items():
            assert own[key] == pytest.approx(numbers, nan_ok=True, abs=1e-9), key
    assert not found.duplicated([*STUDY, "group", "reading", "part"]).any()


@pytest.mark.parametrize("reading", [ACCOUNT, LAST_FIRST])
def test_the_account_adds_up_in_every_group_and_seed(reading):
    frame = effects_of(np.random.default_rng(5))
    for rows in (frame, frame[frame["seed"] == 1], frame[frame["seed"] == 2]):
        found = worths([rows], CUTOFF, SOME)
        own = found[found["reading"] == reading]
        assert own.groupby("group")["value"].sum().tolist() == pytest.approx([100.0] * 6)


def test_both_directions_differ_by_the_interaction():
    """What the last item has when it is replaced first, less what it has when it is
    replaced second.
    """
    found = worths([effects_of(np.random.default_rng(6))], CUTOFF, SOME)
    value = found[found["group"] == "all"].set_index(["reading", "part"])["value"]
    both = value[LAST_FIRST, LAST] - value[ACCOUNT, LAST]
    (shared,) = found.loc[(found["group"] == "all") & (found["reading"] == INTERACTION), "value"]
    assert both == pytest.approx(shared)


def test_a_group_of_all_is_no_group():
    frame = effects_of(np.random.default_rng(7)).assign(
        tied=False, length_group=1, input_length=1234
    )
    assert set(worths([frame], CUTOFF, SOME)["group"]) == {"all"}
    frame.loc[frame["user"] == 7, ["length_group", "input_length"]] = [2, 2345]
    frame.loc[frame["user"] == 10, "input_length"] = 1000
    assert set(worths([frame], CUTOFF, SOME)["group"]) == {
        "all",
        "inputs of 1,000 to 1,234 items",
        "inputs of 2,345 items",
    }


def test_what_a_study_has_not_is_not_said():
    frame = effects_of(np.random.default_rng(8))
    found = worths([frame[frame["intervention"] == "ordered"]], CUTOFF, SOME)
    assert set(found["reading"]) == {ACCURACY} and set(found["part"]) == {"ordered"}
    some = frame[frame["intervention"].isin(["ordered", "partial", "strangers_context"])]
    found = worths([some], CUTOFF, SOME)
    own = found[found["group"] == "all"]
    assert own.loc[own["reading"] == ACCOUNT, "part"].tolist() == [ORDER, ITEMS]
    assert not set(own["reading"]) & {LAST_FIRST, INTERACTION, BEYOND, LARGER, OVERLAP}


def test_one_seed_has_no_spread_and_one_intervention_of_one_seed_counts_one():
    frame = effects_of(np.random.default_rng(9))
    assert worths([frame[frame["seed"] == 1]], CUTOFF, SOME)["sd_seeds"].isna().all()
    less = frame[(frame["seed"] == 1) | (frame["intervention"] != "full")]
    found = worths([less], CUTOFF, SOME).set_index(["group", "reading", "part"])
    full, other = found.loc[("all", CHANGE, "full")], found.loc[("all", CHANGE, "partial")]
    assert (full["trainings"], other["trainings"]) == (1, 2) and full["cases"] == other["cases"]
    assert math.isnan(full["sd_seeds"]) and other["sd_seeds"] > 0


@pytest.mark.filterwarnings("error")
def test_without_a_hit_there_is_no_change():
    """Of an accuracy of zero nothing can be lost; what an intervention gains over it is
    no ratio either.
    """
    frame = effects_of(np.random.default_rng(10)).assign(target_rank=0, common_ordered_rank=0)
    found = worths([frame], CUTOFF, SOME)
    numbers = found.set_index("reading")[["value", "ci_low", "ci_high"]]
    assert numbers.loc[[ACCOUNT, CHANGE, CHANGE_OF_ACCURACY, LARGER]].isna().all(axis=None)
    assert (numbers.loc[ACCURACY] == 0).all(axis=None)
    assert (numbers.loc[HIT, "value"] > 0).all()


def test_no_rows_say_nothing():
    found = worths([effects_of(np.random.default_rng(11))[:0]], CUTOFF, SOME)
    assert found.empty and list(found)[:6] == [*STUDY, "group", "reading", "part"]


# Yardsticks


def ranks_at_random(generator):
    """Two models and three yardsticks on one log, two seeds, users with one to three
    targets; the second model has its second seed not.
    """
    cases = [user for user in range(12) for _ in range(int(generator.integers(1, 4)))]
    return pd.DataFrame(
        [
            {
                "dataset": "d",
                "split": "gts",
                "model": model,
                "seed": seed,
                "case": case,
                "user": 2 * user + 5,
                "target_rank": int(generator.integers(0, 9)),
            }
            for model in ("popularity", "a", "markov", "last-item", "b")
            for seed in (1, 2)
            for case, user in enumerate(cases)
            if (model, seed) != ("b", 2)
        ]
    )


BASELINES = ("popularity", "markov", "last-item")


def evaluations_of(validation, alone=("markov", "last-item")):
    """evaluation.json of each run: (model, seed) → validation NDCG."""
    return [
        {
            "dataset": "d",
            "split": "gts",
            "model": model,
            "seed": seed,
            "validation_ndcg": value,
            "reads_last_item_only": model in alone,
            "users": 12,
        }
        for (model, seed), value in validation.items()
    ]


VALIDATION = {
    ("popularity", 1): 0.9,
    ("popularity", 2): 0.9,
    ("a", 1): 0.99,
    ("a", 2): 0.99,
    # Better once, but not in the mean.
    ("markov", 1): 0.5,
    ("markov", 2): 0.1,
    ("last-item", 1): 0.35,
    ("last-item", 2): 0.3,
    ("b", 1): 0.99,
}


def test_yardsticks_are_those_of_a_loop_over_cases():
    ranks = ranks_at_random(np.random.default_rng(2))
    turned = ranks.sample(frac=1, random_state=3)
    found = yardsticks(turned, evaluations_of(VALIDATION), CUTOFF, BASELINES, SOME)
    value = {
        (row["model"], row["seed"], row["case"]): gain(row["target_rank"])
        for row in ranks.to_dict("records")
    }
    user = dict(zip(ranks["case"], ranks["user"], strict=True))
    users = sorted(set(user.values()))
    generator = np.random.default_rng(SOME.seed)
    share = np.full(len(users), 1 / len(users))
    drawn = [generator.multinomial(len(users), share) for _ in range(SOME.resamples)]
    assert set(found[["model", "yardstick"]].itertuples(index=False, name=None)) == {
        (model, yardstick) for model in ("a", "b") for yardstick in BASELINES
    }
    for row in found.to_dict("records"):
        model, yardstick = row["model"], row["yardstick"]
        seeds = (1,) if model == "b" else (1, 2)

        def ratio(weight, seeds, model=model, yardstick=yardstick):
            top = bottom = 0.0
            for case, own in user.items():
                for seed in seeds:
                    top += weight[own] * value[yardstick, seed, case]
                    bottom += weight[own] * value[model, seed, case]
            return top / bottom

        once = dict.fromkeys(users, 1)
        assert row["value"] == pytest.approx(ratio(once, seeds))
        some = [ratio(dict(zip(users, times, strict=True)), seeds) for times in drawn]
        interval = np.quantile(some, [0.025, 0.975])
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(interval)
        if model == "a":
            assert row["sd_seeds"] == pytest.approx(
                np.std([ratio(once, [seed]) for seed in seeds], ddof=1)
            )
        assert math.isnan(row["sd_seeds"]) == (model == "b")
        counts = (row["trainings"], row["users"], row["cases"])
        assert counts == (len(seeds), len(users), len(user)), "with a hit of the model or without"


def test_the_best_yardstick_is_of_those_that_see_the_last_item_alone():
    """By the mean validation NDCG over seeds; popularity has more, and reads none."""
    ranks = ranks_at_random(np.random.default_rng(3))
    found = yardsticks(ranks, evaluations_of(VALIDATION), CUTOFF, BASELINES, SOME)
    for model in ("a", "b"):
        own = found[found["model"] == model].set_index("yardstick")
        assert own["best_on_validation"].to_dict() == {
            "popularity": False,
            "markov": False,
            "last-item": True,
        }
        assert own["reads_last_item_only"].to_dict() == {
            "popularity": False,
            "markov": True,
            "last-item": True,
        }
        assert own["validation_ndcg"].to_dict() == pytest.approx(
            {"popularity": 0.9, "markov": 0.3, "last-item": 0.325}
        )
    with_model = evaluations_of(VALIDATION, ("a", "markov", "last-item"))
    other = yardsticks(ranks, with_model, CUTOFF, BASELINES, SOME)
    assert other["best_on_validation"].tolist() == found["best_on_validation"].tolist(), (
        "a model that is asked is no yardstick"
    )
    found = yardsticks(ranks, evaluations_of(VALIDATION, ()), CUTOFF, BASELINES, SOME)
    assert not found["best_on_validation"].any(), "none of them"


def test_each_log_has_a_best_yardstick_of_its_own():
    ranks = ranks_at_random(np.random.default_rng(4))
    turned = VALIDATION | {("markov", seed): 0.8 for seed in (1, 2)}
    found = yardsticks(
        pd.concat([ranks, ranks.assign(dataset="e")]),
        [
            *evaluations_of(VALIDATION),
            *({**entry, "dataset": "e"} for entry in evaluations_of(turned)),
        ],
        CUTOFF,
        BASELINES,
        SOME,
    )
    best = found[found["best_on_validation"]]
    assert set(best[["dataset", "model", "yardstick"]].itertuples(index=False, name=None)) == {
        ("d", "a", "last-item"),
        ("d", "b", "last-item"),
        ("e", "a", "markov"),
        ("e", "b", "markov"),
    }


def test_a_study_without_yardsticks_has_none():
    ranks = ranks_at_random(np.random.default_rng(5))
    found = yardsticks(ranks, evaluations_of(VALIDATION), CUTOFF, [], SOME)
    assert found.empty and {"yardstick", "value", "best_on_validation"} <= {*found}
