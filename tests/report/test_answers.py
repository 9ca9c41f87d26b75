"""What the page says in words, against tables made by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from lastitem.report import answers
from lastitem.report.worths import ACCOUNT, ITEMS, LAST, ORDER, REST, SHARE
from tests.report.test_verdicts import worths_of

CHANGES = {
    "without_last": (-40.0, -30.0),
    "strangers_context": (-0.24, 2.86),
    "last_only": (-3.0, 1.0),
    "partial": (-1.0, 1.0),
    "full": (-90.0, -1.0),
    "strangers_last": (-60.0, -50.0),
}


def account_of(*parts, group="all", **study):
    """Rows of the account: name, value, ends of the interval."""
    table = pd.DataFrame(parts, columns=["part", "value", "ci_low", "ci_high"])
    run = {"dataset": "d", "split": "gts", "model": "m"} | study
    return table.assign(reading=ACCOUNT, group=group, users=1234, trainings=2, **run)


def shares_of(*yardsticks, **study):
    """Rows of yardsticks: name, percent, ends of the interval, whether it was the best
    on validation of those that see the last item alone.
    """
    names = ["part", "value", "ci_low", "ci_high", "best_on_validation"]
    table = pd.DataFrame(yardsticks, columns=names)
    run = {"dataset": "d", "split": "gts", "model": "m"} | study
    return table.assign(
        yardstick=table["part"], reading=SHARE, group="all", users=1234, trainings=2, **run
    )


def answer_of(*tables, models=("m",)):
    (answer,) = answers.answers(pd.concat(tables, ignore_index=True), models, 10)
    return answer


def test_the_sentences():
    """The changes in the order of the verdict, whatever that of the rows; the full
    shuffle is none of them.
    """
    answer = answer_of(worths_of(CHANGES, users=1234))
    assert (answer.model, answer.log) == ("m", "d (gts)")
    assert answer.verdict == (
        "It hardly looks at which items came before the last; their order hardly counts; it uses"
        " the last item."
    )
    assert list(answer.sentences) == [
        (
            "Change of NDCG@10: another user's items before the last +1.3 % [-0.2, +2.9]; no items"
            " before the last -1.0 % [-3.0, +1.0]; their order shuffled +0.0 % [-1.0, +1.0];"
            " another user's last item -55.0 % [-60.0, -50.0]; without the last item -35.0 %"
            " [-40.0, -30.0]; n = 1,234 users, 2 seeds."
        ),
        "A change of less than about 5 % these users cannot tell from none.",
    ]


def test_one_seed_is_one_seed_and_what_is_not_there_is_not_told():
    some = {name: CHANGES[name] for name in ("last_only", "partial")}
    answer = answer_of(worths_of(some, users=1234).assign(trainings=1))
    assert answer.sentences[0] == (
        "Change of NDCG@10: no items before the last -1.0 % [-3.0, +1.0]; their order shuffled"
        " +0.0 % [-1.0, +1.0]; n = 1,234 users, 1 seed."
    )
    assert "stranger's context is not in this study" in answer.verdict
    answer = answer_of(worths_of({"full": (-9.0, -1.0)}))
    assert list(answer.sentences) == [] and list(answer.account) == []


@pytest.mark.parametrize(("unchanged", "told"), [(20.0, False), (20.6, True), (100.0, True)])
def test_inputs_that_a_shuffle_leaves_as_they_are_are_told_of(unchanged, told):
    answer = answer_of(worths_of(CHANGES, unchanged=unchanged))
    said = (
        f"{unchanged:.0f} % of the inputs are too short for a shuffle of the items before the last"
        " to change them, or stay as they were."
    )
    assert (said in answer.sentences) == told


def test_the_account_is_of_all_cases_and_of_what_has_a_value():
    """In the order of the table; a part without a value is not drawn."""
    account = (
        (ORDER, 1.0, -1.0, 3.0),
        (ITEMS, -4.0, -9.0, 1.0),
        (LAST, 60.0, 50.0, 70.0),
        (REST, 43.0, 40.0, 46.0),
    )
    others = (
        account_of((ORDER, 9.0, 9.0, 9.0), group="tied"),
        account_of((ORDER, 8.0, 8.0, 8.0), model="other"),
    )
    answer = answer_of(worths_of(CHANGES), *others, account_of(*account))
    assert [tuple(part) for part in answer.account] == list(account)
    assert answer.account[1].ci_low == -9.0 and answer.account[2].name == LAST
    nothing = (LAST, *[float("nan")] * 3)
    answer = answer_of(worths_of(CHANGES), account_of(account[0], nothing))
    assert [part.name for part in answer.account] == [ORDER]


@pytest.mark.parametrize("as_text", [False, True])
def test_the_sentence_of_the_yardstick_names_the_best_on_validation(as_text):
    """Whatever others have; a CSV holds True as text where other rows have nothing."""
    shares = shares_of(
        ("popularity", 20.0, 15.0, 25.0, False),
        ("markov", 70.4, 60.2, 80.6, True),
        ("last-item", 90.0, 80.0, 99.0, False),
    )
    if as_text:
        shares["best_on_validation"] = shares["best_on_validation"].map(str)
    other = shares_of(("last-item", 1.0, 1.0, 1.0, True), model="other")
    answer = answer_of(worths_of(CHANGES, model="m"), other, shares)
    assert answer.sentences[-1] == (
        "70 % [60, 81] of m's accuracy is had from the last item alone, by Markov chain. That"
        " speaks of the data, not of what m does."
    )
    none = shares_of(("popularity", 20.0, 15.0, 25.0, False))
    assert not any(
        "accuracy is had" in text for text in answer_of(worths_of(CHANGES), none).sentences
    )


def test_yardsticks_are_not_asked_and_models_have_their_names():
    table = pd.concat(
        [worths_of(CHANGES, model=model) for model in ("sasrec", "gru4rec", "markov")]
        + [worths_of(CHANGES, model="sasrec", split="loo")]
    )
    found = list(answers.answers(table, ["sasrec", "gru4rec"], 10))
    assert [(answer.model, answer.log) for answer in found] == [
        ("SASRec", "d (gts)"),
        ("GRU4Rec", "d (gts)"),
        ("SASRec", "d (loo)"),
    ]


# Warnings


def log_of(**changed):
    """The row of a log in table1 that nothing is unusual about."""
    return {
        "dataset": "d",
        "source": "measured",
        "ties": "file",
        "tied_transitions_percent": 9.9,
        "tied_targets_percent": 43.5,
        "raw_users": 1000,
        "raw_items": 1000,
        "raw_interactions": 9000,
        "users": 500,
        "items": 560,
        "interactions": 4500,
        "avg_length": 60.0,
    } | changed


def accuracy_of(*changed):
    """Rows of table2 that nothing is unusual about, each changed."""
    row = {
        "dataset": "d",
        "split": "gts",
        "model": "m",
        "metric": "ndcg",
        "cutoff": 100,
        "trainings": 2,
        "users": 1000,
        "cases": 1000,
        "filter_seen": True,
        "cold_targets": 50,
        "targets_lost_to_filter": 10,
        "hardly_learned": 0,
        "cut_short": 0,
    }
    return pd.DataFrame([row | own for own in changed or ({},)])


def warned(statistics=({},), accuracy=({},), shares=None):
    shares = shares_of(("markov", 70.0, 60.0, 99.9, True)) if shares is None else shares
    logs = pd.DataFrame([log_of(**own) for own in statistics])
    worths = pd.concat([worths_of(CHANGES), shares], ignore_index=True)
    return list(answers.warnings(logs, accuracy_of(*accuracy), worths))


def test_nothing_unusual_is_nothing_to_warn_of():
    """Each number is at the bound from which a reader is warned."""
    paper = {"source": "paper", "users": 505, "items": 565, "interactions": 4545}
    assert warned(statistics=({}, paper)) == []
    assert warned(statistics=({"users": 495, "raw_users": 900}, {**paper, "users": 500})) == []
    assert warned(accuracy=({}, {"metric": "hr", "cutoff": 50})) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"tied_transitions_percent": 43.91},
            (
                "d: 43.9 % of the consecutive events and 43.5 % of the targets have the same time"
                " as the event before. Their order is no order of clicks (ties: file), and part of"
                " what is found may be that order; table5 and fig7 tell how much, where made."
            ),
        ),
        (
            {"interactions": 4499},
            (
                "d: the core filter left 4,499 of 9,000 events; what is found is about these. A"
                " smaller p_core keeps more."
            ),
        ),
        (
            {"users": 499},
            (
                "d: the core filter left 499 of 1,000 users; what is found is about these. A"
                " smaller p_core keeps more."
            ),
        ),
        (
            {"raw_items": 1121},
            (
                "d: the core filter left 560 of 1,121 items; what is found is about these. A"
                " smaller p_core keeps more."
            ),
        ),
        (
            {"items": 559, "raw_items": 600},
            (
                "d (gts): about 499 items can be recommended to a user, and lists are up to 100"
                " long: a hit says little. Smaller cutoffs say more."
            ),
        ),
        (
            {"avg_length": 61.0},
            (
                "d (gts): about 499 items can be recommended to a user, and lists are up to 100"
                " long: a hit says little. Smaller cutoffs say more."
            ),
        ),
    ],
)
def test_what_is_unusual_about_a_log_is_told(changed, told):
    assert warned(statistics=(changed,)) == [told]


@pytest.mark.parametrize(
    ("column", "theirs", "told"),
    [
        ("users", 510, "d: 500 users where the paper has 510."),
        ("items", 554, "d: 560 items where the paper has 554."),
        ("interactions", 4600, "d: 4,500 events where the paper has 4,600."),
    ],
)
def test_a_log_of_another_size_than_the_papers_is_told(column, theirs, told):
    paper = {"source": "paper", column: theirs}
    question = (
        " Is it another edition of the log, or another filter? Its numbers are not the paper's."
    )
    assert warned(statistics=({}, paper)) == [told + question]
    other = {**paper, "dataset": "e"}
    assert warned(statistics=({}, other)) == [], "of another log"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"users": 999}, "d (gts): only 999 users are tested; the intervals are wide."),
        (
            {"cutoff": 101},
            (
                "d (gts): about 500 items can be recommended to a user, and lists are up to 101"
                " long: a hit says little. Smaller cutoffs say more."
            ),
        ),
        (
            {"cold_targets": 51},
            (
                "d (gts): 51 of 1,000 targets never occur in training; no model here can learn"
                " them. table2 has the accuracy without them, too."
            ),
        ),
        (
            {"targets_lost_to_filter": 11},
            (
                "d (gts): 11 of 1,000 targets are in the user's history already, so the seen"
                " filter makes them misses; consider filter_seen: false."
            ),
        ),
        (
            {"hardly_learned": 7},
            (
                "m on d (gts): 7 of 1,000 cases are read at a place that had fewer than 100 labels"
                " in training; what is predicted there was hardly learned."
            ),
        ),
        (
            {"cut_short": 1000},
            (
                "m on d (gts): 1,000 of 1,000 inputs are longer than training reached; of these"
                " only the newest items are read, as many as it did reach."
            ),
        ),
        (
            {"trainings": 1},
            (
                "Trained once (one seed): m. Their intervals are over users and say nothing about"
                " another training."
            ),
        ),
    ],
)
def test_what_is_unusual_about_a_test_part_or_a_model_is_told(changed, told):
    assert warned(accuracy=(changed,)) == [told]


def test_items_that_are_not_filtered_are_left_to_be_recommended():
    small = {"items": 500, "raw_items": 600}
    assert warned(statistics=(small,), accuracy=({"filter_seen": False},)) == []
    (told,) = warned(statistics=(small,))
    assert told.startswith("d (gts): about 440 items")


def test_a_log_is_warned_of_once_and_each_model_for_itself():
    """Also where a model has rows of many metrics; models that were trained once are
    named together.
    """
    rows = [
        {"model": model, "metric": metric, "users": 9, "hardly_learned": 3, "trainings": 1}
        for model in ("m", "b")
        for metric in ("ndcg", "hr")
    ]
    said = warned(accuracy=rows)
    assert [text.split(":")[0].split(" of ")[0] for text in said] == [
        "d (gts)",
        "m on d (gts)",
        "b on d (gts)",
        "Trained once (one seed)",
    ]
    assert "Trained once (one seed): m, b." in said[-1]


@pytest.mark.parametrize(
    ("high", "told"), [(99.9, False), (100.0, True), (130.0, True), (float("nan"), False)]
)
def test_a_model_that_is_not_better_than_a_yardstick_is_told(high, told):
    shares = shares_of(
        ("markov", 92.0, 80.0, high, False),
        ("popularity", 20.0, 10.0, 30.0, False),
        model="sasrec",
    )
    said = [
        "SASRec on d (gts) is not shown to be better than Markov chain, which has 92 % [80,"
        f" {high:.0f}] of its accuracy."
    ]
    assert warned(shares=shares) == (said if told else [])


def test_a_choice_of_the_scale_without_a_hit_is_told():
    """Once for each training, whatever it was asked; not of the row of all seeds."""
    row = {"dataset": "d", "split": "loo", "model": "sasrec", "validation_hit_rate_at_1": 0.0}
    choices = pd.DataFrame(
        [
            {**row, "seed": seed, "tolerance": tolerance}
            for seed in ("1", "2", "all")
            for tolerance in (0.0, 0.01)
        ]
        + [{**row, "seed": "3", "validation_hit_rate_at_1": 0.01}]
        + [{"dataset": "d", "split": "loo", "model": "gru4rec", "note": "n/a: no attention"}]
    )
    assert list(answers.choice_warnings(choices)) == [
        f"SASRec on d (loo), seed {seed}: nothing is hit on validation at λ = 1, so every λ was"
        " allowed; the choice of λ says nothing."
        for seed in (1, 2)
    ]
    assert not list(answers.choice_warnings(choices[["dataset", "split", "model", "seed"]]))


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
