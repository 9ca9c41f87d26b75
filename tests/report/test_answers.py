"""What the page says in words, against summaries made by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from lastitem.report import answers

STUDY = {"dataset": "d", "split": "gts", "model": "m"}


def change(value: float, low: float, high: float) -> pd.Series:
    return pd.Series({"value": value, "ci_low": low, "ci_high": high})


@pytest.mark.parametrize(
    ("partial", "full", "said"),
    [
        (
            change(0.8, -1, 3),
            change(-47, -52, -41),
            "Which item is last matters, the order of those before it does not.",
        ),
        (
            change(-29, -37, -20),
            change(-52, -60, -44),
            "It uses the order of the items before the last.",
        ),
        (
            change(-6, -14, 2),
            change(-52, -60, -44),
            "Which item is last matters; whether the order before does, these data do not tell.",
        ),
        (change(-8, -10, -6), change(-4, -9, 1), "It uses the order of the items before the last."),
        (
            change(-4.7, -8.4, -0.4),
            change(-52, -60, -44),
            "It uses the order of the items before the last a little.",
        ),
        (
            change(8, 6, 10),
            change(-40, -45, -35),
            "The order of the items before the last misleads it.",
        ),
        (change(0, -1, 1), change(1, -2, 3), "It does not mind the order of the history."),
        (change(0, -9, 9), change(1, -2, 3), "These data do not tell."),
        (change(0, -1, 1), change(-4, -9, 1), "These data do not tell."),
        # What is known of generated logs (docs/truths.md): the last item, the last but
        # one, the set, nothing.
        (
            change(-0.0, -0.1, 0.0),
            change(-82.1, -82.7, -81.4),
            "Which item is last matters, the order of those before it does not.",
        ),
        (
            change(-77.2, -78.1, -76.4),
            change(-78.8, -79.6, -77.9),
            "It uses the order of the items before the last.",
        ),
        (
            change(0.2, -0.4, 0.8),
            change(0.4, -0.3, 1.0),
            "It does not mind the order of the history.",
        ),
        (
            change(-0.3, -1.0, 0.4),
            change(-1.2, -2.2, -0.1),
            "It does not mind the order of the history.",
        ),
        (change(0.2, -4.1, 5.0), change(12.6, 3.3, 24.1), "Which item is last misleads it."),
        (
            change(0.2, -2.1, 2.0),
            change(-11.3, -16.0, -6.7),
            "Which item is last matters a little, the order of those before it does not.",
        ),
    ],
)
def test_verdicts(partial, full, said):
    """Intervals decide: within ± 5 % is no change, below zero a loss (a little one
    within 10 %), all else is not known. What the full shuffle does beyond the partial
    one is here their difference, as sure as the full one.
    """
    assert answers.verdict(partial, full, full - partial["value"]) == said


@pytest.mark.parametrize(
    ("partial", "full", "beyond", "said"),
    [
        (change(-6, -14, 2), change(-7, -14, -1), change(-1, -5, 3), "These data do not tell."),
        (
            change(-2.9, -4.9, -1.0),
            change(-3.0, -5.1, -1.0),
            change(-0.1, -1, 1),
            "These data do not tell.",
        ),
        (
            change(-2.9, -4.9, -1.0),
            change(-52, -60, -44),
            change(-49, -57, -41),
            "Which item is last matters, the order of those before it hardly does.",
        ),
    ],
)
def test_the_last_item_matters_only_beyond_the_order_before_it(partial, full, beyond, said):
    """A full shuffle that costs no more than one that keeps the last item says nothing
    about the last item.
    """
    assert answers.verdict(partial, full, beyond) == said


def summaries(with_last_but_one: bool = True, unchanged: float = 12.0, users: int = 1234):
    effects = pd.DataFrame(
        [
            {
                "order": order,
                "measure": measure,
                "value": value,
                "ci_low": value - 1.04,
                "ci_high": value + 2.06,
            }
            for order, measure, value in (
                ("ordered", "value", 0.02),
                ("partial", "change_percent", 0.84),
                ("full", "change_percent", -47.2),
                ("full", "beyond_partial_percent", -48.0),
                ("partial", "unchanged_percent", unchanged),
                ("full", "unchanged_percent", unchanged / 2),
                ("partial", "hit_percent", 5.0),
                ("full", "hit_percent", 5.0),
            )
        ]
    ).assign(**STUDY, users=users, trainings=2)
    measures = ("HRLI", "HRL2I") if with_last_but_one else ("HRLI",)
    rates = pd.DataFrame(
        [{"measure": name, "value": 0.861, "ci_low": 0.85, "ci_high": 0.8712} for name in measures]
    ).assign(**STUDY)
    return effects, pd.concat([rates.assign(model="other", value=0.1), rates])


def test_the_sentence():
    (answer,) = answers.answers(*summaries(), 10)
    assert (
        answer.sentence
        == "m on d (gts): shuffling all but the last item changes NDCG@10 by +0.8 % [-0.2, +2.9],"
        " shuffling everything by -47.2 % [-48.2, -45.1]; the last item itself stands in 86.1 %"
        " [85.0, 87.1] of the users' top 10, the one before it in 86.1 % [85.0, 87.1] (n = 1,234"
        " users, 2 seeds)."
    )
    (answer,) = answers.answers(*summaries(with_last_but_one=False), 10)
    assert "the one before it" not in answer.sentence


def test_inputs_that_a_shuffle_leaves_as_they_are_are_told_of():
    (answer,) = answers.answers(*summaries(unchanged=40.0), 10)
    assert (
        "; 40 % of the inputs are too short for the first shuffle to change them, or stay as they"
        " were (n = " in answer.sentence
    )
    (answer,) = answers.answers(*summaries(unchanged=100.0), 10)
    assert answer.verdict == "These data do not tell: every input is too short to be changed by it."
    (answer,) = answers.answers(*summaries(users=100), 10)
    assert answer.verdict == "These data do not tell: only 5 users have a hit."


def test_without_accuracy_there_is_no_change():
    nothing = float("nan")
    assert answers.percent(change(nothing, nothing, nothing)) == "n/a (the accuracy is zero)"
    assert answers.verdict(*[change(nothing, nothing, nothing)] * 3) == "These data do not tell."


def test_warnings():
    table1 = {
        "dataset": "d",
        "source": "measured",
        "ties": "file",
        "tied_transitions_percent": 43.9,
        "tied_targets_percent": 43.5,
        "raw_users": 1000,
        "raw_items": 70,
        "raw_interactions": 9000,
        "users": 500,
        "items": 34,
        "interactions": 4499,
    }
    whole = {"users": 1000, "items": 70, "interactions": 9000}
    statistics = pd.DataFrame(
        [
            table1,
            {**table1, **whole, "dataset": "e", "tied_transitions_percent": 9.9},
            {**table1, "source": "paper"},
        ]
    )
    study = {
        "split": "gts",
        "model": "m",
        "trainings": 1,
        "users": 5000,
        "cases": 5000,
        "cold_targets": 0,
        "targets_lost_to_filter": 0,
        "hardly_learned": 0,
        "cut_short": 0,
    }
    accuracy = pd.DataFrame(
        [
            {
                **study,
                "dataset": "d",
                "users": 999,
                "cases": 1000,
                "cold_targets": 51,
                "targets_lost_to_filter": 11,
                "hardly_learned": 7,
                "cut_short": 1000,
            },
            {**study, "dataset": "e", "cold_targets": 250, "targets_lost_to_filter": 50},
        ]
    )
    said = list(answers.warnings(statistics, accuracy))
    assert [text.split(";")[0].split(".")[0] for text in said] == [
        "d: 43",
        "d: the core filter left 4,499 of 9,000 events",
        "d: the core filter left 34 of 70 items",
        "d (gts): only 999 users are tested",
        "d (gts): 51 of 1,000 targets never occur in training",
        (
            "d (gts): 11 of 1,000 targets are in the user's history already, so the seen filter"
            " makes them misses"
        ),
        (
            "m on d (gts): 7 of 1,000 cases are read at a place that had fewer than 100 labels in"
            " training"
        ),
        "m on d (gts): 1,000 of 1,000 inputs are longer than training reached",
        "Trained once (one seed): m",
    ]
    assert not list(answers.warnings(statistics[1:2], accuracy[1:].assign(trainings=2)))


def test_a_training_that_was_cut_short_is_told():
    """Best in the last of its epochs; not one that stopped before, nor a model without
    epochs.
    """
    run = {"dataset": "d", "split": "loo", "model": "m", "seed": 3}
    training = {"maximum_epochs": 60}
    descriptions = [
        {"run": run, "training": training, "best": {"epoch": 60}},
        {"run": run, "training": training, "best": {"epoch": 59}},
        {"run": run, "training": training, "best": None},
    ]
    (warning,) = answers.training_warnings(descriptions)
    assert warning.startswith("m on d (loo), seed 3: validation was best in the last of 60 epochs")


def test_the_versions_are_those_of_the_trainings():
    """One set is named; two are a reason to warn."""
    old, new = {"lastitem": "0.1.0", "torch": "2.12.0"}, {"lastitem": "0.1.0", "torch": "2.13.0"}
    assert (
        answers.versions_of([new, new]) == ["lastitem 0.1.0, torch 2.13.0"]
        and list(answers.version_warnings([new, new])) == []
    )
    (warning,) = answers.version_warnings([new, old, new])
    assert "lastitem 0.1.0, torch 2.12.0; lastitem 0.1.0, torch 2.13.0" in warning
